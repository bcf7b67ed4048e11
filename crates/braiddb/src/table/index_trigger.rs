//! Requests of readers for in-memory indexes.

use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

type Wake = Box<dyn Fn() + Send + Sync>;

/// Wakes background work when something was searched often enough to deserve an index.
pub struct IndexTrigger {
    searches_min: u64,
    is_raised: AtomicBool,
    wake: OnceLock<Wake>,
}

/// Sampling rate: a thread counts one search in this many.
const SAMPLE: u64 = 32;

impl IndexTrigger {
    /// Makes a trigger that fires after `searches_min` searches of one thing, more if it is large.
    pub fn new(searches_min: u64) -> IndexTrigger {
        IndexTrigger { searches_min, is_raised: AtomicBool::new(false), wake: OnceLock::new() }
    }

    /// Returns the minimum number of searches that raises it.
    pub fn searches_min(&self) -> u64 {
        self.searches_min
    }

    /// Sets the callback for new requests. Only the first call has an effect.
    pub fn on_raise(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// Returns the sampling rate for searches.
    #[inline]
    pub fn sample(&self) -> u64 {
        self.searches_min.clamp(1, SAMPLE)
    }

    /// Signals a new request.
    #[cold]
    pub fn raise(&self) {
        if !self.is_raised.swap(true, Ordering::AcqRel)
            && let Some(wake) = self.wake.get()
        {
            wake();
        }
    }

    /// Returns whether there were new requests since the last call.
    pub fn take(&self) -> bool {
        self.is_raised.load(Ordering::Relaxed) && self.is_raised.swap(false, Ordering::AcqRel)
    }
}

impl fmt::Debug for IndexTrigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Demand").field("is_raised", &self.is_raised).finish_non_exhaustive()
    }
}
