//! Files by nothing but the standard library: for systems that are neither POSIX nor Windows, as wasm32-wasip1 is.
//!
//! There, the standard library has no stable way to read at a place, so a file is sought in and read under a lock: right from many
//! threads, if there are any, but no faster. Zeros stand in for preallocation, nothing is mapped, and how much space is left is not
//! known. A directory is synced where it can be opened and synced; where the system refuses to, what it orders by itself is its
//! own to say.
//!
//! **The lock** is the standard library's (`File::try_lock`). A system that has no locks (WASI) answers `Unsupported`, and the lock is
//! then held by this process alone against itself: who starts two such processes on one database has to keep them apart.

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

/// The longest file, as on the systems whose offsets are signed.
const FILE_LEN_MAX: u64 = i64::MAX as u64;

/// The most bytes of an owner's text that are read back: the file may hold anything.
const MAX_OWNER_LEN: u64 = 4096;

/// How much is written at once where zeros stand in for preallocation.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The locks that this process holds, as they were named: systems without locks have but these.
static HELD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Files of any system, by the standard library alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortableVfs {}

impl PortableVfs {
    /// The system's files.
    pub fn new() -> PortableVfs {
        PortableVfs {}
    }
}

impl Vfs for PortableVfs {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        // Some systems open a directory like a file, or say something else than that it is one.
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
                // Removed since it was listed, or a link to nothing.
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
            // Of one that was removed since, or may not be looked at, the listing itself says enough.
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
            // A disk that fails says something else: here the system has no such call, or lets nobody open a directory.
            Err(e) if cannot_be_done(&e) => Ok(()),
            other => other,
        }
    }

    fn lock(&self, path: &Path, owner: &str) -> io::Result<Result<Box<dyn FileLock>, String>> {
        // Not truncated here: the file may be another's, whose text must stay.
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if !HELD.lock().insert(path.to_owned()) {
            return Ok(Err(text_of(&file)?));
        }
        // Let go of again if anything below fails.
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
        // A lock that was to be had goes with the file.
        if is_held { text_of(&file).map(Some) } else { Ok(None) }
    }

    fn free_space(&self, _path: &Path) -> io::Result<Option<u64>> {
        Ok(None)
    }
}

/// The present directory has an empty name in paths, but not for the system.
fn in_words(dir: &Path) -> &Path {
    if dir.as_os_str().is_empty() { Path::new(".") } else { dir }
}

/// Whether the system says that it has no such operation on a directory.
fn cannot_be_done(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, IsADirectory, PermissionDenied, Unsupported};
    if matches!(error.kind(), InvalidInput | IsADirectory | PermissionDenied | Unsupported) {
        return true;
    }
    // WASI has not the right to sync on a descriptor of a directory (`notcapable`), or calls it a bad one (`badf`).
    cfg!(target_os = "wasi") && matches!(error.raw_os_error(), Some(8 | 76))
}

/// What the lock's owner has written.
fn text_of(mut file: &fs::File) -> io::Result<String> {
    let mut text = Vec::new();
    file.rewind()?;
    file.take(MAX_OWNER_LEN).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The system's lock lives as long as the file.
#[derive(Debug)]
struct PortableLock {
    path: PathBuf,
    /// Missing as long as it is not clear that the lock is to be had.
    file: Option<fs::File>,
    /// Who took it: a forked process must not let go of it for its parent.
    process: u32,
}

impl FileLock for PortableLock {}

impl Drop for PortableLock {
    fn drop(&mut self) {
        // The system's first, so that who gets ours gets that too; and not by the last copy of the file alone, since a process that is being
        // started has one until its program begins.
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
    fn a_lock_is_seen_by_the_systems_own_and_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let held = PortableVfs::new().lock(&path, "me").unwrap().unwrap();
        let other = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert!(matches!(other.try_lock(), Err(std::fs::TryLockError::WouldBlock)));
        drop(held);
        other.try_lock().unwrap();
        // Refused by the system alone; what was noted of it here is gone again.
        for _ in 0..2 {
            assert_eq!(PortableVfs::new().lock(&path, "you").unwrap().unwrap_err(), "me");
        }
        drop(other);
        assert!(PortableVfs::new().lock(&path, "you").unwrap().is_ok());
    }
}
