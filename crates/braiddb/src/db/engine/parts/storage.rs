//! Files of an open database, and the edits that change them.

use super::limited_work::LimitedWork;
use crate::{
    base::FileNumber,
    db::files::{blob_store::BlobStore, reserve::Reserve},
    platform::Pace,
    table::TableContext,
    version::{FileSet, Manifest},
};
use parking_lot::Mutex;
use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

#[derive(Debug)]
pub struct Storage {
    pub disk: Mutex<DiskState>,
    pub next_file: Arc<AtomicU64>,
    pub table: TableContext,
    /// Table contexts of flushes and merges, if their writes are throttled.
    pub limited: Option<LimitedWork>,
    pub blobs: BlobStore,
    /// Blob files pinned while the database is restored.
    pub held_blobs: Mutex<BTreeSet<FileNumber>>,
    pub reserve: Reserve,
    /// All commits up to this one are in runs, by a durable edit.
    pub flushed: AtomicU64,
    /// Unreferenced files of earlier opens, to be removed.
    pub leftovers: Mutex<Vec<PathBuf>>,
}

impl Storage {
    pub fn new_file_number(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    pub fn pace(&self) -> Option<&Arc<Pace>> {
        self.limited.as_ref()?.pace.as_ref()
    }

    /// Sets the share of time that merges may use, in per mille.
    pub fn set_pace(&self, per_mille: u64) {
        if let Some(pace) = self.pace() {
            pace.set_share(per_mille);
        }
    }
}

/// State that only the holder of `disk` changes: one edit at a time.
#[derive(Debug)]
pub struct DiskState {
    pub manifest: Manifest,
    pub files: FileSet,
}
