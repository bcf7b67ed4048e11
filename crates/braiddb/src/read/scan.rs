//! A scan: memtables and partitions together, at one snapshot, without what is deleted.
//!
//! The partitions leave out their own deleted keys. Here remain the tombstones and range tombstones of memtables. A range
//! tombstone of a memtable deletes everything older that it covers, so older sources jump over its whole range.

use super::{Merge, PartitionChain, ReadState};
use crate::{
    base::{Cursor, EntryKind, EntryRef, RangeTombstoneSet, Result, SequenceNumber},
    memtable::MemtableCursor,
};
use std::sync::Arc;

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

/// A cursor over all keys that exist at a snapshot.
#[derive(Debug)]
pub struct ScanCursor {
    merge: Merge<Source>,
    tombstones: Vec<Arc<RangeTombstoneSet>>,
    snapshot: SequenceNumber,
}

impl ScanCursor {
    /// A cursor over `state` at `snapshot`, which must not be older than what the state keeps.
    pub fn new(state: &ReadState, snapshot: SequenceNumber) -> ScanCursor {
        let chain = PartitionChain::new(Arc::clone(&state.version), snapshot);
        ScanCursor::over(state, snapshot, chain)
    }

    /// Makes it a cursor over `state` at `snapshot`, not valid yet. What it has of the version is kept if that is the same.
    pub fn reset(&mut self, state: &ReadState, snapshot: SequenceNumber) {
        let chain = match self.merge.take_sources().pop() {
            Some(Source::Partitions(mut chain, _)) if chain.is_over(&state.version) => {
                chain.set_snapshot(snapshot);
                chain
            }
            _ => PartitionChain::new(Arc::clone(&state.version), snapshot),
        };
        *self = ScanCursor::over(state, snapshot, chain);
    }

    fn over(state: &ReadState, snapshot: SequenceNumber, chain: PartitionChain) -> ScanCursor {
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
        ScanCursor { merge: Merge::new(sources), tombstones, snapshot }
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

impl Cursor for ScanCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.merge.seek(key)?;
        self.settle(true)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.merge.seek_before(key)?;
        self.settle(false)
    }

    fn seek_first(&mut self) -> Result<()> {
        self.merge.seek_first()?;
        self.settle(true)
    }

    fn seek_last(&mut self) -> Result<()> {
        self.merge.seek_last()?;
        self.settle(false)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.merge.next()?;
        self.settle(true)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.merge.prev()?;
        self.settle(false)
    }

    #[inline]
    fn valid(&self) -> bool {
        self.merge.valid()
    }

    #[inline]
    fn entry(&self) -> EntryRef<'_> {
        self.merge.entry()
    }
}
