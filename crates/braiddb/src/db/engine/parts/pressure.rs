//! Backpressure: writers are slowed by microseconds as work piles up, so that they never run into a wall.
//!
//! Pressure is the largest of three debts, from 0 to 1: memtables that wait for their flush, loose runs beyond what
//! a partition should have, and what is dead beyond a limit, if there is one. A damaged partition, which is not merged any more, does not count: waiting would not help.
//! From one half on, writers keep a pace: so much time for each byte, in which what they do themselves counts. It is told in
//! what flushing a byte takes. With two memtables waiting of three that may, writers are as fast as the flush, so that it
//! always has something to do and they never have to wait for it; with three, a third as fast.

use crate::{
    db::engine::stats::Counters,
    platform::{Runtime, WHOLE},
    read::ReadState,
};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

#[cfg(test)]
mod tests;

/// The most frozen memtables; then writers wait for a flush.
pub const FROZEN_MAX: usize = 3;

/// A partition with so many loose runs slows writers most.
const LOOSE_FULL: usize = 32;

/// Loose runs that no writer is slowed for.
const LOOSE_FREE: usize = 16;

/// Where a partition has no more loose runs than it may, merges take this share of the time; with [`LOOSE_FREE`], all of it.
const MERGING_PER_MILLE_MIN: u64 = 400;

/// Of what may be dead, in thousandths: with less, merges take the least share of the time, and with so much all of it.
const DEAD_CALM: u64 = 900;
const DEAD_FULL: u64 = 1050;

/// With more of what may be dead than this, writers are slowed down, and most with so much.
const DEAD_FREE: u64 = 1100;
const DEAD_MOST: u64 = 1400;

/// Delays are gathered until they are worth a sleep.
const SLEEP_NS_MIN: u64 = 200_000;

/// What a writer was slower than asked for is made up for up to here.
const CREDIT_NS_MAX: u64 = 1_000_000;

/// No writer sleeps longer at once.
const SLEEP_NS_MAX: u64 = 5_000_000;

/// More is not owed: what many writers, or large commits, were faster than asked for is not held against those who come later.
const DEBT_NS_MAX: u64 = 10 * SLEEP_NS_MAX;

/// How hard writers are pressed, and what flushing costs.
#[derive(Debug)]
pub struct Pressure {
    /// From 0 to 1000.
    per_mille: AtomicU64,
    /// The most loose runs of a partition.
    loose: AtomicUsize,
    /// How much is dead of what may be, in thousandths; 0 if there is no limit.
    dead: AtomicU64,
    /// The time for a byte, in thousandths of what flushing it takes; 0 while there is no pressure.
    pace: AtomicU64,
    /// Nanoseconds that flushing a byte took lately, in 1/1024.
    flush_cost: AtomicU64,
    /// The time for what was written since somebody looked at the clock.
    owed_ns: AtomicU64,
    /// When what was written before that is due.
    due_ns: AtomicU64,
    /// Whether the reserve of disk space is used: then the pace is never 0, so that every commit asks.
    is_refusing: AtomicBool,
}

impl Default for Pressure {
    fn default() -> Self {
        Pressure {
            per_mille: AtomicU64::new(0),
            loose: AtomicUsize::new(0),
            dead: AtomicU64::new(0),
            pace: AtomicU64::new(0),
            flush_cost: AtomicU64::new(10 << 10),
            owed_ns: AtomicU64::new(0),
            due_ns: AtomicU64::new(0),
            is_refusing: AtomicBool::new(false),
        }
    }
}

impl Pressure {
    /// Looks at a new state, of whose memtables so many bytes may wait, in which so much is dead, in thousandths of what may be, and in which nothing is done for the
    /// partitions that are `given_up`.
    pub fn measure(&self, state: &ReadState, waiting_bytes_max: usize, dead: u64, given_up: impl Fn(u64) -> bool) {
        let frozen = state.frozen.iter().map(|m| m.bytes_used()).sum::<usize>() as u64;
        let by_memtables = (frozen * 1000 / (waiting_bytes_max as u64).max(1)).min(1000);
        let merged = state.version.partitions.iter().filter(|p| !given_up(p.id));
        let loose = merged.map(|p| p.loose_weight()).max().unwrap_or(0);
        self.loose.store(loose, Ordering::Relaxed);
        let by_loose = loose.saturating_sub(LOOSE_FREE) * 500 / (LOOSE_FULL - LOOSE_FREE);
        let by_loose = if by_loose > 0 { (500 + by_loose as u64).min(1000) } else { 0 };
        self.dead.store(dead, Ordering::Relaxed);
        let by_dead = dead.saturating_sub(DEAD_FREE) * 500 / (DEAD_MOST - DEAD_FREE);
        let by_merges = by_loose.max(if by_dead > 0 { (500 + by_dead).min(1000) } else { 0 });
        self.per_mille.store(by_memtables.max(by_merges), Ordering::Relaxed);
        let least = u64::from(self.is_refusing());
        self.pace.store(pace_of_memtables(by_memtables).max(pace_of_merges(by_merges)).max(least), Ordering::Relaxed);
    }

    /// Whether a commit need not ask for anything.
    #[inline(always)]
    pub fn is_calm(&self) -> bool {
        self.pace.load(Ordering::Relaxed) == 0
    }

    /// Whether only what frees space may be committed.
    pub fn is_refusing(&self) -> bool {
        self.is_refusing.load(Ordering::Acquire)
    }

    /// Has commits be asked, from now on, whether they free space; or not any more.
    pub fn set_refusing(&self, is_refusing: bool) {
        self.is_refusing.store(is_refusing, Ordering::Release);
        if is_refusing {
            self.pace.fetch_max(1, Ordering::Relaxed);
        }
    }

    /// Learns what a flush took.
    pub fn note_flush(&self, bytes: u64, took_ns: u64) {
        let cost = (took_ns << 10) / bytes.max(1);
        let old = self.flush_cost.load(Ordering::Relaxed);
        self.flush_cost.store((old * 3 + cost.clamp(1 << 10, 1000 << 10)) / 4, Ordering::Relaxed);
    }

    /// The present pressure, from 0 to 1000.
    pub fn per_mille(&self) -> u64 {
        self.per_mille.load(Ordering::Relaxed)
    }

    /// How much of the time merges should take, in thousandths, where a partition may have so many loose runs.
    pub fn share_of_merges(&self, loose_max: usize) -> u64 {
        let free = LOOSE_FREE.saturating_sub(loose_max).max(1) as u64;
        let more = (self.loose.load(Ordering::Relaxed).saturating_sub(loose_max) as u64).min(free);
        let dead = self.dead.load(Ordering::Relaxed).clamp(DEAD_CALM, DEAD_FULL) - DEAD_CALM;
        let by_loose = (WHOLE - MERGING_PER_MILLE_MIN) * more / free;
        let by_dead = (WHOLE - MERGING_PER_MILLE_MIN) * dead / (DEAD_FULL - DEAD_CALM);
        MERGING_PER_MILLE_MIN + by_loose.max(by_dead)
    }

    /// Lets a writer of `bytes` sleep as long as the pressure asks for.
    pub fn slow_down(&self, bytes: u64, runtime: &dyn Runtime, counters: &Counters) {
        let pace = self.pace.load(Ordering::Relaxed);
        if pace == 0 {
            return;
        }
        let cost = self.flush_cost.load(Ordering::Relaxed);
        let takes = ((bytes * cost) >> 10) * pace / 1000;
        if self.owed_ns.fetch_add(takes, Ordering::Relaxed) + takes < SLEEP_NS_MIN {
            return;
        }
        let owed = self.owed_ns.swap(0, Ordering::Relaxed);
        let now = runtime.monotonic_ns();
        let due_after = |due: u64| (due.max(now.saturating_sub(CREDIT_NS_MAX)) + owed).min(now + DEBT_NS_MAX);
        let before = self.due_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |due| Some(due_after(due)));
        let early = due_after(before.unwrap_or_else(|due| due)).saturating_sub(now);
        if early >= SLEEP_NS_MIN {
            runtime.sleep_us(early.min(SLEEP_NS_MAX) / 1000);
            counters.slowed_ns.fetch_add(runtime.monotonic_ns().saturating_sub(now), Ordering::Relaxed);
        }
    }
}

/// With half of the memtables that may wait, half of what the flush takes; with two thirds as much, with all three times.
fn pace_of_memtables(per_mille: u64) -> u64 {
    match per_mille {
        0..=500 => 0,
        501..=667 => 500 + (per_mille - 500) * 3,
        _ => 1000 + (per_mille - 667) * 6,
    }
}

/// At first as much as the flush takes, in the end four times: a merge costs more than a flush.
fn pace_of_merges(per_mille: u64) -> u64 {
    if per_mille <= 500 { 0 } else { 1000 + (per_mille - 500) * 6 }
}
