//! Handles of the engine, guarded against forks.

use crate::errors;
use pyo3::{
    prelude::*,
    types::{PyCFunction, PyDict},
};
use std::{
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// This process. A system call for each row took half the time of a scan.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Notes the process, and has the interpreter note it again in the child of each fork. A fork that
/// the interpreter does not learn of leaves it in no state to run, too.
pub fn watch_forks(py: Python<'_>) -> PyResult<()> {
    PROCESS.store(process::id(), Ordering::Relaxed);
    let os = py.import("os")?;
    if os.hasattr("register_at_fork")? {
        let note = PyCFunction::new_closure(py, None, None, |_, _| PROCESS.store(process::id(), Ordering::Relaxed))?;
        let arguments = PyDict::new(py);
        arguments.set_item("after_in_child", note)?;
        os.call_method("register_at_fork", (), Some(&arguments))?;
    }
    Ok(())
}

/// A value of the engine that belongs to one process.
///
/// After a fork the child has none of the engine's threads, and shares its files and mappings with
/// the parent. So its calls fail, and it leaks the value instead of closing it.
pub struct Handle<T: Send + 'static> {
    owner: u32,
    value: Option<T>,
}

impl<T: Send + 'static> Handle<T> {
    pub fn new(value: T) -> Handle<T> {
        Handle { owner: process::id(), value: Some(value) }
    }

    pub fn get(&self) -> PyResult<&T> {
        match &self.value {
            Some(value) if self.owner == PROCESS.load(Ordering::Relaxed) => Ok(value),
            _ => Err(errors::forked(self.owner)),
        }
    }
}

impl<T: Send + 'static> Drop for Handle<T> {
    fn drop(&mut self) {
        let mut value = self.value.take();
        if self.owner != process::id() {
            std::mem::forget(value);
            return;
        }
        // The last handle closes the database, which waits for its threads: see P1.
        Python::try_attach(|py| {
            let value = value.take();
            py.detach(|| drop(value));
        });
    }
}
