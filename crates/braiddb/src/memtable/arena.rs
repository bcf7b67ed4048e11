//! A bump allocator whose memory is freed all at once.
//!
//! Nothing is freed, moved or reused before the arena is dropped, so readers may follow any pointer
//! that they have loaded. Nodes and entries have separate chunks, so that nodes stay together and
//! on cache lines. A piece too large for a chunk gets its own.
//!
//! Chunks double in size up to a limit, so a small memtable stays small. Those of a large memtable
//! are huge pages, if possible from a pool, since its memory need not be zeroed.

use super::{chunk_pool::ChunkPool, search};
use crate::platform::pages;
use std::{
    alloc::{Layout, handle_alloc_error},
    ptr::NonNull,
    sync::Arc,
};

const FIRST_CHUNK_BYTES: usize = 16 << 10;

const CHUNK_BYTES_MIN: usize = 1 << 10;

/// Alignment of chunks (a cache line), and the strictest alignment of a piece.
pub(super) const CHUNK_ALIGN: usize = 64;

const PREFETCHED_LINES: usize = 4;

#[derive(Debug)]
struct Bump {
    next: NonNull<u8>,
    left: usize,
    chunk_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Node,
    Entry,
}

#[derive(Debug)]
pub(super) struct Arena {
    nodes: Bump,
    entries: Bump,
    chunks: Vec<(NonNull<u8>, Layout)>,
    chunk_bytes_max: usize,
    reserved: usize,
    pool: Option<Arc<ChunkPool>>,
}

// SAFETY: the arena owns its chunks alone, and `allocate` takes `&mut self`.
unsafe impl Send for Arena {}

impl Arena {
    pub fn new(chunk_bytes: usize, pool: Option<Arc<ChunkPool>>) -> Arena {
        let chunk_bytes_max = chunk_bytes.max(CHUNK_BYTES_MIN);
        let bump = || Bump { next: NonNull::dangling(), left: 0, chunk_bytes: FIRST_CHUNK_BYTES.min(chunk_bytes_max) };
        Arena { nodes: bump(), entries: bump(), chunks: Vec::new(), chunk_bytes_max, reserved: 0, pool }
    }

    pub fn reserved_bytes(&self) -> usize {
        self.reserved
    }

    pub fn used_bytes(&self) -> usize {
        self.reserved - self.nodes.left - self.entries.left
    }

    /// The memory is uninitialised, and valid until the arena is dropped.
    pub fn allocate(&mut self, kind: Kind, layout: Layout) -> NonNull<u8> {
        assert!(layout.align() <= CHUNK_ALIGN, "no piece is aligned more strictly than a chunk");
        // Round the size up so that the next piece of the same kind is aligned too.
        let size = layout.pad_to_align().size();
        let bump = match kind {
            Kind::Node => &self.nodes,
            Kind::Entry => &self.entries,
        };
        if size > bump.left {
            if size > self.chunk_bytes_max / 4 {
                return self.chunk(size);
            }
            let chunk_bytes = bump.chunk_bytes.max(4 * size);
            let kept = self.pool.as_ref().filter(|_| chunk_bytes <= self.chunk_bytes_max).and_then(|p| p.take_kept());
            let (next, chunk_bytes) = match kept {
                Some(kept) => (self.own(kept, ChunkPool::LAYOUT), ChunkPool::LAYOUT.size()),
                None => (self.chunk(chunk_bytes), chunk_bytes),
            };
            let fresh = Bump { next, left: chunk_bytes, chunk_bytes: (2 * chunk_bytes).min(self.chunk_bytes_max) };
            match kind {
                Kind::Node => self.nodes = fresh,
                Kind::Entry => self.entries = fresh,
            }
        }
        let bump = match kind {
            Kind::Node => &mut self.nodes,
            Kind::Entry => &mut self.entries,
        };
        let piece = bump.next;
        debug_assert_eq!(piece.as_ptr().addr() % layout.align(), 0, "each bump serves one alignment");
        // SAFETY: `size <= left`, and the `left` bytes from `next` on belong to one chunk.
        bump.next = unsafe { piece.add(size) };
        bump.left -= size;
        if kind == Kind::Entry {
            for line in 0..PREFETCHED_LINES {
                search::prefetch(bump.next.as_ptr().wrapping_add(line * CHUNK_ALIGN));
            }
        }
        piece
    }

    fn chunk(&mut self, size: usize) -> NonNull<u8> {
        let is_huge = size == ChunkPool::LAYOUT.size();
        let align = if is_huge { ChunkPool::LAYOUT.align() } else { CHUNK_ALIGN };
        let layout = Layout::from_size_align(size.max(1), align).expect("a piece is far below isize::MAX");
        let pointer = match &self.pool {
            Some(pool) if is_huge => pool.take(),
            // SAFETY: the size is not zero.
            _ => NonNull::new(unsafe { pages::reserve(layout) }).unwrap_or_else(|| handle_alloc_error(layout)),
        };
        self.own(pointer, layout)
    }

    fn own(&mut self, pointer: NonNull<u8>, layout: Layout) -> NonNull<u8> {
        self.chunks.push((pointer, layout));
        self.reserved += layout.size();
        if let Some(pool) = &self.pool {
            pool.note_taken(layout.size());
        }
        pointer
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.note_given_back(self.reserved);
        }
        for &(pointer, layout) in &self.chunks {
            match &self.pool {
                // SAFETY: chunks of this layout come from the pool, and are returned only here.
                Some(pool) if layout == ChunkPool::LAYOUT => unsafe { pool.give_back(pointer) },
                // SAFETY: allocated with this layout in `chunk`, and freed only here.
                _ => unsafe { pages::release(pointer.as_ptr(), layout) },
            }
        }
    }
}
