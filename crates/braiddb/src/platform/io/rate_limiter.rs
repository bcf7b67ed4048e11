//! A limit for what background work writes in a second.
//!
//! Time is reserved rather than bytes counted: each write takes the next stretch of time that the limit gives it, and waits until that
//! begins. What was not used is lost but for [`BURST_NS`], so that a pause is not followed by a flood.
//!
//! **Flushes and the rest.** Flushes wait for flushes alone, so that none stands behind a long merge; but what they take is taken from all. The others get what is left: at
//! least a tenth, if they wait for it.
//!
//! **By latency.** A limiter may be told how long the device may take for what users wait for. If more than a hundredth of that takes longer,
//! the rate goes down by three tenths, ten times a second at most, and otherwise up by a tenth, between a floor and a ceiling.
//!
//! **Threads.** One mutex, held for some arithmetic by background threads; users add to two counters.

use crate::platform::runtime::Runtime;
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

/// What a pause gives for later.
const BURST_NS: u64 = 20_000_000;

/// Long writes reserve piece by piece, each of which takes so long.
const PIECE_NS: u64 = 50_000_000;

/// Who waits looks so often whether it is to end.
const LOOK_NS: u64 = 10_000_000;

/// The rate is thought over so often.
const WINDOW_NS: u64 = 100_000_000;

/// The least rate, in bytes per second: less would keep a flush for hours.
const RATE_MIN: u64 = 64 << 10;

/// What a background write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Urgency {
    /// A flush: writers may be waiting for it.
    Flush,
    /// Anything else.
    Merge,
}

/// A limit for the bytes that flushes, merges and the like write per second, of one database or of several that share it
/// ([`crate::Builder::rate_limiter`]). The log is not limited, nor is what a program loads or backs up.
///
/// A limit below what the writers' rate asks for slows the writers down in the end, as a slow device would: memtables and loose runs pile up, and
/// [`crate::Stats`] shows it. Nothing is refused for it.
#[derive(Debug)]
pub struct RateLimiter {
    state: Mutex<State>,
    /// What users waited for the device for in this window, and how much of that took too long.
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
    /// Up to when time is taken, by anyone, and by flushes.
    taken_ns: u64,
    taken_by_flushes_ns: u64,
    merges_waiting: usize,
    window_began_ns: u64,
}

/// What a limiter has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateLimiterStats {
    /// The limit now, in bytes per second.
    pub bytes_per_second: u64,
    /// Bytes that flushes have written.
    pub flush_bytes: u64,
    /// Bytes that other work has written.
    pub merge_bytes: u64,
    /// How long threads waited, all together, in nanoseconds.
    pub waited_ns: u64,
}

impl RateLimiter {
    /// A limit of so many bytes per second. A limit below 64 KiB counts as 64 KiB, with which work still ends.
    pub fn new(bytes_per_second: u64) -> RateLimiter {
        RateLimiter::by_latency(bytes_per_second, bytes_per_second, Duration::MAX)
    }

    /// A limit that moves between `floor` and `ceiling`, in bytes per second, and begins at the latter: it goes down while more than a hundredth of what users wait
    /// for from the device (blocks that are not in the cache, syncs of the log) takes longer than `target`, and up again otherwise.
    /// What is read where its file is mapped is not seen, nor are the reads of a batch ([`Tree::multi_get`](crate::Tree::multi_get)).
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

    /// Another limit, from the next write on; for one that goes by latency it is the ceiling.
    pub fn set_bytes_per_second(&self, bytes_per_second: u64) {
        let mut state = self.state.lock();
        let is_fixed = state.floor == state.ceiling;
        state.ceiling = bytes_per_second.max(RATE_MIN);
        state.floor = if is_fixed { state.ceiling } else { state.floor.min(state.ceiling) };
        state.rate = if is_fixed { state.ceiling } else { state.rate.min(state.ceiling) };
    }

    /// What it has done.
    pub fn stats(&self) -> RateLimiterStats {
        let bytes_per_second = self.state.lock().rate;
        let [flush_bytes, merge_bytes] = [0, 1].map(|at| self.bytes[at].load(Ordering::Relaxed));
        let waited_ns = self.waited_ns.load(Ordering::Relaxed);
        RateLimiterStats { bytes_per_second, flush_bytes, merge_bytes, waited_ns }
    }

    /// Whether it is to be told how long the device takes.
    pub(crate) fn goes_by_latency(&self) -> bool {
        self.target_ns != u64::MAX
    }

    /// Notes how long a user waited for the device.
    pub(crate) fn note_latency(&self, ns: u64) {
        self.seen.fetch_add(1, Ordering::Relaxed);
        if ns > self.target_ns {
            self.slow.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until so many bytes may be written; no longer once it is `released`.
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

    /// Once in a while: whether the rate is to change.
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
    /// How many bytes may be written in some time.
    fn bytes_in(&self, ns: u64) -> u64 {
        u64::try_from(u128::from(self.rate) * u128::from(ns) / 1_000_000_000).unwrap_or(u64::MAX).max(1)
    }

    /// Takes the time that some bytes cost; when that begins.
    fn reserve(&mut self, now_ns: u64, bytes: u64, urgency: Urgency) -> u64 {
        let cost_ns = u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(self.rate)).unwrap_or(u64::MAX);
        let earliest_ns = now_ns.saturating_sub(BURST_NS);
        let at_ns = self.taken_ns.max(earliest_ns);
        self.taken_ns = at_ns.saturating_add(cost_ns);
        if urgency == Urgency::Merge {
            return at_ns;
        }
        let at_ns = self.taken_by_flushes_ns.max(earliest_ns);
        // A tenth is for those that wait.
        let cost_ns = if self.merges_waiting > 0 { cost_ns.saturating_add(cost_ns / 9) } else { cost_ns };
        self.taken_by_flushes_ns = at_ns.saturating_add(cost_ns);
        at_ns
    }
}

#[cfg(test)]
#[path = "tests/rate_limiter.rs"]
mod tests;
