//! In which blocks segments begin, as far as that has been seen: for seeks, which wait for a segment's record only to learn which
//! block to wait for next.
//!
//! A view remembers of each segment whose record is read and of which three entries in four are of its largest run the block of that run that
//! the segment begins in. The next seek that comes to the segment asks for the ends of that block and the one after it while the record is still on its
//! way. Where no run has most of a segment, most blocks asked for would not be read.

use super::format::{SEGMENT_LANES, Segment};
use crate::table::Run;
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU16, Ordering::Relaxed},
};

/// It is only ever used to ask for memory early.
#[derive(Debug, Default)]
pub(super) struct FirstBlocks(OnceLock<Known>);

/// What stands for a segment where nothing is known, and where there is nothing to know: the run does not have most of it.
const UNKNOWN: u16 = 0;
const NONE: u16 = u16::MAX;

#[derive(Debug)]
struct Known {
    /// The largest.
    run: usize,
    /// For each segment the block, plus one. Empty if nothing can be asked for early.
    blocks: Box<[AtomicU16]>,
}

impl FirstBlocks {
    /// Asks for the ends of the blocks that most of a segment stands in, if it is known where it begins.
    #[inline(always)]
    pub fn prefetch(&self, segment: u32, runs: &[Arc<Run>]) {
        if let Some((run, block)) = self.get(segment)
            && let Some(run) = runs.get(run)
        {
            run.prefetch_ends(block, SEGMENT_LANES);
        }
    }

    /// Remembers where a segment of a view of so many begins, unless that was done: a view never changes.
    #[inline(always)]
    pub fn note(&self, number: u32, segment: &Segment<'_>, segments: u32, runs: &[Arc<Run>]) {
        let is_done =
            |known: &Known| known.blocks.get(number as usize).is_none_or(|block| block.load(Relaxed) != UNKNOWN);
        if !self.0.get().is_some_and(is_done) {
            self.learn(number, segment, segments, runs);
        }
    }

    #[cold]
    fn learn(&self, number: u32, segment: &Segment<'_>, segments: u32, runs: &[Arc<Run>]) {
        let known = self.0.get_or_init(|| {
            let largest = runs.iter().enumerate().max_by_key(|(_, run)| run.meta().entries);
            let asked = largest.filter(|(_, run)| run.can_prefetch_ends(SEGMENT_LANES));
            let segments = if asked.is_some() { segments } else { 0 };
            Known {
                run: asked.map_or(0, |(index, _)| index),
                blocks: (0..segments).map(|_| AtomicU16::new(UNKNOWN)).collect(),
            }
        });
        let has_most = 4 * segment.lanes_of_run(known.run).count_ones() as usize >= 3 * segment.count();
        let first = segment.cursor(known.run).filter(|_| has_most);
        if let Some(block) = known.blocks.get(number as usize) {
            block.store(first.and_then(|first| first.block.checked_add(1)).unwrap_or(NONE), Relaxed);
        }
    }

    /// The run that has most of a segment, and its block that the segment begins in, if that is known.
    #[inline(always)]
    pub fn get(&self, segment: u32) -> Option<(usize, u16)> {
        let known = self.0.get()?;
        let noted = known.blocks.get(segment as usize)?.load(Relaxed);
        (noted != UNKNOWN && noted != NONE).then(|| (known.run, noted - 1))
    }

    /// Bytes of memory held.
    pub fn resident_bytes(&self) -> usize {
        self.0.get().map_or(0, |known| size_of_val(&*known.blocks))
    }
}
