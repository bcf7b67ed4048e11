//! Huge pages kept from one memtable for the next.
//!
//! What the system gives has been zeroed, which for a memtable takes as long as a tenth of all that is put into it. So the
//! chunks of a memtable that is dropped are kept, as long as they and those in use are no more than was agreed.
//!
//! What memtables take in all, smaller chunks included, is counted here too.

use crate::platform::pages::{self, HUGE_PAGE_BYTES};
use parking_lot::Mutex;
use std::{
    alloc::{Layout, handle_alloc_error},
    ptr::NonNull,
    sync::atomic::{AtomicUsize, Ordering},
};

/// What is kept, and how much is out. Any thread may take and give back.
#[derive(Debug)]
pub struct ChunkPool {
    chunks_max: usize,
    state: Mutex<State>,
    taken_bytes: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    kept: Vec<NonNull<u8>>,
    lent: usize,
}

// SAFETY: the pool owns the chunks it keeps alone, and never looks into them.
unsafe impl Send for State {}

impl ChunkPool {
    /// How large a chunk is, and how it is aligned.
    pub(super) const LAYOUT: Layout = match Layout::from_size_align(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    };

    /// An empty pool. It keeps none when what it keeps and has lent would be more than `bytes_max`.
    pub fn new(bytes_max: usize) -> ChunkPool {
        ChunkPool { chunks_max: bytes_max / HUGE_PAGE_BYTES, state: Mutex::default(), taken_bytes: AtomicUsize::new(0) }
    }

    /// An empty pool that keeps as much as so many memtables take that are frozen at `memtable_bytes`.
    pub fn for_memtables(count: usize, memtable_bytes: usize) -> ChunkPool {
        // Of its last two chunks, one of nodes and one of entries, each uses a part.
        ChunkPool::new(count * (memtable_bytes + 2 * HUGE_PAGE_BYTES))
    }

    /// Bytes that it keeps.
    pub fn bytes(&self) -> usize {
        self.state.lock().kept.len() * HUGE_PAGE_BYTES
    }

    /// Bytes that memtables take.
    #[inline]
    pub fn taken_bytes(&self) -> usize {
        self.taken_bytes.load(Ordering::Relaxed)
    }

    /// A memtable takes so many bytes more.
    pub(super) fn note_taken(&self, bytes: usize) {
        self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A memtable has given so many bytes back.
    pub(super) fn note_given_back(&self, bytes: usize) {
        self.taken_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// How many chunks it keeps.
    pub(super) fn ready(&self) -> usize {
        self.state.lock().kept.len()
    }

    /// Keeps one chunk more, whose memory the system has found; `false` if that is more than it keeps, or there is none.
    pub(super) fn prepare(&self) -> bool {
        if self.is_full(&self.state.lock()) {
            return false;
        }
        // SAFETY: the layout is not empty, and the chunk is of that layout.
        let new = unsafe {
            let new = pages::reserve(Self::LAYOUT);
            pages::populate(new, Self::LAYOUT);
            new
        };
        let Some(chunk) = NonNull::new(new) else { return false };
        let mut state = self.state.lock();
        if self.is_full(&state) {
            drop(state);
            // SAFETY: reserved with this layout, and nobody has it.
            unsafe { pages::release(new, Self::LAYOUT) };
            return false;
        }
        state.kept.push(chunk);
        true
    }

    fn is_full(&self, state: &State) -> bool {
        state.lent + state.kept.len() >= self.chunks_max
    }

    /// Gives what it keeps back to the system.
    pub fn trim(&self) {
        for chunk in std::mem::take(&mut self.state.lock().kept) {
            // SAFETY: reserved with this layout in `take` or `prepare`, and nobody has it.
            unsafe { pages::release(chunk.as_ptr(), Self::LAYOUT) };
        }
    }

    /// A chunk, uninitialised.
    pub(super) fn take(&self) -> NonNull<u8> {
        self.take_kept().unwrap_or_else(|| {
            self.state.lock().lent += 1;
            // SAFETY: the layout is not empty.
            let new = unsafe { pages::reserve(Self::LAYOUT) };
            NonNull::new(new).unwrap_or_else(|| handle_alloc_error(Self::LAYOUT))
        })
    }

    /// One of those that are kept, uninitialised.
    pub(super) fn take_kept(&self) -> Option<NonNull<u8>> {
        let mut state = self.state.lock();
        let kept = state.kept.pop()?;
        state.lent += 1;
        Some(kept)
    }

    /// Takes a chunk back.
    ///
    /// # Safety
    /// It came from [`ChunkPool::take`] or [`ChunkPool::take_kept`] of this pool, and nobody uses it any more.
    pub(super) unsafe fn give_back(&self, chunk: NonNull<u8>) {
        let mut state = self.state.lock();
        state.lent -= 1;
        if !self.is_full(&state) {
            state.kept.push(chunk);
            return;
        }
        drop(state);
        // SAFETY: reserved with this layout in `take` or `prepare`, and by the caller nobody uses it any more.
        unsafe { pages::release(chunk.as_ptr(), Self::LAYOUT) };
    }
}

impl Drop for ChunkPool {
    fn drop(&mut self) {
        self.trim();
    }
}
