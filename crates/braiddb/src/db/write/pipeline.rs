//! The commit pipeline: from a prepared batch to a published, durable commit.
//!
//! Many threads commit at the same time. Log, memtable and visible sequence number must agree on
//! one order, and one append and one sync should serve many commits. So one caller leads: it
//! commits a group of queued requests under the lock `write`, and the others wait.
//!
//! # Stages
//!
//! The stages work on parts of the engine (`stages.rs`); here are their calls and waits.
//!
//! - Prepare, in the caller's thread: `commit_checked` checks the batch's length and throttles
//!   (`check_pressure`). `submit` waits for an exclusive transaction to end (`apply_notices`), checks
//!   the trees, validates the reads in advance (`precheck`), and queues the request.
//! - Prepare, by the leader: `lead` takes `write` and calls `try_commit_group`.
//!   `wal_bypass::prepare` decides if the group goes to the log. `make_room` freezes a full
//!   memtable.
//! - Validate: `admit` checks each request's reads against earlier commits, those of the group
//!   included, and notes its writes in the conflict window. It runs only while the window is open.
//! - Number: `number` gives each valid request the next sequence number.
//! - Append: `append` appends the group to the WAL as one record; `log_with_reserve` retries on a
//!   full disk. A group without WAL skips this stage.
//! - Apply: `apply` adds the entries to the active memtable.
//! - Publish: `SnapshotList::publish` makes the commits visible, unless a load holds them back.
//! - Sync: `sync_to`, in the caller's thread and without `write`, only for `Durability::Sync`.
//!
//! An exclusive transaction calls `commit_exclusive`, which runs the leader's stages without the
//! queue.
//!
//! # Invariants
//!
//! INVARIANT C1: a sequence number in the conflict window is never used again. So all steps that
//! can fail without a commit come before `admit`, and a group that the log rejects still uses its
//! numbers.
//!
//! INVARIANT C2: append, apply, publish, in this order. Visible commits are in the log (unless
//! without WAL) but perhaps not synced. A failed append applies nothing; unless the disk is full,
//! it poisons the database.
//!
//! INVARIANT C3: `submit` loads the count of dropped trees before it checks its trees. The leader
//! returns requests with an older count. So no entry of a dropped tree gets a higher sequence
//! number than the range delete that empties the tree.

use super::{
    backpressure, conflict_window, full_disk,
    stages::{self, Applied, Parts, Room},
    wal_bypass,
};
use crate::{
    base::{Error, Result, SequenceNumber},
    commit::PreparedBatch,
    db::{
        engine::{
            parts::commits::{Answer, Committed, GroupDelay, Request, WriteState},
            root::Engine,
            settings::Durability,
            slow_commits::{report::SlowCause, timer::CommitTimer},
        },
        files::names,
    },
    read::ReadState,
    txn::{Check, Validation},
};
use arc_swap::Guard;
use parking_lot::MutexGuard;
use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering},
};

#[derive(Debug)]
pub enum CommitCondition {
    None,
    /// Fails if a later commit has written the reads.
    Unchanged(Box<Check>),
    /// Requires the exclusive transaction with this ticket.
    Exclusive(u64),
}

/// Commits to trees that no other caller can drop. `Ok` means what `durability` promises.
pub fn commit(engine: &Engine, batch: PreparedBatch, durability: Durability) -> Result<SequenceNumber> {
    commit_checked(engine, batch, durability, CommitCondition::None, || Ok(()))
}

/// Commits a batch. Fails if `check_trees` finds that a tree was dropped.
pub fn commit_checked(
    engine: &Engine,
    batch: PreparedBatch,
    durability: Durability,
    condition: CommitCondition,
    check_trees: impl Fn() -> Result<()>,
) -> Result<SequenceNumber> {
    let mut timer = CommitTimer::begin(engine);
    let committed = commit_timed(engine, &mut timer, batch, durability, condition, check_trees);
    timer.end(engine, &committed);
    committed
}

/// [`commit_checked`], for a caller that ends the timer.
pub fn commit_timed(
    engine: &Engine,
    timer: &mut CommitTimer,
    batch: PreparedBatch,
    durability: Durability,
    condition: CommitCondition,
    check_trees: impl Fn() -> Result<()>,
) -> Result<SequenceNumber> {
    engine.health.check_writable()?;
    if batch.operations == 0 {
        return Ok(engine.readers.snapshots.visible());
    }
    stages::check_len(batch.bytes().len())?;
    (timer.records, timer.bytes) = (batch.operations, batch.user_bytes);
    if !engine.maintenance.pressure.is_calm() {
        full_disk::check_pressure(engine, timer, &batch)?;
    }
    let is_unlogged = durability == Durability::None;
    let committed = match condition {
        CommitCondition::None => submit(engine, timer, batch, is_unlogged, None, check_trees)?,
        CommitCondition::Unchanged(check) => submit(engine, timer, batch, is_unlogged, Some(check), check_trees)?,
        CommitCondition::Exclusive(ticket) => {
            timer.has_led = true;
            conflict_window::commit_exclusive(engine, ticket, batch, is_unlogged, check_trees)?
        }
    };
    timer.delay = committed.delay;
    if durability == Durability::Sync {
        timer.time(engine, SlowCause::Sync, || sync_to(engine, committed.lsn))?;
    }
    if engine.settings.background_threads == 0 {
        (engine.maintenance.upcalls.run_inline)(engine, &mut |part, ns| timer.add(part, ns));
        backpressure::work_for_others(engine);
    }
    Ok(committed.sequence)
}

fn submit(
    engine: &Engine,
    timer: &mut CommitTimer,
    batch: PreparedBatch,
    is_unlogged: bool,
    check: Option<Box<Check>>,
    check_trees: impl Fn() -> Result<()>,
) -> Result<Committed> {
    let (mut waits_since_ns, mut parked_ns, mut queued_ns, has_led) = (None, 0, 0, Cell::new(false));
    let request = Request { batch, drops: 0, is_unlogged, check, validation: Validation::Unchanged };
    let prepare = |request: &mut Request| {
        if engine.commits.exclusivity.notices.load(Ordering::Relaxed) != 0 {
            conflict_window::apply_notices(engine, timer, &mut waits_since_ns)?;
        }
        // INVARIANT C3: a drop after this load changes the count.
        request.drops = engine.catalog.drops.load(Ordering::Acquire);
        check_trees()?;
        request.check.as_mut().map_or(Ok(()), |check| conflict_window::precheck(engine, timer, check))
    };
    let parks = |begins| match begins {
        true => parked_ns = engine.now_ns(),
        false => queued_ns += engine.now_ns().saturating_sub(parked_ns),
    };
    let lead = |group: &mut [Request], answer: &mut dyn FnMut(Result<Answer>)| {
        has_led.set(true);
        commit_group(engine, group, answer);
    };
    let committed = stages::submit(&engine.commits.queue, request, prepare, parks, lead);
    timer.add(SlowCause::Queue, queued_ns);
    timer.has_led = has_led.get();
    committed
}

pub fn sync_to(engine: &Engine, lsn: u64) -> Result<()> {
    let Some(wal) = &engine.log.wal else { return Ok(()) };
    let timed = engine.storage.limited.as_ref().filter(|limited| limited.goes_by_latency());
    let began_ns = timed.map_or(0, |_| engine.now_ns());
    let synced = engine.catch_panic("a sync", || wal.sync(lsn));
    timed.iter().for_each(|limited| limited.note_latency(engine.now_ns() - began_ns));
    let synced = synced.unwrap_or_else(|reason| Err(Error::ReadOnly { reason }));
    stages::after_sync(synced, &engine.log.watches, |e| {
        leave_marker(engine);
        engine.poison(e);
    })
}

/// Leaves a file that shows the next open that a sync has failed.
pub(in crate::db) fn leave_marker(engine: &Engine) {
    names::leave_marker(&*engine.storage.table.vfs, &engine.dir);
}

fn commit_group(engine: &Engine, group: &mut [Request], answer: &mut dyn FnMut(Result<Answer>)) {
    let write = lock_write(engine);
    let commit = |write: &mut WriteState, group: &mut [Request], drops| {
        let done = engine.catch_panic("a commit", || try_commit_group(engine, write, group, drops));
        let mut done = done.unwrap_or_else(|reason| Err(Error::CommitUnknown { reason }));
        if write.delay.is_any() {
            end_delay(engine, write, &mut done);
        }
        done
    };
    let (drops, closing) = (&engine.catalog.drops, &engine.health.closing);
    let is_to_part = |group: &[Request]| full_disk::is_to_part(engine, group);
    stages::lead(write, drops, closing, group, answer, commit, is_to_part);
}

/// Takes `write` for a commit, and notes if another caller held it.
#[inline]
pub(in crate::db) fn lock_write(engine: &Engine) -> MutexGuard<'_, WriteState> {
    if let Some(mut write) = engine.commits.write.try_lock() {
        // A group that was returned to its callers, or a load, may have left some.
        if write.delay.is_any() {
            write.delay = GroupDelay::default();
        }
        return write;
    }
    let began_ns = engine.now_ns();
    let mut write = engine.commits.write.lock();
    write.delay = GroupDelay::default();
    write.delay.add(SlowCause::Lock, engine.now_ns().saturating_sub(began_ns));
    write
}

/// Notes the waits of a commit group that has ended.
#[cold]
#[inline(never)]
pub(in crate::db) fn end_delay(engine: &Engine, write: &mut WriteState, done: &mut Result<Committed>) {
    let GroupDelay { parts, background, .. } = std::mem::take(&mut write.delay);
    let number = engine.commits.slow.note_delay(engine.now_ns(), parts, background);
    if let Ok(committed) = done {
        committed.delay = number;
    }
}

/// Commits the valid requests that saw `drops` trees dropped. Returns the first one's number
/// and the log's end.
pub(in crate::db) fn try_commit_group(
    engine: &Engine,
    write: &mut WriteState,
    group: &mut [Request],
    drops: u64,
) -> Result<Committed> {
    engine.health.check_writable()?;
    // INVARIANT C1: all three can fail, so they come before the validation.
    let is_logged = wal_bypass::prepare(engine, write, group)?;
    let state = make_room(engine, &mut write.delay)?;
    let wal = engine.log.wal.as_ref().ok_or(Error::Closed)?;
    let parts = Parts {
        window: &engine.commits.window,
        tree_ends: &engine.commits.tree_ends,
        wal,
        memtable: &state.active,
        functions: &engine.functions,
        snapshots: &engine.readers.snapshots,
        unlogged: &engine.commits.unlogged,
        runtime: &*engine.settings.runtime,
        poison: &|e| engine.poison(e),
    };
    let (rotated_ns, mut full_ns) = (wal.rotation_ns(), None);
    let applied = stages::commit(&parts, write, group, drops, is_logged, |group, log, e| {
        let (began_ns, is_full) = (engine.now_ns(), e.is_disk_full());
        let done = full_disk::log_with_reserve(engine, wal, group, log, e);
        full_ns = is_full.then(|| engine.now_ns().saturating_sub(began_ns));
        done
    });
    if wal.rotation_ns() != rotated_ns || full_ns.is_some() {
        note_log_delay(&mut write.delay, wal.rotation_ns() - rotated_ns, full_ns);
    }
    let Applied { first, count, user_bytes } = applied?;
    if count == 0 {
        return Ok(first);
    }
    engine.counters.note_commits(count, user_bytes);
    let is_committed = |request: &&Request| request.drops == drops && request.validation == Validation::Unchanged;
    engine.log.watches.wake_for(group.iter().filter(is_committed).map(|request| request.batch.bytes()));
    if wal.take_call_for_next() {
        engine.signal_work();
    }
    Ok(first)
}

#[cold]
fn note_log_delay(delay: &mut GroupDelay, rotation_ns: u64, full_ns: Option<u64>) {
    match full_ns {
        None => delay.add(SlowCause::Rotation, rotation_ns),
        // The retries rotate too.
        Some(full_ns) => delay.add(SlowCause::FullDisk, full_ns.max(rotation_ns)),
    }
}

/// Logs the rejected numbers as no-ops before the end of the log is archived, so that the next
/// open continues after them.
pub(in crate::db) fn log_refused(engine: &Engine) -> Result<()> {
    let mut write = engine.commits.write.lock();
    let Some(wal) = engine.log.wal.as_ref().filter(|_| write.unlogged == 0) else { return Ok(()) };
    match stages::report(wal, engine.settings.runtime.unix_time_us(), &mut write.refused) {
        Err(e) if e.is_disk_full() => Ok(()),
        outcome => outcome.inspect_err(|e| engine.poison(e)),
    }
}

/// Returns `commit`, or the last commit before the rejected numbers if it is one of them. After
/// a crash other commits get these numbers, and a resuming watcher must not miss them.
pub(in crate::db) fn before_refused(engine: &Engine, commit: SequenceNumber) -> SequenceNumber {
    let refused = engine.commits.write.lock().refused;
    refused.filter(|(first, last)| (*first..=*last).contains(&commit)).map_or(commit, |(first, _)| first - 1)
}

/// Returns a state with room in its active memtable, which remains active while the caller
/// holds `write`. May freeze a memtable, and waits while too many await their flush.
fn make_room(engine: &Engine, delay: &mut GroupDelay) -> Result<Guard<Arc<ReadState>>> {
    let state = engine.cell.state.load();
    match stages::room(state.active.bytes_used(), engine.settings.memtable_bytes(), || {
        engine.tenant.common.is_crowded()
    }) {
        Room::Enough => return Ok(state),
        Room::FreezeLargest => {
            drop(state);
            backpressure::freeze_largest(engine, delay)?;
        }
        Room::Freeze => {
            drop(state);
            backpressure::wait(engine, delay)?;
            backpressure::freeze(engine, delay);
        }
    }
    Ok(engine.cell.state.load())
}
