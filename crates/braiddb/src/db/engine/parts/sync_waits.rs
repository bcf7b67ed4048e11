//! Asynchronous commits whose futures wait for a log sync. `write/async_commit.rs` syncs for them.
//!
//! INVARIANT A1: a waiter in the queue is completed exactly once, by the thread that removes it.
//! After [`SyncWaits::end`] none enters. So no future hangs.
//!
//! INVARIANT A2: no waker runs, and none is cloned or dropped, under a lock of the engine. A waker
//! is the caller's code: it may commit, close the database, or panic.

use crate::{
    base::{Result, SequenceNumber},
    db::engine::slow_commits::timer::CommitTimer,
    wal::Lsn,
};
use parking_lot::Mutex;
use std::{
    cell::Cell,
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Poll, Waker},
};

std::thread_local! {
    /// The [`SyncWaits`] for which this thread calls wakers in a turn of the thread pool.
    static IN_TURN: Cell<usize> = const { Cell::new(0) };
}

/// The commits that wait. The lock is a leaf, except that [`SyncWaits::end`] syncs under it.
#[derive(Debug, Default)]
pub struct SyncWaits {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// In about the order of the log.
    waiting: VecDeque<Arc<Waiter>>,
    /// The highest position that any waiter waited for.
    highest: Lsn,
    is_over: bool,
}

/// One commit, shared by its future and the queue.
#[derive(Debug)]
pub struct Waiter {
    pub sequence: SequenceNumber,
    /// The commit is durable once the log is synced up to here.
    pub lsn: Lsn,
    pub timer: Box<CommitTimer>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Waiting(Option<Waker>),
    Done(Result<SequenceNumber>),
}

/// The outcome of [`SyncWaits::add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The queue was empty, so the caller must have it synced.
    First,
    /// A sync is due or running, and another follows while the queue is not empty.
    Later,
    /// The database is closed. The waiter is not in the queue.
    Over,
}

impl SyncWaits {
    pub fn add(&self, waiter: &Arc<Waiter>) -> Added {
        let mut queue = self.queue.lock();
        if queue.is_over {
            return Added::Over;
        }
        queue.highest = queue.highest.max(waiter.lsn);
        queue.waiting.push_back(Arc::clone(waiter));
        if queue.waiting.len() == 1 { Added::First } else { Added::Later }
    }

    /// Returns the position up to which a sync serves all waiters; `None` without waiters.
    pub fn wanted(&self) -> Option<Lsn> {
        let queue = self.queue.lock();
        (!queue.waiting.is_empty()).then_some(queue.highest)
    }

    /// Removes the waiters at the front that a sync up to `durable` serves.
    pub fn take_durable(&self, durable: Lsn) -> Vec<Arc<Waiter>> {
        let mut queue = self.queue.lock();
        let count = queue.waiting.iter().take_while(|waiter| waiter.lsn <= durable).count();
        queue.waiting.drain(..count).collect()
    }

    pub fn take_all(&self) -> Vec<Arc<Waiter>> {
        self.queue.lock().waiting.drain(..).collect()
    }

    /// Refuses waiters from now on, and removes all. If there are any, `sync` syncs for them first.
    pub fn end(&self, sync: impl FnOnce(Lsn)) -> Vec<Arc<Waiter>> {
        let mut queue = self.queue.lock();
        queue.is_over = true;
        if !queue.waiting.is_empty() {
            sync(queue.highest);
        }
        queue.waiting.drain(..).collect()
    }

    /// Runs `sync` unless [`SyncWaits::end`] has returned. It waits for `sync`, and the close keeps
    /// the directory's lock until then.
    pub fn while_open(&self, sync: impl FnOnce()) {
        let queue = self.queue.lock();
        if !queue.is_over {
            sync();
        }
    }

    /// Runs `work`, which calls wakers in a turn of the thread pool.
    pub fn in_turn<R>(&self, work: impl FnOnce() -> R) -> R {
        struct Before(usize);
        impl Drop for Before {
            fn drop(&mut self) {
                IN_TURN.set(self.0);
            }
        }
        let _before = Before(IN_TURN.replace(self.address()));
        work()
    }

    /// Returns true if this thread is within [`SyncWaits::in_turn`]: the caller is a waker.
    pub fn is_in_turn(&self) -> bool {
        IN_TURN.get() == self.address()
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// Completes waiters that were removed from the queue. Call it without a lock.
pub fn complete(waiters: Vec<Arc<Waiter>>, result: impl Fn(&Waiter) -> Result<SequenceNumber>) {
    for waiter in waiters {
        let result = result(&waiter);
        waiter.complete(result);
    }
}

impl Waiter {
    pub fn new(sequence: SequenceNumber, lsn: Lsn, timer: Box<CommitTimer>) -> Arc<Waiter> {
        Arc::new(Waiter { sequence, lsn, timer, state: Mutex::new(State::Waiting(None)) })
    }

    fn complete(&self, result: Result<SequenceNumber>) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Done(result));
        if let State::Waiting(Some(waker)) = before {
            wake(waker);
        }
    }

    /// Returns the result, or stores a clone of `waker`.
    pub fn poll(&self, waker: &Waker) -> Poll<Result<SequenceNumber>> {
        let is_stored = |state: &State| match state {
            State::Waiting(Some(stored)) => stored.will_wake(waker),
            _ => false,
        };
        if let Some(result) = self.result() {
            return Poll::Ready(result);
        }
        if is_stored(&self.state.lock()) {
            return Poll::Pending;
        }
        // INVARIANT A2: clone before the lock, drop the old one after it.
        let mut new = Some(waker.clone());
        let mut state = self.state.lock();
        let (outcome, old) = match &mut *state {
            State::Waiting(stored) => (Poll::Pending, std::mem::replace(stored, new.take())),
            State::Done(result) => (Poll::Ready(duplicate(result)), None),
        };
        drop(state);
        drop((old, new));
        outcome
    }

    /// Returns the result once there is one.
    pub fn result(&self) -> Option<Result<SequenceNumber>> {
        match &*self.state.lock() {
            State::Waiting(_) => None,
            State::Done(result) => Some(duplicate(result)),
        }
    }

    /// Drops the waker: the future is gone.
    pub fn forget(&self) {
        let waker = match &mut *self.state.lock() {
            State::Waiting(waker) => waker.take(),
            State::Done(_) => None,
        };
        drop(waker);
    }
}

fn duplicate(result: &Result<SequenceNumber>) -> Result<SequenceNumber> {
    match result {
        Ok(sequence) => Ok(*sequence),
        Err(error) => Err(error.duplicate()),
    }
}

/// Runs a waker. Its panic is logged and ends here.
pub fn wake(waker: Waker) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        // Its drop is the caller's code, too, and may panic: the other waiters would be lost.
        std::mem::forget(panic);
        tracing::error!("the waker of a future panicked");
    }
}
