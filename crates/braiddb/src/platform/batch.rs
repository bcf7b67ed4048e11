//! Many reads at once, and what is told of how files are read.

use super::vfs::File;
use std::{fmt, io, sync::Arc};

/// A read, to be made with others by [`super::Vfs::read_many`].
#[derive(Debug)]
pub struct ReadRequest {
    /// The file.
    pub file: Arc<dyn File>,
    /// Where it begins in the file.
    pub offset: u64,
    /// As many bytes as are to be read; what they hold before does not matter, and after a failed read they hold anything.
    pub bytes: Vec<u8>,
    /// What became of it: `None` as long as it was not made.
    pub result: Option<io::Result<()>>,
}

impl ReadRequest {
    /// A read of `len` bytes.
    pub fn new(file: Arc<dyn File>, offset: u64, len: usize) -> ReadRequest {
        ReadRequest { file, offset, bytes: vec![0; len], result: None }
    }

    /// Makes this one, unless it was made.
    pub(super) fn read_alone(&mut self) {
        if self.result.is_none() {
            self.result = Some(self.file.read_exact_at(&mut self.bytes, self.offset));
        }
    }
}

/// The system's name for an open file, and how it wants to be asked.
#[cfg(unix)]
#[derive(Clone, Copy, Debug)]
pub struct SystemFile<'a> {
    /// It is open as long as the file is borrowed.
    pub descriptor: std::os::fd::BorrowedFd<'a>,
    /// Offset, length and address of a read are to be multiples of this power of two.
    pub align: u32,
}

/// The system's name for an open file, and how it wants to be asked.
#[cfg(windows)]
#[derive(Clone, Copy, Debug)]
pub struct SystemFile<'a> {
    /// It is open, for overlapped requests, as long as the file is borrowed.
    pub handle: std::os::windows::io::BorrowedHandle<'a>,
    /// Offset, length and address of a read are to be multiples of this power of two.
    pub align: u32,
}

/// A file that was to be read and written past the system's cache.
#[derive(Debug)]
pub struct Unbuffered {
    /// The file.
    pub file: Arc<dyn File>,
    /// Why it goes through the cache all the same, if it does.
    pub refused: Option<String>,
}

/// How reads are made that are wanted at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BatchReads {
    /// One after another.
    #[default]
    OneByOne,
    /// By several threads; where the system's cache is used, it is told of all before the first is waited for.
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

/// How files are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoReport {
    /// Whether tables are read past the system's cache: it was asked for, and no file was refused so far.
    pub direct: bool,
    /// Why not, if it was asked for and refused, of the first file that was.
    pub direct_refused: Option<String>,
    /// How reads are made that are wanted at once.
    pub batches: BatchReads,
    /// Why not by io_uring, on Linux.
    pub io_uring_refused: Option<String>,
}
