//! A directory in which a load, restore, salvage or checkpoint creates a database.
//!
//! First the **marker** (`RESTORING`) is written and synced. Then files are linked or copied and
//! synced, the directory is synced, and manifest and CURRENT are written. The marker is removed
//! last. A directory with a marker never opens as a database, so [`remove_unfinished`] can remove
//! what a killed operation left. A failed operation removes its files. The directory is locked
//! meanwhile.

use super::birthplace;
use crate::{
    base::{Error, Result},
    db::files::{
        cut_tails::CUT_TAIL_PREFIX,
        names::{LOCK_NAME, RESTORING_NAME, SYNC_FAILED_NAME, numbered},
        reserve::RESERVE_NAME,
    },
    platform::{DirEntry, File, FileLock, OpenMode, Runtime, Vfs},
    version::{CURRENT_NAME, Layout, Manifest},
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

const MARKER_LEN_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// [`crate::Builder::load`].
    Load,
    /// [`crate::Builder::restore`] and [`crate::Builder::restore_to`].
    Restore,
    /// [`crate::Builder::salvage`].
    Salvage,
    /// [`crate::Db::checkpoint`].
    Checkpoint,
}

impl Operation {
    const ALL: [Operation; 4] = [Operation::Load, Operation::Restore, Operation::Salvage, Operation::Checkpoint];

    /// Returns the name, which the marker holds with a line feed.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Load => "load",
            Operation::Restore => "restore",
            Operation::Salvage => "salvage",
            Operation::Checkpoint => "checkpoint",
        }
    }
}

const COPY_BYTES: u64 = 1 << 20;

pub struct NewDirectory {
    vfs: Arc<dyn Vfs>,
    runtime: Arc<dyn Runtime>,
    dir: PathBuf,
    made: Vec<PathBuf>,
    lock: Option<Box<dyn FileLock>>,
    is_finished: bool,
}

impl NewDirectory {
    /// Locks the directory. Fails with `AlreadyExists` if it has files, or if it is or lies in a
    /// directory of backups, a log archive or another database.
    pub fn begin(vfs: &Arc<dyn Vfs>, runtime: &Arc<dyn Runtime>, dir: &Path) -> Result<NewDirectory> {
        birthplace::check_new(&**vfs, dir)?;
        make_durably(&**vfs, dir)?;
        let lock_path = dir.join(LOCK_NAME);
        refuse_unless_empty(&**vfs, dir)?;
        let lock = match vfs.lock(&lock_path, &runtime.process_name()).map_err(|e| Error::io("lock", &lock_path, e))? {
            Ok(lock) => lock,
            Err(owner) => return Err(Error::Locked { path: dir.to_owned(), owner }),
        };
        // Another operation may have finished before the lock was taken.
        refuse_unless_empty(&**vfs, dir)?;
        Ok(NewDirectory {
            vfs: Arc::clone(vfs),
            runtime: Arc::clone(runtime),
            dir: dir.to_owned(),
            made: vec![lock_path],
            lock: Some(lock),
            is_finished: false,
        })
    }

    /// Links an immutable file into the directory, or copies it if it cannot be linked. Stops when
    /// `is_wanted` fails. Returns the bytes copied.
    pub fn link_or_copy(&mut self, from: &Path, name: &str, is_wanted: &dyn Fn() -> Result<()>) -> Result<u64> {
        is_wanted()?;
        let to = self.dir.join(name);
        match self.vfs.hard_link(from, &to) {
            Ok(()) => {
                self.made.push(to);
                return Ok(0);
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(Error::io("create", &to, e)),
            Err(e) => tracing::debug!(path = %from.display(), error = %e, "a file cannot be linked and is copied"),
        }
        let source = self.vfs.open(from, OpenMode::Read).map_err(|e| Error::io("open", from, e))?;
        let len = source.len().map_err(|e| Error::io("read", from, e))?;
        let file = self.create(name)?;
        let mut buffer = Vec::new();
        for at in (0..len).step_by(COPY_BYTES as usize) {
            is_wanted()?;
            buffer.resize((len - at).min(COPY_BYTES) as usize, 0);
            source.read_exact_at(&mut buffer, at).map_err(|e| Error::io("read", from, e))?;
            file.write_at(&buffer, at).map_err(|e| Error::output("write", &to, e))?;
        }
        file.sync_data().map_err(|e| Error::output("sync", &to, e))?;
        Ok(len)
    }

    pub fn create(&mut self, name: &str) -> Result<Arc<dyn File>> {
        let path = self.dir.join(name);
        let file = self.vfs.open(&path, OpenMode::CreateNew).map_err(|e| Error::output("create", &path, e))?;
        self.made.push(path);
        Ok(file)
    }

    /// Makes the directory a database with this layout and no log, in a new incarnation, so that
    /// its record versions are unique. Syncs everything.
    pub fn make_database(&mut self, layout: &Layout) -> Result<()> {
        let mut layout = layout.clone();
        layout.incarnation = self.runtime.random_u64();
        (layout.oldest_segment, layout.durable_lsn, layout.epoch) = (0, 0, 0);
        self.made.push(self.dir.join(CURRENT_NAME));
        self.made.push(self.dir.join(crate::version::manifest_name(layout.next_file)));
        // Syncs the directory with all names before it writes CURRENT.
        Manifest::create(&self.vfs, &self.runtime, &self.dir, layout).map_err(Error::of_output)?;
        Ok(())
    }

    /// Writes the marker, so that the directory does not open before
    /// [`NewDirectory::mark_finished`]. Call it before creating any other file: the marker survives
    /// a crash if any later file does.
    pub fn mark_unfinished(&mut self, operation: Operation) -> Result<()> {
        let path = self.dir.join(RESTORING_NAME);
        let file = self.create(RESTORING_NAME)?;
        let text = format!("{}\n", operation.name());
        file.write_at(text.as_bytes(), 0).map_err(|e| Error::output("write", &path, e))?;
        file.sync_data().map_err(|e| Error::output("sync", &path, e))?;
        self.vfs.sync_dir(&self.dir).map_err(|e| Error::output("sync", &self.dir, e))
    }

    /// Releases the lock, so that the database can be opened for restoring.
    pub fn unlock(&mut self) {
        self.lock = None;
    }

    /// Removes the marker. From now on the database opens.
    pub fn mark_finished(&mut self) -> Result<()> {
        let path = self.dir.join(RESTORING_NAME);
        self.vfs.remove(&path).map_err(|e| Error::io("remove", &path, e))?;
        self.vfs.sync_dir(&self.dir).map_err(|e| Error::io("sync", &self.dir, e))
    }

    /// Makes an unfinished operation also remove the files that the database created.
    pub fn answer_for_all(&mut self) -> Result<()> {
        let entries = self.vfs.list(&self.dir).map_err(|e| Error::io("list", &self.dir, e))?;
        let paths = entries.into_iter().map(|entry| self.dir.join(entry.name));
        // Removal goes in reverse order, so the lock file and the marker go last.
        let others: Vec<PathBuf> = paths.filter(|path| !self.made.contains(path)).collect();
        self.made.extend(others);
        Ok(())
    }

    /// Keeps the database. Otherwise the drop removes it.
    pub fn keep(mut self) {
        self.is_finished = true;
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        if !self.is_finished {
            // In reverse: CURRENT before the files that it leads to, and the lock file last.
            for path in self.made.iter().rev() {
                match self.vfs.remove(path) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => {
                        tracing::warn!(path = %path.display(), error = %e, "a file of a directory that was given up stays");
                    }
                    _ => {}
                }
            }
        }
        self.lock = None;
    }
}

fn refuse_unless_empty(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let entries = vfs.list(dir).map_err(|e| Error::io("list", dir, e))?;
    if let Some(reason) = unfinished(vfs, dir, &entries) {
        return Err(Error::AlreadyExists(format!("{} is not empty: {reason}", dir.display())));
    }
    match entries.iter().find(|entry| entry.name != LOCK_NAME) {
        Some(entry) => Err(Error::AlreadyExists(format!(
            "{} is not empty, there is {}: name a directory that is empty or does not exist yet",
            dir.display(),
            entry.name
        ))),
        None => Ok(()),
    }
}

/// Describes the unfinished operation and the remedy; `None` without a marker.
pub fn unfinished(vfs: &dyn Vfs, dir: &Path, entries: &[DirEntry]) -> Option<String> {
    entries.iter().find(|entry| entry.name == RESTORING_NAME)?;
    let marked = marked_operation(vfs, dir);
    // A marker without a name is of an older version, or of a kill before it was written.
    let operation = marked.map_or("load or restore", Operation::name);
    let advice = match marked {
        Some(Operation::Salvage | Operation::Checkpoint) => "remove the directory",
        // `braid checkpoint --copy` is also a load, without `--force`.
        Some(Operation::Load) => {
            "repeat a `braid load` with --force, which removes what it left; after `braid checkpoint --copy`, remove the directory \
             and repeat it"
        }
        Some(Operation::Restore) | None => "repeat it with --force, which removes what it left",
    };
    Some(format!(
        "a {operation} into it is not finished. If none is running, {advice} (in a program: Builder::remove_unfinished)"
    ))
}

fn marked_operation(vfs: &dyn Vfs, dir: &Path) -> Option<Operation> {
    let file = vfs.open(&dir.join(RESTORING_NAME), OpenMode::Read).ok()?;
    let mut text = [0; MARKER_LEN_MAX];
    let len = file.read_at(&mut text, 0).ok()?;
    let text = text.get(..len)?.strip_suffix(b"\n")?;
    Operation::ALL.into_iter().find(|operation| operation.name().as_bytes() == text)
}

/// Removes the files of a killed operation. Returns false, without changes, if there is no marker.
/// Fails with `Locked` if the operation is still running, `AlreadyExists` if there are other files.
pub fn remove_unfinished(vfs: &dyn Vfs, runtime: &dyn Runtime, dir: &Path) -> Result<bool> {
    let entries = match vfs.list(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        entries => entries.map_err(|e| Error::io("list", dir, e))?,
    };
    if entries.iter().all(|entry| entry.name != RESTORING_NAME) {
        return Ok(false);
    }
    let lock_path = dir.join(LOCK_NAME);
    let locked = vfs.lock(&lock_path, &runtime.process_name()).map_err(|e| Error::io("lock", &lock_path, e))?;
    let lock = locked.map_err(|owner| Error::Locked { path: dir.to_owned(), owner })?;
    // List again: the operation may have finished before the lock was taken.
    let entries = vfs.list(dir).map_err(|e| Error::io("list", dir, e))?;
    if entries.iter().all(|entry| entry.name != RESTORING_NAME) {
        return Ok(false);
    }
    if let Some(other) = entries.iter().find(|entry| !is_engine_file(&entry.name)) {
        return Err(Error::AlreadyExists(format!(
            "{} holds {}, which no load, restore, salvage or checkpoint makes: nothing was removed. Move it elsewhere, or name another directory",
            dir.display(),
            other.name
        )));
    }
    let is_last = |entry: &&DirEntry| [RESTORING_NAME, LOCK_NAME].contains(&entry.name.as_str());
    // The marker goes after the files that it marks, so that a kill leaves a marked directory.
    for entry in entries.iter().filter(|entry| !is_last(entry)) {
        remove(vfs, &dir.join(&entry.name))?;
    }
    vfs.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
    remove(vfs, &dir.join(RESTORING_NAME))?;
    remove(vfs, &lock_path)?;
    drop(lock);
    Ok(true)
}

fn remove(vfs: &dyn Vfs, path: &Path) -> Result<()> {
    vfs.remove(path).map_err(|e| Error::io("remove", path, e))
}

fn is_engine_file(name: &str) -> bool {
    [CURRENT_NAME, LOCK_NAME, RESERVE_NAME, RESTORING_NAME, SYNC_FAILED_NAME].contains(&name)
        || name.starts_with(CUT_TAIL_PREFIX)
        || numbered(name).is_some()
}

pub fn make_durably(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let is_missing = |dir: &Path| vfs.list(dir).is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    let missing: Vec<&Path> = dir.ancestors().take_while(|dir| is_missing(dir)).collect();
    vfs.create_dir_all(dir).map_err(|e| Error::io("create", dir, e))?;
    for made in missing.iter().rev() {
        let parent = made.parent().unwrap_or(Path::new("."));
        vfs.sync_dir(parent).map_err(|e| Error::io("sync", parent, e))?;
    }
    Ok(())
}
