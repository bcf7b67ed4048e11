//! Trees of many values per key.

use crate::{
    args::{self, Range, Row, bytes, py_bytes},
    db::{Engine, RawDb, RawSnapshot, Shared, SnapshotCell},
    errors::{self, Refusal, raise},
    handle::Handle,
    rows::{Kind, Rows, Source},
    transaction::{RawTransaction, TransactionCell},
};
use braiddb::{
    Error, Key, MultiTree, Result, Transaction, Value,
    shared::{SharedDb, SharedMultiTree},
    views::{SnapshotMultiTree, TransactionMultiTree},
};
use pyo3::{prelude::*, types::PyBytes};
use std::{borrow::Cow, ops::Bound as Limit, sync::Arc};

enum View {
    Latest,
    Snapshot(SnapshotMultiTree),
    Transaction(Arc<Handle<TransactionCell>>),
}

/// A multi-tree of a database, in no state.
#[derive(Clone)]
pub enum Origin {
    Own(MultiTree),
    Shared(SharedDb, SharedMultiTree),
}

impl Origin {
    fn name(&self) -> String {
        match self {
            Origin::Own(tree) => tree.name(),
            Origin::Shared(_, tree) => tree.name().to_owned(),
        }
    }

    /// Returns the handle for reads of the latest state.
    fn latest(&self) -> Result<Cow<'_, MultiTree>> {
        match self {
            Origin::Own(tree) => Ok(Cow::Borrowed(tree)),
            Origin::Shared(db, tree) => Ok(Cow::Owned(tree.in_state(&db.state()?)?)),
        }
    }

    /// Returns the handle for a transaction of this database.
    fn in_transaction(&self, transaction: &Transaction) -> Result<Cow<'_, MultiTree>> {
        match self {
            Origin::Own(tree) => Ok(Cow::Borrowed(tree)),
            Origin::Shared(_, tree) => match tree.in_transaction(transaction) {
                // A repeated transaction finds it.
                Err(error) if error.is_not_found() => {
                    let name = tree.name();
                    Err(Error::conflict(format!("the tree {name:?} is not in the state that the transaction reads")))
                }
                found => found.map(Cow::Owned),
            },
        }
    }

    fn open(db: &SharedDb, name: &str, create: bool) -> Result<Origin> {
        let tree = match db.open_multi_tree(name) {
            Err(error) if error.is_not_found() && create => db.multi_tree(name),
            opened => opened,
        };
        Ok(Origin::Shared(db.clone(), tree?))
    }
}

struct ViewedTree {
    origin: Origin,
    view: View,
}

/// Reads alike in all three views, detached: see P1.
macro_rules! read {
    ($self:ident, $py:ident, |$tree:ident| $body:expr) => {{
        let viewed = $self.viewed()?;
        match &viewed.view {
            View::Latest => $py.detach(|| {
                let $tree = &*viewed.origin.latest()?;
                $body
            }),
            View::Snapshot($tree) => $py.detach(|| $body),
            View::Transaction(cell) => {
                let cell = cell.get()?;
                $py.detach(|| {
                    cell.with(|transaction| {
                        let tree = viewed.origin.in_transaction(transaction)?;
                        let $tree = &transaction.multi_tree(&tree);
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
    fn of(shared: &Arc<Shared>, origin: Origin, view: View) -> RawMultiTree {
        RawMultiTree { shared: Arc::clone(shared), viewed: Handle::new(ViewedTree { origin, view }) }
    }

    fn viewed(&self) -> PyResult<&ViewedTree> {
        self.shared.check()?;
        self.viewed.get()
    }

    /// Returns the tree for a call that a shared database lacks.
    pub fn tree(&self, call: &str) -> PyResult<&MultiTree> {
        match &self.viewed()?.origin {
            Origin::Own(tree) => Ok(tree),
            Origin::Shared(..) => Err(errors::not_in_shared(call)),
        }
    }

    fn write<R: Send>(
        &self,
        py: Python<'_>,
        own: impl FnOnce(&MultiTree) -> Result<R> + Send,
        shared: impl FnOnce(&SharedDb, &SharedMultiTree) -> Result<R> + Send,
        in_transaction: impl FnOnce(&TransactionMultiTree<'_, '_>) -> Result<R> + Send,
    ) -> PyResult<R> {
        let ViewedTree { origin, view } = self.viewed()?;
        match view {
            View::Latest => py.detach(|| match origin {
                Origin::Own(tree) => own(tree),
                Origin::Shared(db, tree) => shared(db, tree),
            }),
            View::Snapshot(_) => Err(Error::abort(Refusal::Snapshot)),
            View::Transaction(cell) => {
                let cell = cell.get()?;
                py.detach(|| {
                    cell.write(|transaction| {
                        let tree = origin.in_transaction(transaction)?;
                        in_transaction(&transaction.multi_tree(&tree))
                    })
                })
            }
        }
        .map_err(raise)
    }

    fn rows(&self, py: Python<'_>, range: Range, is_reverse: bool, kind: Kind) -> PyResult<Rows> {
        let ViewedTree { origin, view } = self.viewed()?;
        let source = || {
            Ok(match view {
                View::Latest => Source::iter(origin.latest()?.range(range)),
                View::Snapshot(tree) => Source::iter(tree.range(range)),
                View::Transaction(cell) => pairs(cell, origin, range, None)?,
            })
        };
        Ok(Rows::new(&self.shared, py.detach(source).map_err(raise)?, is_reverse, kind))
    }
}

/// Returns the pairs of a transaction, or the values of one key.
fn pairs(of: &Arc<Handle<TransactionCell>>, origin: &Origin, range: Range, key: Option<Vec<u8>>) -> Result<Source> {
    let cell = of.get().map_err(Error::abort)?;
    let tree = cell.with(|transaction| Ok(origin.in_transaction(transaction)?.into_owned()))?;
    Ok(Source::Pairs { cell: Arc::clone(of), tree, range, of: key, last: None })
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
            let engine = shared.engine()?;
            let origin = py.detach(|| match engine {
                Engine::Shared(db) => Origin::open(db, &name, create),
                Engine::Own(db) => match db.open_multi_tree(&name) {
                    Err(error) if error.is_not_found() && create => db.multi_tree(&name),
                    opened => opened,
                }
                .map(Origin::Own),
            });
            return Ok(RawMultiTree::of(shared, origin.map_err(raise)?, View::Latest));
        }
        let of = tree.cast::<RawMultiTree>()?.get();
        let from = &of.viewed()?.origin;
        if let Ok(snapshot) = source.cast::<RawSnapshot>() {
            let RawSnapshot { shared, cell } = snapshot.get();
            of.check_is_of(shared)?;
            let SnapshotCell { snapshot, db } = cell.get()?;
            let viewed = py.detach(|| match from {
                Origin::Own(tree) => Ok(snapshot.multi_tree(tree)),
                Origin::Shared(_, tree) => Ok(snapshot.multi_tree(&tree.in_state(db)?)),
            });
            let origin = py.detach(|| from.clone());
            return Ok(RawMultiTree::of(shared, origin, View::Snapshot(viewed.map_err(raise)?)));
        }
        let transaction = source.cast::<RawTransaction>()?.get();
        of.check_is_of(transaction.shared())?;
        let cell = transaction.cell();
        if let Origin::Shared(db, tree) = from {
            let begun = cell.get()?;
            py.detach(|| begun.await_tree(db, |begun| tree.in_transaction(begun).map(drop))).map_err(raise)?;
        }
        let origin = py.detach(|| from.clone());
        Ok(RawMultiTree::of(transaction.shared(), origin, View::Transaction(Arc::clone(cell))))
    }

    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        let viewed = self.viewed()?;
        Ok(py.detach(|| viewed.origin.name()))
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
        self.write(
            py,
            |tree| tree.add(&key, &value).map(drop),
            |_, tree| tree.add(&key, &value).map(drop),
            |tree| tree.add(&key, &value),
        )
    }

    /// Adds many pairs in one commit.
    fn add_many(&self, py: Python<'_>, pairs: &Bound<'_, PyAny>) -> PyResult<()> {
        let pairs =
            pairs.try_iter()?.map(|pair| pair?.extract()).collect::<PyResult<Vec<(Bound<'_, _>, Bound<'_, _>)>>>()?;
        let pairs = pairs.iter().map(|(key, value)| Ok((bytes(key)?, bytes(value)?))).collect::<PyResult<Vec<_>>>()?;
        let own = |tree: &MultiTree| {
            let mut batch = self.shared.db("a batch").map_err(|_| Error::Closed)?.batch();
            pairs.iter().for_each(|(key, value)| _ = batch.add(tree, key, value));
            batch.commit().map(drop)
        };
        let shared = |db: &SharedDb, tree: &SharedMultiTree| {
            let mut batch = db.batch();
            pairs.iter().for_each(|(key, value)| _ = batch.add(tree, key, value));
            batch.commit().map(drop)
        };
        self.write(py, own, shared, |tree| pairs.iter().try_for_each(|(key, value)| tree.add(key, value)))
    }

    /// Deletes one value of a key, which may be absent.
    fn discard(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key, value) = (bytes(key)?, bytes(value)?);
        self.write(
            py,
            |tree| tree.delete_pair(&key, &value).map(drop),
            |_, tree| tree.delete_pair(&key, &value).map(drop),
            |tree| tree.delete_pair(&key, &value),
        )
    }

    /// Deletes a key with all its values.
    fn delete(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let key = bytes(key)?;
        self.write(
            py,
            |tree| tree.delete(&key).map(drop),
            |_, tree| tree.delete(&key).map(drop),
            |tree| tree.delete(&key),
        )
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
        self.write(
            py,
            |tree| tree.delete_range(&range).map(drop),
            |_, tree| tree.delete_range(&range).map(drop),
            |tree| tree.delete_range(&range),
        )
    }

    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.write(py, |tree| tree.clear().map(drop), |_, tree| tree.delete_range(..).map(drop), |tree| tree.clear())
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
        let ViewedTree { origin, view } = self.viewed()?;
        let source = || {
            Ok(match view {
                View::Latest => Source::iter(origin.latest()?.values(&key).map(with_key)),
                View::Snapshot(tree) => Source::iter(tree.values(&key).map(with_key)),
                View::Transaction(cell) => {
                    pairs(cell, origin, (Limit::Unbounded, Limit::Unbounded), Some(key.to_vec()))?
                }
            })
        };
        let source = py.detach(source).map_err(raise)?;
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
        let row = self.write(py, |tree| tree.pop_first(), |_, tree| tree.pop_first(), |tree| tree.pop_first())?;
        Ok(args::py_row(py, row))
    }

    fn pop_last<'py>(&self, py: Python<'py>) -> PyResult<Option<Row<'py>>> {
        let row = self.write(py, |tree| tree.pop_last(), |_, tree| tree.pop_last(), |tree| tree.pop_last())?;
        Ok(args::py_row(py, row))
    }
}

impl RawMultiTree {
    /// Refuses another database's tree: a shared tree is found by its name.
    fn check_is_of(&self, shared: &Arc<Shared>) -> PyResult<()> {
        let is_own = matches!(self.viewed()?.origin, Origin::Own(_));
        if is_own || Arc::ptr_eq(&self.shared, shared) {
            return Ok(());
        }
        Err(errors::invalid("the tree is another database's"))
    }
}
