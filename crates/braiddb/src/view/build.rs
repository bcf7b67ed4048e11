//! Builds the view of a partition from its runs, reading keys only. `compaction/plan.rs` decides
//! when; `fold.rs` extends an existing view instead.

use super::builder::ViewBuilder;
use super::format::ViewMeta;
use super::reader::View;
use crate::base::{EntryKind, EntryRef, FileId, FileNumber, MergeOrder, RangeTombstoneSet, Result, SequenceNumber};
use crate::table::{KeyScan, Position, Run, TableContext};
use std::{cmp::Ordering, path::Path, sync::Arc};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub start: Vec<u8>,
    /// `None`: no end.
    pub end: Option<Vec<u8>>,
}

impl Bounds {
    pub(crate) fn ends_after(&self, key: &[u8]) -> bool {
        self.end.as_deref().is_none_or(|end| key < end)
    }
}

/// Builds the view file `path`, which must not exist, over the entries of `runs` within `bounds`.
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

/// Returns each run's position of the first entry at or after the bounds' start.
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

pub(crate) struct Covering<'a>(Vec<&'a Arc<Run>>);

impl<'a> Covering<'a> {
    pub(crate) fn new(runs: &'a [Arc<Run>]) -> Covering<'a> {
        Covering(runs.iter().filter(|run| !run.range_tombstones().is_empty()).collect())
    }

    pub(crate) fn sets(&self) -> impl Iterator<Item = &'a RangeTombstoneSet> {
        self.0.iter().map(|run| &**run.range_tombstones())
    }

    #[inline]
    pub(crate) fn deletes(&self, key: &[u8], sequence: SequenceNumber) -> bool {
        self.0.iter().any(|run| run.range_tombstones().covering(key).first().is_some_and(|&newest| newest > sequence))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MergedEntry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) sequence: SequenceNumber,
    pub(crate) kind: EntryKind,
    pub(crate) run: usize,
    pub(crate) position: Position,
}

#[derive(Debug)]
pub(crate) struct KeyMerge {
    scans: Vec<KeyScan>,
    order: MergeOrder,
    bounds: Bounds,
}

impl KeyMerge {
    pub(crate) fn new(runs: &[Arc<Run>], positions: &[Position], bounds: Bounds) -> Result<KeyMerge> {
        let mut scans: Vec<KeyScan> = runs.iter().zip(positions).map(|(run, &position)| run.keys(position)).collect();
        let mut order = MergeOrder::default();
        for run in 0..scans.len() {
            if scans[run].next()? && bounds.ends_after(scans[run].key()) {
                order.add(run, scans[run].key(), |a, b| compare(&scans, a, b));
            }
        }
        Ok(KeyMerge { scans, order, bounds })
    }

    #[inline]
    pub(crate) fn peek(&self) -> Option<MergedEntry<'_>> {
        let run = self.order.first()?;
        let scan = &self.scans[run];
        let EntryRef { key, sequence, kind, .. } = scan.entry();
        Some(MergedEntry { key, sequence, kind, run, position: scan.position() })
    }

    pub(crate) fn next(&mut self) -> Result<()> {
        let KeyMerge { scans, order, bounds } = self;
        let Some(run) = order.first() else { return Ok(()) };
        if scans[run].next()? && bounds.ends_after(scans[run].key()) {
            order.move_first(scans[run].key(), |a, b| compare(scans, a, b));
        } else {
            order.remove_first();
        }
        Ok(())
    }
}

fn compare(scans: &[KeyScan], a: usize, b: usize) -> Ordering {
    let (x, y) = (scans[a].entry(), scans[b].entry());
    x.key.cmp(y.key).then_with(|| y.sequence.cmp(&x.sequence)).then_with(|| a.cmp(&b))
}
