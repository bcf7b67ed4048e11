//! A file of the budget: opens, closes and maps it on demand.

use super::{Handles, OpenFiles};
use crate::platform::{
    os::read_mapping::ReadMapping,
    vfs::{File, OpenMode, Vfs, WriteMapping},
};
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// An open descriptor that counts towards the budget.
pub(super) struct Descriptor {
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
pub(super) struct Budgeted {
    pub(super) vfs: Arc<dyn Vfs>,
    pub(super) budget: Arc<OpenFiles>,
    pub(super) handles: Arc<Handles>,
    pub(super) may_vanish: bool,
    /// True for direct I/O. `refused` is the result of the first open.
    pub(super) unbuffered: bool,
    pub(super) refused: OnceLock<Option<String>>,
    pub(super) descriptor: ArcSwapOption<Descriptor>,
    /// Serves reads after the descriptor is closed, if other processes may remove the file.
    pub(super) mapping: ArcSwapOption<ReadMapping>,
    /// The mark of the clock algorithm.
    pub(super) is_recent: AtomicBool,
    pub(super) state: Mutex<State>,
}

pub(super) struct State {
    pub(super) path: PathBuf,
    pub(super) is_in_ring: bool,
    /// True if the file could not be found again after a close.
    pub(super) stays_open: bool,
}

impl Budgeted {
    /// Returns the descriptor. Opens the file if it is closed.
    pub(super) fn open(self: &Arc<Self>) -> io::Result<Arc<Descriptor>> {
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
    pub(super) fn close(&self, state: &mut State) -> bool {
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
    pub(super) fn keep_open(&self) -> io::Result<()> {
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
pub(super) struct Handle(pub(super) Arc<Budgeted>);

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
