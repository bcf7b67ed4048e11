//! Messages of [`Error`]: the failed operation, then advice.

use super::Error;
use std::{error::Error as StdError, fmt};

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { action, path, source } => { let path = path.display(); write!(f, "cannot {action} {path}: {source}") }
            Error::Corruption(damage) => damage.fmt(f),
            Error::BackupDamaged { path, detail } => { let path = path.display(); write!(f, "the backup is damaged: {path}: {detail}; run `braid backup verify` to see which backups are intact, \
         restore one of those, and make a new backup") }
            Error::ArchiveGap { path, first, last, reached, reason } => { let path = path.display(); write!(f, "the log archive {path} has a gap: commits {first} to {last} are missing ({reason}); a backup from before the gap \
         can be restored up to commit {reached}; for a later point, restore a backup of commit {last} or later, or make a new full \
         backup now") }
            Error::DumpDamaged { offset, detail } => write!(f, "the dump is damaged at byte {offset}: {detail}; nothing of it was kept: copy it again from its source, or make a \
         new one with `braid dump`"),
            Error::InvalidArgument(text) => write!(f, "invalid argument: {text}"),
            Error::NotFound(text) => write!(f, "{text}"),
            Error::AlreadyExists(text) => write!(f, "{text}"),
            Error::Locked { path, owner } => { let path = path.display(); write!(f, "{path} is in use by {owner}; close it there, or use another place") }
            Error::DiskFull { path, reason } => f.write_str(&reason.describe(path)),
            Error::ReadOnly { reason } => write!(f, "the database is read-only ({reason}): to write, close it and open it again for writing"),
            Error::CommitUnknown { reason } => write!(f, "the commit's outcome is unknown until the database is reopened: {reason}"),
            Error::OutcomeUnknown { reason } => {
                write!(f, "the write's outcome is unknown: {reason}; read its keys before you repeat it")
            }
            Error::NoOwner { path, waited, reason } => {
                let path = path.display();
                write!(
                    f,
                    "no process that owns the database {path} took the call in {waited:.1?} ({reason}); nothing was \
                     written: try again"
                )
            }
            Error::Conflict { reason } => write!(f, "the transaction was not committed: {reason}; begin it again"),
            Error::TransactionTooLarge { bytes, bytes_max } => write!(f, "the transaction needs {bytes} bytes of memory, and at most {bytes_max} are allowed: split it, or give the database \
         more memory"),
            Error::MergeFailed { tree, function, key, reason } => write!(f, "the merge function {function} failed on the key \"{key}\" of the tree {tree:?}: {reason}; put or delete the key to repair it"),
            Error::ReaderExpired { kind, sequence, age } => write!(f, "a {kind} at commit {sequence} was in use for {age:.1?}, longer than `reader_age_max` allows: take a new one, and read in \
         smaller pieces or raise the limit"),
            Error::ExclusiveOpen { begun_by, age } => write!(f, "an exclusive transaction, begun {age:.1?} ago by {begun_by}, is still open, and nothing was written: commit or drop it, and try \
         again; `Db::revoke_exclusive` ends a lost one, and `Builder::exclusive_wait_max` sets how long to wait"),
            Error::WatchTooOld { after, floor } => write!(f, "the log no longer has all commits after {after}, only those after {floor}: read a snapshot, and watch from its sequence \
         number on; to retain more of the log, open the database with `Builder::log_retention`"),
            Error::Aborted(reason) => write!(f, "{reason}"),
            Error::Unsupported { path, detail } => { let path = path.display(); write!(f, "{path} cannot be opened by this build: {detail}") }
            Error::Superseded => f.write_str("this state of the database was superseded longer ago than `reader_age_max` allows: ask the follower for its \
         current one"),
            Error::TooBusy { path, tries, took, reason } => { let path = path.display(); write!(f, "the database {path} is too busy: another process changed it during each of {tries} tries to read it, in {took:.1?} \
         (the last one: {reason}); try again, or when it writes less") }
            Error::Closed => f.write_str("the database is closed: open it again"),
        }
    }
}

/// The message includes the source's.
impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            Error::Aborted(reason) => Some(&**reason),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn io_error_names_its_cause_and_returns_it() {
        let error = Error::io("lock", "db/LOCK", io::ErrorKind::PermissionDenied.into());
        assert_eq!(error.to_string(), "cannot lock db/LOCK: permission denied");
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::PermissionDenied));
    }

    #[test]
    fn aborted_returns_the_callers_error_as_source() {
        let error = Error::abort(fmt::Error);
        assert!(error.source().is_some_and(|source| source.is::<fmt::Error>()));
        assert_eq!(error.to_string(), fmt::Error.to_string());
    }
}
