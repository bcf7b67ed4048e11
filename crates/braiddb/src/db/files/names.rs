//! Names of files in a database directory.

use crate::{
    base::Error,
    platform::{OpenMode, Vfs},
};
use std::{io, path::Path};

/// A file that is left behind when a sync of the log or of blobs has failed: what the system takes for written may not be on
/// disk, and the next open writes it once more.
pub const SYNC_FAILED_NAME: &str = "SYNC-FAILED";

/// The kind of an engine file, by its name.
pub(in crate::db) fn numbered(name: &str) -> Option<(u64, &str)> {
    if let Some(number) = name.strip_prefix("MANIFEST-") {
        return Some((number.parse().ok()?, "manifest"));
    }
    let (stem, extension) = name.rsplit_once('.')?;
    let known = matches!(extension, "wal" | "run" | "view" | "blob");
    Some((stem.parse().ok().filter(|_| known)?, extension))
}

/// Leaves word for the next open that a sync has failed. If that fails too, there is nothing more to be done.
pub(in crate::db) fn leave_marker(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join(SYNC_FAILED_NAME);
    match vfs.open(&path, OpenMode::CreateNew) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            tracing::warn!(path = %path.display(), error = %e, "a failed sync could not be noted");
        }
        _ => {}
    }
}

/// The lock's file name.
pub const LOCK_NAME: &str = "LOCK";

/// The marker's file name. It is there as long as the directory is unfinished.
pub const RESTORING_NAME: &str = "RESTORING";

/// The number of the view file that an error is about.
pub fn damaged_view(error: &Error) -> Option<u64> {
    let Error::Corruption { path, .. } = error else { return None };
    if path.extension()? != "view" {
        return None;
    }
    path.file_stem()?.to_str()?.parse().ok()
}
