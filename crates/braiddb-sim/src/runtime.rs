//! Time, randomness and threads of the simulated world.

#![expect(clippy::disallowed_methods, reason = "this is a runtime: it starts threads and may ask the system's clock")]

use crate::Random;
use braiddb::platform::Runtime;
use parking_lot::Mutex;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// 1 January 2020, in microseconds since 1970.
const START_UNIX_US: i64 = 1_577_836_800_000_000;

/// Nanoseconds of each reading, so that a loop with a deadline ends.
const LOOK_NS: u64 = 100;

/// A runtime whose clock and randomness follow from a seed.
///
/// The simulated clock advances by 100 ns per reading and by all time slept; sleeps take no real
/// time. Only a run without threads is reproducible.
/// reproducible.
#[derive(Debug)]
pub struct SimRuntime {
    random: Mutex<Random>,
    simulated_ns: Option<AtomicU64>,
    started: Instant,
    unix_offset_us: AtomicI64,
    threads: bool,
}

impl SimRuntime {
    /// Simulated time, no threads: spawning one is an error.
    pub fn new(seed: u64) -> Arc<SimRuntime> {
        Arc::new(SimRuntime::build(seed, true, false))
    }

    /// Simulated time, real threads.
    pub fn with_threads(seed: u64) -> Arc<SimRuntime> {
        Arc::new(SimRuntime::build(seed, true, true))
    }

    /// Real time and threads; only randomness follows from the seed.
    pub fn in_real_time(seed: u64) -> Arc<SimRuntime> {
        Arc::new(SimRuntime::build(seed, false, true))
    }

    fn build(seed: u64, simulated: bool, threads: bool) -> SimRuntime {
        SimRuntime {
            random: Mutex::new(Random::new(seed)),
            simulated_ns: simulated.then(|| AtomicU64::new(1)),
            started: Instant::now(),
            unix_offset_us: AtomicI64::new(START_UNIX_US),
            threads,
        }
    }

    /// Advances simulated time.
    pub fn advance_us(&self, micros: u64) {
        if let Some(clock) = &self.simulated_ns {
            clock.fetch_add(micros.saturating_mul(1000), Ordering::Relaxed);
        }
    }

    /// Moves the wall clock; the monotonic clock is unaffected.
    pub fn jump_us(&self, micros: i64) {
        self.unix_offset_us.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Runtime for SimRuntime {
    fn unix_time_us(&self) -> u64 {
        let offset = self.unix_offset_us.load(Ordering::Relaxed);
        (self.monotonic_ns() / 1000).saturating_add_signed(offset)
    }

    fn monotonic_ns(&self) -> u64 {
        match &self.simulated_ns {
            Some(clock) => clock.fetch_add(LOOK_NS, Ordering::Relaxed),
            None => u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }

    fn random_u64(&self) -> u64 {
        self.random.lock().next_u64()
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        if !self.threads {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this simulated world has no threads"));
        }
        std::thread::Builder::new().name(name.to_owned()).spawn(body)
    }

    fn sleep_us(&self, micros: u64) {
        if self.simulated_ns.is_some() {
            self.advance_us(micros);
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(micros));
        }
    }

    fn process_name(&self) -> String {
        "a simulated process".to_owned()
    }
}
