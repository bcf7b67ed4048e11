//! A budget of open files, and files that are opened again when they are looked at.
//!
//! A process may have only so many descriptors, and a database may have many more tables. So files that are only read
//! ([`BudgetedVfs`] says which) have a descriptor while they are in use, and as long after as the budget allows.
//! When it is spent, the one is closed that was not read for long, as a clock tells: each file has a mark, set when it is read and
//! not marked already; the hand goes round, takes marks away, and closes the first file that has none.
//!
//! Closed files are found again by their path. What must not be lost by that:
//!
//! - *A file that is removed here.* Whoever removes a file through the same [`BudgetedVfs`] has its handles opened before, and they
//!   stay open. (Tables are removed when their last handle goes, so that is rare.) A rename is told to the handles.
//! - *A file that another process may remove*, which is what followers read: before its descriptor is closed it is mapped, and read there
//!   from then on, since a map keeps a file as a descriptor does. Each read first has the system read the pages
//!   ([`ReadMapping::populate`]), so that a disk that fails gives an error. Where that cannot be had, the descriptor stays. What is appended to a file
//!   after it was closed is not in the map: whoever learns of that has the file opened while it still has its name ([`File::catch_up`]).
//!
//! # Concurrency
//!
//! A read takes the descriptor from an [`ArcSwapOption`] and writes to nothing shared, but for the mark once a turn. It keeps the
//! descriptor for as long as it lasts, so one in use is not closed. Opening and closing take the file's own lock; the hand takes those of
//! others only if they are free, so that no two wait for each other. What is counted is descriptors: one goes from the count when it
//! is closed. The budget may be exceeded by those that are being read at the same time, and by those that cannot be closed.

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

/// No budget is smaller: as many threads may read at once.
const OPEN_FILES_MIN: usize = 4;

/// Nor is one larger that nobody asked for.
const OPEN_FILES_DEFAULT_MAX: usize = 1 << 16;

/// How often something is tried again for want of descriptors.
const ATTEMPTS_MAX: usize = 4;

/// How many files may have a descriptor, and which do. Any thread may call anything.
pub struct OpenFiles {
    max: usize,
    open: AtomicUsize,
    reopened: AtomicU64,
    /// Those that can be closed, and others that cannot any more, or are gone.
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    files: Vec<Weak<Budgeted>>,
    hand: usize,
}

/// How many descriptors there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFilesStats {
    /// Descriptors that count.
    pub open: usize,
    /// How many there may be.
    pub max: usize,
    /// How often a file was opened once more.
    pub reopened: u64,
}

impl OpenFiles {
    /// A budget of so many files, 4 at least.
    pub fn new(max: usize) -> Arc<OpenFiles> {
        let (open, reopened) = (AtomicUsize::new(0), AtomicU64::new(0));
        Arc::new(OpenFiles { max: max.max(OPEN_FILES_MIN), open, reopened, ring: Mutex::default() })
    }

    /// The budget of all that have no other in this process: half of what the process may open. The first call says how much that is.
    pub fn of_process(limit: u64) -> Arc<OpenFiles> {
        static BUDGET: OnceLock<Arc<OpenFiles>> = OnceLock::new();
        let half = usize::try_from(limit / 2).unwrap_or(usize::MAX).min(OPEN_FILES_DEFAULT_MAX);
        Arc::clone(BUDGET.get_or_init(|| OpenFiles::new(half)))
    }

    /// What there is now.
    pub fn stats(&self) -> OpenFilesStats {
        OpenFilesStats { open: self.open.load(Relaxed), max: self.max, reopened: self.reopened.load(Relaxed) }
    }

    /// Closes files until there is room for one more, if any can be closed.
    fn make_room(&self) {
        while self.open.load(Relaxed) >= self.max && self.close_one() {}
    }

    /// Closes the file that was not read for longest, about; whether there was one.
    fn close_one(&self) -> bool {
        let mut ring = self.ring.lock();
        // In the first turn marks are taken away. Others may set them again, so there is an end to it.
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
            // Closing takes a while, or waits for a disk.
            drop(ring);
            let is_closed = file.close(&mut state);
            drop(state);
            // This may have been the last one to hold it; then it goes here, without any lock.
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

    /// Does it, and once more with fewer files open if there were too many.
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

/// Another file system, whose files have descriptors as a budget allows.
pub struct BudgetedVfs {
    inner: Arc<dyn Vfs>,
    budget: Arc<OpenFiles>,
    /// Which files are closed when there is no room: they are only read here, and whoever writes to them does not make them shorter.
    is_budgeted: fn(&Path) -> bool,
    /// Whether others may remove files that are open here.
    may_vanish: bool,
    handles: Arc<Handles>,
}

/// The files that are there, by path.
type Handles = Mutex<HashMap<PathBuf, Vec<Weak<Budgeted>>>>;

impl BudgetedVfs {
    /// The file system `inner`. Of its files those count that are opened for reading and of which `is_budgeted` says so.
    pub fn new(
        inner: Arc<dyn Vfs>,
        budget: Arc<OpenFiles>,
        is_budgeted: fn(&Path) -> bool,
        may_vanish: bool,
    ) -> BudgetedVfs {
        BudgetedVfs { inner, budget, is_budgeted, may_vanish, handles: Arc::default() }
    }

    /// Opens a file of the budget; and why it is buffered, if it was to be unbuffered.
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
        // Known before it is open, so that nobody removes it unseen between the two.
        self.handles.lock().entry(path.to_owned()).or_default().push(Arc::downgrade(&file));
        file.open()?;
        let refused = file.refused.get().cloned().flatten();
        Ok((Arc::new(Handle(file)), refused))
    }

    fn handles_of(&self, path: &Path) -> Vec<Arc<Budgeted>> {
        self.handles.lock().get(path).map_or_else(Vec::new, |files| files.iter().filter_map(Weak::upgrade).collect())
    }

    /// Before a file loses its name: has those who read it keep it open.
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
        // Those that read find the files themselves, which stay open meanwhile.
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
        // Held until all is done, so that none of them is looked for meanwhile.
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
        // What fails for want of a descriptor has synced nothing, so it may be tried again.
        self.budget.attempt(|| self.inner.sync_dir(dir))
    }

    fn lock(&self, path: &Path, owner: &str) -> io::Result<Result<Box<dyn FileLock>, String>> {
        self.budget.attempt(|| self.inner.lock(path, owner))
    }
}

/// A descriptor, which is counted.
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
        // Closed first: who sees the count may open another.
        self.file = None;
        self.budget.open.fetch_sub(1, Relaxed);
    }
}

/// A file that is closed and opened as need be.
struct Budgeted {
    vfs: Arc<dyn Vfs>,
    budget: Arc<OpenFiles>,
    handles: Arc<Handles>,
    may_vanish: bool,
    /// Whether it is opened past the system's cache; and what that said when it was opened first, if it would not.
    unbuffered: bool,
    refused: OnceLock<Option<String>>,
    descriptor: ArcSwapOption<Descriptor>,
    /// What is read when it was closed and others may have removed it.
    mapping: ArcSwapOption<ReadMapping>,
    /// The clock's mark.
    is_recent: AtomicBool,
    state: Mutex<State>,
}

struct State {
    path: PathBuf,
    is_in_ring: bool,
    /// It could not be found again.
    stays_open: bool,
}

impl Budgeted {
    /// The descriptor; the file is opened if there is none.
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

    /// The descriptor, and whether the file is to enter the ring.
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

    /// Closes it, if it can be read afterwards; whether it did.
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

    /// Maps all of the file, so that it can be read when it has no name any more; whether that worked.
    fn map(&self, descriptor: &Descriptor) -> bool {
        let Ok(len) = descriptor.file().len() else { return false };
        if self.mapping.load().as_ref().is_some_and(|mapping| mapping.len() as u64 == len) {
            return true;
        }
        match descriptor.file().map_for_reading(len) {
            // Where the system cannot say whether it could read the file, it is not read so.
            Ok(Some(mapping)) if mapping.populate(0..1) => {
                self.mapping.store(Some(Arc::new(mapping)));
                true
            }
            _ => false,
        }
    }

    /// Has it stay open; it is opened if it was closed.
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

    /// Does it with the file, open.
    fn with<T>(self: &Arc<Self>, action: impl FnOnce(&dyn File) -> io::Result<T>) -> io::Result<T> {
        if let Some(descriptor) = &*self.descriptor.load() {
            self.mark();
            return action(descriptor.file());
        }
        self.budget.reopened.fetch_add(1, Relaxed);
        action(self.open()?.file())
    }

    /// Reads where the file is mapped, if it is closed and what is wanted is mapped.
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

/// What the file system gives: a file of the budget.
struct Handle(Arc<Budgeted>);

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budgeted").field("is_open", &self.0.descriptor.load().is_some()).finish_non_exhaustive()
    }
}

/// A file that is not closed as long as this is there.
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
        // When it is closed again, all of it is mapped.
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
            // Nobody writes to what has no name.
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
            // It is read as it was mapped when it was closed.
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.0.mapping.load().is_some() => Ok(None),
            other => other,
        }
    }
}

#[cfg(test)]
#[path = "tests/open_files.rs"]
mod tests;
