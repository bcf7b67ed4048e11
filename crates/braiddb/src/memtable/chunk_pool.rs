//! A pool of huge pages, passed from one memtable to the next.
//!
//! Zeroing new pages costs a tenth of the time of all inserts. So the pool keeps the chunks of
//! dropped memtables, within a limit on kept and lent chunks. It also counts the memory of all
//! memtables, smaller chunks included.

use crate::platform::pages::{self, HUGE_PAGE_BYTES};
use parking_lot::Mutex;
use std::{
    alloc::{Layout, handle_alloc_error},
    ptr::NonNull,
    sync::atomic::{AtomicUsize, Ordering},
};

#[derive(Debug)]
pub struct ChunkPool {
    chunks_max: usize,
    state: Mutex<State>,
    taken_bytes: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    kept: Vec<NonNull<u8>>,
    in_use: usize,
}

// SAFETY: the pool owns the chunks that it keeps, and never reads them.
unsafe impl Send for State {}

impl ChunkPool {
    pub(super) const LAYOUT: Layout = match Layout::from_size_align(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    };

    pub fn new(bytes_max: usize) -> ChunkPool {
        ChunkPool { chunks_max: bytes_max / HUGE_PAGE_BYTES, state: Mutex::default(), taken_bytes: AtomicUsize::new(0) }
    }

    /// Makes a pool for `count` memtables that are frozen at `memtable_bytes`.
    pub fn for_memtables(count: usize, memtable_bytes: usize) -> ChunkPool {
        // Each memtable uses its last chunks of nodes and of entries only in part.
        ChunkPool::new(count * (memtable_bytes + 2 * HUGE_PAGE_BYTES))
    }

    pub fn bytes(&self) -> usize {
        self.state.lock().kept.len() * HUGE_PAGE_BYTES
    }

    #[inline]
    pub fn taken_bytes(&self) -> usize {
        self.taken_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn note_taken(&self, bytes: usize) {
        self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn note_given_back(&self, bytes: usize) {
        self.taken_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn ready(&self) -> usize {
        self.state.lock().kept.len()
    }

    /// Adds a chunk with populated memory. False if the pool is full or there is no memory.
    pub(super) fn prepare(&self) -> bool {
        if self.is_full(&self.state.lock()) {
            return false;
        }
        // SAFETY: the layout is not empty, and the chunk has that layout.
        let new = unsafe {
            let new = pages::reserve(Self::LAYOUT);
            pages::populate(new, Self::LAYOUT);
            new
        };
        let Some(chunk) = NonNull::new(new) else { return false };
        let mut state = self.state.lock();
        if self.is_full(&state) {
            drop(state);
            // SAFETY: reserved with this layout, and not in use.
            unsafe { pages::release(new, Self::LAYOUT) };
            return false;
        }
        state.kept.push(chunk);
        true
    }

    fn is_full(&self, state: &State) -> bool {
        state.in_use + state.kept.len() >= self.chunks_max
    }

    pub fn trim(&self) {
        for chunk in std::mem::take(&mut self.state.lock().kept) {
            // SAFETY: reserved with this layout in `take` or `prepare`, and not in use.
            unsafe { pages::release(chunk.as_ptr(), Self::LAYOUT) };
        }
    }

    pub(super) fn take(&self) -> NonNull<u8> {
        self.take_kept().unwrap_or_else(|| {
            self.state.lock().in_use += 1;
            // SAFETY: the layout is not empty.
            let new = unsafe { pages::reserve(Self::LAYOUT) };
            NonNull::new(new).unwrap_or_else(|| handle_alloc_error(Self::LAYOUT))
        })
    }

    pub(super) fn take_kept(&self) -> Option<NonNull<u8>> {
        let mut state = self.state.lock();
        let kept = state.kept.pop()?;
        state.in_use += 1;
        Some(kept)
    }

    /// # Safety
    /// It came from [`ChunkPool::take`] or [`ChunkPool::take_kept`] of this pool and is not in use.
    pub(super) unsafe fn give_back(&self, chunk: NonNull<u8>) {
        let mut state = self.state.lock();
        state.in_use -= 1;
        if !self.is_full(&state) {
            state.kept.push(chunk);
            return;
        }
        drop(state);
        // SAFETY: reserved with this layout in `take` or `prepare`; the caller does not use it.
        unsafe { pages::release(chunk.as_ptr(), Self::LAYOUT) };
    }
}

impl Drop for ChunkPool {
    fn drop(&mut self) {
        self.trim();
    }
}
