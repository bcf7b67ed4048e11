//! A file system on the standard library alone, for systems that are neither POSIX nor Windows,
//! such as wasm32-wasip1.
//!
//! There the standard library has no stable positional reads, so each file seeks and reads under a
//! lock. Preallocation writes zeros, nothing is mapped, and free space is unknown. Directories are
//! synced where the system allows it.
//!
//! **The lock** is `File::try_lock`. Without file locks (WASI answers `Unsupported`), it excludes
//! only users in this process; the operator must not start two processes on one database.

#![expect(clippy::disallowed_methods, reason = "this is the other place that opens files")]

use crate::platform::vfs::{DirEntry, File, FileLock, OpenMode, Vfs};
use parking_lot::Mutex;
use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

const FILE_LEN_MAX: u64 = i64::MAX as u64;

/// A lock file may hold anything.
const MAX_OWNER_LEN: u64 = 4096;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Locks held by this process. The only locks on systems without file locks.
static HELD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Files through the standard library.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortableVfs {}

impl PortableVfs {
    /// Creates the file system.
    pub fn new() -> PortableVfs {
        PortableVfs {}
    }
}

impl Vfs for PortableVfs {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        if mode != OpenMode::CreateNew && fs::metadata(path)?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let mut options = OpenOptions::new();
        options.read(true).write(mode != OpenMode::Read).create_new(mode == OpenMode::CreateNew);
        Ok(Arc::new(PortableFile(Mutex::new(options.open(path)?))))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(in_words(dir))? {
            let entry = entry?;
            let metadata = match fs::metadata(entry.path()) {
                // Removed after it was listed, or a dangling link.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            if metadata.is_file() {
                let name = entry.file_name().to_string_lossy().into_owned();
                entries.push(DirEntry { name, len: metadata.len() });
            }
        }
        Ok(entries)
    }

    fn list_directories(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(in_words(dir))? {
            let entry = entry?;
            // If the metadata is unreadable, use the type in the listing.
            if fs::metadata(entry.path()).map_or_else(|_| entry.file_type().is_ok_and(|t| t.is_dir()), |m| m.is_dir()) {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        Ok(names)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let dir = in_words(dir);
        fs::metadata(dir)?;
        match fs::File::open(dir).and_then(|dir| dir.sync_all()) {
            // No such call, or directories cannot be opened. A failing disk returns other errors.
            Err(e) if cannot_be_done(&e) => Ok(()),
            other => other,
        }
    }

    fn lock(&self, path: &Path, owner: &str) -> io::Result<Result<Box<dyn FileLock>, String>> {
        // Do not truncate: the text may belong to the present owner.
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if !HELD.lock().insert(path.to_owned()) {
            return Ok(Err(text_of(&file)?));
        }
        // Releases the entry in `HELD` if anything below fails.
        let mut lock = PortableLock { path: path.to_owned(), file: None, process: std::process::id() };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Err(text_of(&file)?)),
            Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(e)) => return Err(e),
        }
        file.set_len(0)?;
        (&file).write_all(owner.as_bytes())?;
        lock.file = Some(file);
        Ok(Ok(Box::new(lock)))
    }

    fn lock_owner(&self, path: &Path) -> io::Result<Option<String>> {
        let file = match fs::File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let is_held = HELD.lock().contains(path) || matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        // Closing the file releases a lock that was just taken.
        if is_held { text_of(&file).map(Some) } else { Ok(None) }
    }

    fn free_space(&self, _path: &Path) -> io::Result<Option<u64>> {
        Ok(None)
    }
}

/// The empty path is the current directory.
fn in_words(dir: &Path) -> &Path {
    if dir.as_os_str().is_empty() { Path::new(".") } else { dir }
}

fn cannot_be_done(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, IsADirectory, PermissionDenied, Unsupported};
    if matches!(error.kind(), InvalidInput | IsADirectory | PermissionDenied | Unsupported) {
        return true;
    }
    // WASI lacks the right to sync a directory (`notcapable`) or calls its descriptor bad (`badf`).
    cfg!(target_os = "wasi") && matches!(error.raw_os_error(), Some(8 | 76))
}

fn text_of(mut file: &fs::File) -> io::Result<String> {
    let mut text = Vec::new();
    file.rewind()?;
    file.take(MAX_OWNER_LEN).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[derive(Debug)]
struct PortableLock {
    path: PathBuf,
    file: Option<fs::File>,
    /// A forked child must not release its parent's lock.
    process: u32,
}

impl FileLock for PortableLock {}

impl Drop for PortableLock {
    fn drop(&mut self) {
        // The system's lock first, so that the next holder of ours can take it. Closing is not
        // enough: a process that is being started holds a copy of the descriptor.
        if let Some(file) = self.file.take().filter(|_| self.process == std::process::id()) {
            let _ = file.unlock();
        }
        HELD.lock().remove(&self.path);
    }
}

#[derive(Debug)]
struct PortableFile(Mutex<fs::File>);

impl File for PortableFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut file = self.0.lock();
        file.seek(SeekFrom::Start(offset))?;
        let mut done = 0;
        while done < buf.len() {
            match file.read(&mut buf[done..]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut file = self.0.lock();
        file.seek(SeekFrom::Start(offset))?;
        file.write_all(buf)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len > FILE_LEN_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.lock().set_len(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        if len > FILE_LEN_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut file = self.0.lock();
        let mut at = file.metadata()?.len();
        file.seek(SeekFrom::Start(at))?;
        while at < len {
            let count = usize::try_from(len - at).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
            file.write_all(&ZEROS[..count])?;
            at += count as u64;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.lock().sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::PortableVfs;
    use crate::platform::vfs::Vfs;

    #[test]
    fn lock_held_blocks_other_descriptor_until_drop() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let held = PortableVfs::new().lock(&path, "me").unwrap().unwrap();
        let other = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert!(matches!(other.try_lock(), Err(std::fs::TryLockError::WouldBlock)));
        drop(held);
        other.try_lock().unwrap();
        for _ in 0..2 {
            assert_eq!(PortableVfs::new().lock(&path, "you").unwrap().unwrap_err(), "me");
        }
        drop(other);
        assert!(PortableVfs::new().lock(&path, "you").unwrap().is_ok());
    }
}
