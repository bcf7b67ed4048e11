//! Scans memtables and partitions at one snapshot, without deleted keys.
//!
//! Partitions omit their own deleted keys. This file applies tombstones of memtables. A memtable's
//! range tombstone deletes all older entries it covers, so older sources skip its range.

use super::{BatchMerger, Merge, PartitionConcatIter, PartitionSource, ReadState, ahead};
use crate::{
    base::{Cursor, EntryKind, EntryRef, RangeTombstoneSet, Result, SequenceNumber, TreeId},
    view::{RowBatch, RowPlace},
};
use std::{ops::ControlFlow, sync::Arc};

mod source;

pub use source::Source;
use source::sources;

/// Maximum exponent of the pause after failed attempts to decode ahead: 2^6 steps.
const PAUSE_SHIFT_MAX: u32 = 6;

/// Minimum rows of one source before another's first row to pass foreign rows one by one; below it,
/// merging all is cheaper. Only for blocks read in place: cached blocks would be counted twice and
/// seem frequently read.
const ALONE_ROWS_MIN: u32 = 8;

/// Maximum close rows of other sources that a scan passes one by one.
const MET_MAX: u32 = 8;

/// Scans after one that reached [`MET_MAX`] in which none is passed so.
const CROWDED_SCANS: u32 = 8;

/// Rounds in a row with rows of one batch only, after which that source is read alone.
const SOLO_ROUNDS_MAX: u32 = 4;

/// Returns the first source if it is one of the partitions, and the keys of the next ones.
fn first(merge: &mut Merge<Source>, forward: bool) -> Option<(&mut PartitionSource, [Option<&[u8]>; 2])> {
    match merge.first_two(forward)? {
        (Source::Partitions(concat, _), other) => {
            let (source, second) = concat.first_two(forward)?;
            Some((source, [other.map(Cursor::key), second.map(Cursor::key)]))
        }
        (Source::Memtable(..), _) => None,
    }
}

/// A cursor over all keys that exist at a snapshot.
/// While the rows of one source come first, the cursor is on rows of its batch and the merge stays
/// where the batch began. Where sources alternate, each has a batch, and the cursor is on the
/// merged rows: see `ahead.rs`.
#[derive(Debug)]
pub struct ScanCursor {
    merge: Merge<Source>,
    tombstones: Vec<Arc<RangeTombstoneSet>>,
    snapshot: SequenceNumber,
    batch: Box<RowBatch>,
    /// The rows ahead of several sources; empty while the single-source batch has rows.
    merger: BatchMerger,
    prefix: [u8; 4],
    /// Consecutive failures to decode ahead, and steps until the next attempt.
    misses: u32,
    pause: u32,
    /// The last batch of one source met rows of another source, after this number of its own.
    is_contested: bool,
    alone_rows: u32,
    /// Close rows of other sources passed one by one in this scan, and scans from this one on that
    /// pass none.
    met: u32,
    crowded_scans: u32,
    /// This scan passes none and has not started merged batches yet.
    begins_crowded: bool,
    has_ended: bool,
}

impl ScanCursor {
    /// Rows of `tree` alone are decoded ahead. `snapshot` must not be older than the state retains.
    pub fn new(state: &ReadState, snapshot: SequenceNumber, tree: TreeId) -> ScanCursor {
        let concat = PartitionConcatIter::new(Arc::clone(&state.version), snapshot);
        let mut tombstones = Vec::new();
        let sources = sources(state, snapshot, concat, &mut Vec::new(), &mut tombstones);
        ScanCursor {
            merge: Merge::new(sources),
            tombstones,
            snapshot,
            batch: Box::default(),
            merger: BatchMerger::default(),
            prefix: tree.first_key(),
            misses: 0,
            pause: 0,
            is_contested: false,
            alone_rows: 0,
            met: 0,
            crowded_scans: 0,
            begins_crowded: false,
            has_ended: false,
        }
    }

    pub fn set_tree(&mut self, tree: TreeId) {
        self.prefix = tree.first_key();
    }

    /// Resets a scan at rest over the same state.
    #[inline]
    pub fn wake(&mut self, state: &ReadState, snapshot: SequenceNumber) {
        let sources = self.merge.sources().0;
        // The active memtable's first entry makes it a source, and it may get range tombstones.
        let is_same = state.memtables().filter(|memtable| memtable.entry_count() > 0).count() + 1 == sources.len();
        if !is_same || !self.tombstones.is_empty() || state.active.range_tombstones().is_some() {
            return self.reset(state, snapshot);
        }
        self.snapshot = snapshot;
        sources.iter_mut().for_each(|source| source.set_snapshot(snapshot, state));
    }

    /// Releases blocks and forgets the position.
    pub fn rest(&mut self) {
        self.restart();
        self.has_ended = true;
        self.merge.invalidate();
        if let Some(Source::Partitions(concat, _)) = self.merge.sources().0.last_mut() {
            concat.leave();
        }
    }

    /// The cursor becomes invalid. Reuses cursors of the same version and memtables.
    pub fn reset(&mut self, state: &ReadState, snapshot: SequenceNumber) {
        self.restart();
        self.has_ended = true;
        let mut kept = self.merge.take_sources();
        let concat = match kept.pop() {
            Some(Source::Partitions(mut concat, _)) if concat.is_over(&state.version) => {
                concat.set_snapshot(snapshot);
                concat
            }
            _ => {
                self.batch.release_runs();
                self.merger.release_runs();
                PartitionConcatIter::new(Arc::clone(&state.version), snapshot)
            }
        };
        self.snapshot = snapshot;
        self.tombstones.clear();
        self.merge.set_sources(sources(state, snapshot, concat, &mut kept, &mut self.tombstones));
    }

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
    #[inline]
    pub fn step_ahead(&mut self, forward: bool) -> bool {
        self.batch.step(forward) || self.merger.step(forward)
    }

    #[inline]
    pub fn is_ahead(&self) -> bool {
        self.batch.is_on_row() || self.merger.is_on_row()
    }

    #[inline]
    pub fn row_ahead(&self) -> Option<(&[u8], &[u8])> {
        match self.batch.row() {
            None if self.merger.is_on_row() => self.merger.row(),
            row => row,
        }
    }

    #[inline(always)]
    pub fn row_in_batch(&self) -> Option<(&[u8], &[u8])> {
        self.batch.row()
    }

    /// Passes the rows of the single-source batch to `visit` until it breaks. Returns the steps and
    /// the last result; `None` without rows in this direction.
    #[inline]
    pub fn visit_batch<B>(
        &mut self,
        forward: bool,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
    ) -> Option<(u32, ControlFlow<B>)> {
        (self.batch.is_on_row() && self.batch.is_forward() == forward).then(|| self.batch.visit(visit))
    }

    #[inline]
    pub fn key_in_batch(&self) -> Option<&[u8]> {
        self.batch.key()
    }

    /// Counts later decoded rows, in order, whose internal keys satisfy `is_kept`.
    pub fn rows_after(&self, is_kept: impl Fn(&[u8]) -> bool) -> u32 {
        if self.batch.is_on_row() { self.batch.rows_after(is_kept) } else { self.merger.rows_after(is_kept) }
    }

    /// True if all later rows are known to differ within `prefix_len` bytes. Needs a single source;
    /// moves nothing.
    pub fn is_last_with(&mut self, prefix_len: usize) -> bool {
        if self.is_ahead() {
            return false;
        }
        match self.merge.first_two(true) {
            Some((Source::Partitions(concat, _), None)) => match concat.first_two(true) {
                Some((source, None)) => source.is_last_with(prefix_len),
                _ => false,
            },
            _ => false,
        }
    }

    /// [`Cursor::seek`] for callers that will scan about as far as last time. A partition's only
    /// source decodes rows up to the memtables' next row.
    #[inline]
    pub fn seek_rows(&mut self, key: &[u8]) -> Result<()> {
        self.restart();
        let ScanCursor { merge, batch, tombstones, pause, .. } = self;
        if !tombstones.is_empty() || (*pause > 0 && batch.likely_rows() > 0) {
            merge.seek(key)?;
            return self.settle(true);
        }
        merge.sources().0.iter_mut().for_each(|source| source.expect_seek(key));
        let is_there = merge.seek_last_by(key, |source| match source {
            Source::Partitions(concat, _) => concat.seek_rows(key, batch),
            Source::Memtable(..) => Ok(false),
        });
        let is_there = is_there.inspect_err(|_| {
            batch.release();
            merge.sources().0.iter_mut().for_each(Source::expect_no_seek);
        })?;
        if !is_there {
            self.batch.release();
        } else if self.stand_on_batch() {
            return Ok(());
        }
        self.settle(true)
    }

    /// True if the batch has the first row: then its rows after another source's are put aside. If
    /// not, all are.
    #[inline]
    fn stand_on_batch(&mut self) -> bool {
        if !self.batch.is_on_row() {
            return false;
        }
        self.batch.keep_prefix(&self.prefix);
        let Some((_, others)) = first(&mut self.merge, true) else {
            self.batch.put_aside();
            return false;
        };
        for key in others.into_iter().flatten() {
            self.is_contested |= !self.batch.keep_before(key);
        }
        self.alone_rows = self.batch.rows_left();
        true
    }

    #[inline]
    pub fn entry_there(&self) -> EntryRef<'_> {
        self.merge.entry()
    }

    /// Moves without decoding ahead, so that [`ScanCursor::entry_there`] is complete. Only after a
    /// seek.
    pub fn next_entry(&mut self) -> Result<()> {
        self.merge.next()?;
        self.settle(true)
    }

    #[inline]
    fn restart(&mut self) {
        if !std::mem::take(&mut self.has_ended) {
            self.end();
        }
    }

    #[inline]
    fn end(&mut self) {
        (self.is_contested, self.alone_rows) = (false, 0);
        let is_crowded = std::mem::take(&mut self.met) >= MET_MAX;
        self.crowded_scans = if is_crowded { CROWDED_SCANS } else { self.crowded_scans.saturating_sub(1) };
        self.begins_crowded = self.crowded_scans > 0;
        self.batch.restart();
        self.merger.restart();
    }

    fn step(&mut self, forward: bool) -> Result<()> {
        if self.step_ahead(forward) {
            return Ok(());
        }
        if self.merger.is_on_row() {
            return self.step_batch(forward);
        }
        let was_ahead = self.batch.is_on_row();
        self.batch.advance();
        let may_fill =
            self.tombstones.is_empty() && (!was_ahead || self.batch.is_forward() == forward) && self.pause == 0;
        let may_be_alone = !self.is_contested && !self.begins_crowded && self.batch.aside(forward).is_none();
        if may_fill && may_be_alone && self.fill(forward) {
            self.judge(true);
            return Ok(());
        }
        if may_fill && self.is_met(forward) {
            return self.step_past_other(was_ahead, forward);
        }
        self.pause = self.pause.saturating_sub(1);
        if let Some(place) = self.batch.from() {
            let moved =
                first(&mut self.merge, self.batch.is_forward()).map_or(Ok(()), |(source, _)| source.go_to(place));
            moved.inspect_err(|_| self.merge.invalidate())?;
        }
        let goes_on = may_fill && self.merge.is_forward() == forward;
        if goes_on && self.alone_rows >= ALONE_ROWS_MIN && !self.batch.is_pinning() {
            // This source may be alone again. If not, the next step decodes all sources.
            self.is_contested = false;
            self.alone_rows = if was_ahead { self.alone_rows } else { 0 };
            self.batch.interrupt();
            return self.step_merge(forward);
        }
        self.alone_rows = 0;
        self.begins_crowded = false;
        self.batch.release();
        if goes_on {
            if ahead::begin(&mut self.merge, &mut self.merger, &self.prefix) {
                return self.step_batch(forward);
            }
            self.is_contested = false;
            self.judge(false);
        }
        self.step_merge(forward)
    }

    /// True if the other source's row is passed alone: decoding all sources does not pay if such
    /// rows are rare.
    fn is_met(&self, forward: bool) -> bool {
        let is_aside = self.merge.is_forward() == forward && self.batch.aside(forward).is_some();
        let is_rare = self.alone_rows >= ALONE_ROWS_MIN || (self.met < MET_MAX && self.crowded_scans == 0);
        is_aside && is_rare && !self.batch.is_pinning()
    }

    /// Steps to or from a row of another source. The batch continues at the first of its rows that
    /// the merge reaches.
    fn step_past_other(&mut self, was_ahead: bool, forward: bool) -> Result<()> {
        self.met += u32::from(self.alone_rows < ALONE_ROWS_MIN);
        let is_to_other = was_ahead || std::mem::take(&mut self.is_contested);
        if !is_to_other {
            self.alone_rows = 0;
        }
        let moved = match self.batch.aside(forward).filter(|_| was_ahead) {
            Some(place) => self.go_aside(place, forward),
            None => self.step_merge(forward),
        };
        moved.inspect_err(|_| {
            self.batch.release();
            self.merge.invalidate();
        })?;
        self.batch.follow_cursor();
        self.is_contested = false;
        if let Some((source, others)) = first(&mut self.merge, forward) {
            source.resume(&mut self.batch);
            for key in others.into_iter().flatten() {
                self.is_contested |= !self.batch.keep_before(key);
            }
            self.alone_rows = self.batch.rows_left();
        }
        Ok(())
    }

    /// Moves the batch's source to the first row put aside, and the merge to its first row.
    fn go_aside(&mut self, place: RowPlace, forward: bool) -> Result<()> {
        first(&mut self.merge, forward).map_or(Ok(()), |(source, _)| source.go_to(place))?;
        if let Some(Source::Partitions(concat, _)) = self.merge.sources().0.last_mut() {
            concat.restore(forward)?;
        }
        self.merge.restore();
        self.settle(forward)
    }

    #[inline]
    fn step_merge(&mut self, forward: bool) -> Result<()> {
        if forward {
            self.merge.next()?
        } else {
            self.merge.prev()?
        }
        self.settle(forward)
    }

    /// Decodes rows of the first source up to the next row of another source. False without rows.
    fn fill(&mut self, forward: bool) -> bool {
        if let Some((source, others)) = first(&mut self.merge, forward) {
            source.fill(forward, &mut self.batch);
            self.batch.keep_prefix(&self.prefix);
            for key in others.into_iter().flatten() {
                self.is_contested |= !self.batch.keep_before(key);
            }
            self.alone_rows = self.alone_rows.saturating_add(self.batch.rows_left());
        }
        self.batch.is_on_row()
    }

    fn step_batch(&mut self, forward: bool) -> Result<()> {
        if self.merger.is_forward() != forward {
            return self.leave_batch_merge(forward);
        }
        if self.merger.step(forward) {
            return Ok(());
        }
        let is_solo = self.merger.solo_rounds() >= SOLO_ROUNDS_MAX;
        if !is_solo && ahead::advance(&mut self.merge, &mut self.merger, &self.prefix) {
            self.judge(true);
            return Ok(());
        }
        self.judge(is_solo);
        self.is_contested &= !is_solo;
        ahead::leave(&mut self.merge, &mut self.merger)?;
        self.settle(forward)
    }

    fn leave_batch_merge(&mut self, forward: bool) -> Result<()> {
        let key = self.merger.row().map(|(key, _)| key.to_vec()).unwrap_or_default();
        self.merger.release();
        if forward {
            self.merge.seek(&key)?;
            if self.merge.valid() && self.merge.key() == key.as_slice() {
                self.merge.next()?;
            }
        } else {
            self.merge.seek_before(&key)?;
        }
        self.settle(forward)
    }

    /// Pauses longer after each failed attempt.
    fn judge(&mut self, was_worth_it: bool) {
        if was_worth_it {
            self.misses = 0;
        } else {
            self.misses = (self.misses + 1).min(PAUSE_SHIFT_MAX);
            self.pause = 1 << self.misses;
        }
    }
}

impl Cursor for ScanCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.restart();
        self.merge.seek(key)?;
        self.settle(true)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.restart();
        self.merge.seek_before(key)?;
        self.settle(false)
    }

    fn seek_first(&mut self) -> Result<()> {
        self.restart();
        self.merge.seek_first()?;
        self.settle(true)
    }

    fn seek_last(&mut self) -> Result<()> {
        self.restart();
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
            // Rows decoded ahead are visible plain values: the snapshot can serve as sequence
            // number.
            Some((key, value)) => EntryRef { key, sequence: self.snapshot, kind: EntryKind::Value, value },
            None => self.merge.entry(),
        }
    }
}
