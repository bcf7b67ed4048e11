//! Tasks that wait for commits, for the change stream.
//!
//! A writer wakes watchers under `write`, but a waker is the caller's code and runs without locks
//! (INVARIANT A2, `sync_waits.rs`). So [`TaskWatches::call`] only moves the tasks to a list, and
//! calls the thread that syncs logs, which wakes them. That thread also syncs the log for them:
//! a poll must not block.

use parking_lot::Mutex;
use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    task::Waker,
};

/// Minimum time between two log syncs for waiting watchers.
pub const SYNC_PAUSE_NS: u64 = 5_000_000;

/// One task, registered or not.
#[derive(Debug, Default)]
pub struct WatchTask {
    waker: Mutex<Option<Waker>>,
}

impl WatchTask {
    pub fn set_waker(&self, waker: &Waker) {
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
    waiting: Vec<Arc<WatchTask>>,
    woken: Vec<Arc<WatchTask>>,
    /// The time to wake all, since a commit may have missed them.
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

    /// Registers a task, and counts it in `waiting` if it is new.
    pub fn add(&self, task: &Arc<WatchTask>, waiting: &AtomicUsize) {
        let mut state = self.state.lock();
        if !state.waiting.iter().any(|other| Arc::ptr_eq(other, task)) {
            waiting.fetch_add(1, Ordering::SeqCst);
            state.waiting.push(Arc::clone(task));
        }
    }

    pub fn remove(&self, task: &Arc<WatchTask>, waiting: &AtomicUsize) {
        let mut state = self.state.lock();
        let before = state.waiting.len();
        state.waiting.retain(|other| !Arc::ptr_eq(other, task));
        waiting.fetch_sub(before - state.waiting.len(), Ordering::SeqCst);
    }

    /// Has the thread wake all tasks.
    pub fn call(&self, waiting: &AtomicUsize) {
        let mut state = self.state.lock();
        if state.waiting.is_empty() {
            return;
        }
        state.wake_all(waiting);
        drop(state);
        self.hand_over();
    }

    pub fn recheck_at(&self, at_ns: u64) {
        self.state.lock().recheck_at_ns.get_or_insert(at_ns);
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
            state.wake_all(waiting);
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
    fn wake_all(&mut self, waiting: &AtomicUsize) {
        waiting.fetch_sub(self.waiting.len(), Ordering::SeqCst);
        self.woken.append(&mut self.waiting);
    }
}
