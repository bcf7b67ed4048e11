//! Clock, randomness and threads.

#![expect(clippy::disallowed_methods, reason = "this is the one place that asks the system")]

use std::{
    fmt::Debug,
    hash::{BuildHasher, Hasher},
    io,
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// By how much a thread that gives way is nicer than others: it gets a third of what they do.
#[cfg(target_os = "linux")]
const NICE_STEP: i32 = 5;

/// No thread can be nicer.
#[cfg(target_os = "linux")]
const NICE_MAX: i32 = 19;

/// A moment that is told in microseconds since 1970, or the last that the system has a name for: Windows knows no year after 30827.
pub fn moment_of(unix_us: u64) -> SystemTime {
    let far = || UNIX_EPOCH + Duration::from_secs(1 << 39);
    UNIX_EPOCH.checked_add(Duration::from_micros(unix_us)).unwrap_or_else(far)
}

/// Where time, chance and threads come from.
pub trait Runtime: Send + Sync + Debug + 'static {
    /// Microseconds since 1970, some milliseconds late at most. May jump.
    fn unix_time_us(&self) -> u64;
    /// Nanoseconds since some fixed moment. Never goes back.
    fn monotonic_ns(&self) -> u64;
    /// Nanoseconds since some fixed moment, which may be another than that of [`Runtime::monotonic_ns`]. Never goes back. Some
    /// milliseconds late at most, where that costs less.
    fn monotonic_coarse_ns(&self) -> u64 {
        self.monotonic_ns()
    }
    /// A random number.
    fn random_u64(&self) -> u64;
    /// Starts a thread.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>;
    /// Has the calling thread give way to others where there are more threads to run than processors. It stays so.
    fn give_way(&self) {}
    /// Lets the calling thread sleep.
    fn sleep_us(&self, micros: u64);
    /// Who runs here, for the lock file: "process 1234".
    fn process_name(&self) -> String;
}

/// The system's clock, randomness and threads.
#[derive(Debug)]
pub struct SystemRuntime {
    start: Instant,
}

impl SystemRuntime {
    /// A runtime whose monotonic clock starts now.
    pub fn new() -> SystemRuntime {
        SystemRuntime { start: Instant::now() }
    }
}

impl Default for SystemRuntime {
    fn default() -> Self {
        SystemRuntime::new()
    }
}

impl Runtime for SystemRuntime {
    /// The time of the last tick, which costs an eighth of asking for the time of now.
    #[cfg(target_os = "linux")]
    fn unix_time_us(&self) -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        let whole = u64::try_from(time.tv_sec).unwrap_or(0).saturating_mul(1_000_000);
        whole.saturating_add(u64::try_from(time.tv_nsec / 1000).unwrap_or(0))
    }

    #[cfg(not(target_os = "linux"))]
    fn unix_time_us(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
    }

    fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    #[cfg(target_os = "linux")]
    fn monotonic_coarse_ns(&self) -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
        let whole = u64::try_from(time.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000);
        whole.saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
    }

    fn random_u64(&self) -> u64 {
        // Each `RandomState` is keyed from the system's random source.
        let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
        hasher.write_u64(self.monotonic_ns());
        hasher.write_u64(self.unix_time_us());
        hasher.finish()
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name(name.to_owned()).spawn(body)
    }

    #[cfg(target_os = "linux")]
    fn give_way(&self) {
        use rustix::process::{getpriority_process, setpriority_process};
        // On Linux this is the calling thread's own. Where it may not be changed, nothing is lost.
        if let Ok(nice) = getpriority_process(None) {
            let _ = setpriority_process(None, nice.saturating_add(NICE_STEP).min(NICE_MAX));
        }
    }

    fn sleep_us(&self, micros: u64) {
        std::thread::sleep(std::time::Duration::from_micros(micros));
    }

    fn process_name(&self) -> String {
        // WebAssembly has no processes, and to ask for their number is a panic.
        if cfg!(target_family = "wasm") {
            return "a WebAssembly instance".to_owned();
        }
        format!("process {}", std::process::id())
    }
}
