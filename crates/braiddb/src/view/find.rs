//! Steps of a cursor compiled for the processor's instruction set: finding an entry in a segment
//! and prefetching rows.

use super::format::{Segment, lanes_below};
use super::reader::View;
use super::search::{candidate, compare_counted, correct};
use super::simd::{Simd, Task};
use crate::base::{EntryRef, Result};
use crate::cache::PrefetchQueue;
use crate::table::{Moment, Position, Run};
use crossbeam_epoch::Guard;
use std::sync::Arc;

pub(super) struct PrefetchRows<'a> {
    pub(super) runs: &'a [Arc<Run>],
    pub(super) segment: Segment<'a>,
    pub(super) first: usize,
    pub(super) span: u32,
    pub(super) with_ends: bool,
    /// Postpones the prefetches, if present.
    pub(super) queue: Option<&'a mut PrefetchQueue>,
}

impl Task for PrefetchRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, _simd: Simd) {
        let PrefetchRows { runs, segment, first, span, with_ends, mut queue } = self;
        for (index, run) in runs.iter().enumerate() {
            let lanes = segment.lanes_of_run(index);
            let rows = (lanes & span).count_ones();
            if rows > 0
                && let Some(cursor) = segment.cursor(index)
            {
                let from = run.advance(cursor, (lanes & lanes_below(first)).count_ones());
                run.prefetch_rows(from, rows, with_ends, queue.as_deref_mut());
            }
        }
    }
}

/// Finds the first key of a segment at or above `query` (the entry count if there is none) and
/// prefetches expected rows. Returns its index and the number of rows beyond the segment.
pub(super) struct FindLane<'a> {
    pub(super) view: &'a View,
    pub(super) runs: &'a [Arc<Run>],
    pub(super) number: u32,
    pub(super) record: &'a [u8],
    pub(super) query: &'a [u8],
    pub(super) likely: usize,
    pub(super) is_forward: bool,
    pub(super) fetched: &'a mut u32,
    pub(super) guard: &'a Guard,
}

impl Task for FindLane<'_> {
    type Output = Result<(usize, usize)>;

    #[inline(always)]
    fn run(self, simd: Simd) -> Self::Output {
        let FindLane { view, runs, number, record, query, likely, is_forward, fetched, guard } = self;
        let segment = view.parse(number, record)?;
        let Some(lane) = candidate(&segment, simd, query) else {
            return Ok((view.find_with_guard(runs, number, &segment, query, guard)?.lane, likely));
        };
        if lane >= segment.count() {
            return Err(view.corrupt_segment(number, "its differences lead past its entries"));
        }
        let mut left = 0;
        if likely > 0 {
            let (span, rest) = likely_lanes(&segment, lane, likely, is_forward);
            (*fetched, left) = (*fetched | span, rest);
            view.simd.run(PrefetchRows {
                runs,
                segment,
                first: span.trailing_zeros() as usize,
                span,
                with_ends: true,
                queue: None,
            });
        } else if lane + 1 < segment.count() {
            // A greater query mostly belongs right after this entry.
            let (run, position) = view.locate(runs, number, &segment, lane + 1)?;
            runs[run].prefetch(position);
        }
        let key = view.entry(runs, number, &segment, lane, guard)?.key;
        Ok((correct(&segment, lane, compare_counted(query, key)).lane, left))
    }
}

/// Finds the first visible key at or above `query` for a forward scan whose snapshot covers the
/// view, and prefetches expected rows. Does not copy the record. `None` if the segment must be
/// bisected or does not exist.
pub(super) struct FindShown<'a, 'g, const LOCATES: bool> {
    pub(super) view: &'a View,
    pub(super) runs: &'a [Arc<Run>],
    pub(super) query: &'a [u8],
    pub(super) hidden: u8,
    pub(super) likely: usize,
    pub(super) moment: Moment,
    pub(super) guard: &'g Guard,
}

pub(super) struct Found<'g> {
    pub(super) number: u32,
    pub(super) record: &'g [u8],
    pub(super) segment: Segment<'g>,
    pub(super) lane: usize,
    pub(super) is_shown: bool,
    pub(super) place: Option<(usize, Position)>,
    /// The entry, if it is in the block already read and that block is read in place.
    pub(super) entry: Option<InPlace<'g>>,
    /// A bit per prefetched entry; `left`: expected rows beyond the segment.
    pub(super) fetched: u32,
    pub(super) left: usize,
}

/// An entry in a mapped block. It stays valid while its run is open.
pub(super) struct InPlace<'g>(EntryRef<'g>);

impl<'g> InPlace<'g> {
    pub(super) fn entry(self) -> EntryRef<'g> {
        self.0
    }
}

/// Returns the entries expected to be read from `lane` on, and the number of rows beyond the
/// segment.
#[inline(always)]
pub(super) fn likely_lanes(segment: &Segment<'_>, lane: usize, likely: usize, is_forward: bool) -> (u32, usize) {
    let (first, end) = if is_forward {
        (lane, (lane + likely + 1).min(segment.count()))
    } else {
        ((lane + 1).saturating_sub(likely + 1), lane + 1)
    };
    (lanes_below(end) & !lanes_below(first), (likely + 1).saturating_sub(end - first))
}

impl<'g, const LOCATES: bool> Task for FindShown<'_, 'g, LOCATES> {
    type Output = Result<Option<Found<'g>>>;

    #[inline(always)]
    fn run(self, simd: Simd) -> Self::Output {
        let FindShown { view, runs, query, hidden, likely, moment, guard } = self;
        let Some(number) = view.segment_with(simd, query) else { return Ok(None) };
        view.prefetch_record(number);
        view.first_blocks.prefetch(number, runs);
        if likely > 0 {
            view.prefetch_record(number + 1);
        }
        let record = view.record(number, guard)?;
        let segment = view.parse(number, record)?;
        view.first_blocks.note(number, &segment, view.directory.segments(), runs);
        let Some(lane) = candidate(&segment, simd, query) else { return Ok(None) };
        if lane >= segment.count() {
            return Err(view.corrupt_segment(number, "its differences lead past its entries"));
        }
        let (mut fetched, mut left) = (0, 0);
        let (run, position) = view.locate(runs, number, &segment, lane)?;
        if likely > 0 {
            (fetched, left) = likely_lanes(&segment, lane, likely, true);
            view.simd.run(PrefetchRows { runs, segment, first: lane, span: fetched, with_ends: true, queue: None });
        } else {
            runs[run].prefetch_next_key(position);
        }
        let (entry, block) = runs[run].read_with_block(position, guard, || moment)?;
        let candidate = lane;
        let lane = correct(&segment, lane, compare_counted(query, entry.key)).lane;
        let shown = segment.unmarked(hidden) & !segment.same_key() & !lanes_below(lane);
        if shown == 0 || view.directory.is_continuation(number) {
            return Ok(Some(Found {
                number,
                record,
                segment,
                lane,
                is_shown: false,
                place: None,
                entry: None,
                fetched,
                left,
            }));
        }
        let lane = shown.trailing_zeros() as usize;
        let (place, entry) = match LOCATES {
            false => (None, None),
            true if lane == candidate => (Some((run, position)), block.map(|_| InPlace(entry))),
            true if lane == candidate + 1
                && segment.run(lane) == run
                && position.slot + 1 < runs[run].block_entries(position.block) =>
            {
                let entry = block.and_then(|block| runs[run].entry_in_block(block, position.slot + 1));
                (Some((run, runs[run].advance(position, 1))), entry.map(InPlace))
            }
            true => (Some(view.locate(runs, number, &segment, lane)?), None),
        };
        Ok(Some(Found { number, record, segment, lane, is_shown: true, place, entry, fetched, left }))
    }
}

pub(super) struct Locate<'a> {
    pub(super) view: &'a View,
    pub(super) runs: &'a [Arc<Run>],
    pub(super) number: u32,
    pub(super) record: &'a [u8],
    pub(super) lane: usize,
}

impl Task for Locate<'_> {
    type Output = Result<(usize, Position)>;

    #[inline(always)]
    fn run(self, _simd: Simd) -> Self::Output {
        let Locate { view, runs, number, record, lane } = self;
        view.locate(runs, number, &view.parse(number, record)?, lane)
    }
}
