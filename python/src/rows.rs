//! Iterators. They read rows ahead, detached, and make Python objects of one row at a time.

use crate::{
    args::Range,
    db::Shared,
    errors::{self, raise},
    handle::Handle,
    transaction::TransactionCell,
};
use braiddb::{Cursor, Error, Key, MultiTree, Result, Tree, Value};
use parking_lot::Mutex;
use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyBytes, PyString},
};
use std::{
    collections::VecDeque,
    ops::Bound as Limit,
    sync::{Arc, atomic::Ordering},
};

/// Rows of the first batch. More would slow a program that takes one row.
const FIRST_ROWS: usize = 16;

/// Factor by which each later batch has more rows: a scan of 100 rows has two batches.
const GROWTH: usize = 8;
const ROWS_MAX: usize = 1024;

/// Bytes after which a batch ends.
const BATCH_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Keys,
    Values,
    Items,
}

impl<'a, 'py> FromPyObject<'a, 'py> for Kind {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Kind> {
        match &*object.cast::<PyString>()?.to_cow()? {
            "keys" => Ok(Kind::Keys),
            "values" => Ok(Kind::Values),
            "items" => Ok(Kind::Items),
            other => Err(PyValueError::new_err(format!("no rows of the kind {other:?}"))),
        }
    }
}

type Row = (Key, Value);
type Iter = Box<dyn DoubleEndedIterator<Item = Result<Row>> + Send>;

pub enum Source {
    Iter(Iter),
    /// Reads keys only, so it reads no blobs.
    Keys {
        cursor: Cursor,
        range: Range,
        has_begun: bool,
    },
    Transaction {
        cell: Arc<Handle<TransactionCell>>,
        tree: Tree,
        range: Range,
    },
    /// Pairs of a multi-tree, or the values of one key.
    Pairs {
        cell: Arc<Handle<TransactionCell>>,
        tree: MultiTree,
        range: Range,
        of: Option<Vec<u8>>,
        last: Option<Row>,
    },
}

impl Source {
    pub fn iter(iter: impl DoubleEndedIterator<Item = Result<Row>> + Send + 'static) -> Source {
        Source::Iter(Box::new(iter))
    }

    pub fn cursor(cursor: Cursor, range: Range) -> Source {
        Source::Keys { cursor, range, has_begun: false }
    }

    pub fn transaction(cell: Arc<Handle<TransactionCell>>, tree: Tree, range: Range) -> Source {
        Source::Transaction { cell, tree, range }
    }
}

struct State {
    source: Source,
    is_reverse: bool,
    rows: VecDeque<Row>,
    /// Follows the rows.
    failed: Option<Error>,
    has_ended: bool,
    /// The iterator reported its end, and reports it from then on.
    is_over: bool,
    batch: usize,
    /// Writes of the transaction when the rows were read.
    writes: u64,
}

/// Collects a batch of rows.
struct Batch<'a> {
    rows: &'a mut VecDeque<Row>,
    left: usize,
    bytes: usize,
}

impl Batch<'_> {
    fn is_full(&self) -> bool {
        self.left == 0 || self.bytes >= BATCH_BYTES
    }

    fn push(&mut self, row: Row) {
        self.left = self.left.saturating_sub(1);
        self.bytes += row.0.len() + row.1.len();
        self.rows.push_back(row);
    }

    /// Returns true if the iterator has ended.
    fn fill(&mut self, iter: impl Iterator<Item = Result<Row>>) -> Result<bool> {
        for row in iter {
            self.push(row?);
            if self.is_full() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn fill_from(&mut self, mut iter: impl DoubleEndedIterator<Item = Result<Row>>, is_reverse: bool) -> Result<bool> {
        if is_reverse { self.fill(iter.by_ref().rev()) } else { self.fill(iter.by_ref()) }
    }
}

impl State {
    fn fill(&mut self) -> Result<bool> {
        let batch = &mut Batch { rows: &mut self.rows, left: self.batch, bytes: 0 };
        let is_reverse = self.is_reverse;
        self.batch = (self.batch * GROWTH).min(ROWS_MAX);
        match &mut self.source {
            Source::Iter(iter) => batch.fill_from(iter, is_reverse),
            Source::Keys { cursor, range, has_begun } => fill_keys(batch, cursor, range, has_begun, is_reverse),
            Source::Transaction { cell, tree, range } => {
                let cell = cell.get().map_err(Error::abort)?;
                let has_ended = cell.with(|transaction| {
                    self.writes = cell.writes.load(Ordering::Relaxed);
                    batch.fill_from(transaction.range(tree, &*range), is_reverse)
                })?;
                Ok(has_ended)
            }
            Source::Pairs { cell, tree, range, of, last } => {
                let cell = cell.get().map_err(Error::abort)?;
                cell.with(|transaction| {
                    self.writes = cell.writes.load(Ordering::Relaxed);
                    let tree = transaction.multi_tree(tree);
                    let keyed = |key: Vec<u8>| move |value: Result<Value>| Ok((Key::from(key.clone()), value?));
                    if let Some(key) = of {
                        let values = tree.values_range(&*key, values_after(last, is_reverse));
                        return batch.fill_from(values.map(keyed(key.clone())), is_reverse);
                    }
                    if let Some((key, _)) = &*last {
                        let values = tree.values_range(key, values_after(last, is_reverse));
                        if !batch.fill_from(values.map(keyed(key.to_vec())), is_reverse)? {
                            return Ok(false);
                        }
                        pass(range, key, is_reverse);
                    }
                    batch.fill_from(tree.range(&*range), is_reverse)
                })
            }
        }
    }

    /// Continues after a returned row, so that later writes of the transaction are read.
    fn note_returned(&mut self, row: &Row) {
        match &mut self.source {
            Source::Transaction { range, .. } => pass(range, &row.0, self.is_reverse),
            Source::Pairs { last, .. } => *last = Some(row.clone()),
            _ => {}
        }
    }

    /// Drops the rows ahead, and the end, if the transaction has written since they were read.
    fn drop_outdated(&mut self) -> PyResult<()> {
        if let Source::Transaction { cell, .. } | Source::Pairs { cell, .. } = &self.source
            && cell.get()?.writes.load(Ordering::Relaxed) != self.writes
        {
            self.rows.clear();
            self.has_ended = false;
        }
        Ok(())
    }

    /// Reads until there is a row, an error or the end.
    fn read(&mut self) {
        while self.rows.is_empty() && self.failed.is_none() && !self.has_ended {
            match self.fill() {
                Ok(has_ended) => self.has_ended = has_ended,
                Err(error) => self.failed = Some(error),
            }
        }
    }
}

fn pass(range: &mut Range, key: &[u8], is_reverse: bool) {
    let limit = if is_reverse { &mut range.1 } else { &mut range.0 };
    *limit = Limit::Excluded(key.to_vec());
}

fn values_after(last: &Option<Row>, is_reverse: bool) -> Range {
    let mut range = (Limit::Unbounded, Limit::Unbounded);
    if let Some((_, value)) = last {
        pass(&mut range, value, is_reverse);
    }
    range
}

fn fill_keys(
    batch: &mut Batch<'_>,
    cursor: &mut Cursor,
    range: &Range,
    has_begun: &mut bool,
    is_reverse: bool,
) -> Result<bool> {
    loop {
        let is_there = match (std::mem::replace(has_begun, true), is_reverse, &range.0, &range.1) {
            (true, false, ..) => cursor.next()?,
            (true, true, ..) => cursor.prev()?,
            (false, false, Limit::Included(start) | Limit::Excluded(start), _) => cursor.seek(start)?,
            (false, false, ..) => cursor.seek_first()?,
            (false, true, _, Limit::Included(stop) | Limit::Excluded(stop)) => cursor.seek_before(stop)?,
            (false, true, ..) => cursor.seek_last()?,
        };
        if !is_there {
            return Ok(true);
        }
        let key = cursor.key();
        let is_within = match (is_reverse, &range.0, &range.1) {
            (false, _, Limit::Excluded(stop)) => key < stop.as_slice(),
            (true, Limit::Included(start), _) => key >= start.as_slice(),
            _ => true,
        };
        if !is_within {
            return Ok(true);
        }
        batch.push((Key::from(key), Value::from(&b""[..])));
        if batch.is_full() {
            return Ok(false);
        }
    }
}

/// An iterator over keys, values or items.
#[pyclass(frozen, module = "braiddb._braiddb")]
pub struct Rows {
    shared: Arc<Shared>,
    state: Handle<Mutex<State>>,
    kind: Kind,
}

impl Rows {
    pub fn new(shared: &Arc<Shared>, source: Source, is_reverse: bool, kind: Kind) -> Rows {
        let state = State {
            source,
            is_reverse,
            rows: VecDeque::new(),
            failed: None,
            has_ended: false,
            is_over: false,
            batch: FIRST_ROWS,
            writes: 0,
        };
        Rows { shared: Arc::clone(shared), state: Handle::new(Mutex::new(state)), kind }
    }
}

#[pymethods]
impl Rows {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let state = self.state.get()?;
        let mut state = loop {
            match state.try_lock() {
                Some(locked) => break locked,
                None => py.detach(|| drop(state.lock())),
            }
        };
        if self.shared.is_closed() {
            return Err(errors::closed());
        }
        let state = &mut *state;
        if state.is_over {
            return Ok(None);
        }
        state.drop_outdated()?;
        if state.rows.is_empty() {
            py.detach(|| state.read());
        }
        let Some(row) = state.rows.pop_front() else {
            state.is_over = state.failed.is_none();
            return state.failed.take().map_or(Ok(None), |error| Err(raise(error)));
        };
        state.note_returned(&row);
        let (key, value) = &row;
        Ok(Some(match self.kind {
            Kind::Keys => PyBytes::new(py, key).into_any(),
            Kind::Values => PyBytes::new(py, value).into_any(),
            Kind::Items => (PyBytes::new(py, key), PyBytes::new(py, value)).into_pyobject(py)?.into_any(),
        }))
    }
}
