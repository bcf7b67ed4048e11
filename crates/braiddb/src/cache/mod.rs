//! The block cache, shared by all open files of one or several databases.
//!
//! `block_cache.rs` is the interface, `arena.rs` the memory, `hint.rs` its prefetch, `clock.rs`
//! eviction and reclamation, `mapped.rs` the files that are read in place.

mod arena;
mod block_cache;
mod clock;
mod hint;
mod lists;
mod mapped;
mod prefetch_queue;
mod striped_counter;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_mapped;

pub use block_cache::{BlockCache, CacheSlots, CheckTime, UnitNote};
pub use hint::{Ahead, Hint, prefetch};
pub use mapped::{MappedFile, PinnedUnit};
pub use prefetch_queue::PrefetchQueue;
pub use striped_counter::Uncounted;
