//! Clock, randomness and threads.

use std::{
    fmt::Debug,
    io,
    thread::JoinHandle,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A moment that is told in microseconds since 1970, or the last that the system has a name for: Windows knows no year after 30827.
pub fn moment_of(unix_us: u64) -> SystemTime {
    let far = || UNIX_EPOCH + Duration::from_secs(1 << 39);
    UNIX_EPOCH.checked_add(Duration::from_micros(unix_us)).unwrap_or_else(far)
}

/// Where time, chance and threads come from. A program that wants to start the engine's threads itself, or to place them, gives it a runtime of
/// its own ([`crate::Builder::runtime`]), which may leave all but [`Runtime::spawn`] to a [`SystemRuntime`](super::SystemRuntime); see the example `own_threads`.
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
    /// Starts a thread. Its name tells what for, with a number behind it: `braiddb-flush` for what writers may be waiting for, `braiddb-log` for what commits
    /// may be waiting for, `braiddb-merge` and `braiddb-clean` for what nobody waits for (these call [`Runtime::give_way`] first); other names begin with `braiddb-` too, and are those of
    /// threads that some calls start and end. The handle is joined, so the thread must end soon after `body` has.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>;
    /// Has the calling thread give way to others where there are more threads to run than processors. It stays so.
    fn give_way(&self) {}
    /// How many processors the threads that it starts have in common with the program's; `None` for as many as anybody could want.
    fn shared_processors(&self) -> Option<usize> {
        None
    }
    /// Lets the calling thread sleep.
    fn sleep_us(&self, micros: u64);
    /// Who runs here, for the lock file: "process 1234".
    fn process_name(&self) -> String;
}
