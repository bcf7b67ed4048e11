//! Codes and details of failures, from which Java makes exceptions.

use braiddb::Error;
use jni::sys::jlong;

/// A fault of this library, such as a panic.
pub const INTERNAL: jlong = -100;
const CLOSED: jlong = -101;
const INVALID_ARGUMENT: jlong = -102;
const NOT_FOUND: jlong = -103;
const ALREADY_EXISTS: jlong = -104;
const LOCKED: jlong = -105;
const READ_ONLY: jlong = -106;
const CONFLICT: jlong = -107;
const EXCLUSIVE_OPEN: jlong = -108;
const TRANSACTION_TOO_LARGE: jlong = -109;
const OUTCOME_UNKNOWN: jlong = -110;
const CORRUPTION: jlong = -111;
const BACKUP_DAMAGED: jlong = -112;
const ARCHIVE_GAP: jlong = -113;
const IO: jlong = -114;
const DISK_FULL: jlong = -115;
const MERGE_FAILED: jlong = -116;
const READER_EXPIRED: jlong = -117;
const WATCH_TOO_OLD: jlong = -118;
const UNSUPPORTED: jlong = -119;
const TOO_BUSY: jlong = -120;
const NO_OWNER: jlong = -121;
const DUMP_DAMAGED: jlong = -122;
const OTHER: jlong = -123;

/// A failed call.
#[derive(Clone, Debug)]
pub struct Failure {
    pub code: jlong,
    message: String,
    /// Of the damaged file.
    path: String,
    offset: Option<u64>,
}

impl Failure {
    fn new(code: jlong, message: String) -> Failure {
        Failure { code, message, path: String::new(), offset: None }
    }

    pub fn internal(message: String) -> Failure {
        Failure::new(INTERNAL, message)
    }

    pub fn argument(message: impl Into<String>) -> Failure {
        Failure::new(INVALID_ARGUMENT, message.into())
    }

    pub fn closed() -> Failure {
        Error::Closed.into()
    }

    pub fn ended() -> Failure {
        Failure::new(CLOSED, "the transaction has ended: begin another one".to_owned())
    }

    pub fn of_snapshot() -> Failure {
        Failure::new(READ_ONLY, "a snapshot takes no writes: write to the tree itself".to_owned())
    }

    pub fn not_in_transaction(call: &str) -> Failure {
        Failure::argument(format!("{call} is a commit of its own: call it on the tree, not in a transaction"))
    }

    /// Writes offset, message and path, as far as the buffer holds them.
    pub fn write(&self, buffer: &mut [u8]) {
        let Some((offset, rest)) = buffer.split_first_chunk_mut() else { return };
        *offset = self.offset.map_or(-1, |offset| i64::try_from(offset).unwrap_or(i64::MAX)).to_le_bytes();
        let rest = write_text(rest, &self.message);
        write_text(rest, &self.path);
    }
}

/// Writes a text, shortened to half of the buffer.
fn write_text<'a>(buffer: &'a mut [u8], text: &str) -> &'a mut [u8] {
    let mut end = text.len().min(buffer.len() / 2);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = &text[..end];
    let Some((len, rest)) = buffer.split_first_chunk_mut() else { return &mut [] };
    let Some((place, rest)) = rest.split_at_mut_checked(text.len()) else { return &mut [] };
    *len = (text.len() as u32).to_le_bytes();
    place.copy_from_slice(text.as_bytes());
    rest
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let mut failure = Failure::new(code_of(&error), error.to_string());
        if let Error::Corruption(damage) = &error {
            failure.path = damage.path().to_string_lossy().into_owned();
            failure.offset = Some(damage.offset());
        }
        failure
    }
}

fn code_of(error: &Error) -> jlong {
    match error {
        Error::Closed => CLOSED,
        Error::InvalidArgument(_) => INVALID_ARGUMENT,
        Error::NotFound(_) => NOT_FOUND,
        Error::AlreadyExists(_) => ALREADY_EXISTS,
        Error::Locked { .. } => LOCKED,
        Error::ReadOnly { .. } => READ_ONLY,
        Error::Conflict { .. } => CONFLICT,
        Error::ExclusiveOpen { .. } => EXCLUSIVE_OPEN,
        Error::TransactionTooLarge { .. } => TRANSACTION_TOO_LARGE,
        Error::CommitUnknown { .. } | Error::OutcomeUnknown { .. } => OUTCOME_UNKNOWN,
        Error::Corruption(_) => CORRUPTION,
        Error::BackupDamaged { .. } => BACKUP_DAMAGED,
        Error::ArchiveGap { .. } => ARCHIVE_GAP,
        Error::Io { .. } => IO,
        Error::DiskFull { .. } => DISK_FULL,
        Error::MergeFailed { .. } => MERGE_FAILED,
        Error::ReaderExpired { .. } | Error::Superseded => READER_EXPIRED,
        Error::WatchTooOld { .. } => WATCH_TOO_OLD,
        Error::Unsupported { .. } => UNSUPPORTED,
        Error::TooBusy { .. } => TOO_BUSY,
        Error::NoOwner { .. } => NO_OWNER,
        Error::DumpDamaged { .. } => DUMP_DAMAGED,
        _ => OTHER,
    }
}
