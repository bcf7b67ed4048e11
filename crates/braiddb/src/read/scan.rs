//! A scan: memtables and partitions together, at one snapshot, without what is deleted.
//!
//! The partitions leave out their own deleted keys. Here remain the tombstones and range tombstones of memtables. A range
//! tombstone of a memtable deletes everything older that it covers, so older sources jump over its whole range.

use super::{Ahead, Merge, PartitionChain, ReadState};
use crate::{
    base::{Cursor, EntryKind, EntryRef, RangeTombstoneSet, Result, SequenceNumber, TreeId},
    memtable::MemtableCursor,
    view::RowBatch,
};
use std::sync::Arc;

/// A batch of fewer rows was not worth decoding a segment.
const BATCH_ROWS_MIN: u32 = 4;
/// After that many poor batches in a row, there are 2 to this power of steps before the next.
const PAUSE_SHIFT_MAX: u32 = 6;

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a handful of them live in a scan's vector")]
enum Source {
    Memtable(MemtableCursor, SequenceNumber),
    Partitions(PartitionChain, SequenceNumber),
}

/// Forwards a call to whichever source it is.
macro_rules! forward {
    ($self:expr, $cursor:ident => $call:expr) => {
        match $self {
            Source::Memtable($cursor, _) => $call,
            Source::Partitions($cursor, _) => $call,
        }
    };
}

impl Source {
    /// No entry of this source has a higher sequence number.
    fn max_sequence(&self) -> SequenceNumber {
        match self {
            Source::Memtable(_, max) | Source::Partitions(_, max) => *max,
        }
    }
}

impl Cursor for Source {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        forward!(self, cursor => cursor.seek(key))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        forward!(self, cursor => cursor.seek_before(key))
    }

    fn seek_first(&mut self) -> Result<()> {
        forward!(self, cursor => cursor.seek_first())
    }

    fn seek_last(&mut self) -> Result<()> {
        forward!(self, cursor => cursor.seek_last())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        forward!(self, cursor => cursor.next())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        forward!(self, cursor => cursor.prev())
    }

    #[inline]
    fn valid(&self) -> bool {
        forward!(self, cursor => cursor.valid())
    }

    #[inline]
    fn entry(&self) -> EntryRef<'_> {
        forward!(self, cursor => cursor.entry())
    }
}

/// The sources of a state, and the range tombstones of its memtables.
fn sources(
    state: &ReadState,
    snapshot: SequenceNumber,
    chain: PartitionChain,
) -> (Merge<Source>, Vec<Arc<RangeTombstoneSet>>) {
    let mut sources = Vec::with_capacity(state.frozen.len() + 2);
    let mut tombstones = Vec::new();
    let mut flushed = snapshot;
    for memtable in state.memtables() {
        tombstones.extend(memtable.range_tombstones());
        if memtable.is_empty() {
            continue;
        }
        flushed = flushed.min(memtable.min_sequence().saturating_sub(1));
        if memtable.entry_count() > 0 {
            let cursor = MemtableCursor::new(Arc::clone(memtable), snapshot);
            // The active memtable still grows: all that is known is that no shown entry is past the snapshot.
            let max = if Arc::ptr_eq(memtable, &state.active) { snapshot } else { memtable.max_sequence() };
            sources.push(Source::Memtable(cursor, max));
        }
    }
    // The partitions come last: see `reset`.
    sources.push(Source::Partitions(chain, flushed));
    (Merge::new(sources), tombstones)
}

impl Ahead for Source {
    fn fill(&mut self, forward: bool, batch: &mut RowBatch) -> Result<()> {
        match self {
            Source::Partitions(chain, _) => chain.fill(forward, batch),
            Source::Memtable(..) => {
                batch.release();
                Ok(())
            }
        }
    }

    fn go_to(&mut self, batch: &RowBatch) -> Result<()> {
        match self {
            Source::Partitions(chain, _) => chain.go_to(batch),
            Source::Memtable(..) => unreachable!("it fills no batch"),
        }
    }
}

/// A cursor over all keys that exist at a snapshot.
///
/// A step has rows decoded ahead: from then on the cursor stands on rows of the batch, and the merge stands where the
/// batch was begun, until the batch has been passed or the direction changes.
#[derive(Debug)]
pub struct ScanCursor {
    merge: Merge<Source>,
    tombstones: Vec<Arc<RangeTombstoneSet>>,
    snapshot: SequenceNumber,
    /// Rows ahead of the merge; if there are any, the cursor stands where the batch does.
    batch: Box<RowBatch>,
    /// Rows are decoded ahead only of keys that begin so.
    prefix: [u8; 4],
    /// How many batches in a row were hardly worth their while, and how many steps are made without another.
    poor_batches: u32,
    pause: u32,
}

impl ScanCursor {
    /// A cursor over `state` at `snapshot`, which must not be older than what the state keeps. Rows of `tree` are decoded
    /// ahead, so the cursor is quick within it.
    pub fn new(state: &ReadState, snapshot: SequenceNumber, tree: TreeId) -> ScanCursor {
        let chain = PartitionChain::new(Arc::clone(&state.version), snapshot);
        let (merge, tombstones) = sources(state, snapshot, chain);
        ScanCursor {
            merge,
            tombstones,
            snapshot,
            batch: Box::default(),
            prefix: tree.first_key(),
            poor_batches: 0,
            pause: 0,
        }
    }

    /// Makes it a cursor over `state` at `snapshot`, not valid yet. What it has of the version is kept if that is the same.
    pub fn reset(&mut self, state: &ReadState, snapshot: SequenceNumber) {
        self.batch.release();
        let chain = match self.merge.take_sources().pop() {
            Some(Source::Partitions(mut chain, _)) if chain.is_over(&state.version) => {
                chain.set_snapshot(snapshot);
                chain
            }
            _ => PartitionChain::new(Arc::clone(&state.version), snapshot),
        };
        self.snapshot = snapshot;
        (self.merge, self.tombstones) = sources(state, snapshot, chain);
    }

    /// The newest range tombstone of a memtable that deletes the current entry, and its range.
    fn deleting(&self) -> Option<(SequenceNumber, &[u8], &[u8])> {
        let entry = self.merge.entry();
        let mut newest = None;
        for set in &self.tombstones {
            let sequence = set.newest_covering(entry.key, self.snapshot);
            if sequence > newest.map_or(entry.sequence, |(s, _, _)| s)
                && let Some((start, end)) = set.fragment(entry.key)
            {
                newest = Some((sequence, start, end));
            }
        }
        newest
    }

    #[inline]
    fn settle(&mut self, forward: bool) -> Result<()> {
        while self.merge.valid() {
            if self.tombstones.is_empty() && self.merge.entry().kind != EntryKind::Tombstone {
                break;
            }
            let jump = if self.tombstones.is_empty() {
                None
            } else {
                self.deleting().map(|(sequence, start, end)| (sequence, if forward { end } else { start }.to_vec()))
            };
            if let Some((sequence, to)) = jump {
                if self.merge.top().max_sequence() < sequence {
                    self.merge.skip_to(&to, |source| source.max_sequence() < sequence)?;
                    continue;
                }
            } else if self.merge.entry().kind != EntryKind::Tombstone {
                break;
            }
            if forward { self.merge.next()? } else { self.merge.prev()? }
        }
        Ok(())
    }
}

impl ScanCursor {
    /// Moves to the next row (or going backward the one before) if that is decoded already.
    #[inline]
    pub fn step_ahead(&mut self, forward: bool) -> bool {
        self.batch.step(forward)
    }

    /// Whether the row it stands on was decoded ahead.
    #[inline]
    pub fn is_ahead(&self) -> bool {
        self.batch.is_on_row()
    }

    /// Internal key and value of the row it stands on, if that was decoded ahead.
    #[inline]
    pub fn row_ahead(&self) -> Option<(&[u8], &[u8])> {
        self.batch.row()
    }

    /// Where sources take turns row by row, most of what is decoded is not used: then that is done less and less often.
    fn judge_batch(&mut self) {
        if self.batch.rows() >= BATCH_ROWS_MIN {
            self.poor_batches = 0;
        } else {
            self.poor_batches = (self.poor_batches + 1).min(PAUSE_SHIFT_MAX);
            self.pause = 1 << self.poor_batches;
        }
    }

    fn step(&mut self, forward: bool) -> Result<()> {
        if self.step_ahead(forward) {
            return Ok(());
        }
        let was_ahead = self.is_ahead();
        self.batch.go_on();
        let may_fill = self.tombstones.is_empty() && (!was_ahead || self.batch.is_forward() == forward);
        if may_fill && self.pause == 0 {
            self.merge.fill(forward, &mut self.batch)?;
            self.batch.keep_prefix(&self.prefix);
            self.judge_batch();
            if self.is_ahead() {
                return Ok(());
            }
        }
        self.pause = self.pause.saturating_sub(1);
        if was_ahead {
            self.merge.go_to(&self.batch)?;
        }
        self.batch.release();
        if forward {
            self.merge.next()?
        } else {
            self.merge.prev()?
        }
        self.settle(forward)
    }
}

impl Cursor for ScanCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.batch.restart();
        self.merge.seek(key)?;
        self.settle(true)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.batch.restart();
        self.merge.seek_before(key)?;
        self.settle(false)
    }

    fn seek_first(&mut self) -> Result<()> {
        self.batch.restart();
        self.merge.seek_first()?;
        self.settle(true)
    }

    fn seek_last(&mut self) -> Result<()> {
        self.batch.restart();
        self.merge.seek_last()?;
        self.settle(false)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.step(true)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.step(false)
    }

    #[inline]
    fn valid(&self) -> bool {
        self.is_ahead() || self.merge.valid()
    }

    #[inline]
    fn entry(&self) -> EntryRef<'_> {
        match self.row_ahead() {
            // Of such a row nothing else is asked: it is there, and nothing newer hides it.
            Some((key, value)) => EntryRef { key, sequence: self.snapshot, kind: EntryKind::Value, value },
            None => self.merge.entry(),
        }
    }
}
