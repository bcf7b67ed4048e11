//! Batches, and commits without a waiting thread.

use crate::{
    boundary::{Failure, Outcome, braid_slice, bytes, free, handle, run, set, text},
    code::braid_code::{self, *},
    db::braid_db,
    merge::Context,
    options::{durability, new_handle},
    range::{braid_range, range_of},
    tree::braid_tree,
    write::{Target, Write},
};
use braiddb::{Batch, Commit, Db};
use std::{
    ffi::{c_char, c_void},
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Poll, Wake, Waker},
    time::Duration,
};

/// Writes that one commit applies together.
pub struct braid_batch {
    db: Db,
    batch: Mutex<Batch>,
}

/// Called once when a commit is durable (`BRAID_OK` and the commit's number) or has failed, by the
/// committing thread, one that closes the database, or one of the database's own. The failure's
/// message is that of `braid_error_message` during the call. Calls that read are allowed in it;
/// calls that write, wait or close are not: pass such work to another thread.
pub type braid_commit_fn = Option<unsafe extern "C" fn(context: *mut c_void, code: i32, sequence: u64)>;

impl braid_batch {
    fn take(&self) -> Batch {
        std::mem::replace(&mut *self.lock(), self.db.batch())
    }

    fn lock(&self) -> MutexGuard<'_, Batch> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

unsafe fn add(batch: *mut braid_batch, tree: *const braid_tree, write: Write<'_>) -> Outcome {
    // SAFETY: the header's rules.
    let (batch, tree) = unsafe { (handle(batch, "batch")?, handle(tree, "tree")?) };
    write.apply(tree, Target::Batch(&mut batch.lock()))?;
    Ok(BRAID_OK)
}

/// Returns an empty batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_batch_new(db: *const braid_db, batch: *mut *mut braid_batch) -> i32 {
    // SAFETY: the header's rules.
    unsafe {
        new_handle(batch, "batch", || {
            let db = handle(db, "db")?.open()?;
            Ok(braid_batch { db: db.clone(), batch: Mutex::new(db.batch()) })
        })
    }
}

/// Sets the value of `key`, or adds the pair to a tree of many values per key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_batch_put(
    batch: *mut braid_batch,
    tree: *const braid_tree,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe { add(batch, tree, Write::Put(bytes(key, key_len)?, bytes(value, value_len)?)) })
}

/// Sets the value of `key`, which expires after `ttl_ms` from this call on; at once if 0. Not for
/// trees of many values per key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_batch_put_ttl(
    batch: *mut braid_batch,
    tree: *const braid_tree,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    ttl_ms: u64,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let ttl = Duration::from_millis(ttl_ms);
        add(batch, tree, Write::PutTtl(bytes(key, key_len)?, bytes(value, value_len)?, ttl))
    })
}

/// Deletes `key`, with all its values in a tree of many values per key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_batch_delete(
    batch: *mut braid_batch,
    tree: *const braid_tree,
    key: *const c_void,
    key_len: usize,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe { add(batch, tree, Write::Delete(bytes(key, key_len)?)) })
}

/// Deletes one pair from a tree of many values per key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_batch_delete_pair(
    batch: *mut braid_batch,
    tree: *const braid_tree,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe { add(batch, tree, Write::DeletePair(bytes(key, key_len)?, bytes(value, value_len)?)) })
}

/// Deletes the keys of a range, NULL for all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_batch_delete_range(
    batch: *mut braid_batch,
    tree: *const braid_tree,
    range: *const braid_range,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe { add(batch, tree, Write::DeleteRange(range_of(range)?)) })
}

/// Applies a merge function: see `braid_merge`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_batch_merge(
    batch: *mut braid_batch,
    tree: *const braid_tree,
    function: *const c_char,
    key: *const c_void,
    key_len: usize,
    operand: braid_slice,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let operand = bytes(operand.data, operand.len)?;
        add(batch, tree, Write::Merge(text(function, "function")?, bytes(key, key_len)?, operand))
    })
}

/// Returns the number of writes in the batch; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_batch_len(batch: *const braid_batch) -> usize {
    // SAFETY: the header's rules.
    unsafe { batch.as_ref() }.map_or(0, |of| of.lock().len())
}

/// Empties the batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_batch_clear(batch: *mut braid_batch) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        handle(batch, "batch")?.lock().clear();
        Ok(BRAID_OK)
    })
}

/// Commits the batch, and empties it, also if this fails. `sequence`, which may be NULL, takes the
/// number of the commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_batch_commit(batch: *mut braid_batch, durability: i32, sequence: *mut u64) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let full = handle(batch, "batch")?.take();
        let number = match self::durability(durability)? {
            Some(wanted) => full.commit_with(wanted)?,
            None => full.commit()?,
        };
        set(sequence, number);
        Ok(BRAID_OK)
    })
}

/// Commits the batch, and empties it. Calls `done` once when the commit is durable, or has failed,
/// also when this call fails: see `braid_commit_fn`. A `done` of NULL is refused, and changes
/// nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_batch_commit_async(
    batch: *mut braid_batch,
    done: braid_commit_fn,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        check_callback(done)?;
        let commit = handle(batch, "batch").map(|batch| batch.take().commit_async());
        report_commit(commit, done, context)
    })
}

/// Frees a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_batch_free(batch: *mut braid_batch) {
    // SAFETY: the header's rules.
    unsafe { free(batch) };
}

/// Polls a commit until its end, then calls the program.
struct Waiting {
    commit: Mutex<Option<Commit>>,
    /// Wakes not served yet. The first one polls, also for those that come meanwhile: a poll may
    /// wake its own task.
    wakes: AtomicUsize,
    done: unsafe extern "C" fn(*mut c_void, i32, u64),
    context: Context,
}

impl Waiting {
    fn report(&self, outcome: Outcome<u64>) -> braid_code {
        let mut sequence = 0;
        let code = run(|| {
            sequence = outcome?;
            Ok(BRAID_OK)
        });
        // SAFETY: the header's rules for the callback.
        unsafe { (self.done)(self.context.pointer, code, sequence) };
        braid_code::ALL.into_iter().find(|known| *known as i32 == code).unwrap_or(BRAID_OTHER)
    }

    fn poll(self: &Arc<Self>) {
        if self.wakes.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        let waker = Waker::from(Arc::clone(self));
        let mut served = 1;
        loop {
            let mut kept = self.commit.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(commit) = kept.as_mut() else { return };
            if let Poll::Ready(outcome) = Pin::new(commit).poll(&mut std::task::Context::from_waker(&waker)) {
                // The count stays above 0: later wakes do nothing.
                *kept = None;
                drop(kept);
                self.report(outcome.map_err(Into::into));
                return;
            }
            drop(kept);
            match self.wakes.fetch_sub(served, Ordering::AcqRel) - served {
                0 => return,
                more => served = more,
            }
        }
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.poll();
    }
}

/// Before the commit: a refused call changes nothing.
pub(crate) fn check_callback(done: braid_commit_fn) -> Outcome<()> {
    done.map(|_| ()).ok_or_else(|| Failure::argument("`done` is NULL"))
}

pub(crate) fn report_commit(commit: Outcome<Commit>, done: braid_commit_fn, context: *mut c_void) -> Outcome {
    let done = done.ok_or_else(|| Failure::argument("`done` is NULL"))?;
    let context = Context::new(context, None);
    match commit {
        Ok(commit) => {
            Arc::new(Waiting { commit: Mutex::new(Some(commit)), wakes: AtomicUsize::new(0), done, context }).poll();
            Ok(BRAID_OK)
        }
        Err(failure) => {
            let copy = Failure { code: failure.code, message: failure.message.clone() };
            Waiting { commit: Mutex::default(), wakes: AtomicUsize::new(0), done, context }.report(Err(copy));
            Err(failure)
        }
    }
}
