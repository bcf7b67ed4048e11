//! An in-memory file system, for in-memory databases and tests.
//!
//! **Structure.** An ordered map leads from each directory to its files. A file is a list of 64 KiB
//! pages behind one reader-writer lock. A handle never uses the map again, so removed and replaced
//! files live until their last handle closes.
//!
//! **Invariants.**
//! - A page holds at most [`PAGE_LEN`] bytes. Missing bytes below the file's length are zeros, so
//!   holes and preallocated tails cost no memory.
//! - No page holds a byte at or past the file's length.
//!
//! **Contiguous files.** A file selected by [`MemVfs::mapped`] becomes one buffer when its last
//! writable handle closes. Readers then map it without a copy. A later write splits it into pages
//! again; existing maps keep the old bytes.
//!
//! **Lock order**: directories, held locks, file. No call holds the locks of two files.

use super::read_mapping::ReadMapping;
use crate::platform::vfs::{DirEntry, File, FileLock, OpenMode, Vfs};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt, io,
    path::{Component, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

const PAGE_LEN: usize = 64 << 10;

/// Maximum file length, as on systems with signed offsets.
const MAX_FILE_LEN: u64 = i64::MAX as u64;

/// An in-memory file system. Clones share its files.
#[derive(Clone, Default)]
pub struct MemVfs {
    directories: Arc<RwLock<BTreeMap<PathBuf, Directory>>>,
    held: Arc<Mutex<BTreeMap<PathBuf, String>>>,
    borrowed_suffix: Option<&'static str>,
}

impl fmt::Debug for MemVfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemVfs").finish_non_exhaustive()
    }
}

type Directory = BTreeMap<OsString, Arc<MemFile>>;

impl MemVfs {
    /// Creates an empty file system with the root `/` and the current directory.
    pub fn new() -> MemVfs {
        MemVfs::default()
    }

    /// Like [`MemVfs::new`], but files whose names end in `borrowed_suffix` can be mapped
    /// ([`File::map_for_reading`]) while no writable handle exists. Closing the last writable
    /// handle copies the file into one buffer.
    pub fn mapped(borrowed_suffix: &'static str) -> MemVfs {
        MemVfs { borrowed_suffix: Some(borrowed_suffix), ..MemVfs::default() }
    }

    fn file(&self, path: &Path) -> io::Result<Arc<MemFile>> {
        let (parent, name) = split(path)?;
        let directories = self.directories.read();
        match directories.get(&parent).and_then(|files| files.get(&name)) {
            Some(file) => Ok(Arc::clone(file)),
            None if is_directory(&directories, &clean(path)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Fails if the name exists, unless `replace` is set.
    fn link(&self, path: &Path, file: Arc<MemFile>, replace: bool) -> io::Result<()> {
        let (parent, name) = split(path)?;
        let mut directories = self.directories.write();
        if is_directory(&directories, &clean(path)) {
            return Err(if replace { io::ErrorKind::IsADirectory } else { io::ErrorKind::AlreadyExists }.into());
        }
        if !is_directory(&directories, &parent) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let files = directories.entry(parent).or_default();
        if !replace && files.contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        files.insert(name, file);
        Ok(())
    }
}

impl Vfs for MemVfs {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let path = clean(path);
        let mut directories = self.directories.write();
        for ancestor in path.ancestors() {
            if is_file(&directories, ancestor) {
                return Err(io::ErrorKind::NotADirectory.into());
            }
        }
        for ancestor in path.ancestors() {
            directories.entry(ancestor.to_owned()).or_default();
        }
        Ok(())
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = match mode {
            OpenMode::Read | OpenMode::ReadWrite => self.file(path)?,
            OpenMode::CreateNew => {
                let file = Arc::new(MemFile::default());
                self.link(path, Arc::clone(&file), false)?;
                file
            }
        };
        let writable = mode != OpenMode::Read;
        if writable {
            file.writers.fetch_add(1, Ordering::Relaxed);
        }
        let is_borrowed =
            self.borrowed_suffix.is_some_and(|end| path.as_os_str().as_encoded_bytes().ends_with(end.as_bytes()));
        Ok(Arc::new(MemHandle { file, writable, is_borrowed }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let dir = clean(dir);
        let directories = self.directories.read();
        match directories.get(&dir) {
            Some(files) => {
                let files: Vec<_> = files.iter().map(|(name, file)| (name.clone(), Arc::clone(file))).collect();
                // A file that is being made contiguous delays only callers that need its length.
                drop(directories);
                let entry = |(name, file): (OsString, Arc<MemFile>)| DirEntry {
                    name: name.to_string_lossy().into_owned(),
                    len: file.contents.read().len,
                };
                Ok(files.into_iter().map(entry).collect())
            }
            None if is_directory(&directories, &dir) => Ok(Vec::new()),
            None if is_file(&directories, &dir) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn list_directories(&self, dir: &Path) -> io::Result<Vec<String>> {
        let dir = clean(dir);
        let directories = self.directories.read();
        let inside = directories.keys().filter(|path| path.parent() == Some(&*dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let (parent, name) = split(path)?;
        let removed = self.directories.write().get_mut(&parent).and_then(|files| files.remove(&name));
        // May free the file's pages, outside the directory lock.
        removed.map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from_parent, from_name), (to_parent, to_name)) = (split(from)?, split(to)?);
        let mut directories = self.directories.write();
        if is_directory(&directories, &clean(to)) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let target_exists = is_directory(&directories, &to_parent);
        let source = directories.get_mut(&from_parent).filter(|files| target_exists && files.contains_key(&from_name));
        let file = source.and_then(|files| files.remove(&from_name)).ok_or(io::ErrorKind::NotFound)?;
        let replaced = directories.entry(to_parent).or_default().insert(to_name, file);
        drop(directories);
        drop(replaced);
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.file(from)?;
        self.link(to, file, false)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if is_directory(&self.directories.read(), &clean(dir)) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn lock(&self, path: &Path, owner: &str) -> io::Result<Result<Box<dyn FileLock>, String>> {
        let file = match self.file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                // If another thread creates it first, use that file.
                match self.link(path, Arc::default(), false) {
                    Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                    _ => self.file(path)?,
                }
            }
            other => other?,
        };
        let path = clean(path);
        let mut held = self.held.lock();
        if let Some(holder) = held.get(&path) {
            return Ok(Err(holder.clone()));
        }
        file.set_len(0)?;
        file.write_at(owner.as_bytes(), 0)?;
        held.insert(path.clone(), owner.to_owned());
        Ok(Ok(Box::new(MemLock { held: Arc::clone(&self.held), path })))
    }

    fn lock_owner(&self, path: &Path) -> io::Result<Option<String>> {
        Ok(self.held.lock().get(&clean(path)).cloned())
    }

    fn free_space(&self, _path: &Path) -> io::Result<Option<u64>> {
        Ok(None)
    }
}

#[derive(Debug)]
struct MemLock {
    held: Arc<Mutex<BTreeMap<PathBuf, String>>>,
    path: PathBuf,
}

impl FileLock for MemLock {}

impl Drop for MemLock {
    fn drop(&mut self) {
        self.held.lock().remove(&self.path);
    }
}

/// Removes `.` components. [`Path`] itself ignores doubled and trailing slashes.
fn clean(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

fn split(path: &Path) -> io::Result<(PathBuf, OsString)> {
    let path = clean(path);
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok((parent.to_owned(), name.to_owned())),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// `path` is the result of [`clean`]. Roots and the empty path (current directory) are directories.
fn is_directory(directories: &BTreeMap<PathBuf, Directory>, path: &Path) -> bool {
    path.parent().is_none() || directories.contains_key(path)
}

fn is_file(directories: &BTreeMap<PathBuf, Directory>, path: &Path) -> bool {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return false };
    directories.get(parent).is_some_and(|files| files.contains_key(name))
}

#[derive(Default)]
struct MemFile {
    contents: RwLock<Contents>,
    writers: AtomicUsize,
}

#[derive(Default)]
struct Contents {
    len: u64,
    /// May end before the length; missing bytes are zeros.
    pages: Vec<Vec<u8>>,
    /// The contiguous buffer; if set, there are no pages.
    whole: Option<Arc<Vec<u8>>>,
}

impl MemFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> usize {
        let contents = self.contents.read();
        let left = contents.len.saturating_sub(offset);
        let count = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        if let Some(whole) = contents.whole.as_ref().filter(|_| count > 0) {
            buf[..count].copy_from_slice(&whole[offset as usize..][..count]);
            return count;
        }
        let mut rest = &mut buf[..count];
        let mut at = offset;
        while !rest.is_empty() {
            let (page, start) = place(at);
            let (part, tail) = rest.split_at_mut(rest.len().min(PAGE_LEN - start));
            let stored = contents.pages.get(page).and_then(|page| page.get(start..)).unwrap_or_default();
            let stored = &stored[..stored.len().min(part.len())];
            part[..stored.len()].copy_from_slice(stored);
            part[stored.len()..].fill(0);
            at += part.len() as u64;
            rest = tail;
        }
        count
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= MAX_FILE_LEN);
        let end = end.ok_or(io::ErrorKind::FileTooLarge)?;
        let mut contents = self.contents.write();
        contents.take_apart()?;
        let mut rest = buf;
        let mut at = offset;
        while !rest.is_empty() {
            let (page, start) = place(at);
            let (part, tail) = rest.split_at(rest.len().min(PAGE_LEN - start));
            contents.reserve(page, start + part.len())?;
            contents.pages[page][start..start + part.len()].copy_from_slice(part);
            at += part.len() as u64;
            contents.len = contents.len.max(at);
            rest = tail;
        }
        debug_assert!(buf.is_empty() || contents.len >= end);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len > MAX_FILE_LEN {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut contents = self.contents.write();
        contents.take_apart()?;
        if len < contents.len {
            let (page, start) = place(len);
            contents.pages.truncate(page.saturating_add(1));
            if let Some(last) = contents.pages.get_mut(page) {
                last.truncate(start);
                last.shrink_to_fit();
            }
        }
        contents.len = len;
        Ok(())
    }
}

impl Contents {
    /// Page by page, so that peak memory stays near the file's length. Leaves files with holes or a
    /// preallocated tail alone, and does nothing if memory is short.
    fn put_together(&mut self) {
        let bytes: usize = self.pages.iter().map(Vec::len).sum();
        let is_wanted = bytes as u64 == self.len && self.whole.is_none();
        let mut whole = Vec::new();
        if !is_wanted || whole.try_reserve_exact(bytes).is_err() {
            return;
        }
        for page in std::mem::take(&mut self.pages) {
            whole.extend_from_slice(&page);
        }
        self.whole = Some(Arc::new(whole));
    }

    fn take_apart(&mut self) -> io::Result<()> {
        let Some(whole) = &self.whole else { return Ok(()) };
        let whole = Arc::clone(whole);
        for (page, bytes) in whole.chunks(PAGE_LEN).enumerate() {
            self.reserve(page, bytes.len()).inspect_err(|_| self.pages = Vec::new())?;
            self.pages[page].copy_from_slice(bytes);
        }
        self.whole = None;
        Ok(())
    }

    fn reserve(&mut self, page: usize, len: usize) -> io::Result<()> {
        let out_of_memory = |_| io::Error::from(io::ErrorKind::OutOfMemory);
        if page >= self.pages.len() {
            self.pages.try_reserve(page + 1 - self.pages.len()).map_err(out_of_memory)?;
            self.pages.resize_with(page + 1, Vec::new);
        }
        let bytes = &mut self.pages[page];
        if len > bytes.len() {
            bytes.try_reserve(len - bytes.len()).map_err(out_of_memory)?;
            bytes.resize(len, 0);
        }
        Ok(())
    }
}

/// Offsets beyond the address space get a page that never exists.
fn place(offset: u64) -> (usize, usize) {
    let page = usize::try_from(offset / PAGE_LEN as u64).unwrap_or(usize::MAX - 1);
    (page, (offset % PAGE_LEN as u64) as usize)
}

impl fmt::Debug for MemHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemHandle").finish_non_exhaustive()
    }
}

struct MemHandle {
    file: Arc<MemFile>,
    writable: bool,
    is_borrowed: bool,
}

impl Drop for MemHandle {
    fn drop(&mut self) {
        // AcqRel: the writes through all handles happen before the last close.
        let is_last = self.writable && self.file.writers.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last && self.is_borrowed && Arc::strong_count(&self.file) > 1 {
            self.file.contents.write().put_together();
        }
    }
}

impl MemHandle {
    fn check_writable(&self) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

impl File for MemHandle {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.file.read_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.check_writable()?;
        self.file.write_at(buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.contents.read().len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        self.file.set_len(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        if len > MAX_FILE_LEN {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut contents = self.file.contents.write();
        if len > contents.len {
            contents.take_apart()?;
            contents.len = len;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn map_for_reading(&self, len: u64) -> io::Result<Option<ReadMapping>> {
        let whole = self.file.contents.read().whole.clone();
        Ok(whole.and_then(|whole| ReadMapping::of_shared(whole, len)))
    }
}
