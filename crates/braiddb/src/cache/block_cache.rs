//! The cache's face: slots of a file, hits, misses, pins.
//!
//! Each open file owns an array of slots, eight bytes a unit (a block of a run, a page of a view). A slot holds the
//! number of the frame that has the unit, so a hit is one load of the slot and the frame's address by arithmetic: no
//! hash table, no lock, and no write to shared memory but a touch mark that is not set yet.
//!
//! Readers hold an epoch guard of `crossbeam_epoch::pin()`; what `get` returns lives as long as that guard. Guards
//! must be short: while one is held, nothing evicted since can be reused, and loads go over the capacity instead of
//! waiting. What is needed for longer is pinned.
//!
//! Threads that miss the same unit at once all read it; the first to take the lock wins and the others use its
//! frame. No lock is held while a unit is loaded, nor while its bytes are copied into the frame.
//!
//! What a file that is mapped (`mapped.rs`) holds uncompressed may be read in place and needs no frame: then the slot says when
//! the unit was checked last. Whether a file is read so, and when a unit is to be checked again, is for its owner to decide.
//! Readers change such slots without the lock, but only from one vacant state to another.
//!
//! Lock order: the clock's lock is taken last and never held while an epoch guard is made or flushed, because that
//! may run deferred functions of anybody, which may close files and so come back here.

use super::{
    arena::{Arena, Hint, Pin, SINGLE_BIT, Trailer},
    clock::{Clock, IN_PLACE, TIME_MASK, Ticket, VACANT},
    mapped::PinnedUnit,
    striped_counter::StripedCounter,
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

/// What a cache did since it was made, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups answered from memory, cached or in place. May miss some when more than 32 threads ever looked up.
    pub hits: u64,
    /// Units loaded, or checked to be read in place.
    pub misses: u64,
    /// Those of them that were checked to be read in place.
    pub checked: u64,
    /// The bytes of those units, uncompressed.
    pub loaded_bytes: u64,
    /// Units thrown out to make room.
    pub evictions: u64,
    /// Loads that took the cache over its capacity: all was pinned, or readers still saw what was evicted.
    pub overshoots: u64,
    /// Bytes held now, with all overhead but the slots.
    pub usage_bytes: u64,
    /// Bytes allowed.
    pub capacity_bytes: u64,
}

/// A cache of blocks and pages. Shared by all threads.
pub struct BlockCache {
    arena: Arena,
    clock: Mutex<Clock>,
    /// The highest ticket whose epoch has passed. Raised with release by deferred functions, read with acquire: the
    /// readers who were there before the ticket are done with the units it was for.
    passed: Arc<AtomicU64>,
    hits: StripedCounter,
    misses: AtomicU64,
    checked: AtomicU64,
    loaded_bytes: AtomicU64,
}

impl BlockCache {
    /// A cache of at most `capacity_bytes`, but for what is pinned, and for a moment for what readers still see.
    /// Memory is taken as it fills.
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

    /// Changes the capacity. A smaller one evicts at once; the memory is given back as readers let go of it.
    pub fn set_capacity(&self, bytes: usize) {
        let mut clock = self.clock.lock();
        clock.set_capacity(&self.arena, self.passed.load(Ordering::Acquire), bytes);
        let ticket = clock.take_ticket();
        drop(clock);
        self.settle(ticket);
    }

    /// The bytes held, after giving back what can be.
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

    /// What it did, and what it holds.
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

    /// Takes in a loaded unit. The result is filled, and not reclaimed while `guard` lives; it is counted once for
    /// the caller if `pins` is one.
    fn insert(&self, file: u32, unit: u32, bytes: &[u8], pins: u32, guard: &Guard) -> NonNull<Trailer> {
        self.misses.fetch_add(1, Ordering::Relaxed);
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
            // SAFETY: under the lock, what is in a slot is filled and not reclaimed; our guard keeps it after.
            trailer = unsafe { self.arena.trailer(present) };
            if pins == 1 {
                // SAFETY: as before. The count is the caller's.
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

    /// Counts a hit, and has eviction know of it.
    ///
    /// # Safety
    /// The caller has found the frame in its slot under a guard that is still held.
    #[inline(always)]
    unsafe fn note_use(&self, frame: u32) {
        self.hits.add_one();
        // SAFETY: so it is filled and not reclaimed.
        unsafe { self.arena.heat(frame) }.touch();
    }

    /// Has `passed` raised to the ticket when all readers of now are gone.
    fn defer(&self, ticket: Ticket, guard: &Guard) {
        let passed = self.passed.clone();
        guard.defer(move || passed.fetch_max(ticket, Ordering::Release));
    }

    /// Defers a ticket, and pushes the epoch on so that memory comes back soon if nobody reads.
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
            // SAFETY: each `CacheSlots` holds the cache, so all of them are gone, and with them all slots: what was
            // filled is in limbo or parked, out of reach since before this function was deferred.
            unsafe { arena.dispose(&filled) };
        });
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// Where a unit stands in memory, and what its file notes of it: in one place, since who wants the one wants the other.
#[derive(Debug)]
pub(super) struct Slot {
    /// The number of the frame that has the unit; [`VACANT`] with something else if none has.
    pub frame: AtomicU32,
    note: UnitNote,
}

/// What is known of a unit before it is read: its length, if that has 24 bits, and eight bits for its file's use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitNote(u32);

impl UnitNote {
    /// A note of a unit of `len` bytes.
    pub fn new(len: usize, mark: u8) -> UnitNote {
        let len = u32::try_from(len).ok().filter(|len| len >> 24 == 0);
        UnitNote(u32::from(mark) | len.unwrap_or_default() << 8)
    }

    /// The unit's length; 0 if it is too long for a note.
    #[inline(always)]
    pub fn len(self) -> usize {
        (self.0 >> 8) as usize
    }

    /// What the file noted.
    #[inline(always)]
    pub fn mark(self) -> u8 {
        self.0 as u8
    }
}

/// When a unit that is read in place was checked: a count of some spans of time, as its file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckTime(u32);

impl CheckTime {
    /// A count; of a large one, the low bits.
    #[inline]
    pub fn new(count: u64) -> CheckTime {
        CheckTime(count as u32 & TIME_MASK)
    }

    /// The count.
    pub fn count(self) -> u32 {
        self.0
    }
}

/// The slots of one open file: eight bytes a unit. Shared by all threads; its units are evicted when it goes.
pub struct CacheSlots {
    cache: Arc<BlockCache>,
    slots: Arc<[Slot]>,
    file: u32,
}

impl CacheSlots {
    /// Slots for a file of that many units.
    pub fn new(cache: &Arc<BlockCache>, units: u32) -> CacheSlots {
        CacheSlots::with_notes(cache, (0..units).map(|_| UnitNote::default()))
    }

    /// Slots for a file of as many units as there are notes. Units are found quicker if their lengths are noted.
    pub fn with_notes(cache: &Arc<BlockCache>, notes: impl IntoIterator<Item = UnitNote>) -> CacheSlots {
        let slots: Arc<[Slot]> = notes.into_iter().map(|note| Slot { frame: AtomicU32::new(VACANT), note }).collect();
        let file = cache.clock.lock().add_file(slots.clone());
        CacheSlots { cache: cache.clone(), slots, file }
    }

    /// How many units the file has.
    #[inline(always)]
    pub fn units(&self) -> usize {
        self.slots.len()
    }

    /// What was noted of a unit; zeros if the file has no such unit.
    #[inline(always)]
    pub fn note(&self, unit: u32) -> UnitNote {
        self.slots.get(unit as usize).map(|slot| slot.note).unwrap_or_default()
    }

    /// Whether the unit is cached just now, or, for who can read in place, was checked for that in this span of time or the one
    /// before, or written.
    pub fn is_at_hand(&self, unit: u32, now: Option<CheckTime>) -> bool {
        let frame = self.slots.get(unit as usize).map_or(VACANT, |slot| slot.frame.load(Ordering::Relaxed));
        let age = now.map(|now| now.0.wrapping_sub(frame) & TIME_MASK);
        frame & VACANT == 0 || (frame & IN_PLACE != 0 && age.is_some_and(|age| age <= 1))
    }

    /// Whether the unit is not cached, and was not checked to be read in place or written lately; no matter for units that the file has not.
    #[inline]
    pub fn is_vacant(&self, unit: u32) -> bool {
        let frame = self.slots.get(unit as usize).map(|slot| slot.frame.load(Ordering::Relaxed));
        frame.is_some_and(|frame| frame & (VACANT | IN_PLACE) == VACANT)
    }

    /// When the unit was checked last, if it is one that is read in place. Panics if the file has no such unit.
    #[inline]
    pub fn in_place_since(&self, unit: u32) -> Option<CheckTime> {
        let frame = self.slots[unit as usize].frame.load(Ordering::Relaxed);
        (frame & (VACANT | IN_PLACE) == VACANT | IN_PLACE).then_some(CheckTime(frame & TIME_MASK))
    }

    /// When the unit was checked last, and what is noted of it, if the file has it and it is one that is read in place.
    #[inline(always)]
    pub fn in_place(&self, unit: u32) -> Option<(CheckTime, UnitNote)> {
        let slot = self.slots.get(unit as usize)?;
        let frame = slot.frame.load(Ordering::Relaxed);
        (frame & (VACANT | IN_PLACE) == VACANT | IN_PLACE).then_some((CheckTime(frame & TIME_MASK), slot.note))
    }

    /// Has a unit of `len` bytes read in place, having been checked then; nothing if it is cached. Panics if the file has no such
    /// unit.
    pub fn set_in_place(&self, unit: u32, checked: CheckTime, len: usize) {
        let slot = &self.slots[unit as usize].frame;
        let next = |frame| (frame & VACANT != 0).then_some(VACANT | IN_PLACE | checked.0);
        // Relaxed: it stands for nothing but itself.
        let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        self.cache.checked.fetch_add(1, Ordering::Relaxed);
        self.cache.misses.fetch_add(1, Ordering::Relaxed);
        self.cache.loaded_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    /// Has a unit read in place that was written then, and not looked up yet. Panics if the file has no such unit.
    pub fn set_written(&self, unit: u32, written: CheckTime) {
        let slot = &self.slots[unit as usize].frame;
        // Relaxed: as above.
        let _ = slot.compare_exchange(VACANT, VACANT | IN_PLACE | written.0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Counts a read in place.
    #[inline]
    pub fn note_hit(&self) {
        self.cache.hits.add_one();
    }

    /// The unit, if it is cached. Panics if the file has no such unit.
    #[inline]
    pub fn get<'g>(&self, unit: u32, _guard: &'g Guard) -> Option<&'g [u8]> {
        let trailer = self.find(unit)?;
        // SAFETY: it was found under the guard, so it is not reclaimed while the guard lives.
        Some(unsafe { Trailer::bytes(trailer) })
    }

    /// The unit; `load` reads it if it is not cached. No lock is held meanwhile, and other threads may load the same.
    /// Panics if the file has no such unit.
    #[inline]
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

    /// [`CacheSlots::get_or_load`] for who will look at these places soon, in bytes before the unit's end: they are asked
    /// for while the unit is looked up. Wrong ones do no harm.
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

    /// [`CacheSlots::get`] for who will look at these places soon, in bytes before the unit's end: they are asked for while the
    /// unit is looked up. Wrong ones do no harm.
    #[inline(always)]
    pub fn get_soon<'g>(&self, unit: u32, _guard: &'g Guard, soon: [usize; 2]) -> Option<&'g [u8]> {
        let slot = &self.slots[unit as usize];
        // Acquire: the frame's bytes were written before its number.
        let frame = slot.frame.load(Ordering::Acquire);
        if frame & VACANT != 0 {
            return None;
        }
        // SAFETY: the frame was in its slot while the guard was held, so it is not reclaimed before the guard goes.
        let trailer = unsafe { self.cache.arena.trailer(frame) };
        Hint::at_end(trailer.addr().get()).prefetch_before(soon);
        // SAFETY: as above.
        unsafe { self.cache.note_use(frame) };
        // SAFETY: as above; and a unit has the length that was noted of it, or it would not have been taken in.
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

    /// Takes in a unit that was loaded, which must have the length that was noted of it. Panics if the file has no such unit.
    pub fn insert<'g>(&self, unit: u32, bytes: &[u8], guard: &'g Guard) -> &'g [u8] {
        self.check_length(unit, bytes);
        let trailer = self.cache.insert(self.file, unit, bytes, 0, guard);
        // SAFETY: `insert` vouches for it while the guard lives.
        unsafe { Trailer::bytes(trailer) }
    }

    /// As [`CacheSlots::insert`], and counts the unit.
    pub fn insert_pinned(&self, unit: u32, bytes: &[u8]) -> PinnedUnit {
        self.check_length(unit, bytes);
        let guard = crossbeam_epoch::pin();
        let trailer = self.cache.insert(self.file, unit, bytes, 1, &guard);
        // SAFETY: `insert` counted it for us.
        PinnedUnit::cached(unsafe { Pin::adopt(trailer) })
    }

    fn check_length(&self, unit: u32, bytes: &[u8]) {
        let noted = self.slots[unit as usize].note.len();
        assert!(noted == 0 || noted == bytes.len(), "a unit of {} bytes, noted with {noted}", bytes.len());
    }

    /// The unit if it is cached, counted: it stays in memory while the handle lives. Panics if the file has no such unit.
    #[inline]
    pub fn pin(&self, unit: u32) -> Option<PinnedUnit> {
        let _guard = crossbeam_epoch::pin();
        let trailer = self.find(unit)?;
        // SAFETY: it was found under the guard, which is still held.
        Some(PinnedUnit::cached(unsafe { Pin::new(trailer) }))
    }

    /// The unit, counted: it stays in memory while the handle lives. Panics if the file has no such unit.
    #[cfg(test)]
    pub fn pin_or_load(&self, unit: u32, load: impl FnOnce() -> Result<Vec<u8>>) -> Result<PinnedUnit> {
        match self.pin(unit) {
            Some(pinned) => Ok(pinned),
            // No guard while loading, so that others can reclaim.
            None => Ok(self.insert_pinned(unit, &load()?)),
        }
    }

    /// Asks the processor for a unit's slot, which all that follows goes through.
    #[inline]
    pub fn prefetch_slot(&self, unit: u32) {
        if let Some(slot) = self.slots.get(unit as usize) {
            super::prefetch(slot);
        }
    }

    /// Where a cached unit is, guessed; nowhere if it is not cached.
    #[inline]
    pub fn hint(&self, unit: u32) -> Hint {
        self.hint_or(unit, Hint::default)
    }

    /// As [`CacheSlots::hint`]; for a unit that is read in place, what `in_place` says.
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

    /// The bytes of the slots themselves.
    pub fn resident_bytes(&self) -> usize {
        size_of_val(&*self.slots) + 2 * size_of::<usize>()
    }

    /// The frame of a cached unit. Precondition: an epoch guard is held; the result is good while it is.
    #[inline]
    fn find(&self, unit: u32) -> Option<NonNull<Trailer>> {
        // Acquire: the frame's bytes were written before its number.
        let frame = self.slots[unit as usize].frame.load(Ordering::Acquire);
        if frame & VACANT != 0 {
            return None;
        }
        // SAFETY: the frame was in its slot while the guard was held, so it is not reclaimed before the guard goes.
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
