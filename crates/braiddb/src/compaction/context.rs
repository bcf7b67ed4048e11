//! Input of a flush or merge from the database.

use crate::{
    base::{Content, EntryKind, EntryRef, FileId, FileNumber, Result, SequenceNumber, TreeId},
    codec::{Compression, MergeFunctions},
    table::{RunOptions, TableContext, blob::BlobRef},
    version::FileSet,
};
use parking_lot::Mutex;
use std::{
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

/// Returns the new reference of a moved blob, from internal key and old reference.
pub type Relocate<'a> = &'a (dyn Fn(&[u8], &BlobRef) -> Result<Option<BlobRef>> + Sync);

pub struct JobContext<'a> {
    pub table: &'a TableContext,
    pub dir: PathBuf,
    /// Options without the compression, which depends on the tree.
    pub run_options: RunOptions,
    pub compression_of: &'a (dyn Fn(TreeId) -> Compression + Sync),
    pub functions: &'a MergeFunctions,
    pub new_file_number: &'a (dyn Fn() -> FileNumber + Sync),
    pub new_file_id: &'a (dyn Fn() -> FileId + Sync),
    /// Ascending sequence numbers; the newest version at or below each is kept.
    pub strata: Vec<SequenceNumber>,
    /// Microseconds since 1970; values that expired by then are invisible to all readers.
    pub expired_by_us: u64,
    pub expired: &'a AtomicU64,
    /// Moves blobs out of files that are about to be dropped.
    pub relocate: Option<Relocate<'a>>,
    pub run_bytes_max: u64,
    /// Removed if the job fails or its result is not installed.
    pub created: &'a Mutex<Vec<PathBuf>>,
    /// Polled between rows; true when the database closes.
    pub cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl JobContext<'_> {
    /// An expired value is a tombstone.
    #[inline]
    pub fn judged<'e>(&self, entry: EntryRef<'e>) -> EntryRef<'e> {
        if entry.kind == EntryKind::Expiring { self.judged_by_time(entry) } else { entry }
    }

    #[cold]
    fn judged_by_time<'e>(&self, entry: EntryRef<'e>) -> EntryRef<'e> {
        let content = Content::of(entry.kind, entry.value);
        if content.is_none_or(|content| content.expires_us > Some(self.expired_by_us)) {
            return entry;
        }
        self.expired.fetch_add(1, Ordering::Relaxed);
        EntryRef { kind: EntryKind::Tombstone, value: &[], ..entry }
    }

    pub fn new_run(&self) -> (FileNumber, PathBuf) {
        let number = (self.new_file_number)();
        self.note_created(number, FileSet::run_path(&self.dir, number))
    }

    pub fn new_view(&self) -> (FileNumber, PathBuf) {
        let number = (self.new_file_number)();
        self.note_created(number, FileSet::view_path(&self.dir, number))
    }

    fn note_created(&self, number: FileNumber, path: PathBuf) -> (FileNumber, PathBuf) {
        self.created.lock().push(path.clone());
        (number, path)
    }
}
