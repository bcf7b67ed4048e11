//! Recognises a full disk, a quota or a size limit in a system error.

use std::{io, path::Path};

/// The limit that a write hit, in [`crate::Error::DiskFull`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoSpace {
    /// The file system of the database has no free blocks.
    Disk,
    /// The quota of the user or the project is used up.
    Quota,
    /// The file has reached the size limit of the process (`ulimit -f`) or of the file system.
    FileSize,
    /// The database works on its reserve ([`crate::Builder::disk_reserve`]): only operations that
    /// free space are accepted.
    Reserved,
    /// The file system of an output, such as a dump or a backup, has no free blocks.
    Output,
}

/// Windows error codes of the same meaning, whatever kind the standard library maps them to.
const WINDOWS_FILE_TOO_LARGE: i32 = 223;
const WINDOWS_QUOTA: i32 = 1295;
const WINDOWS_DISK_FULL: [i32; 2] = [39, 112];

impl NoSpace {
    /// Returns the limit that a system error reports, if any.
    pub fn of(error: &io::Error) -> Option<NoSpace> {
        match error.kind() {
            io::ErrorKind::StorageFull => return Some(NoSpace::Disk),
            io::ErrorKind::QuotaExceeded => return Some(NoSpace::Quota),
            io::ErrorKind::FileTooLarge => return Some(NoSpace::FileSize),
            _ => {}
        }
        match error.raw_os_error().filter(|_| cfg!(windows))? {
            WINDOWS_FILE_TOO_LARGE => Some(NoSpace::FileSize),
            WINDOWS_QUOTA => Some(NoSpace::Quota),
            code if WINDOWS_DISK_FULL.contains(&code) => Some(NoSpace::Disk),
            _ => None,
        }
    }

    pub(super) fn describe(self, path: &Path) -> String {
        let path = path.display();
        match self {
            NoSpace::Disk => format!(
                "the disk that holds {path} is full: free some space, or delete data and compact; reads go on, and writes \
                 resume by themselves"
            ),
            NoSpace::Quota => format!(
                "the disk quota for {path} is used up: free some space, or have the quota raised; reads go on, and writes \
                 resume by themselves"
            ),
            NoSpace::FileSize => format!(
                "{path} cannot grow: the file size limit of the process (`ulimit -f`) or of the file system is reached; raise \
                 the limit, then open the database or run the command again"
            ),
            NoSpace::Reserved => format!(
                "the disk that holds {path} is full, and the database works with its reserve of space: only deletes, `flush` \
                 and `compact` are accepted; other writes resume by themselves when space is back"
            ),
            NoSpace::Output => format!(
                "the disk that holds {path} is full: free some space there, or choose another disk, and try again; the \
                 source database is unchanged"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Error;

    /// A file size limit was reported as "cannot append to ..: File too large", and writes were
    /// refused from then on.
    #[test]
    fn io_error_without_space_is_disk_full() {
        for (kind, reason, word) in [
            (io::ErrorKind::StorageFull, NoSpace::Disk, "is full"),
            (io::ErrorKind::QuotaExceeded, NoSpace::Quota, "quota"),
            (io::ErrorKind::FileTooLarge, NoSpace::FileSize, "ulimit -f"),
        ] {
            let error = Error::io("write", "db/1.run", kind.into());
            assert!(matches!(error, Error::DiskFull { reason: is, .. } if is == reason), "{error:?}");
            assert!(error.is_disk_full() && error.to_string().contains(word), "{error}");
        }
        assert!(!Error::io("write", "db/1.run", io::ErrorKind::PermissionDenied.into()).is_disk_full());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_codes_without_space_map_to_reasons() {
        for (code, reason) in [(28, NoSpace::Disk), (122, NoSpace::Quota), (27, NoSpace::FileSize)] {
            assert_eq!(NoSpace::of(&io::Error::from_raw_os_error(code)), Some(reason));
        }
    }

    #[cfg(windows)]
    #[test]
    fn windows_codes_without_space_map_to_reasons() {
        for (code, reason) in
            [(39, NoSpace::Disk), (112, NoSpace::Disk), (1295, NoSpace::Quota), (223, NoSpace::FileSize)]
        {
            assert_eq!(NoSpace::of(&io::Error::from_raw_os_error(code)), Some(reason));
        }
    }

    /// A dump to a full disk promised that writes to the database resume.
    #[test]
    fn output_error_on_full_disk_omits_resume() {
        let error = Error::output("write", "out.dump", io::ErrorKind::StorageFull.into());
        assert!(error.is_disk_full() && !error.to_string().contains("resume"), "{error}");
    }
}
