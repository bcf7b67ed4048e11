//! What a flush or merge needs from the database.

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

/// Gives a blob's new reference, if the blob was moved: called with the internal key and the reference.
pub type Relocate<'a> = &'a (dyn Fn(&[u8], &BlobRef) -> Result<Option<BlobRef>> + Sync);

/// Everything a job asks of the database around it.
pub struct JobContext<'a> {
    /// File system and cache.
    pub table: &'a TableContext,
    /// The database directory.
    pub dir: PathBuf,
    /// How runs are written, but for the compression.
    pub run_options: RunOptions,
    /// How a tree is compressed.
    pub compression_of: &'a (dyn Fn(TreeId) -> Compression + Sync),
    /// What operands in entries are operands of.
    pub functions: &'a MergeFunctions,
    /// A file number never used before.
    pub new_file_number: &'a (dyn Fn() -> FileNumber + Sync),
    /// A random file id.
    pub new_file_id: &'a (dyn Fn() -> FileId + Sync),
    /// For each of these sequence numbers, ascending, the newest version at or below it is kept.
    pub strata: Vec<SequenceNumber>,
    /// What has expired by this time, in microseconds since 1970, no reader sees any more.
    pub expired_by_us: u64,
    /// How many such values were met.
    pub expired: &'a AtomicU64,
    /// Moves blobs out of files that are to be given up.
    pub relocate: Option<Relocate<'a>>,
    /// A run is cut when it has this many bytes.
    pub run_bytes_max: u64,
    /// The files made so far; if the job fails, or its result is not put into force, they are removed.
    pub created: &'a Mutex<Vec<PathBuf>>,
    /// Asked between rows: whether to give up, because the database closes.
    pub cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl JobContext<'_> {
    /// An entry as it is to be judged: one that has expired is a tombstone.
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

    /// A number and path for a new run.
    pub fn new_run(&self) -> (FileNumber, PathBuf) {
        let number = (self.new_file_number)();
        self.note_created(number, FileSet::run_path(&self.dir, number))
    }

    /// A number and path for a new view.
    pub fn new_view(&self) -> (FileNumber, PathBuf) {
        let number = (self.new_file_number)();
        self.note_created(number, FileSet::view_path(&self.dir, number))
    }

    fn note_created(&self, number: FileNumber, path: PathBuf) -> (FileNumber, PathBuf) {
        self.created.lock().push(path.clone());
        (number, path)
    }
}
