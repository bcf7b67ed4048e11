//! Results of calls.

use braiddb::Error;

/// Result of a call: 0 and positive are no failures, negative are failures. After a failure
/// `braid_error_message` describes it.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum braid_code {
    /** Done. */
    BRAID_OK = 0,
    /** The key, or what a condition expects, is not there. Nothing was changed. */
    BRAID_NOT_FOUND = 1,
    /** No more rows or changes. */
    BRAID_END = 2,
    /** The time is up. */
    BRAID_TIMEOUT = 3,
    /** An argument is impossible. Nothing was written. */
    BRAID_INVALID_ARGUMENT = -1,
    /** The database is closed. */
    BRAID_CLOSED = -2,
    /** The transaction conflicts with a later commit. Nothing was written: begin it again. */
    BRAID_CONFLICT = -3,
    /** A file is damaged. */
    BRAID_CORRUPTION = -4,
    /** The system refused an operation on a file. */
    BRAID_IO = -5,
    /** The disk is full. The write was not applied; writes resume with space. */
    BRAID_DISK_FULL = -6,
    /** Another handle or process has the database, backup, archive or bucket in use. */
    BRAID_LOCKED = -7,
    /** The database takes no writes. */
    BRAID_READ_ONLY = -8,
    /** The commit may or may not be there after the next open: its sync failed. */
    BRAID_OUTCOME_UNKNOWN = -9,
    /** The named tree, database, file or function does not exist. */
    BRAID_NO_SUCH = -10,
    /** It exists already. */
    BRAID_EXISTS = -11,
    /** The transaction needs more memory than allowed. */
    BRAID_TOO_LARGE = -12,
    /** A merge function failed on the key's operands. */
    BRAID_MERGE_FAILED = -13,
    /** The snapshot, cursor, scan or transaction was in use for too long. */
    BRAID_EXPIRED = -14,
    /** An exclusive transaction stayed open for too long. Nothing was written. */
    BRAID_EXCLUSIVE_OPEN = -15,
    /** The log no longer has the commits that the watcher needs. */
    BRAID_WATCH_TOO_OLD = -16,
    /** A callback of the program ended the call. */
    BRAID_ABORTED = -17,
    /** The file or option needs another build. */
    BRAID_UNSUPPORTED = -18,
    /** Another process changes the database too fast for this read. */
    BRAID_TOO_BUSY = -19,
    /** The buffer is too small. */
    BRAID_BUFFER_TOO_SMALL = -20,
    /** The transaction was committed or rolled back before. */
    BRAID_TRANSACTION_ENDED = -21,
    /** A fault of BraidDB, caught at this boundary. Close the database, and report it. */
    BRAID_PANIC = -22,
    /** Another failure. */
    BRAID_OTHER = -99,
}

use braid_code::*;

impl braid_code {
    pub(crate) const ALL: [braid_code; 27] = [
        BRAID_OK,
        BRAID_NOT_FOUND,
        BRAID_END,
        BRAID_TIMEOUT,
        BRAID_INVALID_ARGUMENT,
        BRAID_CLOSED,
        BRAID_CONFLICT,
        BRAID_CORRUPTION,
        BRAID_IO,
        BRAID_DISK_FULL,
        BRAID_LOCKED,
        BRAID_READ_ONLY,
        BRAID_OUTCOME_UNKNOWN,
        BRAID_NO_SUCH,
        BRAID_EXISTS,
        BRAID_TOO_LARGE,
        BRAID_MERGE_FAILED,
        BRAID_EXPIRED,
        BRAID_EXCLUSIVE_OPEN,
        BRAID_WATCH_TOO_OLD,
        BRAID_ABORTED,
        BRAID_UNSUPPORTED,
        BRAID_TOO_BUSY,
        BRAID_BUFFER_TOO_SMALL,
        BRAID_TRANSACTION_ENDED,
        BRAID_PANIC,
        BRAID_OTHER,
    ];
}

pub(crate) fn of_error(error: &Error) -> braid_code {
    match error {
        _ if error.is_commit_unknown() => BRAID_OUTCOME_UNKNOWN,
        _ if error.is_corruption() => BRAID_CORRUPTION,
        Error::Io { .. } => BRAID_IO,
        Error::InvalidArgument(_) => BRAID_INVALID_ARGUMENT,
        Error::NotFound(_) => BRAID_NO_SUCH,
        Error::AlreadyExists(_) => BRAID_EXISTS,
        Error::Locked { .. } => BRAID_LOCKED,
        Error::DiskFull { .. } => BRAID_DISK_FULL,
        Error::ReadOnly { .. } => BRAID_READ_ONLY,
        Error::Conflict { .. } => BRAID_CONFLICT,
        Error::TransactionTooLarge { .. } => BRAID_TOO_LARGE,
        Error::MergeFailed { .. } => BRAID_MERGE_FAILED,
        Error::ReaderExpired { .. } | Error::Superseded => BRAID_EXPIRED,
        Error::ExclusiveOpen { .. } => BRAID_EXCLUSIVE_OPEN,
        Error::WatchTooOld { .. } => BRAID_WATCH_TOO_OLD,
        Error::Aborted(_) => BRAID_ABORTED,
        Error::Unsupported { .. } => BRAID_UNSUPPORTED,
        Error::TooBusy { .. } => BRAID_TOO_BUSY,
        Error::Closed => BRAID_CLOSED,
        _ => BRAID_OTHER,
    }
}
