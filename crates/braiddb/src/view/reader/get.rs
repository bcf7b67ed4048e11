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
use crate::base::{EntryRef, Result, SequenceNumber};
use crate::codec::hash64;
use crate::table::{Position, Run};
use crossbeam_epoch::Guard;
use std::sync::Arc;

struct Get<'a, 'g> {
    view: &'a View,
    runs: &'a [Arc<Run>],
    number: Option<u32>,
    query: Query<'a>,
    guard: &'g Guard,
}

impl<'g> Task for Get<'_, 'g> {
    type Output = Result<Option<EntryRef<'g>>>;

    #[inline(always)]
    fn run(self, simd: Simd) -> Self::Output {
        let Get { view, runs, number, query, guard } = self;
        if let Some(index) = view.hash_index(query.snapshot)
            && let Some(found) = view.hash_get(simd, index, runs, query, guard)?
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
        view.get_with(simd, runs, number, query, guard)
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

#[derive(Clone, Copy)]
pub(in crate::view) struct Query<'a> {
    pub(in crate::view) key: &'a [u8],
    pub(in crate::view) hash: u64,
    snapshot: SequenceNumber,
    pub(in crate::view) with_sequence: bool,
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
        self.simd.run(Get {
            view: self,
            runs,
            number: None,
            query: Query { key, hash, snapshot, with_sequence: true },
            guard,
        })
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
        let query = Query { key, hash, snapshot, with_sequence: false };
        self.simd.run(Get { view: self, runs, number: None, query, guard })
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
        let query = Query { key, hash, snapshot, with_sequence: true };
        self.simd.run(Get { view: self, runs, number: Some(number), query, guard })
    }

    #[inline(always)]
    fn get_with<'g>(
        &self,
        simd: Simd,
        runs: &[Arc<Run>],
        number: u32,
        query: Query<'_>,
        guard: &'g Guard,
    ) -> Result<Option<EntryRef<'g>>> {
        let Query { key, hash, snapshot, .. } = query;
        let segment = self.segment(number, guard)?;
        let sees_all = snapshot >= self.meta.max_sequence;
        let mut candidates = self.candidates(simd, &segment, key, hash);
        while candidates != 0 {
            let lane = candidates.trailing_zeros() as usize;
            candidates &= candidates - 1;
            if sees_all && segment.selector(lane) & SELECTOR_STALE != 0 {
                continue;
            }
            let entry = self.entry(runs, number, &segment, lane, guard)?;
            counters::count_key_comparison();
            if !is_equal(entry.key, key) {
                continue;
            }
            if entry.sequence <= snapshot {
                return Ok(Some(entry));
            }
            return self.older_version(runs, key, snapshot, (number, lane), guard);
        }
        Ok(None)
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
            let entry = self.entry(runs, number, &segment, lane, guard)?;
            if entry.key != key {
                return Err(self.corrupt_segment(number, "a version of a key has another key"));
            }
            if entry.sequence <= snapshot {
                return Ok(Some(entry));
            }
        }
    }
}
