//! The blob files of a commit to come.

use crate::{
    base::{FileNumber, Result, SequenceNumber},
    codec::Compression,
    db::engine::{root::Engine, settings::Durability},
    table::blob::{BlobRef, Lane, Pieces},
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Blob files that a commit is to refer to. As long as this is there, none of them goes: those with what was written for the
/// commit, and those with what others have written and it refers to as well.
///
/// Dropped, it says what became of the commit. If there was none, what was written is given up: files that hold nothing
/// else go at once, and of others, merges move out what still counts once that is less than half of them.
#[derive(Debug)]
pub struct PendingBlobs {
    engine: Arc<Engine>,
    files: BTreeSet<FileNumber>,
    /// Those of them that something was written to for this commit.
    written: BTreeSet<FileNumber>,
    /// The commit that refers to them, or 0.
    sequence: AtomicU64,
}

impl PendingBlobs {
    /// No files.
    pub fn new(engine: &Arc<Engine>) -> PendingBlobs {
        PendingBlobs {
            engine: Arc::clone(engine),
            files: BTreeSet::new(),
            written: BTreeSet::new(),
            sequence: AtomicU64::new(0),
        }
    }

    /// Whether they are files of this database.
    pub fn is_of(&self, engine: &Arc<Engine>) -> bool {
        Arc::ptr_eq(&self.engine, engine)
    }

    /// Writes a value, or a piece of one.
    pub fn write(&mut self, lane: Lane, key: &[u8], value: &[u8], compression: Compression) -> Result<BlobRef> {
        let _inside = self.engine.health.enter()?;
        self.engine.health.check_writable()?;
        self.engine.refuse_on_full_disk()?;
        let blob = self.engine.storage.blobs.write_to(lane, key, value, compression)?;
        self.written.insert(blob.file);
        if !self.files.insert(blob.file) {
            // One count a file is enough.
            self.engine.storage.blobs.settle(&[blob.file], None);
        }
        Ok(blob)
    }

    /// Keeps the files of pieces that others have written; `false` if one of them was let go of since the pieces were found: see
    /// [`crate::db::files::blob_store::BlobStore::pin`].
    pub fn pin(&mut self, pieces: &Pieces) -> bool {
        let is_new = |number: &FileNumber| !self.files.contains(number);
        let new: BTreeSet<FileNumber> = pieces.list.iter().map(|piece| piece.file).filter(is_new).collect();
        let are_known = self.engine.storage.blobs.pin(&new);
        if are_known {
            self.files.extend(new);
        }
        are_known
    }

    /// Takes over what another has.
    pub fn absorb(&mut self, mut other: PendingBlobs) {
        self.written.append(&mut other.written);
        for number in std::mem::take(&mut other.files) {
            if !self.files.insert(number) {
                self.engine.storage.blobs.settle(&[number], None);
            }
        }
    }

    /// Makes what was written to files of the bulk lane durable. A failure ends writing, as that of any sync does.
    pub fn sync(&self) -> Result<()> {
        let _inside = self.engine.health.enter_past_closing()?;
        self.engine.storage.blobs.sync_bulk(&self.files).inspect_err(|e| self.engine.poison(e))
    }

    /// To be called before the commit: has what it refers to be as durable as the commit will be, and before it is.
    pub fn make_ready(&self, durability: Durability) -> Result<()> {
        if !self.written.is_empty() && durability == Durability::Sync {
            // Here, and not where the log is synced, so that nobody else has to wait for it.
            self.sync()?;
        }
        self.engine.storage.blobs.need(&self.files);
        Ok(())
    }

    /// A commit refers to them.
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
            self.engine.reclaim_blobs();
        }
    }
}
