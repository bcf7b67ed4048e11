//! What readers would like to have prepared for them.

use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

type Wake = Box<dyn Fn() + Send + Sync>;

/// Lets readers tell background work that something was asked for so often that it is worth an index.
pub struct IndexTrigger {
    searches_min: u64,
    is_raised: AtomicBool,
    wake: OnceLock<Wake>,
}

/// Of so many searches a thread counts one, as so many.
const SAMPLE: u64 = 32;

impl IndexTrigger {
    /// Demand that is raised after so many searches of one thing, or more if it is large.
    pub fn new(searches_min: u64) -> IndexTrigger {
        IndexTrigger { searches_min, is_raised: AtomicBool::new(false), wake: OnceLock::new() }
    }

    /// After how many searches of one thing it is raised at the soonest.
    pub fn searches_min(&self) -> u64 {
        self.searches_min
    }

    /// Has whoever works in the background called when there is new demand. The first call counts.
    pub fn on_raise(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// Of how many searches a thread may count one, as so many.
    #[inline]
    pub fn sample(&self) -> u64 {
        self.searches_min.clamp(1, SAMPLE)
    }

    /// There is new demand.
    #[cold]
    pub fn raise(&self) {
        if !self.is_raised.swap(true, Ordering::AcqRel)
            && let Some(wake) = self.wake.get()
        {
            wake();
        }
    }

    /// Whether there was new demand since the last call.
    pub fn take(&self) -> bool {
        self.is_raised.load(Ordering::Relaxed) && self.is_raised.swap(false, Ordering::AcqRel)
    }
}

impl fmt::Debug for IndexTrigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Demand").field("is_raised", &self.is_raised).finish_non_exhaustive()
    }
}
