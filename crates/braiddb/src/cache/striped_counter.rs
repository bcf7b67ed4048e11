//! A counter that many threads raise without getting in each other's way.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

const SHARDS: usize = 32;

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(AtomicU64);

/// The calling thread's shard, less than [`SHARDS`].
#[inline]
pub(super) fn shard() -> usize {
    let mut shard = SHARD.get();
    if shard == usize::MAX {
        shard = THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS;
        SHARD.set(shard);
    }
    shard % SHARDS
}

/// A count in as many shards as there may be threads. It is exact while at most [`SHARDS`] threads ever ran; with
/// more, two threads of one shard may lose a few counts to each other.
#[derive(Debug, Default)]
pub(super) struct StripedCounter([Shard; SHARDS]);

impl StripedCounter {
    /// Counts one up. A load and a store instead of an atomic addition: it is on the path of every hit.
    #[inline]
    pub fn add_one(&self) {
        let count = &self.0[shard()].0;
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The count.
    pub fn sum(&self) -> u64 {
        self.0.iter().map(|shard| shard.0.load(Ordering::Relaxed)).sum()
    }
}
