//! Batches that a scan merges with other sources: keeps rows within bounds, and puts rows aside
//! until a row of another source has been passed.

use super::super::format::lanes_below;
use super::{HeldRuns, RowBatch, RowPlace};
use crate::base::{Beyond, near_lane};
use std::sync::Arc;

impl RowBatch {
    pub fn to_merge() -> RowBatch {
        RowBatch { is_to_merge: true, ..RowBatch::default() }
    }

    pub fn set_with_sequences(&mut self, with_sequences: bool) {
        self.with_sequences = with_sequences;
    }

    pub(in crate::view) fn is_to_merge(&self) -> bool {
        self.is_to_merge
    }

    /// Returns the first row put aside, if any in this direction.
    pub fn aside(&self, is_forward: bool) -> Option<RowPlace> {
        (self.aside != 0 && self.is_forward == is_forward).then(|| self.place(near_lane(self.aside, is_forward)))
    }

    pub fn put_aside(&mut self) {
        if self.is_pinning {
            return self.release();
        }
        self.aside = std::mem::take(&mut self.lanes);
        self.begins_with_seek = false;
    }

    /// Continues from the cursor's `place` on. Empty if that is none of the rows put aside.
    pub(in crate::view) fn resume(&mut self, runs: &Arc<HeldRuns>, place: RowPlace) {
        let is_of = self.runs.as_ref().is_some_and(|held| Arc::ptr_eq(held, runs)) && self.segment == place.segment;
        let kept = std::mem::take(&mut self.aside);
        if is_of && kept >> place.lane & 1 != 0 {
            let passed = if self.is_forward { lanes_below(place.lane) } else { !lanes_below(place.lane + 1) };
            self.lanes = kept & !passed;
            self.filled = self.lanes.count_ones();
            self.at = place.lane;
        }
    }

    /// Passes all rows but those of `rest`. The next fill starts after the last of all.
    pub fn pass(&mut self, rest: u32) {
        if self.lanes != 0 {
            let passed = self.lanes & !rest;
            self.passed_rows = self.passed_rows.saturating_add(passed.count_ones());
            self.from = Some(self.place(near_lane(self.lanes, !self.is_forward)));
            self.lanes = 0;
        }
    }

    pub fn keep_within(&mut self, start: &[u8], end: Option<&[u8]>) {
        let is_forward = self.is_forward;
        let is_within = |key: &[u8]| if is_forward { end.is_none_or(|end| key < end) } else { key >= start };
        if self.keep(is_within).is_some() {
            self.beyond = Beyond::End;
        }
    }

    /// Puts rows at or after `bound` aside. Returns true if there are none.
    pub fn keep_before(&mut self, bound: &[u8]) -> bool {
        let (is_forward, before) = (self.is_forward, self.lanes);
        let is_all = self.keep(|key| if is_forward { key < bound } else { key > bound }).is_none();
        self.aside |= before & !self.lanes;
        is_all
    }

    pub fn keep_prefix(&mut self, prefix: &[u8]) {
        if let Some(lane) = self.keep(|key| key.starts_with(prefix)) {
            self.beyond = Beyond::Outside(lane);
        }
    }

    /// Returns the first rejected row's index. Precondition: no row was passed.
    #[inline]
    fn keep(&mut self, is_kept: impl Fn(&[u8]) -> bool) -> Option<usize> {
        let kept = self.slots.kept(self.lanes, self.is_forward, is_kept);
        let others = self.lanes & !kept;
        (self.lanes, self.filled) = (kept, kept.count_ones());
        (others != 0).then(|| near_lane(others, self.is_forward))
    }
}
