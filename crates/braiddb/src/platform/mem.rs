//! An in-memory file system.

/// Files in memory.
#[derive(Debug)]
pub struct MemVfs {}
