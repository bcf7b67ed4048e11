//! All state behind the cache's one lock, which only misses take: reservation, eviction and
//! reclamation.
//!
//! # Eviction
//!
//! A unit enters the **nursery**, a short queue where touches do not count: most come from the
//! operation that loaded it. Next is the **cold** queue. At its end, a unit touched since becomes
//! **hot**, and an untouched one is evicted. The hot queue is a clock: touched units go round
//! again, untouched ones fall into the cold queue. The cold part may shrink to a fifth of the
//! cache, so a scan of any length flushes only that fifth.
//!
//! An evicted unit leaves a **ghost** in its slot: the eviction count of that time. If it is loaded
//! again before about as many evictions as the cache has units, it becomes hot at once. So a
//! working set larger than the cold part is recognised.
//!
//! A unit that **fell** from the hot queue was unused for long. It leaves no ghost, and a touch in
//! the cold queue only makes it like a new cold unit. Otherwise a scan over formerly hot units
//! would evict the hot set.
//!
//! # Reclamation
//!
//! An evicted unit leaves its slot, but readers may still see it. It goes to **limbo** with a
//! ticket. For each ticket the caller defers a closure to the epoch collector (crossbeam-epoch)
//! that raises `passed` to it. Closures may run in any order: each proves that all readers from
//! before its ticket are gone, hence also those from before lower tickets. A unit that leaves limbo
//! while pinned is **parked** and checked again later. Reclamation has a delay, so evictions run
//! some frames ahead of need.
//!
//! # Accounting
//!
//! Chunks count in full, single units with trailer and tables, also in limbo or parked. A chunk is
//! freed, with its last reclaimed frame, when the capacity shrinks or single units need the space.

use super::{
    arena::{Arena, CHUNK_BYTES, CHUNK_FRAMES, FRAME_BYTES, Heat, MAX_CHUNKS, SINGLE_BIT, Trailer, heat, single_bytes},
    block_cache::Slot,
    lists::{FrameInfo, Lists, Queue},
};
use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};

/// Set in a slot without a frame. The other bits: zero, a ghost, or see [`IN_PLACE`].
pub(super) const VACANT: u32 = 1 << 31;
/// Set in a vacant slot whose unit is read in place, with the last check's time.
pub(super) const IN_PLACE: u32 = 1 << 30;
pub(super) const TIME_MASK: u32 = IN_PLACE - 1;

const CHUNK_COST: usize = CHUNK_BYTES + CHUNK_FRAMES as usize * size_of::<FrameInfo>();
const FRAME_COST: usize = CHUNK_COST / CHUNK_FRAMES as usize;
const AHEAD_FRAMES: usize = 64;
/// Maximum units examined by one call; beyond it the cache exceeds its capacity.
const MAX_STEPS: usize = 1024;
const PARKED_LOOKS: usize = 16;
/// Maximum units moved by one call from single allocations into frames.
const OVERFLOW_MOVES: usize = 4;
/// Maximum single units recorded for a move; further ones stay until they are evicted.
const MAX_OVERFLOW: usize = 4096;
const NURSERY_UNITS: usize = 64;

/// A ticket. After releasing the lock, the caller must defer `passed.fetch_max(ticket)`.
pub(super) type Ticket = u64;

#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    is_present: bool,
    /// Hands out no more frames.
    is_draining: bool,
    used: u32,
}

#[derive(Debug)]
pub(super) struct Clock {
    capacity: usize,
    files: Vec<Option<Arc<[Slot]>>>,
    vacant_files: Vec<u32>,
    lists: Lists,
    chunks: Vec<Chunk>,
    chunk_count: usize,
    draining: usize,
    free: Vec<u32>,
    vacant_singles: Vec<u32>,
    single_bytes: usize,
    limbo: VecDeque<(Ticket, u32)>,
    limbo_bytes: usize,
    limbo_single_bytes: usize,
    parked: VecDeque<u32>,
    /// Single units of a frame's length. Some may be gone.
    overflow: VecDeque<u32>,
    ticket: Ticket,
    is_ticket_due: bool,
    /// Clock of the ghosts, never 0.
    evictions: u32,
    pub evicted: u64,
    pub overshoots: u64,
}

impl Clock {
    pub fn new(capacity: usize) -> Clock {
        Clock {
            capacity,
            files: Vec::new(),
            vacant_files: Vec::new(),
            lists: Lists::new(SINGLE_BIT),
            chunks: Vec::new(),
            chunk_count: 0,
            draining: 0,
            free: Vec::new(),
            vacant_singles: Vec::new(),
            single_bytes: 0,
            limbo: VecDeque::new(),
            limbo_bytes: 0,
            limbo_single_bytes: 0,
            parked: VecDeque::new(),
            overflow: VecDeque::new(),
            ticket: 1,
            is_ticket_due: false,
            evictions: 1,
            evicted: 0,
            overshoots: 0,
        }
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn usage(&self) -> usize {
        self.chunk_count * CHUNK_COST + self.single_bytes
    }

    pub fn add_file(&mut self, slots: Arc<[Slot]>) -> u32 {
        if let Some(file) = self.vacant_files.pop() {
            self.files[file as usize] = Some(slots);
            return file;
        }
        self.files.push(Some(slots));
        u32::try_from(self.files.len() - 1).expect("fewer than 2^32 open files")
    }

    pub fn remove_file(&mut self, file: u32) {
        let Some(slots) = self.files[file as usize].take() else { return };
        for Slot { frame: slot, .. } in slots.iter() {
            // Release and relaxed as in `evict`.
            let frame = slot.load(Ordering::Relaxed);
            if frame & VACANT == 0 {
                slot.store(VACANT, Ordering::Release);
                self.lists.unlink(frame);
                self.send_to_limbo(frame);
            }
        }
        self.vacant_files.push(file);
    }

    /// Returns the ticket for units sent to limbo since the last call, if any.
    pub fn take_ticket(&mut self) -> Option<Ticket> {
        std::mem::take(&mut self.is_ticket_due).then(|| {
            self.ticket += 1;
            self.ticket - 1
        })
    }

    /// Reclamation lags behind; the caller should advance the epoch collector.
    pub fn is_starving(&self) -> bool {
        !self.limbo.is_empty() && self.free.is_empty()
    }

    /// Caching the unit would evict too much.
    pub fn is_too_large(&self, len: usize) -> bool {
        len > FRAME_BYTES && single_bytes(len) > self.capacity / 8
    }

    /// The caller owns the frame until [`Clock::publish`] or [`Clock::discard`], and allocates
    /// single units.
    pub fn reserve(&mut self, arena: &Arena, passed: Ticket, len: usize) -> u32 {
        self.collect(arena, passed);
        let is_frame = len > FRAME_BYTES / 2 && len <= FRAME_BYTES;
        let cost = if is_frame { FRAME_COST } else { single_cost(len) };
        let ahead = (self.capacity / 32).min(AHEAD_FRAMES * FRAME_COST);
        let is_cached = !self.is_too_large(len);
        if is_cached && self.available() < signed(cost + ahead / 4 * 3) {
            self.evict_until(arena, signed(cost + ahead), MAX_STEPS);
        }
        self.move_overflow(arena);
        if is_frame && let Some(frame) = self.take_frame(arena) {
            return frame;
        }
        let cost = single_cost(len).min(u32::MAX as usize);
        if self.usage() + cost > self.capacity {
            self.overshoots += 1;
            let is_room_coming = self.usage() + cost <= self.capacity + self.limbo_single_bytes;
            if !is_frame && is_cached && !is_room_coming && self.draining == 0 {
                self.drain_one_chunk(arena);
            }
        }
        self.single_bytes += cost;
        let frame = self.vacant_singles.pop().unwrap_or_else(|| {
            let index = u32::try_from(self.lists.singles()).expect("fewer than 2^28 single units");
            index | SINGLE_BIT
        });
        self.lists.admit(frame);
        self.lists.info(frame).cost = cost as u32;
        if is_frame && self.chunk_count > 0 {
            if self.overflow.len() >= MAX_OVERFLOW {
                self.overflow.pop_front();
            }
            self.overflow.push_back(frame);
        }
        frame
    }

    /// Puts a filled frame into its slot. If another thread was faster, frees it and returns that
    /// thread's frame as error.
    pub fn publish(&mut self, arena: &Arena, file: u32, unit: u32, frame: u32) -> Result<(), u32> {
        let Some(slots) = &self.files[file as usize] else { unreachable!("a file in use") };
        let slot = &slots[unit as usize].frame;
        // Relaxed: without the lock, slots change only between vacant states.
        let present = slot.load(Ordering::Relaxed);
        if present & VACANT == 0 {
            self.release(arena, frame);
            return Err(present);
        }
        // Release: the frame's bytes are visible before its number.
        slot.store(frame, Ordering::Release);
        let info = self.lists.info(frame);
        (info.file, info.unit, info.has_fallen) = (file, unit, false);
        let age = self.evictions.wrapping_sub(present) & TIME_MASK;
        let units = self.lists.count(Queue::Cold) + self.lists.count(Queue::Hot);
        let is_ghost = present != VACANT && present & IN_PLACE == 0;
        if is_ghost && (age as usize) <= units {
            // SAFETY: the frame was filled by the caller.
            unsafe { arena.heat(frame) }.set(heat::COOL);
            self.lists.push(frame, Queue::Hot);
        } else {
            self.lists.push(frame, Queue::Nursery);
            self.age_nursery(arena);
        }
        Ok(())
    }

    /// Readers that have the frame may still use it.
    pub fn discard(&mut self, frame: u32) {
        self.send_to_limbo(frame);
    }

    pub fn set_capacity(&mut self, arena: &Arena, passed: Ticket, capacity: usize) {
        self.capacity = capacity;
        self.collect(arena, passed);
        let units =
            [Queue::Nursery, Queue::Cold, Queue::Hot].map(|queue| self.lists.count(queue)).iter().sum::<usize>();
        self.evict_until(arena, 0, 4 * units);
        while self.usage() - self.limbo_single_bytes > capacity + self.draining * CHUNK_COST
            && self.drain_one_chunk(arena)
        {}
    }

    pub fn collect(&mut self, arena: &Arena, passed: Ticket) {
        while let Some(&(ticket, frame)) = self.limbo.front() {
            if ticket > passed {
                break;
            }
            self.limbo.pop_front();
            let cost = self.lists.info(frame).cost as usize;
            self.limbo_bytes -= cost;
            if frame & SINGLE_BIT != 0 {
                self.limbo_single_bytes -= cost;
            }
            self.release_or_park(arena, frame);
        }
        for _ in 0..self.parked.len().min(PARKED_LOOKS) {
            if let Some(frame) = self.parked.pop_front() {
                self.release_or_park(arena, frame);
            }
        }
    }

    /// Shrinks to the capacity without waiting for a miss.
    pub fn shrink(&mut self, arena: &Arena, passed: Ticket) {
        self.collect(arena, passed);
        while self.usage() > self.capacity + self.limbo_single_bytes && self.move_overflow(arena) > 0 {}
        self.evict_until(arena, 0, MAX_STEPS);
        if self.usage() > self.capacity && self.limbo.is_empty() && self.draining == 0 {
            self.drain_one_chunk(arena);
        }
    }

    /// Returns all frames that were filled and not reclaimed. No file is left.
    pub fn take_unreclaimed(&mut self) -> Vec<u32> {
        let limbo = std::mem::take(&mut self.limbo).into_iter().map(|(_, frame)| frame);
        limbo.chain(std::mem::take(&mut self.parked)).collect()
    }

    /// Bytes available without more evictions, after reclamation.
    fn available(&self) -> isize {
        signed(self.capacity) + signed(self.limbo_bytes + self.free.len() * FRAME_COST) - signed(self.usage())
    }

    /// Moves singly allocated units of a frame's length into free frames. Returns the number of
    /// examined units.
    fn move_overflow(&mut self, arena: &Arena) -> usize {
        let mut moves = 0;
        while moves < OVERFLOW_MOVES
            && self.usage() > self.capacity + self.limbo_single_bytes
            && self.free.len() > 1
            && let Some(single) = self.overflow.pop_front()
        {
            moves += 1;
            let FrameInfo { file, unit, queue, has_fallen, .. } = *self.lists.info(single);
            let len = match queue {
                // It is gone. If its number was reused, that unit may be moved instead.
                Queue::None => continue,
                // SAFETY: frames in a queue are filled and not reclaimed.
                _ => unsafe { Trailer::bytes(arena.trailer(single)) }.len(),
            };
            if len > FRAME_BYTES {
                continue;
            }
            let Some(slots) = self.files[file as usize].as_ref() else { unreachable!("a file in use") };
            let frame = self.free.pop().expect("there is more than one");
            // SAFETY: the frame is free, hence ours. The source is in a queue, and is not reclaimed
            // while we hold the lock.
            unsafe {
                let source = arena.trailer(single);
                arena.fill_frame(frame, Trailer::bytes(source), 0);
                arena.heat(frame).set(arena.heat(single).get());
            }
            // Release: the frame's bytes are visible before its number.
            slots[unit as usize].frame.store(frame, Ordering::Release);
            self.chunks[(frame / CHUNK_FRAMES) as usize].used += 1;
            let info = self.lists.info(frame);
            (info.file, info.unit, info.has_fallen, info.cost) = (file, unit, has_fallen, FRAME_COST as u32);
            self.lists.push(frame, queue);
            self.lists.unlink(single);
            self.send_to_limbo(single);
        }
        moves
    }

    fn take_frame(&mut self, arena: &Arena) -> Option<u32> {
        if self.free.is_empty() && self.usage() + CHUNK_COST <= self.capacity {
            self.grow(arena);
        }
        let frame = self.free.pop()?;
        self.chunks[(frame / CHUNK_FRAMES) as usize].used += 1;
        self.lists.info(frame).cost = FRAME_COST as u32;
        Some(frame)
    }

    fn grow(&mut self, arena: &Arena) {
        let at = self.chunks.iter().position(|chunk| !chunk.is_present).unwrap_or(self.chunks.len());
        if at >= MAX_CHUNKS || !arena.grow(at as u32) {
            return;
        }
        if at == self.chunks.len() {
            self.chunks.push(Chunk::default());
        }
        self.chunks[at] = Chunk { is_present: true, is_draining: false, used: 0 };
        self.chunk_count += 1;
        let first = at as u32 * CHUNK_FRAMES;
        self.lists.admit(first + CHUNK_FRAMES - 1);
        self.free.extend((first..first + CHUNK_FRAMES).rev());
    }

    fn evict_until(&mut self, arena: &Arena, available: isize, steps: usize) {
        // If all hot units are in use, evict cold ones even if there are few.
        let mut hot_steps = (steps / 4).max(1);
        for _ in 0..steps {
            if self.available() >= available {
                return;
            }
            let cold_bytes = self.lists.bytes(Queue::Cold) + self.lists.bytes(Queue::Nursery);
            let hot = self.lists.oldest(Queue::Hot);
            let cold = self.lists.oldest(Queue::Cold).or_else(|| self.lists.oldest(Queue::Nursery));
            match (cold, hot) {
                (_, Some(hot)) if cold.is_none() || (cold_bytes <= self.capacity / 5 && hot_steps > 0) => {
                    hot_steps = hot_steps.saturating_sub(1);
                    self.age_hot(arena, hot);
                }
                (Some(cold), _) => self.age_cold(arena, cold),
                _ => return,
            }
        }
    }

    fn age_hot(&mut self, arena: &Arena, frame: u32) {
        // SAFETY: frames in a queue are filled and not reclaimed.
        let (trailer, heat): (&Trailer, &Heat) = unsafe { (arena.trailer(frame).as_ref(), arena.heat(frame)) };
        let is_used = heat.get() == heat::TOUCHED || trailer.is_pinned();
        heat.set(heat::COOL);
        self.lists.info(frame).has_fallen = !is_used;
        self.lists.shift(frame, if is_used { Queue::Hot } else { Queue::Cold });
    }

    fn age_cold(&mut self, arena: &Arena, frame: u32) {
        // SAFETY: frames in a queue are filled and not reclaimed.
        let (trailer, heat): (&Trailer, &Heat) = unsafe { (arena.trailer(frame).as_ref(), arena.heat(frame)) };
        // A pinned unit goes round, since use by the scan that loaded it must not make it hot.
        let is_touched = heat.get() == heat::TOUCHED;
        if is_touched || trailer.is_pinned() {
            heat.set(heat::COOL);
            let has_fallen = is_touched && std::mem::take(&mut self.lists.info(frame).has_fallen);
            self.lists.shift(frame, if is_touched && !has_fallen { Queue::Hot } else { Queue::Cold });
        } else {
            self.evict(frame);
        }
    }

    fn evict(&mut self, frame: u32) {
        let FrameInfo { file, unit, has_fallen, .. } = *self.lists.info(frame);
        self.evictions = (self.evictions + 1) & TIME_MASK;
        self.evictions = self.evictions.max(1);
        self.evicted += 1;
        if let Some(slots) = &self.files[file as usize] {
            // Release: ordered before the ticket's closure, which the caller defers later. Once it
            // has run (`passed`), no reader can find the frame here.
            slots[unit as usize].frame.store(VACANT | if has_fallen { 0 } else { self.evictions }, Ordering::Release);
        }
        self.lists.unlink(frame);
        self.send_to_limbo(frame);
    }

    fn send_to_limbo(&mut self, frame: u32) {
        let cost = self.lists.info(frame).cost as usize;
        self.limbo_bytes += cost;
        if frame & SINGLE_BIT != 0 {
            self.limbo_single_bytes += cost;
        }
        self.limbo.push_back((self.ticket, frame));
        self.is_ticket_due = true;
    }

    fn release_or_park(&mut self, arena: &Arena, frame: u32) {
        // SAFETY: the frame was filled, and is reclaimed only below.
        if unsafe { arena.trailer(frame).as_ref() }.is_pinned() {
            self.parked.push_back(frame);
        } else {
            self.release(arena, frame);
        }
    }

    /// Frees a frame that was never published, or was reclaimed and is not pinned.
    fn release(&mut self, arena: &Arena, frame: u32) {
        if frame & SINGLE_BIT != 0 {
            self.single_bytes -= self.lists.info(frame).cost as usize;
            *self.lists.info(frame) = FrameInfo::VACANT;
            // SAFETY: no thread can reach it, see above.
            unsafe { arena.release_single(frame) };
            self.vacant_singles.push(frame);
            return;
        }
        *self.lists.info(frame) = FrameInfo::VACANT;
        let at = frame / CHUNK_FRAMES;
        let chunk = &mut self.chunks[at as usize];
        chunk.used -= 1;
        if !chunk.is_draining {
            self.free.push(frame);
        } else if chunk.used == 0 {
            self.release_chunk(arena, at);
        }
    }

    /// Frees the chunk with the fewest units, once they are reclaimed. False if there is none.
    fn drain_one_chunk(&mut self, arena: &Arena) -> bool {
        let candidates = self.chunks.iter().enumerate().filter(|(_, chunk)| chunk.is_present && !chunk.is_draining);
        let Some(at) = candidates.min_by_key(|(_, chunk)| chunk.used).map(|(at, _)| at as u32) else { return false };
        self.chunks[at as usize].is_draining = true;
        self.draining += 1;
        self.free.retain(|frame| frame / CHUNK_FRAMES != at);
        for frame in at * CHUNK_FRAMES..(at + 1) * CHUNK_FRAMES {
            if self.lists.info(frame).queue != Queue::None {
                self.evict(frame);
            }
        }
        if self.chunks[at as usize].used == 0 {
            self.release_chunk(arena, at);
        }
        true
    }

    fn release_chunk(&mut self, arena: &Arena, at: u32) {
        // SAFETY: none of its frames is in use, in limbo or free.
        unsafe { arena.release_chunk(at) };
        self.chunks[at as usize] = Chunk::default();
        self.chunk_count -= 1;
        self.draining -= 1;
    }

    fn age_nursery(&mut self, arena: &Arena) {
        let all = self.lists.count(Queue::Nursery) + self.lists.count(Queue::Cold) + self.lists.count(Queue::Hot);
        let most = NURSERY_UNITS.min(all / 32);
        while self.lists.count(Queue::Nursery) > most {
            let Some(frame) = self.lists.oldest(Queue::Nursery) else { return };
            // SAFETY: frames in a queue are filled and not reclaimed.
            unsafe { arena.heat(frame) }.set(heat::COOL);
            self.lists.shift(frame, Queue::Cold);
        }
    }
}

fn single_cost(len: usize) -> usize {
    single_bytes(len) + size_of::<FrameInfo>() + size_of::<usize>()
}

fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}
