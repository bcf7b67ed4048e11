//! A file system in memory that fails on demand and can lose unsynced data. For unit tests.

use crate::platform::{
    os::mem::MemVfs,
    os::read_mapping::ReadMapping,
    vfs::{DirEntry, File, FileLock, OpenMode, Vfs},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// Operations that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Creating a file.
    Create,
    /// A write, possibly a partial one.
    Write,
    /// Preallocating space.
    Preallocate,
    /// Syncing a file.
    Sync,
    /// Syncing the directory.
    SyncDir,
    /// Removing a file.
    Remove,
    /// Opening a file. Not in the journal.
    Open,
    /// A read. Not in the journal.
    Read,
}

#[derive(Clone, Copy, Debug)]
struct Fault {
    operation: Operation,
    /// Operations that still succeed before the first failure.
    after: u32,
    times: u32,
    kind: io::ErrorKind,
    /// Bytes that a failing write stores anyway.
    written: usize,
}

#[derive(Debug, Default)]
struct State {
    faults: Vec<Fault>,
    /// Contents at the last sync.
    synced: BTreeMap<PathBuf, Vec<u8>>,
    /// The operation that panics, and a part of the file's name.
    panics: Option<(Operation, &'static str)>,
    /// Names at the last directory sync.
    names: BTreeSet<PathBuf>,
    /// Except `Open` and `Read`.
    journal: Vec<(Operation, PathBuf)>,
    read: BTreeMap<PathBuf, u64>,
    /// Bytes, and the highest offset that a write reached.
    written: BTreeMap<PathBuf, (u64, u64)>,
}

/// Runs before each operation.
type Step = dyn Fn(Operation, &Path) + Send + Sync;

#[derive(Clone, Default)]
struct Hook(Option<Arc<Step>>);

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

/// Clones share their state.
#[derive(Clone, Debug)]
pub struct FaultVfs {
    inner: MemVfs,
    dir: PathBuf,
    state: Arc<Mutex<State>>,
    hook: Hook,
}

#[derive(Debug)]
struct FaultFile {
    inner: Arc<dyn File>,
    path: PathBuf,
    vfs: FaultVfs,
}

impl FaultVfs {
    /// Creates a file system with one empty directory.
    pub fn new(dir: &Path) -> FaultVfs {
        let inner = MemVfs::new();
        inner.create_dir_all(dir).unwrap();
        FaultVfs { inner, dir: dir.to_owned(), state: Arc::default(), hook: Hook::default() }
    }

    /// Runs `hook` before each operation. It may block the operation, or advance a clock.
    pub fn with_hook(self, hook: impl Fn(Operation, &Path) + Send + Sync + 'static) -> FaultVfs {
        FaultVfs { hook: Hook(Some(Arc::new(hook))), ..self }
    }

    /// Lets `after` operations succeed, then fails `times` of them.
    pub fn fail(&self, operation: Operation, after: u32, times: u32, kind: io::ErrorKind) {
        self.fail_written(operation, after, times, kind, 0);
    }

    /// [`FaultVfs::fail`] where each failing write stores its first `written` bytes.
    pub fn fail_written(&self, operation: Operation, after: u32, times: u32, kind: io::ErrorKind, written: usize) {
        self.state.lock().unwrap().faults.push(Fault { operation, after, times, kind, written });
    }

    /// `part`: of the file's name.
    pub fn panic_at(&self, operation: Operation, part: &'static str) {
        self.state.lock().unwrap().panics = Some((operation, part));
    }

    /// Returns true if a panic is still pending.
    pub fn will_panic(&self) -> bool {
        self.state.lock().unwrap().panics.is_some()
    }

    /// Cancels all pending failures.
    pub fn heal(&self) {
        self.state.lock().unwrap().faults.clear();
    }

    /// Clones of the file system count too.
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.state)
    }

    /// Counts pending failures.
    pub fn failures_to_come(&self) -> u32 {
        self.state.lock().unwrap().faults.iter().map(|fault| fault.times).sum()
    }

    /// Returns all operations so far, except `Open` and `Read`.
    pub fn journal(&self) -> Vec<(Operation, PathBuf)> {
        self.state.lock().unwrap().journal.clone()
    }

    /// Returns the bytes written to a file and the highest offset that a write reached.
    pub fn written(&self, path: &Path) -> (u64, u64) {
        self.state.lock().unwrap().written.get(path).copied().unwrap_or_default()
    }

    /// "": files without extension.
    pub fn bytes_read(&self, extension: &str) -> u64 {
        let state = self.state.lock().unwrap();
        let has_extension = |path: &Path| path.extension().unwrap_or_default() == extension;
        state.read.iter().filter(|(path, _)| has_extension(path)).map(|(_, bytes)| bytes).sum()
    }

    /// Leaves out files that another thread removes meanwhile.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let list = self.inner.list(&self.dir).unwrap();
        list.into_iter().filter_map(|entry| self.read_if_there(&self.dir.join(&entry.name))).collect()
    }

    /// Returns a file's contents.
    pub fn read(&self, path: &Path) -> Vec<u8> {
        self.read_if_there(path).unwrap_or_else(|| panic!("there is no {}", path.display())).1
    }

    fn read_if_there(&self, path: &Path) -> Option<(PathBuf, Vec<u8>)> {
        let file = match self.inner.open(path, OpenMode::Read) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
            opened => opened.unwrap(),
        };
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        Some((path.to_owned(), bytes))
    }

    /// All durable.
    pub fn of_files(dir: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) -> FaultVfs {
        let vfs = FaultVfs::new(dir);
        for (path, bytes) in files {
            let file = vfs.inner.open(path, OpenMode::CreateNew).unwrap();
            file.write_at(bytes, 0).unwrap();
        }
        let mut state = vfs.state.lock().unwrap();
        state.names = files.keys().cloned().collect();
        state.synced = files.clone();
        drop(state);
        vfs
    }

    /// A possible state after a power failure. By `coin`, each sector of 512 bytes is the synced or
    /// the written one, and each name created or removed since the last directory sync exists or
    /// not.
    pub fn crashed(&self, mut coin: impl FnMut() -> bool) -> FaultVfs {
        let (now, state) = (self.files(), self.state.lock().unwrap());
        let mut files = BTreeMap::new();
        for path in now.keys().chain(&state.names).collect::<BTreeSet<_>>() {
            let kept = now.contains_key(path) && state.names.contains(path);
            if !kept && !coin() {
                continue;
            }
            let old = state.synced.get(path).cloned().unwrap_or_default();
            let new = now.get(path).unwrap_or(&old);
            let mut bytes = old.clone();
            if coin() {
                bytes.resize(new.len(), 0);
            }
            for at in (0..new.len().min(bytes.len())).step_by(512) {
                let end = (at + 512).min(new.len()).min(bytes.len());
                if new[at..end] != bytes[at..end] && coin() {
                    bytes[at..end].copy_from_slice(&new[at..end]);
                }
            }
            files.insert(path.clone(), bytes);
        }
        FaultVfs::of_files(&self.dir, &files)
    }

    fn enter(&self, operation: Operation, path: &Path) -> Result<(), (io::Error, usize)> {
        if let Hook(Some(hook)) = &self.hook {
            hook(operation, path);
        }
        let mut state = self.state.lock().unwrap();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if state.panics.take_if(|(at, part)| *at == operation && name.contains(*part)).is_some() {
            drop(state);
            panic!("{operation:?} of {name} was told to panic");
        }
        for fault in &mut state.faults {
            if fault.operation == operation {
                if fault.after > 0 {
                    fault.after -= 1;
                } else if fault.times > 0 {
                    fault.times -= 1;
                    return Err((fault.kind.into(), fault.written));
                }
            }
        }
        if !matches!(operation, Operation::Open | Operation::Read) {
            state.journal.push((operation, path.to_owned()));
        }
        Ok(())
    }
}

fn error_only((error, _): (io::Error, usize)) -> io::Error {
    error
}

impl Vfs for FaultVfs {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        if mode == OpenMode::CreateNew {
            self.enter(Operation::Create, path).map_err(error_only)?;
        } else {
            self.enter(Operation::Open, path).map_err(error_only)?;
        }
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(FaultFile { inner, path: path.to_owned(), vfs: self.clone() }))
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.list(dir)
    }
    fn list_directories(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list_directories(dir)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.enter(Operation::Remove, path).map_err(error_only)?;
        self.inner.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.hard_link(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.enter(Operation::SyncDir, dir).map_err(error_only)?;
        // Under the lock, so that the later of two concurrent syncs wins.
        let mut state = self.state.lock().unwrap();
        state.names = self.files().into_keys().collect();
        Ok(())
    }
    fn lock_owner(&self, path: &Path) -> io::Result<Option<String>> {
        self.inner.lock_owner(path)
    }
    fn lock(&self, path: &Path, owner: &str) -> io::Result<Result<Box<dyn FileLock>, String>> {
        self.inner.lock(path, owner)
    }
    fn free_space(&self, path: &Path) -> io::Result<Option<u64>> {
        self.inner.free_space(path)
    }
    fn total_space(&self, path: &Path) -> io::Result<Option<u64>> {
        self.inner.total_space(path)
    }
}

impl File for FaultFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.vfs.enter(Operation::Read, &self.path).map_err(error_only)?;
        let len = self.inner.read_at(buf, offset)?;
        *self.vfs.state.lock().unwrap().read.entry(self.path.clone()).or_default() += len as u64;
        Ok(len)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if let Err((error, written)) = self.vfs.enter(Operation::Write, &self.path) {
            self.inner.write_at(&buf[..written.min(buf.len())], offset)?;
            return Err(error);
        }
        let mut state = self.vfs.state.lock().unwrap();
        let (bytes, end) = state.written.entry(self.path.clone()).or_default();
        (*bytes, *end) = (*bytes + buf.len() as u64, (*end).max(offset + buf.len() as u64));
        drop(state);
        self.inner.write_at(buf, offset)
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }
    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.vfs.enter(Operation::Preallocate, &self.path).map_err(error_only)?;
        self.inner.preallocate(len)
    }
    /// The first nonzero byte, so that readers get the fewest possible bytes.
    fn next_written(&self, offset: u64) -> io::Result<Option<u64>> {
        let mut bytes = vec![0; self.inner.len()?.saturating_sub(offset) as usize];
        self.inner.read_exact_at(&mut bytes, offset)?;
        Ok(bytes.iter().position(|byte| *byte != 0).map(|at| offset + at as u64))
    }
    fn sync_data(&self) -> io::Result<()> {
        self.vfs.enter(Operation::Sync, &self.path).map_err(error_only)?;
        let mut state = self.vfs.state.lock().unwrap();
        let mut bytes = vec![0; self.inner.len()? as usize];
        self.inner.read_exact_at(&mut bytes, 0)?;
        state.synced.insert(self.path.clone(), bytes);
        Ok(())
    }
    fn map_for_reading(&self, len: u64) -> io::Result<Option<ReadMapping>> {
        let mut bytes = vec![0; len as usize];
        self.inner.read_exact_at(&mut bytes, 0)?;
        Ok(Some(ReadMapping::of_copy(bytes.into())))
    }
}
