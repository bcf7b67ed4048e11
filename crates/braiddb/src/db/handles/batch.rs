//! Batches: writes that commit together.

use super::{
    database::Db,
    expiry,
    key_range::KeyRange,
    multi::tree::{MultiTree, TERMINATOR, escape},
    streams::writer::commit_streams,
    tree::{Tree, any::AnyTree},
};
use crate::{
    base::{EntryKind, Error, FileNumber, Result, SequenceNumber, TreeId, limits},
    commit::RawBatch,
    db::{
        engine::{
            catalog::{TreeState, catalog_key},
            key::check_key,
            root::Engine,
            settings::Durability,
            slow_commits::timer::CommitTimer,
        },
        write::{
            full_disk,
            pending_blobs::PendingBlobs,
            piece_writer::Placed,
            pipeline::{self, CommitCondition},
        },
    },
};
use std::{ops::Bound, sync::Arc};

/// Writes that commit atomically: see [`Db::batch`]. The last write of a key wins. Dropping the batch
/// discards them.
///
/// The commit fails if a key or value is too long, or a tree was dropped or belongs to another
/// database.
#[derive(Clone)]
pub struct Batch {
    db: Db,
    raw: RawBatch,
    /// Sorted by id.
    trees: Vec<Arc<TreeState>>,
    streams: Vec<Arc<PendingBlobs>>,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Batch {
    pub(in crate::db) fn new(db: &Db) -> Batch {
        Batch { db: db.clone(), raw: RawBatch::default(), trees: Vec::new(), streams: Vec::new() }
    }

    pub(in crate::db) fn db(&self) -> &Db {
        &self.db
    }

    fn touch(&mut self, tree: &Arc<TreeState>, key: &[u8]) {
        match self.trees.binary_search_by_key(&tree.id.0, |tree| tree.id.0) {
            Ok(at) if self.trees[at].home != tree.home => self.raw.fail(tree.another_database().to_string()),
            Ok(_) => {}
            Err(at) => self.trees.insert(at, Arc::clone(tree)),
        }
        if let Err(e) = check_key(key) {
            self.raw.fail(e.to_string());
        }
    }

    pub(in crate::db) fn push(&mut self, kind: EntryKind, tree: &Tree, key: &[u8], value: &[u8]) {
        self.touch(tree.state(), key);
        self.raw.push(kind, &[&tree.state().id.first_key(), key], value);
    }

    pub(in crate::db) fn push_placed(&mut self, tree: &Tree, key: &[u8], placed: &Placed, pending: Arc<PendingBlobs>) {
        self.push(placed.kind, tree, key, &placed.value);
        self.raw.count_placed(placed.len.saturating_sub(placed.value.len() as u64));
        self.streams.push(pending);
    }

    pub(in crate::db) fn fail(&mut self, reason: String) {
        self.raw.fail(reason);
    }

    /// Sets the value of `key`: see [`Tree::put`]. Cannot keep an expiry time, since a batch reads
    /// nothing.
    pub fn put(&mut self, tree: &Tree, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Batch {
        match expiry::with_default_expiry(tree.db().engine(), tree.state(), value.as_ref()) {
            None => self.push(EntryKind::Value, tree, key.as_ref(), value.as_ref()),
            Some(expiring) => self.push(EntryKind::Expiring, tree, key.as_ref(), &expiring),
        }
        self
    }

    /// Deletes `key`; in a multi-tree, with all its values, except later additions of this batch.
    pub fn delete(&mut self, tree: &impl AnyTree, key: impl AsRef<[u8]>) -> &mut Batch {
        tree.delete_in(self, key.as_ref());
        self
    }

    /// Deletes all keys in `range`, except later writes of this batch.
    pub fn delete_range(&mut self, tree: &impl AnyTree, range: impl KeyRange) -> &mut Batch {
        let (start, end) = tree.bounds(&range);
        let keys = [range.first(), range.last()].map(|bound| match bound {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => b"",
        });
        // Only the largest tree id, never assigned, has no end.
        self.push_range_delete(tree.state_of(), &keys, &start, &end.unwrap_or_default());
        self
    }

    /// Deletes between two internal keys, which come from `keys`.
    pub(in crate::db) fn push_range_delete(&mut self, tree: &Arc<TreeState>, keys: &[&[u8]], start: &[u8], end: &[u8]) {
        self.touch(tree, b"");
        for key in keys {
            if let Err(e) = check_key(key) {
                self.raw.fail(e.to_string());
            }
        }
        if start < end {
            self.raw.push(EntryKind::RangeDelete, &[start], end);
        }
    }

    /// Adds a value to `key`: see [`MultiTree::add`].
    pub fn add(&mut self, tree: &MultiTree, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Batch {
        self.push_multi(EntryKind::Value, tree, key.as_ref(), value.as_ref())
    }

    /// Deletes one value of `key`.
    pub fn delete_pair(&mut self, tree: &MultiTree, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Batch {
        self.push_multi(EntryKind::Tombstone, tree, key.as_ref(), value.as_ref())
    }

    fn push_multi(&mut self, kind: EntryKind, tree: &MultiTree, key: &[u8], value: &[u8]) -> &mut Batch {
        self.touch(tree.state(), key);
        if let Err(e) = check_key(value) {
            self.raw.fail(format!("in a multi-tree: {e}"));
        }
        self.raw.push(kind, &[&tree.state().id.first_key(), &escape(key), &TERMINATOR, value], b"");
        self
    }

    /// Stores an application cursor, up to 64 KiB, or the commit fails. [`Db::application_cursor`]
    /// returns the latest.
    pub fn set_application_cursor(&mut self, cursor: impl AsRef<[u8]>) -> &mut Batch {
        if let Err(e) = check_cursor(cursor.as_ref()) {
            self.raw.fail(e.to_string());
        }
        self.raw.push(EntryKind::Value, &[&catalog_key(b'c', b"")], cursor.as_ref());
        self
    }

    /// Returns the number of writes.
    pub fn len(&self) -> usize {
        self.raw.len()
    }

    /// Returns true if empty.
    pub fn is_empty(&self) -> bool {
        self.raw.len() == 0
    }

    /// Returns the total bytes of keys and values.
    pub fn size_bytes(&self) -> usize {
        self.raw.size_bytes()
    }

    /// Removes all writes but keeps the memory.
    pub fn clear(&mut self) {
        self.raw.clear();
        self.trees.clear();
        self.streams.clear();
    }

    /// Returns the operations as in the log, for a commit by another process.
    pub(in crate::db) fn into_operations(self) -> Result<Vec<u8>> {
        Ok(self.raw.prepare()?.bytes().to_vec())
    }

    /// Commits atomically with the database's durability ([`crate::Builder::durability`]), and
    /// returns the commit's sequence number.
    ///
    /// After an error nothing is or will be applied, unless [`Error::is_commit_unknown`] holds.
    pub fn commit(self) -> Result<SequenceNumber> {
        let durability = self.db.engine().settings.durability;
        self.commit_with(durability)
    }

    /// Commits with the given durability: see [`Batch::commit`].
    pub fn commit_with(self, durability: Durability) -> Result<SequenceNumber> {
        let db = self.db.clone();
        timed(db.engine(), |timer| self.commit_timed(durability, timer))
    }

    pub(super) fn commit_timed(self, durability: Durability, timer: &mut CommitTimer) -> Result<SequenceNumber> {
        let Batch { db, raw, trees, streams } = self;
        commit_streams(&db, timer, raw, &trees, durability, CommitCondition::None, &streams)
    }
}

pub(in crate::db) fn check_cursor(cursor: &[u8]) -> Result<()> {
    if cursor.len() > limits::MAX_APPLICATION_CURSOR_LEN {
        let (len, most) = (cursor.len(), limits::MAX_APPLICATION_CURSOR_LEN);
        return Err(Error::InvalidArgument(format!("the application cursor has {len} bytes; the most is {most}")));
    }
    Ok(())
}

/// Times a commit.
#[inline(always)]
pub(in crate::db) fn timed(
    engine: &Engine,
    commit: impl FnOnce(&mut CommitTimer) -> Result<SequenceNumber>,
) -> Result<SequenceNumber> {
    let mut timer = CommitTimer::begin(engine);
    let committed = commit(&mut timer);
    timer.end(engine, &committed);
    committed
}

/// Commits operations on `trees`, sorted by id.
pub(in crate::db) fn commit(
    db: &Db,
    raw: RawBatch,
    trees: &[Arc<TreeState>],
    durability: Durability,
    condition: CommitCondition,
) -> Result<SequenceNumber> {
    timed(db.engine(), |timer| commit_timed(db, timer, raw, trees, durability, condition))
}

/// [`commit`], for a caller that ends the timer.
pub(in crate::db) fn commit_timed(
    db: &Db,
    timer: &mut CommitTimer,
    raw: RawBatch,
    trees: &[Arc<TreeState>],
    durability: Durability,
    condition: CommitCondition,
) -> Result<SequenceNumber> {
    let engine = db.engine();
    let _inside = match condition {
        // A close waits for this transaction and refuses only new calls.
        CommitCondition::Exclusive(_) => engine.health.enter_past_closing()?,
        _ => engine.health.enter()?,
    };
    engine.health.check_writable()?;
    let check_trees = || trees.iter().try_for_each(|tree| tree.check_in(engine.log.incarnation));
    check_trees()?;
    let threshold_of = |own: Option<usize>| own.unwrap_or(engine.settings.blob_threshold).max(1);
    let thresholds = trees.iter().map(|tree| threshold_of(tree.options.blob_threshold()));
    let threshold_min = thresholds.fold(engine.settings.blob_threshold.max(1), usize::min);
    let mut blobs: Vec<FileNumber> = Vec::new();
    let prepared = raw.prepare_placing(threshold_min, |key, value| {
        let id = key.first_chunk().map_or(0, |id| u32::from_be_bytes(*id));
        if id == TreeId::CATALOG.0 {
            return Ok(None);
        }
        let tree = trees.binary_search_by_key(&id, |tree| tree.id.0).ok();
        let options = tree.map(|at| trees[at].options.get()).unwrap_or_default();
        if value.len() < threshold_of(options.blob_threshold) {
            return Ok(None);
        }
        let compression = options.compression.unwrap_or(engine.settings.compression);
        full_disk::refuse_on_full_disk(engine)?;
        let blob = engine.storage.blobs.write(key, value, compression)?;
        blobs.push(blob.file);
        let mut bytes = Vec::new();
        blob.encode(&mut bytes);
        Ok(Some(bytes))
    });
    let committed = prepared.and_then(|p| pipeline::commit_timed(engine, timer, p, durability, condition, check_trees));
    // After a failed sync the commit still has a sequence number.
    let sequence = match &committed {
        Ok(sequence) => Some(*sequence),
        Err(_) => Some(engine.readers.snapshots.visible()),
    };
    engine.storage.blobs.settle(&blobs, sequence);
    committed
}
