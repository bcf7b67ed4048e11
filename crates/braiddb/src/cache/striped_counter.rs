//! A counter that many threads increment without contention.

use std::{
    array,
    cell::Cell,
    marker::PhantomData,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

const SHARDS: usize = 32;

/// The shard of threads that do not count. Its sum is ignored.
const UNCOUNTED: usize = SHARDS;

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
    shard.min(UNCOUNTED)
}

/// While it lives, lookups of its thread count neither as hits nor as misses.
#[derive(Debug)]
pub struct Uncounted {
    shard_before: usize,
    _of_its_thread: PhantomData<*const ()>,
}

impl Uncounted {
    pub fn begin() -> Uncounted {
        Uncounted { shard_before: SHARD.replace(UNCOUNTED), _of_its_thread: PhantomData }
    }
}

impl Drop for Uncounted {
    fn drop(&mut self) {
        SHARD.set(self.shard_before);
    }
}

#[inline]
pub(super) fn is_counting() -> bool {
    SHARD.get() != UNCOUNTED
}

/// Exact for at most [`SHARDS`] threads; two threads of one shard may lose counts.
#[derive(Debug)]
pub(super) struct StripedCounter([Shard; SHARDS + 1]);

impl Default for StripedCounter {
    fn default() -> StripedCounter {
        StripedCounter(array::from_fn(|_| Shard::default()))
    }
}

impl StripedCounter {
    /// No atomic addition, since every hit calls it.
    #[inline]
    pub fn add_one(&self) {
        let count = &self.0[shard()].0;
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub fn sum(&self) -> u64 {
        self.0[..SHARDS].iter().map(|shard| shard.0.load(Ordering::Relaxed)).sum()
    }
}
