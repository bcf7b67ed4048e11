//! Transactions.

use crate::{
    batch::{braid_commit_fn, check_callback, report_commit},
    boundary::{Failure, Outcome, free, handle, quietly, run, set},
    code::braid_code::*,
    db::braid_db,
    options::{durability, new_handle},
    place::{Place, TransactionCell},
    tree::braid_tree,
};
use braiddb::Savepoint;
use std::{
    ffi::c_void,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// Isolation of a transaction.
#[repr(i32)]
#[derive(Clone, Copy, Debug)]
pub enum braid_isolation {
    /** Runs beside others. Its commit fails with `BRAID_CONFLICT` if commits since its begin changed what it read. */
    BRAID_OPTIMISTIC = 0,
    /** Excludes all other writes until its end. No conflicts. */
    BRAID_EXCLUSIVE = 1,
}

/// A serializable transaction.
pub struct braid_transaction {
    cell: Arc<TransactionCell>,
    savepoints: Mutex<Vec<(u64, Savepoint)>>,
}

/// Makes the numbers of savepoints unique in the process: a stale one is never another one's.
static SAVEPOINTS: AtomicU64 = AtomicU64::new(1);

/// Begins a transaction; `isolation` is a `braid_isolation`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_begin(
    db: *const braid_db,
    isolation: i32,
    transaction: *mut *mut braid_transaction,
) -> i32 {
    const OPTIMISTIC: i32 = braid_isolation::BRAID_OPTIMISTIC as i32;
    const EXCLUSIVE: i32 = braid_isolation::BRAID_EXCLUSIVE as i32;
    // SAFETY: the header's rules.
    unsafe {
        new_handle(transaction, "transaction", || {
            let db = handle(db, "db")?.open()?;
            let begun = match isolation {
                OPTIMISTIC => db.begin()?,
                EXCLUSIVE => db.begin_exclusive()?,
                other => return Err(Failure::argument(format!("{other} is no `braid_isolation`"))),
            };
            Ok(braid_transaction { cell: TransactionCell::new(begun), savepoints: Mutex::default() })
        })
    }
}

/// Returns a handle that reads and writes `tree` in the transaction: it sees the transaction's
/// snapshot and its own writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_transaction_tree(
    transaction: *const braid_transaction,
    tree: *const braid_tree,
    in_transaction: *mut *mut braid_tree,
) -> i32 {
    // SAFETY: the header's rules.
    unsafe {
        new_handle(in_transaction, "in_transaction", || {
            let cell = Arc::clone(&handle(transaction, "transaction")?.cell);
            cell.with(|_| Ok(()))?;
            Ok(handle(tree, "tree")?.at(Place::Transaction(cell)))
        })
    }
}

/// Commits, and ends the transaction, also if this fails. `sequence`, which may be NULL, takes the
/// number of the commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_commit(transaction: *mut braid_transaction, durability: i32, sequence: *mut u64) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let open = handle(transaction, "transaction")?.cell.take()?;
        let number = match self::durability(durability)? {
            Some(wanted) => open.commit_with(wanted)?,
            None => open.commit()?,
        };
        set(sequence, number);
        Ok(BRAID_OK)
    })
}

/// Commits, and ends the transaction. Calls `done` once when the commit is durable, or has failed,
/// also when this call fails: see `braid_commit_fn`. A `done` of NULL is refused, and changes
/// nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_commit_async(
    transaction: *mut braid_transaction,
    done: braid_commit_fn,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        check_callback(done)?;
        let commit = || -> Outcome<_> { Ok(handle(transaction, "transaction")?.cell.take()?.commit_async()) };
        report_commit(commit(), done, context)
    })
}

/// Ends the transaction without its writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_rollback(transaction: *mut braid_transaction) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        handle(transaction, "transaction")?.cell.take()?.rollback();
        Ok(BRAID_OK)
    })
}

/// Marks the transaction's present writes. `savepoint` takes a number for `braid_rollback_to`,
/// never 0 and never given twice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_savepoint(transaction: *mut braid_transaction, savepoint: *mut u64) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let transaction = handle(transaction, "transaction")?;
        // Locked first: several threads add in the order of the writes.
        let mut kept = transaction.savepoints.lock().unwrap_or_else(PoisonError::into_inner);
        let point = transaction.cell.with(|open| Ok(open.savepoint()))?;
        let number = SAVEPOINTS.fetch_add(1, Ordering::Relaxed);
        kept.push((number, point));
        set(savepoint, number);
        Ok(BRAID_OK)
    })
}

/// Undoes the writes since a savepoint. Later savepoints end, and are refused from then on; this
/// one remains. Reads stay recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_rollback_to(transaction: *mut braid_transaction, savepoint: u64) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let transaction = handle(transaction, "transaction")?;
        let mut kept = transaction.savepoints.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().rposition(|(number, _)| *number == savepoint);
        let message = || Failure::argument(format!("the transaction has no savepoint {savepoint} any more"));
        let at = at.ok_or_else(message)?;
        transaction.cell.with(|open| Ok(open.rollback_to(kept[at].1)?))?;
        kept.truncate(at + 1);
        Ok(BRAID_OK)
    })
}

/// Frees a transaction: rolls it back if it is open. Its trees stay valid, but fail with
/// `BRAID_TRANSACTION_ENDED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_transaction_free(transaction: *mut braid_transaction) {
    // SAFETY: the header's rules.
    if let Some(open) = unsafe { transaction.as_ref() } {
        // An error means that it ended before.
        quietly(|| drop(open.cell.take()));
    }
    // SAFETY: the header's rules.
    unsafe { free(transaction) };
}
