//! The POSIX file system.

/// Files of a POSIX system.
#[derive(Debug)]
pub struct PosixVfs {}
