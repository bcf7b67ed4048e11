//! The world outside: files, clock, randomness and threads, each behind a trait.
//!
//! Nothing above this module calls the operating system. A test gives the engine a simulated world instead.

#[cfg(test)]
mod conformance;
#[cfg(test)]
pub mod fault_vfs;
mod mem;
pub mod pages;
#[cfg(unix)]
mod posix;
#[cfg(target_os = "linux")]
mod posix_mapping;
#[cfg(target_os = "linux")]
mod posix_write_back;
mod read_mapping;
mod runtime;
#[cfg(test)]
mod tests;
mod vfs;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
mod windows_file;
#[cfg(windows)]
mod windows_requests;
#[cfg(any(windows, test))]
mod written;

pub use mem::MemVfs;
#[cfg(unix)]
pub use posix::PosixVfs;
pub use read_mapping::ReadMapping;
pub use runtime::{Runtime, SystemRuntime};
/// Moments that the application names. What time it is, only [`Runtime`] says.
pub use std::time::{SystemTime, UNIX_EPOCH};
pub use vfs::{DirEntry, File, FileLock, OpenMode, Vfs, WriteMapping};
#[cfg(windows)]
pub use windows::WindowsVfs;

/// The files of the system that this runs on.
#[cfg(unix)]
pub type SystemVfs = PosixVfs;
/// The files of the system that this runs on.
#[cfg(windows)]
pub type SystemVfs = WindowsVfs;
