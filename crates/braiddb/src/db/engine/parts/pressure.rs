//! Backpressure: throttles writers by microseconds as work piles up, so that they rarely stall.
//!
//! Pressure is the largest of three debts, from 0 to 1000: frozen memtables, unindexed runs above
//! their limit, and garbage above its limit. Damaged partitions do not count: merges skip them.
//!
//! From 500 on writers get a pace: a minimum time for each byte, in units of the time to flush it.
//! With two of three frozen memtables, writers are as fast as the flush: it always has work, and
//! they never wait for it. With three, they are a third as fast.
//!
//! Above the unindexed runs of full pressure each 8 more runs halve the pace of writers, and double
//! their longest sleep. Without this, runs pile up without bound behind a merge that takes long.

use crate::{
    db::engine::stats::Counters,
    platform::{Runtime, WHOLE},
    read::ReadState,
};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

#[cfg(test)]
mod tests;

/// Maximum frozen memtables; then writers wait for a flush.
pub const FROZEN_MAX: usize = 3;

/// Unindexed runs of a partition at full pressure.
const LOOSE_FULL: usize = 32;

/// Unindexed runs up to which no writer is throttled.
const LOOSE_FREE: usize = 16;

/// Unindexed runs above [`LOOSE_FULL`] that halve the pace of writers.
const LOOSE_HALVES: usize = 8;

/// Maximum halvings. A commit then sleeps at most 640 ms: if merges hang, runs still pile up.
const HALVINGS_MAX: usize = 7;

/// Minimum share of the time for merges. It grows with the unindexed runs, to the whole time at
/// [`LOOSE_FREE`].
const MERGING_PER_MILLE_MIN: u64 = 400;

/// Garbage in thousandths of its limit, for the minimum and the whole share of merges.
const DEAD_CALM: u64 = 900;
const DEAD_FULL: u64 = 1050;

/// Garbage in thousandths of its limit, where throttling begins, and at full pressure.
const DEAD_FREE: u64 = 1100;
const DEAD_MOST: u64 = 1400;

/// Shorter delays accumulate.
const SLEEP_NS_MIN: u64 = 200_000;

/// Time that a slow writer may catch up.
const CREDIT_NS_MAX: u64 = 1_000_000;

/// Maximum sleep of a commit, up to full pressure.
const SLEEP_NS_MAX: u64 = 5_000_000;

/// Maximum debt, in sleeps of a commit. Without it, later writers would pay for large commits.
const DEBT_SLEEPS_MAX: u64 = 10;

/// The reason for throttling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debt {
    Memtables,
    /// The partition with the most unindexed runs.
    Runs {
        partition: u64,
    },
    Garbage,
}

/// Values of `Pressure::debt`.
const MEMTABLES: u8 = 0;
const RUNS: u8 = 1;
const GARBAGE: u8 = 2;

#[derive(Debug)]
pub struct Pressure {
    per_mille: AtomicU64,
    /// Maximum unindexed runs of a partition.
    loose: AtomicUsize,
    /// Garbage in thousandths of its limit; 0 without a limit.
    dead: AtomicU64,
    /// The largest debt; its partition, for unindexed runs.
    debt: AtomicU8,
    debt_partition: AtomicU64,
    /// Time for each byte, in thousandths of the time to flush it; 0 without pressure.
    pace: AtomicU64,
    /// Maximum sleep of a commit.
    sleep_ns_max: AtomicU64,
    /// Nanoseconds to flush a byte, times 1024: a moving average.
    flush_cost: AtomicU64,
    /// Time for the bytes since the last look at the clock.
    owed_ns: AtomicU64,
    due_ns: AtomicU64,
    /// Set while the reserve is in use. Then `pace` is never 0, so that each commit checks this.
    is_refusing: AtomicBool,
}

impl Default for Pressure {
    fn default() -> Self {
        Pressure {
            per_mille: AtomicU64::new(0),
            loose: AtomicUsize::new(0),
            dead: AtomicU64::new(0),
            debt: AtomicU8::new(MEMTABLES),
            debt_partition: AtomicU64::new(0),
            pace: AtomicU64::new(0),
            sleep_ns_max: AtomicU64::new(SLEEP_NS_MAX),
            flush_cost: AtomicU64::new(10 << 10),
            owed_ns: AtomicU64::new(0),
            due_ns: AtomicU64::new(0),
            is_refusing: AtomicBool::new(false),
        }
    }
}

impl Pressure {
    /// `dead` is in thousandths of its limit. Merges skip partitions that are `given_up`. Returns
    /// whether writers were throttled before, and are now. Callers take turns.
    pub fn measure(
        &self,
        state: &ReadState,
        waiting_bytes_max: usize,
        dead: u64,
        given_up: impl Fn(u64) -> bool,
    ) -> (bool, bool) {
        let frozen = state.frozen.iter().map(|m| m.bytes_used()).sum::<usize>() as u64;
        let by_memtables = (frozen * 1000 / (waiting_bytes_max as u64).max(1)).min(1000);
        let merged = state.version.partitions.iter().filter(|p| !given_up(p.id));
        let (loose, partition) = merged.map(|p| (p.loose_weight(), p.id)).max().unwrap_or((0, 0));
        self.loose.store(loose, Ordering::Relaxed);
        let by_loose = debt_of_runs(loose);
        self.dead.store(dead, Ordering::Relaxed);
        let by_dead = dead.saturating_sub(DEAD_FREE) * 500 / (DEAD_MOST - DEAD_FREE);
        let by_dead = if by_dead > 0 { (500 + by_dead).min(1000) } else { 0 };
        let by_merges = by_loose.max(by_dead);
        self.per_mille.store(by_memtables.max(by_merges), Ordering::Relaxed);
        let least = u64::from(self.is_refusing());
        let pace_of_memtables = pace_of_memtables(by_memtables);
        let pace_of_merges = pace_of_merges(by_dead).max(pace_of_runs(loose));
        self.sleep_ns_max.store(longest_sleep_ns(loose), Ordering::Relaxed);
        let pace = pace_of_memtables.max(pace_of_merges);
        self.debt_partition.store(partition, Ordering::Relaxed);
        let debt = match pace_of_merges > pace_of_memtables {
            false => MEMTABLES,
            true if by_loose >= by_dead => RUNS,
            true => GARBAGE,
        };
        self.debt.store(debt, Ordering::Relaxed);
        let before = self.pace.swap(pace.max(least), Ordering::Relaxed);
        // A pace of 1 does not throttle: see `is_refusing`.
        (before > 1, pace > 1)
    }

    #[inline(always)]
    pub fn is_calm(&self) -> bool {
        self.pace.load(Ordering::Relaxed) == 0
    }

    pub fn is_refusing(&self) -> bool {
        self.is_refusing.load(Ordering::Acquire)
    }

    /// Returns whether it was refusing before.
    pub fn set_refusing(&self, is_refusing: bool) -> bool {
        let before = self.is_refusing.swap(is_refusing, Ordering::AcqRel);
        if is_refusing {
            self.pace.fetch_max(1, Ordering::Relaxed);
        }
        before
    }

    pub fn note_flush(&self, bytes: u64, took_ns: u64) {
        let cost = (took_ns << 10) / bytes.max(1);
        let old = self.flush_cost.load(Ordering::Relaxed);
        self.flush_cost.store((old * 3 + cost.clamp(1 << 10, 1000 << 10)) / 4, Ordering::Relaxed);
    }

    pub fn per_mille(&self) -> u64 {
        self.per_mille.load(Ordering::Relaxed)
    }

    /// Returns why writers are throttled, if they are.
    pub fn debt(&self) -> Debt {
        match self.debt.load(Ordering::Relaxed) {
            RUNS => Debt::Runs { partition: self.debt_partition.load(Ordering::Relaxed) },
            GARBAGE => Debt::Garbage,
            _ => Debt::Memtables,
        }
    }

    pub fn share_of_merges(&self, loose_max: usize) -> u64 {
        let free = LOOSE_FREE.saturating_sub(loose_max).max(1) as u64;
        let more = (self.loose.load(Ordering::Relaxed).saturating_sub(loose_max) as u64).min(free);
        let dead = self.dead.load(Ordering::Relaxed).clamp(DEAD_CALM, DEAD_FULL) - DEAD_CALM;
        let by_loose = (WHOLE - MERGING_PER_MILLE_MIN) * more / free;
        let by_dead = (WHOLE - MERGING_PER_MILLE_MIN) * dead / (DEAD_FULL - DEAD_CALM);
        MERGING_PER_MILLE_MIN + by_loose.max(by_dead)
    }

    /// Puts a writer of `bytes` to sleep as the pace demands. Returns for how long, in nanoseconds.
    pub fn slow_down(&self, bytes: u64, runtime: &dyn Runtime, counters: &Counters) -> u64 {
        let pace = self.pace.load(Ordering::Relaxed);
        if pace == 0 {
            return 0;
        }
        let cost = self.flush_cost.load(Ordering::Relaxed);
        let takes = ((bytes * cost) >> 10) * pace / 1000;
        if self.owed_ns.fetch_add(takes, Ordering::Relaxed) + takes < SLEEP_NS_MIN {
            return 0;
        }
        let owed = self.owed_ns.swap(0, Ordering::Relaxed);
        let now = runtime.monotonic_ns();
        let sleep_ns_max = self.sleep_ns_max.load(Ordering::Relaxed);
        let latest = now + DEBT_SLEEPS_MAX * sleep_ns_max;
        let due_after = |due: u64| (due.max(now.saturating_sub(CREDIT_NS_MAX)) + owed).min(latest);
        let before = self.due_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |due| Some(due_after(due)));
        let early = due_after(before.unwrap_or_else(|due| due)).saturating_sub(now);
        if early < SLEEP_NS_MIN {
            return 0;
        }
        let wanted = early.min(sleep_ns_max);
        let (mut left, mut slept) = (wanted, 0);
        // In pieces: a merge may end meanwhile.
        while left >= SLEEP_NS_MIN && (slept == 0 || self.pace.load(Ordering::Relaxed) >= pace) {
            let piece = left.min(SLEEP_NS_MAX);
            runtime.sleep_us(piece / 1000);
            slept = runtime.monotonic_ns().saturating_sub(now);
            left = wanted.saturating_sub(slept).min(left - piece);
        }
        counters.slowed_ns.fetch_add(slept, Ordering::Relaxed);
        slept
    }
}

/// [`strain`] up to full pressure.
const UNSTRAINED: u64 = LOOSE_HALVES as u64;

/// Doubles for each [`LOOSE_HALVES`] unindexed runs above [`LOOSE_FULL`]; linear between them.
fn strain(loose: usize) -> u64 {
    let over = loose.saturating_sub(LOOSE_FULL).min(HALVINGS_MAX * LOOSE_HALVES);
    ((LOOSE_HALVES + over % LOOSE_HALVES) << (over / LOOSE_HALVES)) as u64
}

fn longest_sleep_ns(loose: usize) -> u64 {
    SLEEP_NS_MAX * strain(loose) / UNSTRAINED
}

/// From 0 to 1000.
fn debt_of_runs(loose: usize) -> u64 {
    let over = loose.saturating_sub(LOOSE_FREE) * 500 / (LOOSE_FULL - LOOSE_FREE);
    if over > 0 { (500 + over as u64).min(1000) } else { 0 }
}

fn pace_of_runs(loose: usize) -> u64 {
    pace_of_merges(debt_of_runs(loose)) * strain(loose) / UNSTRAINED
}

/// Half of the flush time above 500, all of it at 667, three times at 1000.
fn pace_of_memtables(per_mille: u64) -> u64 {
    match per_mille {
        0..=500 => 0,
        501..=667 => 500 + (per_mille - 500) * 3,
        _ => 1000 + (per_mille - 667) * 6,
    }
}

/// One to four times the flush time: a merge costs more than a flush.
fn pace_of_merges(per_mille: u64) -> u64 {
    if per_mille <= 500 { 0 } else { 1000 + (per_mille - 500) * 6 }
}
