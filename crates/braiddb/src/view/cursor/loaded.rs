//! The copy of a segment's record that a cursor moves in, and the prefetch of its rows.

use super::super::{
    find::PrefetchRows,
    format::{MAX_RECORD_BYTES, Segment, lanes_below},
    reader::View,
};
use crate::base::Result;
use crate::cache::PrefetchQueue;
use crate::table::Run;
use crossbeam_epoch::Guard;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) segment: Option<u32>,
    pub(super) record: [u8; MAX_RECORD_BYTES],
    pub(super) count: usize,
    pub(super) same_key: u32,
    /// A bit per visible entry, if the snapshot covers the view.
    pub(super) shown: u32,
    /// A bit per prefetched entry.
    pub(super) fetched: u32,
    /// A bit per entry to be prefetched once the rows of a batch are passed.
    pub(super) queued: u32,
}

impl Default for Loaded {
    fn default() -> Loaded {
        Loaded { segment: None, record: [0; MAX_RECORD_BYTES], count: 0, same_key: 0, shown: 0, fetched: 0, queued: 0 }
    }
}

impl Loaded {
    pub(super) fn load(&mut self, view: &View, number: u32, hidden: u8, guard: &Guard) -> Result<()> {
        if self.segment == Some(number) {
            return Ok(());
        }
        self.segment = None;
        let record = view.record(number, guard)?;
        let segment = view.parse(number, record)?;
        self.take(view, number, hidden, (record, &segment));
        Ok(())
    }

    #[inline]
    pub(super) fn take(&mut self, view: &View, number: u32, hidden: u8, (record, segment): (&[u8], &Segment<'_>)) {
        (self.fetched, self.queued) = (0, 0);
        self.count = segment.count();
        self.same_key = segment.same_key() | u32::from(view.directory.is_continuation(number));
        self.record[..record.len()].copy_from_slice(record);
        self.shown = segment.unmarked(hidden) & !self.same_key;
        self.segment = Some(number);
    }

    #[inline(always)]
    pub(super) fn parsed(&self, view: &View) -> Segment<'_> {
        debug_assert!(self.segment.is_some(), "a segment was loaded");
        Segment::of_copy(&self.record, self.count, view.layout.run_count)
    }

    /// Prefetches entries once each, now or through `queue`. `with_ends`: for the first read of
    /// their blocks.
    #[inline]
    pub(super) fn prefetch(
        &mut self,
        view: &View,
        runs: &[Arc<Run>],
        lanes: u32,
        with_ends: bool,
        queue: Option<&mut PrefetchQueue>,
    ) {
        let lanes = lanes & !self.fetched & !self.queued;
        if lanes == 0 || self.segment.is_none() {
            return;
        }
        *(if queue.is_some() { &mut self.queued } else { &mut self.fetched }) |= lanes;
        let segment = self.parsed(view);
        let (first, end) = (lanes.trailing_zeros() as usize, 32 - lanes.leading_zeros() as usize);
        let span = lanes_below(end) & !lanes_below(first);
        view.simd.run(PrefetchRows { runs, segment, first, span, with_ends, queue });
    }
}
