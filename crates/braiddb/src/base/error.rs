//! The one error type.

use super::{NoSpace, ReaderKind, SequenceNumber};
use std::{io, path::PathBuf, time::Duration};

/// What every fallible call returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed, and what to do about it. Ask the predicates rather than matching where you can: kinds may be
/// added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation on a file.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried, as a verb: "read", "write", "sync".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said. The message tells it, so [`std::error::Error::source`] does not tell it again; `r#` says so
        /// to thiserror, and the name is plain `source`.
        r#source: io::Error,
    },
    /// A file holds bytes that were not written there by BraidDB, or lacks bytes that were.
    #[error(
        "corruption in {path} at byte {offset}: {detail}; run `braid verify` on the database, and restore the file \
         from a backup"
    )]
    Corruption {
        /// The file.
        path: PathBuf,
        /// Where in the file, in bytes from its start.
        offset: u64,
        /// What is wrong there.
        detail: String,
    },
    /// A backup holds bytes that were not put there, or lacks bytes that were.
    #[error(
        "the backup is damaged: {path}: {detail}; `braid backup verify` tells which backups are whole: restore another one, \
         and make a new one"
    )]
    BackupDamaged {
        /// The object of the backup, as the target calls it.
        path: PathBuf,
        /// What is wrong there.
        detail: String,
    },
    /// A log archive lacks commits: a restore does not pass over them, and [`crate::Db::archive_now`] has found them missing.
    #[error(
        "the log archive {path} has a gap: commits {first} to {last} are missing ({reason}); the newest point that can be reached \
         from a backup before the gap is commit {reached}; to reach later ones, restore from a backup of commit {last} or later, or \
         make a new full backup now"
    )]
    ArchiveGap {
        /// The directory in the archive.
        path: PathBuf,
        /// The first commit that is missing.
        first: SequenceNumber,
        /// The last commit that is missing.
        last: SequenceNumber,
        /// The last commit before the gap.
        reached: SequenceNumber,
        /// The cause, as far as it is known.
        reason: String,
    },
    /// A dump holds bytes that were not written there, or ends before its end.
    #[error(
        "the dump is damaged at byte {offset}: {detail}; nothing of it was kept: copy it once more from where it was made, or make it \
         anew with `braid dump`"
    )]
    DumpDamaged {
        /// Where in the dump, in bytes from its start.
        offset: u64,
        /// What is wrong there.
        detail: String,
    },
    /// The caller asked for something that cannot be; nothing was changed.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),
    /// A named thing (a tree, a database) does not exist.
    #[error("{0}")]
    NotFound(String),
    /// A named thing exists already.
    #[error("{0}")]
    AlreadyExists(String),
    /// The database is open already.
    #[error("the database {path} is open in {owner}; close it there, or open another directory")]
    Locked {
        /// The database directory.
        path: PathBuf,
        /// Who holds it, as well as can be told.
        owner: String,
    },
    /// The disk is full: the write was not applied; reads go on, and writes resume when space is back.
    #[error("{}", reason.describe(path))]
    DiskFull {
        /// The file that could not grow.
        path: PathBuf,
        /// Which limit was met.
        reason: NoSpace,
    },
    /// The handle takes no writes: it was opened for reading only, or an earlier failure left it unsure of what is on disk.
    #[error("the database is read-only ({reason}): open it anew, for writing, to write to it")]
    ReadOnly {
        /// Why.
        reason: String,
    },
    /// Whether the commit will be there after the next open is not known: its sync failed.
    #[error("the commit's outcome is unknown until the database is reopened: {reason}")]
    CommitUnknown {
        /// The failure.
        reason: String,
    },
    /// The transaction was not committed, and nothing of it was applied: what it has read was written by others meanwhile, or
    /// that cannot be told any more. Begun again, it may succeed; `Db::update` does so by itself.
    #[error("the transaction was not committed: {reason}; begin it again")]
    Conflict {
        /// What happened.
        reason: String,
    },
    /// The transaction has read and written more than is kept in memory for one; nothing of it was applied.
    #[error(
        "the transaction takes {bytes} bytes of memory, the most is {bytes_max}: commit in parts, or give the database \
         more memory"
    )]
    TransactionTooLarge {
        /// What it would take.
        bytes: usize,
        /// What it may take.
        bytes_max: usize,
    },
    /// A merge function could not make a value of what was merged into a key. Nothing is lost: what was merged is kept, and is
    /// tried again with each read. An iterator returns this for the record and can go on behind it. To put or delete the key mends it.
    #[error(
        "the merge function {function} failed on the key \"{key}\" of the tree {tree:?}: {reason}; put or delete the key to mend it"
    )]
    MergeFailed {
        /// The tree's name.
        tree: String,
        /// The function's name.
        function: String,
        /// The key; other than printable characters are escaped.
        key: String,
        /// Why it failed.
        reason: String,
    },
    /// A snapshot, cursor, iterator or transaction was in use for longer than [`crate::Builder::reader_age_max`] allows. It holds
    /// nothing any more, and shows nothing any more: whatever it would show might not be so. What it has shown was right.
    #[error(
        "a {kind} that reads as of commit {sequence} was in use for {age:.1?}, longer than the database was told to allow: take \
         a new one, and read in smaller pieces or raise `reader_age_max`"
    )]
    ReaderExpired {
        /// What it is.
        kind: ReaderKind,
        /// The last commit that it saw.
        sequence: SequenceNumber,
        /// How long ago it was taken.
        age: Duration,
    },
    /// An exclusive transaction stayed open for longer than a commit waits: see [`crate::Builder::exclusive_wait_max`]. Nothing was
    /// written.
    #[error(
        "an exclusive transaction, begun {age:.1?} ago by {begun_by}, is still open, and nothing was written: commit or drop it, and try \
         again; `Db::revoke_exclusive` ends one that was lost, and `Builder::exclusive_wait_max` sets how long to wait"
    )]
    ExclusiveOpen {
        /// The thread that began it; the transaction may have moved since.
        begun_by: String,
        /// How long ago it began.
        age: Duration,
    },
    /// What a watcher asks for is not all in the log any more: see [`crate::Db::watch`]. Nothing was skipped; to go on is to begin
    /// anew.
    #[error(
        "what was committed after {after} is not all in the log any more, which goes back to {floor}: take a snapshot, read from it what \
         you follow, and watch from its sequence number on; to have more kept, open the database with `Builder::log_retention`"
    )]
    WatchTooOld {
        /// The last commit that the watcher has seen.
        after: SequenceNumber,
        /// The log holds what was committed after this one.
        floor: SequenceNumber,
    },
    /// The caller's own reason not to commit a transaction: see [`Error::abort`].
    #[error("{0}")]
    Aborted(Box<dyn std::error::Error + Send + Sync>),
    /// The file was written by a newer version, or needs a feature this build lacks.
    #[error("{path} cannot be opened by this build: {detail}")]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What it needs.
        detail: String,
    },
    /// The handle is of a follower's state that was superseded too long ago. What it has shown was right.
    #[error(
        "this state of the database was superseded for longer than `reader_age_max` allows: ask the follower for its \
         present one"
    )]
    Superseded,
    /// The handle was closed.
    #[error("the database is closed: open it again")]
    Closed,
}

impl Error {
    /// Whether a watcher asked for what the log does not hold any more.
    pub fn is_watch_too_old(&self) -> bool {
        matches!(self, Error::WatchTooOld { .. })
    }

    /// Wraps what the operating system said; a full disk becomes [`Error::DiskFull`].
    pub fn io(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Error {
        let path = path.into();
        match NoSpace::of(&source) {
            Some(reason) => Error::DiskFull { path, reason },
            None => Error::Io { action, path, source },
        }
    }

    /// The same for a file that is no part of the database: a dump, a backup, an archive. A full disk there says nothing of the
    /// database's own.
    pub fn output(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Error {
        Error::io(action, path, source).of_output()
    }

    /// The error, said of a file that is no part of the database.
    pub fn of_output(self) -> Error {
        match self {
            Error::DiskFull { path, reason: NoSpace::Disk } => Error::DiskFull { path, reason: NoSpace::Output },
            other => other,
        }
    }

    /// A [`Error::Corruption`].
    pub fn corruption(path: impl Into<PathBuf>, offset: u64, detail: impl Into<String>) -> Error {
        Error::Corruption { path: path.into(), offset, detail: detail.into() }
    }

    /// For whoever wants a transaction not to be committed for a reason of his own.
    pub fn abort(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Aborted(reason.into())
    }

    /// An [`Error::Conflict`].
    pub fn conflict(reason: impl Into<String>) -> Error {
        Error::Conflict { reason: reason.into() }
    }

    /// The same error once more, for another caller whom the same failure met.
    pub fn duplicate(&self) -> Error {
        match self {
            Error::Io { action, path, source } => {
                let source = io::Error::new(source.kind(), source.to_string());
                Error::Io { action, path: path.clone(), source }
            }
            Error::Corruption { path, offset, detail } => Error::corruption(path, *offset, detail),
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
            Error::Superseded => Error::Superseded,
            Error::Closed => Error::Closed,
        }
    }

    /// Whether bytes are damaged, of a database, of a backup or of a dump.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Error::Corruption { .. } | Error::BackupDamaged { .. } | Error::DumpDamaged { .. })
    }

    /// Whether commits are missing from a log archive.
    pub fn is_archive_gap(&self) -> bool {
        matches!(self, Error::ArchiveGap { .. })
    }

    /// Whether a merge function failed on one record: others can be read.
    pub fn is_merge_failed(&self) -> bool {
        matches!(self, Error::MergeFailed { .. })
    }

    /// Whether the disk is full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Error::DiskFull { .. })
    }

    /// Whether a concurrent writer won.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Conflict { .. })
    }

    /// Whether what was read from had been in use for too long, and was given up: a new one may be taken.
    pub fn is_reader_expired(&self) -> bool {
        matches!(self, Error::ReaderExpired { .. })
    }

    /// Of an error from a commit: whether the commit may be there after the next open. If not, nothing of it was applied, and
    /// nothing ever will be.
    pub fn is_commit_unknown(&self) -> bool {
        matches!(self, Error::CommitUnknown { .. })
    }

    /// Whether the caller's own [`Error::abort`] ended a transaction.
    pub fn is_aborted(&self) -> bool {
        matches!(self, Error::Aborted(_))
    }

    /// Whether the same call may succeed later without anything being changed by the caller; of a transaction, a snapshot or their
    /// like, if that is begun again.
    pub fn is_retryable(&self) -> bool {
        use Error::{Conflict, DiskFull, ExclusiveOpen, Locked, ReaderExpired};
        matches!(self, DiskFull { .. } | Locked { .. } | Conflict { .. } | ReaderExpired { .. } | ExclusiveOpen { .. })
    }

    /// Whether a named thing was missing.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::NotFound(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    /// Whoever prints an error and then its sources printed "Permission denied" twice.
    #[test]
    fn a_cause_is_told_once() {
        let error = Error::io("lock", "db/LOCK", io::ErrorKind::PermissionDenied.into());
        assert_eq!(error.to_string(), "cannot lock db/LOCK: permission denied");
        assert!(error.source().is_none());
    }
}
