//! Building a view over runs by merging their keys.

use super::builder::ViewBuilder;
use super::format::ViewMeta;
use super::reader::View;
use crate::base::{EntryKind, EntryRef, FileId, FileNumber, Result, SequenceNumber};
use crate::table::{KeyScan, Position, Run, TableContext};
use std::{path::Path, sync::Arc};

/// A range of internal keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The first key within.
    pub start: Vec<u8>,
    /// The first key after; `None` for no end.
    pub end: Option<Vec<u8>>,
}

impl Bounds {
    /// Whether `key`, which is not before the start, comes before the end.
    pub(crate) fn ends_after(&self, key: &[u8]) -> bool {
        self.end.as_deref().is_none_or(|end| key < end)
    }
}

/// Builds the view file `path`, which must not exist, over those entries of `runs` that lie within `bounds`, by
/// merging the runs' keys: about five comparisons an entry with eight runs, no values read.
pub fn build_view(
    ctx: &TableContext,
    path: &Path,
    number: FileNumber,
    file_id: FileId,
    runs: &[Arc<Run>],
    bounds: &Bounds,
) -> Result<ViewMeta> {
    let positions = start_positions(ctx, runs, bounds)?;
    let mut builder = ViewBuilder::new(ctx, path, number, file_id, runs, &positions)?;
    let mut merge = KeyMerge::new(runs, &positions, bounds.clone())?;
    let covering = Covering::new(runs);
    while let Some(entry) = merge.peek() {
        let stale = covering.deletes(entry.key, entry.sequence);
        builder.push(entry.key, entry.sequence, entry.run as u8, entry.position, entry.kind, stale)?;
        merge.next()?;
    }
    builder.finish()
}

/// Where the entries of each run that lie at or after the bounds' start begin.
pub(crate) fn start_positions(ctx: &TableContext, runs: &[Arc<Run>], bounds: &Bounds) -> Result<Vec<Position>> {
    let guard = crossbeam_epoch::pin();
    let start = |run: &Arc<Run>| {
        if bounds.start <= run.meta().smallest {
            return Ok(Position::default());
        }
        if run.meta().view_bytes > 0 {
            return View::open_embedded(ctx, run)?.position_of(run, &bounds.start, &guard);
        }
        let mut keys = run.keys(Position::default());
        while keys.next()? {
            if keys.key() >= bounds.start.as_slice() {
                return Ok(keys.position());
            }
        }
        Ok(run.end())
    };
    runs.iter().map(start).collect()
}

/// What some runs' range tombstones delete.
pub(crate) struct Covering<'a>(Vec<&'a Arc<Run>>);

impl<'a> Covering<'a> {
    pub(crate) fn new(runs: &'a [Arc<Run>]) -> Covering<'a> {
        Covering(runs.iter().filter(|run| !run.range_tombstones().is_empty()).collect())
    }

    /// Whether a range tombstone newer than `sequence` covers `key`.
    #[inline]
    pub(crate) fn deletes(&self, key: &[u8], sequence: SequenceNumber) -> bool {
        self.0.iter().any(|run| run.range_tombstones().covering(key).first().is_some_and(|&newest| newest > sequence))
    }
}

/// An entry of a merge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergedEntry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) sequence: SequenceNumber,
    pub(crate) kind: EntryKind,
    /// Which of the merge's runs.
    pub(crate) run: usize,
    pub(crate) position: Position,
}

/// The keys of runs in one order, up to the bounds' end. A heap of the runs, so that an entry costs a comparison for
/// each level that it sinks, which is none or one where a run goes on alone.
#[derive(Debug)]
pub(crate) struct KeyMerge {
    scans: Vec<KeyScan>,
    /// Indexes of scans that are not at their end; the first is the least.
    heap: Vec<usize>,
    bounds: Bounds,
}

impl KeyMerge {
    pub(crate) fn new(runs: &[Arc<Run>], positions: &[Position], bounds: Bounds) -> Result<KeyMerge> {
        let scans = runs.iter().zip(positions).map(|(run, &position)| run.keys(position)).collect();
        let mut merge = KeyMerge { scans, heap: Vec::with_capacity(runs.len()), bounds };
        for run in 0..merge.scans.len() {
            if merge.scans[run].next()? && merge.bounds.ends_after(merge.scans[run].key()) {
                merge.heap.push(run);
            }
        }
        for at in (0..merge.heap.len()).rev() {
            merge.sink(at);
        }
        Ok(merge)
    }

    /// The least entry; `None` at the end.
    #[inline]
    pub(crate) fn peek(&self) -> Option<MergedEntry<'_>> {
        let &run = self.heap.first()?;
        let scan = &self.scans[run];
        let EntryRef { key, sequence, kind, .. } = scan.entry();
        Some(MergedEntry { key, sequence, kind, run, position: scan.position() })
    }

    /// Leaves the least entry behind.
    pub(crate) fn next(&mut self) -> Result<()> {
        if let Some(&run) = self.heap.first() {
            if !(self.scans[run].next()? && self.bounds.ends_after(self.scans[run].key())) {
                self.heap.swap_remove(0);
            }
            self.sink(0);
        }
        Ok(())
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let mut child = 2 * at + 1;
            if child >= self.heap.len() {
                return;
            }
            if child + 1 < self.heap.len() && self.is_before(self.heap[child + 1], self.heap[child]) {
                child += 1;
            }
            if !self.is_before(self.heap[child], self.heap[at]) {
                return;
            }
            self.heap.swap(child, at);
            at = child;
        }
    }

    fn is_before(&self, a: usize, b: usize) -> bool {
        let (x, y) = (self.scans[a].entry(), self.scans[b].entry());
        x.key.cmp(y.key).then_with(|| y.sequence.cmp(&x.sequence)).then_with(|| a.cmp(&b)).is_lt()
    }
}
