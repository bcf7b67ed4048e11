//! Databases, snapshots and followers.

use crate::{
    args, errors,
    errors::raise,
    handle::Handle,
    options::{self, builder},
    stats,
};
use braiddb::{Db, Follower, Snapshot, TreeCodec, TreeOptions, backup::DirectoryTarget};
use parking_lot::Mutex;
use pyo3::{prelude::*, types::PyDict};
use std::{
    path::PathBuf,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

/// Databases to close before the interpreter ends, while merge functions still run. Threads lock
/// it attached, so a fork never copies it locked.
static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Determines what a close ends, and what a watcher waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Writable,
    ReadOnly,
    /// The read-only state of a follower, which outlives a close of the handle.
    Followed,
}

/// The database of all its Python handles.
pub struct Shared {
    db: Handle<Db>,
    is_closed: AtomicBool,
    access: Access,
}

impl Shared {
    fn new(db: Db, access: Access) -> Arc<Shared> {
        let shared = Arc::new(Shared { db: Handle::new(db), is_closed: AtomicBool::new(false), access });
        if access != Access::Followed {
            let mut open = OPEN.lock();
            open.retain(|db| db.strong_count() > 0);
            open.push(Arc::downgrade(&shared));
        }
        shared
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let db = self.db.get()?;
        self.is_closed.store(true, Ordering::Release);
        if self.access == Access::Followed {
            return Ok(());
        }
        py.detach(|| db.clone().close()).map_err(raise)
    }

    /// Returns true if a watcher that reached the end need not wait: no commits follow.
    pub fn is_read_only(&self) -> bool {
        self.access != Access::Writable
    }

    /// Fails after a close or a fork.
    pub fn db(&self) -> PyResult<&Db> {
        let db = self.db.get()?;
        if self.is_closed() { Err(errors::closed()) } else { Ok(db) }
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }
}

/// Closes the open databases of this process, also those of which only a tree is left.
#[pyfunction]
pub fn close_all(py: Python<'_>) {
    let open = std::mem::take(&mut *OPEN.lock());
    for shared in open.into_iter().filter_map(|db| db.upgrade()) {
        // A fork leaves its parent's databases alone.
        if shared.db().is_ok()
            && let Err(error) = shared.close(py)
        {
            error.write_unraisable(py, None);
        }
    }
}

/// An open database.
#[pyclass(frozen, subclass, module = "braiddb._braiddb")]
pub struct RawDb {
    pub shared: Arc<Shared>,
}

impl RawDb {
    pub fn of(db: Db, access: Access) -> RawDb {
        RawDb { shared: Shared::new(db, access) }
    }

    /// Runs a call of the engine detached: see P1.
    fn call<R: Send>(&self, py: Python<'_>, work: impl FnOnce(&Db) -> braiddb::Result<R> + Send) -> PyResult<R> {
        let db = self.shared.db()?;
        py.detach(|| work(db)).map_err(raise)
    }
}

/// A tree as listed: name, many values per key, codec, time to live in seconds.
type Listed = (String, bool, Option<String>, Option<f64>);

#[pymethods]
impl RawDb {
    /// Opens or creates a database; in memory without a path.
    #[new]
    #[pyo3(signature = (path, options=None))]
    fn new(py: Python<'_>, path: Option<PathBuf>, options: Option<&Bound<'_, PyDict>>) -> PyResult<RawDb> {
        let builder = builder(options)?;
        let open = || match path {
            Some(path) => builder.open(path),
            None => builder.open_in_memory(),
        };
        let is_read_only = match options {
            Some(options) => options.get_item("read_only")?.is_some_and(|value| value.is_truthy().unwrap_or(false)),
            None => false,
        };
        let access = if is_read_only { Access::ReadOnly } else { Access::Writable };
        py.detach(open).map(|db| RawDb::of(db, access)).map_err(raise)
    }

    #[getter]
    fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.close(py)
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, Db::sync)
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, Db::flush)
    }

    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, Db::compact)
    }

    fn verify<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let report = self.call(py, Db::verify)?;
        stats::verify_report(py, &report)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = self.call(py, |db| Ok(db.stats()))?;
        stats::stats(py, &found)
    }

    fn trees(&self, py: Python<'_>) -> PyResult<Vec<Listed>> {
        let trees = self.call(py, Db::trees)?;
        let listed = trees.into_iter().map(|tree| {
            let codec = tree.codec.map(|codec| codec.to_string());
            (tree.name, tree.multi, codec, tree.ttl.map(|ttl| ttl.as_secs_f64()))
        });
        Ok(listed.collect())
    }

    fn drop_tree(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.call(py, |db| db.drop_tree(name))
    }

    fn rename_tree(&self, py: Python<'_>, from: &str, to: &str) -> PyResult<()> {
        self.call(py, |db| db.rename_tree(from, to))
    }

    fn snapshot(&self, py: Python<'_>) -> PyResult<RawSnapshot> {
        let snapshot = self.call(py, |db| Ok(db.snapshot()))?;
        Ok(RawSnapshot { shared: Arc::clone(&self.shared), snapshot: Handle::new(snapshot) })
    }

    fn archive_now(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, Db::archive_now)
    }

    fn checkpoint(&self, py: Python<'_>, dir: PathBuf) -> PyResult<u64> {
        self.call(py, |db| db.checkpoint(dir))
    }

    #[pyo3(signature = (dir, full=false))]
    fn backup<'py>(&self, py: Python<'py>, dir: PathBuf, full: bool) -> PyResult<Bound<'py, PyDict>> {
        let options = braiddb::backup::BackupOptions { full };
        let info = self.call(py, |db| db.backup_with(&DirectoryTarget::open(dir)?, options))?;
        stats::backup_info(py, &info)
    }

    fn revoke_exclusive(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, Db::revoke_exclusive)
    }
}

/// The state after one commit.
#[pyclass(frozen, subclass, module = "braiddb._braiddb")]
pub struct RawSnapshot {
    pub shared: Arc<Shared>,
    pub snapshot: Handle<Snapshot>,
}

#[pymethods]
impl RawSnapshot {
    #[getter]
    fn sequence(&self, py: Python<'_>) -> PyResult<u64> {
        let snapshot = self.snapshot.get()?;
        Ok(py.detach(|| snapshot.sequence()))
    }
}

/// Follows a database that another process writes.
#[pyclass(frozen, subclass, module = "braiddb._braiddb")]
pub struct RawFollower {
    follower: Handle<Follower>,
}

#[pymethods]
impl RawFollower {
    #[new]
    #[pyo3(signature = (path, options=None))]
    fn new(py: Python<'_>, path: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<RawFollower> {
        let builder = builder(options)?;
        let follower = py.detach(|| builder.open_follower(path)).map_err(raise)?;
        Ok(RawFollower { follower: Handle::new(follower) })
    }

    fn db(&self, py: Python<'_>) -> PyResult<RawDb> {
        let follower = self.follower.get()?;
        Ok(RawDb::of(py.detach(|| follower.db()), Access::Followed))
    }

    /// Returns true if the state is new.
    fn refresh(&self, py: Python<'_>) -> PyResult<bool> {
        let follower = self.follower.get()?;
        py.detach(|| follower.refresh()).map(|refreshed| refreshed.has_changed).map_err(raise)
    }
}

/// Returns the options of a tree from keyword arguments.
pub fn tree_options(
    codec: Option<&str>,
    ttl: Option<&Bound<'_, PyAny>>,
    compression: Option<&str>,
    blob_threshold: Option<usize>,
) -> PyResult<TreeOptions> {
    Ok(TreeOptions {
        compression: compression.map(options::compression).transpose()?,
        blob_threshold,
        ttl: args::optional_duration(ttl)?,
        codec: codec.map(|codec| codec.parse::<TreeCodec>().map_err(raise)).transpose()?,
    })
}
