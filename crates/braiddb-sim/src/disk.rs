//! A disk in memory that journals every change, for crash images at any point (`crash.rs`). It can
//! fail calls, run full, be slow, and be damaged.
//!
//! **Concurrency.** One lock guards the state. Calls hold it while they copy bytes, never while a
//! slow disk makes them wait. A sync covers the operations journaled before it began. The journal
//! has concurrent writes in lock order.

use crate::{
    contents::{Contents, PAGE_LEN},
    crash::{CrashPolicy, Image, Replay},
    faults::{Call, Fault, Faults},
    journal::{FileIndex, Name, Operation, clean},
    random::mix,
    speed::{Device, DiskSpeed},
};
use braiddb::platform::{DirEntry, File, FileLock, OpenMode, Runtime, Vfs};
use file::SimFile;
use parking_lot::Mutex;
use state::{Inode, State};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

mod file;
mod state;

/// A simulated disk.
#[derive(Debug)]
pub struct SimDisk {
    shared: Arc<Shared>,
}

struct Shared {
    seed: u64,
    base: Image,
    state: Mutex<State>,
    /// Lock order: `replay` before `state`.
    replay: Mutex<Option<Replay>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "simulated disk of seed {}", self.seed)
    }
}

impl SimDisk {
    /// Returns an empty disk.
    pub fn new(seed: u64) -> Arc<SimDisk> {
        SimDisk::of_image(Image::default(), seed)
    }

    /// Returns an empty disk that has no journal and cannot crash.
    pub fn without_journal(seed: u64) -> Arc<SimDisk> {
        let disk = SimDisk::new(seed);
        disk.shared.state.lock().journaling = false;
        disk
    }

    fn of_image(image: Image, seed: u64) -> Arc<SimDisk> {
        let mut inodes: BTreeMap<FileIndex, Inode> = BTreeMap::new();
        for file in image.names.values() {
            inodes.entry(*file).or_default().names += 1;
        }
        let state = State {
            next_file: inodes.last_key_value().map_or(0, |(file, _)| file + 1),
            pages_used: image.files.values().map(Contents::pages_allocated).sum(),
            inodes,
            image: image.clone(),
            journal: Vec::new(),
            journaling: true,
            faults: Faults::default(),
            held: BTreeMap::new(),
            pages_max: None,
            device: None,
            unsynced_bytes: 0,
            maps_files: false,
            sessions: 0,
        };
        let shared = Shared { seed, base: image, state: Mutex::new(state), replay: Mutex::new(None) };
        Arc::new(SimDisk { shared: Arc::new(shared) })
    }

    /// Returns the length of the journal.
    pub fn operations(&self) -> usize {
        self.shared.state.lock().journal.len()
    }

    /// Describes operation `at`.
    pub fn operation_text(&self, at: usize) -> String {
        self.shared.state.lock().journal.get(at).map_or_else(|| "nothing".to_owned(), ToString::to_string)
    }

    /// Returns the bytes that operation `at` wrote, if it was a write.
    pub fn write_len(&self, at: usize) -> Option<u64> {
        match self.shared.state.lock().journal.get(at) {
            Some(Operation::Write { bytes, .. }) => Some(bytes.len() as u64),
            _ => None,
        }
    }

    /// Returns a new disk: this one after a crash behind the first `at_operation` operations.
    pub fn crash_image(&self, at_operation: usize, policy: CrashPolicy) -> Arc<SimDisk> {
        let mut replay = self.shared.replay.lock();
        let state = self.shared.state.lock();
        assert!(at_operation <= state.journal.len(), "the crash must be at an operation that was journaled");
        assert!(state.journaling, "a disk without a journal has no crash images");
        if replay.as_ref().is_none_or(|replay| replay.at() > at_operation) {
            *replay = Some(Replay::new(self.shared.base.clone()));
        }
        let replay = replay.as_mut().expect("it was just set");
        replay.advance(&state.journal, at_operation);
        let image = replay.image(&state.journal, policy, self.shared.seed);
        SimDisk::of_image(image, mix(self.shared.seed, at_operation as u64)).with_past_of(&state)
    }

    /// Returns a copy with an empty journal.
    pub fn fork(&self) -> Arc<SimDisk> {
        let state = self.shared.state.lock();
        let mut image = state.image.clone();
        image.files.retain(|file, _| state.inodes.get(file).is_some_and(|inode| inode.names > 0));
        SimDisk::of_image(image, self.shared.seed).with_past_of(&state)
    }

    fn with_past_of(self: Arc<SimDisk>, state: &State) -> Arc<SimDisk> {
        let mut own = self.shared.state.lock();
        (own.maps_files, own.sessions) = (state.maps_files, state.sessions);
        drop(own);
        self
    }

    /// Returns a seed for one opened database, unique over this disk and its ancestors: file ids
    /// drawn from it also differ from those in the stale bytes of a crash.
    pub fn next_session(&self) -> u64 {
        let mut state = self.shared.state.lock();
        state.sessions += 1;
        state.sessions
    }

    /// Allows or forbids memory-mapped writes, which are no calls and cannot fail. Forbidden at
    /// first.
    pub fn set_mapping(&self, maps_files: bool) {
        self.shared.state.lock().maps_files = maps_files;
    }

    /// Returns true if memory-mapped writes are allowed.
    pub fn maps_files(&self) -> bool {
        self.shared.state.lock().maps_files
    }

    /// Plans a fault.
    pub fn inject(&self, fault: Fault) {
        self.shared.state.lock().faults.inject(fault);
    }

    /// Drops all planned faults.
    pub fn clear_faults(&self) {
        self.shared.state.lock().faults.clear();
    }

    /// Returns the calls so far, failed ones included.
    pub fn calls(&self, call: Option<Call>) -> u64 {
        self.shared.state.lock().faults.count(call)
    }

    /// Returns the calls that failed by a fault.
    pub fn failed_calls(&self) -> Vec<(Call, PathBuf)> {
        self.shared.state.lock().faults.fired.clone()
    }

    /// Sets the capacity in bytes, in pages of 4 KiB; it may be below the used bytes.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.state.lock().pages_max = bytes.map(|bytes| bytes / PAGE_LEN as u64);
    }

    /// Returns the bytes of all files, removed open ones included.
    pub fn used_bytes(&self) -> u64 {
        self.shared.state.lock().pages_used * PAGE_LEN as u64
    }

    /// Sets the speed; `None` is as fast as memory. `runtime` does the waiting.
    pub fn set_speed(&self, speed: Option<DiskSpeed>, runtime: Arc<dyn Runtime>) {
        self.shared.state.lock().device = speed.map(|speed| Arc::new(Device::new(speed, runtime)));
    }

    /// Returns paths and lengths, ordered by path.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let state = self.shared.state.lock();
        state.image.names.iter().map(|(name, file)| (name.to_path_buf(), state.image.files[file].len())).collect()
    }

    /// Returns the bytes of a file.
    pub fn read_file(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let state = self.shared.state.lock();
        Ok(state.image.files[&state.find(path.as_ref())?].to_vec())
    }

    /// Flips one bit, durably.
    pub fn flip_bit(&self, path: impl AsRef<Path>, bit: u64) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        let file = state.find(path.as_ref())?;
        let mut byte = [0];
        if state.image.files[&file].read(&mut byte, bit / 8) == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        byte[0] ^= 1 << (bit % 8);
        state.damage(Operation::Write { file, offset: bit / 8, bytes: Arc::from(byte) });
        Ok(())
    }

    /// Overwrites bytes, durably.
    pub fn overwrite(&self, path: impl AsRef<Path>, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        let file = state.find(path.as_ref())?;
        state.damage(Operation::Write { file, offset, bytes: Arc::from(bytes) });
        Ok(())
    }

    /// Truncates or extends by zeros, durably.
    pub fn truncate(&self, path: impl AsRef<Path>, len: u64) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        let file = state.find(path.as_ref())?;
        state.damage(Operation::SetLength { file, len });
        Ok(())
    }

    /// Removes a file, durably.
    pub fn lose(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        let file = state.find(path.as_ref())?;
        state.damage(Operation::Unlink { name: clean(path.as_ref()) });
        state.unlinked(file);
        Ok(())
    }
}

impl Vfs for SimDisk {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let name = clean(path);
        let mut state = self.shared.state.lock();
        state.call(Call::CreateDirectory, &name)?;
        let missing: Vec<Name> =
            name.ancestors().map(Name::from).take_while(|name| !state.image.is_directory(name)).collect();
        if name.ancestors().any(|ancestor| state.image.names.contains_key(ancestor)) {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        for name in missing.into_iter().rev() {
            state.change(Operation::MakeDirectory { name });
        }
        Ok(())
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let name = clean(path);
        let mut state = self.shared.state.lock();
        state.call(if mode == OpenMode::CreateNew { Call::Create } else { Call::Open }, &name)?;
        let file = match mode {
            OpenMode::CreateNew => state.create(name.clone())?,
            OpenMode::Read | OpenMode::ReadWrite => state.find(&name)?,
        };
        state.inode(file).handles += 1;
        let shared = Arc::clone(&self.shared);
        Ok(Arc::new(SimFile { shared, file, name, writable: mode != OpenMode::Read }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let dir = clean(dir);
        let mut state = self.shared.state.lock();
        state.call(Call::List, &dir)?;
        if !state.image.is_directory(&dir) {
            let is_file = state.image.names.contains_key(&dir);
            return Err(if is_file { io::ErrorKind::NotADirectory } else { io::ErrorKind::NotFound }.into());
        }
        let inside = state.image.names.iter().filter(|(name, _)| name.parent() == Some(&*dir));
        Ok(inside
            .map(|(name, file)| DirEntry {
                name: name.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                len: state.image.files[file].len(),
            })
            .collect())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let name = clean(path);
        let mut state = self.shared.state.lock();
        state.call(Call::Remove, &name)?;
        let file = state.find(&name)?;
        state.change(Operation::Unlink { name });
        state.unlinked(file);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (clean(from), clean(to));
        let mut state = self.shared.state.lock();
        state.call(Call::Rename, &from)?;
        let file = state.find(&from)?;
        state.check_new_name(&to)?;
        let replaced = state.image.names.get(&to).copied();
        if replaced == Some(file) {
            // Two names of one file: POSIX keeps both.
            return Ok(());
        }
        state.change(Operation::Rename { from, to, file });
        if let Some(replaced) = replaced {
            state.unlinked(replaced);
        }
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let name = clean(to);
        let mut state = self.shared.state.lock();
        state.call(Call::Link, &name)?;
        let file = state.find(from)?;
        if state.image.names.contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.check_new_name(&name)?;
        state.inode(file).names += 1;
        state.change(Operation::Link { name, file });
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let name = clean(dir);
        let mut state = self.shared.state.lock();
        let upto = state.journal.len();
        if let Err(e) = state.call(Call::SyncDirectory, &name) {
            state.note(Operation::SyncDirectoryFailed { name });
            return Err(e);
        }
        if !state.image.is_directory(&name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if let Some(device) = state.device.clone() {
            drop(state);
            device.settle();
            state = self.shared.state.lock();
        }
        state.note(Operation::SyncDirectory { name, upto });
        Ok(())
    }

    fn lock(&self, path: &Path, owner: &str) -> io::Result<Result<Box<dyn FileLock>, String>> {
        let name = clean(path);
        let mut state = self.shared.state.lock();
        state.call(Call::Lock, &name)?;
        if let Some(holder) = state.held.get(&name) {
            return Ok(Err(holder.clone()));
        }
        let file = match state.find(&name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => state.create(name.clone())?,
            other => other?,
        };
        // The owner's text: no call, and not counted towards the capacity.
        state.damage(Operation::SetLength { file, len: 0 });
        state.damage(Operation::Write { file, offset: 0, bytes: Arc::from(owner.as_bytes()) });
        state.held.insert(name.clone(), owner.to_owned());
        Ok(Ok(Box::new(SimLock { shared: Arc::clone(&self.shared), name })))
    }

    fn lock_owner(&self, path: &Path) -> io::Result<Option<String>> {
        Ok(self.shared.state.lock().held.get(&clean(path)).cloned())
    }

    fn free_space(&self, _path: &Path) -> io::Result<Option<u64>> {
        let state = self.shared.state.lock();
        Ok(state.pages_max.map(|max| max.saturating_sub(state.pages_used) * PAGE_LEN as u64))
    }
}

#[derive(Debug)]
struct SimLock {
    shared: Arc<Shared>,
    name: Name,
}

impl FileLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.shared.state.lock().held.remove(&self.name);
    }
}
