//! The block cache, shared by every open file of a database, or of several.
//!
//! `block_cache.rs` is the face, `arena.rs` the memory, `clock.rs` decides what goes and when its memory comes back,
//! `lists.rs` has the queues for that, `striped_counter.rs` counts without sharing, `mapped.rs` is for files that are read in place.

mod arena;
mod block_cache;
mod clock;
mod lists;
mod mapped;
mod prefetch_queue;
mod striped_counter;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_mapped;

pub use arena::{Ahead, Hint, prefetch};
pub use block_cache::{BlockCache, CacheSlots, CheckTime, UnitNote};
pub use mapped::{MappedFile, PinnedUnit};
pub use prefetch_queue::PrefetchQueue;
