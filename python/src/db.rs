//! Databases, snapshots and followers.

use crate::{
    args, errors,
    errors::raise,
    handle::Handle,
    options::{self, builder},
    stats,
};
use braiddb::{Db, Follower, Snapshot, TreeCodec, TreeOptions, backup::DirectoryTarget, shared::SharedDb};
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

/// The engine's handle of a database.
pub enum Engine {
    /// No other process writes.
    Own(Db),
    Shared(SharedDb),
}

/// The database of all its Python handles.
pub struct Shared {
    engine: Handle<Engine>,
    is_closed: AtomicBool,
    access: Access,
}

impl Shared {
    fn new(engine: Engine, access: Access) -> Arc<Shared> {
        let shared = Arc::new(Shared { engine: Handle::new(engine), is_closed: AtomicBool::new(false), access });
        if access != Access::Followed {
            let mut open = OPEN.lock();
            open.retain(|db| db.strong_count() > 0);
            open.push(Arc::downgrade(&shared));
        }
        shared
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let engine = self.engine.get()?;
        self.is_closed.store(true, Ordering::Release);
        if self.access == Access::Followed {
            return Ok(());
        }
        let close = || match engine {
            Engine::Own(db) => db.clone().close(),
            Engine::Shared(db) => db.clone().close(),
        };
        py.detach(close).map_err(raise)
    }

    /// Returns true if a watcher that reached the end need not wait: no commits follow.
    pub fn is_read_only(&self) -> bool {
        self.access != Access::Writable
    }

    /// Fails after a close or a fork.
    pub fn engine(&self) -> PyResult<&Engine> {
        let engine = self.engine.get()?;
        if self.is_closed() { Err(errors::closed()) } else { Ok(engine) }
    }

    pub fn check(&self) -> PyResult<()> {
        self.engine().map(drop)
    }

    /// Returns the database for a call that a shared one lacks.
    pub fn db(&self, call: &str) -> PyResult<&Db> {
        match self.engine()? {
            Engine::Own(db) => Ok(db),
            Engine::Shared(_) => Err(errors::not_in_shared(call)),
        }
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
        if shared.check().is_ok()
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
    fn of(engine: Engine, access: Access) -> RawDb {
        RawDb { shared: Shared::new(engine, access) }
    }

    /// Runs a call of the engine detached: see P1.
    fn call<R: Send>(
        &self,
        py: Python<'_>,
        own: impl FnOnce(&Db) -> braiddb::Result<R> + Send,
        shared: impl FnOnce(&SharedDb) -> braiddb::Result<R> + Send,
    ) -> PyResult<R> {
        let engine = self.shared.engine()?;
        let call = || match engine {
            Engine::Own(db) => own(db),
            Engine::Shared(db) => shared(db),
        };
        py.detach(call).map_err(raise)
    }

    /// Runs a call that only the owner of a shared database can run.
    fn operate<R: Send>(
        &self,
        py: Python<'_>,
        name: &str,
        work: impl FnOnce(&Db) -> braiddb::Result<R> + Send,
    ) -> PyResult<R> {
        let engine = self.shared.engine()?;
        let found = py.detach(|| match engine {
            Engine::Own(db) => Some(work(db)),
            Engine::Shared(db) if db.is_owner() => Some(db.state().and_then(|state| work(&state))),
            Engine::Shared(_) => None,
        });
        let not_here = || errors::unsupported(format!("{name} of a shared database runs in its owner: see is_owner"));
        found.ok_or_else(not_here)?.map_err(raise)
    }
}

/// A tree as listed: name, many values per key, codec, time to live in seconds.
type Listed = (String, bool, Option<String>, Option<f64>);

#[pymethods]
impl RawDb {
    /// Opens or creates a database; in memory without a path.
    #[new]
    #[pyo3(signature = (path, options=None, shared=false))]
    fn new(
        py: Python<'_>,
        path: Option<PathBuf>,
        options: Option<&Bound<'_, PyDict>>,
        shared: bool,
    ) -> PyResult<RawDb> {
        let builder = builder(options)?;
        let open = || match path {
            Some(path) if shared => builder.open_shared(path).map(Engine::Shared),
            Some(path) => builder.open(path).map(Engine::Own),
            None => builder.open_in_memory().map(Engine::Own),
        };
        let is_read_only = match options {
            Some(options) => options.get_item("read_only")?.is_some_and(|value| value.is_truthy().unwrap_or(false)),
            None => false,
        };
        let access = if is_read_only { Access::ReadOnly } else { Access::Writable };
        py.detach(open).map(|engine| RawDb::of(engine, access)).map_err(raise)
    }

    #[getter]
    fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.close(py)
    }

    /// Returns whether this process commits for the others.
    #[getter]
    fn is_owner(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, |_| Ok(true), |db| Ok(db.is_owner()))
    }

    /// Makes the following reads see all commits that any process has acknowledged before.
    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |_| Ok(()), SharedDb::refresh)
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, Db::sync, SharedDb::sync)
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.operate(py, "flush", Db::flush)
    }

    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        self.operate(py, "compact", Db::compact)
    }

    fn verify<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let report = self.operate(py, "verify", Db::verify)?;
        stats::verify_report(py, &report)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = self.call(py, |db| Ok(db.stats()), |db| Ok(db.state()?.stats()))?;
        stats::stats(py, &found)
    }

    fn trees(&self, py: Python<'_>) -> PyResult<Vec<Listed>> {
        let trees = self.call(py, Db::trees, SharedDb::trees)?;
        let listed = trees.into_iter().map(|tree| {
            let codec = tree.codec.map(|codec| codec.to_string());
            (tree.name, tree.multi, codec, tree.ttl.map(|ttl| ttl.as_secs_f64()))
        });
        Ok(listed.collect())
    }

    fn drop_tree(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let db = self.shared.db("dropping a tree")?;
        py.detach(|| db.drop_tree(name)).map_err(raise)
    }

    fn rename_tree(&self, py: Python<'_>, from: &str, to: &str) -> PyResult<()> {
        let db = self.shared.db("rename")?;
        py.detach(|| db.rename_tree(from, to)).map_err(raise)
    }

    fn snapshot(&self, py: Python<'_>) -> PyResult<RawSnapshot> {
        let latest = |db: &SharedDb| {
            db.refresh()?;
            db.state()
        };
        let db = self.call(py, |db| Ok(db.clone()), latest)?;
        let cell = py.detach(|| SnapshotCell { snapshot: db.snapshot(), db });
        Ok(RawSnapshot { shared: Arc::clone(&self.shared), cell: Handle::new(cell) })
    }

    fn archive_now(&self, py: Python<'_>) -> PyResult<u64> {
        self.operate(py, "archive_now", Db::archive_now)
    }

    fn checkpoint(&self, py: Python<'_>, dir: PathBuf) -> PyResult<u64> {
        self.operate(py, "checkpoint", |db| db.checkpoint(dir))
    }

    #[pyo3(signature = (dir, full=false))]
    fn backup<'py>(&self, py: Python<'py>, dir: PathBuf, full: bool) -> PyResult<Bound<'py, PyDict>> {
        let options = braiddb::backup::BackupOptions::new().full(full);
        let info = self.operate(py, "backup", |db| db.backup_with(&DirectoryTarget::open(dir)?, options))?;
        stats::backup_info(py, &info)
    }

    fn revoke_exclusive(&self, py: Python<'_>) -> PyResult<bool> {
        let db = self.shared.db("revoke_exclusive")?;
        py.detach(|| db.revoke_exclusive()).map_err(raise)
    }
}

pub struct SnapshotCell {
    /// The database, or the state of a shared one.
    pub db: Db,
    pub snapshot: Snapshot,
}

/// The state after one commit.
#[pyclass(frozen, subclass, module = "braiddb._braiddb")]
pub struct RawSnapshot {
    pub shared: Arc<Shared>,
    pub cell: Handle<SnapshotCell>,
}

#[pymethods]
impl RawSnapshot {
    #[getter]
    fn sequence(&self, py: Python<'_>) -> PyResult<u64> {
        let SnapshotCell { snapshot, .. } = self.cell.get()?;
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
        Ok(RawDb::of(Engine::Own(py.detach(|| follower.db())), Access::Followed))
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
    let mut tree = TreeOptions::new();
    tree.compression = compression.map(options::compression).transpose()?;
    tree.blob_threshold = blob_threshold;
    tree.ttl = args::optional_duration(ttl)?;
    tree.codec = codec.map(|codec| codec.parse::<TreeCodec>().map_err(raise)).transpose()?;
    Ok(tree)
}
