//! Memory that is handed out piece by piece and given back all at once.
//!
//! An arena takes chunks of memory and cuts pieces off their front. Nothing is freed, moved or reused
//! before the arena is dropped: this is what lets readers follow any pointer they have ever loaded. Nodes and entries
//! come from different chunks, so that nodes stay together and on cache lines. Pieces too large for a chunk get one
//! of their own. Chunks start small and double up to the size in the options, so that a small memtable stays small; that of a
//! large one is a huge page, and may come from a pool. Where the pool keeps some, the first chunk is one of them already: the
//! database is being written, and memory that the system has not to find and zero is the cheapest there is.

use super::{chunk_pool::ChunkPool, search};
use crate::platform::pages;
use std::{
    alloc::{Layout, handle_alloc_error},
    ptr::NonNull,
    sync::Arc,
};

/// The size of the first chunk.
const FIRST_CHUNK_BYTES: usize = 16 << 10;

/// The smallest chunk that options can ask for.
const CHUNK_BYTES_MIN: usize = 1 << 10;

/// How chunks are aligned, and so the strictest alignment of a piece: a cache line.
pub(super) const CHUNK_ALIGN: usize = 64;

/// So many cache lines of the entry to come are asked for.
const PREFETCHED_LINES: usize = 4;

/// The rest of a chunk that pieces are cut from.
#[derive(Debug)]
struct Bump {
    next: NonNull<u8>,
    left: usize,
    /// How large the next chunk will be.
    chunk_bytes: usize,
}

/// Which chunks a piece is cut from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nodes of the tree.
    Node,
    /// Keys and values.
    Entry,
}

/// Owner of all chunks. Used by one thread at a time.
#[derive(Debug)]
pub(super) struct Arena {
    nodes: Bump,
    entries: Bump,
    chunks: Vec<(NonNull<u8>, Layout)>,
    chunk_bytes_max: usize,
    reserved: usize,
    pool: Option<Arc<ChunkPool>>,
}

// SAFETY: the arena owns its chunks alone, and its methods that hand out pieces take `&mut self`.
unsafe impl Send for Arena {}

impl Arena {
    /// An arena without chunks, whose chunks grow to `chunk_bytes`. Huge pages come from the pool, if there is one.
    pub fn new(chunk_bytes: usize, pool: Option<Arc<ChunkPool>>) -> Arena {
        let chunk_bytes_max = chunk_bytes.max(CHUNK_BYTES_MIN);
        let bump = || Bump { next: NonNull::dangling(), left: 0, chunk_bytes: FIRST_CHUNK_BYTES.min(chunk_bytes_max) };
        Arena { nodes: bump(), entries: bump(), chunks: Vec::new(), chunk_bytes_max, reserved: 0, pool }
    }

    /// Bytes taken.
    pub fn reserved_bytes(&self) -> usize {
        self.reserved
    }

    /// Bytes that pieces were cut from.
    pub fn used_bytes(&self) -> usize {
        self.reserved - self.nodes.left - self.entries.left
    }

    /// A piece of uninitialised memory that stays until the arena is dropped. Nobody else has a pointer to it.
    pub fn allocate(&mut self, kind: Kind, layout: Layout) -> NonNull<u8> {
        assert!(layout.align() <= CHUNK_ALIGN, "no piece is aligned more strictly than a chunk");
        // Sizes are rounded so that the next piece of the same kind is aligned too.
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
            // Asked for now, they are there when the next entry is written.
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
                // SAFETY: chunks of this layout come from the pool, and this one is given back only here.
                Some(pool) if layout == ChunkPool::LAYOUT => unsafe { pool.give_back(pointer) },
                // SAFETY: allocated with this layout in `chunk`, and freed only here.
                _ => unsafe { pages::release(pointer.as_ptr(), layout) },
            }
        }
    }
}
