//! How those who watch the log wait for commits, and how they are woken.
//!
//! **Threads.** Watchers read the log's files by themselves; a writer does nothing for them but wake those that sleep. It looks whether there
//! are any by one relaxed load, which it makes while it holds the right to write and after its commit is visible. A watcher that is
//! about to sleep counts itself first, then takes the right to write for a moment, and then looks once more whether there is
//! anything new. Either the writer's turn was before that moment: then the watcher sees its commit. Or it is after: then the writer
//! sees the watcher. So no wake-up is lost, though the load is relaxed. Who syncs the log or finishes a flush does not hold that right,
//! and so has a fence between what it did and the look; a watcher has one between counting itself and its own.

use super::root::Engine;
use parking_lot::{Condvar, Mutex};
use std::{
    sync::atomic::{AtomicUsize, Ordering, fence},
    time::Duration,
};

/// The most that is waited at once. All that matters wakes who waits; this is for the good measure of waiting for the right to write.
/// The tests are to find it out if a wake-up is lost.
const WAIT_MAX: Duration = Duration::from_secs(if cfg!(test) { 3600 } else { 1 });

/// Who sleeps until something is committed.
#[derive(Debug, Default)]
pub struct Watches {
    waiting: AtomicUsize,
    /// Counts what may have woken somebody.
    calls: Mutex<u64>,
    called: Condvar,
}

impl Watches {
    /// Wakes those that sleep, if there are any. The caller holds the right to write.
    #[inline]
    pub fn wake_if_waiting(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.wake();
        }
    }

    /// Wakes those that sleep, if there are any, from wherever.
    pub fn wake_if_waiting_anywhere(&self) {
        fence(Ordering::SeqCst);
        self.wake_if_waiting();
    }

    /// Wakes those that sleep, and keeps those from sleeping that are about to.
    #[cold]
    pub fn wake(&self) {
        *self.calls.lock() += 1;
        self.called.notify_all();
    }
}

impl Engine {
    /// Sleeps until something is committed or synced, or a watcher is to end, or `pause` has gone by; but not at all if `is_news` says so once
    /// commits cannot come unnoticed any more.
    pub fn wait_for_commits(&self, pause: Duration, is_news: impl Fn() -> bool) {
        let watches = &self.log.watches;
        let seen = *watches.calls.lock();
        watches.waiting.fetch_add(1, Ordering::SeqCst);
        let pause = pause.min(WAIT_MAX);
        // See above. Who does not get the right in time has waited.
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
}
