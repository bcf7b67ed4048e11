//! Changes of a commit as dictionaries.

use crate::{args::seconds, db::Shared, errors::raise, handle::Handle};
use braiddb::watch::{Change, ChangeSet, ChangedTree, Gap, LoggedStream, MergeBase};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict, PyList},
};
use std::sync::Arc;

/// A large value of a change.
#[pyclass(frozen, module = "braiddb._braiddb")]
pub struct RawLoggedStream {
    shared: Arc<Shared>,
    stream: Handle<LoggedStream>,
}

#[pymethods]
impl RawLoggedStream {
    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.stream.get()?.len()).unwrap_or(usize::MAX))
    }

    /// Returns the whole value.
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.shared.check()?;
        let stream = self.stream.get()?;
        let mut value = Vec::new();
        py.detach(|| stream.copy_to(&mut value)).map_err(raise)?;
        Ok(PyBytes::new(py, &value))
    }
}

pub fn change_set<'py>(py: Python<'py>, shared: &Arc<Shared>, set: ChangeSet) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("sequence", set.sequence)?;
    dict.set_item("time", set.time.map(seconds))?;
    dict.set_item("token", PyBytes::new(py, &set.token.to_bytes()))?;
    let changes = PyList::empty(py);
    for change in set.changes {
        changes.append(one_change(py, shared, change)?)?;
    }
    dict.set_item("changes", changes)?;
    Ok(dict)
}

fn one_change<'py>(py: Python<'py>, shared: &Arc<Shared>, change: Change) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    if let Some(ChangedTree { name, id }) = change.tree() {
        dict.set_item("tree", name.as_deref())?;
        dict.set_item("tree_id", id)?;
    }
    let bytes = |name: &str, bytes: &[u8]| dict.set_item(name, PyBytes::new(py, bytes));
    let kind = match &change {
        Change::Put { key, value, expires, .. } => {
            bytes("key", key)?;
            bytes("value", value)?;
            dict.set_item("expires", expires.map(seconds))?;
            "put"
        }
        Change::PutStream { key, expires, .. } => {
            bytes("key", key)?;
            dict.set_item("expires", expires.map(seconds))?;
            "put"
        }
        Change::Delete { key, .. } => {
            bytes("key", key)?;
            "delete"
        }
        Change::DeleteRange { start, end, .. } | Change::Gap(Gap::Range { start, end, .. }) => {
            bytes("start", start)?;
            if let Some(end) = end {
                bytes("stop", end)?;
            }
            if matches!(change, Change::Gap(_)) { "gap" } else { "delete_range" }
        }
        Change::Merge { key, base, operands, .. } => {
            bytes("key", key)?;
            if let MergeBase::Value(value) = base {
                bytes("value", value)?;
            }
            dict.set_item("is_base_stored", *base == MergeBase::Stored)?;
            let operands = operands.iter().map(|operand| (&operand.function, PyBytes::new(py, &operand.operand)));
            dict.set_item("operands", operands.collect::<Vec<_>>())?;
            "merge"
        }
        Change::Add { key, value, .. } | Change::DeletePair { key, value, .. } => {
            bytes("key", key)?;
            bytes("value", value)?;
            if matches!(change, Change::Add { .. }) { "add" } else { "discard" }
        }
        Change::CreateTree { .. } => "create_tree",
        Change::DropTree { .. } => "drop_tree",
        Change::SetTreeOptions { .. } => "set_tree_options",
        Change::RenameTree { .. } => "rename_tree",
        Change::ApplicationCursor { cursor } => {
            bytes("value", cursor)?;
            "application_cursor"
        }
        Change::Gap(_) => "gap",
        _ => "unknown",
    };
    dict.set_item("kind", kind)?;
    if let Change::PutStream { stream, .. } = change {
        let stream = RawLoggedStream { shared: Arc::clone(shared), stream: Handle::new(stream) };
        dict.set_item("stream", Bound::new(py, stream)?)?;
    }
    Ok(dict)
}
