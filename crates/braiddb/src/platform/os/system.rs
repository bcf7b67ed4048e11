//! Which file system is the system's own.

/// The files of the system that this runs on.
#[cfg(unix)]
pub type SystemVfs = super::posix::vfs::PosixVfs;
/// The files of the system that this runs on.
#[cfg(windows)]
pub type SystemVfs = super::windows::vfs::WindowsVfs;
/// The files of the system that this runs on.
#[cfg(not(any(unix, windows)))]
pub type SystemVfs = super::portable::PortableVfs;
