//! Decides when a view gets an in-memory hash index: after many searches of it. The search that
//! reaches the threshold wakes the background work of `db`, which calls [`IndexTrigger::take`].

use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

type Wake = Box<dyn Fn() + Send + Sync>;

/// Wakes background work when something was searched often enough for an in-memory index.
pub struct IndexTrigger {
    searches_min: u64,
    is_raised: AtomicBool,
    wake: OnceLock<Wake>,
}

/// A thread counts one search in this many.
const SAMPLE: u64 = 32;

impl IndexTrigger {
    /// Fires after `searches_min` searches, more for a large thing.
    pub fn new(searches_min: u64) -> IndexTrigger {
        IndexTrigger { searches_min, is_raised: AtomicBool::new(false), wake: OnceLock::new() }
    }

    pub fn searches_min(&self) -> u64 {
        self.searches_min
    }

    /// Only the first call has an effect.
    pub fn on_raise(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    #[inline]
    pub fn sample(&self) -> u64 {
        self.searches_min.clamp(1, SAMPLE)
    }

    #[cold]
    pub fn raise(&self) {
        if !self.is_raised.swap(true, Ordering::AcqRel)
            && let Some(wake) = self.wake.get()
        {
            wake();
        }
    }

    pub fn take(&self) -> bool {
        self.is_raised.load(Ordering::Relaxed) && self.is_raised.swap(false, Ordering::AcqRel)
    }
}

impl fmt::Debug for IndexTrigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexTrigger").field("is_raised", &self.is_raised).finish_non_exhaustive()
    }
}
