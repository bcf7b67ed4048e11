//! Block cache: slots, hits, misses and pins. Its units are blocks of runs and pages of views.
//!
//! Each open file has an array of slots, eight bytes a unit, with the number of the unit's frame.
//! So a hit is one load of the slot and address arithmetic: no hash table, no lock, and no write to
//! shared memory except an unset touch mark.
//!
//! Results of `get` live as long as the guard of the epoch collector. Guards must be short: while
//! one is held, memory evicted since cannot be reused, and loads exceed the capacity instead of
//! waiting. Units needed for longer are pinned.
//!
//! Threads that miss the same unit at once all read it and use the frame of the first. No lock is
//! held while a unit is loaded or copied.
//!
//! Uncompressed units of a mapped file (`mapped.rs`) may be read in place, without a frame. The
//! slot then has the time of the last check; the file's owner decides when to check again. Readers
//! change these slots without the lock, but only between vacant states.
//!
//! Lock order: the clock's lock is taken last, and never held while a guard is made or flushed,
//! which may run deferred functions that close files and so come back here.

use super::{
    arena::{Arena, Pin, SINGLE_BIT, Trailer},
    clock::{Clock, IN_PLACE, TIME_MASK, Ticket, VACANT},
    hint::Hint,
    mapped::PinnedUnit,
    striped_counter::{self, StripedCounter},
};
use crate::base::Result;
use crossbeam_epoch::Guard;
use parking_lot::Mutex;
use std::{
    fmt,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups answered from memory. Inexact after more than 32 threads.
    pub hits: u64,
    pub misses: u64,
    pub checked: u64,
    /// Uncompressed.
    pub loaded_bytes: u64,
    pub evictions: u64,
    /// Loads that exceeded the capacity, because of pins or readers of evicted units.
    pub overshoots: u64,
    pub usage_bytes: u64,
    pub capacity_bytes: u64,
}

pub struct BlockCache {
    arena: Arena,
    clock: Mutex<Clock>,
    /// Highest ticket that may be reclaimed: all guards from before it ended. Raised with release
    /// by deferred functions, read with acquire: all readers from before the ticket are done with
    /// its units.
    passed: Arc<AtomicU64>,
    hits: StripedCounter,
    misses: AtomicU64,
    checked: AtomicU64,
    loaded_bytes: AtomicU64,
}

impl BlockCache {
    /// Pinned units, and evicted ones that readers still see, exceed it. Allocates on demand.
    pub fn new(capacity_bytes: usize) -> Arc<BlockCache> {
        Arc::new(BlockCache {
            arena: Arena::new(),
            clock: Mutex::new(Clock::new(capacity_bytes)),
            passed: Arc::default(),
            hits: StripedCounter::default(),
            misses: AtomicU64::new(0),
            checked: AtomicU64::new(0),
            loaded_bytes: AtomicU64::new(0),
        })
    }

    /// Evicts at once; memory is freed as readers release it.
    pub fn set_capacity(&self, bytes: usize) {
        let mut clock = self.clock.lock();
        clock.set_capacity(&self.arena, self.passed.load(Ordering::Acquire), bytes);
        let ticket = clock.take_ticket();
        drop(clock);
        self.settle(ticket);
    }

    pub fn usage_bytes(&self) -> usize {
        let mut clock = self.clock.lock();
        clock.shrink(&self.arena, self.passed.load(Ordering::Acquire));
        let (usage, ticket) = (clock.usage(), clock.take_ticket());
        drop(clock);
        if let Some(ticket) = ticket {
            self.defer(ticket, &crossbeam_epoch::pin());
        }
        usage
    }

    pub fn stats(&self) -> CacheStats {
        let clock = self.clock.lock();
        CacheStats {
            hits: self.hits.sum(),
            misses: self.misses.load(Ordering::Relaxed),
            checked: self.checked.load(Ordering::Relaxed),
            loaded_bytes: self.loaded_bytes.load(Ordering::Relaxed),
            evictions: clock.evicted,
            overshoots: clock.overshoots,
            usage_bytes: clock.usage() as u64,
            capacity_bytes: clock.capacity() as u64,
        }
    }

    /// The result is not reclaimed while `guard` lives, and has `pins` (0 or 1) for the caller.
    fn insert(&self, file: u32, unit: u32, bytes: &[u8], pins: u32, guard: &Guard) -> NonNull<Trailer> {
        self.note_miss();
        self.loaded_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let passed = self.passed.load(Ordering::Acquire);
        let frame = self.clock.lock().reserve(&self.arena, passed, bytes.len());
        // SAFETY: the frame is ours until we publish or discard it.
        let mut trailer = unsafe {
            if frame & SINGLE_BIT == 0 {
                self.arena.fill_frame(frame, bytes, pins)
            } else {
                self.arena.fill_single(frame, bytes, pins)
            }
        };
        let mut clock = self.clock.lock();
        if clock.is_too_large(bytes.len()) {
            clock.discard(frame);
        } else if let Err(present) = clock.publish(&self.arena, file, unit, frame) {
            // SAFETY: under the lock, a frame in a slot is filled and not reclaimed; then our guard
            // protects it.
            trailer = unsafe { self.arena.trailer(present) };
            if pins == 1 {
                // SAFETY: as before. The pin belongs to the caller.
                std::mem::forget(unsafe { Pin::new(trailer) });
            }
        }
        let ticket = clock.take_ticket();
        let is_starving = clock.is_starving();
        drop(clock);
        if let Some(ticket) = ticket {
            self.defer(ticket, guard);
        }
        if ticket.is_some() || is_starving {
            guard.flush();
        }
        trailer
    }

    /// # Safety
    ///
    /// The caller found the frame in its slot under a guard that is still held.
    #[inline(always)]
    unsafe fn note_use(&self, frame: u32) {
        self.hits.add_one();
        // SAFETY: hence it is filled and not reclaimed.
        unsafe { self.arena.heat(frame) }.touch();
    }

    fn note_miss(&self) {
        if striped_counter::is_counting() {
            self.misses.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn defer(&self, ticket: Ticket, guard: &Guard) {
        let passed = self.passed.clone();
        guard.defer(move || passed.fetch_max(ticket, Ordering::Release));
    }

    /// Advances the epoch collector, so that memory is freed soon if there are no readers.
    fn settle(&self, ticket: Option<Ticket>) {
        let Some(ticket) = ticket else { return };
        self.defer(ticket, &crossbeam_epoch::pin());
        for _ in 0..4 {
            crossbeam_epoch::pin().flush();
        }
        self.clock.lock().collect(&self.arena, self.passed.load(Ordering::Acquire));
    }
}

impl Drop for BlockCache {
    fn drop(&mut self) {
        let arena = std::mem::replace(&mut self.arena, Arena::empty());
        let filled = self.clock.get_mut().take_unreclaimed();
        crossbeam_epoch::pin().defer(move || {
            // SAFETY: all `CacheSlots` are gone, since each holds the cache. All filled frames are
            // in limbo or parked, unreachable since before this function was deferred.
            unsafe { arena.dispose(&filled) };
        });
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct Slot {
    /// Number of the unit's frame, or a vacant state: see [`VACANT`].
    pub frame: AtomicU32,
    note: UnitNote,
}

/// An unread unit's length, if it fits 24 bits, and eight bits for its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitNote(u32);

impl UnitNote {
    pub fn new(len: usize, mark: u8) -> UnitNote {
        let len = u32::try_from(len).ok().filter(|len| len >> 24 == 0);
        UnitNote(u32::from(mark) | len.unwrap_or_default() << 8)
    }

    /// 0 if the length did not fit.
    #[inline(always)]
    pub fn len(self) -> usize {
        (self.0 >> 8) as usize
    }

    #[inline(always)]
    pub fn mark(self) -> u8 {
        self.0 as u8
    }
}

/// Time of a check, in spans that the file defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckTime(u32);

impl CheckTime {
    #[inline]
    pub fn new(count: u64) -> CheckTime {
        CheckTime(count as u32 & TIME_MASK)
    }

    pub fn count(self) -> u32 {
        self.0
    }
}

/// Shared by all threads. Dropping it evicts the units.
pub struct CacheSlots {
    cache: Arc<BlockCache>,
    slots: Arc<[Slot]>,
    file: u32,
}

impl CacheSlots {
    #[cfg(test)]
    pub fn new(cache: &Arc<BlockCache>, units: u32) -> CacheSlots {
        CacheSlots::with_notes(cache, (0..units).map(|_| UnitNote::default()))
    }

    pub fn with_notes(cache: &Arc<BlockCache>, notes: impl IntoIterator<Item = UnitNote>) -> CacheSlots {
        let slots: Arc<[Slot]> = notes.into_iter().map(|note| Slot { frame: AtomicU32::new(VACANT), note }).collect();
        let file = cache.clock.lock().add_file(slots.clone());
        CacheSlots { cache: cache.clone(), slots, file }
    }

    #[inline(always)]
    pub fn units(&self) -> usize {
        self.slots.len()
    }

    #[inline(always)]
    pub fn note(&self, unit: u32) -> UnitNote {
        self.slots.get(unit as usize).map(|slot| slot.note).unwrap_or_default()
    }

    /// Returns true if the unit is cached or, if it is read in place, was checked or written in
    /// this time span or the one before.
    pub fn is_at_hand(&self, unit: u32, now: Option<CheckTime>) -> bool {
        let frame = self.slots.get(unit as usize).map_or(VACANT, |slot| slot.frame.load(Ordering::Relaxed));
        let age = now.map(|now| now.0.wrapping_sub(frame) & TIME_MASK);
        frame & VACANT == 0 || (frame & IN_PLACE != 0 && age.is_some_and(|age| age <= 1))
    }

    /// True if the unit is neither cached nor checked or written in place; false for missing units.
    #[inline]
    pub fn is_vacant(&self, unit: u32) -> bool {
        let frame = self.slots.get(unit as usize).map(|slot| slot.frame.load(Ordering::Relaxed));
        frame.is_some_and(|frame| frame & (VACANT | IN_PLACE) == VACANT)
    }

    /// Returns the last check of a unit read in place. Panics if there is no such unit.
    #[inline]
    pub fn in_place_since(&self, unit: u32) -> Option<CheckTime> {
        let frame = self.slots[unit as usize].frame.load(Ordering::Relaxed);
        (frame & (VACANT | IN_PLACE) == VACANT | IN_PLACE).then_some(CheckTime(frame & TIME_MASK))
    }

    #[inline(always)]
    pub fn in_place(&self, unit: u32) -> Option<(CheckTime, UnitNote)> {
        let slot = self.slots.get(unit as usize)?;
        let frame = slot.frame.load(Ordering::Relaxed);
        (frame & (VACANT | IN_PLACE) == VACANT | IN_PLACE).then_some((CheckTime(frame & TIME_MASK), slot.note))
    }

    /// Marks a unit as checked in place, unless it is cached. Panics if there is no such unit.
    pub fn set_in_place(&self, unit: u32, checked: CheckTime, len: usize) {
        let slot = &self.slots[unit as usize].frame;
        let next = |frame| (frame & VACANT != 0).then_some(VACANT | IN_PLACE | checked.0);
        // Relaxed: the value guards no other memory.
        let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        self.cache.checked.fetch_add(1, Ordering::Relaxed);
        self.cache.note_miss();
        self.cache.loaded_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    /// Marks a vacant unit as written. Panics if there is no such unit.
    pub fn set_written(&self, unit: u32, written: CheckTime) {
        let slot = &self.slots[unit as usize].frame;
        // Relaxed: as above.
        let _ = slot.compare_exchange(VACANT, VACANT | IN_PLACE | written.0, Ordering::Relaxed, Ordering::Relaxed);
    }

    #[inline]
    pub fn note_hit(&self) {
        self.cache.hits.add_one();
    }

    /// Panics if there is no such unit.
    #[inline]
    pub fn get<'g>(&self, unit: u32, _guard: &'g Guard) -> Option<&'g [u8]> {
        let trailer = self.find(unit)?;
        // SAFETY: it was found under the guard, so it is not reclaimed while the guard lives.
        Some(unsafe { Trailer::bytes(trailer) })
    }

    /// Calls `load` without a lock if the unit is not cached. Panics if there is no such unit.
    #[inline]
    #[cfg(test)]
    pub fn get_or_load<'g>(
        &self,
        unit: u32,
        guard: &'g Guard,
        load: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<&'g [u8]> {
        if let Some(bytes) = self.get(unit, guard) {
            return Ok(bytes);
        }
        self.load_missing(unit, guard, load)
    }

    /// Prefetches two places (`soon`), in bytes before the unit's end. Wrong ones are harmless.
    #[inline(always)]
    pub fn get_or_load_soon<'g>(
        &self,
        unit: u32,
        guard: &'g Guard,
        soon: [usize; 2],
        load: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<&'g [u8]> {
        match self.get_soon(unit, guard, soon) {
            Some(bytes) => Ok(bytes),
            None => self.load_missing(unit, guard, load),
        }
    }

    #[inline(always)]
    pub fn get_soon<'g>(&self, unit: u32, _guard: &'g Guard, soon: [usize; 2]) -> Option<&'g [u8]> {
        let slot = &self.slots[unit as usize];
        // Acquire: the frame's bytes were written before its number.
        let frame = slot.frame.load(Ordering::Acquire);
        if frame & VACANT != 0 {
            return None;
        }
        // SAFETY: found in its slot under the guard, so not reclaimed before the guard is dropped.
        let trailer = unsafe { self.cache.arena.trailer(frame) };
        Hint::at_end(trailer.addr().get()).prefetch_before(soon);
        // SAFETY: as above.
        unsafe { self.cache.note_use(frame) };
        // SAFETY: as above; and `insert` accepts a unit only with its noted length.
        Some(unsafe {
            match slot.note.len() {
                0 => Trailer::bytes(trailer),
                len => Trailer::last_bytes(trailer, len),
            }
        })
    }

    #[cold]
    #[inline(never)]
    fn load_missing<'g>(
        &self,
        unit: u32,
        guard: &'g Guard,
        load: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<&'g [u8]> {
        Ok(self.insert(unit, &load()?, guard))
    }

    pub fn insert<'g>(&self, unit: u32, bytes: &[u8], guard: &'g Guard) -> &'g [u8] {
        self.check_length(unit, bytes);
        let trailer = self.cache.insert(self.file, unit, bytes, 0, guard);
        // SAFETY: `insert` guarantees it while the guard lives.
        unsafe { Trailer::bytes(trailer) }
    }

    pub fn insert_pinned(&self, unit: u32, bytes: &[u8]) -> PinnedUnit {
        self.check_length(unit, bytes);
        let guard = crossbeam_epoch::pin();
        let trailer = self.cache.insert(self.file, unit, bytes, 1, &guard);
        // SAFETY: `insert` pinned it for us.
        PinnedUnit::cached(unsafe { Pin::adopt(trailer) })
    }

    fn check_length(&self, unit: u32, bytes: &[u8]) {
        let noted = self.slots[unit as usize].note.len();
        assert!(noted == 0 || noted == bytes.len(), "a unit of {} bytes, noted with {noted}", bytes.len());
    }

    /// Panics if there is no such unit.
    #[inline]
    pub fn pin(&self, unit: u32) -> Option<PinnedUnit> {
        let _guard = crossbeam_epoch::pin();
        let trailer = self.find(unit)?;
        // SAFETY: it was found under the guard, which is still held.
        Some(PinnedUnit::cached(unsafe { Pin::new(trailer) }))
    }

    #[cfg(test)]
    pub fn pin_or_load(&self, unit: u32, load: impl FnOnce() -> Result<Vec<u8>>) -> Result<PinnedUnit> {
        match self.pin(unit) {
            Some(pinned) => Ok(pinned),
            // No guard while loading: it would block reclamation.
            None => Ok(self.insert_pinned(unit, &load()?)),
        }
    }

    #[inline]
    pub fn prefetch_slot(&self, unit: u32) {
        if let Some(slot) = self.slots.get(unit as usize) {
            super::prefetch(slot);
        }
    }

    /// No address if the unit is not cached.
    #[inline]
    pub fn hint(&self, unit: u32) -> Hint {
        self.hint_or(unit, Hint::default)
    }

    #[inline]
    pub fn hint_or(&self, unit: u32, in_place: impl FnOnce() -> Hint) -> Hint {
        let frame = self.slots.get(unit as usize).map_or(VACANT, |slot| slot.frame.load(Ordering::Relaxed));
        if frame & VACANT == 0 {
            self.cache.arena.hint(frame)
        } else if frame & IN_PLACE != 0 {
            in_place()
        } else {
            Hint::default()
        }
    }

    pub fn resident_bytes(&self) -> usize {
        size_of_val(&*self.slots) + 2 * size_of::<usize>()
    }

    /// The caller must hold a guard while it uses the result.
    #[inline]
    fn find(&self, unit: u32) -> Option<NonNull<Trailer>> {
        // Acquire: the frame's bytes were written before its number.
        let frame = self.slots[unit as usize].frame.load(Ordering::Acquire);
        if frame & VACANT != 0 {
            return None;
        }
        // SAFETY: found in its slot under the guard, so not reclaimed before the guard is dropped.
        let trailer = unsafe { self.cache.arena.trailer(frame) };
        // SAFETY: as above.
        unsafe { self.cache.note_use(frame) };
        Some(trailer)
    }
}

impl Drop for CacheSlots {
    fn drop(&mut self) {
        let mut clock = self.cache.clock.lock();
        clock.remove_file(self.file);
        let ticket = clock.take_ticket();
        drop(clock);
        if let Some(ticket) = ticket {
            self.cache.defer(ticket, &crossbeam_epoch::pin());
        }
    }
}

impl fmt::Debug for CacheSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheSlots").field("file", &self.file).field("units", &self.slots.len()).finish()
    }
}
