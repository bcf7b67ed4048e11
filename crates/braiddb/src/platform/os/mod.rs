//! Files, memory, clock and threads of the operating system, and files in memory.

pub mod aligned;
#[cfg(any(target_os = "linux", windows))]
pub mod aligned_io;
#[cfg(any(windows, test))]
pub mod dirty_ranges;
#[cfg(not(windows))]
#[cfg_attr(unix, path = "posix/local_socket.rs")]
#[cfg_attr(not(unix), path = "local_socket_absent.rs")]
pub mod local_socket;
pub mod mem;
pub mod pages;
#[cfg(any(all(test, unix), not(any(unix, windows))))]
pub mod portable;
#[cfg(unix)]
pub mod posix;
#[cfg_attr(all(target_os = "linux", not(miri)), path = "posix/process_barrier.rs")]
#[cfg_attr(any(miri, not(target_os = "linux")), path = "process_barrier_absent.rs")]
pub mod process_barrier;
pub mod read_mapping;
pub mod system;
pub mod system_runtime;
#[cfg(test)]
pub mod tests;
#[cfg(windows)]
pub mod windows;
#[cfg(windows)]
pub use windows::local_pipe as local_socket;
