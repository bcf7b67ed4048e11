//! State of the log archive.

use crate::{
    base::{FileNumber, SequenceNumber},
    db::files::archive_gaps::ArchiveGap,
    platform::Vfs,
};
use parking_lot::Mutex;
use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, atomic::AtomicU64},
};

/// The log archive of an open database. `unreported` and `known` are leaf locks.
#[derive(Debug)]
pub struct Archiver {
    pub(in crate::db) vfs: Arc<dyn Vfs>,
    pub(in crate::db) dir: PathBuf,
    /// The end of the archive. Held while a thread archives.
    pub(in crate::db) end: Mutex<Option<ArchiveEnd>>,
    /// Gaps found since the open that no call has returned yet.
    pub(in crate::db) unreported: Mutex<Vec<ArchiveGap>>,
    pub(in crate::db) known: Mutex<BTreeSet<FileNumber>>,
    /// The archive has every logged commit up to this one.
    pub(in crate::db) archived: AtomicU64,
}

#[derive(Debug)]
pub(in crate::db) struct ArchiveEnd {
    /// The last commit in the archive or in a noted gap; `None` in an archive without segments.
    pub(in crate::db) reached: Option<SequenceNumber>,
}
