//! The file system of the present system.

/// The files of the present system.
#[cfg(unix)]
pub type SystemVfs = super::posix::vfs::PosixVfs;
/// The files of the present system.
#[cfg(windows)]
pub type SystemVfs = super::windows::vfs::WindowsVfs;
/// The files of the present system.
#[cfg(not(any(unix, windows)))]
pub type SystemVfs = super::portable::PortableVfs;
