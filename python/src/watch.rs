//! The change stream.

use crate::{
    args::bytes,
    change::change_set,
    db::{RawDb, Shared},
    errors::{self, raise},
    handle::Handle,
    multi::RawMultiTree,
    tree::RawTree,
};
use braiddb::watch::{ResumeToken, WatchOptions, WatchStopper, Watcher};
use parking_lot::Mutex;
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Longest wait between two checks for signals.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Returns commits in order.
#[pyclass(frozen, module = "braiddb._braiddb")]
pub struct RawWatcher {
    shared: Arc<Shared>,
    watcher: Handle<Mutex<Watcher>>,
    stopper: Handle<WatchStopper>,
    /// True after `stop`, and at the end of a read-only database.
    is_stopped: AtomicBool,
}

#[pymethods]
impl RawWatcher {
    #[new]
    #[pyo3(signature = (db, *, tree=None, prefix=None, after=None, resume=None, oldest=false, unsynced=false))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments")]
    fn new(
        py: Python<'_>,
        db: &RawDb,
        tree: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        after: Option<u64>,
        resume: Option<&Bound<'_, PyAny>>,
        oldest: bool,
        unsynced: bool,
    ) -> PyResult<RawWatcher> {
        let shared = Arc::clone(&db.shared);
        let open = shared.db("watch")?;
        if usize::from(after.is_some()) + usize::from(resume.is_some()) + usize::from(oldest) > 1 {
            return Err(errors::invalid("use one of after, resume and oldest"));
        }
        let mut options = WatchOptions::new().unsynced(unsynced);
        if let Some(tree) = tree {
            options = match tree.cast::<RawMultiTree>() {
                Ok(tree) => {
                    let tree = tree.get().tree("watch")?;
                    py.detach(|| options.multi_tree(tree))
                }
                Err(_) => {
                    let viewed = tree.cast::<RawTree>()?.get().viewed()?;
                    py.detach(|| Ok(options.tree(&*viewed.origin.latest()?))).map_err(raise)?
                }
            };
        }
        if let Some(prefix) = prefix {
            options = options.prefix(bytes(prefix)?);
        }
        if let Some(token) = resume {
            options = options.resume(ResumeToken::from_bytes(&bytes(token)?).map_err(raise)?);
        }
        if let Some(commit) = after {
            options = options.after(commit);
        }
        if oldest {
            options = options.from_oldest();
        }
        let watch = || open.watch(options).map(|watcher| (watcher.stopper(), watcher));
        let (stopper, watcher) = py.detach(watch).map_err(raise)?;
        let stopper = Handle::new(stopper);
        Ok(RawWatcher {
            shared,
            watcher: Handle::new(Mutex::new(watcher)),
            stopper,
            is_stopped: AtomicBool::new(false),
        })
    }

    /// Waits for the next commit; None after `timeout` seconds, once stopped, or at the end of a
    /// read-only database.
    #[pyo3(signature = (timeout=None))]
    fn next<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let watcher = self.watcher.get()?;
        #[expect(clippy::disallowed_methods, reason = "the time that a Python caller waits")]
        let now = Instant::now;
        let timeout = timeout.map(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX));
        let until = timeout.and_then(|timeout| now().checked_add(timeout));
        loop {
            self.shared.check()?;
            let is_read_only = self.shared.is_read_only();
            let left = until.map_or(WAIT_MAX, |until| until.saturating_duration_since(now()));
            let found = py.detach(|| watcher.lock().next_timeout(left.min(WAIT_MAX))).map_err(raise)?;
            if let Some(set) = found {
                return change_set(py, &self.shared, set).map(Some);
            }
            py.check_signals()?;
            if is_read_only {
                self.is_stopped.store(true, Ordering::Release);
            }
            if self.is_stopped.load(Ordering::Acquire) || until.is_some_and(|until| now() >= until) {
                return Ok(None);
            }
        }
    }

    #[getter]
    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    fn token<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let watcher = self.watcher.get()?;
        let token = py.detach(|| watcher.lock().token());
        Ok(PyBytes::new(py, &token.to_bytes()))
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.is_stopped.store(true, Ordering::Release);
        let stopper = self.stopper.get()?;
        py.detach(|| stopper.stop());
        Ok(())
    }
}
