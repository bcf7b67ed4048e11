//! A directory as a backup target: an object is a file.

use super::target::{BackupTarget, Object, ObjectReader, ObjectWriter, TargetLock};
use crate::{
    base::{Error, Result},
    db::{LOCK_NAME, check_target, make_durably},
    platform::{File, FileLock, OpenMode, Runtime, SystemRuntime, Vfs},
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A directory that holds backups.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// use braiddb::{backup::{Backups, DirectoryTarget}, platform::MemVfs};
///
/// # let vfs = std::sync::Arc::new(MemVfs::new());
/// // On the disk: DirectoryTarget::open("/mnt/backups/music")?
/// let target = DirectoryTarget::open_in(vfs.clone(), "/backups/music")?;
/// let db = braiddb::Db::builder().vfs(vfs).open("/music.db")?;
/// db.tree("albums")?.put(b"1", b"Ten")?;
/// let backup = db.backup(&target)?;
/// assert_eq!(Backups::new(&target).list()?, [backup]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DirectoryTarget {
    vfs: Arc<dyn Vfs>,
    runtime: Arc<dyn Runtime>,
    dir: PathBuf,
}

impl DirectoryTarget {
    /// Opens the directory `dir`. If it is missing, creates it with its parents. Fails with
    /// `InvalidArgument` if it is the directory of a database, or inside of one.
    pub fn open(dir: impl AsRef<Path>) -> Result<DirectoryTarget> {
        DirectoryTarget::open_in(Arc::new(crate::platform::SystemVfs::new()), dir)
    }

    /// Opens the directory `dir` of a file system: see [`DirectoryTarget::open`].
    pub fn open_in(vfs: Arc<dyn Vfs>, dir: impl AsRef<Path>) -> Result<DirectoryTarget> {
        let dir = dir.as_ref().to_owned();
        check_target(&*vfs, &dir)?;
        make_durably(&*vfs, &dir)?;
        Ok(DirectoryTarget { vfs, runtime: Arc::new(SystemRuntime::new()), dir })
    }

    /// Opens an existing directory; `NotFound` if it is missing.
    pub fn existing_in(vfs: Arc<dyn Vfs>, dir: impl AsRef<Path>) -> Result<DirectoryTarget> {
        let dir = dir.as_ref().to_owned();
        match vfs.list(&dir) {
            Ok(_) => Ok(DirectoryTarget { vfs, runtime: Arc::new(SystemRuntime::new()), dir }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(Error::NotFound(format!("there is no directory {}, so no backups in it", dir.display())))
            }
            Err(e) => Err(Error::io("list", dir, e)),
        }
    }

    fn no_object(&self, name: &str, e: io::Error, action: &'static str) -> Error {
        let path = self.dir.join(name);
        match e.kind() {
            io::ErrorKind::NotFound => Error::NotFound(format!("there is no {}", path.display())),
            _ => Error::io(action, path, e),
        }
    }

    fn sync(&self) -> Result<()> {
        self.vfs.sync_dir(&self.dir).map_err(|e| Error::output("sync", &self.dir, e))
    }
}

impl BackupTarget for DirectoryTarget {
    fn put(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        let path = self.dir.join(name);
        let file = self.vfs.open(&path, OpenMode::CreateNew).map_err(|e| Error::output("create", &path, e))?;
        Ok(Box::new(FileWriter { target: self.clone(), path, file, len: 0 }))
    }

    fn get(&self, name: &str) -> Result<Box<dyn ObjectReader>> {
        let path = self.dir.join(name);
        let file = self.vfs.open(&path, OpenMode::Read).map_err(|e| self.no_object(name, e, "open"))?;
        Ok(Box::new(FileReader { path, file, at: 0 }))
    }

    fn list(&self) -> Result<Vec<Object>> {
        let entries = self.vfs.list(&self.dir).map_err(|e| Error::io("list", &self.dir, e))?;
        let objects = entries.into_iter().filter(|entry| entry.name != LOCK_NAME);
        Ok(objects.map(|entry| Object { name: entry.name, len: entry.len }).collect())
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.vfs.remove(&self.dir.join(name)).map_err(|e| self.no_object(name, e, "remove"))?;
        self.sync()
    }

    fn lock(&self) -> Result<Box<dyn TargetLock>> {
        let path = self.dir.join(LOCK_NAME);
        match self.vfs.lock(&path, &self.runtime.process_name()).map_err(|e| Error::io("lock", &path, e))? {
            Ok(lock) => Ok(Box::new(DirectoryLock { _lock: lock })),
            Err(owner) => Err(Error::Locked { path: self.dir.clone(), owner }),
        }
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

#[derive(Debug)]
struct DirectoryLock {
    _lock: Box<dyn FileLock>,
}

impl TargetLock for DirectoryLock {}

#[derive(Debug)]
struct FileWriter {
    target: DirectoryTarget,
    path: PathBuf,
    file: Arc<dyn File>,
    len: u64,
}

impl ObjectWriter for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_at(bytes, self.len).map_err(|e| Error::output("write", &self.path, e))?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.file.sync_data().map_err(|e| Error::output("sync", &self.path, e))?;
        self.target.sync()
    }
}

#[derive(Debug)]
struct FileReader {
    path: PathBuf,
    file: Arc<dyn File>,
    at: u64,
}

impl ObjectReader for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let read = self.file.read_at(buffer, self.at).map_err(|e| Error::io("read", &self.path, e))?;
        self.at += read as u64;
        Ok(read)
    }
}
