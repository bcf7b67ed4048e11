//! Commits without WAL ([`crate::Durability::None`]).
//!
//! A flush makes them durable. A memtable has the entries of all trees in commit order, and its
//! flush is one edit. So the manifest always leads to all commits up to some commit, the
//! application cursor included, and to nothing later.
//!
//! A logged commit must not survive a crash that loses an earlier commit without WAL. So the first
//! logged commit waits until those are flushed. Between them the log gets a [`Marker`] that shows
//! watchers what the log lacks. (After a crash in between, the next epoch's first number shows it.)
//!
//! The manifest reserves the numbers before their use: a flush may make some of them durable, and a
//! watcher must find higher numbers after a crash.

use super::{backpressure, pipeline};
use crate::{
    base::{EntryKind, MAX_SEQUENCE, Result, SequenceNumber, TreeId},
    codec::{ByteReader, put_bytes, put_varint},
    commit::{Operation, PreparedBatch, RawBatch},
    db::{
        engine::{
            catalog::catalog_key,
            edits,
            parts::commits::{Request, WriteState},
            root::Engine,
            slow_commits::report::SlowCause,
        },
        record::version_tags::VERSION_TAGS,
    },
    memtable::Memtable,
    txn::Validation,
    version::Change,
    wal::Wal,
};
use std::{
    slice,
    sync::{Arc, atomic::Ordering},
};

/// Sequence numbers reserved by one manifest edit.
const RESERVED_AT_ONCE: u64 = 1 << 20;

/// Describes data that the log lacks. Stored under one catalog key; only log readers use it.
///
/// | field | |
/// |---|---|
/// | version | u8 = 1 |
/// | kind | u8: 1 commits without WAL, 2 a range of a tree that changed without WAL |
/// | unlogged | the last of those commits (varint) |
/// | a range | tree id (u32), first user key (bytes), has an end (u8: 0, 1), its end (bytes) |
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marker {
    Unlogged(SequenceNumber),
    Range(TreeId, Vec<u8>, Option<Vec<u8>>),
}

impl Marker {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![1];
        match self {
            Marker::Unlogged(up_to) => {
                out.push(1);
                put_varint(&mut out, *up_to);
            }
            Marker::Range(tree, start, end) => {
                out.push(2);
                out.extend_from_slice(&tree.0.to_le_bytes());
                put_bytes(&mut out, start);
                out.push(u8::from(end.is_some()));
                end.iter().for_each(|end| put_bytes(&mut out, end));
            }
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Marker> {
        let mut reader = ByteReader::new(bytes);
        if reader.u8()? != 1 {
            return None;
        }
        let marker = match reader.u8()? {
            1 => Marker::Unlogged(reader.varint()?),
            2 => {
                let (tree, start) = (TreeId(reader.u32()?), reader.bytes()?.to_vec());
                let end = match reader.u8()? {
                    0 => None,
                    1 => Some(reader.bytes()?.to_vec()),
                    _ => return None,
                };
                Marker::Range(tree, start, end)
            }
            _ => return None,
        };
        reader.is_at_end().then_some(marker)
    }

    /// A batch has at most one.
    pub fn add_to(&self, batch: &mut RawBatch) {
        batch.push(EntryKind::Value, &[&catalog_key(b'g', b"")], &self.encode());
    }

    fn batch(&self) -> Result<PreparedBatch> {
        let mut batch = RawBatch::default();
        self.add_to(&mut batch);
        batch.prepare()
    }
}

/// Returns the last commit without WAL before a marker; 0 for other operations.
pub fn unlogged_before(operation: &Operation<'_>) -> SequenceNumber {
    const KEY: [u8; 5] = [0, 0, 0, 0, b'g'];
    match operation.key == KEY {
        true => match Marker::decode(operation.value) {
            Some(Marker::Unlogged(up_to)) => up_to,
            _ => 0,
        },
        false => 0,
    }
}

/// Returns whether a logged operation announces a load without WAL.
pub fn marks_load(operation: &Operation<'_>) -> bool {
    operation.key == [0, 0, 0, 0, b'g'] && matches!(Marker::decode(operation.value), Some(Marker::Range(..)))
}

/// Returns whether the group goes to the log.
#[inline]
pub(in crate::db) fn prepare(engine: &Engine, write: &mut WriteState, group: &[Request]) -> Result<bool> {
    if write.has_unstored_tag {
        store_tag(engine, write)?;
    }
    // One logged request makes the whole group logged.
    if group.iter().all(|request| request.is_unlogged) {
        let needed = write.last_sequence + group.len() as u64;
        if needed > write.reserved {
            reserve_numbers(engine, write, needed)?;
        }
        return Ok(false);
    }
    if write.unlogged > 0 {
        flush_unlogged(engine, write)?;
    }
    Ok(true)
}

#[cold]
fn reserve_numbers(engine: &Engine, write: &mut WriteState, needed: SequenceNumber) -> Result<()> {
    let up_to = needed.saturating_add(RESERVED_AT_ONCE).min(MAX_SEQUENCE);
    edits::apply(engine, vec![Change::LastSequence(up_to)])?;
    write.reserved = up_to;
    Ok(())
}

#[cold]
fn flush_unlogged(engine: &Engine, write: &mut WriteState) -> Result<()> {
    backpressure::wait(engine, &mut write.delay)?;
    backpressure::freeze(engine, &mut write.delay);
    let began_ns = engine.now_ns();
    (engine.maintenance.upcalls.flush)(engine, u64::MAX)?;
    write.delay.add(SlowCause::MemoryFull, engine.now_ns().saturating_sub(began_ns));
    let unlogged = std::mem::take(&mut write.unlogged);
    // The marker covers the rejected numbers too. No no-ops may come between it and the commits
    // without WAL.
    write.refused = None;
    let marked = commit_marker(engine, write, &Marker::Unlogged(unlogged));
    if marked.is_err() {
        write.unlogged = unlogged;
    }
    marked
}

fn commit_marker(engine: &Engine, write: &mut WriteState, marker: &Marker) -> Result<()> {
    commit_own(engine, write, marker.batch()?)
}

/// Stores the tag drawn at the open, before the first commit that has it.
#[cold]
fn store_tag(engine: &Engine, write: &mut WriteState) -> Result<()> {
    let mut batch = RawBatch::default();
    batch.push(EntryKind::Value, &[&catalog_key(VERSION_TAGS, b"")], &engine.commits.versions.encode());
    let batch = batch.prepare()?;
    // First, or the commit below would recurse.
    write.has_unstored_tag = false;
    commit_own(engine, write, batch).inspect_err(|_| write.has_unstored_tag = true)
}

/// Ends the log at the close. If no commit has stored the tag, the next open must draw another,
/// so the log gets no mark of a clean close.
pub(in crate::db) fn note_end(engine: &Engine, wal: &Wal) -> Result<()> {
    let has_unstored_tag = engine.commits.write.lock().has_unstored_tag;
    if has_unstored_tag { wal.note_durable() } else { wal.note_closed() }
}

fn commit_own(engine: &Engine, write: &mut WriteState, batch: PreparedBatch) -> Result<()> {
    let drops = engine.catalog.drops.load(Ordering::Acquire);
    let mut request = Request { batch, drops, is_unlogged: false, check: None, validation: Validation::Unchanged };
    pipeline::try_commit_group(engine, write, slice::from_mut(&mut request), drops).map(|_| ())
}

pub(in crate::db) fn log_marker(engine: &Engine, write: &mut WriteState, marker: &Marker) -> Result<()> {
    if write.unlogged > 0 {
        flush_unlogged(engine, write)?;
    }
    commit_marker(engine, write, marker)
}

pub(in crate::db) fn has_unlogged(engine: &Engine) -> bool {
    engine.commits.unlogged.load(Ordering::Acquire) > engine.storage.flushed.load(Ordering::Acquire)
}

/// Returns the last commit in memory with this application cursor.
pub(in crate::db) fn commit_of_cursor(engine: &Engine, cursor: &[u8]) -> Option<SequenceNumber> {
    let key = catalog_key(b'c', b"");
    let state = engine.cell.state.load_full();
    state.memtables().find_map(|memtable| find_value(memtable, &key, cursor))
}

fn find_value(memtable: &Arc<Memtable>, key: &[u8], value: &[u8]) -> Option<SequenceNumber> {
    let mut scan = memtable.scan_from(key);
    while scan.advance() && scan.entry().key == key {
        let entry = scan.entry();
        if entry.kind == EntryKind::Value && entry.value == value {
            return Some(entry.sequence);
        }
    }
    None
}
