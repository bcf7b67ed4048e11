//! Asynchronous commits: buffered commits whose futures are ready once the log is synced.
//!
//! The call commits as [`Durability::Buffered`](crate::db::engine::settings::Durability) does, in
//! the caller's thread: numbered, logged, applied, visible. So commits have one order, whatever
//! way they are made, and the future waits for the sync only.
//!
//! **Who syncs.** With background threads, a waiter enters the queue ([`SyncWaits`]). The first
//! one of an empty queue calls the pool's thread for syncs, which the first call starts. The thread
//! syncs the log up to the highest position in the queue, completes all waiters that the sync
//! covers, and repeats while there are more. It shares flushes with blocking commits (`wal/sync.rs`).
//! Without background threads there is no queue: the poll of a future syncs the log in its thread,
//! for all commits so far.
//!
//! **Failure.** After a failed sync every waiter above the synced position gets the error that a
//! blocking commit gets, and the database takes no more writes.
//!
//! **Close.** [`end`] runs after the calls are refused and before the directory's lock is released.
//! It syncs for the waiters, and refuses later ones. A future that comes after it finds the log
//! synced, or gets [`Error::CommitUnknown`].

use super::pipeline;
use crate::{
    base::{Error, Result, SequenceNumber},
    db::engine::{
        parts::sync_waits::{Added, SyncWaits, Waiter, complete, wake},
        root::Engine,
        slow_commits::timer::CommitTimer,
        thread_pool::JobResult,
        wal_notify::tasks::WatchTask,
    },
    wal::Lsn,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// The way to the durability of a commit.
#[derive(Debug)]
pub enum Awaited {
    Done(Result<SequenceNumber>),
    /// A thread completes it.
    Queued(Arc<Waiter>),
    /// The caller syncs: there are no background threads.
    Unsynced {
        engine: Arc<Engine>,
        sequence: SequenceNumber,
        lsn: Lsn,
        timer: Box<CommitTimer>,
    },
}

/// Begins to wait for the durability of a commit that was applied.
pub fn await_durable(engine: &Arc<Engine>, sequence: SequenceNumber, mut timer: CommitTimer) -> Awaited {
    // At or above the end of the commit's record.
    let lsn = engine.log.wal.as_ref().map_or(0, |wal| wal.end_lsn());
    if durable(engine) >= lsn {
        timer.end(engine, &Ok(sequence));
        return Awaited::Done(Ok(sequence));
    }
    timer.begin_wait(engine);
    let timer = Box::new(timer);
    if engine.settings.background_threads == 0 {
        return Awaited::Unsynced { engine: Arc::clone(engine), sequence, lsn, timer };
    }
    let waiter = Waiter::new(sequence, lsn, timer);
    match engine.log.sync_waits.add(&waiter) {
        Added::Over => return Awaited::Done(outcome(engine, &waiter, None)),
        Added::First if !engine.tenant.common.pool.call_syncer(engine.tenant.id) => sync_here(engine),
        Added::First | Added::Later => {}
    }
    Awaited::Queued(waiter)
}

/// Syncs for all waiters: there is no thread for it.
#[cold]
fn sync_here(engine: &Engine) {
    // A closing thread completes the waiters in `end`.
    while let Ok(inside) = engine.health.enter_past_closing() {
        let Some((waiters, failure)) = sync_waiters(engine) else { return };
        drop(inside);
        complete(waiters, |waiter| outcome(engine, waiter, failure.as_ref()));
    }
}

/// A turn of the thread that syncs.
pub fn run_turn(engine: &Engine) -> JobResult {
    let waits = &engine.log.sync_waits;
    let due = engine.log.watches.take_due(engine.now_ns());
    waits.in_turn(|| wake_tasks(due.woken));
    let served = sync_waiters(engine);
    let is_idle = served.is_none() && !due.is_sync;
    if let Some((waiters, failure)) = served {
        waits.in_turn(|| complete(waiters, |waiter| outcome(engine, waiter, failure.as_ref())));
    }
    // A sync wakes the tasks. After a failure, each polls and gets the error.
    let end = || engine.log.wal.as_ref().map_or(0, |wal| wal.end_lsn());
    if due.is_sync && sync(engine, end()).is_err() {
        engine.log.watches.wake();
    }
    if is_idle { due.rest_ns.map_or(JobResult::Done, JobResult::Rest) } else { JobResult::Again }
}

fn wake_tasks(tasks: Vec<Arc<WatchTask>>) {
    tasks.into_iter().filter_map(|task| task.take_waker()).for_each(wake);
}

/// Syncs the log for the waiters. Returns those with a result, and the error of the sync.
fn sync_waiters(engine: &Engine) -> Option<Ended> {
    let waits: &SyncWaits = &engine.log.sync_waits;
    let failure = sync(engine, waits.wanted()?).err();
    let waiters = match failure {
        None => waits.take_durable(durable(engine)),
        Some(_) => waits.take_all(),
    };
    Some((waiters, failure))
}

/// Syncs without a panic: it would leave waiters behind.
fn sync(engine: &Engine, up_to: Lsn) -> Result<()> {
    let panicked = |_| Err(Error::CommitUnknown { reason: "the handling of a failed sync panicked".to_owned() });
    catch_unwind(AssertUnwindSafe(|| pipeline::sync_to(engine, up_to))).unwrap_or_else(panicked)
}

/// Makes a commit durable in the caller's thread.
pub fn sync_now(engine: &Engine, sequence: SequenceNumber, lsn: Lsn, timer: &CommitTimer) -> Result<SequenceNumber> {
    let mut failure = None;
    let mut sync = || failure = sync(engine, lsn).err();
    match engine.health.enter_past_closing() {
        Ok(_inside) => sync(),
        // INVARIANT E1: until the end of the waits, the closing thread keeps the directory's lock.
        Err(_) => engine.log.sync_waits.while_open(sync),
    }
    let durable = outcome_at(engine, sequence, lsn, failure.as_ref());
    timer.end_wait(engine, &durable);
    durable
}

/// Waiters to complete, and the error of their sync.
pub type Ended = (Vec<Arc<Waiter>>, Option<Error>);

/// Ends the waits of a closing database, for [`complete_ended`].
pub fn end(engine: &Engine) -> Ended {
    let mut failure = None;
    let waiters = engine.log.sync_waits.end(|highest| failure = sync(engine, highest).err());
    (waiters, failure)
}

/// Wakes the futures of [`end`] and the change streams, once the close holds no lock.
pub fn complete_ended(engine: &Engine, (waiters, failure): Ended) {
    engine.log.watches.wake();
    wake_tasks(engine.log.watches.take_due(engine.now_ns()).woken);
    complete(waiters, |waiter| outcome(engine, waiter, failure.as_ref()));
}

fn durable(engine: &Engine) -> Lsn {
    engine.log.wal.as_ref().map_or(Lsn::MAX, |wal| wal.durable_lsn())
}

fn outcome(engine: &Engine, waiter: &Waiter, failure: Option<&Error>) -> Result<SequenceNumber> {
    let durable = outcome_at(engine, waiter.sequence, waiter.lsn, failure);
    waiter.timer.end_wait(engine, &durable);
    durable
}

fn outcome_at(engine: &Engine, sequence: SequenceNumber, lsn: Lsn, failure: Option<&Error>) -> Result<SequenceNumber> {
    if durable(engine) >= lsn {
        return Ok(sequence);
    }
    let closed = || Error::CommitUnknown { reason: "the database was closed before the log was synced".to_owned() };
    Err(failure.map_or_else(closed, Error::duplicate))
}
