//! States in which trees are read and written: the latest, a snapshot, a transaction.

use crate::{
    boundary::{Outcome, free, give_handle, handle, native},
    database,
    errors::Failure,
    options,
};
use braiddb::{Savepoint, Snapshot, Transaction};
use jni::{
    EnvUnowned,
    objects::JClass,
    sys::{jint, jlong},
};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;

/// A snapshot until its close.
pub struct SnapshotCell {
    open: RwLock<Option<Snapshot>>,
}

impl SnapshotCell {
    pub fn with<R>(&self, work: impl FnOnce(&Snapshot) -> Outcome<R>) -> Outcome<R> {
        work(self.open.read().as_ref().ok_or_else(Failure::closed)?)
    }
}

/// A transaction until its end.
pub struct TransactionCell {
    open: Mutex<Option<Box<Transaction>>>,
    savepoints: Mutex<Vec<Savepoint>>,
}

impl TransactionCell {
    pub fn with<R>(&self, work: impl FnOnce(&Transaction) -> Outcome<R>) -> Outcome<R> {
        work(self.open.lock().as_ref().ok_or_else(Failure::ended)?)
    }

    fn take(&self) -> Outcome<Box<Transaction>> {
        self.open.lock().take().ok_or_else(Failure::ended)
    }
}

/// A state besides the latest.
#[derive(Clone)]
pub enum Place {
    Snapshot(Arc<SnapshotCell>),
    Transaction(Arc<TransactionCell>),
}

/// Returns the place of a handle; None for 0, the latest state.
pub fn of<'a>(place: jlong) -> Outcome<Option<&'a Place>> {
    if place == 0 { Ok(None) } else { handle(place).map(Some) }
}

fn transaction<'a>(place: jlong) -> Outcome<&'a TransactionCell> {
    match of(place)? {
        Some(Place::Transaction(cell)) => Ok(cell),
        _ => Err(Failure::internal("the handle is not a transaction's".to_owned())),
    }
}

/// Calls a method of the tree, or that of a snapshot or a transaction with the tree first.
macro_rules! read_at {
    ($place:expr, $tree:ident.$method:ident($($argument:expr),*)) => {
        match $crate::place::of($place)? {
            None => Ok($tree.$method($($argument),*)?),
            Some($crate::place::Place::Snapshot(cell)) => cell.with(|open| Ok(open.$method($tree, $($argument),*)?)),
            Some($crate::place::Place::Transaction(cell)) => {
                cell.with(|open| Ok(open.$method($tree, $($argument),*)?))
            }
        }
    };
    ($place:expr, multi $tree:ident.$method:ident($($argument:expr),*)) => {
        match $crate::place::of($place)? {
            None => Ok($tree.$method($($argument),*)?),
            Some($crate::place::Place::Snapshot(cell)) => {
                cell.with(|open| Ok(open.multi_tree($tree).$method($($argument),*)?))
            }
            Some($crate::place::Place::Transaction(cell)) => {
                cell.with(|open| Ok(open.multi_tree($tree).$method($($argument),*)?))
            }
        }
    };
}
pub(crate) use read_at;

/// Runs a write: on the tree, or in a transaction.
macro_rules! write_at {
    ($place:expr, $latest:expr, |$open:ident| $in_transaction:expr) => {
        match $crate::place::of($place)? {
            None => $latest,
            Some($crate::place::Place::Snapshot(_)) => Err($crate::errors::Failure::of_snapshot()),
            Some($crate::place::Place::Transaction(cell)) => cell.with(|$open| $in_transaction),
        }
    };
}
pub(crate) use write_at;

native! {
    /// Takes a snapshot of the latest commit. The number of that commit follows its handle.
    fn snapshot_open(database: jlong) |buffer| {
        let snapshot = database::open(database)?.snapshot();
        let sequence = snapshot.sequence();
        let cell = SnapshotCell { open: RwLock::new(Some(snapshot)) };
        give_handle(buffer, Place::Snapshot(Arc::new(cell)))?;
        Ok(sequence as jlong)
    }
}

native! {
    /// Releases a snapshot. Later reads fail.
    fn snapshot_close(place: jlong) |_buffer| {
        if let Some(Place::Snapshot(cell)) = of(place)? {
            let closed = cell.open.write().take();
            drop(closed);
        }
        Ok(0)
    }
}

native! {
    /// Begins a transaction, and returns the last commit that it sees.
    fn transaction_begin(database: jlong, is_exclusive: jint) |buffer| {
        let db = database::open(database)?;
        let begun = if is_exclusive != 0 { db.begin_exclusive()? } else { db.begin()? };
        let sequence = begun.sequence();
        let cell = TransactionCell {
            open: Mutex::new(Some(Box::new(begun))),
            savepoints: Mutex::default(),
        };
        give_handle(buffer, Place::Transaction(Arc::new(cell)))?;
        Ok(sequence as jlong)
    }
}

native! {
    fn transaction_commit(place: jlong, durability: jint) |_buffer| {
        let taken = transaction(place)?.take()?;
        let sequence = match options::durability(durability)? {
            Some(durability) => taken.commit_with(durability)?,
            None => taken.commit()?,
        };
        Ok(sequence as jlong)
    }
}

native! {
    /// Discards a transaction; does nothing after its end.
    fn transaction_rollback(place: jlong) |_buffer| {
        if let Ok(taken) = transaction(place)?.take() {
            taken.rollback();
        }
        Ok(0)
    }
}

native! {
    /// Returns the number of keys and ranges written.
    fn transaction_len(place: jlong) |_buffer| {
        transaction(place)?.with(|open| Ok(open.len() as jlong))
    }
}

native! {
    /// Adds a savepoint, and returns its number.
    fn transaction_savepoint(place: jlong) |_buffer| {
        let cell = transaction(place)?;
        let savepoint = cell.with(|open| Ok(open.savepoint()))?;
        let mut savepoints = cell.savepoints.lock();
        savepoints.push(savepoint);
        Ok((savepoints.len() - 1) as jlong)
    }
}

native! {
    fn transaction_rollback_to(place: jlong, number: jlong) |_buffer| {
        let cell = transaction(place)?;
        let found = usize::try_from(number).ok().and_then(|number| cell.savepoints.lock().get(number).copied());
        let savepoint = found.ok_or_else(|| Failure::argument("the savepoint is another transaction's"))?;
        cell.with(|open| Ok(open.rollback_to(savepoint)?))?;
        Ok(0)
    }
}

/// Frees a snapshot or a transaction, which ends it.
#[jni::jni_mangle("io.github.braiddb.Native")]
pub fn place_free<'local>(_env: EnvUnowned<'local>, _class: JClass<'local>, place: jlong) {
    free::<Place>(place);
}
