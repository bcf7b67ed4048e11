//! The system's clock, randomness and threads.

#![expect(clippy::disallowed_methods, reason = "this is the one place that asks the system")]

#[cfg(windows)]
use super::windows::threads::run_on;
use crate::platform::runtime::Runtime;
#[cfg(not(target_os = "linux"))]
use std::time::{SystemTime, UNIX_EPOCH};
use std::{
    hash::{BuildHasher, Hasher},
    io,
    thread::JoinHandle,
    time::Instant,
};

/// Increase of the nice value by [`Runtime::give_way`]: a tenth of the time of a normal thread.
#[cfg(target_os = "linux")]
const NICE_STEP: i32 = 10;

#[cfg(target_os = "linux")]
const NICE_MAX: i32 = 19;

/// The system's clock, randomness and threads.
#[derive(Debug)]
pub struct SystemRuntime {
    start: Instant,
    /// Processors of its threads; empty for all.
    processors: Vec<usize>,
}

impl SystemRuntime {
    /// Creates a runtime whose monotonic clock starts now.
    pub fn new() -> SystemRuntime {
        SystemRuntime { start: Instant::now(), processors: Vec::new() }
    }

    /// Like [`SystemRuntime::new`], but its threads run only on these processors (numbered by the
    /// system from 0).
    ///
    /// # Errors
    /// `Unsupported` except on Linux, Android and Windows. `InvalidInput` for an empty list, for a
    /// processor that does not exist or is not permitted, and on Windows for processors of several
    /// groups (of 64).
    ///
    /// ```
    /// use braiddb::{Builder, platform::SystemRuntime};
    /// # fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = SystemRuntime::on_processors(&[2, 3])?;
    /// let db = Builder::default().runtime(std::sync::Arc::new(runtime)).open("data")?;
    /// # drop(db);
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_processors(processors: &[usize]) -> io::Result<SystemRuntime> {
        if processors.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no processors are named"));
        }
        let runtime = SystemRuntime { processors: processors.to_vec(), ..SystemRuntime::new() };
        // In another thread, since the change is permanent.
        let wanted = processors.to_vec();
        let trial = std::thread::Builder::new().spawn(move || run_on(&wanted))?;
        trial.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
        Ok(runtime)
    }
}

impl Default for SystemRuntime {
    fn default() -> Self {
        SystemRuntime::new()
    }
}

impl Runtime for SystemRuntime {
    /// The last clock tick, at an eighth of the cost of the exact time.
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
        // The system's random source seeds each `RandomState`.
        let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
        hasher.write_u64(self.monotonic_ns());
        hasher.write_u64(self.unix_time_us());
        hasher.finish()
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        let processors = self.processors.clone();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            if !processors.is_empty()
                && let Err(error) = run_on(&processors)
            {
                tracing::warn!(?processors, %error, "a background thread could not be put where it belongs");
            }
            body();
        })
    }

    fn shared_processors(&self) -> Option<usize> {
        std::thread::available_parallelism().ok().filter(|_| self.processors.is_empty()).map(usize::from)
    }

    #[cfg(target_os = "linux")]
    fn give_way(&self) {
        use rustix::process::{getpriority_process, setpriority_process};
        // On Linux this affects only the calling thread. A refusal is harmless.
        if let Ok(nice) = getpriority_process(None) {
            let _ = setpriority_process(None, nice.saturating_add(NICE_STEP).min(NICE_MAX));
        }
    }

    fn sleep_us(&self, micros: u64) {
        std::thread::sleep(std::time::Duration::from_micros(micros));
    }

    fn process_name(&self) -> String {
        // WebAssembly has no processes; `std::process::id` would panic.
        if cfg!(target_family = "wasm") {
            return "a WebAssembly instance".to_owned();
        }
        format!("process {}", std::process::id())
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn run_on(processors: &[usize]) -> io::Result<()> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let missing = |processor: usize| {
        let reason = format!("there is no processor {processor}, or this process may not use it");
        io::Error::new(io::ErrorKind::InvalidInput, reason)
    };
    let mut set = CpuSet::new();
    for &processor in processors {
        if processor >= CpuSet::MAX_CPU {
            return Err(missing(processor));
        }
        set.set(processor);
    }
    // The call ignores unavailable processors, and fails only if none is left.
    let is_set = sched_setaffinity(None, &set).is_ok();
    let taken = sched_getaffinity(None)?;
    match processors.iter().find(|processor| !is_set || !taken.is_set(**processor)) {
        Some(processor) => Err(missing(*processor)),
        None => Ok(()),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android", windows)))]
fn run_on(_processors: &[usize]) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no way to put threads on processors"))
}
