//! Wakes watchers of the log at new commits.
//!
//! Watchers read the log's files by themselves; a writer only wakes sleeping watchers. It finds
//! them by one relaxed load, under `write` and after its commit is visible. A watcher increments
//! the count, takes `write` for a moment, and looks for news before it sleeps. If the writer held
//! `write` before that, the watcher sees its commit; otherwise the writer sees the watcher. So no
//! wake-up is lost. A log sync or a flush does not hold `write`: it has a fence between its work
//! and the load, and a watcher has one between its increment and its look.

pub mod tasks;

use self::tasks::{Due, TaskWatches, WatchTask};
use super::root::Engine;
use parking_lot::{Condvar, Mutex};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering, fence},
    },
    time::Duration,
};

/// Maximum sleep. Every relevant event wakes the watchers. Tests sleep longer, to detect a lost
/// wake-up.
const WAIT_MAX: Duration = Duration::from_secs(if cfg!(test) { 3600 } else { 1 });

/// Time after which a task checks again if it could not take `write`. A commit in progress holds
/// it, so its own wake-up is likely to come first.
const RECHECK_NS: u64 = 1_000_000;

#[derive(Debug, Default)]
pub struct Watches {
    /// Sleeping threads and registered tasks.
    waiting: AtomicUsize,
    calls: Mutex<u64>,
    called: Condvar,
    pub tasks: TaskWatches,
}

impl Watches {
    /// Wakes sleeping watchers. The caller holds `write`.
    #[inline]
    pub fn wake_if_waiting(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.wake();
        }
    }

    /// Wakes sleeping watchers. For callers without `write`.
    pub fn wake_if_waiting_anywhere(&self) {
        fence(Ordering::SeqCst);
        self.wake_if_waiting();
    }

    /// Wakes sleeping watchers, and the tasks that watch a key of these batches. The caller holds
    /// `write`.
    #[inline]
    pub fn wake_for<'a>(&self, batches: impl Iterator<Item = &'a [u8]>) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.wake_threads();
            self.tasks.call_for(batches, &self.waiting);
        }
    }

    /// Wakes sleeping watchers, and the tasks that wait for a sync. For callers without `write`.
    pub fn wake_synced(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.wake_threads();
            self.tasks.call_synced(&self.waiting);
        }
    }

    /// Wakes sleeping watchers, and those about to sleep.
    #[cold]
    pub fn wake(&self) {
        self.wake_threads();
        self.tasks.call(&self.waiting);
    }

    /// Wakes one task, and sleeping watchers: the caller has stopped one of them.
    pub fn wake_stopped(&self, task: &Arc<WatchTask>) {
        self.wake_threads();
        self.tasks.call_task(task, &self.waiting);
    }

    #[cold]
    fn wake_threads(&self) {
        *self.calls.lock() += 1;
        self.called.notify_all();
    }

    pub fn take_due(&self, now_ns: u64) -> Due {
        self.tasks.take_due(now_ns, &self.waiting)
    }

    pub fn remove(&self, task: &Arc<WatchTask>) {
        self.tasks.remove(task, &self.waiting);
    }
}

impl Engine {
    /// Sleeps until a commit, a sync, the end of a watcher, or for `pause`; not if `is_news`
    /// returns true after this watcher is counted.
    pub fn wait_for_commits(&self, pause: Duration, is_news: impl Fn() -> bool) {
        let watches = &self.log.watches;
        let seen = *watches.calls.lock();
        watches.waiting.fetch_add(1, Ordering::SeqCst);
        let pause = pause.min(WAIT_MAX);
        // After the increment: see the module header. Without `write` in time, the wait is over.
        let had_turn = self.commits.write.try_lock_for(pause).is_some();
        fence(Ordering::SeqCst);
        if had_turn && !is_news() {
            let mut calls = watches.calls.lock();
            if *calls == seen {
                watches.called.wait_for(&mut calls, pause);
            }
        }
        watches.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Registers a task for commits that it watches, or for the next sync, and for the other events
    /// that end [`Engine::wait_for_commits`]. Returns false if `is_news` returns true after that,
    /// and the task must look again.
    pub fn register_for_commits(&self, task: &Arc<WatchTask>, awaits_sync: bool, is_news: impl Fn() -> bool) -> bool {
        let watches = &self.log.watches;
        watches.tasks.add(task, awaits_sync, &watches.waiting);
        let had_turn = self.commits.write.try_lock().is_some();
        fence(Ordering::SeqCst);
        if is_news() {
            watches.remove(task);
            return false;
        }
        if !had_turn {
            watches.tasks.recheck_at(task, self.now_ns() + RECHECK_NS);
        }
        true
    }
}
