//! Memory of cached units: one of the islands of unsafe.
//!
//! A unit is found by its **frame number**. Units longer than half a frame live in frames of equal
//! size, cut from chunks of 2 MiB that are aligned for huge pages (the first has small pages).
//! Shorter units, and those longer than a frame, are allocated singly; a two-level table has their
//! addresses.
//!
//! ```text
//! frame number   0..2^30          frame `n % 504` of chunk `n / 504`
//!                2^30..2^31       unit `n - 2^30` of the table of single units
//! chunk          504 x { 4096 bytes of data, 64 bytes of trailer }, then the chunk's own trailer
//! single unit    data, padded at its front to a multiple of 64, then 64 bytes of trailer
//! ```
//!
//! Data is **right-aligned**: it ends where the trailer begins. So a reader that starts at a unit's
//! end needs no length, and one that knows the length reads no trailer.
//!
//! # Access rules
//!
//! - The one thread that received a frame writes the unit's bytes and length, then publishes the
//!   frame number by a release store into a slot. They stay unchanged until the frame is reclaimed.
//! - A reader loads the slot with acquire under a guard of the epoch collector (crossbeam-epoch);
//!   to pin the unit, it increments the pins under that guard. So a frame may be reused or freed
//!   only after it left its slot, all guards of that time ended (the epoch passed), and its pins
//!   are zero: then no thread can find it to pin it.
//! - Chunks and single units are freed under the same condition. If the cache is dropped while
//!   units are pinned, they become orphans, and the last unpin frees the memory.

use super::hint::Hint;
use crate::platform::pages::{self, Zeroed};
use std::{
    alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error},
    ops::Index,
    ptr::{NonNull, null_mut},
    sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering, fence},
};

pub(super) const FRAME_BYTES: usize = 4096;
const FRAME_STRIDE: usize = FRAME_BYTES + size_of::<Trailer>();
pub(super) const CHUNK_BYTES: usize = 2 << 20;
pub(super) const CHUNK_FRAMES: u32 = 504;
const CHUNK_TRAILER_AT: usize = CHUNK_FRAMES as usize * FRAME_STRIDE;
/// Maximum number of chunks: 128 GiB.
pub(super) const MAX_CHUNKS: usize = 1 << 16;
pub(super) const SINGLE_BIT: u32 = 1 << 30;
pub(super) const LINE_BYTES: usize = 64;
const SEGMENT_UNITS: usize = 1 << 12;
const MAX_SEGMENTS: usize = 1 << 16;
/// Set in a trailer's pins when the cache is gone. The last unpin then frees the memory.
const ORPHAN: u32 = 1 << 31;

const _: () = assert!(CHUNK_TRAILER_AT + size_of::<ChunkTrailer>() <= CHUNK_BYTES);
const _: () = assert!(MAX_CHUNKS * (CHUNK_FRAMES as usize) < SINGLE_BIT as usize);
const _: () = assert!(MAX_SEGMENTS * SEGMENT_UNITS < SINGLE_BIT as usize);

pub(super) mod heat {
    /// Touches by the operation that loaded the unit do not count.
    pub const NEW: u8 = 0;
    pub const COOL: u8 = 1;
    pub const TOUCHED: u8 = 2;
}

/// One of [`heat`]. A hint, so all accesses are relaxed.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(super) struct Heat(AtomicU8);

impl Heat {
    #[inline]
    pub fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn set(&self, heat: u8) {
        self.0.store(heat, Ordering::Relaxed);
    }

    /// Writes only on change: the line of a hot unit stays shared between processors.
    #[inline]
    pub fn touch(&self) {
        if self.get() == heat::COOL {
            self.set(heat::TOUCHED);
        }
    }
}

#[repr(C, align(64))]
pub(super) struct Trailer {
    len: u32,
    /// Number of handles that pin the unit, plus the bit [`ORPHAN`].
    pins: AtomicU32,
    /// The heat of a single unit; frames have theirs in the chunk's trailer.
    heat: Heat,
    /// Null for a single unit.
    chunk: *mut u8,
}

impl Trailer {
    /// Acquire: its readers' accesses happen before the caller's next ones.
    #[inline]
    pub fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) != 0
    }

    /// # Safety
    ///
    /// `this` is a filled unit and is not reclaimed during `'a`.
    #[inline]
    pub unsafe fn bytes<'a>(this: NonNull<Trailer>) -> &'a [u8] {
        // SAFETY: by the caller, the trailer exists. `len` initialised bytes of the same allocation
        // precede it, unchanged until the unit is reclaimed.
        unsafe { Trailer::last_bytes(this, (*this.as_ptr()).len as usize) }
    }

    /// # Safety
    ///
    /// As [`Trailer::bytes`], and the unit has at least `len` bytes.
    #[inline(always)]
    pub unsafe fn last_bytes<'a>(this: NonNull<Trailer>, len: usize) -> &'a [u8] {
        // SAFETY: the unit's bytes precede the trailer.
        unsafe { std::slice::from_raw_parts(this.as_ptr().cast::<u8>().sub(len), len) }
    }
}

#[repr(C)]
struct ChunkTrailer {
    /// Together, so that eviction does not load a line of each unit.
    heats: [Heat; CHUNK_FRAMES as usize],
    /// Pinned frames after the cache is gone, plus one during the marking.
    orphans: AtomicU32,
}

#[derive(Debug)]
pub(super) struct Arena {
    chunks: Table<u8>,
    segments: Table<AtomicPtr<Trailer>>,
}

/// A table allocated on write: many small databases have nearly empty ones.
#[derive(Debug)]
struct Table<T> {
    entries: Zeroed<AtomicPtr<T>>,
    end: AtomicUsize,
}

impl<T> Table<T> {
    fn new(len: usize) -> Table<T> {
        Table { entries: Zeroed::new(len), end: AtomicUsize::new(0) }
    }

    fn reach(&self, index: usize) {
        self.end.fetch_max(index + 1, Ordering::Relaxed);
    }

    fn written(&mut self) -> &[AtomicPtr<T>] {
        &self.entries[..*self.end.get_mut()]
    }
}

impl<T> Index<usize> for Table<T> {
    type Output = AtomicPtr<T>;

    #[inline(always)]
    fn index(&self, index: usize) -> &AtomicPtr<T> {
        &self.entries[index]
    }
}

impl Arena {
    pub fn new() -> Arena {
        Arena { chunks: Table::new(MAX_CHUNKS), segments: Table::new(MAX_SEGMENTS) }
    }

    pub fn empty() -> Arena {
        Arena { chunks: Table::new(0), segments: Table::new(0) }
    }

    /// # Safety
    ///
    /// `frame` was filled and is not reclaimed while the result is used. The caller read its number
    /// in a way that orders the filling before this call (the slot's acquire load, or the clock's
    /// lock).
    #[inline]
    pub unsafe fn trailer(&self, frame: u32) -> NonNull<Trailer> {
        // Relaxed: stored before the frame was published.
        let pointer = if frame & SINGLE_BIT == 0 {
            let chunk = self.chunks[(frame / CHUNK_FRAMES) as usize].load(Ordering::Relaxed);
            let at = (frame % CHUNK_FRAMES) as usize * FRAME_STRIDE + FRAME_BYTES;
            // SAFETY: the chunk exists; `at` is within it and a multiple of 64.
            unsafe { chunk.add(at).cast::<Trailer>() }
        } else {
            let index = (frame ^ SINGLE_BIT) as usize;
            let segment = self.segments[index / SEGMENT_UNITS].load(Ordering::Relaxed);
            // SAFETY: the segment exists and has `SEGMENT_UNITS` entries.
            unsafe { (*segment.add(index % SEGMENT_UNITS)).load(Ordering::Relaxed) }
        };
        debug_assert!(!pointer.is_null());
        // SAFETY: a frame that is not reclaimed has memory.
        unsafe { NonNull::new_unchecked(pointer) }
    }

    /// # Safety
    ///
    /// As for [`Arena::trailer`].
    #[inline]
    pub unsafe fn heat(&self, frame: u32) -> &Heat {
        // SAFETY: by the caller, the unit exists, and so do its chunk or trailer.
        unsafe {
            if frame & SINGLE_BIT == 0 {
                let chunk = self.chunks[(frame / CHUNK_FRAMES) as usize].load(Ordering::Relaxed);
                &(*chunk.add(CHUNK_TRAILER_AT).cast::<ChunkTrailer>()).heats[(frame % CHUNK_FRAMES) as usize]
            } else {
                &(*self.trailer(frame).as_ptr()).heat
            }
        }
    }

    #[inline]
    pub fn hint(&self, frame: u32) -> Hint {
        if frame & SINGLE_BIT != 0 {
            return Hint::default();
        }
        let chunk = self.chunks[(frame / CHUNK_FRAMES) as usize].load(Ordering::Relaxed);
        Hint::at_end(chunk.wrapping_add((frame % CHUNK_FRAMES) as usize * FRAME_STRIDE + FRAME_BYTES).addr())
    }

    /// Returns false if the system has no memory.
    pub fn grow(&self, chunk: u32) -> bool {
        // The cache of many databases stays nearly empty.
        let reserve = if chunk == 0 { pages::reserve_small_pages } else { pages::reserve };
        // SAFETY: the layout is not empty.
        let memory = unsafe { reserve(chunk_layout()) };
        if memory.is_null() {
            return false;
        }
        // SAFETY: the chunk's trailer is within the chunk and aligned.
        unsafe {
            memory.add(CHUNK_TRAILER_AT).cast::<ChunkTrailer>().write(ChunkTrailer {
                heats: [const { Heat(AtomicU8::new(heat::NEW)) }; CHUNK_FRAMES as usize],
                orphans: AtomicU32::new(0),
            });
        }
        self.chunks.reach(chunk as usize);
        self.chunks[chunk as usize].store(memory, Ordering::Relaxed);
        true
    }

    /// # Safety
    ///
    /// Each frame was reclaimed or never filled, and none will be filled.
    pub unsafe fn release_chunk(&self, chunk: u32) {
        let memory = self.chunks[chunk as usize].swap(null_mut(), Ordering::Relaxed);
        // SAFETY: `grow` allocated it with this layout; no other thread can reach it.
        unsafe { pages::release(memory, chunk_layout()) };
    }

    /// # Safety
    ///
    /// The caller alone owns the frame: it was reclaimed or never filled.
    pub unsafe fn fill_frame(&self, frame: u32, bytes: &[u8], pins: u32) -> NonNull<Trailer> {
        assert!(bytes.len() <= FRAME_BYTES && frame & SINGLE_BIT == 0);
        let chunk = self.chunks[(frame / CHUNK_FRAMES) as usize].load(Ordering::Relaxed);
        let at = (frame % CHUNK_FRAMES) as usize * FRAME_STRIDE + FRAME_BYTES;
        // SAFETY: the trailer is within the chunk, behind at least `bytes.len()` bytes of the
        // frame.
        unsafe {
            chunk_trailer(chunk).heats[(frame % CHUNK_FRAMES) as usize].set(heat::NEW);
            write_unit(chunk.add(at).cast(), bytes, pins, chunk)
        }
    }

    /// # Safety
    ///
    /// The caller alone owns the number, and no unit has it.
    pub unsafe fn fill_single(&self, frame: u32, bytes: &[u8], pins: u32) -> NonNull<Trailer> {
        let index = (frame ^ SINGLE_BIT) as usize;
        let entry = self.segment(index / SEGMENT_UNITS);
        let layout = single_layout(bytes.len());
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc(layout) };
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: the trailer ends the allocation, aligned since the layout's length is a multiple
        // of 64, and the data fits before it.
        let trailer =
            unsafe { write_unit(memory.add(layout.size() - size_of::<Trailer>()).cast(), bytes, pins, null_mut()) };
        // SAFETY: a segment has `SEGMENT_UNITS` entries.
        unsafe { (*entry.add(index % SEGMENT_UNITS)).store(trailer.as_ptr(), Ordering::Relaxed) };
        trailer
    }

    /// Two threads may fill units of one segment at once.
    fn segment(&self, segment: usize) -> *mut AtomicPtr<Trailer> {
        // Acquire and release: the segment's zeros are visible before its address.
        let present = self.segments[segment].load(Ordering::Acquire);
        if !present.is_null() {
            return present;
        }
        self.segments.reach(segment);
        let fresh = Box::into_raw(zeroed_table::<Trailer>(SEGMENT_UNITS)).cast::<AtomicPtr<Trailer>>();
        match self.segments[segment].compare_exchange(null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => fresh,
            Err(theirs) => {
                // SAFETY: `fresh` came from a box of this length and was not published.
                drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(fresh, SEGMENT_UNITS)) });
                theirs
            }
        }
    }

    /// # Safety
    ///
    /// The unit was reclaimed: it left its slot, all guards from before that ended, and its pins
    /// are zero.
    pub unsafe fn release_single(&self, frame: u32) {
        // SAFETY: the unit exists until it is freed here.
        unsafe { free_single(self.trailer(frame)) };
    }

    /// Frees all memory except pinned units, which their last unpin frees.
    ///
    /// # Safety
    ///
    /// `filled` are all frames that were filled and not reclaimed. They left their slots, and all
    /// guards from before that ended, so only pins can reach them.
    pub unsafe fn dispose(mut self, filled: &[u32]) {
        for chunk in self.chunks.written() {
            let memory = chunk.load(Ordering::Relaxed);
            if !memory.is_null() {
                // SAFETY: the chunk exists until its last orphan and this call release it.
                unsafe { chunk_trailer(memory).orphans.store(1, Ordering::Relaxed) };
            }
        }
        for &frame in filled {
            // SAFETY: the frame was filled and not reclaimed.
            unsafe { orphan(self.trailer(frame)) };
        }
        for chunk in self.chunks.written() {
            let memory = chunk.load(Ordering::Relaxed);
            if !memory.is_null() {
                // SAFETY: we own the count that was set above.
                unsafe { release_chunk(memory) };
            }
        }
        for segment in self.segments.written() {
            let memory = segment.load(Ordering::Acquire);
            if !memory.is_null() {
                // SAFETY: it came from a box of this length. Pins refer to units, not to the table.
                drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(memory, SEGMENT_UNITS)) });
            }
        }
    }
}

/// A unit that is not reclaimed while this handle lives, even after the cache is gone.
#[derive(Debug)]
pub(super) struct Pin {
    trailer: NonNull<Trailer>,
}

// SAFETY: a pinned unit's bytes do not change, and its counters are atomic.
unsafe impl Send for Pin {}
// SAFETY: as above.
unsafe impl Sync for Pin {}

impl Pin {
    /// # Safety
    ///
    /// The unit is filled and cannot be reclaimed during the call: the caller found it in its slot
    /// under a guard that it still holds, or holds the clock's lock while it is in its slot.
    #[inline]
    pub unsafe fn new(trailer: NonNull<Trailer>) -> Pin {
        // Relaxed: the guard or lock orders it before the reclaimer's read. SAFETY: see above.
        unsafe { trailer.as_ref() }.pins.fetch_add(1, Ordering::Relaxed);
        Pin { trailer }
    }

    /// # Safety
    ///
    /// The unit was filled with a pin that belongs to this handle.
    pub unsafe fn adopt(trailer: NonNull<Trailer>) -> Pin {
        Pin { trailer }
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: a pinned unit is not reclaimed.
        unsafe { Trailer::bytes(self.trailer) }
    }
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        // Release: our reads happen before the memory is reused. SAFETY: a pinned unit is not
        // reclaimed.
        let before = unsafe { self.trailer.as_ref() }.pins.fetch_sub(1, Ordering::Release);
        if before == ORPHAN | 1 {
            // Acquire: all handles' reads happen before the memory is freed.
            fence(Ordering::Acquire);
            // SAFETY: the cache is gone, and ours was the last pin.
            unsafe { free_orphan(self.trailer) };
        }
    }
}

/// Frees the unit unless it is pinned.
///
/// # Safety
///
/// The unit is filled and not reclaimed, only pins can reach it, and its cache is gone. Called once
/// for it.
unsafe fn orphan(trailer: NonNull<Trailer>) {
    // SAFETY: the unit exists until its last pin is gone, and the chunk until its orphans are.
    unsafe {
        let (pins, chunk) = ((*trailer.as_ptr()).pins.as_ptr(), (*trailer.as_ptr()).chunk);
        if !chunk.is_null() {
            // Before the mark, so that a concurrent unpin finds the orphan counted.
            chunk_trailer(chunk).orphans.fetch_add(1, Ordering::Relaxed);
        }
        if AtomicU32::from_ptr(pins).fetch_or(ORPHAN, Ordering::AcqRel) == 0 {
            free_orphan(trailer);
        }
    }
}

/// # Safety
///
/// The unit is an orphan and its last pin is gone.
unsafe fn free_orphan(trailer: NonNull<Trailer>) {
    // SAFETY: no other thread can reach the unit.
    unsafe {
        let chunk = (*trailer.as_ptr()).chunk;
        if chunk.is_null() {
            free_single(trailer);
        } else {
            release_chunk(chunk);
        }
    }
}

/// # Safety
///
/// The caller owns one of the chunk's orphan counts.
unsafe fn release_chunk(memory: *mut u8) {
    // SAFETY: the chunk exists while there are counts.
    let before = unsafe { chunk_trailer(memory) }.orphans.fetch_sub(1, Ordering::Release);
    if before == 1 {
        fence(Ordering::Acquire);
        // SAFETY: the last count and the arena are gone.
        unsafe { pages::release(memory, chunk_layout()) };
    }
}

/// # Safety
///
/// The unit is a single one, and no other thread can reach it.
unsafe fn free_single(trailer: NonNull<Trailer>) {
    // SAFETY: the allocation ends with the trailer and has this layout.
    unsafe {
        let layout = single_layout((*trailer.as_ptr()).len as usize);
        let memory = trailer.as_ptr().cast::<u8>().sub(layout.size() - size_of::<Trailer>());
        dealloc(memory, layout);
    }
}

/// # Safety
///
/// `memory` is a chunk that outlives the result.
unsafe fn chunk_trailer<'a>(memory: *mut u8) -> &'a ChunkTrailer {
    // SAFETY: `grow` wrote it there.
    unsafe { &*memory.add(CHUNK_TRAILER_AT).cast::<ChunkTrailer>() }
}

/// # Safety
///
/// The caller owns `trailer`, which is aligned, and the `bytes.len()` bytes before it.
unsafe fn write_unit(trailer: *mut Trailer, bytes: &[u8], pins: u32, chunk: *mut u8) -> NonNull<Trailer> {
    #[expect(clippy::cast_possible_truncation, reason = "asserted")]
    let len = {
        assert!(bytes.len() <= u32::MAX as usize, "a unit of {} bytes", bytes.len());
        bytes.len() as u32
    };
    // SAFETY: see above; only the caller owns the target, so they do not overlap.
    unsafe {
        trailer.write(Trailer { len, pins: AtomicU32::new(pins), heat: Heat::default(), chunk });
        trailer.cast::<u8>().sub(bytes.len()).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        NonNull::new_unchecked(trailer)
    }
}

pub(super) fn single_bytes(len: usize) -> usize {
    len.next_multiple_of(64) + size_of::<Trailer>()
}

fn single_layout(len: usize) -> Layout {
    Layout::from_size_align(single_bytes(len), align_of::<Trailer>()).expect("a length that is in memory already")
}

fn chunk_layout() -> Layout {
    const { assert!(CHUNK_BYTES.is_power_of_two()) };
    Layout::from_size_align(CHUNK_BYTES, CHUNK_BYTES).expect("constants")
}

fn zeroed_table<T>(len: usize) -> Box<[AtomicPtr<T>]> {
    let layout = Layout::array::<AtomicPtr<T>>(len).expect("constants");
    assert!(layout.size() > 0);
    // SAFETY: the layout of a slice of `len` pointers, not empty; zeros are null pointers.
    unsafe {
        let memory = alloc_zeroed(layout).cast::<AtomicPtr<T>>();
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        Box::from_raw(std::ptr::slice_from_raw_parts_mut(memory, len))
    }
}
