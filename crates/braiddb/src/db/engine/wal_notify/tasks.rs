//! Tasks that wait for commits, for the change stream.
//!
//! A writer wakes watchers under `write`, but a waker is the caller's code and runs without locks
//! (INVARIANT A2, `sync_waits.rs`). So the calls here only move tasks to a list, and call the
//! thread that syncs logs, which wakes them. That thread also syncs the log for them: a poll must
//! not block.
//!
//! A commit wakes only the tasks that watch one of its keys, so it costs time in proportion to its
//! size and to these tasks. Each task waits in one list: that of its internal key prefix, or, if
//! the next commits for it are not durable yet, that of the next sync. Waiting, waking and leaving
//! take time independent of the number of tasks.
//!
//! A task that no commit wakes falls behind the end of the log, which may be released. So all tasks
//! are woken after each [`LAG_BYTES_MAX`] of commits, and at flushes.

use crate::{
    base::{EntryKind, TreeId, split_internal_key},
    commit::decode_group,
    db::engine::catalog::SESSION_TAG,
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    fmt,
    ops::Bound,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::Waker,
};

/// Minimum time between two log syncs for waiting watchers.
pub const SYNC_PAUSE_NS: u64 = 5_000_000;

/// Bytes of commits after which all tasks are woken.
const LAG_BYTES_MAX: usize = 1 << 20;

/// The place of a task that does not wait.
const NOWHERE: usize = usize::MAX;

/// A watcher, as its stopper and the tasks that wait know it.
#[derive(Debug)]
pub struct WatchTask {
    waker: Mutex<Option<Waker>>,
    /// Internal keys that it watches; empty: all.
    prefix: Vec<u8>,
    pub is_stopped: AtomicBool,
    /// Its index in its list. Changed under the lock of [`TaskWatches`].
    place: AtomicUsize,
    awaits_sync: AtomicBool,
}

impl WatchTask {
    pub fn new(prefix: Vec<u8>) -> WatchTask {
        WatchTask {
            waker: Mutex::default(),
            prefix,
            is_stopped: AtomicBool::new(false),
            place: AtomicUsize::new(NOWHERE),
            awaits_sync: AtomicBool::new(false),
        }
    }

    pub fn set_waker(&self, waker: &Waker) {
        if self.waker.lock().as_ref().is_some_and(|stored| stored.will_wake(waker)) {
            return;
        }
        let new = Some(waker.clone());
        let old = std::mem::replace(&mut *self.waker.lock(), new);
        drop(old);
    }

    pub fn take_waker(&self) -> Option<Waker> {
        self.waker.lock().take()
    }
}

#[derive(Default)]
pub struct TaskWatches {
    state: Mutex<State>,
    hand_over: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Debug, Default)]
struct State {
    /// Tasks that wait for commits, by prefix.
    by_prefix: BTreeMap<Vec<u8>, Vec<Arc<WatchTask>>>,
    /// Lengths of these prefixes, and the number of prefixes of each.
    lengths: BTreeMap<usize, usize>,
    /// Tasks that wait for a sync of the log.
    unsynced: Vec<Arc<WatchTask>>,
    /// Bytes of commits since all tasks were woken.
    lag_bytes: usize,
    woken: Vec<Arc<WatchTask>>,
    /// Tasks that a commit may have missed, and the time to wake them.
    unsure: Vec<Arc<WatchTask>>,
    recheck_at_ns: Option<u64>,
    /// The time to sync the log.
    sync_at_ns: Option<u64>,
    synced_at_ns: Option<u64>,
}

/// Due work.
#[derive(Debug, Default)]
pub struct Due {
    pub woken: Vec<Arc<WatchTask>>,
    pub is_sync: bool,
    /// Time until more is due.
    pub rest_ns: Option<u64>,
}

impl fmt::Debug for TaskWatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskWatches").field("state", &self.state).finish_non_exhaustive()
    }
}

impl TaskWatches {
    /// Sets the function that calls the thread, once. It may run under any lock.
    pub fn on_call(&self, hand_over: impl Fn() + Send + Sync + 'static) {
        self.hand_over.get_or_init(|| Box::new(hand_over));
    }

    /// Registers a task for the next commit that it watches, or for the next sync, and counts it in
    /// `waiting` if it is new.
    pub fn add(&self, task: &Arc<WatchTask>, awaits_sync: bool, waiting: &AtomicUsize) {
        let mut state = self.state.lock();
        let is_new = !state.remove(task);
        if is_new {
            waiting.fetch_add(1, Ordering::SeqCst);
        }
        state.add(task, awaits_sync);
    }

    pub fn remove(&self, task: &Arc<WatchTask>, waiting: &AtomicUsize) {
        if self.state.lock().remove(task) {
            waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Has the thread wake all tasks.
    pub fn call(&self, waiting: &AtomicUsize) {
        self.call_those(waiting, State::wake_all);
    }

    /// Has the thread wake the tasks that watch a key of these batches.
    pub fn call_for<'a>(&self, batches: impl Iterator<Item = &'a [u8]>, waiting: &AtomicUsize) {
        self.call_those(waiting, |state| batches.for_each(|batch| state.wake_for(batch)));
    }

    /// Has the thread wake the tasks that wait for a sync.
    pub fn call_synced(&self, waiting: &AtomicUsize) {
        self.call_those(waiting, State::wake_synced);
    }

    /// Has the thread wake one task.
    pub fn call_task(&self, task: &Arc<WatchTask>, waiting: &AtomicUsize) {
        self.call_those(waiting, |state| {
            if state.remove(task) {
                state.woken.push(Arc::clone(task));
            }
        });
    }

    fn call_those(&self, waiting: &AtomicUsize, wake: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        let before = state.woken.len();
        wake(&mut state);
        let woken = state.woken.len() - before;
        drop(state);
        if woken > 0 {
            waiting.fetch_sub(woken, Ordering::SeqCst);
            self.hand_over();
        }
    }

    /// Has the thread wake a task at a time, since a commit may have missed it.
    pub fn recheck_at(&self, task: &Arc<WatchTask>, at_ns: u64) {
        let mut state = self.state.lock();
        state.unsure.push(Arc::clone(task));
        state.recheck_at_ns.get_or_insert(at_ns);
        drop(state);
        self.hand_over();
    }

    /// Has the thread sync the log, [`SYNC_PAUSE_NS`] after its last such sync.
    pub fn request_sync(&self, now_ns: u64) {
        let mut state = self.state.lock();
        let earliest_ns = state.synced_at_ns.map_or(0, |at_ns| at_ns.saturating_add(SYNC_PAUSE_NS));
        state.sync_at_ns.get_or_insert(now_ns.max(earliest_ns));
        drop(state);
        self.hand_over();
    }

    fn hand_over(&self) {
        if let Some(hand_over) = self.hand_over.get() {
            hand_over();
        }
    }

    pub fn take_due(&self, now_ns: u64, waiting: &AtomicUsize) -> Due {
        let mut state = self.state.lock();
        if state.recheck_at_ns.take_if(|at_ns| *at_ns <= now_ns).is_some() {
            for task in std::mem::take(&mut state.unsure) {
                if state.remove(&task) {
                    waiting.fetch_sub(1, Ordering::SeqCst);
                    state.woken.push(task);
                }
            }
        }
        let is_sync = state.sync_at_ns.take_if(|at_ns| *at_ns <= now_ns).is_some();
        if is_sync {
            state.synced_at_ns = Some(now_ns);
        }
        let next_ns = state.recheck_at_ns.into_iter().chain(state.sync_at_ns).min();
        let rest_ns = next_ns.map(|at_ns| at_ns.saturating_sub(now_ns));
        Due { woken: std::mem::take(&mut state.woken), is_sync, rest_ns }
    }
}

impl State {
    fn add(&mut self, task: &Arc<WatchTask>, awaits_sync: bool) {
        let State { by_prefix, lengths, unsynced, .. } = self;
        let list = match by_prefix.get_mut(&task.prefix) {
            _ if awaits_sync => unsynced,
            Some(list) => list,
            None => {
                *lengths.entry(task.prefix.len()).or_default() += 1;
                by_prefix.entry(task.prefix.clone()).or_default()
            }
        };
        task.awaits_sync.store(awaits_sync, Ordering::Relaxed);
        task.place.store(list.len(), Ordering::Relaxed);
        list.push(Arc::clone(task));
    }

    /// Returns false if the task does not wait.
    fn remove(&mut self, task: &Arc<WatchTask>) -> bool {
        let place = task.place.swap(NOWHERE, Ordering::Relaxed);
        let list = match task.awaits_sync.load(Ordering::Relaxed) {
            _ if place == NOWHERE => return false,
            true => Some(&mut self.unsynced),
            false => self.by_prefix.get_mut(&task.prefix),
        };
        let Some(list) = list else { return false };
        list.swap_remove(place);
        if let Some(moved) = list.get(place) {
            moved.place.store(place, Ordering::Relaxed);
        }
        if list.is_empty() && !task.awaits_sync.load(Ordering::Relaxed) {
            self.take_list(&task.prefix);
        }
        true
    }

    fn take_list(&mut self, prefix: &[u8]) -> Option<Vec<Arc<WatchTask>>> {
        let list = self.by_prefix.remove(prefix)?;
        if let Some(count) = self.lengths.get_mut(&prefix.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prefix.len());
            }
        }
        Some(list)
    }

    fn wake_list(&mut self, list: Option<Vec<Arc<WatchTask>>>) {
        for task in list.into_iter().flatten() {
            task.place.store(NOWHERE, Ordering::Relaxed);
            self.woken.push(task);
        }
    }

    fn wake_synced(&mut self) {
        let unsynced = std::mem::take(&mut self.unsynced);
        self.wake_list(Some(unsynced));
    }

    fn wake_all(&mut self) {
        self.wake_synced();
        self.lengths.clear();
        for list in std::mem::take(&mut self.by_prefix).into_values() {
            self.wake_list(Some(list));
        }
        self.lag_bytes = 0;
    }

    fn wake_for(&mut self, batch: &[u8]) {
        self.lag_bytes += batch.len();
        if self.lag_bytes >= LAG_BYTES_MAX {
            return self.wake_all();
        }
        if self.by_prefix.is_empty() {
            return;
        }
        decode_group(batch, |_, operation| {
            match split_internal_key(operation.key) {
                Some((TreeId::CATALOG, [SESSION_TAG, ..])) => return,
                // Trees are created, renamed or dropped.
                Some((TreeId::CATALOG, _)) | None => return self.wake_all(),
                Some(_) => {}
            }
            let mut from = 0;
            while let Some((&length, _)) = self.lengths.range(from..).next()
                && let Some(prefix) = operation.key.get(..length)
            {
                let list = self.take_list(prefix);
                self.wake_list(list);
                from = length + 1;
            }
            if operation.kind == EntryKind::RangeDelete {
                self.wake_between(operation.key, operation.value);
            }
        });
    }

    /// Wakes the tasks of prefixes in a range.
    fn wake_between(&mut self, start: &[u8], end: &[u8]) {
        if start >= end {
            return;
        }
        let between = self.by_prefix.range::<[u8], _>((Bound::Included(start), Bound::Excluded(end)));
        let prefixes: Vec<Vec<u8>> = between.map(|(prefix, _)| prefix.clone()).collect();
        for prefix in prefixes {
            let list = self.take_list(&prefix);
            self.wake_list(list);
        }
    }
}

#[cfg(test)]
mod tests;
