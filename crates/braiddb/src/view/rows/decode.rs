//! Decodes rows of a segment into a batch, run by run, with the instruction set that was detected.

use super::super::{
    format::{SEGMENT_LANES, Segment, lanes_below},
    simd::{Simd, Task},
};
use super::{HeldRuns, LINES_AHEAD, RowBatch};
use crate::base::{Result, RowSlots, SequenceNumber, near_lane};
use crate::cache::Ahead;
use crate::table::{Moment, Position, Rows};
use std::sync::Arc;

/// Decodes the `wanted` ones of `lanes`, adjacent in a block from slot `from` on. Returns the lanes
/// in the next block; `None` for a damaged entry.
struct DecodeBlock<'a> {
    block: Rows<'static>,
    from: u16,
    lanes: u32,
    wanted: u32,
    ahead: Ahead,
    given: SequenceNumber,
    slots: &'a mut RowSlots,
}

struct Plain<'a>(DecodeBlock<'a>);
struct WithAhead<'a>(DecodeBlock<'a>);
struct WithSequences<'a>(DecodeBlock<'a>);

impl Task for Plain<'_> {
    type Output = Option<u32>;

    #[inline(always)]
    fn run(self, _simd: Simd) -> Option<u32> {
        self.0.decode::<false, false>()
    }
}

impl Task for WithAhead<'_> {
    type Output = Option<u32>;

    #[inline(always)]
    fn run(self, _simd: Simd) -> Option<u32> {
        self.0.decode::<false, true>()
    }
}

impl Task for WithSequences<'_> {
    type Output = Option<u32>;

    #[inline(always)]
    fn run(self, _simd: Simd) -> Option<u32> {
        self.0.decode::<true, true>()
    }
}

impl DecodeBlock<'_> {
    #[inline(always)]
    fn decode<const WITH_SEQUENCES: bool, const WITH_AHEAD: bool>(self) -> Option<u32> {
        let DecodeBlock { block, from, mut lanes, wanted, ahead, given, slots } = self;
        for offset in block.offsets(from) {
            let lane = lanes.trailing_zeros() as usize % SEGMENT_LANES;
            if wanted >> lane & 1 != 0 {
                if WITH_SEQUENCES {
                    let (bytes, key_len, sequence) = block.get_with_sequence(offset)?;
                    slots.set(lane, bytes, key_len);
                    slots.set_sequence(lane, sequence.wrapping_add(given));
                } else {
                    let (bytes, key_len) = block.get(offset)?;
                    slots.set(lane, bytes, key_len);
                }
                if WITH_AHEAD {
                    ahead.prefetch::<LINES_AHEAD>(offset);
                }
            }
            lanes &= lanes.wrapping_sub(1);
            if lanes == 0 {
                break;
            }
        }
        Some(lanes)
    }
}

/// Returns false if an entry is missing.
pub(in crate::view) struct Decode<'a> {
    pub(in crate::view) runs: &'a Arc<HeldRuns>,
    pub(in crate::view) moment: Moment,
    pub(in crate::view) segment: Segment<'a>,
    pub(in crate::view) lanes: u32,
    pub(in crate::view) batch: &'a mut RowBatch,
}

impl Task for Decode<'_> {
    type Output = Result<bool>;

    /// Entries of one run are adjacent.
    #[inline(always)]
    fn run(self, simd: Simd) -> Result<bool> {
        let Decode { runs, moment, segment, lanes, batch } = self;
        let first = lanes.trailing_zeros() as usize;
        let span = lanes_below(32 - lanes.leading_zeros() as usize) & !lanes_below(first);
        batch.set_runs(runs);
        for (index, run) in runs.iter().enumerate() {
            let of_run = segment.lanes_of_run(index);
            let mut rest = of_run & span;
            if rest == 0 {
                continue;
            }
            let before = (of_run & lanes_below(first)).count_ones();
            let mut at = run.advance(segment.cursor(index).unwrap_or_default(), before);
            while rest != 0 {
                let Some((rows, ahead)) = batch.block_of(index, run, at.block, moment)? else { return Ok(false) };
                let ahead = if batch.bytes_ahead == 0 { ahead } else { Ahead::default() };
                let (slots, given) = (&mut batch.slots, run.given_sequence());
                let block = DecodeBlock { block: rows, from: at.slot, lanes: rest, wanted: lanes, ahead, given, slots };
                let left = match (batch.with_sequences, ahead.is_somewhere()) {
                    (false, false) => simd.run(Plain(block)),
                    (false, true) => simd.run(WithAhead(block)),
                    (true, _) => simd.run(WithSequences(block)),
                };
                let Some(left) = left else { return Ok(false) };
                rest = left;
                at = Position { block: at.block.saturating_add(1), slot: 0 };
            }
        }
        (batch.lanes, batch.filled) = (lanes, lanes.count_ones());
        batch.at = near_lane(lanes, batch.is_forward);
        batch.prefetch_ahead(batch.at);
        Ok(true)
    }
}
