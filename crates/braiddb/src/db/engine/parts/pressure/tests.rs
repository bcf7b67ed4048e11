//! Tests of the pace, on a clock that moves only by work and sleep.

use super::*;
use std::{io, sync::Arc, thread::JoinHandle};

#[derive(Debug, Default)]
struct Clock {
    now_ns: AtomicU64,
    oversleep_ns: u64,
    longest_sleep_us: AtomicU64,
    /// From this time on, no debt is left.
    calms: Option<(Arc<Pressure>, u64)>,
}

impl Runtime for Clock {
    fn unix_time_us(&self) -> u64 {
        0
    }
    fn monotonic_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }
    fn random_u64(&self) -> u64 {
        4
    }
    fn spawn(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn sleep_us(&self, micros: u64) {
        self.longest_sleep_us.fetch_max(micros, Ordering::Relaxed);
        let took_ns = micros * 1000 + self.oversleep_ns;
        let now_ns = self.now_ns.fetch_add(took_ns, Ordering::Relaxed) + took_ns;
        if let Some((pressure, _)) = self.calms.as_ref().filter(|(_, at_ns)| now_ns >= *at_ns) {
            pressure.pace.store(0, Ordering::Relaxed);
        }
    }
    fn process_name(&self) -> String {
        String::new()
    }
}

/// Nanoseconds a byte of commits whose writer needs `own_cost` a byte, and a flush 10.
fn taken(clock: &Clock, per_mille: u64, own_cost: u64) -> u64 {
    let (pressure, counters) = (Pressure::default(), Counters::default());
    pressure.pace.store(pace_of_memtables(per_mille), Ordering::Relaxed);
    let start = clock.monotonic_ns();
    for _ in 0..1000 {
        clock.now_ns.fetch_add(10_000 * own_cost, Ordering::Relaxed);
        pressure.slow_down(10_000, clock, &counters);
    }
    let took = clock.monotonic_ns() - start;
    assert_eq!(counters.slowed_ns.load(Ordering::Relaxed), took - 10_000_000 * own_cost, "what it slept is told");
    took / 10_000_000
}

#[test]
fn without_pressure_nobody_sleeps() {
    let clock = Clock::default();
    assert_eq!([taken(&clock, 0, 3), taken(&clock, 500, 0)], [3, 0]);
    assert_eq!(clock.longest_sleep_us.into_inner(), 0);
}

#[test]
fn a_writer_is_as_fast_as_the_flush_with_two_memtables_of_three_and_a_third_as_fast_with_three() {
    for oversleep_ns in [0, 150_000] {
        let clock = Clock { oversleep_ns, ..Clock::default() };
        assert!((9..=10).contains(&taken(&clock, 667, 3)), "oversleeping is made up for");
        assert!((29..=30).contains(&taken(&clock, 1000, 3)));
        // A slower writer never sleeps.
        assert_eq!(taken(&clock, 667, 12), 12);
        assert!(clock.longest_sleep_us.into_inner() <= SLEEP_NS_MAX / 1000);
    }
}

#[test]
fn the_pace_only_grows() {
    for pace in [pace_of_memtables, pace_of_merges] {
        let paces: Vec<u64> = (0..=1000).map(pace).collect();
        assert!(paces.is_sorted() && paces[500] == 0 && paces[501] > 0);
        assert!(paces.windows(2).skip(501).all(|pair| pair[1] - pair[0] < 10), "without steps");
    }
}

#[test]
fn the_more_is_to_be_merged_the_more_of_the_time_merges_take() {
    let share = |loose, loose_max| {
        let pressure = Pressure::default();
        pressure.loose.store(loose, Ordering::Relaxed);
        pressure.share_of_merges(loose_max)
    };
    assert_eq!([0, 8, 12, 16, 40].map(|loose| share(loose, 8)), [400, 400, 700, 1000, 1000]);
    assert_eq!([2, 9, 16].map(|loose| share(loose, 2)), [400, 700, 1000]);
    assert_eq!([20, 21].map(|loose| share(loose, 20)), [400, 1000], "where writers are slowed down before one is due");
}

/// Large commits accumulated an unbounded debt, and later small ones slept it off.
#[test]
fn what_large_commits_owe_is_soon_forgotten() {
    let (clock, pressure, counters) = (Clock::default(), Pressure::default(), Counters::default());
    pressure.pace.store(pace_of_memtables(1000), Ordering::Relaxed);
    for _ in 0..1000 {
        pressure.slow_down(1 << 20, &clock, &counters);
    }
    pressure.pace.store(pace_of_memtables(501), Ordering::Relaxed);
    let start = clock.monotonic_ns();
    for _ in 0..1000 {
        pressure.slow_down(10_000, &clock, &counters);
    }
    let took = clock.monotonic_ns() - start;
    let asked = 1000 * 10_000 * 10 / 2;
    assert!(took <= asked + asked / 10 + DEBT_SLEEPS_MAX * SLEEP_NS_MAX, "{took} ns, where {asked} were asked for");
}

/// Runs piled up behind a merge that takes long, at a quarter of the pace of the flush: 155 of them after 40 s.
#[test]
fn runs_behind_a_long_merge_stay_few_whatever_the_commits() {
    assert_eq!([0, 32, 36, 40, 48, 88, 1000].map(strain), [8, 8, 12, 16, 32, 1024, 1024]);
    assert!((0..100).map(strain).is_sorted());
    for commit_bytes in [100, 10_000, 250_000] {
        let (clock, pressure, counters) = (Clock::default(), Pressure::default(), Counters::default());
        let (mut loose, mut written) = (0, 0);
        while clock.monotonic_ns() < 10_000_000_000 {
            // A memtable has 1 MB, and each commit takes as long as its flush.
            loose = written / 1_000_000;
            pressure.pace.store(pace_of_runs(loose), Ordering::Relaxed);
            pressure.sleep_ns_max.store(longest_sleep_ns(loose), Ordering::Relaxed);
            clock.now_ns.fetch_add(commit_bytes as u64 * 10, Ordering::Relaxed);
            pressure.slow_down(commit_bytes as u64, &clock, &counters);
            written += commit_bytes;
        }
        assert!((60..=90).contains(&loose), "{loose} runs of commits of {commit_bytes} bytes");
    }
}

#[test]
fn a_long_sleep_ends_with_the_merge() {
    let (clock, counters) = (Clock::default(), Counters::default());
    let pressure = Arc::new(Pressure::default());
    pressure.pace.store(512_000, Ordering::Relaxed);
    pressure.sleep_ns_max.store(640_000_000, Ordering::Relaxed);
    let slept = pressure.slow_down(250_000, &clock, &counters);
    assert_eq!(slept, 640_000_000);
    let clock = Clock { calms: Some((Arc::clone(&pressure), 40_000_000)), ..Clock::default() };
    let slept = pressure.slow_down(250_000, &clock, &counters);
    assert_eq!(slept, 40_000_000);
}
