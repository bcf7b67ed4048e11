//! Retention of the log for watchers, and of blob files for the log.
//!
//! **Limits** are stored in the catalog, so that an open without them does not drop segments that a
//! watcher needs. **Blobs.** A blob file is removable once the last commit that refers to it is at
//! or below the log's floor. After a restart the retained segments are read for these commits, if
//! there are blob files. A segment with a missing blob file is dropped, with all segments before
//! it. **Sync.** Segments are synced before the edit that makes them retained only.

use crate::{
    base::{EntryKind, Result},
    codec::{ByteReader, put_varint},
    commit::{RawBatch, decode_group},
    db::{
        engine::{catalog::catalog_key, root::Engine, settings::Settings},
        files::blob_store::BlobStore,
        write::pipeline,
    },
    table::blob::visit_references,
    wal::{RetentionLimit, Segment, visit_groups},
};
use std::sync::Arc;

/// Returns the limits in force, and whether they differ from the stored ones.
pub fn limits(settings: &Settings, remembered: Option<RetentionLimit>) -> (RetentionLimit, bool) {
    let before = remembered.unwrap_or_default();
    let bytes = settings.log_retention_bytes.unwrap_or(before.bytes);
    let age_us = settings.log_retention_age_us.unwrap_or(before.age_us);
    let now = RetentionLimit { bytes, age_us };
    (now, now != before)
}

pub fn encode(limit: RetentionLimit) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, limit.bytes);
    put_varint(&mut out, limit.age_us);
    out
}

pub fn decode(bytes: &[u8]) -> Option<RetentionLimit> {
    let mut reader = ByteReader::new(bytes);
    let limit = RetentionLimit { bytes: reader.varint()?, age_us: reader.varint()? };
    reader.is_at_end().then_some(limit)
}

/// Retains the blob files of these segments (in log order). Returns how many leading segments
/// cannot be kept, because blob files are missing or the log is broken.
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

pub(in crate::db) fn remember_retention(engine: &Engine, limit: RetentionLimit) -> Result<()> {
    let mut batch = RawBatch::default();
    batch.push(EntryKind::Value, &[&catalog_key(b'r', b"")], &encode(limit));
    pipeline::commit(engine, batch.prepare()?, engine.settings.durability.of_catalog()).map(|_| ())
}
