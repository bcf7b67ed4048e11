//! A budget of open files, with files closed and reopened on demand.
//!
//! A database may have far more tables than the process may have descriptors. [`BudgetedVfs`] keeps
//! the descriptors of read-only files as long as the budget allows. Above the budget, a clock
//! algorithm closes one: each read marks its file; the hand clears marks and closes the first
//! unmarked file.
//!
//! Closed files are reopened by path, so removed files need care:
//!
//! - *Removed through the same [`BudgetedVfs`]*: their handles are opened first and stay open. This
//!   is rare, since tables are removed with their last handle. A rename updates the handles.
//! - *Removed by another process* (followers read such files): a file is mapped before its
//!   descriptor is closed, and later reads use the map, which pins the file. Each read first
//!   populates the pages ([`ReadMapping::populate`]), so that a failing disk returns an error. If
//!   mapping fails, the descriptor stays. The map lacks data appended later; readers call
//!   [`File::catch_up`] while the name exists.
//!
//! # Concurrency
//!
//! A read loads the descriptor from an [`ArcSwapOption`] and writes no shared memory except the
//! mark, at most once per turn of the hand. It pins the descriptor while it lasts. Opening and
//! closing take the file's lock. The hand only tries these locks, so no two threads wait for each
//! other. Pinned and unclosable descriptors may exceed the budget.

use crate::platform::{
    batch::{ReadRequest, Unbuffered},
    os::read_mapping::ReadMapping,
    vfs::{DirEntry, File, FileLock, OpenMode, Vfs, WriteMapping},
};
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

/// Minimum budget, so that several threads can read at once.
const OPEN_FILES_MIN: usize = 4;

/// Maximum default budget.
const OPEN_FILES_DEFAULT_MAX: usize = 1 << 16;

/// Maximum attempts of an operation that runs out of descriptors.
const ATTEMPTS_MAX: usize = 4;

/// A budget of descriptors, and the files that have one. Any thread may call any method.
pub struct OpenFiles {
    max: usize,
    open: AtomicUsize,
    reopened: AtomicU64,
    /// Files that can be closed, and some that are gone or no longer closable.
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    files: Vec<Weak<Budgeted>>,
    hand: usize,
}

/// Descriptor counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFilesStats {
    /// Open descriptors of the budget.
    pub open: usize,
    /// Maximum descriptors.
    pub max: usize,
    /// Number of times that a file was reopened.
    pub reopened: u64,
}

impl OpenFiles {
    /// Creates a budget of `max` files, at least 4.
    pub fn new(max: usize) -> Arc<OpenFiles> {
        let (open, reopened) = (AtomicUsize::new(0), AtomicU64::new(0));
        Arc::new(OpenFiles { max: max.max(OPEN_FILES_MIN), open, reopened, ring: Mutex::default() })
    }

    /// Returns the process-wide default budget: half of `limit`, as passed by the first call.
    pub fn of_process(limit: u64) -> Arc<OpenFiles> {
        static BUDGET: OnceLock<Arc<OpenFiles>> = OnceLock::new();
        let half = usize::try_from(limit / 2).unwrap_or(usize::MAX).min(OPEN_FILES_DEFAULT_MAX);
        Arc::clone(BUDGET.get_or_init(|| OpenFiles::new(half)))
    }

    /// Returns the current counts.
    pub fn stats(&self) -> OpenFilesStats {
        OpenFilesStats { open: self.open.load(Relaxed), max: self.max, reopened: self.reopened.load(Relaxed) }
    }

    /// Closes files until one more fits, as far as possible.
    fn make_room(&self) {
        while self.open.load(Relaxed) >= self.max && self.close_one() {}
    }

    /// Closes a file not read recently. Returns false if none can be closed.
    fn close_one(&self) -> bool {
        let mut ring = self.ring.lock();
        // The first turn clears marks. The bound ends the loop even if readers keep setting them.
        let mut left = 2 * ring.files.len() + 1;
        while left > 0 && !ring.files.is_empty() {
            left -= 1;
            let at = if ring.hand < ring.files.len() { ring.hand } else { 0 };
            ring.hand = at + 1;
            let Some(file) = ring.files[at].upgrade() else {
                ring.hand = at;
                ring.files.swap_remove(at);
                continue;
            };
            if file.is_recent.swap(false, Relaxed) {
                continue;
            }
            let Some(mut state) = file.state.try_lock() else { continue };
            ring.hand = at;
            ring.files.swap_remove(at);
            state.is_in_ring = false;
            // Closing may wait for the disk.
            drop(ring);
            let is_closed = file.close(&mut state);
            drop(state);
            // This may be the last reference. Drop the file without holding a lock.
            drop(file);
            if is_closed {
                return true;
            }
            ring = self.ring.lock();
        }
        false
    }

    fn enter_ring(&self, file: &Arc<Budgeted>) {
        let mut ring = self.ring.lock();
        if ring.files.len() >= 2 * self.max.max(self.open.load(Relaxed)) {
            ring.files.retain(|file| file.strong_count() > 0);
        }
        ring.files.push(Arc::downgrade(file));
    }

    /// Runs `attempt`. While it runs out of descriptors, closes half of the files and retries.
    fn attempt<T>(&self, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let mut attempts = 0;
        loop {
            match attempt() {
                Err(e) if is_out_of_descriptors(&e) => {
                    attempts += 1;
                    let closed = (0..=self.open.load(Relaxed) / 2).take_while(|_| self.close_one()).count();
                    if closed == 0 || attempts == ATTEMPTS_MAX {
                        return Err(self.too_many(&e));
                    }
                }
                other => return other,
            }
        }
    }

    fn too_many(&self, error: &io::Error) -> io::Error {
        let OpenFilesStats { open, max, .. } = self.stats();
        io::Error::other(format!(
            "{error}; {open} tables and retained log segments are open, of {max} that may be: raise the limit of open files (ulimit -n), or \
             lower Builder::open_files_max so that more is left to others"
        ))
    }
}

impl fmt::Debug for OpenFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenFiles").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

#[cfg(unix)]
fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    error.raw_os_error().is_some_and(|code| [Errno::MFILE, Errno::NFILE].iter().any(|e| e.raw_os_error() == code))
}

#[cfg(not(unix))]
fn is_out_of_descriptors(error: &io::Error) -> bool {
    // ERROR_TOO_MANY_OPEN_FILES.
    cfg!(windows) && error.raw_os_error() == Some(4)
}

/// A file system whose read-only files share a descriptor budget.
pub struct BudgetedVfs {
    inner: Arc<dyn Vfs>,
    budget: Arc<OpenFiles>,
    /// Selects the files that may be closed. They are only read here, and their writers never
    /// truncate them.
    is_budgeted: fn(&Path) -> bool,
    /// True if another process may remove files open here.
    may_vanish: bool,
    handles: Arc<Handles>,
}

/// The live files by path.
type Handles = Mutex<HashMap<PathBuf, Vec<Weak<Budgeted>>>>;

impl BudgetedVfs {
    /// Creates a layer over `inner`. Files opened for reading count if `is_budgeted` selects their
    /// path.
    pub fn new(
        inner: Arc<dyn Vfs>,
        budget: Arc<OpenFiles>,
        is_budgeted: fn(&Path) -> bool,
        may_vanish: bool,
    ) -> BudgetedVfs {
        BudgetedVfs { inner, budget, is_budgeted, may_vanish, handles: Arc::default() }
    }

    /// Opens a file of the budget. Also returns the reason if direct I/O was requested and refused.
    fn open_budgeted(&self, path: &Path, unbuffered: bool) -> io::Result<(Arc<dyn File>, Option<String>)> {
        let file = Arc::new(Budgeted {
            vfs: Arc::clone(&self.inner),
            budget: Arc::clone(&self.budget),
            handles: Arc::clone(&self.handles),
            may_vanish: self.may_vanish,
            unbuffered,
            refused: OnceLock::new(),
            descriptor: ArcSwapOption::empty(),
            mapping: ArcSwapOption::empty(),
            is_recent: AtomicBool::new(false),
            state: Mutex::new(State { path: path.to_owned(), is_in_ring: false, stays_open: false }),
        });
        // Registered before it opens, so that a concurrent remove sees it.
        self.handles.lock().entry(path.to_owned()).or_default().push(Arc::downgrade(&file));
        file.open()?;
        let refused = file.refused.get().cloned().flatten();
        Ok((Arc::new(Handle(file)), refused))
    }

    fn handles_of(&self, path: &Path) -> Vec<Arc<Budgeted>> {
        self.handles.lock().get(path).map_or_else(Vec::new, |files| files.iter().filter_map(Weak::upgrade).collect())
    }

    /// Pins the open files of `path`, which is about to lose its name.
    fn keep_open(&self, path: &Path) {
        for file in self.handles_of(path) {
            if let Err(error) = file.keep_open() {
                tracing::warn!(path = %path.display(), %error, "a file that is removed cannot be kept open");
            }
        }
    }
}

impl fmt::Debug for BudgetedVfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BudgetedVfs").field("inner", &self.inner).field("budget", &self.budget).finish_non_exhaustive()
    }
}

impl super::layer::VfsLayer for BudgetedVfs {
    fn inner(&self) -> &dyn Vfs {
        &*self.inner
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        if mode != OpenMode::Read || !(self.is_budgeted)(path) {
            return self.budget.attempt(|| self.inner.open(path, mode));
        }
        Ok(self.open_budgeted(path, false)?.0)
    }

    fn open_unbuffered(&self, path: &Path, mode: OpenMode) -> io::Result<Unbuffered> {
        if mode != OpenMode::Read || !(self.is_budgeted)(path) {
            return self.budget.attempt(|| self.inner.open_unbuffered(path, mode));
        }
        let (file, refused) = self.open_budgeted(path, true)?;
        Ok(Unbuffered { file, refused })
    }

    fn read_many(&self, requests: &mut [ReadRequest]) {
        // Replace handles by files that stay open during the batch.
        for request in requests.iter_mut() {
            if let Some(file) = request.file.held() {
                request.file = file;
            }
        }
        self.inner.read_many(requests);
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.budget.attempt(|| self.inner.list(dir))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.keep_open(path);
        self.inner.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.keep_open(to);
        // Hold the locks until the end, so that no file is reopened under its old name meanwhile.
        let files = self.handles_of(from);
        let mut states: Vec<_> = files.iter().map(|file| file.state.lock()).collect();
        self.inner.rename(from, to)?;
        let mut handles = self.handles.lock();
        for state in &mut states {
            to.clone_into(&mut state.path);
        }
        let moved = handles.remove(from).unwrap_or_default();
        handles.entry(to.to_owned()).or_default().extend(moved);
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        // A call that runs out of descriptors has synced nothing, so it may be retried.
        self.budget.attempt(|| self.inner.sync_dir(dir))
    }

    fn lock(&self, path: &Path, owner: &str) -> io::Result<Result<Box<dyn FileLock>, String>> {
        self.budget.attempt(|| self.inner.lock(path, owner))
    }
}

/// An open descriptor that counts towards the budget.
struct Descriptor {
    file: Option<Arc<dyn File>>,
    budget: Arc<OpenFiles>,
}

impl Descriptor {
    fn new(file: Arc<dyn File>, budget: &Arc<OpenFiles>) -> Descriptor {
        budget.open.fetch_add(1, Relaxed);
        Descriptor { file: Some(file), budget: Arc::clone(budget) }
    }

    fn file(&self) -> &dyn File {
        &**self.file.as_ref().expect("there until this is dropped")
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // Close first: a thread that sees the lower count may open another file.
        self.file = None;
        self.budget.open.fetch_sub(1, Relaxed);
    }
}

/// A file closed and reopened on demand.
struct Budgeted {
    vfs: Arc<dyn Vfs>,
    budget: Arc<OpenFiles>,
    handles: Arc<Handles>,
    may_vanish: bool,
    /// True for direct I/O. `refused` is the result of the first open.
    unbuffered: bool,
    refused: OnceLock<Option<String>>,
    descriptor: ArcSwapOption<Descriptor>,
    /// Serves reads after the descriptor is closed, if other processes may remove the file.
    mapping: ArcSwapOption<ReadMapping>,
    /// The mark of the clock algorithm.
    is_recent: AtomicBool,
    state: Mutex<State>,
}

struct State {
    path: PathBuf,
    is_in_ring: bool,
    /// True if the file could not be found again after a close.
    stays_open: bool,
}

impl Budgeted {
    /// Returns the descriptor. Opens the file if it is closed.
    fn open(self: &Arc<Self>) -> io::Result<Arc<Descriptor>> {
        let mut state = self.state.lock();
        if let Some(descriptor) = self.descriptor.load_full() {
            return Ok(descriptor);
        }
        let (descriptor, is_new) = self.open_held(&mut state)?;
        drop(state);
        if is_new {
            self.budget.enter_ring(self);
        }
        Ok(descriptor)
    }

    /// Opens the file. Returns the descriptor, and true if the file must enter the ring.
    fn open_held(&self, state: &mut State) -> io::Result<(Arc<Descriptor>, bool)> {
        self.budget.make_room();
        let file = self.budget.attempt(|| self.open_inner(&state.path))?;
        let descriptor = Arc::new(Descriptor::new(file, &self.budget));
        self.descriptor.store(Some(Arc::clone(&descriptor)));
        self.is_recent.store(true, Relaxed);
        let is_new = !state.is_in_ring && !state.stays_open;
        state.is_in_ring |= is_new;
        Ok((descriptor, is_new))
    }

    fn open_inner(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        if !self.unbuffered {
            return self.vfs.open(path, OpenMode::Read);
        }
        let opened = self.vfs.open_unbuffered(path, OpenMode::Read)?;
        self.refused.get_or_init(|| opened.refused);
        Ok(opened.file)
    }

    /// Closes the file if it stays readable. Returns true if closed.
    fn close(&self, state: &mut State) -> bool {
        if state.stays_open {
            return false;
        }
        let Some(descriptor) = self.descriptor.load_full() else { return false };
        if self.may_vanish && !self.map(&descriptor) {
            state.stays_open = true;
            return false;
        }
        self.descriptor.store(None);
        true
    }

    /// Maps the whole file, so that it stays readable without a name. Returns true on success.
    fn map(&self, descriptor: &Descriptor) -> bool {
        let Ok(len) = descriptor.file().len() else { return false };
        if self.mapping.load().as_ref().is_some_and(|mapping| mapping.len() as u64 == len) {
            return true;
        }
        match descriptor.file().map_for_reading(len) {
            // If the system cannot populate pages, a failing disk would kill the process: do not
            // use the map.
            Ok(Some(mapping)) if mapping.populate(0..1) => {
                self.mapping.store(Some(Arc::new(mapping)));
                true
            }
            _ => false,
        }
    }

    /// Pins the file, and opens it if it is closed.
    fn keep_open(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if self.descriptor.load().is_some() {
            state.stays_open = true;
            return Ok(());
        }
        if self.mapping.load().is_some() {
            return Ok(());
        }
        state.stays_open = true;
        match self.open_held(&mut state) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    fn mark(&self) {
        if !self.is_recent.load(Relaxed) {
            self.is_recent.store(true, Relaxed);
        }
    }

    /// Runs `action` on the open file.
    fn with<T>(self: &Arc<Self>, action: impl FnOnce(&dyn File) -> io::Result<T>) -> io::Result<T> {
        if let Some(descriptor) = &*self.descriptor.load() {
            self.mark();
            return action(descriptor.file());
        }
        self.budget.reopened.fetch_add(1, Relaxed);
        action(self.open()?.file())
    }

    /// Reads from the map if the file is closed and the range is mapped.
    fn read_mapped(&self, buf: &mut [u8], offset: u64) -> Option<io::Result<usize>> {
        let mapping = self.mapping.load();
        let mapping = mapping.as_ref()?;
        let end = offset.checked_add(buf.len() as u64)?;
        (end <= mapping.len() as u64 && self.descriptor.load().is_none()).then(|| mapping.read_at(buf, offset))
    }
}

impl Drop for Budgeted {
    fn drop(&mut self) {
        let path = &self.state.get_mut().path;
        let mut handles = self.handles.lock();
        if let Some(files) = handles.get_mut(path) {
            files.retain(|file| file.strong_count() > 0);
            if files.is_empty() {
                handles.remove(path);
            }
        }
    }
}

/// The handle that users get.
struct Handle(Arc<Budgeted>);

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budgeted").field("is_open", &self.0.descriptor.load().is_some()).finish_non_exhaustive()
    }
}

/// A handle that pins the descriptor.
struct Held(Arc<Descriptor>);

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.0.file()).finish()
    }
}

impl File for Held {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.file().read_at(buf, offset)
    }

    fn is_unbuffered(&self) -> bool {
        self.0.file().is_unbuffered()
    }

    #[cfg(any(unix, windows))]
    fn system_file(&self) -> Option<crate::platform::batch::SystemFile<'_>> {
        self.0.file().system_file()
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.file().write_at(buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.file().len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.file().set_len(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.0.file().preallocate(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.file().sync_data()
    }
}

impl File for Handle {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.0.read_mapped(buf, offset) {
            Some(read) => read,
            None => self.0.with(|file| file.read_at(buf, offset)),
        }
    }

    fn is_unbuffered(&self) -> bool {
        self.0.unbuffered && self.0.refused.get().is_some_and(Option::is_none)
    }

    fn catch_up(&self) -> io::Result<()> {
        // Opens the file. The next close maps all of it.
        self.0.with(|_| Ok(()))
    }

    fn held(&self) -> Option<Arc<dyn File>> {
        let descriptor = self.0.descriptor.load_full().or_else(|| self.0.open().ok())?;
        self.0.mark();
        Some(Arc::new(Held(descriptor)))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.with(|file| file.write_at(buf, offset))
    }

    fn next_written(&self, offset: u64) -> io::Result<Option<u64>> {
        self.0.with(|file| file.next_written(offset))
    }

    fn len(&self) -> io::Result<u64> {
        match self.0.with(|file| file.len()) {
            // A file without a name gets no more writes.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.0.mapping.load().as_ref().map(|mapping| mapping.len() as u64).ok_or(e)
            }
            other => other,
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.with(|file| file.set_len(len))
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.0.with(|file| file.preallocate(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.with(|file| file.sync_data())
    }

    fn sync_bytes(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.with(|file| file.sync_bytes(bytes, offset))
    }

    fn start_write_back(&self, offset: u64, len: u64) {
        if let Some(descriptor) = &*self.0.descriptor.load() {
            descriptor.file().start_write_back(offset, len);
        }
    }

    fn map_for_writing(&self, len: u64) -> io::Result<Option<Box<dyn WriteMapping>>> {
        self.0.with(|file| file.map_for_writing(len))
    }

    fn map_for_reading(&self, len: u64) -> io::Result<Option<ReadMapping>> {
        match self.0.with(|file| file.map_for_reading(len)) {
            // The map made at the close serves its reads.
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.0.mapping.load().is_some() => Ok(None),
            other => other,
        }
    }
}

#[cfg(test)]
#[path = "tests/open_files.rs"]
mod tests;
