//! Searches the hash index of one view, for the fast path of gets (`read/fast_path.rs`). A search
//! that gives up returns [`FastGet::Unknown`]; the general path (`read/get.rs`) then searches.

use super::bits::{is_equal, is_joined};
use super::cache_miss::CacheMiss;
use super::hash_index::{Asked, HashIndex, index_bytes};
use super::reader::{Query, View, block_step};
use super::simd::{Simd, Task};
use crate::base::{EntryKind, EntryRef, FoundEntry, ReadStep, ReadTrace, Result, SequenceNumber};
use crate::table::{EntryOffset, Moment, Run};
use crossbeam_epoch::Guard;
use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering::Relaxed},
};

thread_local! {
    static SEARCHES: Cell<u64> = const { Cell::new(0) };
}

/// Maximum doublings of the search threshold after refusals: 2^5.
const REFUSALS_MAX: u32 = 5;

struct PrefetchCandidate<'a> {
    view: &'a View,
    runs: &'a [Arc<Run>],
    hash: u64,
    slot_only: bool,
}

impl<'a> Task for PrefetchCandidate<'a> {
    type Output = Option<CacheMiss<'a>>;

    #[inline(always)]
    fn run(self, simd: Simd) -> Option<CacheMiss<'a>> {
        let PrefetchCandidate { view, runs, hash, slot_only } = self;
        let index = view.hash_index.get()?;
        let word = index.decode(index.find(simd, hash).next()?);
        let run = runs.get(word.run)?;
        index.prefetch_entry(word, run, slot_only);
        (!slot_only && run.is_absent(word.block)).then_some(CacheMiss::Block(run, word.block))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastGet<'a> {
    Value(&'a [u8]),
    Absent,
    /// A precondition failed: the general path must run.
    Unknown,
}

impl<'a> FastGet<'a> {
    #[inline(always)]
    pub fn of(entry: EntryRef<'a>) -> FastGet<'a> {
        match entry.kind {
            EntryKind::Value => FastGet::Value(entry.value),
            EntryKind::Tombstone => FastGet::Absent,
            _ => FastGet::Unknown,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Probe<'v> {
    index: &'v HashIndex,
    bucket: Asked<'v>,
    hash: u64,
    is_only: bool,
}

impl Probe<'_> {
    /// Reads the key's entry, from blocks read in place. Little code follows the first candidate,
    /// nearly always right, so the next get starts while this one waits.
    /// while this one waits.
    #[inline(always)]
    pub fn resolve<'r>(self, runs: &'r [Arc<Run>], key: ([u8; 4], &[u8]), now: Moment) -> FastGet<'r> {
        let Probe { index, bucket, hash, is_only } = self;
        let mut candidates = index.find_at_once(hash, bucket);
        let Some(word) = candidates.next() else {
            return if candidates.is_complete() && is_only { FastGet::Absent } else { FastGet::Unknown };
        };
        if let Some((found, value)) = index.plain_in_place(word, runs, 4 + key.1.len(), now) {
            super::counters::count_key_comparison();
            if is_joined(found, key) {
                return FastGet::Value(value);
            }
        }
        self.resolve_slow(runs, key.0, key.1, now)
    }

    /// Prefetches the first candidate's entry, for callers with other keys to handle meanwhile.
    #[inline(always)]
    pub fn prefetch<'r>(&self, runs: &'r [Arc<Run>]) -> Likely<'r> {
        let mut candidates = self.index.find_at_once(self.hash, self.bucket);
        let Some(word) = candidates.next() else {
            return if candidates.is_complete() && self.is_only { Likely::Absent } else { Likely::Unknown };
        };
        let (run, offset) = self.index.entry_offset(word);
        let Some(run) = runs.get(run) else { return Likely::Unknown };
        run.prefetch_at_hand(offset);
        Likely::Entry(run, offset)
    }

    /// [`Probe::resolve`] over all candidates, for one plain value in twenty and all other entries.
    #[cold]
    #[inline(never)]
    pub fn resolve_slow<'r>(&self, runs: &'r [Arc<Run>], prefix: [u8; 4], key: &[u8], now: Moment) -> FastGet<'r> {
        let candidates = self.index.find_at_once(self.hash, self.bucket);
        let is_complete = candidates.is_complete() && self.is_only;
        for word in candidates {
            let Some(entry) = self.index.entry_in_place(word, runs, now) else { return FastGet::Unknown };
            super::counters::count_key_comparison();
            if is_joined(entry.key, (prefix, key)) {
                return FastGet::of(entry);
            }
        }
        if is_complete { FastGet::Absent } else { FastGet::Unknown }
    }
}

#[inline(always)]
pub fn prefetched_value<'r>(run: &'r Run, offset: EntryOffset, key: ([u8; 4], &[u8]), now: Moment) -> Option<&'r [u8]> {
    let (found, value) = run.plain_prefetched(offset, 4 + key.1.len(), now)?;
    super::counters::count_key_comparison();
    is_joined(found, key).then_some(value)
}

#[derive(Clone, Copy, Debug)]
pub enum Likely<'r> {
    /// The entry is here, if the tag does not collide.
    Entry(&'r Run, EntryOffset),
    Absent,
    Unknown,
}

impl View {
    /// Starts a get, if the hash index has direct offsets and the snapshot covers the view. A
    /// missing key proves absence only if `is_only`: no other source can have it.
    #[inline(always)]
    pub fn probe(&self, hash: u64, snapshot: SequenceNumber, is_only: bool) -> Option<Probe<'_>> {
        let index = self.hash_index(snapshot).filter(|index| index.has_direct_offsets())?;
        index.note_use();
        Some(Probe { index, bucket: index.ask(hash), hash, is_only })
    }

    /// Returns the hash index if `snapshot` covers the view: it has only newest versions.
    #[inline(always)]
    pub(super) fn hash_index(&self, snapshot: SequenceNumber) -> Option<&HashIndex> {
        self.hash_index.get().filter(|_| snapshot >= self.meta.max_sequence)
    }

    /// `None`: the index cannot decide. `Some(None)`: the view lacks the key.
    #[inline(always)]
    pub(super) fn hash_get<'g>(
        &self,
        simd: Simd,
        index: &HashIndex,
        runs: &[Arc<Run>],
        query: Query<'_>,
        guard: &'g Guard,
        trace: impl ReadTrace,
    ) -> Result<Option<Option<EntryRef<'g>>>> {
        index.note_use();
        let mut candidates = index.find(simd, query.hash);
        trace.note(|| ReadStep::HashIndex {
            view: self.name(runs),
            candidates: candidates.count(),
            is_complete: candidates.is_complete(),
        });
        if !candidates.is_one() {
            index.prefetch_entries(candidates, runs);
        }
        for word in &mut candidates {
            let block = trace.look(|| {
                let word = index.decode(word);
                block_step(runs.get(word.run)?, word.block)
            });
            let Some(entry) = index.read(word, runs, query.with_sequence, guard) else { return Ok(None) };
            let entry = entry?;
            block.flatten().into_iter().for_each(|step| trace.note(|| step));
            super::counters::count_key_comparison();
            let has_key = is_equal(entry.key, query.key);
            trace.note(|| ReadStep::Compared { found: has_key.then(|| FoundEntry::of(&entry)) });
            if has_key {
                return Ok(Some(Some(entry)));
            }
        }
        Ok(candidates.is_complete().then_some(None))
    }

    #[inline(always)]
    pub fn prefetch_bucket(&self, hash: u64) {
        if let Some(index) = self.hash_index.get() {
            index.prefetch(hash);
        }
    }

    /// Prefetches the bucket of a hash. Returns false without a hash index.
    #[inline]
    pub fn prefetch_by_hash(&self, hash: u64) -> bool {
        let index = self.hash_index.get();
        if let Some(index) = index {
            index.prefetch(hash);
        }
        index.is_some()
    }

    /// Prefetches the first candidate's slot (`slot_only`) or entry. Returns the block if it is not
    /// cached.
    #[inline]
    pub fn prefetch_candidate<'a>(&'a self, runs: &'a [Arc<Run>], hash: u64, slot_only: bool) -> Option<CacheMiss<'a>> {
        self.simd.run(PrefetchCandidate { view: self, runs, hash, slot_only })
    }

    #[inline(always)]
    pub(super) fn note_search(&self) {
        let count = SEARCHES.get() + 1;
        SEARCHES.set(count);
        let sample = self.trigger.sample();
        if count.is_multiple_of(sample) {
            self.note_searches(sample);
        }
    }

    #[cold]
    fn note_searches(&self, count: u64) {
        self.searches.fetch_add(count, Relaxed);
        if self.wants_hash_index() {
            self.trigger.raise();
        }
    }

    pub fn wants_hash_index(&self) -> bool {
        let searches_min = self.trigger.searches_min().max(self.meta.entries / 32);
        let refusals = self.refusals.load(Relaxed).min(REFUSALS_MAX);
        self.hash_index.get().is_none() && self.searches.load(Relaxed) >= searches_min.saturating_mul(1 << refusals)
    }

    pub fn has_used_hash_index(&self) -> bool {
        self.hash_index.get().is_some_and(HashIndex::is_used)
    }

    /// Returns true once, for a view that may inherit a hash index.
    pub fn may_inherit_hash_index(&self) -> bool {
        self.hash_index.get().is_none() && !self.had_its_chance.swap(true, Relaxed)
    }

    /// Doubles the searches until the next request: checking costs time too.
    pub fn refuse_hash_index(&self) {
        self.refusals.fetch_add(1, Relaxed);
        self.searches.store(0, Relaxed);
    }

    pub fn hash_index_bytes(&self) -> usize {
        self.hash_index.get().map_or(0, HashIndex::resident_bytes)
    }

    pub fn hash_index_bytes_of(entries: u64) -> usize {
        index_bytes(entries)
    }
}
