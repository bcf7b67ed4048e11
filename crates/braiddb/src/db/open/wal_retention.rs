//! How much of the log a database keeps for those who watch it, and what it keeps for the log's sake.
//!
//! **Remembered.** The limits stand in the catalog, so that who opens the database for something else does not throw away what a
//! watcher is to come back to.
//!
//! **Blobs.** A record of the log may refer to blob files. A file may go only when the last commit that refers to it, which is known
//! of each, is not above the log's floor any more. After a restart what is retained is read for that, if there are blob files at
//! all; a retained segment that refers to one which is gone is not kept, nor is any before it.
//!
//! **Synced.** What becomes retained is synced before the edit by which recovery does without it: so nothing of it is lost later, as
//! long as the limits stand.

use crate::{
    base::{EntryKind, FileNumber, Result, SequenceNumber, TreeId},
    codec::{ByteReader, put_varint},
    commit::{RawBatch, decode_group},
    db::{
        engine::{
            catalog::{DroppedTree, TreeState, catalog_key},
            parts::storage::DiskState,
            root::Engine,
            settings::Settings,
        },
        files::blob_store::BlobStore,
    },
    table::blob::visit_references,
    wal::{RetentionLimit, Segment, Wal, visit_groups},
};
use std::sync::Arc;

/// The limits that hold from now on, and whether others are remembered.
pub fn limits(settings: &Settings, remembered: Option<RetentionLimit>) -> (RetentionLimit, bool) {
    let before = remembered.unwrap_or_default();
    let bytes = settings.log_retention_bytes.unwrap_or(before.bytes);
    let age_us = settings.log_retention_age_us.unwrap_or(before.age_us);
    let now = RetentionLimit { bytes, age_us };
    (now, now != before)
}

/// The limits as the catalog has them.
pub fn encode(limit: RetentionLimit) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, limit.bytes);
    put_varint(&mut out, limit.age_us);
    out
}

/// The limits of a catalog entry.
pub fn decode(bytes: &[u8]) -> Option<RetentionLimit> {
    let mut reader = ByteReader::new(bytes);
    let limit = RetentionLimit { bytes: reader.varint()?, age_us: reader.varint()? };
    reader.is_at_end().then_some(limit)
}

/// Has the blob files stay that these segments, which are in log order, refer to. Returns how many of the first cannot be kept, since what they refer to is gone,
/// or they do not hold together.
pub fn hold_blobs(blobs: &BlobStore, segments: &[Arc<Segment>]) -> Result<usize> {
    if !blobs.has_files() {
        return Ok(0);
    }
    for (index, segment) in segments.iter().enumerate().rev() {
        let mut references = Vec::new();
        let mut is_understood = true;
        let is_whole = visit_groups(segment, |first_sequence, payload| {
            let read = decode_group(payload, |batch, operation| {
                let note = |blob: &crate::table::blob::BlobRef| references.push((blob.file, first_sequence + batch));
                is_understood &= visit_references(operation.kind, operation.value, note).is_some();
            });
            is_understood &= read.is_some();
        })?;
        let is_there = references.iter().all(|(file, _)| blobs.is_known(*file));
        if !is_whole || !is_understood || !is_there {
            return Ok(index + 1);
        }
        references.iter().for_each(|(file, sequence)| blobs.note_held(*file, *sequence));
    }
    Ok(0)
}

impl Engine {
    /// Has the catalog remember the limits.
    pub(in crate::db) fn remember_retention(&self, limit: RetentionLimit) -> Result<()> {
        let mut batch = RawBatch::default();
        batch.push(EntryKind::Value, &[&catalog_key(b'r', b"")], &encode(limit));
        self.commit(batch.prepare()?, self.settings.durability.of_catalog()).map(|_| ())
    }

    /// Has the catalog remember a tree that is dropped, as long as the log may tell of it, and forget those that it tells of no more. The caller
    /// holds the catalog's lock.
    pub(in crate::db) fn remember_dropped<'a>(&self, trees: impl Iterator<Item = &'a TreeState>, batch: &mut RawBatch) {
        let key = |id: TreeId| catalog_key(b'd', &id.0.to_be_bytes());
        let floor = self.log.wal.as_ref().map_or(0, Wal::floor);
        let dropped = self.catalog.dropped.read();
        for (id, _) in dropped.iter().filter(|(_, tree)| tree.sequence <= floor) {
            batch.push(EntryKind::Tombstone, &[&key(*id)], b"");
        }
        for tree in trees {
            batch.push(EntryKind::Value, &[&key(tree.id)], &DroppedTree::encode(tree));
        }
    }

    /// Before an edit by which recovery needs less of the log: syncs what is to be retained, or archived. Else a crash could keep what is in
    /// runs and lose what tells of it.
    pub(in crate::db) fn sync_what_is_retained(&self) -> Result<()> {
        match self.log.wal.as_ref().filter(|wal| wal.retention().is_on() || self.log.archiver.is_some()) {
            Some(wal) => self.sync_to(wal.end_lsn()),
            None => Ok(()),
        }
    }

    /// What blob files hold for the log's sake alone: see [`BlobStore::held_bytes`].
    pub(in crate::db) fn held_beside_log(&self, disk: &DiskState) -> Vec<(SequenceNumber, u64)> {
        let is_on = self.log.wal.as_ref().is_some_and(|wal| wal.retention().is_on());
        if is_on { self.storage.blobs.held_bytes(disk.manifest.layout(), &*self.storage.table.vfs) } else { Vec::new() }
    }

    /// After such an edit: lets go of what nobody needs and the limits do not keep.
    pub(in crate::db) fn release_segments(
        &self,
        wal: &Wal,
        oldest_segment: FileNumber,
        beside: &[(SequenceNumber, u64)],
    ) {
        let bytes_above = |floor| beside.iter().filter(|(sequence, _)| *sequence > floor).map(|(_, bytes)| bytes).sum();
        wal.release_with(oldest_segment, bytes_above);
        if wal.retention().is_on() {
            self.storage.blobs.hold_above(wal.floor());
        }
    }
}
