//! Large values, read and written in parts.

use crate::{args::bytes, db::Shared, errors, errors::raise, handle::Handle};
use braiddb::{
    Error, Result,
    shared::SharedStreamWriter,
    streams::{StreamReader, StreamWriter},
};
use parking_lot::Mutex;
use pyo3::{prelude::*, types::PyBytes};
use std::{
    io::{self, Read, Write},
    sync::Arc,
};

/// Largest part that one read returns, in bytes.
const PART_MAX: u64 = 1 << 30;

/// Reads a Python file object.
pub struct PythonReader {
    file: Py<PyAny>,
}

impl PythonReader {
    pub fn new(file: Py<PyAny>) -> PythonReader {
        PythonReader { file }
    }
}

impl Read for PythonReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Python::attach(|py| {
            let part = self.file.bind(py).call_method1("read", (buffer.len(),)).map_err(io::Error::other)?;
            let part = bytes(&part).map_err(io::Error::other)?;
            let place = buffer.get_mut(..part.len());
            let too_long = || io::Error::other("the file's read() returned more bytes than requested");
            place.ok_or_else(too_long)?.copy_from_slice(&part);
            Ok(part.len())
        })
    }
}

/// Reads a value in parts.
#[pyclass(frozen, module = "braiddb._braiddb")]
pub struct RawStreamReader {
    shared: Arc<Shared>,
    reader: Handle<Mutex<StreamReader>>,
}

impl RawStreamReader {
    pub fn of(shared: &Arc<Shared>, reader: StreamReader) -> RawStreamReader {
        RawStreamReader { shared: Arc::clone(shared), reader: Handle::new(Mutex::new(reader)) }
    }
}

#[pymethods]
impl RawStreamReader {
    /// Returns up to `count` bytes from `at` on.
    fn read_at<'py>(&self, py: Python<'py>, at: u64, count: u64) -> PyResult<Bound<'py, PyBytes>> {
        self.shared.check()?;
        let reader = self.reader.get()?;
        let range = at..at.saturating_add(count.min(PART_MAX));
        let part = py.detach(|| reader.lock().read_range(range)).map_err(raise)?;
        Ok(PyBytes::new(py, &part))
    }

    fn length(&self, py: Python<'_>) -> PyResult<u64> {
        let reader = self.reader.get()?;
        Ok(py.detach(|| reader.lock().len()))
    }
}

/// A writer of either kind of database.
pub enum Writer {
    Own(StreamWriter),
    Shared(SharedStreamWriter),
}

impl Writer {
    fn write_all(&mut self, part: &[u8]) -> io::Result<()> {
        match self {
            Writer::Own(writer) => writer.write_all(part),
            Writer::Shared(writer) => writer.write_all(part),
        }
    }
}

/// Writes a value in parts.
#[pyclass(frozen, module = "braiddb._braiddb")]
pub struct RawStreamWriter {
    shared: Arc<Shared>,
    writer: Handle<Mutex<Option<Writer>>>,
}

impl RawStreamWriter {
    pub fn of(shared: &Arc<Shared>, writer: Writer) -> RawStreamWriter {
        RawStreamWriter { shared: Arc::clone(shared), writer: Handle::new(Mutex::new(Some(writer))) }
    }
}

fn of_write(error: io::Error) -> Error {
    match error.downcast::<Error>() {
        Ok(error) => error,
        Err(error) => Error::io("write a stream to", "the database", error),
    }
}

#[pymethods]
impl RawStreamWriter {
    fn write(&self, py: Python<'_>, part: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.shared.check()?;
        let (writer, part) = (self.writer.get()?, bytes(part)?);
        let write = || -> Result<bool> {
            match &mut *writer.lock() {
                Some(writer) => writer.write_all(&part).map(|()| true).map_err(of_write),
                None => Ok(false),
            }
        };
        if py.detach(write).map_err(raise)? { Ok(part.len()) } else { Err(errors::closed()) }
    }

    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        let writer = self.writer.get()?;
        let commit = || {
            let writer = writer.lock().take();
            writer.map(|writer| match writer {
                Writer::Own(writer) => writer.commit(),
                Writer::Shared(writer) => writer.commit(),
            })
        };
        py.detach(commit).ok_or_else(errors::closed)?.map(drop).map_err(raise)
    }

    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        let writer = self.writer.get()?;
        py.detach(|| drop(writer.lock().take()));
        Ok(())
    }
}
