//! Limits the bytes per second of background writes.
//!
//! Each write reserves the next interval of time that its bytes cost at the limit, and waits for
//! the interval's start. Unused time expires except for [`BURST_NS`].
//!
//! **Flushes and merges.** Flushes wait only for flushes, never behind a long merge. Merges get the
//! remaining rate, at least a tenth while they wait.
//!
//! **By latency.** With a latency target, the rate drops by 30 % at most ten times a second while
//! more than 1 % of the users' device waits exceed the target. Otherwise it rises by 10 %, between
//! floor and ceiling.
//!
//! **Threads.** Background threads hold one mutex for some arithmetic. Users update two counters.

use crate::platform::runtime::Runtime;
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

/// Maximum unused time that a later write may use.
const BURST_NS: u64 = 20_000_000;

/// Maximum duration of a reservation; longer writes make several.
const PIECE_NS: u64 = 50_000_000;

/// Interval at which a waiting thread checks for its release.
const LOOK_NS: u64 = 10_000_000;

/// Interval between changes of the rate.
const WINDOW_NS: u64 = 100_000_000;

/// Minimum rate, in bytes per second. A lower one would delay a flush for hours.
const RATE_MIN: u64 = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Urgency {
    /// Writers may be waiting for it.
    Flush,
    Merge,
}

/// Limits the bytes per second that flushes, merges and other background work write, for one or
/// several databases ([`crate::Builder::rate_limiter`]). Exempt are the log, loads and backups.
///
/// A limit below the needs of the writers throttles them, like a slow device: memtables and
/// unindexed runs accumulate ([`crate::stats::Stats`]). No write fails because of it.
#[derive(Debug)]
pub struct RateLimiter {
    state: Mutex<State>,
    /// Device waits of users in this window, and those above the target.
    seen: AtomicU64,
    slow: AtomicU64,
    bytes: [AtomicU64; 2],
    waited_ns: AtomicU64,
    target_ns: u64,
}

#[derive(Debug)]
struct State {
    /// Bytes per second.
    rate: u64,
    floor: u64,
    ceiling: u64,
    /// End of the reserved time, by any work and by flushes.
    taken_ns: u64,
    taken_by_flushes_ns: u64,
    merges_waiting: usize,
    window_began_ns: u64,
}

/// Counters of a rate limiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateLimiterStats {
    /// The current limit in bytes per second.
    pub bytes_per_second: u64,
    /// Bytes written by flushes.
    pub flush_bytes: u64,
    /// Bytes written by other work.
    pub merge_bytes: u64,
    /// Total waiting time of all threads, in nanoseconds.
    pub waited_ns: u64,
}

impl RateLimiter {
    /// Creates a limiter. Limits below 64 KiB per second are raised to it, so that work ends.
    pub fn new(bytes_per_second: u64) -> RateLimiter {
        RateLimiter::by_latency(bytes_per_second, bytes_per_second, Duration::MAX)
    }

    /// Creates a limiter that moves between `floor` and `ceiling`, in bytes per second, starting at
    /// `ceiling`. It falls while more than 1 % of the users' device waits (blocks outside the
    /// cache, log syncs) exceed `target`, and rises otherwise. Mapped reads and batched reads
    /// ([`Tree::multi_get`](crate::Tree::multi_get)) are not measured.
    pub fn by_latency(floor: u64, ceiling: u64, target: Duration) -> RateLimiter {
        let floor = floor.max(RATE_MIN);
        let ceiling = ceiling.max(floor);
        let (taken_ns, taken_by_flushes_ns, merges_waiting, window_began_ns) = (0, 0, 0, 0);
        RateLimiter {
            state: Mutex::new(State {
                rate: ceiling,
                floor,
                ceiling,
                taken_ns,
                taken_by_flushes_ns,
                merges_waiting,
                window_began_ns,
            }),
            seen: AtomicU64::new(0),
            slow: AtomicU64::new(0),
            bytes: Default::default(),
            waited_ns: AtomicU64::new(0),
            target_ns: u64::try_from(target.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Changes the limit, from the next write on. For a limiter by latency, changes the ceiling.
    pub fn set_bytes_per_second(&self, bytes_per_second: u64) {
        let mut state = self.state.lock();
        let is_fixed = state.floor == state.ceiling;
        state.ceiling = bytes_per_second.max(RATE_MIN);
        state.floor = if is_fixed { state.ceiling } else { state.floor.min(state.ceiling) };
        state.rate = if is_fixed { state.ceiling } else { state.rate.min(state.ceiling) };
    }

    /// Returns the counters.
    pub fn stats(&self) -> RateLimiterStats {
        let bytes_per_second = self.state.lock().rate;
        let [flush_bytes, merge_bytes] = [0, 1].map(|at| self.bytes[at].load(Ordering::Relaxed));
        let waited_ns = self.waited_ns.load(Ordering::Relaxed);
        RateLimiterStats { bytes_per_second, flush_bytes, merge_bytes, waited_ns }
    }

    pub(crate) fn goes_by_latency(&self) -> bool {
        self.target_ns != u64::MAX
    }

    pub(crate) fn note_latency(&self, ns: u64) {
        self.seen.fetch_add(1, Ordering::Relaxed);
        if ns > self.target_ns {
            self.slow.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until `bytes` may be written, or until `released` is set.
    pub(crate) fn wait(&self, runtime: &dyn Runtime, bytes: u64, urgency: Urgency, released: &AtomicBool) {
        self.bytes[urgency as usize].fetch_add(bytes, Ordering::Relaxed);
        let mut left = bytes;
        while left > 0 && !released.load(Ordering::Acquire) {
            let now_ns = runtime.monotonic_ns();
            let mut state = self.state.lock();
            self.think(&mut state, now_ns);
            let piece = left.min(state.bytes_in(PIECE_NS));
            let at_ns = state.reserve(now_ns, piece, urgency);
            left -= piece;
            if at_ns <= now_ns {
                continue;
            }
            let is_merge = urgency == Urgency::Merge;
            state.merges_waiting += usize::from(is_merge);
            drop(state);
            self.sleep_until(runtime, now_ns, at_ns, released);
            self.state.lock().merges_waiting -= usize::from(is_merge);
        }
    }

    fn sleep_until(&self, runtime: &dyn Runtime, began_ns: u64, at_ns: u64, released: &AtomicBool) {
        let mut now_ns = began_ns;
        while now_ns < at_ns && !released.load(Ordering::Acquire) {
            runtime.sleep_us((at_ns - now_ns).min(LOOK_NS).div_ceil(1000));
            now_ns = runtime.monotonic_ns();
        }
        self.waited_ns.fetch_add(now_ns - began_ns, Ordering::Relaxed);
    }

    /// Once per window.
    fn think(&self, state: &mut State, now_ns: u64) {
        if !self.goes_by_latency() || now_ns.saturating_sub(state.window_began_ns) < WINDOW_NS {
            return;
        }
        state.window_began_ns = now_ns;
        let (seen, slow) = (self.seen.swap(0, Ordering::Relaxed), self.slow.swap(0, Ordering::Relaxed));
        let rate = if slow * 100 > seen { state.rate / 10 * 7 } else { state.rate.saturating_add(state.rate / 10) };
        state.rate = rate.clamp(state.floor, state.ceiling);
    }
}

impl State {
    fn bytes_in(&self, ns: u64) -> u64 {
        u64::try_from(u128::from(self.rate) * u128::from(ns) / 1_000_000_000).unwrap_or(u64::MAX).max(1)
    }

    /// Returns the start of the time that `bytes` cost.
    fn reserve(&mut self, now_ns: u64, bytes: u64, urgency: Urgency) -> u64 {
        let cost_ns = u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(self.rate)).unwrap_or(u64::MAX);
        let earliest_ns = now_ns.saturating_sub(BURST_NS);
        let at_ns = self.taken_ns.max(earliest_ns);
        self.taken_ns = at_ns.saturating_add(cost_ns);
        if urgency == Urgency::Merge {
            return at_ns;
        }
        let at_ns = self.taken_by_flushes_ns.max(earliest_ns);
        // Leave a tenth to waiting merges.
        let cost_ns = if self.merges_waiting > 0 { cost_ns.saturating_add(cost_ns / 9) } else { cost_ns };
        self.taken_by_flushes_ns = at_ns.saturating_add(cost_ns);
        at_ns
    }
}

#[cfg(test)]
#[path = "tests/rate_limiter.rs"]
mod tests;
