//! A counter that many threads increment without contention.

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

#[inline]
pub(super) fn shard() -> usize {
    let mut shard = SHARD.get();
    if shard == usize::MAX {
        shard = THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS;
        SHARD.set(shard);
    }
    shard % SHARDS
}

/// Exact for at most [`SHARDS`] threads; two threads of one shard may lose counts.
#[derive(Debug, Default)]
pub(super) struct StripedCounter([Shard; SHARDS]);

impl StripedCounter {
    /// No atomic addition, since every hit calls it.
    #[inline]
    pub fn add_one(&self) {
        let count = &self.0[shard()].0;
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub fn sum(&self) -> u64 {
        self.0.iter().map(|shard| shard.0.load(Ordering::Relaxed)).sum()
    }
}
