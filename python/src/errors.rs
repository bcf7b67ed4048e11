//! Errors of the engine as Python exceptions, which `braiddb/_errors.py` defines.

use braiddb::Error;
use pyo3::{
    prelude::*,
    sync::PyOnceLock,
    types::{PyModule, PyTuple},
};
use std::{fmt, io};

static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// Reasons of this module to refuse a call, passed through [`Error::Aborted`].
#[derive(Debug)]
pub enum Refusal {
    /// The transaction was committed or rolled back.
    Ended,
    /// The thread is in a call of the same transaction.
    InUse,
    /// A write to a snapshot.
    Snapshot,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Ended => "the transaction has ended: begin another one",
            Refusal::InUse => {
                "a call of this transaction has not returned: the file object or merge function that it runs must not \
                 use the transaction"
            }
            Refusal::Snapshot => "a snapshot takes no writes: write to the tree itself",
        })
    }
}

impl std::error::Error for Refusal {}

/// ENOSPC, the same number on every system that BraidDB supports.
const NO_SPACE: i32 = 28;

fn make(class: &str, arguments: impl FnOnce(Python<'_>) -> PyResult<Bound<'_, PyTuple>>) -> PyErr {
    Python::attach(|py| {
        let new = || -> PyResult<Bound<'_, PyAny>> {
            let module = MODULE.get_or_try_init(py, || PyModule::import(py, "braiddb._errors").map(Bound::unbind))?;
            module.bind(py).getattr(class)?.call1(arguments(py)?)
        };
        match new() {
            Ok(exception) => PyErr::from_value(exception),
            Err(error) => error,
        }
    })
}

fn with_text(class: &str, text: String) -> PyErr {
    make(class, |py| (text,).into_pyobject(py))
}

pub fn forked(owner: u32) -> PyErr {
    let text = format!(
        "process {} is a fork of process {owner}, which opened the database: open it after the fork, or start workers \
         with the method \"spawn\"",
        std::process::id()
    );
    with_text("Forked", text)
}

pub fn invalid(text: impl Into<String>) -> PyErr {
    with_text("InvalidArgument", text.into())
}

/// Refuses a call that needs a database of one process.
pub fn not_in_shared(call: &str) -> PyErr {
    unsupported(format!("{call} is not available in a database opened with shared=True"))
}

pub fn unsupported(text: String) -> PyErr {
    with_text("Unsupported", text)
}

pub fn closed() -> PyErr {
    raise(Error::Closed)
}

/// Returns the exception that a Python object raised below the engine, if it was the cause.
fn of_python(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Option<PyErr> {
    if let Some(error) = error.downcast_ref::<PyErr>() {
        return Python::attach(|py| Some(error.clone_ref(py)));
    }
    of_python(error.downcast_ref::<io::Error>()?.get_ref()?)
}

/// Converts an error of the engine.
pub fn raise(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Io { source, .. } => source.get_ref().and_then(of_python).unwrap_or_else(|| {
            let number = source.raw_os_error();
            make("IoError", |py| match number {
                Some(number) => (number, text).into_pyobject(py),
                None => (text,).into_pyobject(py),
            })
        }),
        Error::DiskFull { .. } => make("DiskFull", |py| (NO_SPACE, text).into_pyobject(py)),
        Error::Corruption(damage) => {
            make("Corruption", |py| (text, damage.path().to_string_lossy(), damage.offset()).into_pyobject(py))
        }
        Error::Aborted(reason) => match reason.downcast_ref::<Refusal>() {
            Some(Refusal::Ended) => with_text("Closed", text),
            Some(Refusal::InUse) => with_text("InvalidArgument", text),
            Some(Refusal::Snapshot) => with_text("ReadOnly", text),
            // The failed read of a file object.
            None => of_python(&*reason).unwrap_or_else(|| with_text("Error", text)),
        },
        other => with_text(class_of(&other), text),
    }
}

fn class_of(error: &Error) -> &'static str {
    match error {
        Error::BackupDamaged { .. } => "BackupDamaged",
        Error::ArchiveGap { .. } => "ArchiveGap",
        Error::DumpDamaged { .. } => "DumpDamaged",
        Error::InvalidArgument(_) => "InvalidArgument",
        Error::NotFound(_) => "NotFound",
        Error::AlreadyExists(_) => "AlreadyExists",
        Error::Locked { .. } => "Locked",
        Error::ReadOnly { .. } => "ReadOnly",
        Error::CommitUnknown { .. } | Error::OutcomeUnknown { .. } => "OutcomeUnknown",
        Error::NoOwner { .. } => "NoOwner",
        Error::Conflict { .. } => "Conflict",
        Error::TransactionTooLarge { .. } => "TransactionTooLarge",
        Error::MergeFailed { .. } => "MergeFailed",
        Error::ReaderExpired { .. } | Error::Superseded => "ReaderExpired",
        Error::ExclusiveOpen { .. } => "ExclusiveOpen",
        Error::WatchTooOld { .. } => "WatchTooOld",
        Error::Unsupported { .. } => "Unsupported",
        Error::TooBusy { .. } => "TooBusy",
        Error::Closed => "Closed",
        _ => "Error",
    }
}
