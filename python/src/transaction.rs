//! Transactions.

use crate::{
    args,
    commit::RawCommit,
    db::{RawDb, Shared},
    errors::{Refusal, raise},
    handle::Handle,
};
use braiddb::{Error, Result, Savepoint, Transaction};
use parking_lot::{ReentrantMutex, ReentrantMutexGuard};
use pyo3::prelude::*;
use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

type Slot = RefCell<Option<Transaction>>;

/// A transaction until its end. Threads take turns; they lock it detached: see P1.
///
/// A call may run Python code: the file object of `put_stream`, or a merge function. If that code
/// uses the transaction, the lock refuses the thread instead of waiting for itself.
pub struct TransactionCell {
    transaction: ReentrantMutex<Slot>,
    /// Number of writes. Iterators drop their rows ahead when it changes.
    pub writes: AtomicU64,
}

impl TransactionCell {
    fn lock(&self) -> Result<ReentrantMutexGuard<'_, Slot>> {
        if self.transaction.is_owned_by_current_thread() {
            return Err(Error::abort(Refusal::InUse));
        }
        Ok(self.transaction.lock())
    }

    pub fn with<R>(&self, work: impl FnOnce(&Transaction) -> Result<R>) -> Result<R> {
        match &*self.lock()?.borrow() {
            Some(transaction) => work(transaction),
            None => Err(Error::abort(Refusal::Ended)),
        }
    }

    pub fn write<R>(&self, work: impl FnOnce(&Transaction) -> Result<R>) -> Result<R> {
        self.with(|transaction| {
            let result = work(transaction);
            self.writes.fetch_add(1, Ordering::Relaxed);
            result
        })
    }

    fn take(&self) -> Result<Transaction> {
        self.lock()?.take().ok_or_else(|| Error::abort(Refusal::Ended))
    }
}

/// A transaction.
#[pyclass(frozen, subclass, module = "braiddb._braiddb")]
pub struct RawTransaction {
    shared: Arc<Shared>,
    cell: Arc<Handle<TransactionCell>>,
}

impl RawTransaction {
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub fn cell(&self) -> &Arc<Handle<TransactionCell>> {
        &self.cell
    }
}

/// A state of a transaction to return to.
#[pyclass(frozen, module = "braiddb._braiddb")]
pub struct RawSavepoint {
    savepoint: Savepoint,
}

#[pymethods]
impl RawTransaction {
    #[new]
    #[pyo3(signature = (db, exclusive=false))]
    fn new(py: Python<'_>, db: &RawDb, exclusive: bool) -> PyResult<RawTransaction> {
        let shared = Arc::clone(&db.shared);
        let begin = shared.db()?;
        let transaction = py.detach(|| if exclusive { begin.begin_exclusive() } else { begin.begin() });
        let transaction = ReentrantMutex::new(RefCell::new(Some(transaction.map_err(raise)?)));
        let cell = Arc::new(Handle::new(TransactionCell { transaction, writes: AtomicU64::new(0) }));
        Ok(RawTransaction { shared, cell })
    }

    #[getter]
    fn sequence(&self, py: Python<'_>) -> PyResult<u64> {
        let cell = self.cell.get()?;
        py.detach(|| cell.with(|transaction| Ok(transaction.sequence()))).map_err(raise)
    }

    #[getter]
    fn is_open(&self, py: Python<'_>) -> PyResult<bool> {
        let cell = self.cell.get()?;
        Ok(py.detach(|| cell.with(|_| Ok(())).is_ok()))
    }

    /// Returns the number of keys and ranges written.
    fn changes(&self, py: Python<'_>) -> PyResult<usize> {
        let cell = self.cell.get()?;
        py.detach(|| cell.with(|transaction| Ok(transaction.len()))).map_err(raise)
    }

    #[pyo3(signature = (durability=None))]
    fn commit(&self, py: Python<'_>, durability: Option<&str>) -> PyResult<u64> {
        self.shared.db()?;
        let (cell, durability) = (self.cell.get()?, args::durability(durability)?);
        let commit = || {
            let transaction = cell.take()?;
            match durability {
                Some(durability) => transaction.commit_with(durability),
                None => transaction.commit(),
            }
        };
        py.detach(commit).map_err(raise)
    }

    fn commit_async(&self, py: Python<'_>) -> PyResult<RawCommit> {
        self.shared.db()?;
        let cell = self.cell.get()?;
        let commit = py.detach(|| Ok(cell.take()?.commit_async())).map_err(raise)?;
        Ok(RawCommit::of(commit))
    }

    /// Discards the transaction; does nothing after its end.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        let cell = self.cell.get()?;
        let rollback = || {
            let taken = cell.lock()?.take();
            drop(taken);
            Ok(())
        };
        py.detach(rollback).map_err(raise)
    }

    fn savepoint(&self, py: Python<'_>) -> PyResult<RawSavepoint> {
        let cell = self.cell.get()?;
        let savepoint = py.detach(|| cell.with(|transaction| Ok(transaction.savepoint()))).map_err(raise)?;
        Ok(RawSavepoint { savepoint })
    }

    fn rollback_to(&self, py: Python<'_>, savepoint: &RawSavepoint) -> PyResult<()> {
        let (cell, savepoint) = (self.cell.get()?, savepoint.savepoint);
        py.detach(|| cell.write(|transaction| transaction.rollback_to(savepoint))).map_err(raise)
    }
}
