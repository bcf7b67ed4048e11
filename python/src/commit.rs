//! Asynchronous commits.

use crate::{errors, errors::raise, handle::Handle};
use braiddb::Commit;
use parking_lot::Mutex;
use pyo3::prelude::*;
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

/// A commit that is visible and becomes durable.
#[pyclass(frozen, module = "braiddb._braiddb")]
pub struct RawCommit {
    commit: Handle<Mutex<Option<Commit>>>,
}

impl RawCommit {
    pub fn of(commit: Commit) -> RawCommit {
        RawCommit { commit: Handle::new(Mutex::new(Some(commit))) }
    }
}

/// Calls a Python function on the thread that wakes.
struct Call(Py<PyAny>);

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        Python::try_attach(|py| {
            if let Err(error) = self.0.call0(py) {
                error.write_unraisable(py, None);
            }
        });
    }
}

#[pymethods]
impl RawCommit {
    /// Returns the commit's number once it is durable. Until then returns None, and later calls
    /// `wake` from a thread of the engine.
    fn poll(&self, py: Python<'_>, wake: Py<PyAny>) -> PyResult<Option<u64>> {
        let commit = self.commit.get()?;
        let waker = Waker::from(Arc::new(Call(wake)));
        let polled = py.detach(|| {
            let mut commit = commit.lock();
            commit.as_mut().map(|commit| Pin::new(commit).poll(&mut Context::from_waker(&waker)))
        });
        match polled.ok_or_else(errors::closed)? {
            Poll::Ready(result) => result.map(Some).map_err(raise),
            Poll::Pending => Ok(None),
        }
    }

    /// Waits until the commit is durable.
    fn wait(&self, py: Python<'_>) -> PyResult<u64> {
        let commit = self.commit.get()?;
        let result = py.detach(|| {
            let commit = commit.lock().take();
            commit.map(Commit::wait)
        });
        result.ok_or_else(errors::closed)?.map_err(raise)
    }
}
