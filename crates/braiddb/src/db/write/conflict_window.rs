//! Transactions in the commit pipeline: the conflict window, validation in advance, exclusivity.
//!
//! While an exclusive transaction is open, no other caller commits. The right to commit belongs to
//! its ticket, not to a thread: a transaction may move between threads. It commits without the
//! queue.
//!
//! INVARIANT X1: no commit waits in the queue for an exclusive transaction. Each caller waits in
//! its own thread, in [`apply_notices`], for at most `exclusive_wait_ns`. A leader that
//! finds an exclusive transaction returns its whole group to that wait. So a transaction that never
//! ends cannot delay a commit for longer.

use super::{
    pipeline,
    stages::{changed, outlived},
    update_scope,
};
use crate::{
    base::{Error, Result},
    commit::PreparedBatch,
    db::{
        engine::{
            parts::commits::{Committed, ExclusiveOwner, NOTICE_EXCLUSIVE, Request, WriteState},
            root::Engine,
            slow_commits::{report::SlowCause, timer::CommitTimer},
        },
        read::healing,
    },
    txn::{Check, Validation},
};
use parking_lot::MutexGuard;
use std::{
    cell::Cell,
    slice,
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

std::thread_local! {
    /// Time at which this thread's waits for exclusive transactions end.
    static WAITS_END_NS: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// Runs `work`, whose waits for exclusive transactions also end at `ends_ns`. They are all in this
/// thread: INVARIANT X1.
pub fn waiting_until<R>(ends_ns: u64, work: impl FnOnce() -> R) -> R {
    struct Before(u64);
    impl Drop for Before {
        fn drop(&mut self) {
            WAITS_END_NS.set(self.0);
        }
    }
    let before = WAITS_END_NS.get();
    let _before = Before(before);
    WAITS_END_NS.set(ends_ns.min(before));
    work()
}

#[derive(Debug)]
pub struct ConflictWindowGuard(Arc<Engine>);

impl ConflictWindowGuard {
    /// Call this before taking the snapshot, so that the window has all later commits.
    pub fn new(engine: &Arc<Engine>) -> ConflictWindowGuard {
        if !engine.commits.window.join() {
            let write = engine.commits.write.lock();
            engine.commits.window.open(write.last_sequence);
        }
        ConflictWindowGuard(Arc::clone(engine))
    }
}

impl Drop for ConflictWindowGuard {
    fn drop(&mut self) {
        self.0.commits.window.leave();
    }
}

#[derive(Debug)]
pub struct Exclusive {
    engine: Arc<Engine>,
    ticket: u64,
}

impl Exclusive {
    /// Fails after `exclusive_wait_ns`.
    pub fn new(engine: &Arc<Engine>) -> Result<Exclusive> {
        engine.health.check_writable()?;
        let mut write = await_no_exclusive(engine)?;
        engine.health.check_writable()?;
        write.exclusive_tickets += 1;
        let ticket = write.exclusive_tickets;
        write.exclusive = Some(ExclusiveOwner { ticket, began_ns: engine.now_ns(), began_by: thread::current() });
        engine.commits.exclusivity.notices.fetch_or(NOTICE_EXCLUSIVE, Ordering::Relaxed);
        drop(write);
        Ok(Exclusive { engine: Arc::clone(engine), ticket })
    }

    pub fn ticket(&self) -> u64 {
        self.ticket
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        let mut write = self.engine.commits.write.lock();
        // After a revocation, another transaction may own the right.
        if write.exclusive.as_ref().is_some_and(|owner| owner.ticket == self.ticket) {
            end_exclusive(&self.engine, &mut write);
        }
    }
}

pub(in crate::db) fn end_exclusive(engine: &Engine, write: &mut WriteState) -> bool {
    let was_open = write.exclusive.take().is_some();
    engine.commits.exclusivity.notices.fetch_and(!NOTICE_EXCLUSIVE, Ordering::Relaxed);
    engine.commits.exclusivity.ended.notify_all();
    was_open
}

/// Waits for an exclusive transaction to end, and refuses a write that bypasses the transaction
/// of `Db::update`.
#[cold]
pub fn apply_notices(engine: &Engine, timer: &mut CommitTimer, since_ns: &mut Option<u64>) -> Result<()> {
    update_scope::check_outside(engine)?;
    let mut write = engine.commits.write.lock();
    if write.exclusive.is_none() {
        return Ok(());
    }
    let began_ns = engine.now_ns();
    let mut done = Ok(());
    while done.is_ok() && write.exclusive.is_some() {
        done = await_exclusive(engine, &mut write, since_ns);
    }
    timer.add(SlowCause::Lock, engine.now_ns().saturating_sub(began_ns));
    done
}

pub fn await_no_exclusive(engine: &Engine) -> Result<MutexGuard<'_, WriteState>> {
    let mut since_ns = None;
    let mut write = engine.commits.write.lock();
    while write.exclusive.is_some() {
        await_exclusive(engine, &mut write, &mut since_ns)?;
    }
    Ok(write)
}

/// Waits once, until an exclusive transaction ends or expires. Fails after `exclusive_wait_ns`
/// in all, or at the end of [`waiting_until`].
fn await_exclusive(engine: &Engine, write: &mut MutexGuard<'_, WriteState>, since_ns: &mut Option<u64>) -> Result<()> {
    engine.health.check_writable()?;
    let now_ns = engine.now_ns();
    let is_first = since_ns.is_none();
    let waited_ns = now_ns.saturating_sub(*since_ns.get_or_insert(now_ns));
    let Some(owner) = &write.exclusive else { return Ok(()) };
    let left_ns = engine.settings.exclusive_wait_ns.saturating_sub(waited_ns);
    let left_ns = left_ns.min(WAITS_END_NS.get().saturating_sub(now_ns));
    let expires_ns = engine.settings.reader_age_max_ns.saturating_sub(now_ns.saturating_sub(owner.began_ns));
    if expires_ns == 0 {
        end_exclusive(engine, write);
        return Ok(());
    }
    if is_first && owner.began_by.id() == thread::current().id() {
        tracing::warn!(
            "the thread that began the exclusive transaction waits for its end; if it still has it, that does not come"
        );
    }
    let wait = Duration::from_nanos(left_ns.min(expires_ns));
    let is_over =
        left_ns == 0 || (engine.commits.exclusivity.ended.wait_for(write, wait).timed_out() && left_ns <= expires_ns);
    match &write.exclusive {
        Some(owner) if is_over => Err(Error::ExclusiveOpen {
            begun_by: owner.describe_thread(),
            age: Duration::from_nanos(engine.now_ns().saturating_sub(owner.began_ns)),
        }),
        _ => Ok(()),
    }
}

pub fn wake_leaders(engine: &Engine) {
    // A caller with this lock either waits by now and is notified, or will see the close.
    drop(engine.commits.write.lock());
    engine.commits.exclusivity.ended.notify_all();
}

pub fn commit_exclusive(
    engine: &Engine,
    ticket: u64,
    batch: PreparedBatch,
    is_unlogged: bool,
    check_trees: impl Fn() -> Result<()>,
) -> Result<Committed> {
    let mut write = pipeline::lock_write(engine);
    if write.exclusive.as_ref().is_none_or(|owner| owner.ticket != ticket) {
        return Err(Error::conflict("its exclusive right was revoked, and others may have committed since"));
    }
    check_trees()?;
    let drops = engine.catalog.drops.load(Ordering::Acquire);
    let mut request = Request { batch, drops, is_unlogged, check: None, validation: Validation::Unchanged };
    let group = slice::from_mut(&mut request);
    let done = engine.catch_panic("a commit", || pipeline::try_commit_group(engine, &mut write, group, drops));
    let mut done = done.unwrap_or_else(|reason| Err(Error::CommitUnknown { reason }));
    if write.delay.is_any() {
        pipeline::end_delay(engine, &mut write, &mut done);
    }
    done
}

/// Validates the reads as far as possible without delaying other commits.
pub fn precheck(engine: &Engine, timer: &mut CommitTimer, check: &mut Check) -> Result<()> {
    if check.upto >= engine.readers.snapshots.visible() {
        return Ok(());
    }
    let validation = match (check.precheck(&engine.commits.window), check.held) {
        (Validation::TooOld, Some(held)) => timer.time(engine, SlowCause::Conflict, || {
            healing::retry(engine, || {
                // Load the state after `visible`, so that it has those commits. Check the hold
                // last, so that no merge dropped their traces.
                let visible = engine.readers.snapshots.visible();
                let state = engine.cell.state.load_full();
                engine.check_held(&held)?;
                check.check_state(&state, visible)
            })
        })?,
        (validation, _) => validation,
    };
    match validation {
        Validation::Unchanged => Ok(()),
        Validation::Changed => Err(changed()),
        Validation::TooOld => Err(outlived()),
    }
}
