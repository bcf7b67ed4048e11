use crate::platform::{File, IoReport, OpenMode, Vfs};
use parking_lot::Mutex;
use std::{ffi::OsStr, io, path::Path, sync::Arc};

const EXTENSIONS: [&str; 3] = ["run", "view", "blob"];

/// Uses direct I/O for runs, views and blob files, or if the system refuses, the page cache;
/// reports the first reason.
#[derive(Debug)]
pub struct UnbufferedTables {
    inner: Arc<dyn Vfs>,
    refused: Mutex<Option<String>>,
}

impl UnbufferedTables {
    pub fn new(inner: Arc<dyn Vfs>) -> UnbufferedTables {
        UnbufferedTables { inner, refused: Mutex::new(None) }
    }
}

fn is_table(path: &Path) -> bool {
    path.extension().and_then(OsStr::to_str).is_some_and(|extension| EXTENSIONS.contains(&extension))
}

impl crate::platform::VfsLayer for UnbufferedTables {
    fn inner(&self) -> &dyn Vfs {
        &*self.inner
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

    fn io_report(&self) -> IoReport {
        let refused = self.refused.lock().clone();
        IoReport { direct: refused.is_none(), direct_refused: refused, ..self.inner.io_report() }
    }
}
