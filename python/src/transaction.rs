//! Transactions.

use crate::{
    args,
    commit::RawCommit,
    db::{Engine, RawDb, Shared},
    errors::{self, Refusal, raise},
    handle::Handle,
    stream::PythonReader,
    view::Origin,
};
use braiddb::{
    Durability, Error, Result, Savepoint, Transaction,
    merge::MergeFunctionHandle,
    shared::{SharedDb, SharedTransaction},
};
use parking_lot::{ReentrantMutex, ReentrantMutexGuard};
use pyo3::prelude::*;
use std::{
    cell::RefCell,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// A transaction of either kind of database.
pub enum Begun {
    Own(Transaction),
    Shared(SharedTransaction),
}

impl Deref for Begun {
    type Target = Transaction;

    fn deref(&self) -> &Transaction {
        match self {
            Begun::Own(transaction) => transaction,
            Begun::Shared(transaction) => transaction,
        }
    }
}

impl Begun {
    fn commit(self, durability: Option<Durability>) -> Result<u64> {
        match (self, durability) {
            (Begun::Own(transaction), Some(durability)) => transaction.commit_with(durability),
            (Begun::Own(transaction), None) => transaction.commit(),
            (Begun::Shared(transaction), Some(durability)) => transaction.commit_with(durability),
            (Begun::Shared(transaction), None) => transaction.commit(),
        }
    }

    /// Sets a value to the contents of a file object, or appends them: not in a shared database.
    pub fn put_stream(&self, origin: &Origin, key: &[u8], reader: PythonReader, append: bool) -> Result<()> {
        match (self, origin) {
            (Begun::Own(transaction), Origin::Own(tree)) if append => transaction.append_stream(tree, key, reader),
            (Begun::Own(transaction), Origin::Own(tree)) => transaction.put_stream(tree, key, reader),
            (Begun::Shared(transaction), Origin::Shared(_, tree)) => {
                drop(origin.in_transaction(transaction)?);
                transaction.put_stream(tree, key, reader)
            }
            _ => Err(Error::InvalidArgument("another database's tree".to_owned())),
        }
    }

    pub fn merge_function(&self, engine: &Engine, name: &str) -> Result<MergeFunctionHandle> {
        match (self, engine) {
            (Begun::Shared(transaction), _) => transaction.merge_function(name),
            (Begun::Own(_), Engine::Own(db)) => db.merge_function(name),
            (Begun::Own(_), Engine::Shared(_)) => Err(Error::InvalidArgument("another database's tree".to_owned())),
        }
    }
}

type Slot = RefCell<Option<Begun>>;

/// A transaction until its end. Threads take turns; they lock it detached: see P1.
///
/// A call may run Python code: the file object of `put_stream`, or a merge function. If that code
/// uses the transaction, the lock refuses the thread instead of waiting for itself.
pub struct TransactionCell {
    transaction: ReentrantMutex<Slot>,
    /// Set by its first read or write. An exclusive one is never begun again.
    is_used: AtomicBool,
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

    pub fn with<R>(&self, work: impl FnOnce(&Begun) -> Result<R>) -> Result<R> {
        self.is_used.store(true, Ordering::Relaxed);
        self.peek(work)
    }

    /// Calls `work`, which does not read the database.
    fn peek<R>(&self, work: impl FnOnce(&Begun) -> Result<R>) -> Result<R> {
        match &*self.lock()?.borrow() {
            Some(transaction) => work(transaction),
            None => Err(Error::abort(Refusal::Ended)),
        }
    }

    /// Begins a transaction of a shared database again if it has read nothing, and does not see the
    /// tree, which was created later.
    pub fn await_tree(&self, db: &SharedDb, find: impl Fn(&Transaction) -> Result<()>) -> Result<()> {
        let slot = self.lock()?;
        let lacks_tree =
            slot.borrow().as_ref().is_some_and(|begun| find(begun).is_err_and(|error| error.is_not_found()));
        if lacks_tree && !self.is_used.load(Ordering::Relaxed) {
            slot.replace(Some(Begun::Shared(db.begin()?)));
        }
        Ok(())
    }

    pub fn write<R>(&self, work: impl FnOnce(&Begun) -> Result<R>) -> Result<R> {
        self.with(|transaction| {
            let result = work(transaction);
            self.writes.fetch_add(1, Ordering::Relaxed);
            result
        })
    }

    fn take(&self) -> Result<Begun> {
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
    #[pyo3(signature = (db, exclusive=false, timeout=None))]
    fn new(
        py: Python<'_>,
        db: &RawDb,
        exclusive: bool,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<RawTransaction> {
        let shared = Arc::clone(&db.shared);
        let (engine, timeout) = (shared.engine()?, args::optional_duration(timeout)?);
        let begin = || match engine {
            Engine::Own(db) if exclusive => db.begin_exclusive().map(Begun::Own),
            Engine::Own(db) => db.begin().map(Begun::Own),
            Engine::Shared(db) if exclusive => match timeout {
                Some(timeout) => db.begin_exclusive_within(timeout).map(Begun::Shared),
                None => db.begin_exclusive().map(Begun::Shared),
            },
            Engine::Shared(db) => db.begin().map(Begun::Shared),
        };
        let transaction = ReentrantMutex::new(RefCell::new(Some(py.detach(begin).map_err(raise)?)));
        let (is_used, writes) = (AtomicBool::new(exclusive), AtomicU64::new(0));
        let cell = Arc::new(Handle::new(TransactionCell { transaction, is_used, writes }));
        Ok(RawTransaction { shared, cell })
    }

    #[getter]
    fn sequence(&self, py: Python<'_>) -> PyResult<u64> {
        let cell = self.cell.get()?;
        py.detach(|| cell.peek(|transaction| Ok(transaction.sequence()))).map_err(raise)
    }

    #[getter]
    fn is_open(&self, py: Python<'_>) -> PyResult<bool> {
        let cell = self.cell.get()?;
        Ok(py.detach(|| cell.peek(|_| Ok(())).is_ok()))
    }

    /// Returns the number of keys and ranges written.
    fn changes(&self, py: Python<'_>) -> PyResult<usize> {
        let cell = self.cell.get()?;
        py.detach(|| cell.peek(|transaction| Ok(transaction.len()))).map_err(raise)
    }

    #[pyo3(signature = (durability=None))]
    fn commit(&self, py: Python<'_>, durability: Option<&str>) -> PyResult<u64> {
        self.shared.check()?;
        let (cell, durability) = (self.cell.get()?, args::durability(durability)?);
        py.detach(|| cell.take()?.commit(durability)).map_err(raise)
    }

    fn commit_async(&self, py: Python<'_>) -> PyResult<RawCommit> {
        self.shared.db("commit_async")?;
        let cell = self.cell.get()?;
        let commit = py.detach(|| match cell.take()? {
            Begun::Own(transaction) => Ok(Some(transaction.commit_async())),
            Begun::Shared(_) => Ok(None),
        });
        commit.map_err(raise)?.map(RawCommit::of).ok_or_else(|| errors::not_in_shared("commit_async"))
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
