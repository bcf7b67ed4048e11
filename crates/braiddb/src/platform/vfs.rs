//! Files, as the engine needs them.
//!
//! Every call is positional, so that one handle serves many threads on each system. Paths are whole paths. Nothing
//! here assumes that a directory can be synced (Windows: a no-op), that an open file can be renamed, or that a
//! rename is atomic: the formats above do without.

use super::{
    batch::{IoReport, ReadRequest, Unbuffered},
    os::read_mapping::ReadMapping,
};
use std::{fmt::Debug, io, path::Path, sync::Arc};

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Existing, for reading.
    Read,
    /// Existing, for reading and writing.
    ReadWrite,
    /// For reading and writing; must not exist yet.
    CreateNew,
}

/// A file in a directory listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Its name within the directory.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
}

/// A file system.
///
/// Errors are `io::Error` with their usual kinds: `NotFound`, `AlreadyExists`, `StorageFull`. Interrupted calls are
/// retried inside.
pub trait Vfs: Send + Sync + Debug + 'static {
    /// Creates a directory and its parents; one that exists is no error.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;
    /// The files (not directories) of a directory, in no order; `NotFound` if there is no such directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;
    /// The names of the directories in a directory, in no order; none where the file system cannot tell.
    fn list_directories(&self, dir: &Path) -> io::Result<Vec<String>> {
        let _ = dir;
        Ok(Vec::new())
    }
    /// Removes a file. Handles that are open stay usable.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Renames a file, replacing the target.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file a second name.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in a directory survive a crash.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Takes the lock that `path` names (the file is created if need be), and writes `owner` into it for others to
    /// read. `Ok(Err(text))` when somebody else holds it, `text` being what they wrote.
    fn lock(&self, path: &Path, owner: &str) -> io::Result<Result<Box<dyn FileLock>, String>>;
    /// Who holds the lock that `path` names, without writing anything, as far as that can be told; `None` if nobody does, or it cannot be told.
    fn lock_owner(&self, path: &Path) -> io::Result<Option<String>> {
        let _ = path;
        Ok(None)
    }
    /// The bytes that may still be written to the file system of `path`; `None` if it cannot be told.
    fn free_space(&self, path: &Path) -> io::Result<Option<u64>>;
    /// The bytes that the file system of `path` has in all, used or free; `None` if it has no end, or does not say.
    fn total_space(&self, path: &Path) -> io::Result<Option<u64>> {
        let _ = path;
        Ok(None)
    }
    /// How many files the process may have open at once; `None` if an open file costs nothing that is limited.
    fn open_files_limit(&self) -> Option<u64> {
        None
    }

    /// Opens a file whose bytes the system is not to keep in its cache. Where it will not have that, the file is opened as
    /// [`Vfs::open`] does, and it is told why. Reads and writes of such a file take any offset, length and address, whatever the
    /// system wants of them: what is not aligned goes through aligned memory that is kept for that.
    fn open_unbuffered(&self, path: &Path, mode: OpenMode) -> io::Result<Unbuffered> {
        let because = "this file system has no way around a cache".to_owned();
        Ok(Unbuffered { file: self.open(path, mode)?, refused: Some(because) })
    }

    /// Makes many reads, at once where that is to be had, else one after another. What became of each is in its `result`.
    fn read_many(&self, requests: &mut [ReadRequest]) {
        requests.iter_mut().for_each(ReadRequest::read_alone);
    }

    /// How files are read, as far as that is told.
    fn io_report(&self) -> IoReport {
        IoReport::default()
    }
}

/// A lock that is held until it is dropped.
pub trait FileLock: Send + Sync + Debug {}

/// An open file. All calls may come from many threads at once; overlapping writes are the caller's business.
pub trait File: Send + Sync + Debug + 'static {
    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the file's end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Reads exactly `buf.len()` bytes at `offset`; `UnexpectedEof` past the end.
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

    /// Writes all of `buf` at `offset`, growing the file if need be. After an error any part may have been written.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the length is zero.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or extends with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes sure that the first `len` bytes have space on disk; bytes past the old end read as zeros and the length
    /// is at least `len` afterwards. Where the system cannot, zeros are written.
    fn preallocate(&self, len: u64) -> io::Result<()>;

    /// Where something may have been written, from `offset` on; `None` if nothing was. What stands before that place reads as zeros, and need
    /// not be read. Who knows nothing of it says `offset`.
    fn next_written(&self, offset: u64) -> io::Result<Option<u64>> {
        Ok(Some(offset))
    }

    /// Makes all written data, and the length, survive a power failure.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes `bytes` survive a power failure, which stand at `offset` and are not written to meanwhile. Whatever else was
    /// written to the file need not survive, so that this may be much less work than to sync all of it.
    fn sync_bytes(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let _ = (bytes, offset);
        self.sync_data()
    }

    /// Has the system begin to write `len` bytes at `offset` to the disk, and does not wait for it: the next sync has less to
    /// do. It promises nothing.
    fn start_write_back(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// Whether somebody reads ahead of reads in order already, in this process: then short reads cost no more than long ones.
    fn is_read_ahead(&self) -> bool {
        false
    }

    /// Whether reads go past the system's cache: then nobody reads ahead but who is told to, and a read costs what the device takes.
    fn is_unbuffered(&self) -> bool {
        false
    }

    /// The system's name for the file, and how reads by it are to be aligned, for who makes many reads at once; `None` if it is
    /// not to be read past this trait.
    #[cfg(any(unix, windows))]
    fn system_file(&self) -> Option<super::batch::SystemFile<'_>> {
        None
    }

    /// Has all that others have appended until now stay readable, whatever becomes of the file's name. Fails, as not found, if it has none any more, so
    /// that this cannot be known. Whoever has a file open always can, so there is nothing to be done but for one that may be closed and opened again.
    fn catch_up(&self) -> io::Result<()> {
        Ok(())
    }

    /// The file itself, open as long as this is held, of one that may be closed and opened again between two calls; `None` of others.
    fn held(&self) -> Option<Arc<dyn File>> {
        None
    }

    /// A way to write to the first `len` bytes without a call to the system for each write; `None` where there is none, or
    /// none that cannot fail. All that space must have been preallocated, and synced. What is written that way is read and
    /// synced like anything else; pages of it may reach the disk at any time before, in any order.
    fn map_for_writing(&self, len: u64) -> io::Result<Option<Box<dyn WriteMapping>>> {
        let _ = len;
        Ok(None)
    }

    /// The first `len` bytes as memory, to be read without a call to the system; `None` where that is not to be had, or where
    /// others could cut the file short meanwhile. Precondition: they are there, and what is looked at is not written to
    /// any more. What cannot be read from the disk when it is looked at kills the process, so look only at what was read in another
    /// way shortly before.
    fn map_for_reading(&self, len: u64) -> io::Result<Option<ReadMapping>> {
        let _ = len;
        Ok(None)
    }
}

/// The first bytes of a file, to be written in memory.
pub trait WriteMapping: Send + Sync + Debug {
    /// Writes `bytes` at `offset`. They are with the operating system when this returns: a process that is killed loses
    /// nothing of them. Panics if they do not lie within the mapping.
    fn write(&mut self, bytes: &[u8], offset: u64);
}
