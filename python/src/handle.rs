//! Handles of the engine, guarded against forks.

use crate::errors;
use pyo3::prelude::*;
use std::process;

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
            Some(value) if self.owner == process::id() => Ok(value),
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
