//! The world outside: files, clock, randomness and threads, each behind a trait.
//!
//! Nothing above this module calls the operating system. A test gives the engine a simulated world instead.

#[cfg(test)]
mod conformance;
#[cfg(test)]
pub mod fault_vfs;
mod mem;
#[cfg(not(unix))]
mod no_huge_pages;
#[cfg(unix)]
mod posix;
#[cfg(unix)]
mod posix_memory;
mod runtime;
#[cfg(test)]
mod tests;
mod vfs;

pub use mem::MemVfs;
#[cfg(not(unix))]
pub use no_huge_pages::advise_huge_pages;
#[cfg(unix)]
pub use posix::PosixVfs;
#[cfg(unix)]
pub use posix_memory::advise_huge_pages;
pub use runtime::{Runtime, SystemRuntime};
pub use vfs::{DirEntry, File, FileLock, OpenMode, Vfs};
