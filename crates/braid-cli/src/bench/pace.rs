//! Limits operations per second.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Maximum backlog that is caught up: 100 ms.
const BEHIND_NS_MAX: u64 = 100_000_000;
/// Maximum single sleep: 50 ms, to notice a stop.
const SLEEP_NS_MAX: u64 = 50_000_000;

/// Computes waiting times for a maximum rate.
#[derive(Clone, Debug)]
pub struct Pace {
    per_second: f64,
    due_ns: u64,
}

impl Pace {
    pub fn new(per_second: f64) -> Pace {
        Pace { per_second, due_ns: 0 }
    }

    pub fn wait_ns(&self, now_ns: u64) -> u64 {
        self.due_ns.saturating_sub(now_ns)
    }

    pub fn take(&mut self, operations: u64, now_ns: u64) {
        let begin_ns = self.due_ns.max(now_ns.saturating_sub(BEHIND_NS_MAX));
        self.due_ns = begin_ns + (operations as f64 * 1e9 / self.per_second) as u64;
    }

    /// Returns false if `stop` is set before the next operation is due.
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
