//! Files, clock, randomness and threads, behind traits.
//!
//! No code above this module calls the operating system. Tests replace it by a simulated world.

mod batch;
mod io;
mod os;
mod runtime;
mod sync;
mod vfs;

#[cfg(any(unix, windows))]
pub use batch::SystemFile;
pub use batch::{BatchReads, IoReport, ReadRequest, Unbuffered};
pub use io::layer::{FileLayer, VfsLayer};
pub use io::rate_limiter::{RateLimiter, RateLimiterStats};
pub use os::mem::MemVfs;
pub use os::read_mapping::ReadMapping;
pub use os::system::SystemVfs;
pub use os::system_runtime::SystemRuntime;
pub use runtime::Runtime;
pub use vfs::{DirEntry, File, FileLock, OpenMode, Vfs, WriteMapping};

/// Times that applications name. Only [`Runtime`] reads the clock.
#[doc(hidden)]
pub use std::time::{SystemTime, UNIX_EPOCH};

#[cfg(test)]
pub use io::fault_vfs;
pub(crate) use io::open_files::{BudgetedVfs, OpenFiles, OpenFilesStats};
pub(crate) use io::paced::{Hurry, Pace, PacedVfs, WHOLE};
pub(crate) use io::rate_limiter::Urgency;
pub(crate) use io::read_ahead::AheadVfs;
pub(crate) use io::throttled::{Limits, ThrottledVfs};
pub(crate) use io::write_behind::{BehindVfs, WriteBehind};
#[cfg(test)]
pub(crate) use os::aligned::Aligned;
pub(crate) use os::local_socket::{HAS_LOCAL_SOCKETS, LocalListener, LocalStream};
pub(crate) use os::pages;
#[cfg(all(test, windows))]
pub(crate) use os::windows::vfs::WindowsVfs;
#[cfg(all(test, unix))]
pub(crate) use os::{portable::PortableVfs, posix::vfs::PosixVfs};
pub(crate) use runtime::moment_of;
pub(crate) use sync::deferred_close::DeferredClose;
#[cfg(test)]
pub use sync::gated_runtime;
pub(crate) use sync::hazard_cell::HazardCell;
