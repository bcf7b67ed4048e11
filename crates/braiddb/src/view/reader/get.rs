//! Gets: finds the newest version of a key in a view, and prefetches for later gets.

use super::super::{
    anchors::Leaf,
    bits::is_equal,
    cache_miss::CacheMiss,
    counters,
    format::{SELECTOR_STALE, Segment, tag_of_hash},
    search::candidate,
    simd::{Simd, Task},
};
use super::View;
use crate::base::{EntryRef, FoundEntry, NoTrace, ReadSource, ReadStep, ReadTrace, Result, SequenceNumber, ViewName};
use crate::codec::hash64;
use crate::table::{Position, Run};
use crossbeam_epoch::Guard;
use std::sync::Arc;

struct Get<'a, 'g, T> {
    view: &'a View,
    runs: &'a [Arc<Run>],
    number: Option<u32>,
    query: Query<'a>,
    guard: &'g Guard,
    trace: T,
}

impl<'g, T: ReadTrace> Task for Get<'_, 'g, T> {
    type Output = Result<Option<EntryRef<'g>>>;

    #[inline(always)]
    fn run(self, simd: Simd) -> Self::Output {
        let Get { view, runs, number, query, guard, trace } = self;
        if let Some(index) = view.hash_index(query.snapshot)
            && let Some(found) = view.hash_get(simd, index, runs, query, guard, trace)?
        {
            return Ok(found);
        }
        view.note_search();
        // No closure: it would not be compiled for this instruction set.
        let number = match number {
            Some(number) => number,
            None => match view.segment_with(simd, query.key) {
                Some(number) => number,
                None => return Ok(None),
            },
        };
        view.get_with(simd, runs, number, query, guard, trace)
    }
}

struct PrefetchEntry<'a, 'g> {
    view: &'a View,
    runs: &'a [Arc<Run>],
    number: u32,
    key: &'g [u8],
    hash: u64,
    slot_only: bool,
    guard: &'g Guard,
}

impl<'a> Task for PrefetchEntry<'a, '_> {
    type Output = Option<CacheMiss<'a>>;

    #[inline(always)]
    fn run(self, simd: Simd) -> Option<CacheMiss<'a>> {
        let PrefetchEntry { view, runs, number, key, hash, slot_only, guard } = self;
        let (page, at) = view.layout.place(number);
        let Some(bytes) = view.pages.get(page, guard) else { return Some(CacheMiss::Page(view, page)) };
        // The read itself reports damage.
        let record = bytes.get(at..at + view.layout.record_bytes)?;
        let segment = view.parse(number, record).ok()?;
        let candidates = view.candidates(simd, &segment, key, hash);
        if candidates == 0 {
            return None;
        }
        let lane = candidates.trailing_zeros() as usize;
        if slot_only {
            let index = segment.run(lane);
            if let (Some(run), Some(cursor)) = (runs.get(index), segment.cursor(index)) {
                run.prefetch_slot(cursor.block);
            }
        } else if let Ok((run, position)) = view.locate(runs, number, &segment, lane) {
            return precheck(&runs[run], position);
        }
        None
    }
}

/// Returns the step that reads a block, before it is read.
#[cold]
pub(in crate::view) fn block_step(run: &Run, block: u16) -> Option<ReadStep> {
    let unit = run.unit_of(block);
    Some(ReadStep::Block {
        run: run.meta().number,
        block: block.into(),
        offset: unit.start,
        bytes: unit.end.saturating_sub(unit.start),
        source: run.source(block),
    })
}

#[inline(always)]
fn precheck(run: &Arc<Run>, position: Position) -> Option<CacheMiss<'_>> {
    run.prefetch(position);
    run.is_absent(position.block).then_some(CacheMiss::Block(run, position.block))
}

struct FindLeaf<'a> {
    view: &'a View,
    key: &'a [u8],
}

impl Task for FindLeaf<'_> {
    type Output = Leaf;

    #[inline(always)]
    fn run(self, simd: Simd) -> Leaf {
        self.view.directory.anchors.find_leaf(simd, self.key)
    }
}

struct FindInLeaf<'a> {
    view: &'a View,
    key: &'a [u8],
    leaf: Leaf,
}

impl Task for FindInLeaf<'_> {
    type Output = usize;

    #[inline(always)]
    fn run(self, simd: Simd) -> usize {
        self.view.directory.anchors.find_in_leaf(simd, self.key, self.leaf)
    }
}

/// A get of the newest version of a key at or below a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    pub key: &'a [u8],
    pub hash: u64,
    pub snapshot: SequenceNumber,
    /// Otherwise the sequence number of a plain value is undefined.
    pub with_sequence: bool,
}

impl View {
    /// Returns the newest version of `key` at or below `snapshot`, tombstones included. If the
    /// snapshot covers the view, keys deleted by its runs' range tombstones count as absent. One
    /// key comparison for a present key, about an eighth for an absent one.
    pub fn get<'g>(
        &self,
        runs: &[Arc<Run>],
        key: &[u8],
        snapshot: SequenceNumber,
        guard: &'g Guard,
    ) -> Result<Option<EntryRef<'g>>> {
        self.get_hashed(runs, key, hash64(key), snapshot, guard)
    }

    #[inline]
    pub fn get_hashed<'g>(
        &self,
        runs: &[Arc<Run>],
        key: &[u8],
        hash: u64,
        snapshot: SequenceNumber,
        guard: &'g Guard,
    ) -> Result<Option<EntryRef<'g>>> {
        self.search(runs, None, Query { key, hash, snapshot, with_sequence: true }, guard, NoTrace)
    }

    /// [`View::get`] that reports its steps, perhaps in a known segment.
    #[inline(always)]
    pub fn search<'g>(
        &self,
        runs: &[Arc<Run>],
        number: Option<u32>,
        query: Query<'_>,
        guard: &'g Guard,
        trace: impl ReadTrace,
    ) -> Result<Option<EntryRef<'g>>> {
        self.simd.run(Get { view: self, runs, number, query, guard, trace })
    }

    /// The sequence number of a plain value is undefined.
    #[inline]
    pub fn find_hashed<'g>(
        &self,
        runs: &[Arc<Run>],
        key: &[u8],
        hash: u64,
        snapshot: SequenceNumber,
        guard: &'g Guard,
    ) -> Result<Option<EntryRef<'g>>> {
        self.search(runs, None, Query { key, hash, snapshot, with_sequence: false }, guard, NoTrace)
    }

    pub fn get_in_segment<'g>(
        &self,
        runs: &[Arc<Run>],
        number: u32,
        key: &[u8],
        hash: u64,
        snapshot: SequenceNumber,
        guard: &'g Guard,
    ) -> Result<Option<EntryRef<'g>>> {
        self.search(runs, Some(number), Query { key, hash, snapshot, with_sequence: true }, guard, NoTrace)
    }

    #[inline(always)]
    fn get_with<'g>(
        &self,
        simd: Simd,
        runs: &[Arc<Run>],
        number: u32,
        query: Query<'_>,
        guard: &'g Guard,
        trace: impl ReadTrace,
    ) -> Result<Option<EntryRef<'g>>> {
        let Query { key, hash, snapshot, .. } = query;
        let source = trace.look(|| self.page_source(number));
        let segment = self.segment(number, guard)?;
        let sees_all = snapshot >= self.meta.max_sequence;
        let mut candidates = self.candidates(simd, &segment, key, hash);
        trace.note(|| ReadStep::Segment {
            view: self.name(runs),
            segment: number,
            candidates: candidates.count_ones(),
            source: source.unwrap_or(ReadSource::Cache),
        });
        while candidates != 0 {
            let lane = candidates.trailing_zeros() as usize;
            candidates &= candidates - 1;
            if sees_all && segment.selector(lane) & SELECTOR_STALE != 0 {
                continue;
            }
            let at = trace.look(|| self.locate(runs, number, &segment, lane));
            let block =
                trace.look(|| at.and_then(Result::ok).and_then(|(run, at)| block_step(runs.get(run)?, at.block)));
            let entry = self.entry(runs, number, &segment, lane, guard)?;
            block.flatten().into_iter().for_each(|step| trace.note(|| step));
            counters::count_key_comparison();
            let has_key = is_equal(entry.key, key);
            trace.note(|| ReadStep::Compared { found: has_key.then(|| FoundEntry::of(&entry)) });
            if !has_key {
                continue;
            }
            if entry.sequence <= snapshot {
                return Ok(Some(entry));
            }
            return self.older_version(runs, key, snapshot, (number, lane), guard, trace);
        }
        Ok(None)
    }

    /// Returns the name for a trace.
    pub(in crate::view) fn name(&self, runs: &[Arc<Run>]) -> ViewName {
        match self.meta.number {
            0 => ViewName::OfRun(runs.first().map_or(0, |run| run.meta().number)),
            number => ViewName::File(number),
        }
    }

    fn page_source(&self, segment: u32) -> ReadSource {
        let (page, _) = self.layout.place(segment);
        if self.pages.is_vacant(page) { ReadSource::Disk } else { ReadSource::Cache }
    }

    #[inline(always)]
    fn candidates(&self, simd: Simd, segment: &Segment<'_>, key: &[u8], hash: u64) -> u32 {
        let candidates = segment.tagged(tag_of_hash(hash)) & !segment.same_key();
        if candidates & candidates.wrapping_sub(1) == 0 {
            return candidates;
        }
        // Blind search always leads to a present key: other entries with the same tag need no read.
        candidates & candidate(segment, simd, key).map_or(u32::MAX, |lane| 1 << lane)
    }

    /// First half of finding a key's segment; prefetches for the second.
    #[inline]
    pub fn find_leaf(&self, key: &[u8]) -> Leaf {
        self.simd.run(FindLeaf { view: self, key })
    }

    /// Second half; prefetches the segment's record. `None` for a view without entries.
    #[inline]
    pub fn segment_in_leaf(&self, key: &[u8], leaf: Leaf) -> Option<u32> {
        if self.directory.segments() == 0 {
            return None;
        }
        let segment = self.directory.segment_of(self.simd.run(FindInLeaf { view: self, key, leaf }));
        self.prefetch_record(segment);
        Some(segment)
    }

    #[inline]
    pub fn prefetch_slot(&self, runs: &[Arc<Run>], number: u32, key: &[u8], hash: u64, guard: &Guard) {
        self.simd.run(PrefetchEntry { view: self, runs, number, key, hash, slot_only: true, guard });
    }

    /// Returns the page or block if it is not cached.
    #[inline]
    pub fn prefetch_entry<'a>(
        &'a self,
        runs: &'a [Arc<Run>],
        number: u32,
        key: &[u8],
        hash: u64,
        guard: &Guard,
    ) -> Option<CacheMiss<'a>> {
        self.simd.run(PrefetchEntry { view: self, runs, number, key, hash, slot_only: false, guard })
    }

    #[cold]
    fn older_version<'g>(
        &self,
        runs: &[Arc<Run>],
        key: &[u8],
        snapshot: SequenceNumber,
        from: (u32, usize),
        guard: &'g Guard,
        trace: impl ReadTrace,
    ) -> Result<Option<EntryRef<'g>>> {
        let (mut number, mut lane) = from;
        let mut segment = self.segment(number, guard)?;
        loop {
            lane += 1;
            if lane == segment.count() {
                number += 1;
                lane = 0;
                if number == self.directory.segments() || !self.directory.is_continuation(number) {
                    return Ok(None);
                }
                segment = self.segment(number, guard)?;
            } else if segment.same_key() & 1 << lane == 0 {
                return Ok(None);
            }
            let at = trace.look(|| self.locate(runs, number, &segment, lane));
            let block =
                trace.look(|| at.and_then(Result::ok).and_then(|(run, at)| block_step(runs.get(run)?, at.block)));
            let entry = self.entry(runs, number, &segment, lane, guard)?;
            block.flatten().into_iter().for_each(|step| trace.note(|| step));
            if entry.key != key {
                return Err(self.corrupt_segment(number, "a version of a key has another key"));
            }
            trace.note(|| ReadStep::Compared { found: Some(FoundEntry::of(&entry)) });
            if entry.sequence <= snapshot {
                return Ok(Some(entry));
            }
        }
    }
}
