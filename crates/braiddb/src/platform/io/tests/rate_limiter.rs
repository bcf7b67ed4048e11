use super::*;
use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Instant,
};

const SECOND_NS: u64 = 1_000_000_000;

#[derive(Debug, Default)]
struct Clock(AtomicU64);

impl Clock {
    fn advance(&self, ns: u64) {
        self.0.fetch_add(ns, Ordering::Relaxed);
    }
}

impl Runtime for Clock {
    fn unix_time_us(&self) -> u64 {
        self.monotonic_ns() / 1000
    }
    fn monotonic_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    fn random_u64(&self) -> u64 {
        4
    }
    fn spawn(&self, _name: &str, _body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn sleep_us(&self, micros: u64) {
        self.advance(micros * 1000);
    }
    fn process_name(&self) -> String {
        "a test".to_owned()
    }
}

fn write(limiter: &RateLimiter, clock: &Clock, bytes: u64) {
    limiter.wait(clock, bytes, Urgency::Merge, &AtomicBool::new(false));
}

#[test]
fn writes_of_any_length_stay_at_limit() {
    for rate in [RATE_MIN, 1 << 20, 100_000_000, 5_000_000_000] {
        for len in [rate / 5000, rate / 37, rate * 2] {
            let (limiter, clock) = (RateLimiter::new(rate), Clock::default());
            clock.advance(SECOND_NS);
            let mut written = vec![(clock.monotonic_ns(), 0)];
            let (mut bytes, end_ns) = (0, clock.monotonic_ns() + 10 * SECOND_NS);
            while clock.monotonic_ns() < end_ns {
                write(&limiter, &clock, len);
                bytes += len;
                written.push((clock.monotonic_ns(), bytes));
                // The device takes time too.
                clock.advance(SECOND_NS / 100_000);
            }
            let elapsed = (clock.monotonic_ns() - SECOND_NS) as f64 / SECOND_NS as f64;
            let share = bytes as f64 / elapsed / rate as f64;
            assert!((0.9..=1.1).contains(&share), "{share} of {rate} by {len} bytes");
            if len > rate / 10 {
                continue;
            }
            // And in every interval of a second.
            let mut from = 0;
            for (to, (ns, bytes)) in written.iter().enumerate() {
                while ns - written[from].0 > SECOND_NS {
                    from += 1;
                }
                let share = (bytes - written[from].1) as f64 / rate as f64;
                assert!(share < 1.1, "{share} of {rate} in the second before write {to} of {len} bytes");
            }
        }
    }
}

#[test]
fn writes_after_pause_stay_at_limit() {
    let (limiter, clock) = (RateLimiter::new(1_000_000), Clock::default());
    write(&limiter, &clock, 500_000);
    clock.advance(100 * SECOND_NS);
    let before = clock.monotonic_ns();
    for _ in 0..100 {
        write(&limiter, &clock, 10_000);
    }
    assert!(clock.monotonic_ns() - before > SECOND_NS * 9 / 10);
}

/// Shares of the limit that a flush and a merge get in ten seconds, both always writing.
fn shares(is_merging: bool) -> [f64; 2] {
    const PIECE: u64 = 10_000;
    let rate = 10_000_000;
    let limiter = RateLimiter::new(rate);
    let mut state = limiter.state.lock();
    state.merges_waiting = usize::from(is_merging);
    let (mut next_ns, mut bytes) = ([SECOND_NS, if is_merging { SECOND_NS } else { u64::MAX }], [0, 0]);
    while next_ns[0].min(next_ns[1]) < 11 * SECOND_NS {
        let who = usize::from(next_ns[1] < next_ns[0]);
        let urgency = [Urgency::Flush, Urgency::Merge][who];
        next_ns[who] = next_ns[who].max(state.reserve(next_ns[who], PIECE, urgency));
        bytes[who] += PIECE;
    }
    bytes.map(|bytes| bytes as f64 / 10.0 / rate as f64)
}

#[test]
fn flushes_with_waiting_merges_leave_a_tenth() {
    let [flushes, merges] = shares(true);
    assert!(flushes > 0.85 && merges > 0.08 && flushes + merges < 1.05, "{flushes} and {merges}");
    let [flushes, merges] = shares(false);
    assert!((0.98..1.02).contains(&flushes) && merges == 0.0, "{flushes} and {merges}");
}

#[test]
fn flush_after_merges_took_all_starts_at_once() {
    let limiter = RateLimiter::new(1_000_000);
    let mut state = limiter.state.lock();
    for _ in 0..40 {
        state.reserve(SECOND_NS, 50_000, Urgency::Merge);
    }
    assert!(state.reserve(SECOND_NS, 50_000, Urgency::Merge) > 2 * SECOND_NS);
    assert!(state.reserve(SECOND_NS, 50_000, Urgency::Flush) <= SECOND_NS);
}

#[test]
fn limit_changed_in_use_applies_to_next_write() {
    let (limiter, clock) = (RateLimiter::new(1_000_000), Clock::default());
    let took = |limiter: &RateLimiter, bytes: u64| {
        let before = clock.monotonic_ns();
        write(limiter, &clock, bytes);
        (clock.monotonic_ns() - before) as f64 / SECOND_NS as f64
    };
    assert!((1.9..2.1).contains(&took(&limiter, 2_000_000)));
    limiter.set_bytes_per_second(10_000_000);
    assert!((0.15..0.3).contains(&took(&limiter, 2_000_000)));
    limiter.set_bytes_per_second(0);
    assert_eq!(limiter.stats().bytes_per_second, RATE_MIN, "never nothing");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test of threads")]
fn waiting_write_on_release_returns() {
    let runtime = Arc::new(crate::platform::SystemRuntime::new());
    let (limiter, released) = (RateLimiter::new(RATE_MIN), AtomicBool::new(false));
    let began = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| limiter.wait(&*runtime, RATE_MIN * 1000, Urgency::Flush, &released));
        thread::sleep(Duration::from_millis(30));
        released.store(true, Ordering::Release);
    });
    assert!(began.elapsed() < Duration::from_secs(5), "a thousand seconds would be left");
    limiter.wait(&*runtime, RATE_MIN * 1000, Urgency::Merge, &released);
    assert!(began.elapsed() < Duration::from_secs(5));
    let stats = limiter.stats();
    assert_eq!((stats.flush_bytes, stats.merge_bytes), (RATE_MIN * 1000, RATE_MIN * 1000));
    assert!(stats.waited_ns > 0);
}

#[test]
fn rate_by_latency_falls_on_slow_reads_and_recovers() {
    let (floor, ceiling) = (1_000_000, 100_000_000);
    let limiter = RateLimiter::by_latency(floor, ceiling, Duration::from_millis(2));
    let clock = Clock::default();
    let rate_after = |slow: u64, windows: u64| {
        for _ in 0..windows {
            clock.advance(WINDOW_NS);
            (0..100).for_each(|n| limiter.note_latency(if n < slow { 3_000_000 } else { 1_000_000 }));
            write(&limiter, &clock, 1);
        }
        limiter.stats().bytes_per_second
    };
    assert_eq!(rate_after(1, 5), ceiling, "a hundredth may be slow");
    let once = rate_after(2, 1);
    assert!(once < ceiling && once > ceiling / 2);
    assert_eq!(rate_after(50, 40), floor);
    assert!(rate_after(0, 3) < ceiling / 10, "not at once");
    assert_eq!(rate_after(0, 100), ceiling);
    // Without device waits, the limit may rise.
    limiter.set_bytes_per_second(50_000_000);
    assert_eq!(limiter.stats().bytes_per_second, 50_000_000);
    assert!(limiter.goes_by_latency() && !RateLimiter::new(7).goes_by_latency());
}
