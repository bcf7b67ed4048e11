//! Batched reads, direct I/O results, and the report about how files are read.

use super::vfs::File;
use std::{fmt, io, sync::Arc};

/// A read for [`super::Vfs::read_many`].
#[derive(Debug)]
pub struct ReadRequest {
    /// The file.
    pub file: Arc<dyn File>,
    /// The offset in the file.
    pub offset: u64,
    /// The target of the read; its length is that of the read. A failed read leaves arbitrary
    /// bytes.
    pub bytes: Vec<u8>,
    /// The outcome; `None` until executed.
    pub result: Option<io::Result<()>>,
}

impl ReadRequest {
    /// Creates a request for `len` bytes.
    pub fn new(file: Arc<dyn File>, offset: u64, len: usize) -> ReadRequest {
        ReadRequest { file, offset, bytes: vec![0; len], result: None }
    }

    /// Does nothing if there is a result.
    pub(super) fn read_alone(&mut self) {
        if self.result.is_none() {
            self.result = Some(self.file.read_exact_at(&mut self.bytes, self.offset));
        }
    }
}

/// The system's handle of an open file.
#[cfg(unix)]
#[derive(Clone, Copy, Debug)]
pub struct SystemFile<'a> {
    /// Open while the file is borrowed.
    pub descriptor: std::os::fd::BorrowedFd<'a>,
    /// Power of two that divides offset, length and address of a read.
    pub align: u32,
}

/// The system's handle of an open file.
#[cfg(windows)]
#[derive(Clone, Copy, Debug)]
pub struct SystemFile<'a> {
    /// Open for overlapped requests while the file is borrowed.
    pub handle: std::os::windows::io::BorrowedHandle<'a>,
    /// Power of two that divides offset, length and address of a read.
    pub align: u32,
}

/// A file opened for direct I/O.
#[derive(Debug)]
pub struct Unbuffered {
    /// The file.
    pub file: Arc<dyn File>,
    /// The reason for buffered I/O instead.
    pub refused: Option<String>,
}

/// The way that batched reads are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BatchReads {
    /// One after another.
    #[default]
    OneByOne,
    /// By several threads, with a prefetch hint for all buffered reads first.
    Threads,
    /// By Linux's io_uring.
    IoUring,
    /// By overlapped requests, on Windows.
    Overlapped,
}

impl fmt::Display for BatchReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BatchReads::OneByOne => "one by one",
            BatchReads::Threads => "threads",
            BatchReads::IoUring => "io_uring",
            BatchReads::Overlapped => "overlapped requests",
        })
    }
}

/// The way that files are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoReport {
    /// True if direct I/O of tables was requested and no file refused it so far.
    pub direct: bool,
    /// The first reason for which a file refused requested direct I/O.
    pub direct_refused: Option<String>,
    /// The way that batched reads are executed.
    pub batches: BatchReads,
    /// On Linux, the reason for not using io_uring.
    pub io_uring_refused: Option<String>,
}
