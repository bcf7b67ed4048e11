//! Where cached units stand in memory: one of the islands of unsafe.
//!
//! A unit is found by its **frame number**, without a table of units. Units of about a block live in frames of
//! equal size, cut from chunks of 2 MiB that are aligned for huge pages (the first one is of small pages); a frame's address follows from its number
//! and the address of its chunk. All other units are allocated one by one; a two-level table gives their addresses.
//!
//! ```text
//! frame number   0..2^30          frame `n % 504` of chunk `n / 504`
//!                2^30..2^31       unit `n - 2^30` of the table of single units
//!
//! chunk          504 x { 4096 bytes of data, 64 bytes of trailer }, then the chunk's own trailer
//! single unit    data, padded at its front to a multiple of 64, then 64 bytes of trailer
//! ```
//!
//! Data is **right-aligned**: it ends where the trailer begins. So whoever reads the end of a unit first (as blocks with a
//! slot array at their end want) needs no length for that, and a unit of a multiple of 64 bytes is aligned to 64. Who
//! knows the length from elsewhere looks at no trailer; the heats of frames stand in their chunk's.
//!
//! # Who may touch what, and when
//!
//! - A unit's bytes and length are written by the one thread that was given its frame, before it is published (a
//!   release store of the frame number into a slot), and never again until the frame has been reclaimed.
//! - A reader finds the number by an acquire load of the slot while it holds an epoch guard, or counts the unit's
//!   pins up while it holds one. So a frame may be reused or freed only when it has been taken out of its slot, the
//!   epoch has passed since, and its pins are then zero: nobody can find it to count it up any more.
//! - Chunks and single units are freed under the same condition. When the cache itself goes while units are still
//!   pinned, those are marked as orphans, and the last pin to go frees the memory.

use crate::platform::pages::{self, Zeroed};
use std::{
    alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error},
    ops::{Index, Range},
    ptr::{NonNull, null_mut},
    sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering, fence},
};

/// The most bytes of a unit in a frame.
pub(super) const FRAME_BYTES: usize = 4096;
/// What a frame takes with its trailer.
const FRAME_STRIDE: usize = FRAME_BYTES + size_of::<Trailer>();
/// The length and alignment of a chunk.
pub(super) const CHUNK_BYTES: usize = 2 << 20;
/// How many frames a chunk has.
pub(super) const CHUNK_FRAMES: u32 = 504;
/// Where a chunk's own trailer stands.
const CHUNK_TRAILER_AT: usize = CHUNK_FRAMES as usize * FRAME_STRIDE;
/// The most chunks; 128 GiB of them.
pub(super) const MAX_CHUNKS: usize = 1 << 16;
/// The bit of a frame number that tells single units from frames of a chunk.
pub(super) const SINGLE_BIT: u32 = 1 << 30;
/// A line of the processor's caches.
pub(super) const LINE_BYTES: usize = 64;
/// How much of an item is looked at first.
const BEGINNING_BYTES: usize = 40;
/// Of items no longer than that all lines are asked for, since what is not part of the beginning of one mostly is of the next.
const WHOLE_ITEM_BYTES_MAX: usize = 192;
/// How many single units a segment of their table has.
const SEGMENT_UNITS: usize = 1 << 12;
/// The most segments.
const MAX_SEGMENTS: usize = 1 << 16;
/// Set in a trailer's pins when the cache is gone and the last pin frees the memory.
const ORPHAN: u32 = 1 << 31;

const _: () = assert!(CHUNK_TRAILER_AT + size_of::<ChunkTrailer>() <= CHUNK_BYTES);
const _: () = assert!(MAX_CHUNKS * (CHUNK_FRAMES as usize) < SINGLE_BIT as usize);
const _: () = assert!(MAX_SEGMENTS * SEGMENT_UNITS < SINGLE_BIT as usize);

/// What a unit's use tells the eviction.
pub(super) mod heat {
    /// Just loaded: touches do not count yet, since they are likely to belong to what loaded it.
    pub const NEW: u8 = 0;
    /// Not touched since it was last looked at.
    pub const COOL: u8 = 1;
    /// Touched.
    pub const TOUCHED: u8 = 2;
}

/// One of [`heat`]. A hint, so all its accesses are relaxed.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(super) struct Heat(AtomicU8);

impl Heat {
    /// Its value.
    #[inline]
    pub fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    /// Changes it.
    #[inline]
    pub fn set(&self, heat: u8) {
        self.0.store(heat, Ordering::Relaxed);
    }

    /// Records a use. Writes only when that says something new, so that hot units stay shared between processors.
    #[inline]
    pub fn touch(&self) {
        if self.get() == heat::COOL {
            self.set(heat::TOUCHED);
        }
    }
}

/// What stands behind a unit's bytes.
#[repr(C, align(64))]
pub(super) struct Trailer {
    /// The unit's length.
    len: u32,
    /// How many handles count it; [`ORPHAN`] besides.
    pins: AtomicU32,
    /// The [`Heat`] of a single unit; a frame's stands with that of others, at the end of its chunk.
    heat: Heat,
    /// The chunk the frame is of; null for a single unit.
    chunk: *mut u8,
}

impl Trailer {
    /// Whether a handle counts the unit. Acquire: what its readers did happens before what the caller does next.
    #[inline]
    pub fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) != 0
    }

    /// The unit's bytes.
    ///
    /// # Safety
    /// `this` is a filled unit that is not reclaimed for `'a`.
    #[inline]
    pub unsafe fn bytes<'a>(this: NonNull<Trailer>) -> &'a [u8] {
        // SAFETY: the caller vouches that the trailer is there; right before it stand `len` initialised bytes of the
        // same allocation, which nobody writes until the unit is reclaimed.
        unsafe { Trailer::last_bytes(this, (*this.as_ptr()).len as usize) }
    }

    /// The last `len` bytes of the unit, without a look at the trailer.
    ///
    /// # Safety
    /// As [`Trailer::bytes`], and the unit has so many.
    #[inline(always)]
    pub unsafe fn last_bytes<'a>(this: NonNull<Trailer>, len: usize) -> &'a [u8] {
        // SAFETY: right before the trailer stand the unit's bytes.
        unsafe { std::slice::from_raw_parts(this.as_ptr().cast::<u8>().sub(len), len) }
    }
}

/// Where a unit begins that will be read soon: a guess, to be fetched by and for nothing else; nowhere by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ahead(usize);

impl Ahead {
    /// Of what stands from an address on. Any number will do.
    #[inline(always)]
    pub fn from_address(address: usize) -> Ahead {
        Ahead(address)
    }

    /// Whether it is anywhere.
    #[inline(always)]
    pub fn is_somewhere(self) -> bool {
        self.0 != 0
    }

    /// Asks the processor for so many lines from a byte of the unit on.
    #[inline(always)]
    pub fn prefetch<const LINES: usize>(self, offset: usize) {
        if self.0 != 0 {
            for line in 0..LINES {
                prefetch_far_line(at(self.0.wrapping_add(offset + 64 * line)));
            }
        }
    }
}

/// Where a unit ends that will be read soon, and where its trailer begins if it is in a frame: a guess, to be fetched by and
/// for nothing else; nowhere by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hint(usize);

impl Hint {
    /// A hint at a unit in memory that ends there.
    pub(super) fn at_end(address: usize) -> Hint {
        Hint(address)
    }

    /// Asks the processor for the lines that stand so many bytes before the unit's end, if the hint has a place. Any numbers will do.
    #[inline]
    pub fn prefetch<const N: usize>(self, soon: [usize; N]) {
        if self.0 != 0 {
            self.prefetch_before(soon);
        }
    }

    /// Asks the processor for the lines that stand so many bytes before the unit's end. Any numbers will do.
    #[inline(always)]
    pub fn prefetch_before<const N: usize>(self, soon: [usize; N]) {
        for before in soon {
            prefetch_line(at(self.0.wrapping_sub(before)));
        }
    }

    /// Asks the processor for the last lines of a page, in one of which the unit in it mostly ends.
    #[inline(always)]
    pub fn prefetch_page_end(self) {
        for before in [64, 128, 192] {
            prefetch_line(at(self.0.wrapping_sub(before)));
        }
    }

    /// Asks the processor for the first lines of an item that begins where the hint points.
    #[inline(always)]
    pub fn prefetch_item(self) {
        for line in [0, 64, 128] {
            prefetch_line(at(self.0.wrapping_add(line)));
        }
    }

    /// Asks the processor for the item so many bytes before the end of a page. Any number will do.
    #[inline(always)]
    pub fn prefetch_item_in_page(self, before_end: usize) {
        for line in [0, 64, 128] {
            prefetch_line(at(self.0.wrapping_sub(before_end).wrapping_add(line)));
        }
    }

    /// Where the lines stand that [`Hint::prefetch_items`] asks for, if the hint has a place, and unless it asks only for the beginnings of items.
    #[inline]
    pub fn lines_of_items(self, before_end: usize, items: u32, stride: usize) -> Option<Range<usize>> {
        if self.0 == 0 || stride > WHOLE_ITEM_BYTES_MAX {
            return None;
        }
        let start = self.0.wrapping_sub(before_end);
        Some(start - start % LINE_BYTES..start.wrapping_add(items as usize * stride))
    }

    /// Asks the processor for some items of a unit, or the beginnings of long ones, which lie `stride` bytes apart from so many before its
    /// end. Any numbers will do.
    #[inline]
    pub fn prefetch_items(self, before_end: usize, items: u32, stride: usize) {
        if self.0 == 0 {
            return;
        }
        if let Some(lines) = self.lines_of_items(before_end, items, stride) {
            for line in lines.step_by(LINE_BYTES) {
                prefetch_far_line(at(line));
            }
            return;
        }
        let mut item = self.0.wrapping_sub(before_end);
        for _ in 0..items {
            // Often this is one line twice, which is cheaper than to find out.
            prefetch_far_line(at(item));
            prefetch_far_line(at(item.wrapping_add(BEGINNING_BYTES)));
            item = item.wrapping_add(stride);
        }
    }

    /// Asks the processor for so many bytes at the end of a unit of about `len` bytes, and says where it begins. Any numbers will do.
    #[inline]
    pub fn ahead(self, len: usize, end_bytes: usize) -> Ahead {
        if self.0 == 0 {
            return Ahead::default();
        }
        self.prefetch_before([1, end_bytes]);
        Ahead(self.0.wrapping_sub(len))
    }
}

/// An address to prefetch.
#[inline(always)]
fn at(address: usize) -> *const u8 {
    std::ptr::without_provenance(address)
}

/// What stands at the end of a chunk.
#[repr(C)]
struct ChunkTrailer {
    /// Those of the chunk's frames, side by side: eviction's knowledge is not to cost a reader a line of each unit.
    heats: [Heat; CHUNK_FRAMES as usize],
    /// How many pinned frames, and whoever marks them as orphans, keep a chunk whose cache is gone.
    orphans: AtomicU32,
}

/// The address of each frame. Shared by all threads; the rules are in the file's comment.
#[derive(Debug)]
pub(super) struct Arena {
    chunks: Table<u8>,
    segments: Table<AtomicPtr<Trailer>>,
}

/// A table that takes memory only where it is written. So it is walked no further than that: small databases are opened and closed by
/// the thousand, and their tables are nearly empty.
#[derive(Debug)]
struct Table<T> {
    entries: Zeroed<AtomicPtr<T>>,
    /// All entries from there on are null.
    end: AtomicUsize,
}

impl<T> Table<T> {
    fn new(len: usize) -> Table<T> {
        Table { entries: Zeroed::new(len), end: AtomicUsize::new(0) }
    }

    /// To be called before an entry is written.
    fn reach(&self, index: usize) {
        self.end.fetch_max(index + 1, Ordering::Relaxed);
    }

    /// Those that were ever written. Nobody else uses the table any more.
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
    /// An arena without chunks.
    pub fn new() -> Arena {
        Arena { chunks: Table::new(MAX_CHUNKS), segments: Table::new(MAX_SEGMENTS) }
    }

    /// An arena that holds nothing, and is to hold nothing.
    pub fn empty() -> Arena {
        Arena { chunks: Table::new(0), segments: Table::new(0) }
    }

    /// The trailer of a frame.
    ///
    /// # Safety
    /// `frame` was filled and is not reclaimed while the result is used. The caller has seen its number in a way
    /// that orders the filling before this call (the slot's acquire load, or the clock's lock).
    #[inline]
    pub unsafe fn trailer(&self, frame: u32) -> NonNull<Trailer> {
        // Relaxed: the table's entries were stored before the frame was published, see above.
        let pointer = if frame & SINGLE_BIT == 0 {
            let chunk = self.chunks[(frame / CHUNK_FRAMES) as usize].load(Ordering::Relaxed);
            let at = (frame % CHUNK_FRAMES) as usize * FRAME_STRIDE + FRAME_BYTES;
            // SAFETY: the frame's chunk is there, and `at` is within it and a multiple of 64.
            unsafe { chunk.add(at).cast::<Trailer>() }
        } else {
            let index = (frame ^ SINGLE_BIT) as usize;
            let segment = self.segments[index / SEGMENT_UNITS].load(Ordering::Relaxed);
            // SAFETY: the unit's segment is there and has `SEGMENT_UNITS` entries.
            unsafe { (*segment.add(index % SEGMENT_UNITS)).load(Ordering::Relaxed) }
        };
        debug_assert!(!pointer.is_null());
        // SAFETY: a frame that is not reclaimed has memory.
        unsafe { NonNull::new_unchecked(pointer) }
    }

    /// The heat of a unit.
    ///
    /// # Safety
    /// As for [`Arena::trailer`].
    #[inline]
    pub unsafe fn heat(&self, frame: u32) -> &Heat {
        // SAFETY: the caller vouches that the unit is there, and so are its chunk or its trailer.
        unsafe {
            if frame & SINGLE_BIT == 0 {
                let chunk = self.chunks[(frame / CHUNK_FRAMES) as usize].load(Ordering::Relaxed);
                &(*chunk.add(CHUNK_TRAILER_AT).cast::<ChunkTrailer>()).heats[(frame % CHUNK_FRAMES) as usize]
            } else {
                &(*self.trailer(frame).as_ptr()).heat
            }
        }
    }

    /// Where a unit ends, guessed: nowhere for single units, and of no use if the frame was reclaimed meanwhile.
    #[inline]
    pub fn hint(&self, frame: u32) -> Hint {
        if frame & SINGLE_BIT != 0 {
            return Hint::default();
        }
        let chunk = self.chunks[(frame / CHUNK_FRAMES) as usize].load(Ordering::Relaxed);
        Hint(chunk.wrapping_add((frame % CHUNK_FRAMES) as usize * FRAME_STRIDE + FRAME_BYTES).addr())
    }

    /// Allocates a chunk; `false` if the system has no memory for it.
    pub fn grow(&self, chunk: u32) -> bool {
        // Of many databases little is ever in the cache.
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

    /// Frees a chunk.
    ///
    /// # Safety
    /// Each of its frames was reclaimed, or never filled, and none is filled any more.
    pub unsafe fn release_chunk(&self, chunk: u32) {
        let memory = self.chunks[chunk as usize].swap(null_mut(), Ordering::Relaxed);
        // SAFETY: `grow` allocated it with this layout; nobody can reach it any more.
        unsafe { pages::release(memory, chunk_layout()) };
    }

    /// Writes a unit into a frame of a chunk.
    ///
    /// # Safety
    /// The caller owns the frame: it was reclaimed or never filled, and was given to nobody else.
    pub unsafe fn fill_frame(&self, frame: u32, bytes: &[u8], pins: u32) -> NonNull<Trailer> {
        assert!(bytes.len() <= FRAME_BYTES && frame & SINGLE_BIT == 0);
        let chunk = self.chunks[(frame / CHUNK_FRAMES) as usize].load(Ordering::Relaxed);
        let at = (frame % CHUNK_FRAMES) as usize * FRAME_STRIDE + FRAME_BYTES;
        // SAFETY: the trailer is within the chunk, and the frame's data, at least `bytes.len()` long, before it.
        unsafe {
            chunk_trailer(chunk).heats[(frame % CHUNK_FRAMES) as usize].set(heat::NEW);
            write_unit(chunk.add(at).cast(), bytes, pins, chunk)
        }
    }

    /// Allocates a single unit.
    ///
    /// # Safety
    /// The caller owns the number: it is in no other thread's hands, and stands for no unit.
    pub unsafe fn fill_single(&self, frame: u32, bytes: &[u8], pins: u32) -> NonNull<Trailer> {
        let index = (frame ^ SINGLE_BIT) as usize;
        let entry = self.segment(index / SEGMENT_UNITS);
        let layout = single_layout(bytes.len());
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc(layout) };
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: the trailer is the last part of the allocation, aligned since the layout's length is a multiple of
        // 64, and the data fits before it.
        let trailer =
            unsafe { write_unit(memory.add(layout.size() - size_of::<Trailer>()).cast(), bytes, pins, null_mut()) };
        // SAFETY: a segment has `SEGMENT_UNITS` entries.
        unsafe { (*entry.add(index % SEGMENT_UNITS)).store(trailer.as_ptr(), Ordering::Relaxed) };
        trailer
    }

    /// The table's segment, allocated if it is not there yet. Two threads may fill units of one segment at once.
    fn segment(&self, segment: usize) -> *mut AtomicPtr<Trailer> {
        // Acquire and release: the segment's zeros come before its address.
        let present = self.segments[segment].load(Ordering::Acquire);
        if !present.is_null() {
            return present;
        }
        self.segments.reach(segment);
        let fresh = Box::into_raw(zeroed_table::<Trailer>(SEGMENT_UNITS)).cast::<AtomicPtr<Trailer>>();
        match self.segments[segment].compare_exchange(null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => fresh,
            Err(theirs) => {
                // SAFETY: `fresh` came from a box of this length and was shown to nobody.
                drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(fresh, SEGMENT_UNITS)) });
                theirs
            }
        }
    }

    /// Frees a single unit.
    ///
    /// # Safety
    /// It was reclaimed: out of its slot, the epoch passed since, its pins zero.
    pub unsafe fn release_single(&self, frame: u32) {
        // SAFETY: the unit is there until we free it here.
        unsafe { free_single(self.trailer(frame)) };
    }

    /// Frees all memory but what is pinned; that is freed by the last pin. `filled` are the frames that were filled
    /// and not reclaimed.
    ///
    /// # Safety
    /// All filled frames are out of their slots and the epoch has passed since, so only handles that count them can
    /// reach them. `filled` is complete.
    pub unsafe fn dispose(mut self, filled: &[u32]) {
        for chunk in self.chunks.written() {
            let memory = chunk.load(Ordering::Relaxed);
            if !memory.is_null() {
                // SAFETY: the chunk is there until its last orphan and we let go of it.
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
                // SAFETY: we hold the count that was set above.
                unsafe { let_go_of_chunk(memory) };
            }
        }
        for segment in self.segments.written() {
            let memory = segment.load(Ordering::Acquire);
            if !memory.is_null() {
                // SAFETY: it came from a box of this length; pins hold the units' addresses, not the table's.
                drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(memory, SEGMENT_UNITS)) });
            }
        }
    }
}

/// A counted unit: it is not reclaimed while this handle lives, whatever becomes of the cache.
#[derive(Debug)]
pub(super) struct Pin {
    trailer: NonNull<Trailer>,
}

// SAFETY: the unit's bytes do not change while it is pinned, and its counters are atomic.
unsafe impl Send for Pin {}
// SAFETY: as above.
unsafe impl Sync for Pin {}

impl Pin {
    /// Counts a unit up.
    ///
    /// # Safety
    /// The unit is filled and cannot be reclaimed during the call: the caller holds an epoch guard under which it
    /// found the unit in its slot, or the clock's lock while the unit is in its slot.
    #[inline]
    pub unsafe fn new(trailer: NonNull<Trailer>) -> Pin {
        // Relaxed: the guard or the lock orders it before the reclaimer's look at the count.
        // SAFETY: the caller vouches for the unit.
        unsafe { trailer.as_ref() }.pins.fetch_add(1, Ordering::Relaxed);
        Pin { trailer }
    }

    /// The handle of a unit that was filled with a count for it.
    ///
    /// # Safety
    /// That count belongs to this handle.
    pub unsafe fn adopt(trailer: NonNull<Trailer>) -> Pin {
        Pin { trailer }
    }

    /// The unit's bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: a counted unit is not reclaimed.
        unsafe { Trailer::bytes(self.trailer) }
    }
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        // Release: our reads happen before whoever sees the count reuses the memory.
        // SAFETY: a counted unit is not reclaimed.
        let before = unsafe { self.trailer.as_ref() }.pins.fetch_sub(1, Ordering::Release);
        if before == ORPHAN | 1 {
            // Acquire: the reads of all other handles happen before the memory goes.
            fence(Ordering::Acquire);
            // SAFETY: the cache is gone, and ours was the last count.
            unsafe { free_orphan(self.trailer) };
        }
    }
}

/// Marks a unit as one whose cache is gone, and frees it if it is not pinned.
///
/// # Safety
/// The unit is filled, not reclaimed, and can be reached by counted handles only; called once a unit.
unsafe fn orphan(trailer: NonNull<Trailer>) {
    // SAFETY: the unit is there until the last count is gone, and the chunk until its orphans are.
    unsafe {
        let (pins, chunk) = ((*trailer.as_ptr()).pins.as_ptr(), (*trailer.as_ptr()).chunk);
        if !chunk.is_null() {
            // Before the mark, so that a pin that goes right after it finds itself counted.
            chunk_trailer(chunk).orphans.fetch_add(1, Ordering::Relaxed);
        }
        if AtomicU32::from_ptr(pins).fetch_or(ORPHAN, Ordering::AcqRel) == 0 {
            free_orphan(trailer);
        }
    }
}

/// # Safety
/// The unit is an orphan and its last count is gone.
unsafe fn free_orphan(trailer: NonNull<Trailer>) {
    // SAFETY: nobody else can reach the unit.
    unsafe {
        let chunk = (*trailer.as_ptr()).chunk;
        if chunk.is_null() {
            free_single(trailer);
        } else {
            let_go_of_chunk(chunk);
        }
    }
}

/// # Safety
/// The caller owns one of the chunk's orphan counts.
unsafe fn let_go_of_chunk(memory: *mut u8) {
    // SAFETY: the chunk is there while there are counts.
    let before = unsafe { chunk_trailer(memory) }.orphans.fetch_sub(1, Ordering::Release);
    if before == 1 {
        fence(Ordering::Acquire);
        // SAFETY: the last count is gone, and the arena too.
        unsafe { pages::release(memory, chunk_layout()) };
    }
}

/// # Safety
/// The unit is a single one, and nobody else can reach it.
unsafe fn free_single(trailer: NonNull<Trailer>) {
    // SAFETY: the allocation ends with the trailer and has the layout that its length gives.
    unsafe {
        let layout = single_layout((*trailer.as_ptr()).len as usize);
        let memory = trailer.as_ptr().cast::<u8>().sub(layout.size() - size_of::<Trailer>());
        dealloc(memory, layout);
    }
}

/// # Safety
/// `memory` is a chunk that outlives the result.
unsafe fn chunk_trailer<'a>(memory: *mut u8) -> &'a ChunkTrailer {
    // SAFETY: `grow` wrote it there.
    unsafe { &*memory.add(CHUNK_TRAILER_AT).cast::<ChunkTrailer>() }
}

/// # Safety
/// `trailer` is aligned and owned by the caller, and so are the `bytes.len()` bytes before it.
unsafe fn write_unit(trailer: *mut Trailer, bytes: &[u8], pins: u32, chunk: *mut u8) -> NonNull<Trailer> {
    #[expect(clippy::cast_possible_truncation, reason = "asserted")]
    let len = {
        assert!(bytes.len() <= u32::MAX as usize, "a unit of {} bytes", bytes.len());
        bytes.len() as u32
    };
    // SAFETY: see above; source and target do not overlap, since the target is nobody else's.
    unsafe {
        trailer.write(Trailer { len, pins: AtomicU32::new(pins), heat: Heat::default(), chunk });
        trailer.cast::<u8>().sub(bytes.len()).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        NonNull::new_unchecked(trailer)
    }
}

/// What a single unit of `len` bytes takes.
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

/// A segment of null pointers.
fn zeroed_table<T>(len: usize) -> Box<[AtomicPtr<T>]> {
    let layout = Layout::array::<AtomicPtr<T>>(len).expect("constants");
    assert!(layout.size() > 0);
    // SAFETY: the layout is that of a slice of `len` pointers, for which zeros are null, and it is not empty.
    unsafe {
        let memory = alloc_zeroed(layout).cast::<AtomicPtr<T>>();
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        Box::from_raw(std::ptr::slice_from_raw_parts_mut(memory, len))
    }
}

/// Asks the processor for all lines of a value.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    for line in (0..size_of::<T>()).step_by(64) {
        prefetch_line(start.wrapping_add(line));
    }
}

#[inline]
fn prefetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is allowed and has no effect that can be seen; SSE is always there.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The same for one of many: it comes as far as the second-level cache, on whose way there is room for more at a time.
#[inline]
fn prefetch_far_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
