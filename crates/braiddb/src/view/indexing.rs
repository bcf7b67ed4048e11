//! Builds the hash index of a view.

use super::format::{SEGMENT_LANES, SELECTOR_STALE};
use super::hash_index::{HashIndex, Part, Site};
use super::reader::View;
use super::rows::LINES_AHEAD;
use super::simd::{Simd, Task};
use crate::base::Result;
use crate::cache::Ahead;
use crate::codec::hash64;
use crate::table::{Position, Run};
use crossbeam_epoch::Guard;
use std::sync::Arc;

/// Segments indexed under one guard of the epoch collector, which delays memory reclamation.
const SEGMENTS_AT_ONCE: u32 = 64;

impl View {
    /// Returns the view's data blocks, and those in memory: see [`Run::blocks_in_memory`].
    pub fn blocks_in_memory(&self, runs: &[Arc<Run>]) -> Result<(u64, u64)> {
        let mut counts = (0, 0);
        for (part, run) in self.parts(runs)?.iter().zip(runs) {
            let (first, end) = (part.blocks.0, part.blocks.1.saturating_add(1).min(run.end().block));
            counts.0 += u64::from(end.saturating_sub(first));
            counts.1 += run.blocks_in_memory(first..end);
        }
        Ok(counts)
    }

    /// True if all blocks can be read in place. A hash index then has direct offsets unless there
    /// are too many blocks.
    pub fn is_read_in_place(&self, runs: &[Arc<Run>]) -> Result<bool> {
        Ok(runs.iter().all(|run| run.is_mapped()) && self.parts(runs)?.iter().all(|part| part.has_offsets))
    }

    fn parts(&self, runs: &[Arc<Run>]) -> Result<Vec<Part>> {
        let Some(last) = self.directory.segments().checked_sub(1) else { return Ok(Vec::new()) };
        let guard = crossbeam_epoch::pin();
        let (first_segment, last_segment) = (self.segment(0, &guard)?, self.segment(last, &guard)?);
        let part = |(index, run): (usize, &Arc<Run>)| {
            let (first, last) = first_segment.cursor(index).zip(last_segment.cursor(index))?;
            let end = run.advance(last, last_segment.lanes_of_run(index).count_ones());
            let blocks = (first.block, end.block.min(run.end().block.saturating_sub(1)).max(first.block));
            let block_entries = (blocks.0..=blocks.1).map(|block| run.block_entries(block)).max().unwrap_or(0);
            Some(Part { blocks, block_entries, has_offsets: run.has_offsets(blocks.0..=blocks.1) })
        };
        let parts: Option<Vec<Part>> = runs.iter().enumerate().map(part).collect();
        parts.ok_or_else(|| self.corrupt_segment(0, "it lacks a run"))
    }

    /// Builds the hash index from all entries. False if cancelled or impossible.
    pub fn make_hash_index(&self, runs: &[Arc<Run>], is_cancelled: &dyn Fn() -> bool) -> Result<bool> {
        let Some(mut index) = HashIndex::new(self.meta().entries, &self.parts(runs)?) else { return Ok(false) };
        for first in (0..self.directory.segments()).step_by(SEGMENTS_AT_ONCE as usize) {
            if is_cancelled() {
                return Ok(false);
            }
            let guard = crossbeam_epoch::pin();
            for number in first..(first + SEGMENTS_AT_ONCE).min(self.directory.segments()) {
                self.simd.run(IndexSegment { view: self, index: &mut index, runs, number, guard: &guard })?;
            }
        }
        Ok(self.hash_index.set(index).is_ok())
    }
}

/// Adds a segment's entries that are not stale, at most one a key. Prefetches all buckets before
/// the first write.
struct IndexSegment<'a> {
    view: &'a View,
    index: &'a mut HashIndex,
    runs: &'a [Arc<Run>],
    number: u32,
    guard: &'a Guard,
}

impl Task for IndexSegment<'_> {
    type Output = Result<()>;

    #[inline(always)]
    fn run(self, simd: Simd) -> Result<()> {
        let IndexSegment { view, index, runs, number, guard } = self;
        view.prefetch_record(number + 1);
        let segment = view.segment(number, guard)?;
        let shown = segment.unmarked(SELECTOR_STALE);
        let mut sites = [(0, Site::default()); SEGMENT_LANES];
        for (at, run) in runs.iter().enumerate() {
            let mut lanes = segment.lanes_of_run(at);
            let mut from = segment.cursor(at).unwrap_or_default();
            while lanes != 0 {
                let rows = run.block(from.block, guard)?.rows()?;
                let after = from.block.saturating_add(1);
                let ahead = if after < run.end().block { run.ahead(after) } else { Ahead::default() };
                for (slot, offset) in (from.slot..).zip(rows.offsets(from.slot)) {
                    let lane = lanes.trailing_zeros() as usize % SEGMENT_LANES;
                    lanes &= lanes - 1;
                    ahead.prefetch::<LINES_AHEAD>(offset);
                    if shown & 1 << lane != 0 {
                        let key = rows.get(offset).and_then(|(bytes, key_len)| bytes.get(..key_len));
                        let key = key.ok_or_else(|| view.corrupt_segment(number, "an entry is damaged"))?;
                        // A larger offset does not fit; only its slot can be stored.
                        let offset = u16::try_from(offset).unwrap_or(u16::MAX);
                        sites[lane] = (hash64(key), Site { run: at, block: from.block, slot, offset });
                        index.prefetch(sites[lane].0);
                    }
                    if lanes == 0 {
                        break;
                    }
                }
                from = Position { block: after, slot: 0 };
            }
        }
        let mut rest = shown;
        while rest != 0 {
            let (hash, site) = sites[rest.trailing_zeros() as usize % SEGMENT_LANES];
            rest &= rest - 1;
            index.insert(simd, hash, site);
        }
        Ok(())
    }
}
