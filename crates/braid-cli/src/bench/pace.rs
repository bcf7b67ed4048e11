//! A limit of operations a second.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Whoever falls behind by more than this never makes up for it.
const BEHIND_NS_MAX: u64 = 100_000_000;
/// No sleep lasts longer at once, so that whoever sleeps can be told to stop.
const SLEEP_NS_MAX: u64 = 50_000_000;

/// Says how long to wait, so that no more than so many operations a second are done: each is due a fixed time after
/// the one before.
#[derive(Clone, Debug)]
pub struct Pace {
    per_second: f64,
    due_ns: u64,
}

impl Pace {
    /// At most so many a second, more than 0.
    pub fn new(per_second: f64) -> Pace {
        Pace { per_second, due_ns: 0 }
    }

    /// How long to wait at this moment (since the beginning) before the next operation.
    pub fn wait_ns(&self, now_ns: u64) -> u64 {
        self.due_ns.saturating_sub(now_ns)
    }

    /// Notes that operations begin at this moment.
    pub fn take(&mut self, operations: u64, now_ns: u64) {
        let begin_ns = self.due_ns.max(now_ns.saturating_sub(BEHIND_NS_MAX));
        self.due_ns = begin_ns + (operations as f64 * 1e9 / self.per_second) as u64;
    }

    /// Sleeps until the next operation is due; `false` if `stop` is set and it is not.
    pub fn sleep(&self, began: Instant, stop: &AtomicBool) -> bool {
        loop {
            let wait_ns = self.wait_ns(began.elapsed().as_nanos() as u64);
            if wait_ns == 0 {
                return true;
            }
            if stop.load(Ordering::Relaxed) {
                return false;
            }
            thread::sleep(Duration::from_nanos(wait_ns.min(SLEEP_NS_MAX)));
        }
    }
}
