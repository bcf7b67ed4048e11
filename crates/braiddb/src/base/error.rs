//! The one error type.

use super::{Corruption, NoSpace, ReaderKind, SequenceNumber};
use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// Result of every fallible call.
pub type Result<T> = std::result::Result<T, Error>;

/// Reason why a call failed, with advice. Prefer the predicates to a match: variants may be added.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation on a file.
    Io {
        /// The operation, as a verb: "read", "write", "sync".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file holds bytes that BraidDB did not write, or lacks bytes that it wrote.
    Corruption(Corruption),
    /// A backup holds bytes that its backup run did not write, or lacks bytes that it wrote.
    BackupDamaged {
        /// The object of the backup, by its name in the target.
        path: PathBuf,
        /// The problem with the object.
        detail: String,
    },
    /// A log archive lacks commits: a restore across the gap fails, and so does
    /// [`crate::Db::archive_now`].
    ArchiveGap {
        /// The directory in the archive.
        path: PathBuf,
        /// The first missing commit.
        first: SequenceNumber,
        /// The last missing commit.
        last: SequenceNumber,
        /// The last commit before the gap.
        reached: SequenceNumber,
        /// The cause, as far as known.
        reason: String,
    },
    /// A dump holds bytes that were not written to it, or is cut short.
    DumpDamaged {
        /// Offset in the dump, in bytes.
        offset: u64,
        /// The problem at the offset.
        detail: String,
    },
    /// The caller's request is impossible; nothing was changed.
    InvalidArgument(String),
    /// A named tree, database or other object does not exist.
    NotFound(String),
    /// A named tree, database or other object exists already.
    AlreadyExists(String),
    /// Another handle or process has the database, backup, archive or bucket in use.
    Locked {
        /// Its directory or address.
        path: PathBuf,
        /// The owner, as far as known.
        owner: String,
    },
    /// The disk is full. The write was not applied; reads continue, and writes resume with space.
    DiskFull {
        /// The file that could not grow.
        path: PathBuf,
        /// The limit that was hit.
        reason: NoSpace,
    },
    /// The handle takes no writes: it was opened for reading, or a failure left the disk contents
    /// unknown.
    ReadOnly {
        /// The reason.
        reason: String,
    },
    /// The commit may or may not be there after the next open: its sync failed.
    CommitUnknown {
        /// The failure.
        reason: String,
    },
    /// A process that shares the database ([`crate::shared`]) sent a write to its owner, and cannot
    /// learn the outcome: the owner did not reply in time, and neither did a next owner. The write
    /// may have been applied, or may be applied soon.
    OutcomeUnknown {
        /// The reason.
        reason: String,
    },
    /// A process that shares the database ([`crate::shared`]) found no owner for a call in time.
    /// Nothing was written.
    NoOwner {
        /// The database directory.
        path: PathBuf,
        /// Duration of the wait.
        waited: Duration,
        /// The obstacle, as far as known.
        reason: String,
    },
    /// The transaction was not committed, and nothing was written: commits since its begin changed
    /// its reads, or there were too many to know. A retry may succeed; `Db::update` retries by itself.
    Conflict {
        /// The reason.
        reason: String,
    },
    /// The transaction's reads and writes exceed the memory for one. No write was applied.
    TransactionTooLarge {
        /// Memory that the transaction would take, in bytes.
        bytes: usize,
        /// Maximum, in bytes.
        bytes_max: usize,
    },
    /// A merge function could not make a value of a key's operands. The operands are kept, and each
    /// read tries again, until the key is put or deleted. An iterator returns this error for the
    /// record and can continue after it.
    MergeFailed {
        /// The tree's name.
        tree: String,
        /// The function's name.
        function: String,
        /// The key, with unprintable characters escaped.
        key: String,
        /// The failure.
        reason: String,
    },
    /// A snapshot, cursor, iterator or transaction was in use for longer than
    /// [`crate::Builder::reader_age_max`] allows. Versions that it needs may be gone. Its earlier
    /// results were right.
    ReaderExpired {
        /// The kind of reader.
        kind: ReaderKind,
        /// The last commit visible to it.
        sequence: SequenceNumber,
        /// Its age.
        age: Duration,
    },
    /// An exclusive transaction stayed open longer than [`crate::Builder::exclusive_wait_max`].
    /// Nothing was written.
    ExclusiveOpen {
        /// The thread that began it; the transaction may have moved to another since.
        begun_by: String,
        /// Its age.
        age: Duration,
    },
    /// The log lacks commits that a watcher has not seen: see [`crate::Db::watch`]. The watcher
    /// must start over from a snapshot.
    WatchTooOld {
        /// The last commit that the watcher has seen.
        after: SequenceNumber,
        /// The last commit before the retained log.
        floor: SequenceNumber,
    },
    /// The caller's own reason to abort a transaction: see [`Error::abort`].
    Aborted(Box<dyn std::error::Error + Send + Sync>),
    /// The file is of a newer version, or needs a feature that this build lacks.
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The missing feature.
        detail: String,
    },
    /// The handle belongs to a follower's state that was superseded too long ago. Its earlier
    /// results were right.
    Superseded,
    /// Another process changes the database faster than it can be read. This is no sign of damage.
    /// A follower keeps its state.
    TooBusy {
        /// The database directory.
        path: PathBuf,
        /// Number of attempts to read it.
        tries: u32,
        /// Duration of the attempts.
        took: Duration,
        /// The part that was out of date at the last attempt.
        reason: String,
    },
    /// The database was closed.
    Closed,
}

impl Error {
    /// Returns whether the log lacks commits that a watcher needs.
    pub fn is_watch_too_old(&self) -> bool {
        matches!(self, Error::WatchTooOld { .. })
    }

    /// Wraps an error of the operating system; a full disk becomes [`Error::DiskFull`].
    pub fn io(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Error {
        let path = path.into();
        match NoSpace::of(&source) {
            Some(reason) => Error::DiskFull { path, reason },
            None => Error::Io { action, path, source },
        }
    }

    /// Wraps an error of the operating system for a dump, a backup or an archive. A full disk there
    /// does not mean that the database's own is full.
    pub(crate) fn output(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Error {
        Error::io(action, path, source).of_output()
    }

    /// Marks a full disk as the disk of an output.
    pub(crate) fn of_output(self) -> Error {
        match self {
            Error::DiskFull { path, reason: NoSpace::Disk } => Error::DiskFull { path, reason: NoSpace::Output },
            other => other,
        }
    }

    pub(crate) fn too_busy(path: &Path, tries: u32, took: Duration, last: Error) -> Error {
        let reason = match last {
            Error::Corruption(damage) => format!("{}: {}", damage.path.display(), damage.detail),
            other => other.to_string(),
        };
        Error::TooBusy { path: path.to_owned(), tries, took, reason }
    }

    /// Makes an [`Error::Corruption`].
    pub fn corruption(path: impl Into<PathBuf>, offset: u64, detail: impl Into<String>) -> Error {
        Error::Corruption(Corruption::new(path.into(), offset, detail.into()))
    }

    /// Makes an error by which the caller aborts a transaction for a reason of its own.
    pub fn abort(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Aborted(reason.into())
    }

    /// Makes an [`Error::Conflict`].
    pub fn conflict(reason: impl Into<String>) -> Error {
        Error::Conflict { reason: reason.into() }
    }

    /// Copies the error, for another caller of the operation that failed.
    pub fn duplicate(&self) -> Error {
        match self {
            Error::Io { action, path, source } => {
                let source = io::Error::new(source.kind(), source.to_string());
                Error::Io { action, path: path.clone(), source }
            }
            Error::Corruption(damage) => Error::Corruption(damage.clone()),
            Error::BackupDamaged { path, detail } => {
                Error::BackupDamaged { path: path.clone(), detail: detail.clone() }
            }
            Error::ArchiveGap { path, first, last, reached, reason } => Error::ArchiveGap {
                path: path.clone(),
                first: *first,
                last: *last,
                reached: *reached,
                reason: reason.clone(),
            },
            Error::DumpDamaged { offset, detail } => Error::DumpDamaged { offset: *offset, detail: detail.clone() },
            Error::InvalidArgument(text) => Error::InvalidArgument(text.clone()),
            Error::NotFound(text) => Error::NotFound(text.clone()),
            Error::AlreadyExists(text) => Error::AlreadyExists(text.clone()),
            Error::Locked { path, owner } => Error::Locked { path: path.clone(), owner: owner.clone() },
            Error::DiskFull { path, reason } => Error::DiskFull { path: path.clone(), reason: *reason },
            Error::ReadOnly { reason } => Error::ReadOnly { reason: reason.clone() },
            Error::CommitUnknown { reason } => Error::CommitUnknown { reason: reason.clone() },
            Error::OutcomeUnknown { reason } => Error::OutcomeUnknown { reason: reason.clone() },
            Error::NoOwner { path, waited, reason } => {
                Error::NoOwner { path: path.clone(), waited: *waited, reason: reason.clone() }
            }
            Error::Conflict { reason } => Error::conflict(reason.clone()),
            Error::TransactionTooLarge { bytes, bytes_max } => {
                Error::TransactionTooLarge { bytes: *bytes, bytes_max: *bytes_max }
            }
            Error::MergeFailed { tree, function, key, reason } => Error::MergeFailed {
                tree: tree.clone(),
                function: function.clone(),
                key: key.clone(),
                reason: reason.clone(),
            },
            Error::ReaderExpired { kind, sequence, age } => {
                Error::ReaderExpired { kind: *kind, sequence: *sequence, age: *age }
            }
            Error::ExclusiveOpen { begun_by, age } => Error::ExclusiveOpen { begun_by: begun_by.clone(), age: *age },
            Error::WatchTooOld { after, floor } => Error::WatchTooOld { after: *after, floor: *floor },
            Error::Aborted(reason) => Error::abort(reason.to_string()),
            Error::Unsupported { path, detail } => Error::Unsupported { path: path.clone(), detail: detail.clone() },
            Error::TooBusy { path, tries, took, reason } => {
                Error::TooBusy { path: path.clone(), tries: *tries, took: *took, reason: reason.clone() }
            }
            Error::Superseded => Error::Superseded,
            Error::Closed => Error::Closed,
        }
    }

    /// Returns whether bytes of a database, a backup or a dump are damaged.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Error::Corruption(_) | Error::BackupDamaged { .. } | Error::DumpDamaged { .. })
    }

    /// Returns whether a log archive lacks commits.
    pub fn is_archive_gap(&self) -> bool {
        matches!(self, Error::ArchiveGap { .. })
    }

    /// Returns whether a merge function failed on one record; other records are readable.
    pub fn is_merge_failed(&self) -> bool {
        matches!(self, Error::MergeFailed { .. })
    }

    /// Returns whether the disk is full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Error::DiskFull { .. })
    }

    /// Returns whether the transaction had a conflict.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Conflict { .. })
    }

    /// Returns whether a reader expired; a new one may be taken.
    pub fn is_reader_expired(&self) -> bool {
        matches!(self, Error::ReaderExpired { .. })
    }

    /// Returns whether the failed commit may be there after the next open, whole or not at all. If
    /// false, none of it was applied or ever will be.
    pub fn is_commit_unknown(&self) -> bool {
        matches!(self, Error::CommitUnknown { .. } | Error::OutcomeUnknown { .. })
    }

    /// Returns whether a process that shares the database cannot learn the outcome of its write.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Error::OutcomeUnknown { .. })
    }

    /// Returns whether the caller's own [`Error::abort`] ended a transaction.
    pub fn is_aborted(&self) -> bool {
        matches!(self, Error::Aborted(_))
    }

    /// Returns whether a retry may succeed without a change by the caller. Begin transactions and
    /// readers again first.
    pub fn is_retryable(&self) -> bool {
        use Error::{Conflict, DiskFull, ExclusiveOpen, Locked, NoOwner, ReaderExpired, TooBusy};
        matches!(
            self,
            DiskFull { .. }
                | Locked { .. }
                | Conflict { .. }
                | ReaderExpired { .. }
                | ExclusiveOpen { .. }
                | TooBusy { .. }
                | NoOwner { .. }
        )
    }

    /// Returns whether a named object was missing.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::NotFound(_))
    }

    /// Returns whether a named object, or a file in the way of a new one, exists.
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Error::AlreadyExists(_))
    }

    /// Returns whether the request is impossible, whatever the state of the database.
    pub fn is_invalid_argument(&self) -> bool {
        matches!(self, Error::InvalidArgument(_))
    }

    /// Returns whether another handle or process has the database, backup, archive or bucket in use.
    pub fn is_locked(&self) -> bool {
        matches!(self, Error::Locked { .. })
    }

    /// Returns whether the handle takes no writes.
    pub fn is_read_only(&self) -> bool {
        matches!(self, Error::ReadOnly { .. })
    }

    /// Returns whether the database was closed.
    pub fn is_closed(&self) -> bool {
        matches!(self, Error::Closed)
    }
}

/// For `?` after [`Value::to_str`](crate::Value::to_str).
impl From<std::str::Utf8Error> for Error {
    fn from(error: std::str::Utf8Error) -> Error {
        Error::InvalidArgument(format!("the bytes are not text: {error}"))
    }
}

/// For `?` after `String::try_from(value)`.
impl From<std::string::FromUtf8Error> for Error {
    fn from(error: std::string::FromUtf8Error) -> Error {
        error.utf8_error().into()
    }
}

/// Keeps the kind of an error of the operating system; the error itself is the source.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::Io { source, .. } => source.kind(),
            Error::DiskFull { .. } => io::ErrorKind::StorageFull,
            Error::NotFound(_) => io::ErrorKind::NotFound,
            Error::InvalidArgument(_) => io::ErrorKind::InvalidInput,
            error if error.is_corruption() => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_error_of_error_keeps_kind_and_source() {
        let full = io::Error::from(Error::DiskFull { path: "d".into(), reason: NoSpace::Disk });
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        let denied = io::Error::from(Error::io("open", "f", io::ErrorKind::PermissionDenied.into()));
        assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
        let inner = denied.into_inner().unwrap().downcast::<Error>().unwrap();
        assert!(matches!(*inner, Error::Io { action: "open", .. }));
        let damaged = io::Error::from(Error::corruption("f", 3, "bad"));
        assert_eq!(damaged.kind(), io::ErrorKind::InvalidData);
        assert_eq!(io::Error::from(Error::Closed).kind(), io::ErrorKind::Other);
    }

    #[test]
    fn predicates_hold_for_their_variant_only() {
        let errors = [
            Error::NotFound(String::new()),
            Error::AlreadyExists(String::new()),
            Error::InvalidArgument(String::new()),
            Error::Locked { path: "d".into(), owner: String::new() },
            Error::ReadOnly { reason: String::new() },
            Error::Closed,
        ];
        let predicates = [
            Error::is_not_found,
            Error::is_already_exists,
            Error::is_invalid_argument,
            Error::is_locked,
            Error::is_read_only,
            Error::is_closed,
        ];
        for (which, predicate) in predicates.iter().enumerate() {
            for (of, error) in errors.iter().enumerate() {
                assert_eq!(predicate(error), which == of, "{which}: {error:?}");
            }
        }
    }

    #[test]
    fn bytes_that_are_not_text_are_an_invalid_argument() {
        let bytes = vec![b'a', 0xff];
        let slice = || -> Result<usize> { Ok(std::str::from_utf8(&bytes)?.len()) };
        let string = || -> Result<String> { Ok(String::from_utf8(bytes.clone())?) };
        for error in [slice().unwrap_err(), string().unwrap_err()] {
            assert!(error.is_invalid_argument() && error.to_string().contains("from index 1"), "{error}");
        }
    }
}
