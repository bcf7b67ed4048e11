//! Decodes the next rows of a scan into a batch (fill), and prefetches the rows after them.

use super::{
    super::{
        format::{SELECTOR_RESOLVE, SELECTOR_TOMBSTONE, lanes_below},
        rows::{Decode, LONG_SCAN, RowBatch, RowPlace},
    },
    ViewCursor, first_lanes,
};
use crate::base::{Beyond, Result, near_lane};
use crate::table::Moment;
use crossbeam_epoch::Guard;

/// Rows decoded ahead at the start of a scan.
const FEW_LANES: usize = 16;

const ROWS_SOON_MIN: usize = 8;

impl ViewCursor {
    /// Decodes the rows after the batch's position or else the present row (before it, going
    /// backward), from one segment. A batch to merge starts with the present row. The cursor does
    /// not move.
    ///
    /// The batch stays empty where rows must be handled one by one: at older snapshots, at either
    /// end, at rows that need resolving, and at damage, which the next move reports. Precondition:
    /// valid, unless the batch has a position.
    pub fn fill(&mut self, is_forward: bool, batch: &mut RowBatch) {
        let (number, lane, is_included) = match batch.from() {
            Some(RowPlace { segment, lane }) => (segment, lane, false),
            None => (self.here(), self.lane, batch.is_to_merge()),
        };
        batch.begin(number, is_forward);
        if batch.rounds() == 0 {
            self.forget_queued();
        }
        if self.sees_all {
            let guard = crossbeam_epoch::pin();
            let bound = if is_forward { lane + usize::from(!is_included) } else { lane + usize::from(is_included) };
            let now = (self.runs.moment(), &guard);
            if self.fill_from(number, bound, is_forward, batch, now).is_err() {
                batch.fail();
            }
        }
    }

    pub(super) fn fill_from(
        &mut self,
        mut number: u32,
        bound: usize,
        is_forward: bool,
        batch: &mut RowBatch,
        (moment, guard): (Moment, &Guard),
    ) -> Result<()> {
        let step = |from: u32| if is_forward { from + 1 } else { from.wrapping_sub(1) };
        if self.loaded.segment != Some(number) {
            self.load_other(number, guard)?;
        }
        let mut lanes = self.loaded.shown & if is_forward { !lanes_below(bound) } else { lanes_below(bound) };
        while lanes == 0 {
            number = step(number);
            if number >= self.view.directory.segments() {
                batch.expect(0, Beyond::End);
                return Ok(());
            }
            if self.loaded.segment != Some(number) {
                self.load_other(number, guard)?;
            }
            lanes = self.loaded.shown;
        }
        batch.begin_again(number);
        let (tombstones, beyond);
        (lanes, tombstones, beyond) = self.plain_lanes(lanes, batch);
        if lanes == 0 {
            batch.expect(0, beyond);
            return Ok(());
        }
        // The prefetch distance grows with the length of this scan and the last.
        let is_long = batch.rounds() >= LONG_SCAN;
        if batch.rounds() > 0 {
            batch.queue().prefetch_all();
        }
        let likely = batch.likely_rows();
        let few = if likely > 0 { likely } else { FEW_LANES };
        let chunk = if is_long { lanes } else { first_lanes(lanes, few, is_forward) };
        if batch.rounds() == 0 {
            self.likely = likely;
        }
        batch.expect(tombstones & chunk, if chunk == lanes { beyond } else { Beyond::More });
        let next = step(number);
        if is_long {
            self.view.prefetch_record(next);
        } else {
            let chunk_rows = chunk.count_ones() as usize;
            let coming = if batch.rounds() == 0 { likely } else { likely.max(chunk_rows + FEW_LANES) };
            self.prefetch_ahead([lanes, chunk], [next, step(next)], coming, batch, guard);
            if chunk_rows < ROWS_SOON_MIN {
                batch.queue().prefetch_all();
            }
        }
        let ViewCursor { view, runs, loaded, .. } = self;
        let segment = loaded.parsed(view);
        if !view.simd.run(Decode { runs, moment, segment, lanes: chunk, batch })? {
            return Err(view.corrupt_segment(number, "an entry lies outside of its run"));
        }
        Ok(())
    }

    /// Returns the rows before the first one that must be handled alone, the tombstones, and the
    /// reason for the end.
    #[inline]
    fn plain_lanes(&self, lanes: u32, batch: &RowBatch) -> (u32, u32, Beyond) {
        let segment = self.loaded.parsed(&self.view);
        let tombstones = !segment.unmarked(SELECTOR_TOMBSTONE);
        let mut special = !segment.unmarked(SELECTOR_RESOLVE);
        if !batch.is_to_merge() {
            special |= tombstones;
        }
        special &= lanes;
        if special == 0 {
            return (lanes, tombstones, Beyond::More);
        }
        let is_forward = batch.is_forward();
        let first = near_lane(special, is_forward);
        let plain = lanes & if is_forward { lanes_below(first) } else { !lanes_below(first + 1) };
        (plain, tombstones, Beyond::Row(first))
    }

    /// Prefetches `chunk`, up to `wanted` rows of this or the next segment, and the record after.
    #[inline]
    fn prefetch_ahead(
        &mut self,
        [lanes, chunk]: [u32; 2],
        [next, after_next]: [u32; 2],
        wanted: usize,
        batch: &mut RowBatch,
        guard: &Guard,
    ) {
        let is_first = batch.rounds() == 0;
        let ViewCursor { view, runs, loaded, .. } = self;
        loaded.prefetch(view, runs, chunk, is_first, None);
        let left = wanted.saturating_sub(chunk.count_ones() as usize);
        if lanes != chunk {
            loaded.prefetch(view, runs, if is_first { 0 } else { lanes & !chunk }, false, None);
        } else if left > 0 {
            // Merged rows are not passed one by one.
            let is_passed = batch.is_forward() && !batch.is_to_merge();
            self.prefetch_coming(next, left, batch.is_forward(), guard, is_passed.then(|| batch.queue()));
            self.view.prefetch_record(after_next);
        } else {
            view.prefetch_record(next);
        }
    }

    /// Continues with rows put aside ([`RowBatch::aside`]). Precondition: valid.
    pub fn resume(&self, batch: &mut RowBatch) {
        batch.resume(&self.runs, RowPlace { segment: self.here(), lane: self.lane });
    }
}
