//! The change stream.

use crate::{
    boundary::{Failure, Outcome, braid_slice, free, handle, maybe_bytes, run, set, slot},
    code::braid_code::*,
    db::braid_db,
    options::new_handle,
    place::AnyTree,
    tree::{braid_tree, unix_ms},
};
use braiddb::watch::{Change, ChangeSet, ChangedTree, ResumeToken, WatchOptions, WatchStopper, Watcher};
use std::{
    ffi::c_void,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Watch from the oldest commit that the log still has, not from now on.
pub const BRAID_WATCH_FROM_OLDEST: u32 = 1;
/// Also return commits before they are durable: a crash of the system may undo them.
pub const BRAID_WATCH_UNSYNCED: u32 = 2;

/// A watcher of commits, in order.
pub struct braid_watch {
    watcher: Mutex<Watcher>,
    stopper: WatchStopper,
    is_stopped: AtomicBool,
}

/// The changes of one commit.
pub struct braid_changes {
    set: ChangeSet,
    token: Vec<u8>,
}

/// Kind of a change.
#[repr(i32)]
#[derive(Clone, Copy, Debug)]
pub enum braid_change_kind {
    /** `key` was set to `value`. */
    BRAID_CHANGE_PUT = 0,
    /** `key` was set to a value written as a stream: read it. */
    BRAID_CHANGE_PUT_STREAM = 1,
    /** `key` was deleted, with all its values. */
    BRAID_CHANGE_DELETE = 2,
    /** The keys from `key` up to `value` (exclusive; `data` NULL: to the end) were deleted. */
    BRAID_CHANGE_DELETE_RANGE = 3,
    /** Merge functions were applied to `key`: read it. */
    BRAID_CHANGE_MERGE = 4,
    /** The pair was added. */
    BRAID_CHANGE_ADD = 5,
    /** The pair was deleted. */
    BRAID_CHANGE_DELETE_PAIR = 6,
    /** The tree was created. */
    BRAID_CHANGE_CREATE_TREE = 7,
    /** The tree was dropped. */
    BRAID_CHANGE_DROP_TREE = 8,
    /** Options or the name of a tree, or the application's cursor. */
    BRAID_CHANGE_OTHER = 9,
    /** Changes that the log lacks, as of a bulk load. Read the tree again from a new snapshot, or all trees if `tree_id` is 0. */
    BRAID_CHANGE_GAP = 10,
}

/// A change. The bytes are valid until the `braid_changes` is freed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct braid_change {
    /** A `braid_change_kind`. */
    pub kind: i32,
    /** The tree's number, unique forever; 0 if the change is of no tree. */
    pub tree_id: u32,
    /** Its name; `data` is NULL if it is unknown, since the tree was dropped. */
    pub tree_name: braid_slice,
    pub key: braid_slice,
    pub value: braid_slice,
    /** Milliseconds since 1970; 0 if never. */
    pub expires_ms: u64,
}

/// Called for each commit: return 0 to go on. Another number ends `braid_watch_run`, whose thread
/// calls it. `changes` is valid until it returns, and must not be freed. All calls are allowed in
/// it, but with its watcher only `braid_watch_stop`.
pub type braid_watch_fn = Option<unsafe extern "C" fn(context: *mut c_void, changes: *const braid_changes) -> i32>;

/// Begins to watch commits. A `tree` of NULL is all trees. `prefix` restricts the keys of a tree;
/// `data` NULL is all. `token`, if `data` is not NULL, continues after the changes of an earlier
/// watcher (`braid_changes_token`). `flags` are of `BRAID_WATCH_`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_watch_new(
    db: *const braid_db,
    tree: *const braid_tree,
    prefix: braid_slice,
    token: braid_slice,
    flags: u32,
    watch: *mut *mut braid_watch,
) -> i32 {
    // SAFETY: the header's rules.
    unsafe {
        new_handle(watch, "watch", || {
            let all = BRAID_WATCH_FROM_OLDEST | BRAID_WATCH_UNSYNCED;
            if flags & !all != 0 {
                return Err(Failure::argument(format!("the flags {:#x} are unknown", flags & !all)));
            }
            let mut options = WatchOptions::new().unsynced(flags & BRAID_WATCH_UNSYNCED != 0);
            options = match tree.as_ref().map(|tree| &tree.tree) {
                None => options,
                Some(AnyTree::Plain(tree)) => options.tree(tree),
                Some(AnyTree::Multi(tree)) => options.multi_tree(tree),
            };
            if let Some(prefix) = maybe_bytes(prefix)? {
                options = options.prefix(prefix);
            }
            match maybe_bytes(token)? {
                Some(_) if flags & BRAID_WATCH_FROM_OLDEST != 0 => {
                    return Err(Failure::argument("a token and BRAID_WATCH_FROM_OLDEST exclude each other"));
                }
                Some(token) => options = options.resume(ResumeToken::from_bytes(token)?),
                None if flags & BRAID_WATCH_FROM_OLDEST != 0 => options = options.from_oldest(),
                None => {}
            }
            let watcher = handle(db, "db")?.open()?.watch(options)?;
            let stopper = watcher.stopper();
            Ok(braid_watch { watcher: Mutex::new(watcher), stopper, is_stopped: AtomicBool::new(false) })
        })
    }
}

fn changes(set: ChangeSet) -> braid_changes {
    braid_changes { token: set.token.to_bytes(), set }
}

/// Waits for the next commit with matching changes, at most `timeout_ms` (UINT64_MAX: forever).
/// `BRAID_TIMEOUT` without one, `BRAID_END` once the watcher is stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_watch_next(
    watch: *mut braid_watch,
    timeout_ms: u64,
    changes: *mut *mut braid_changes,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        slot(changes, "changes")?;
        let watch = handle(watch, "watch")?;
        let mut watcher = watch.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        let next = match timeout_ms {
            u64::MAX => watcher.next()?,
            ms => watcher.next_timeout(Duration::from_millis(ms))?,
        };
        match next {
            Some(set) => {
                crate::boundary::give(changes, self::changes(set));
                Ok(BRAID_OK)
            }
            None if timeout_ms == u64::MAX || watch.is_stopped.load(Ordering::Acquire) => Ok(BRAID_END),
            None => Ok(BRAID_TIMEOUT),
        }
    })
}

/// Calls `each` with every commit, in this thread, until it returns another number than 0
/// (`BRAID_ABORTED`), or the watcher is stopped by another thread (`BRAID_END`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_watch_run(watch: *mut braid_watch, each: braid_watch_fn, context: *mut c_void) -> i32 {
    // SAFETY: the header's rules, also for the callback.
    run(|| unsafe {
        let each = each.ok_or_else(|| Failure::argument("`each` is NULL"))?;
        let mut watcher = handle(watch, "watch")?.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(set) = watcher.next()? {
            let code = each(context, &changes(set));
            if code != 0 {
                return Err(Failure { code: BRAID_ABORTED, message: format!("the callback returned {code}") });
            }
        }
        Ok(BRAID_END)
    })
}

/// Stops a watcher: all waiting and later calls end. May be called while another thread waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_watch_stop(watch: *const braid_watch) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let watch = handle(watch, "watch")?;
        watch.is_stopped.store(true, Ordering::Release);
        watch.stopper.stop();
        Ok(BRAID_OK)
    })
}

/// Frees a watcher. No other thread may wait in it: stop it first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_watch_free(watch: *mut braid_watch) {
    // SAFETY: the header's rules.
    unsafe { free(watch) };
}

/// Returns the number of changes; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_changes_count(changes: *const braid_changes) -> usize {
    // SAFETY: the header's rules.
    unsafe { changes.as_ref() }.map_or(0, |of| of.set.changes.len())
}

/// Returns the number of the commit; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_changes_sequence(changes: *const braid_changes) -> u64 {
    // SAFETY: the header's rules.
    unsafe { changes.as_ref() }.map_or(0, |of| of.set.sequence)
}

/// Returns the token to continue after this commit: store it with the effects of the changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_changes_token(changes: *const braid_changes) -> braid_slice {
    // SAFETY: the header's rules.
    unsafe { changes.as_ref() }.map_or(braid_slice::NULL, |of| braid_slice::of(&of.token))
}

fn change_of(change: &Change) -> braid_change {
    use braid_change_kind::*;
    let of = |kind: braid_change_kind, tree: Option<&ChangedTree>, key: &[u8], value: Option<&[u8]>| braid_change {
        kind: kind as i32,
        tree_id: tree.map_or(0, |tree| tree.id),
        tree_name: tree
            .and_then(|tree| tree.name.as_ref())
            .map_or(braid_slice::NULL, |name| braid_slice::of(name.as_bytes())),
        key: braid_slice::of(key),
        value: value.map_or(braid_slice::NULL, braid_slice::of),
        expires_ms: 0,
    };
    match change {
        Change::Put { tree, key, value, expires } => braid_change {
            expires_ms: expires.map_or(0, unix_ms),
            ..of(BRAID_CHANGE_PUT, Some(tree), key, Some(value))
        },
        Change::PutStream { tree, key, expires, .. } => braid_change {
            expires_ms: expires.map_or(0, unix_ms),
            ..of(BRAID_CHANGE_PUT_STREAM, Some(tree), key, None)
        },
        Change::Delete { tree, key } => of(BRAID_CHANGE_DELETE, Some(tree), key, None),
        Change::DeleteRange { tree, start, end } => of(BRAID_CHANGE_DELETE_RANGE, Some(tree), start, end.as_deref()),
        Change::Merge { tree, key, .. } => of(BRAID_CHANGE_MERGE, Some(tree), key, None),
        Change::Add { tree, key, value } => of(BRAID_CHANGE_ADD, Some(tree), key, Some(value)),
        Change::DeletePair { tree, key, value } => of(BRAID_CHANGE_DELETE_PAIR, Some(tree), key, Some(value)),
        Change::CreateTree { tree, .. } => of(BRAID_CHANGE_CREATE_TREE, Some(tree), &[], None),
        Change::DropTree { tree } => of(BRAID_CHANGE_DROP_TREE, Some(tree), &[], None),
        Change::Gap(_) => of(BRAID_CHANGE_GAP, change.tree(), &[], None),
        other => of(BRAID_CHANGE_OTHER, other.tree(), &[], None),
    }
}

/// Returns the change of number `index`, from 0 on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_changes_get(
    changes: *const braid_changes,
    index: usize,
    change: *mut braid_change,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let changes: Outcome<_> = handle(changes, "changes");
        let Some(found) = changes?.set.changes.get(index) else { return Ok(BRAID_NOT_FOUND) };
        set(change, change_of(found));
        Ok(BRAID_OK)
    })
}

/// Frees the changes of a commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_changes_free(changes: *mut braid_changes) {
    // SAFETY: the header's rules.
    unsafe { free(changes) };
}
