//! Commits that do not go to the log ([`crate::Durability::None`]).
//!
//! They are durable when they are flushed. A memtable holds what all trees were given, in the order of commits, and its flush is
//! one edit; so what the manifest leads to is always all that was committed up to some commit, the application cursor included, and
//! nothing after it.
//!
//! A commit in the log above one that is not would survive a crash without it. So the first one that goes to the log after
//! such waits until they are flushed, and the log says between the two what it lacks ([`Marker`]): for those who watch it, who would
//! else not know. (Should a crash come between, the next epoch's first number tells.)
//!
//! The manifest reserves their numbers before they are used: a flush may make some of them durable, and whoever watches the log must
//! find higher numbers after a crash.

use crate::{
    base::{EntryKind, MAX_SEQUENCE, Result, SequenceNumber, TreeId},
    codec::{ByteReader, put_bytes, put_varint},
    commit::{Operation, PreparedBatch, RawBatch},
    db::{
        engine::{
            catalog::catalog_key,
            parts::commits::{Request, WriteState},
            root::Engine,
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

/// So many numbers are reserved at once.
const RESERVED_AT_ONCE: u64 = 1 << 20;

/// What the log says that it lacks. It stands in the catalog under a key of its own, each in place of the one before: nobody looks for
/// it there.
///
/// | field | |
/// |---|---|
/// | version | u8 = 1 |
/// | kind | u8: 1 unlogged commits, 2 a range of a tree whose contents came or went past the log |
/// | unlogged | the last of them (varint) |
/// | a range | tree id (u32), first user key (bytes), whether there is an end (u8: 0, 1), the first user key past it (bytes) |
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marker {
    /// All commits since the last one in the log up to this.
    Unlogged(SequenceNumber),
    /// Keys of a tree, from the first up to the second.
    Range(TreeId, Vec<u8>, Option<Vec<u8>>),
}

impl Marker {
    /// Its bytes.
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

    /// The marker of these bytes; `None` if they are none.
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

    /// Adds it to a batch: with what is committed together with it, watchers are told that they miss something. A batch has one at most.
    pub fn add_to(&self, batch: &mut RawBatch) {
        batch.push(EntryKind::Value, &[&catalog_key(b'g', b"")], &self.encode());
    }

    fn batch(&self) -> Result<PreparedBatch> {
        let mut batch = RawBatch::default();
        self.add_to(&mut batch);
        batch.prepare()
    }
}

/// The last commit before an operation of the log that did not go there, if the operation tells of such; else 0.
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

/// Whether an operation of the log tells that something is about to come past it.
pub fn tells_of_load(operation: &Operation<'_>) -> bool {
    operation.key == [0, 0, 0, 0, b'g'] && matches!(Marker::decode(operation.value), Some(Marker::Range(..)))
}

impl Engine {
    /// Sees to it that a group can be committed after those before it; whether it goes to the log.
    #[inline]
    pub(in crate::db) fn prepare_for(&self, write: &mut WriteState, group: &[Request]) -> Result<bool> {
        if write.has_unstored_tag {
            self.store_tag(write)?;
        }
        // One that must be logged has the others logged with it.
        if group.iter().all(|request| request.is_unlogged) {
            let needed = write.last_sequence + group.len() as u64;
            if needed > write.reserved {
                self.reserve_numbers(write, needed)?;
            }
            return Ok(false);
        }
        if write.unlogged > 0 {
            self.flush_unlogged(write)?;
        }
        Ok(true)
    }

    /// Has the manifest say that the next numbers may be used.
    #[cold]
    fn reserve_numbers(&self, write: &mut WriteState, needed: SequenceNumber) -> Result<()> {
        let up_to = needed.saturating_add(RESERVED_AT_ONCE).min(MAX_SEQUENCE);
        self.put_into_force(vec![Change::LastSequence(up_to)])?;
        write.reserved = up_to;
        Ok(())
    }

    /// Flushes what did not go to the log, and has the log say that it lacks that.
    #[cold]
    fn flush_unlogged(&self, write: &mut WriteState) -> Result<()> {
        self.wait_for_flush()?;
        self.freeze();
        self.run_flushes(u64::MAX)?;
        let unlogged = std::mem::take(&mut write.unlogged);
        // The marker tells of all up to there. Who reads the log must come to it from before the unlogged commits.
        write.refused = None;
        let marked = self.commit_marker(write, &Marker::Unlogged(unlogged));
        if marked.is_err() {
            write.unlogged = unlogged;
        }
        marked
    }

    fn commit_marker(&self, write: &mut WriteState, marker: &Marker) -> Result<()> {
        self.commit_own(write, marker.batch()?)
    }

    /// Stores the tag that was drawn at the open, in a commit before the first one that has it.
    #[cold]
    fn store_tag(&self, write: &mut WriteState) -> Result<()> {
        let mut batch = RawBatch::default();
        batch.push(EntryKind::Value, &[&catalog_key(VERSION_TAGS, b"")], &self.commits.versions.encode());
        let batch = batch.prepare()?;
        // Or it would be stored before itself.
        write.has_unstored_tag = false;
        self.commit_own(write, batch).inspect_err(|_| write.has_unstored_tag = true)
    }

    /// Ends the log of a database that is closed. A tag that no commit has stored yet is lost with the close: without the mark of a clean
    /// close, the next open draws another.
    pub(in crate::db) fn note_end(&self, wal: &Wal) -> Result<()> {
        let has_unstored_tag = self.commits.write.lock().has_unstored_tag;
        if has_unstored_tag { wal.note_durable() } else { wal.note_closed() }
    }

    /// Commits a batch of the engine's own, ahead of the group that the leader has in hand.
    fn commit_own(&self, write: &mut WriteState, batch: PreparedBatch) -> Result<()> {
        let drops = self.catalog.drops.load(Ordering::Acquire);
        let mut request = Request { batch, drops, is_unlogged: false, check: None, validation: Validation::Unchanged };
        self.try_commit_group(write, slice::from_mut(&mut request), drops).map(|_| ())
    }

    /// Has the log say what it is going to lack, once what it lacks so far is flushed.
    pub(in crate::db) fn log_marker(&self, write: &mut WriteState, marker: &Marker) -> Result<()> {
        if write.unlogged > 0 {
            self.flush_unlogged(write)?;
        }
        self.commit_marker(write, marker)
    }

    /// Whether commits that did not go to the log have not been flushed yet.
    pub(in crate::db) fn has_unlogged(&self) -> bool {
        self.commits.unlogged.load(Ordering::Acquire) > self.storage.flushed.load(Ordering::Acquire)
    }

    /// Makes everything up to a commit durable.
    pub(in crate::db) fn make_durable(&self, sequence: SequenceNumber) -> Result<()> {
        self.health.check_writable()?;
        if self.storage.flushed.load(Ordering::Acquire) >= sequence {
            return Ok(());
        }
        if self.has_unlogged() {
            return self.flush_all();
        }
        self.log.wal.as_ref().map_or(Ok(()), |wal| self.sync_to(wal.end_lsn()))
    }

    /// The last commit in memory that has stored this application cursor.
    pub(in crate::db) fn commit_of_cursor(&self, cursor: &[u8]) -> Option<SequenceNumber> {
        let key = catalog_key(b'c', b"");
        let state = self.cell.state.load_full();
        state.memtables().find_map(|memtable| find_value(memtable, &key, cursor))
    }
}

/// The newest version of a key in a memtable that has this value.
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
