//! Trees of one value per key: latest, in a snapshot, in a transaction.

use crate::{
    args::{self, Range, bytes, py_bytes},
    commit::RawCommit,
    db::{RawDb, RawSnapshot, Shared, tree_options},
    errors::{self, Refusal, raise},
    handle::Handle,
    rows::{Kind, Rows, Source},
    stream::{PythonReader, RawStreamReader, RawStreamWriter},
    transaction::{RawTransaction, TransactionCell},
};
use braiddb::{Batch, Error, Result, Tree, TreeOptions, Update, views::SnapshotTree, views::TransactionTree};
use pyo3::{
    exceptions::{PyKeyError, PyTypeError, PyValueError},
    prelude::*,
    types::{PyBytes, PySlice},
};
use std::{ops::Bound as Limit, sync::Arc, time::Duration};

pub enum View {
    Latest,
    Snapshot(braiddb::Snapshot, SnapshotTree),
    Transaction(Arc<Handle<TransactionCell>>),
}

pub struct ViewedTree {
    pub tree: Tree,
    pub view: View,
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
            View::Snapshot(_, $tree) => $py.detach(|| $body),
            View::Transaction(cell) => {
                let cell = cell.get()?;
                $py.detach(|| {
                    cell.with(|transaction| {
                        let $tree = &transaction.tree(&viewed.tree);
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
    fn of(shared: &Arc<Shared>, tree: Tree, view: View) -> RawTree {
        RawTree { shared: Arc::clone(shared), viewed: Handle::new(ViewedTree { tree, view }) }
    }

    pub fn viewed(&self) -> PyResult<&ViewedTree> {
        self.shared.db()?;
        self.viewed.get()
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Runs a write of this view, detached.
    fn write<R: Send>(
        &self,
        py: Python<'_>,
        latest: impl FnOnce(&Tree) -> Result<R> + Send,
        own: impl FnOnce(&TransactionTree<'_, '_>) -> Result<R> + Send,
    ) -> PyResult<R> {
        let ViewedTree { tree, view } = self.viewed()?;
        match view {
            View::Latest => py.detach(|| latest(tree)),
            View::Snapshot(..) => Err(Error::abort(Refusal::Snapshot)),
            View::Transaction(cell) => {
                let cell = cell.get()?;
                py.detach(|| cell.write(|transaction| own(&transaction.tree(tree))))
            }
        }
        .map_err(raise)
    }

    fn rows(&self, py: Python<'_>, range: Range, is_reverse: bool, kind: Kind) -> PyResult<Rows> {
        let ViewedTree { tree, view } = self.viewed()?;
        let source = py.detach(|| match view {
            View::Latest if kind == Kind::Keys => Source::cursor(tree.cursor(), range),
            View::Latest => Source::iter(tree.range(range)),
            View::Snapshot(snapshot, _) if kind == Kind::Keys => Source::cursor(snapshot.cursor(tree), range),
            View::Snapshot(_, tree) => Source::iter(tree.range(range)),
            View::Transaction(cell) => Source::transaction(Arc::clone(cell), tree.clone(), range),
        });
        Ok(Rows::new(&self.shared, source, is_reverse, kind))
    }

    fn latest(&self, call: &str) -> PyResult<&Tree> {
        let ViewedTree { tree, view } = self.viewed()?;
        match view {
            View::Latest => Ok(tree),
            _ => Err(PyTypeError::new_err(format!("{call} is not available in a snapshot or a transaction"))),
        }
    }
}

fn open(
    py: Python<'_>,
    db: &RawDb,
    name: &str,
    create: bool,
    options: TreeOptions,
    declare: bool,
) -> PyResult<RawTree> {
    let shared = &db.shared;
    let found = shared.db()?;
    let tree = py.detach(|| -> Result<Tree> {
        let has_options = options != TreeOptions::default();
        let tree = match found.open_tree(name) {
            Err(error) if error.is_not_found() && create => found.tree_with(name, options)?,
            opened => opened?,
        };
        let stored = tree.options();
        if let Some(codec) = options.codec
            && stored.codec.is_none()
            && (declare || tree.is_empty()?)
        {
            tree.set_options(TreeOptions { codec: Some(codec), ..stored })?;
        }
        if has_options { found.tree_with(name, with_stored(options, tree.options())) } else { Ok(tree) }
    });
    Ok(RawTree::of(shared, tree.map_err(raise)?, View::Latest))
}

/// Options without a value keep the stored ones.
fn with_stored(options: TreeOptions, stored: TreeOptions) -> TreeOptions {
    TreeOptions {
        compression: options.compression.or(stored.compression),
        blob_threshold: options.blob_threshold.or(stored.blob_threshold),
        ttl: options.ttl.or(stored.ttl),
        codec: options.codec,
    }
}

/// Adds a put to a batch.
fn add_put(batch: &mut Batch, tree: &Tree, key: &[u8], value: &[u8], ttl: Option<Duration>) {
    match ttl {
        Some(ttl) => batch.put_with_ttl(tree, key, value, ttl),
        None => batch.put(tree, key, value),
    };
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
            return open(py, db.get(), tree.extract()?, create, options, declare);
        }
        let of = tree.cast::<RawTree>()?.get();
        let of = of.viewed()?;
        if let Ok(snapshot) = source.cast::<RawSnapshot>() {
            let RawSnapshot { shared, snapshot } = snapshot.get();
            let snapshot = snapshot.get()?;
            let (tree, snapshot, viewed) = py.detach(|| (of.tree.clone(), snapshot.clone(), snapshot.tree(&of.tree)));
            return Ok(RawTree::of(shared, tree, View::Snapshot(snapshot, viewed)));
        }
        let transaction = source.cast::<RawTransaction>()?.get();
        let tree = py.detach(|| of.tree.clone());
        Ok(RawTree::of(transaction.shared(), tree, View::Transaction(Arc::clone(transaction.cell()))))
    }

    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        let viewed = self.viewed()?;
        Ok(py.detach(|| viewed.tree.name()))
    }

    #[getter]
    fn codec(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let viewed = self.viewed()?;
        Ok(py.detach(|| viewed.tree.options()).codec.map(|codec| codec.to_string()))
    }

    #[getter]
    fn ttl(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        let viewed = self.viewed()?;
        Ok(py.detach(|| viewed.tree.options()).ttl.map(|ttl| ttl.as_secs_f64()))
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
            let rows = self.rows(py, range_of(slice)?, false, Kind::Items)?;
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
            View::Latest => py.detach(|| viewed.tree.get_with_expiry(&key)),
            View::Snapshot(snapshot, _) => py.detach(|| snapshot.get_with_expiry(&viewed.tree, &key)),
            View::Transaction(cell) => {
                let cell = cell.get()?;
                py.detach(|| cell.with(|transaction| transaction.get_with_expiry(&viewed.tree, &key)))
            }
        };
        let found = found.map_err(raise)?;
        Ok(found.map(|(value, expires)| (PyBytes::new(py, &value), expires.map(args::seconds))))
    }

    fn __setitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key, value) = (bytes(key)?, bytes(value)?);
        self.write(py, |tree| tree.put(&key, &value).map(drop), |tree| tree.put(&key, &value))
    }

    /// Deletes a key, or all keys of a slice.
    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(slice) = key.cast::<PySlice>() {
            let range = range_of(slice)?;
            return self.write(py, |tree| tree.delete_range(&range).map(drop), |tree| tree.delete_range(&range));
        }
        let bytes = bytes(key)?;
        let delete = |value: Option<&[u8]>| if value.is_some() { Update::Delete } else { Update::Keep };
        let was_there = self.write(
            py,
            |tree| Ok(tree.fetch_update(&bytes, delete)?.is_some()),
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
        let latest = |tree: &Tree| {
            if keep_ttl {
                return tree.put_keep_ttl(&key, &value).map(drop);
            }
            let mut batch = tree_db(self)?.batch();
            match expires {
                Some(expires) => _ = batch.put_until(tree, &key, &value, expires),
                None => add_put(&mut batch, tree, &key, &value, ttl),
            }
            commit(batch, durability)
        };
        let own = |tree: &TransactionTree<'_, '_>| match (ttl, expires) {
            (Some(ttl), _) => tree.put_with_ttl(&key, &value, ttl),
            (None, Some(expires)) => tree.put_until(&key, &value, expires),
            (None, None) if keep_ttl => tree.put_keep_ttl(&key, &value),
            (None, None) => tree.put(&key, &value),
        };
        self.write(py, latest, own)
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
        let latest = |tree: &Tree| {
            let mut batch = tree_db(self)?.batch();
            rows.iter().for_each(|(key, value)| add_put(&mut batch, tree, key, value, ttl));
            commit(batch, durability)
        };
        let own = |tree: &TransactionTree<'_, '_>| {
            rows.iter().try_for_each(|(key, value)| match ttl {
                Some(ttl) => tree.put_with_ttl(key, value, ttl),
                None => tree.put(key, value),
            })
        };
        self.write(py, latest, own)
    }

    /// Deletes keys that may be absent, in one commit.
    #[pyo3(signature = (keys, durability=None))]
    fn delete_many(&self, py: Python<'_>, keys: &Bound<'_, PyAny>, durability: Option<&str>) -> PyResult<()> {
        let durability = args::durability(durability)?;
        let keys: Vec<Bound<'_, PyAny>> = keys.try_iter()?.collect::<PyResult<_>>()?;
        let keys = keys.iter().map(bytes).collect::<PyResult<Vec<_>>>()?;
        let latest = |tree: &Tree| {
            let mut batch = tree_db(self)?.batch();
            keys.iter().for_each(|key| _ = batch.delete(tree, key));
            commit(batch, durability)
        };
        self.write(py, latest, |tree| keys.iter().try_for_each(|key| tree.delete(key)))
    }

    /// Removes a key and returns its value.
    fn remove<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = bytes(key)?;
        let value = self.write(py, |tree| tree.remove(&key), |tree| tree.remove(&key))?;
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
        self.write(py, |tree| Ok(tree.put_if_absent(&key, &value)?.is_some()), own)
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
        self.write(py, latest, own)
    }

    fn merge(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        function: &str,
        operand: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (key, operand, db) = (bytes(key)?, bytes(operand)?, self.shared.db()?);
        let function = py.detach(|| db.merge_function(function)).map_err(raise)?;
        let latest = |tree: &Tree| tree.merge(&key, &function, &operand).map(drop);
        self.write(py, latest, |tree| tree.merge(&key, &function, &operand))
    }

    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.write(py, |tree| tree.clear().map(drop), |tree| tree.clear())
    }

    fn pop_first<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        let row = self.write(py, |tree| tree.pop_first(), |tree| tree.pop_first())?;
        Ok(row.map(|(key, value)| (PyBytes::new(py, &key), PyBytes::new(py, &value))))
    }

    fn pop_last<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        let row = self.write(py, |tree| tree.pop_last(), |tree| tree.pop_last())?;
        Ok(row.map(|(key, value)| (PyBytes::new(py, &key), PyBytes::new(py, &value))))
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
        let range = args::range(prefix, start, stop)?;
        self.write(py, |tree| tree.delete_range(&range).map(drop), |tree| tree.delete_range(&range))
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
        let (key, viewed) = (bytes(key)?, self.viewed()?);
        let found = match &viewed.view {
            View::Latest => py.detach(|| viewed.tree.stream(&key)),
            View::Snapshot(snapshot, _) => py.detach(|| snapshot.stream(&viewed.tree, &key)),
            View::Transaction(cell) => {
                let cell = cell.get()?;
                py.detach(|| cell.with(|transaction| transaction.stream(&viewed.tree, &key)))
            }
        };
        Ok(found.map_err(raise)?.map(|reader| RawStreamReader::of(&self.shared, reader)))
    }

    fn stream_writer(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<RawStreamWriter> {
        let (key, tree) = (bytes(key)?, self.latest("open_stream(key, \"wb\")")?);
        let writer = py.detach(|| tree.stream_writer(&key)).map_err(raise)?;
        Ok(RawStreamWriter::of(&self.shared, writer))
    }

    /// Sets a value to the contents of a file object, or appends them.
    #[pyo3(signature = (key, file, append=false))]
    fn put_stream(&self, py: Python<'_>, key: &Bound<'_, PyAny>, file: Py<PyAny>, append: bool) -> PyResult<()> {
        let key = bytes(key)?;
        let ViewedTree { tree, view } = self.viewed()?;
        let reader = PythonReader::new(file);
        match view {
            View::Latest if append => py.detach(|| tree.append_stream(&key, reader)).map(drop),
            View::Latest => py.detach(|| tree.put_stream(&key, reader)).map(drop),
            View::Snapshot(..) => Err(Error::abort(Refusal::Snapshot)),
            View::Transaction(cell) => {
                let cell = cell.get()?;
                py.detach(|| {
                    cell.write(|transaction| match append {
                        true => transaction.append_stream(tree, &key, reader),
                        false => transaction.put_stream(tree, &key, reader),
                    })
                })
            }
        }
        .map_err(raise)
    }
}

impl RawTree {
    fn value<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = bytes(key)?;
        let value = read!(self, py, |tree| tree.get(&key))?;
        Ok(py_bytes(py, value))
    }
}

fn tree_db(tree: &RawTree) -> Result<&braiddb::Db> {
    tree.shared.db().map_err(|_| Error::Closed)
}

fn commit(batch: Batch, durability: Option<braiddb::Durability>) -> Result<()> {
    match durability {
        Some(durability) => batch.commit_with(durability),
        None => batch.commit(),
    }
    .map(drop)
}

pub fn range_of(slice: &Bound<'_, PySlice>) -> PyResult<Range> {
    let part = |name| -> PyResult<Option<Bound<'_, PyAny>>> {
        let value = slice.getattr(name)?;
        Ok((!value.is_none()).then_some(value))
    };
    if part("step")?.is_some() {
        return Err(PyValueError::new_err("a slice of keys has no step: use items(start=, stop=, reverse=True)"));
    }
    args::range(None, part("start")?.as_ref(), part("stop")?.as_ref())
}
