pub(in crate::db) use crate::base::numbered;
use crate::{
    base::{DatabaseFile, Error},
    platform::{OpenMode, Vfs},
};
use std::{io, path::Path};

/// Marks a failed sync of log or blobs. Cached pages may not be on disk, so the next open rewrites
/// them.
pub const SYNC_FAILED_NAME: &str = "SYNC-FAILED";

/// Creates the marker of a failed sync. A failure to do so is only logged.
pub(in crate::db) fn leave_marker(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join(SYNC_FAILED_NAME);
    match vfs.open(&path, OpenMode::CreateNew) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            tracing::warn!(path = %path.display(), error = %e, "a failed sync could not be noted");
        }
        _ => {}
    }
}

pub const LOCK_NAME: &str = "LOCK";

/// Exists while the directory is unfinished.
pub const RESTORING_NAME: &str = "RESTORING";

pub fn damaged_view(error: &Error) -> Option<u64> {
    let Error::Corruption(damage) = error else { return None };
    damage.file_number().filter(|_| damage.file_kind() == DatabaseFile::View)
}
