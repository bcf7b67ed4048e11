//! The world outside: files, clock, randomness and threads, each behind a trait.
//!
//! Nothing above this module calls the operating system. A test gives the engine a simulated world instead.

mod aligned;
#[cfg(any(target_os = "linux", windows))]
mod aligned_io;
mod barrier;
#[cfg_attr(all(target_os = "linux", not(miri)), path = "posix_barrier.rs")]
#[cfg_attr(any(miri, not(target_os = "linux")), path = "barrier_absent.rs")]
mod barrier_of_system;
mod batch;
#[cfg(test)]
mod conformance;
mod deferred_close;
#[cfg(any(windows, test))]
mod dirty_ranges;
#[cfg(test)]
pub mod fault_vfs;
#[cfg(test)]
pub mod gated_runtime;
mod hazard_cell;
mod layer;
mod mem;
mod open_files;
mod paced;
pub mod pages;
#[cfg(any(all(test, unix), not(any(unix, windows))))]
mod portable;
#[cfg(unix)]
mod posix;
#[cfg(target_vendor = "apple")]
mod posix_apple;
#[cfg(target_os = "linux")]
mod posix_mapping;
#[cfg(unix)]
mod posix_read_pool;
#[cfg(target_os = "linux")]
mod posix_unbuffered;
#[cfg(target_os = "linux")]
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")),
    path = "posix_uring_absent.rs"
)]
mod posix_uring;
#[cfg(target_os = "linux")]
mod posix_write_back;
mod rate_limiter;
mod read_ahead;
mod read_mapping;
mod runtime;
mod system;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_barrier;
#[cfg(test)]
mod tests_hazard_cell;
mod throttled;
mod vfs;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
mod windows_file;
#[cfg(windows)]
mod windows_requests;
#[cfg(windows)]
mod windows_threads;
#[cfg(windows)]
mod windows_unbuffered;
mod write_behind;

pub(crate) use aligned::Aligned;
#[cfg(any(unix, windows))]
pub use batch::SystemFile;
pub use batch::{BatchReads, IoReport, ReadRequest, Unbuffered};
pub use deferred_close::DeferredClose;
pub(crate) use hazard_cell::HazardCell;
pub use layer::{FileLayer, VfsLayer};
pub use mem::MemVfs;
pub use open_files::{BudgetedVfs, OpenFiles, OpenFilesStats};
pub(crate) use paced::{Hurry, Pace, PacedVfs, WHOLE};
#[cfg(any(all(test, unix), not(any(unix, windows))))]
pub use portable::PortableVfs;
#[cfg(unix)]
pub use posix::PosixVfs;
pub(crate) use rate_limiter::Urgency;
pub use rate_limiter::{RateLimiter, RateLimiterStats};
pub(crate) use read_ahead::AheadVfs;
pub use read_mapping::ReadMapping;
pub(crate) use runtime::moment_of;
pub use runtime::{Runtime, SystemRuntime};
/// Moments that the application names. What time it is, only [`Runtime`] says.
pub use std::time::{SystemTime, UNIX_EPOCH};
pub use system::SystemVfs;
pub(crate) use throttled::{Limits, ThrottledVfs};
pub use vfs::{DirEntry, File, FileLock, OpenMode, Vfs, WriteMapping};
#[cfg(windows)]
pub use windows::WindowsVfs;
pub(crate) use write_behind::{BehindVfs, WriteBehind};
