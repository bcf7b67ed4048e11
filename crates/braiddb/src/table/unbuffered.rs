//! Tables past the system's cache.

use crate::platform::{DirEntry, File, FileLock, IoReport, OpenMode, ReadRequest, Vfs};
use parking_lot::Mutex;
use std::{ffi::OsStr, io, path::Path, sync::Arc};

/// The names of files that hold tables end so.
const EXTENSIONS: [&str; 3] = ["run", "view", "blob"];

/// A file system in which runs, views and blob files are read and written past the system's cache, and all else (log, manifest, `CURRENT`)
/// through it. Where the system refuses that, tables go through it too, and the first reason is kept to be told.
#[derive(Debug)]
pub struct UnbufferedTables {
    inner: Arc<dyn Vfs>,
    refused: Mutex<Option<String>>,
}

impl UnbufferedTables {
    /// The file system `inner`, but for tables.
    pub fn new(inner: Arc<dyn Vfs>) -> UnbufferedTables {
        UnbufferedTables { inner, refused: Mutex::new(None) }
    }
}

fn is_table(path: &Path) -> bool {
    path.extension().and_then(OsStr::to_str).is_some_and(|extension| EXTENSIONS.contains(&extension))
}

impl Vfs for UnbufferedTables {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        if !is_table(path) {
            return self.inner.open(path, mode);
        }
        let opened = self.inner.open_unbuffered(path, mode)?;
        if let Some(because) = opened.refused {
            let mut refused = self.refused.lock();
            if refused.is_none() {
                tracing::warn!(path = %path.display(), because, "tables are read through the system's cache");
                *refused = Some(because);
            }
        }
        Ok(opened.file)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.list(dir)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.hard_link(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn lock(&self, path: &Path, owner: &str) -> io::Result<Result<Box<dyn FileLock>, String>> {
        self.inner.lock(path, owner)
    }

    fn free_space(&self, path: &Path) -> io::Result<Option<u64>> {
        self.inner.free_space(path)
    }

    fn read_many(&self, requests: &mut [ReadRequest]) {
        self.inner.read_many(requests);
    }

    fn io_report(&self) -> IoReport {
        let refused = self.refused.lock().clone();
        IoReport { direct: refused.is_none(), direct_refused: refused, ..self.inner.io_report() }
    }
}
