//! Counts the live entries of a range without reading them.
//!
//! If the snapshot covers the view, each entry neither stale nor a tombstone is a key. Search finds
//! the range's two ends, at one key read each. Short ranges are counted segment by segment. Once
//! half of the segments were counted so, all are counted and kept: a byte a segment and a sum for
//! every 16. Counts of long ranges are cached (`count_memo.rs`).
//!
//! Entries deleted by a run's own range tombstones may be unmarked (see `run_writer.rs`), so
//! entries in their reach are read.

use super::build::Covering;
use super::count_memo::{CountMemo, MemoRange};
use super::format::{SELECTOR_RESOLVE, SELECTOR_STALE, SELECTOR_TOMBSTONE, Segment, lanes_below};
use super::reader::View;
use super::search::{candidate, compare_counted, correct};
use super::simd::{Simd, Task};
use crate::base::{Result, SequenceNumber};
use crate::table::Run;
use crossbeam_epoch::Guard;
use std::ops::{Add, Range, Sub};
use std::sync::{Arc, OnceLock, atomic::AtomicU64, atomic::Ordering::Relaxed};

const SEGMENTS_PER_SUM: usize = 16;
const SEGMENTS_PER_GUARD: u32 = 256;
/// Flag in a segment's count: entries must be resolved.
const UNRESOLVED: u8 = 0x80;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    live: u64,
    unresolved: u64,
}

impl Add for Tally {
    type Output = Tally;

    fn add(self, other: Tally) -> Tally {
        Tally { live: self.live + other.live, unresolved: self.unresolved + other.unresolved }
    }
}

impl Sub for Tally {
    type Output = Tally;

    fn sub(self, other: Tally) -> Tally {
        Tally { live: self.live - other.live, unresolved: self.unresolved - other.unresolved }
    }
}

impl Tally {
    fn of(segment: &Segment<'_>, live: u32) -> Tally {
        let unresolved = live & !segment.unmarked(SELECTOR_RESOLVE);
        Tally { live: live.count_ones().into(), unresolved: u64::from(unresolved != 0) }
    }

    fn of_bytes(counts: &[u8]) -> Tally {
        let sum = |part: fn(u8) -> u8| counts.iter().map(|&count| u64::from(part(count))).sum();
        Tally { live: sum(|count| count & !UNRESOLVED), unresolved: sum(|count| count >> 7) }
    }

    fn byte(self) -> u8 {
        self.live as u8 | if self.unresolved > 0 { UNRESOLVED } else { 0 }
    }
}

#[derive(Debug, Default)]
pub(super) struct LiveCounts {
    walked: AtomicU64,
    kept: OnceLock<KeptCounts>,
}

impl LiveCounts {
    pub(super) fn resident_bytes(&self) -> usize {
        let bytes = |kept: &KeptCounts| kept.counts.len() + kept.sums.len() * size_of::<Tally>();
        self.kept.get().map_or(0, |kept| bytes(kept) + kept.memo.resident_bytes())
    }
}

#[derive(Debug)]
struct KeptCounts {
    counts: Box<[u8]>,
    sums: Vec<Tally>,
    all: Tally,
    memo: CountMemo,
}

impl KeptCounts {
    fn new(counts: Vec<u8>) -> KeptCounts {
        let sums = counts.chunks(SEGMENTS_PER_SUM).scan(Tally::default(), |before, chunk| {
            let sum = *before;
            *before = sum + Tally::of_bytes(chunk);
            Some(sum)
        });
        KeptCounts {
            sums: sums.collect(),
            all: Tally::of_bytes(&counts),
            memo: CountMemo::new(counts.len() as u32),
            counts: counts.into_boxed_slice(),
        }
    }

    fn before(&self, segment: u32) -> Tally {
        let sum = segment as usize / SEGMENTS_PER_SUM;
        self.sums[sum] + Tally::of_bytes(&self.counts[sum * SEGMENTS_PER_SUM..segment as usize])
    }
}

/// Segment and entry index of the first key at or above the query; the entry count if none.
type End<'a> = (u32, Segment<'a>, usize);

struct FindEnds<'a> {
    view: &'a View,
    runs: &'a [Arc<Run>],
    keys: [&'a [u8]; 2],
    guard: &'a Guard,
}

impl<'a> Task for FindEnds<'a> {
    type Output = Result<Option<[End<'a>; 2]>>;

    #[inline(always)]
    fn run(self, simd: Simd) -> Self::Output {
        let FindEnds { view, runs, keys, guard } = self;
        let Some(first) = view.segment_with(simd, keys[0]) else { return Ok(None) };
        view.prefetch_record(first);
        let Some(last) = view.segment_with(simd, keys[1]) else { return Ok(None) };
        if last != first {
            view.prefetch_record(last);
        }
        let at_first = view.segment(first, guard)?;
        let at_last = if last == first { at_first } else { view.segment(last, guard)? };
        let mut ends = [(first, at_first, 0), (last, at_last, 0)];
        let mut candidates = [None; 2];
        for (index, (number, segment, _)) in ends.iter().enumerate() {
            candidates[index] = candidate(segment, simd, keys[index]).filter(|&lane| lane < segment.count());
            if let Some(lane) = candidates[index] {
                let (run, position) = view.locate(runs, *number, segment, lane)?;
                runs[run].prefetch(position);
            }
        }
        for (index, (number, segment, lane)) in ends.iter_mut().enumerate() {
            *lane = match candidates[index] {
                Some(candidate) => {
                    let key = view.entry(runs, *number, segment, candidate, guard)?.key;
                    correct(segment, candidate, compare_counted(keys[index], key)).lane
                }
                None => view.find_with_guard(runs, *number, segment, keys[index], guard)?.lane,
            };
        }
        Ok(Some(ends))
    }
}

struct Counted<'a> {
    view: &'a View,
    runs: &'a [Arc<Run>],
    covering: Covering<'a>,
    newest: SequenceNumber,
    /// Disjoint sorted segments whose entries may be deleted without a mark.
    suspect: Vec<Range<u32>>,
}

impl View {
    /// Counts the keys of `start..end` at the newest snapshot; `None` if entries must be resolved.
    /// O(log n) with kept counts, O(n / 32) without, O(n) in reach of range tombstones.
    pub fn count_live(&self, runs: &[Arc<Run>], start: &[u8], end: &[u8], guard: &Guard) -> Result<Option<u64>> {
        let memo = self.live_counts.kept.get().map(|kept| &kept.memo).zip(MemoRange::of(start, end));
        if let Some((memo, range)) = memo
            && let Some(keys) = memo.get(range)
        {
            return Ok(Some(keys));
        }
        let find = FindEnds { view: self, runs, keys: [start, end], guard };
        let Some([(first, at_first, from), (last, at_last, to)]) = self.simd.run(find)? else { return Ok(Some(0)) };
        if first > last {
            return Ok(Some(0));
        }
        let counted = Counted::new(self, runs, Some((start, end)));
        let tally = if first == last {
            counted.segment(first, &at_first, lanes_below(to) & !lanes_below(from), guard)?
        } else {
            let at_ends = counted.segment(first, &at_first, !lanes_below(from), guard)?
                + counted.segment(last, &at_last, lanes_below(to), guard)?;
            at_ends + counted.whole(first + 1..last)?
        };
        if tally.unresolved > 0 {
            return Ok(None);
        }
        if let Some((memo, range)) = memo.filter(|_| first < last) {
            memo.put(range, tally.live);
        }
        Ok(Some(tally.live))
    }

    /// Returns the cached count from `start` to the same key with `end` as its last byte.
    #[inline]
    pub fn count_kept(&self, start: &[u8], end: u8) -> Option<u64> {
        self.live_counts.kept.get()?.memo.get(MemoRange::to_byte(start, end)?)
    }

    pub fn count_all_live(&self, runs: &[Arc<Run>]) -> Result<Option<u64>> {
        let tally = match self.live_counts.kept.get() {
            Some(kept) => kept.all,
            None => Counted::new(self, runs, None).keep()?.all,
        };
        Ok((tally.unresolved == 0).then_some(tally.live))
    }
}

impl<'a> Counted<'a> {
    fn new(view: &'a View, runs: &'a [Arc<Run>], range: Option<(&[u8], &[u8])>) -> Counted<'a> {
        let mut counted = Counted { view, runs, covering: Covering::new(runs), newest: 0, suspect: Vec::new() };
        let sets: Vec<_> = counted.covering.sets().collect();
        for set in sets {
            match range {
                Some((start, end)) => {
                    let met = set.fragments_in(start, end);
                    met.for_each(|(from, to, cover)| counted.suspect(from, to, cover[0]));
                }
                None => set.iter().for_each(|deleted| counted.suspect(&deleted.start, &deleted.end, deleted.sequence)),
            }
        }
        counted.suspect.sort_unstable_by_key(|segments| segments.start);
        counted.suspect.dedup_by(|next, before| {
            let meets = next.start <= before.end;
            if meets {
                before.end = before.end.max(next.end);
            }
            meets
        });
        counted
    }

    fn suspect(&mut self, from: &[u8], to: &[u8], sequence: SequenceNumber) {
        self.newest = self.newest.max(sequence);
        if let (Some(from), Some(to)) = (self.view.segment_for(from), self.view.segment_for(to)) {
            self.suspect.push(from..to + 1);
        }
    }

    fn segment(&self, number: u32, segment: &Segment<'_>, lanes: u32, guard: &Guard) -> Result<Tally> {
        let mut live = segment.unmarked(SELECTOR_STALE | SELECTOR_TOMBSTONE) & lanes;
        let after = self.suspect.partition_point(|segments| segments.end <= number);
        if self.suspect.get(after).is_none_or(|segments| number < segments.start) {
            return Ok(Tally::of(segment, live));
        }
        for lane in 0..segment.count() {
            if live & 1 << lane == 0 {
                continue;
            }
            let (run, position) = self.view.locate(self.runs, number, segment, lane)?;
            let run = &self.runs[run];
            if run.meta().min_sequence < self.newest {
                let entry = run.read(position, guard)?;
                if self.covering.deletes(entry.key, entry.sequence) {
                    live &= !(1 << lane);
                }
            }
        }
        Ok(Tally::of(segment, live))
    }

    fn whole(&self, segments: Range<u32>) -> Result<Tally> {
        let all = self.view.directory.segments();
        let LiveCounts { walked, kept } = &self.view.live_counts;
        if let Some(kept) = kept.get() {
            return Ok(kept.before(segments.end) - kept.before(segments.start));
        }
        let len = segments.len() as u64;
        if len > 0 {
            let walked = walked.fetch_add(len, Relaxed) + len;
            if 2 * walked >= u64::from(all) {
                let kept = self.keep()?;
                return Ok(kept.before(segments.end) - kept.before(segments.start));
            }
        }
        Ok(Tally::of_bytes(&self.bytes(segments)?))
    }

    fn keep(&self) -> Result<&'a KeptCounts> {
        let kept = &self.view.live_counts.kept;
        if let Some(kept) = kept.get() {
            return Ok(kept);
        }
        let all = Counted::new(self.view, self.runs, None);
        let counts = KeptCounts::new(all.bytes(0..self.view.directory.segments())?);
        Ok(kept.get_or_init(|| counts))
    }

    fn bytes(&self, segments: Range<u32>) -> Result<Vec<u8>> {
        let mut counts = Vec::with_capacity(segments.len());
        let mut next = segments.start;
        while next < segments.end {
            // A guard for few pages at a time, since it delays the reuse of evicted memory.
            let guard = crossbeam_epoch::pin();
            let end = segments.end.min(next + SEGMENTS_PER_GUARD);
            for number in next..end {
                let segment = self.view.segment(number, &guard)?;
                counts.push(self.segment(number, &segment, u32::MAX, &guard)?.byte());
            }
            next = end;
        }
        Ok(counts)
    }
}
