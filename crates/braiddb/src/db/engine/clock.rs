//! The database's clock, by which values expire.
//!
//! It follows the wall clock, but never goes back while the database is open. When the wall clock
//! is set back, it continues at the rate of the monotonic clock, so no expired record reappears. An
//! open begins at the wall clock or at the log's last commit, whichever is later. So a machine that
//! lost its clock does not go back by years.

use crate::platform::Runtime;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds of the monotonic clock, at most some milliseconds late.
    pub ns: u64,
    /// Microseconds since 1970.
    pub us: u64,
}

#[derive(Debug)]
pub struct Clock {
    /// Maximum lead seen of the wall clock over the monotonic clock.
    ahead_us: AtomicI64,
    checked_ns: AtomicU64,
    /// The lead that the manifest records, in microseconds.
    pub noted_ahead_us: AtomicU64,
}

/// Less if the thread is delayed between the two readings.
fn ahead_us(runtime: &dyn Runtime) -> i64 {
    let wall_us = i64::try_from(runtime.unix_time_us()).unwrap_or(i64::MAX);
    wall_us.saturating_sub(in_us(runtime.monotonic_coarse_ns()))
}

fn in_us(ns: u64) -> i64 {
    i64::try_from(ns / 1000).unwrap_or(i64::MAX)
}

impl Clock {
    pub fn new(runtime: &dyn Runtime, floor_us: u64, noted_ahead_us: u64) -> Clock {
        let now_ns = runtime.monotonic_coarse_ns();
        let floor_us = i64::try_from(floor_us).unwrap_or(i64::MAX).saturating_sub(in_us(now_ns));
        let ahead_us = ahead_us(runtime).max(floor_us);
        let noted_ahead_us = AtomicU64::new(noted_ahead_us);
        Clock { ahead_us: AtomicI64::new(ahead_us), checked_ns: AtomicU64::new(now_ns), noted_ahead_us }
    }

    #[inline]
    pub fn now(&self, runtime: &dyn Runtime) -> Moment {
        let ns = runtime.monotonic_coarse_ns();
        // Read the wall clock once for each tick of the coarse clock.
        if self.checked_ns.load(Ordering::Relaxed) != ns {
            self.check(runtime, ns);
        }
        let us = in_us(ns).saturating_add(self.ahead_us.load(Ordering::Relaxed));
        Moment { ns, us: u64::try_from(us).unwrap_or(0) }
    }

    #[cold]
    fn check(&self, runtime: &dyn Runtime, now_ns: u64) {
        self.ahead_us.fetch_max(ahead_us(runtime), Ordering::Relaxed);
        self.checked_ns.store(now_ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;
    use crate::platform::Runtime;
    use std::{
        io,
        sync::atomic::{AtomicI64, AtomicU64, Ordering},
        thread::JoinHandle,
    };

    #[derive(Debug, Default)]
    struct Clocks {
        ns: AtomicU64,
        ahead_us: AtomicI64,
    }

    impl Runtime for Clocks {
        fn unix_time_us(&self) -> u64 {
            (self.monotonic_ns() / 1000).saturating_add_signed(self.ahead_us.load(Ordering::Relaxed))
        }
        fn monotonic_ns(&self) -> u64 {
            self.ns.load(Ordering::Relaxed)
        }
        fn random_u64(&self) -> u64 {
            4
        }
        fn spawn(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn sleep_us(&self, _: u64) {}
        fn process_name(&self) -> String {
            String::new()
        }
    }

    #[test]
    fn it_follows_the_wall_clock_ahead_and_never_back() {
        let runtime = Clocks::default();
        runtime.ahead_us.store(1_000_000, Ordering::Relaxed);
        let clock = Clock::new(&runtime, 0, 0);
        let at = |ns: u64, ahead_us: i64| {
            runtime.ns.store(ns, Ordering::Relaxed);
            runtime.ahead_us.store(ahead_us, Ordering::Relaxed);
            clock.now(&runtime).us
        };
        assert_eq!(at(5_000, 1_000_000), 1_000_005);
        assert_eq!(at(6_000, 3_000_000), 3_000_006, "the wall clock was set ahead");
        assert_eq!(at(7_000, -5), 3_000_007, "it was set back: time goes on");
        assert_eq!(at(1_007_000, 2_000_000), 3_001_007);
    }

    #[test]
    fn it_begins_no_earlier_than_it_is_told() {
        let runtime = Clocks::default();
        runtime.ns.store(4_000, Ordering::Relaxed);
        assert_eq!(Clock::new(&runtime, 9_000, 0).now(&runtime).us, 9_000);
        runtime.ahead_us.store(20_000, Ordering::Relaxed);
        assert_eq!(Clock::new(&runtime, 9_000, 0).now(&runtime).us, 20_004);
    }
}
