//! Clock, randomness and threads.

use std::{
    fmt::Debug,
    io,
    thread::JoinHandle,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Converts microseconds since 1970. Values that the system cannot represent (on Windows, after
/// year 30827) become 2^39 seconds after 1970.
pub fn moment_of(unix_us: u64) -> SystemTime {
    let far = || UNIX_EPOCH + Duration::from_secs(1 << 39);
    UNIX_EPOCH.checked_add(Duration::from_micros(unix_us)).unwrap_or_else(far)
}

/// Clock, randomness and threads. A program that starts or places the engine's threads passes its
/// own runtime ([`crate::Builder::runtime`]). It may delegate everything but [`Runtime::spawn`] to
/// a [`SystemRuntime`](super::SystemRuntime); see the example `own_threads`.
pub trait Runtime: Send + Sync + Debug + 'static {
    /// Returns microseconds since 1970, at most some milliseconds late. May jump.
    fn unix_time_us(&self) -> u64;
    /// Returns nanoseconds since a fixed moment. Never decreases.
    fn monotonic_ns(&self) -> u64;
    /// Returns nanoseconds since a fixed moment, not necessarily that of [`Runtime::monotonic_ns`].
    /// Never decreases. May be some milliseconds late if that is cheaper.
    fn monotonic_coarse_ns(&self) -> u64 {
        self.monotonic_ns()
    }
    /// Returns a random number.
    fn random_u64(&self) -> u64;
    /// Starts a thread. The name states the purpose, followed by a number:
    ///
    /// - `braiddb-flush`: writers may wait for it.
    /// - `braiddb-log`: commits may wait for it.
    /// - `braiddb-sync`: asynchronous commits wait for it. Started by the first of them.
    /// - `braiddb-merge` and `braiddb-clean`: none waits; they call [`Runtime::give_way`] first.
    /// - `braiddb-events`: calls the listener of [`crate::Builder::on_event`]. None waits, and the
    ///   handle is not joined.
    /// - Other names with `braiddb-`: threads that last for one call.
    ///
    /// Callers join the other handles, so the thread must end soon after `body`.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>;
    /// Lowers the priority of the calling thread for the rest of its life.
    fn give_way(&self) {}
    /// Returns the number of processors that its threads share with the program; `None` if plenty.
    fn shared_processors(&self) -> Option<usize> {
        None
    }
    /// Puts the calling thread to sleep.
    fn sleep_us(&self, micros: u64);
    /// Describes this process for the lock file: "process 1234".
    fn process_name(&self) -> String;
}
