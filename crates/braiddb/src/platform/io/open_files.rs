//! A budget of open files, with files closed and reopened on demand.
//!
//! A database may have more tables than the process may have descriptors. [`BudgetedVfs`] keeps the
//! descriptors of read-only files as long as the budget allows. Above it, a clock algorithm closes
//! one: each read marks its file; the hand clears marks and closes the first unmarked file.
//!
//! Closed files are reopened by path, so removed files need care:
//!
//! - *Removed through the same [`BudgetedVfs`]*: their handles are opened first and stay open. This
//!   is rare, since tables are removed with their last handle. A rename updates the handles.
//! - *Removed by another process* (followers read its files): a file is mapped before its
//!   descriptor is closed, and later reads use the map, which pins the file. Each read first
//!   populates the pages ([`ReadMapping::populate`]), so that a failing disk returns an error. If
//!   mapping fails, the descriptor stays. The map lacks data appended later; readers call
//!   [`File::catch_up`] while the name exists.
//!
//! # Concurrency
//!
//! A read loads the descriptor from an [`ArcSwapOption`] and writes no shared memory except the
//! mark, at most once per turn of the hand. A running read pins its descriptor. Opening and closing
//! take the file's lock. The hand only tries these locks, so no two threads wait for each other.
//! Pinned and unclosable descriptors may exceed the budget.

use crate::platform::{
    batch::{ReadRequest, Unbuffered},
    vfs::{DirEntry, File, FileLock, OpenMode, Vfs},
};
use arc_swap::ArcSwapOption;
use budgeted::{Budgeted, Handle, State};
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

mod budgeted;

/// Minimum budget: several threads can read at once.
const OPEN_FILES_MIN: usize = 4;

/// Maximum default budget.
const OPEN_FILES_DEFAULT_MAX: usize = 1 << 16;

/// Maximum attempts of an operation that runs out of descriptors.
const ATTEMPTS_MAX: usize = 4;

/// A budget of descriptors, and its files. Any thread may call any method.
pub struct OpenFiles {
    max: usize,
    open: AtomicUsize,
    reopened: AtomicU64,
    /// Closable files, and some that are gone or no longer closable.
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

    /// Closes a file not read recently. Returns false if no file can be closed.
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
            // This may be the last reference: drop the file without holding a lock.
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

    /// While `attempt` runs out of descriptors, closes half of the files and retries.
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
    /// Selects the files that may be closed. Their writers never truncate them.
    is_budgeted: fn(&Path) -> bool,
    /// True if another process may remove files open here.
    may_vanish: bool,
    handles: Arc<Handles>,
}

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

    /// Also returns the reason if direct I/O was requested and refused.
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
        // Before the open, so that a concurrent remove sees the file.
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
        // Until the end, so that no file is reopened under its old name.
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

#[cfg(test)]
#[path = "tests/open_files.rs"]
mod tests;
