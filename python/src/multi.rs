//! Trees of many values per key.

use crate::{
    args::{self, Range, Row, bytes, py_bytes},
    db::{RawDb, RawSnapshot, Shared, SnapshotCell},
    errors::{Refusal, raise},
    handle::Handle,
    rows::{Kind, Rows, Source},
    transaction::{RawTransaction, TransactionCell},
};
use braiddb::{
    Error, Key, MultiTree, Result, Value,
    views::{SnapshotMultiTree, TransactionMultiTree},
};
use pyo3::{prelude::*, types::PyBytes};
use std::{ops::Bound as Limit, sync::Arc};

enum View {
    Latest,
    Snapshot(SnapshotMultiTree),
    Transaction(Arc<Handle<TransactionCell>>),
}

struct ViewedTree {
    tree: MultiTree,
    view: View,
}

/// Reads alike in all three views, detached: see P1.
macro_rules! read {
    ($self:ident, $py:ident, |$tree:ident| $body:expr) => {{
        let viewed = $self.viewed()?;
        match &viewed.view {
            View::Latest => {
                let $tree = &viewed.tree;
                $py.detach(|| $body)
            }
            View::Snapshot($tree) => $py.detach(|| $body),
            View::Transaction(cell) => {
                let cell = cell.get()?;
                $py.detach(|| {
                    cell.with(|transaction| {
                        let $tree = &transaction.multi_tree(&viewed.tree);
                        $body
                    })
                })
            }
        }
        .map_err(raise)
    }};
}

/// A tree that keeps many sorted values under one key.
#[pyclass(frozen, subclass, module = "braiddb._braiddb")]
pub struct RawMultiTree {
    shared: Arc<Shared>,
    viewed: Handle<ViewedTree>,
}

impl RawMultiTree {
    fn of(shared: &Arc<Shared>, tree: MultiTree, view: View) -> RawMultiTree {
        RawMultiTree { shared: Arc::clone(shared), viewed: Handle::new(ViewedTree { tree, view }) }
    }

    fn viewed(&self) -> PyResult<&ViewedTree> {
        self.shared.check()?;
        self.viewed.get()
    }

    pub fn tree(&self) -> PyResult<&MultiTree> {
        Ok(&self.viewed()?.tree)
    }

    fn write<R: Send>(
        &self,
        py: Python<'_>,
        latest: impl FnOnce(&MultiTree) -> Result<R> + Send,
        own: impl FnOnce(&TransactionMultiTree<'_, '_>) -> Result<R> + Send,
    ) -> PyResult<R> {
        let ViewedTree { tree, view } = self.viewed()?;
        match view {
            View::Latest => py.detach(|| latest(tree)),
            View::Snapshot(_) => Err(Error::abort(Refusal::Snapshot)),
            View::Transaction(cell) => {
                let cell = cell.get()?;
                py.detach(|| cell.write(|transaction| own(&transaction.multi_tree(tree))))
            }
        }
        .map_err(raise)
    }

    fn rows(&self, py: Python<'_>, range: Range, is_reverse: bool, kind: Kind) -> PyResult<Rows> {
        let ViewedTree { tree, view } = self.viewed()?;
        let source = py.detach(|| match view {
            View::Latest => Source::iter(tree.range(range)),
            View::Snapshot(tree) => Source::iter(tree.range(range)),
            View::Transaction(cell) => {
                Source::Pairs { cell: Arc::clone(cell), tree: tree.clone(), range, of: None, last: None }
            }
        });
        Ok(Rows::new(&self.shared, source, is_reverse, kind))
    }
}

fn with_key(value: Result<Value>) -> Result<(Key, Value)> {
    Ok((Key::default(), value?))
}

#[pymethods]
impl RawMultiTree {
    /// Opens the tree `tree` of a database, or shows a tree in a snapshot or a transaction.
    #[new]
    #[pyo3(signature = (source, tree, *, create=true))]
    fn new(py: Python<'_>, source: &Bound<'_, PyAny>, tree: &Bound<'_, PyAny>, create: bool) -> PyResult<RawMultiTree> {
        if let Ok(db) = source.cast::<RawDb>() {
            let (shared, name) = (&db.get().shared, tree.extract::<String>()?);
            let found = shared.db("a multi-tree")?;
            let tree = py.detach(|| match found.open_multi_tree(&name) {
                Err(error) if error.is_not_found() && create => found.multi_tree(&name),
                opened => opened,
            });
            return Ok(RawMultiTree::of(shared, tree.map_err(raise)?, View::Latest));
        }
        let of = tree.cast::<RawMultiTree>()?.get().tree()?;
        if let Ok(snapshot) = source.cast::<RawSnapshot>() {
            let RawSnapshot { shared, cell } = snapshot.get();
            let SnapshotCell { snapshot, .. } = cell.get()?;
            let (tree, viewed) = py.detach(|| (of.clone(), snapshot.multi_tree(of)));
            return Ok(RawMultiTree::of(shared, tree, View::Snapshot(viewed)));
        }
        let transaction = source.cast::<RawTransaction>()?.get();
        let tree = py.detach(|| of.clone());
        Ok(RawMultiTree::of(transaction.shared(), tree, View::Transaction(Arc::clone(transaction.cell()))))
    }

    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        let viewed = self.viewed()?;
        Ok(py.detach(|| viewed.tree.name()))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(usize::try_from(read!(self, py, |tree| tree.len())?).unwrap_or(usize::MAX))
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(!read!(self, py, |tree| tree.is_empty())?)
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = bytes(key)?;
        read!(self, py, |tree| tree.contains(&key))
    }

    fn contains_pair(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (key, value) = (bytes(key)?, bytes(value)?);
        read!(self, py, |tree| tree.contains_pair(&key, &value))
    }

    fn add(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key, value) = (bytes(key)?, bytes(value)?);
        self.write(py, |tree| tree.add(&key, &value).map(drop), |tree| tree.add(&key, &value))
    }

    /// Adds many pairs in one commit.
    fn add_many(&self, py: Python<'_>, pairs: &Bound<'_, PyAny>) -> PyResult<()> {
        let pairs =
            pairs.try_iter()?.map(|pair| pair?.extract()).collect::<PyResult<Vec<(Bound<'_, _>, Bound<'_, _>)>>>()?;
        let pairs = pairs.iter().map(|(key, value)| Ok((bytes(key)?, bytes(value)?))).collect::<PyResult<Vec<_>>>()?;
        let db = self.shared.db("add_many")?;
        let latest = |tree: &MultiTree| {
            let mut batch = db.batch();
            pairs.iter().for_each(|(key, value)| _ = batch.add(tree, key, value));
            batch.commit().map(drop)
        };
        self.write(py, latest, |tree| pairs.iter().try_for_each(|(key, value)| tree.add(key, value)))
    }

    /// Deletes one value of a key, which may be absent.
    fn discard(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key, value) = (bytes(key)?, bytes(value)?);
        self.write(py, |tree| tree.delete_pair(&key, &value).map(drop), |tree| tree.delete_pair(&key, &value))
    }

    /// Deletes a key with all its values.
    fn delete(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let key = bytes(key)?;
        self.write(py, |tree| tree.delete(&key).map(drop), |tree| tree.delete(&key))
    }

    #[pyo3(signature = (prefix=None, start=None, stop=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        prefix: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let range = args::range(prefix, start, stop)?;
        self.write(py, |tree| tree.delete_range(&range).map(drop), |tree| tree.delete_range(&range))
    }

    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.write(py, |tree| tree.clear().map(drop), |tree| tree.clear())
    }

    fn count_values(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<u64> {
        let key = bytes(key)?;
        read!(self, py, |tree| tree.count_values(&key))
    }

    #[pyo3(signature = (prefix=None, start=None, stop=None))]
    fn count(
        &self,
        py: Python<'_>,
        prefix: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let range = args::range(prefix, start, stop)?;
        read!(self, py, |tree| tree.count(&range))
    }

    /// Iterates over the values of a key.
    #[pyo3(signature = (key, reverse=false))]
    fn scan_values(&self, py: Python<'_>, key: &Bound<'_, PyAny>, reverse: bool) -> PyResult<Rows> {
        let key = bytes(key)?;
        let ViewedTree { tree, view } = self.viewed()?;
        let source = py.detach(|| match view {
            View::Latest => Source::iter(tree.values(&key).map(with_key)),
            View::Snapshot(tree) => Source::iter(tree.values(&key).map(with_key)),
            View::Transaction(cell) => Source::Pairs {
                cell: Arc::clone(cell),
                tree: tree.clone(),
                range: (Limit::Unbounded, Limit::Unbounded),
                of: Some(key.to_vec()),
                last: None,
            },
        });
        Ok(Rows::new(&self.shared, source, reverse, Kind::Values))
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Rows> {
        self.rows(py, (Limit::Unbounded, Limit::Unbounded), false, Kind::Items)
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<Rows> {
        self.rows(py, (Limit::Unbounded, Limit::Unbounded), true, Kind::Items)
    }

    /// Iterates over pairs.
    #[pyo3(signature = (prefix=None, start=None, stop=None, reverse=false))]
    fn items(
        &self,
        py: Python<'_>,
        prefix: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Rows> {
        self.rows(py, args::range(prefix, start, stop)?, reverse, Kind::Items)
    }

    fn first_value<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = bytes(key)?;
        Ok(py_bytes(py, read!(self, py, |tree| tree.first_value(&key))?))
    }

    fn last_value<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = bytes(key)?;
        Ok(py_bytes(py, read!(self, py, |tree| tree.last_value(&key))?))
    }

    fn pop_first<'py>(&self, py: Python<'py>) -> PyResult<Option<Row<'py>>> {
        let row = self.write(py, |tree| tree.pop_first(), |tree| tree.pop_first())?;
        Ok(args::py_row(py, row))
    }

    fn pop_last<'py>(&self, py: Python<'py>) -> PyResult<Option<Row<'py>>> {
        let row = self.write(py, |tree| tree.pop_last(), |tree| tree.pop_last())?;
        Ok(args::py_row(py, row))
    }
}
