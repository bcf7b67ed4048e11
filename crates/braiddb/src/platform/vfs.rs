//! The file system and file traits of the engine.
//!
//! Calls are positional, so that many threads share one handle. The engine's formats do not need
//! synced directories (a no-op on Windows), renames of open files, or atomic renames.

use super::{
    batch::{IoReport, ReadRequest, Unbuffered},
    os::read_mapping::ReadMapping,
};
use std::{fmt::Debug, io, path::Path, sync::Arc};

/// The way to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Opens an existing file for reading.
    Read,
    /// Opens an existing file for reading and writing.
    ReadWrite,
    /// Creates a file for reading and writing. Fails with `AlreadyExists` if the file exists.
    CreateNew,
}

/// A file in a directory listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name within the directory.
    pub name: String,
    /// The length in bytes.
    pub len: u64,
}

/// A file system.
///
/// Errors have the usual kinds: `NotFound`, `AlreadyExists`, `StorageFull`. Implementations retry
/// interrupted calls.
pub trait Vfs: Send + Sync + Debug + 'static {
    /// Creates a directory and its parents. An existing directory is no error.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;
    /// Lists the files (not directories) of a directory, in any order. `NotFound` if the directory
    /// does not exist.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;
    /// Lists the names of subdirectories; empty if the file system cannot.
    fn list_directories(&self, dir: &Path) -> io::Result<Vec<String>> {
        let _ = dir;
        Ok(Vec::new())
    }
    /// Removes a file. Open handles stay usable.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Renames a file and replaces the target.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file a second name.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Takes the lock file `path`, creating it if needed, and writes `owner` into it. Returns the
    /// owner's text as `Ok(Err(text))` if the lock is held.
    fn lock(&self, path: &Path, owner: &str) -> io::Result<Result<Box<dyn FileLock>, String>>;
    /// Returns the text of the lock's owner without writing; `None` if free or unknown.
    fn lock_owner(&self, path: &Path) -> io::Result<Option<String>> {
        let _ = path;
        Ok(None)
    }
    /// Returns the free bytes in the file system of `path`; `None` if unknown.
    fn free_space(&self, path: &Path) -> io::Result<Option<u64>>;
    /// Returns the capacity in bytes of the file system of `path`; `None` if unlimited or unknown.
    fn total_space(&self, path: &Path) -> io::Result<Option<u64>> {
        let _ = path;
        Ok(None)
    }
    /// Returns the maximum number of open files of the process; `None` if there is no limit.
    fn open_files_limit(&self) -> Option<u64> {
        None
    }

    /// Opens a file for direct I/O, past the page cache. If the system refuses, opens it as
    /// [`Vfs::open`] does and reports the reason. Reads and writes accept any offset, length and
    /// address.
    fn open_unbuffered(&self, path: &Path, mode: OpenMode) -> io::Result<Unbuffered> {
        let because = "this file system has no way around a cache".to_owned();
        Ok(Unbuffered { file: self.open(path, mode)?, refused: Some(because) })
    }

    /// Executes reads, concurrently if possible. Each request's `result` holds its outcome.
    fn read_many(&self, requests: &mut [ReadRequest]) {
        requests.iter_mut().for_each(ReadRequest::read_alone);
    }

    /// Reports how files are read.
    fn io_report(&self) -> IoReport {
        IoReport::default()
    }
}

/// A lock, released on drop.
pub trait FileLock: Send + Sync + Debug {}

/// An open file. Any thread may call any method; callers must not overlap concurrent writes.
pub trait File: Send + Sync + Debug + 'static {
    /// Reads up to `buf.len()` bytes at `offset`. Returns fewer only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Reads exactly `buf.len()` bytes at `offset`. Fails with `UnexpectedEof` past the end.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.read_at(&mut buf[done..], offset + done as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => done += n,
            }
        }
        Ok(())
    }

    /// Writes all of `buf` at `offset` and grows the file if needed. An error may leave a partial
    /// write.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Returns the length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Returns true if the length is zero.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Truncates the file, or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Allocates disk space for the first `len` bytes and grows the file to them. New bytes read as
    /// zeros. Writes zeros if the system cannot allocate.
    fn preallocate(&self, len: u64) -> io::Result<()>;

    /// Returns the first offset from `offset` on that may hold data, `None` if none does, or
    /// `offset` if unknown. Bytes before it read as zeros.
    fn next_written(&self, offset: u64) -> io::Result<Option<u64>> {
        Ok(Some(offset))
    }

    /// Makes all written data and the length durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes the `bytes` at `offset` durable. Callers must not write to them meanwhile. Other data
    /// may stay volatile.
    fn sync_bytes(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let _ = (bytes, offset);
        self.sync_data()
    }

    /// Starts writing `len` bytes at `offset` to the disk without waiting. Promises nothing.
    fn start_write_back(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// Returns true if a layer prefetches sequential reads: short reads cost no more than long
    /// ones.
    fn is_read_ahead(&self) -> bool {
        false
    }

    /// Returns true if reads bypass the page cache: each costs a device access.
    fn is_unbuffered(&self) -> bool {
        false
    }

    /// Returns the system's handle and the alignment of reads, for batched reads; `None` if reads
    /// must go through this trait.
    #[cfg(any(unix, windows))]
    fn system_file(&self) -> Option<super::batch::SystemFile<'_>> {
        None
    }

    /// Keeps all data appended so far readable, even if the file loses its name. For files that may
    /// be closed and reopened. Fails with `NotFound` if the name is gone.
    fn catch_up(&self) -> io::Result<()> {
        Ok(())
    }

    /// Returns a handle that keeps the file open, if it may otherwise be closed between calls.
    fn held(&self) -> Option<Arc<dyn File>> {
        None
    }

    /// Maps the first `len` bytes for writing without system calls; `None` if mapped writes are
    /// impossible or may fail. The space must be preallocated and synced. Mapped writes are visible
    /// to reads and syncs. Their pages may reach the disk earlier, in any order.
    fn map_for_writing(&self, len: u64) -> io::Result<Option<Box<dyn WriteMapping>>> {
        let _ = len;
        Ok(None)
    }

    /// Maps the first `len` bytes for reading; `None` if unsupported, or if another process may
    /// truncate the file. Accessed bytes must exist and no longer change. An access that fails to
    /// read the disk kills the process, so access only bytes that were recently read another way.
    fn map_for_reading(&self, len: u64) -> io::Result<Option<ReadMapping>> {
        let _ = len;
        Ok(None)
    }
}

/// A writable mapping of the first bytes of a file.
pub trait WriteMapping: Send + Sync + Debug {
    /// Writes `bytes` at `offset`. They survive the death of the process. Panics beyond the
    /// mapping.
    fn write(&mut self, bytes: &[u8], offset: u64);
}
