//! The sources of a scan: memtables, newest first, and the partitions after them.

use super::super::{PartitionConcatIter, ReadState};
use crate::{
    base::{Cursor, EntryRef, RangeTombstoneSet, Result, SequenceNumber},
    memtable::{Memtable, MemtableCursor},
};
use std::sync::Arc;

#[derive(Debug)]
pub enum Source {
    Memtable(MemtableCursor, SequenceNumber),
    Partitions(PartitionConcatIter, SequenceNumber),
}

macro_rules! forward {
    ($self:expr, $cursor:ident => $call:expr) => {
        match $self {
            Source::Memtable($cursor, _) => $call,
            Source::Partitions($cursor, _) => $call,
        }
    };
}

impl Source {
    pub(super) fn is_over(&self, memtable: &Arc<Memtable>) -> bool {
        matches!(self, Source::Memtable(cursor, _) if cursor.is_over(memtable))
    }

    /// Of the same state, which has no range tombstones in memtables.
    #[inline]
    pub(super) fn set_snapshot(&mut self, snapshot: SequenceNumber, state: &ReadState) {
        match self {
            Source::Memtable(cursor, max) => {
                cursor.set_snapshot(snapshot);
                if cursor.is_over(&state.active) {
                    *max = snapshot;
                }
            }
            Source::Partitions(concat, flushed) => {
                concat.set_snapshot(snapshot);
                let with_entries = state.memtables().filter(|memtable| memtable.entry_count() > 0);
                *flushed =
                    with_entries.fold(snapshot, |at, memtable| at.min(memtable.min_sequence().saturating_sub(1)));
            }
        }
    }

    #[inline]
    pub(super) fn expect_seek(&mut self, key: &[u8]) {
        if let Source::Memtable(cursor, _) = self {
            cursor.expect_seek(key);
        }
    }

    #[inline]
    pub(super) fn expect_no_seek(&mut self) {
        if let Source::Memtable(cursor, _) = self {
            cursor.expect_no_seek();
        }
    }

    #[inline]
    pub(super) fn max_sequence(&self) -> SequenceNumber {
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

/// Creates the sources of a state and collects the range tombstones of its memtables. Reuses
/// cursors in `kept` over the same memtables.
pub(super) fn sources(
    state: &ReadState,
    snapshot: SequenceNumber,
    concat: PartitionConcatIter,
    kept: &mut Vec<Source>,
    tombstones: &mut Vec<Arc<RangeTombstoneSet>>,
) -> Vec<Source> {
    let mut sources = Vec::with_capacity(state.frozen.len() + 2);
    let mut flushed = snapshot;
    for memtable in state.memtables() {
        tombstones.extend(memtable.range_tombstones());
        if memtable.is_empty() {
            continue;
        }
        flushed = flushed.min(memtable.min_sequence().saturating_sub(1));
        if memtable.entry_count() > 0 {
            // The active memtable grows, so the only bound is the snapshot.
            let max = if Arc::ptr_eq(memtable, &state.active) { snapshot } else { memtable.max_sequence() };
            let at = kept.iter().position(|source| source.is_over(memtable));
            let cursor = match at.map(|at| kept.swap_remove(at)) {
                Some(Source::Memtable(mut cursor, _)) => {
                    cursor.set_snapshot(snapshot);
                    cursor
                }
                _ => MemtableCursor::new(Arc::clone(memtable), snapshot),
            };
            sources.push(Source::Memtable(cursor, max));
        }
    }
    sources.push(Source::Partitions(concat, flushed));
    sources
}
