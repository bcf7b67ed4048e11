//! Trees of one value per key: latest, in a snapshot, in a transaction.

use crate::{
    args::{self, Range, Row, bytes, py_bytes},
    commit::RawCommit,
    db::{Engine, RawDb, RawSnapshot, Shared, SnapshotCell, tree_options},
    errors::{self, Refusal, raise},
    handle::Handle,
    rows::{Kind, Rows, Source},
    stream::{PythonReader, RawStreamReader, RawStreamWriter, Writer},
    transaction::RawTransaction,
    view::{Opening, Origin, View, ViewedTree},
    writes::Expiry,
};
use braiddb::{Error, Tree, TreeOptions, Update, views::TransactionTree};
use pyo3::{
    exceptions::{PyKeyError, PyTypeError, PyValueError},
    prelude::*,
    types::{PyBytes, PySlice},
};
use std::{ops::Bound as Limit, sync::Arc};

/// Reads alike in all three views, detached: see P1.
macro_rules! read {
    ($self:ident, $py:ident, |$tree:ident| $body:expr) => {{
        let viewed = $self.viewed()?;
        match &viewed.view {
            View::Latest => $py.detach(|| {
                let $tree = &*viewed.origin.latest()?;
                $body
            }),
            View::Snapshot(.., $tree) => $py.detach(|| $body),
            View::Transaction(cell) => {
                let cell = cell.get()?;
                $py.detach(|| {
                    cell.with(|transaction| {
                        let tree = viewed.origin.in_transaction(transaction)?;
                        let $tree = &transaction.tree(&tree);
                        $body
                    })
                })
            }
        }
        .map_err(raise)
    }};
}

/// A tree.
#[pyclass(frozen, subclass, module = "braiddb._braiddb")]
pub struct RawTree {
    shared: Arc<Shared>,
    viewed: Handle<ViewedTree>,
}

impl RawTree {
    fn of(shared: &Arc<Shared>, origin: Origin, view: View) -> RawTree {
        RawTree { shared: Arc::clone(shared), viewed: Handle::new(ViewedTree { origin, view }) }
    }

    pub fn viewed(&self) -> PyResult<&ViewedTree> {
        self.shared.check()?;
        self.viewed.get()
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn rows(&self, py: Python<'_>, range: Range, is_reverse: bool, kind: Kind) -> PyResult<Rows> {
        let ViewedTree { origin, view } = self.viewed()?;
        let source = || {
            Ok(match view {
                View::Latest if kind == Kind::Keys => Source::cursor(origin.latest()?.cursor(), range),
                View::Latest => Source::iter(origin.latest()?.range(range)),
                View::Snapshot(snapshot, tree, _) if kind == Kind::Keys => Source::cursor(snapshot.cursor(tree), range),
                View::Snapshot(.., tree) => Source::iter(tree.range(range)),
                View::Transaction(of) => {
                    let cell = of.get().map_err(Error::abort)?;
                    let tree = cell.with(|transaction| Ok(origin.in_transaction(transaction)?.into_owned()))?;
                    Source::transaction(Arc::clone(of), tree, range)
                }
            })
        };
        Ok(Rows::new(&self.shared, py.detach(source).map_err(raise)?, is_reverse, kind))
    }

    fn latest(&self, call: &str) -> PyResult<&Tree> {
        match self.viewed()? {
            ViewedTree { origin: Origin::Own(tree), view: View::Latest } => Ok(tree),
            ViewedTree { origin: Origin::Shared(..), .. } => Err(errors::not_in_shared(call)),
            _ => Err(PyTypeError::new_err(format!("{call} is not available in a snapshot or a transaction"))),
        }
    }
}

#[pymethods]
impl RawTree {
    /// Opens the tree `tree` of a database, or shows a tree in a snapshot or a transaction.
    #[new]
    #[pyo3(signature = (source, tree, *, create=true, declare=false, codec=None, ttl=None, compression=None, blob_threshold=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments")]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        tree: &Bound<'_, PyAny>,
        create: bool,
        declare: bool,
        codec: Option<&str>,
        ttl: Option<&Bound<'_, PyAny>>,
        compression: Option<&str>,
        blob_threshold: Option<usize>,
    ) -> PyResult<RawTree> {
        if let Ok(db) = source.cast::<RawDb>() {
            let options = tree_options(codec, ttl, compression, blob_threshold)?;
            let (name, shared) = (tree.extract()?, &db.get().shared);
            let opening = Opening { name, create, declare, options };
            return Ok(RawTree::of(shared, opening.open(py, shared.engine()?)?, View::Latest));
        }
        let of = tree.cast::<RawTree>()?.get();
        let from = of.viewed()?;
        if let Ok(snapshot) = source.cast::<RawSnapshot>() {
            let RawSnapshot { shared, cell } = snapshot.get();
            of.check_is_of(shared)?;
            let SnapshotCell { db, snapshot } = cell.get()?;
            let (origin, view) = py
                .detach(|| {
                    let tree = from.origin.in_state(db)?;
                    let viewed = snapshot.tree(&tree);
                    Ok((from.origin.clone(), View::Snapshot(snapshot.clone(), tree, viewed)))
                })
                .map_err(raise)?;
            return Ok(RawTree::of(shared, origin, view));
        }
        let transaction = source.cast::<RawTransaction>()?.get();
        of.check_is_of(transaction.shared())?;
        let cell = transaction.cell();
        if let Origin::Shared(db, tree) = &from.origin {
            let begun = cell.get()?;
            py.detach(|| begun.await_tree(db, |begun| tree.in_transaction(begun).map(drop))).map_err(raise)?;
        }
        let origin = py.detach(|| from.origin.clone());
        Ok(RawTree::of(transaction.shared(), origin, View::Transaction(Arc::clone(cell))))
    }

    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        let viewed = self.viewed()?;
        py.detach(|| Ok(viewed.origin.latest()?.name())).map_err(raise)
    }

    #[getter]
    fn codec(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.options(py)?.codec.map(|codec| codec.to_string()))
    }

    #[getter]
    fn ttl(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        Ok(self.options(py)?.ttl.map(|ttl| ttl.as_secs_f64()))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let count = read!(self, py, |tree| tree.len())?;
        usize::try_from(count).map_err(|_| PyValueError::new_err("more keys than len() can return: use count()"))
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(!read!(self, py, |tree| tree.is_empty())?)
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = bytes(key)?;
        read!(self, py, |tree| tree.contains(&key))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = key.cast::<PySlice>() {
            let rows = self.rows(py, args::range_of(slice)?, false, Kind::Items)?;
            return Ok(Bound::new(py, rows)?.into_any());
        }
        match self.value(py, key)? {
            Some(value) => Ok(value.into_any()),
            None => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.value(py, key)?.map(Bound::into_any).or(default))
    }

    fn get_many<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let keys: Vec<Bound<'_, PyAny>> = keys.try_iter()?.collect::<PyResult<_>>()?;
        let keys = keys.iter().map(bytes).collect::<PyResult<Vec<_>>>()?;
        let values = read!(self, py, |tree| tree.multi_get(&keys))?;
        Ok(values.into_iter().map(|value| py_bytes(py, value)).collect())
    }

    /// Returns the value and its expiry time in seconds since 1970.
    fn get_with_expiry<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, Option<f64>)>> {
        let (key, viewed) = (bytes(key)?, self.viewed()?);
        let found = match &viewed.view {
            View::Latest => py.detach(|| viewed.origin.latest()?.get_with_expiry(&key)),
            View::Snapshot(snapshot, tree, _) => py.detach(|| snapshot.get_with_expiry(tree, &key)),
            View::Transaction(cell) => {
                let cell = cell.get()?;
                py.detach(|| {
                    cell.with(|transaction| {
                        let tree = viewed.origin.in_transaction(transaction)?;
                        transaction.get_with_expiry(&tree, &key)
                    })
                })
            }
        };
        let found = found.map_err(raise)?;
        Ok(found.map(|(value, expires)| (PyBytes::new(py, &value), expires.map(args::seconds))))
    }

    fn __setitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key, value) = (bytes(key)?, bytes(value)?);
        self.write(
            py,
            |tree| tree.put(&key, &value).map(drop),
            |_, tree| tree.put(&key, &value).map(drop),
            |tree| tree.put(&key, &value),
        )
    }

    /// Deletes a key, or all keys of a slice.
    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(slice) = key.cast::<PySlice>() {
            return self.delete_keys(py, &args::range_of(slice)?);
        }
        let bytes = bytes(key)?;
        let delete = |value: Option<&[u8]>| if value.is_some() { Update::Delete } else { Update::Keep };
        let was_there = self.write(
            py,
            |tree| Ok(tree.fetch_update(&bytes, delete)?.is_some()),
            |_, tree| Ok(tree.fetch_update(&bytes, delete)?.is_some()),
            |tree| {
                let is_there = tree.contains(&bytes)?;
                if is_there {
                    tree.delete(&bytes)?;
                }
                Ok(is_there)
            },
        )?;
        if was_there { Ok(()) } else { Err(PyKeyError::new_err(key.clone().unbind())) }
    }

    #[pyo3(signature = (key, value, *, ttl=None, expires=None, keep_ttl=false, durability=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments")]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
        expires: Option<f64>,
        keep_ttl: bool,
        durability: Option<&str>,
    ) -> PyResult<()> {
        let (key, value) = (bytes(key)?, bytes(value)?);
        let (ttl, expires) = (args::optional_duration(ttl)?, expires.map(args::time).transpose()?);
        let durability = args::durability(durability)?;
        if usize::from(ttl.is_some()) + usize::from(expires.is_some()) + usize::from(keep_ttl) > 1 {
            return Err(errors::invalid("use one of ttl, expires and keep_ttl"));
        }
        if keep_ttl && durability.is_some() {
            return Err(errors::invalid("keep_ttl reads the key, so it takes no durability: use a transaction"));
        }
        if keep_ttl {
            let keep = |_: Option<&[u8]>| Update::PutKeepTtl(value.to_vec());
            return self.write(
                py,
                |tree| tree.put_keep_ttl(&key, &value).map(drop),
                |_, tree| tree.fetch_update(&key, keep).map(drop),
                |tree| tree.put_keep_ttl(&key, &value),
            );
        }
        let expiry = match expires {
            Some(expires) => Expiry::At(expires),
            None => ttl.map_or(Expiry::OfTree, Expiry::After),
        };
        self.put_rows(py, &[(key, value)], expiry, durability)
    }

    /// Puts many rows in one commit.
    #[pyo3(signature = (rows, ttl=None, durability=None))]
    fn put_many(
        &self,
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
        durability: Option<&str>,
    ) -> PyResult<()> {
        let (ttl, durability) = (args::optional_duration(ttl)?, args::durability(durability)?);
        let rows = rows.try_iter()?.map(|row| row?.extract()).collect::<PyResult<Vec<(Bound<'_, _>, Bound<'_, _>)>>>();
        let rows = rows?;
        let rows = rows.iter().map(|(key, value)| Ok((bytes(key)?, bytes(value)?))).collect::<PyResult<Vec<_>>>()?;
        self.put_rows(py, &rows, ttl.map_or(Expiry::OfTree, Expiry::After), durability)
    }

    /// Deletes keys that may be absent, in one commit.
    #[pyo3(signature = (keys, durability=None))]
    fn delete_many(&self, py: Python<'_>, keys: &Bound<'_, PyAny>, durability: Option<&str>) -> PyResult<()> {
        let durability = args::durability(durability)?;
        let keys: Vec<Bound<'_, PyAny>> = keys.try_iter()?.collect::<PyResult<_>>()?;
        let keys = keys.iter().map(bytes).collect::<PyResult<Vec<_>>>()?;
        self.delete_all(py, &keys, durability)
    }

    /// Removes a key and returns its value.
    fn remove<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = bytes(key)?;
        let value = self.write(py, |tree| tree.remove(&key), |_, tree| tree.remove(&key), |tree| tree.remove(&key))?;
        Ok(py_bytes(py, value))
    }

    /// Puts a value if the key is absent. Returns whether it was.
    fn put_if_absent(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (key, value) = (bytes(key)?, bytes(value)?);
        let own = |tree: &TransactionTree<'_, '_>| {
            let is_absent = !tree.contains(&key)?;
            if is_absent {
                tree.put(&key, &value)?;
            }
            Ok(is_absent)
        };
        self.write(
            py,
            |tree| Ok(tree.put_if_absent(&key, &value)?.is_some()),
            |_, tree| tree.put_if_absent(&key, &value),
            own,
        )
    }

    /// Changes a value if it is `expected`; None is an absent value. Returns whether it was.
    fn compare_and_set(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        expected: Option<&Bound<'_, PyAny>>,
        new: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let (key, expected, new) = (bytes(key)?, args::optional_bytes(expected)?, args::optional_bytes(new)?);
        let own = |tree: &TransactionTree<'_, '_>| {
            let is_expected = tree.get(&key)?.as_deref() == expected.as_deref();
            if is_expected {
                match &new {
                    Some(new) => tree.put(&key, new)?,
                    None => tree.delete(&key)?,
                }
            }
            Ok(is_expected)
        };
        let latest = |tree: &Tree| Ok(tree.compare_exchange(&key, expected.as_deref(), new.as_deref())?.is_some());
        self.write(py, latest, |_, tree| tree.compare_exchange(&key, expected.as_deref(), new.as_deref()), own)
    }

    fn merge(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        function: &str,
        operand: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (key, operand, engine) = (bytes(key)?, bytes(operand)?, self.shared.engine()?);
        let ViewedTree { origin, view } = self.viewed()?;
        let merge = || match (view, origin, engine) {
            (View::Latest, Origin::Shared(_, tree), _) => tree.merge(&key, function, &operand).map(drop),
            (View::Latest, Origin::Own(tree), Engine::Own(db)) => {
                tree.merge(&key, &db.merge_function(function)?, &operand).map(drop)
            }
            (View::Transaction(cell), ..) => cell.get().map_err(Error::abort)?.write(|transaction| {
                let tree = origin.in_transaction(transaction)?;
                transaction.merge(&tree, &key, &transaction.merge_function(engine, function)?, &operand)
            }),
            (View::Latest | View::Snapshot(..), ..) => Err(Error::abort(Refusal::Snapshot)),
        };
        py.detach(merge).map_err(raise)
    }

    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.write(py, |tree| tree.clear().map(drop), |_, tree| tree.delete_range(..).map(drop), |tree| tree.clear())
    }

    /// Returns the first row. Passes no keys that pops removed, unlike a scan.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Row<'py>>> {
        let row = read!(self, py, |tree| tree.first())?;
        Ok(args::py_row(py, row))
    }

    /// Returns the last row.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Row<'py>>> {
        let row = read!(self, py, |tree| tree.last())?;
        Ok(args::py_row(py, row))
    }

    fn pop_first<'py>(&self, py: Python<'py>) -> PyResult<Option<Row<'py>>> {
        let row = self.write(py, |tree| tree.pop_first(), |_, tree| tree.pop_first(), |tree| tree.pop_first())?;
        Ok(args::py_row(py, row))
    }

    fn pop_last<'py>(&self, py: Python<'py>) -> PyResult<Option<Row<'py>>> {
        let row = self.write(py, |tree| tree.pop_last(), |_, tree| tree.pop_last(), |tree| tree.pop_last())?;
        Ok(args::py_row(py, row))
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

    #[pyo3(signature = (prefix=None, start=None, stop=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        prefix: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.delete_keys(py, &args::range(prefix, start, stop)?)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Rows> {
        self.rows(py, (Limit::Unbounded, Limit::Unbounded), false, Kind::Keys)
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<Rows> {
        self.rows(py, (Limit::Unbounded, Limit::Unbounded), true, Kind::Keys)
    }

    /// Iterates over keys, values or items.
    #[pyo3(signature = (kind, prefix=None, start=None, stop=None, reverse=false))]
    fn scan(
        &self,
        py: Python<'_>,
        kind: Kind,
        prefix: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Rows> {
        self.rows(py, args::range(prefix, start, stop)?, reverse, kind)
    }

    fn len_estimate(&self, py: Python<'_>) -> PyResult<u64> {
        let tree = self.latest("len_estimate")?;
        py.detach(|| tree.len_estimate()).map_err(raise)
    }

    fn put_async(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<RawCommit> {
        let (tree, key, value) = (self.latest("put_async")?, bytes(key)?, bytes(value)?);
        Ok(RawCommit::of(py.detach(|| tree.put_async(&key, &value))))
    }

    fn delete_async(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<RawCommit> {
        let (tree, key) = (self.latest("delete_async")?, bytes(key)?);
        Ok(RawCommit::of(py.detach(|| tree.delete_async(&key))))
    }

    /// Opens a value for reading in parts.
    fn stream_reader(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<RawStreamReader>> {
        let (key, ViewedTree { origin, view }) = (bytes(key)?, self.viewed()?);
        let found = match view {
            View::Latest => py.detach(|| origin.latest()?.stream(&key)),
            View::Snapshot(snapshot, tree, _) => py.detach(|| snapshot.stream(tree, &key)),
            View::Transaction(cell) => {
                let cell = cell.get()?;
                py.detach(|| cell.with(|transaction| transaction.stream(&*origin.in_transaction(transaction)?, &key)))
            }
        };
        Ok(found.map_err(raise)?.map(|reader| RawStreamReader::of(&self.shared, reader)))
    }

    fn stream_writer(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<RawStreamWriter> {
        let (key, viewed) = (bytes(key)?, self.viewed()?);
        let writer = match viewed {
            ViewedTree { origin: Origin::Shared(_, tree), view: View::Latest } => {
                py.detach(|| tree.stream_writer(&key)).map(Writer::Shared)
            }
            _ => {
                let tree = self.latest("open_stream(key, \"wb\")")?;
                py.detach(|| tree.stream_writer(&key)).map(Writer::Own)
            }
        };
        Ok(RawStreamWriter::of(&self.shared, writer.map_err(raise)?))
    }

    /// Sets a value to the contents of a file object, or appends them.
    #[pyo3(signature = (key, file, append=false))]
    fn put_stream(&self, py: Python<'_>, key: &Bound<'_, PyAny>, file: Py<PyAny>, append: bool) -> PyResult<()> {
        let (key, ViewedTree { origin, view }) = (bytes(key)?, self.viewed()?);
        let reader = PythonReader::new(file);
        if append {
            self.own("put_stream(append=True)")?;
        }
        match (view, origin) {
            (View::Latest, Origin::Own(tree)) if append => py.detach(|| tree.append_stream(&key, reader)).map(drop),
            (View::Latest, Origin::Own(tree)) => py.detach(|| tree.put_stream(&key, reader)).map(drop),
            (View::Latest, Origin::Shared(_, tree)) => py.detach(|| tree.put_stream(&key, reader)).map(drop),
            (View::Snapshot(..), _) => Err(Error::abort(Refusal::Snapshot)),
            (View::Transaction(cell), _) => {
                let cell = cell.get()?;
                py.detach(|| cell.write(|transaction| transaction.put_stream(origin, &key, reader, append)))
            }
        }
        .map_err(raise)
    }
}

impl RawTree {
    fn options(&self, py: Python<'_>) -> PyResult<TreeOptions> {
        let viewed = self.viewed()?;
        py.detach(|| Ok(viewed.origin.latest()?.options())).map_err(raise)
    }

    /// Returns the tree for a call that a shared database lacks.
    fn own(&self, call: &str) -> PyResult<&Tree> {
        match &self.viewed()?.origin {
            Origin::Own(tree) => Ok(tree),
            Origin::Shared(..) => Err(errors::not_in_shared(call)),
        }
    }

    /// Refuses another database's tree: a shared tree is found by its name.
    fn check_is_of(&self, shared: &Arc<Shared>) -> PyResult<()> {
        let is_own = matches!(self.viewed()?.origin, Origin::Own(_));
        if is_own || Arc::ptr_eq(&self.shared, shared) {
            return Ok(());
        }
        Err(errors::invalid("the tree is another database's"))
    }

    fn value<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = bytes(key)?;
        let value = read!(self, py, |tree| tree.get(&key))?;
        Ok(py_bytes(py, value))
    }
}
