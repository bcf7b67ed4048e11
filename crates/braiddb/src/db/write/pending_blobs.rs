//! Pins the blob files of a commit before it is made.

use super::full_disk;
use crate::{
    base::{FileNumber, Result, SequenceNumber},
    codec::Compression,
    db::engine::{
        edits,
        root::Engine,
        settings::Durability,
        slow_commits::{report::SlowCause, timer::CommitTimer},
    },
    table::blob::{BlobRef, Lane, Pieces},
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Pins the blob files of a pending commit: files written for it, and older files that it refers
/// to. Without a commit, the drop leaves the written data as garbage: files with nothing else are
/// removed, and merges move live data out of files that are less than half live.
#[derive(Debug)]
pub struct PendingBlobs {
    engine: Arc<Engine>,
    files: BTreeSet<FileNumber>,
    written: BTreeSet<FileNumber>,
    sequence: AtomicU64,
}

impl PendingBlobs {
    pub fn new(engine: &Arc<Engine>) -> PendingBlobs {
        PendingBlobs {
            engine: Arc::clone(engine),
            files: BTreeSet::new(),
            written: BTreeSet::new(),
            sequence: AtomicU64::new(0),
        }
    }

    pub fn is_of(&self, engine: &Arc<Engine>) -> bool {
        Arc::ptr_eq(&self.engine, engine)
    }

    pub fn write(&mut self, lane: Lane, key: &[u8], value: &[u8], compression: Compression) -> Result<BlobRef> {
        let _inside = self.engine.health.enter()?;
        self.engine.health.check_writable()?;
        full_disk::refuse_on_full_disk(&self.engine)?;
        let blob = self.engine.storage.blobs.write_to(lane, key, value, compression)?;
        self.written.insert(blob.file);
        if !self.files.insert(blob.file) {
            self.engine.storage.blobs.settle(&[blob.file], None);
        }
        Ok(blob)
    }

    /// Pins the files of existing pieces, as [`crate::db::files::blob_store::BlobStore::pin`] does.
    pub fn pin(&mut self, pieces: &Pieces) -> bool {
        let is_new = |number: &FileNumber| !self.files.contains(number);
        let new: BTreeSet<FileNumber> = pieces.list.iter().map(|piece| piece.file).filter(is_new).collect();
        let are_known = self.engine.storage.blobs.pin(&new);
        if are_known {
            self.files.extend(new);
        }
        are_known
    }

    pub fn absorb(&mut self, mut other: PendingBlobs) {
        self.written.append(&mut other.written);
        for number in std::mem::take(&mut other.files) {
            if !self.files.insert(number) {
                self.engine.storage.blobs.settle(&[number], None);
            }
        }
    }

    /// Syncs the files of the bulk lane. A failure poisons the database.
    pub fn sync(&self) -> Result<()> {
        let _inside = self.engine.health.enter_past_closing()?;
        self.engine.storage.blobs.sync_bulk(&self.files).inspect_err(|e| self.engine.poison(e))
    }

    /// Before the commit, makes the blobs as durable as it will be.
    pub fn make_ready(&self, timer: &mut CommitTimer, durability: Durability) -> Result<()> {
        if !self.written.is_empty() && durability == Durability::Sync {
            // Not in the log's sync, where other commits would wait for it.
            timer.time(&self.engine, SlowCause::Sync, || self.sync())?;
        }
        self.engine.storage.blobs.need(&self.files);
        Ok(())
    }

    pub fn committed(&self, sequence: SequenceNumber) {
        self.sequence.fetch_max(sequence, Ordering::AcqRel);
    }
}

impl Drop for PendingBlobs {
    fn drop(&mut self) {
        let files: Vec<FileNumber> = self.files.iter().copied().collect();
        let sequence = Some(*self.sequence.get_mut()).filter(|sequence| *sequence > 0);
        self.engine.storage.blobs.settle(&files, sequence);
        if sequence.is_none() && !self.written.is_empty() && !files.is_empty() {
            self.engine.storage.blobs.leave_bulk_file(&self.written);
            edits::reclaim_blobs(&self.engine);
        }
    }
}
