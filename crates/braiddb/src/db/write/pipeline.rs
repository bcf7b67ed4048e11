//! The commit pipeline: from a prepared batch to a published, durable commit.
//!
//! Many threads commit at the same time. Log, memtable and visible sequence number must agree on
//! one order, and one append and one sync should serve many commits. So one caller leads: it
//! commits a group of queued requests under the lock `write`, and the others wait.
//!
//! # Stages
//!
//! - Prepare, in the caller's thread: `commit_checked` checks the batch's length and throttles
//!   (`check_pressure`). `submit` waits for an exclusive transaction to end (`apply_notices`), checks
//!   the trees, validates the reads in advance (`precheck`), and queues the request.
//! - Prepare, by the leader: `commit_group` takes `write` and calls `try_commit_group`.
//!   `wal_bypass::prepare` decides if the group goes to the log. `make_room` freezes a full
//!   memtable.
//! - Validate: `admit` checks each request's reads against earlier commits, those of the group
//!   included, and notes its writes in the conflict window. It runs only while the window is open.
//! - Append: `log` appends the group to the WAL as one record; `log_with_reserve` retries on a full
//!   disk. A group without WAL skips this stage.
//! - Apply: `insert` adds the entries to the active memtable.
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

use super::{backpressure, conflict_window, full_disk, wal_bypass};
use crate::{
    base::{EntryKind, Error, Result, SequenceNumber},
    codec::MergeFunctions,
    commit::{NOTHING, PreparedBatch, decode_group},
    db::{
        engine::{
            parts::commits::{Answer, Committed, Request, WriteState},
            root::Engine,
            settings::Durability,
        },
        files::names,
        read::merge_operands::insert_operands,
    },
    memtable::Memtable,
    read::ReadState,
    txn::{Check, Validation},
    wal::{GroupHeader, Lsn, Wal},
};
use arc_swap::Guard;
use std::sync::{Arc, atomic::Ordering};

/// A group with a batch of this size fits into a log record.
const BATCH_BYTES_MAX: usize = 1 << 31;

/// Maximum repetitions of a validation whose window was too short.
const CHECKS_MAX: usize = 64;

/// Maximum rejected sequence numbers to log as no-ops. More remain a gap.
const REFUSED_LOGGED_MAX: u64 = 1 << 24;

/// A commit group takes no further request once it exceeds this many bytes.
const GROUP_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub enum CommitCondition {
    None,
    /// Fails if a later commit has written the reads.
    Unchanged(Box<Check>),
    /// Requires the exclusive transaction with this ticket.
    Exclusive(u64),
}

pub fn changed() -> Error {
    Error::conflict("what it has read was written by another since")
}

pub fn outlived() -> Error {
    Error::conflict(
        "so much was committed meanwhile that it is not known any more whether what it has read is still so",
    )
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
    engine.health.check_writable()?;
    if batch.operations == 0 {
        return Ok(engine.readers.snapshots.visible());
    }
    let len = batch.bytes().len();
    if len > BATCH_BYTES_MAX {
        return Err(Error::InvalidArgument(format!("a batch of {len} bytes; the most is {BATCH_BYTES_MAX}")));
    }
    if !engine.maintenance.pressure.is_calm() {
        full_disk::check_pressure(engine, &batch)?;
    }
    let is_unlogged = durability == Durability::None;
    let committed = match condition {
        CommitCondition::None => submit(engine, batch, is_unlogged, None, check_trees)?,
        CommitCondition::Unchanged(check) => submit(engine, batch, is_unlogged, Some(check), check_trees)?,
        CommitCondition::Exclusive(ticket) => {
            conflict_window::commit_exclusive(engine, ticket, batch, is_unlogged, check_trees)?
        }
    };
    if durability == Durability::Sync {
        sync_to(engine, committed.lsn)?;
    }
    if engine.settings.background_threads == 0 {
        (engine.maintenance.upcalls.run_inline)(engine);
        backpressure::work_for_others(engine);
    }
    Ok(committed.sequence)
}

fn submit(
    engine: &Engine,
    batch: PreparedBatch,
    is_unlogged: bool,
    check: Option<Box<Check>>,
    check_trees: impl Fn() -> Result<()>,
) -> Result<Committed> {
    let mut waits_since_ns = None;
    let mut request = Request { batch, drops: 0, is_unlogged, check, validation: Validation::Unchanged };
    let mut checks = 0;
    loop {
        if engine.commits.exclusivity.notices.load(Ordering::Relaxed) != 0 {
            conflict_window::apply_notices(engine, &mut waits_since_ns)?;
        }
        // INVARIANT C3: a drop after this load changes the count.
        request.drops = engine.catalog.drops.load(Ordering::Acquire);
        check_trees()?;
        if let Some(check) = &mut request.check {
            conflict_window::precheck(engine, check)?;
        }
        let size_bytes = |request: &Request| request.batch.bytes().len();
        let commit = |group: &mut [Request], answer: &mut dyn FnMut(_)| commit_group(engine, group, answer);
        let answer = engine.commits.queue.submit(request, GROUP_BYTES_MAX, size_bytes, commit);
        let abandoned = || Err(Error::CommitUnknown { reason: "the thread that led the commit panicked".to_owned() });
        match answer.unwrap_or_else(abandoned)? {
            Answer::Committed(committed) => return Ok(committed),
            Answer::Retry(again) => request = again,
            Answer::TooOld(again) if checks < CHECKS_MAX => {
                checks += 1;
                request = Request { validation: Validation::Unchanged, ..again };
            }
            Answer::TooOld(_) => return Err(outlived()),
            Answer::Changed => return Err(changed()),
        }
    }
}

pub fn sync_to(engine: &Engine, lsn: u64) -> Result<()> {
    let Some(wal) = &engine.log.wal else { return Ok(()) };
    let timed = engine.storage.limited.as_ref().filter(|limited| limited.goes_by_latency());
    let began_ns = timed.map_or(0, |_| engine.now_ns());
    let synced = engine.catch_panic("a sync", || wal.sync(lsn));
    timed.iter().for_each(|limited| limited.note_latency(engine.now_ns() - began_ns));
    match synced.unwrap_or_else(|reason| Err(Error::ReadOnly { reason })) {
        Ok(_) => {
            engine.log.watches.wake_if_waiting_anywhere();
            Ok(())
        }
        Err(e) => {
            leave_marker(engine);
            engine.poison(&e);
            Err(Error::CommitUnknown { reason: e.to_string() })
        }
    }
}

/// Leaves a file that shows the next open that a sync has failed.
pub(in crate::db) fn leave_marker(engine: &Engine) {
    names::leave_marker(&*engine.storage.table.vfs, &engine.dir);
}

/// Commits a group, except requests with conflicts or from before the last tree drop.
fn commit_group(engine: &Engine, group: &mut [Request], answer: &mut dyn FnMut(Result<Answer>)) {
    let mut write = engine.commits.write.lock();
    if write.exclusive.is_some() && !engine.health.closing.load(Ordering::Acquire) {
        drop(write);
        // Each request waits in its own thread: INVARIANT X1 in `conflict_window.rs`.
        group.iter_mut().for_each(|request| answer(Ok(Answer::Retry(std::mem::take(request)))));
        return;
    }
    let drops = engine.catalog.drops.load(Ordering::Acquire);
    let done = engine.catch_panic("a commit", || try_commit_group(engine, &mut write, group, drops));
    let done = done.unwrap_or_else(|reason| Err(Error::CommitUnknown { reason }));
    drop(write);
    let is_mixed = done.as_ref().is_err_and(Error::is_disk_full) && full_disk::is_to_part(engine, group);
    let mut committed = 0;
    for request in group {
        if request.drops != drops || is_mixed && request.batch.frees_space() {
            answer(Ok(Answer::Retry(std::mem::take(request))));
            continue;
        }
        match request.validation {
            Validation::Unchanged => {}
            Validation::Changed => {
                answer(Ok(Answer::Changed));
                continue;
            }
            Validation::TooOld => {
                answer(Ok(Answer::TooOld(std::mem::take(request))));
                continue;
            }
        }
        answer(match &done {
            Ok(Committed { sequence, lsn }) => {
                Ok(Answer::Committed(Committed { sequence: sequence + committed, lsn: *lsn }))
            }
            Err(e) => Err(e.duplicate()),
        });
        committed += 1;
    }
}

/// Validates the requests in order, and notes their writes in the window.
#[cold]
fn admit(engine: &Engine, mut last: SequenceNumber, group: &mut [Request], drops: u64) {
    engine.commits.window.close_if_idle();
    for request in group.iter_mut().filter(|request| request.drops == drops) {
        if let Some(check) = &request.check {
            request.validation = match check.upto == last {
                true => Validation::Unchanged,
                false => engine.commits.window.check(&check.reads, check.upto),
            };
            if request.validation != Validation::Unchanged {
                continue;
            }
        }
        last += 1;
        if engine.commits.window.is_open() {
            engine.commits.window.note(last, request.batch.bytes());
        }
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
    // INVARIANT C1: all three can fail, so they come before `admit`.
    let is_logged = wal_bypass::prepare(engine, write, group)?;
    let state = make_room(engine)?;
    let wal = engine.log.wal.as_ref().ok_or(Error::Closed)?;
    let WriteState { last_sequence, refused, payload, unlogged, holds_back, .. } = write;
    if engine.commits.window.is_open() {
        admit(engine, *last_sequence, group, drops);
    }
    let mut user_bytes = 0;
    let is_current = |request: &&Request| request.drops == drops && request.validation == Validation::Unchanged;
    let current = group.iter().filter(is_current);
    let mut current = current.inspect(|request| user_bytes += request.batch.user_bytes);
    let (payload, count): (&[u8], u64) = match (current.next(), current.next()) {
        (None, _) => return Ok(Committed { sequence: *last_sequence, lsn: 0 }),
        (Some(only), None) => (only.batch.bytes(), 1),
        (Some(first), Some(second)) => {
            payload.clear();
            let all = [first, second].into_iter().chain(current);
            let count = all.map(|request| payload.extend_from_slice(request.batch.bytes())).count();
            (payload, count as u64)
        }
    };
    let first_sequence = *last_sequence + 1;
    // Also if the log rejects the group (INVARIANT C1).
    *last_sequence += count;
    let header = GroupHeader {
        first_sequence,
        last_sequence: *last_sequence,
        commit_time_us: engine.settings.runtime.unix_time_us(),
    };
    let lsn = match is_logged {
        true => log(wal, &header, payload, refused)
            .or_else(|e| full_disk::log_with_reserve(engine, wal, payload, || log(wal, &header, payload, refused), e))
            .inspect_err(|e| match e.is_disk_full() {
                // The window may have notes under these numbers, so new transactions need later
                // snapshots.
                true => {
                    note_refused(refused, first_sequence, *last_sequence);
                    engine.readers.snapshots.publish(*last_sequence);
                }
                false => engine.poison(e),
            })?,
        false => 0,
    };
    if !is_logged {
        *unlogged = *last_sequence;
        // Before the commits are visible: a thread that makes its reads durable must know that
        // the log lacks them.
        engine.commits.unlogged.store(*last_sequence, Ordering::Release);
    }
    insert(&state.active, &engine.functions, payload, first_sequence);
    if !*holds_back {
        engine.readers.snapshots.publish(*last_sequence);
    }
    engine.counters.note_commits(count, user_bytes);
    engine.log.watches.wake_if_waiting();
    if wal.take_call_for_next() {
        engine.signal_work();
    }
    Ok(Committed { sequence: first_sequence, lsn })
}

/// Logs the rejected numbers as no-ops before the end of the log is archived, so that the next
/// open continues after them.
pub(in crate::db) fn log_refused(engine: &Engine) -> Result<()> {
    let mut write = engine.commits.write.lock();
    let Some(wal) = engine.log.wal.as_ref().filter(|_| write.unlogged == 0) else { return Ok(()) };
    match report(wal, engine.settings.runtime.unix_time_us(), &mut write.refused) {
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
fn make_room(engine: &Engine) -> Result<Guard<Arc<ReadState>>> {
    let state = engine.cell.state.load();
    if state.active.bytes_used() < engine.settings.memtable_bytes() {
        if !engine.tenant.common.is_crowded() {
            return Ok(state);
        }
        drop(state);
        backpressure::freeze_largest(engine)?;
        return Ok(engine.cell.state.load());
    }
    drop(state);
    backpressure::wait(engine)?;
    engine.freeze();
    Ok(engine.cell.state.load())
}

/// Appends a group, after no-ops for rejected numbers: log readers must find no gap there.
fn log(
    wal: &Wal,
    header: &GroupHeader,
    payload: &[u8],
    refused: &mut Option<(SequenceNumber, SequenceNumber)>,
) -> Result<Lsn> {
    report(wal, header.commit_time_us, refused)?;
    wal.append(header, payload)
}

/// Notes rejected numbers for [`report`]. Loses an earlier range that is not adjacent.
pub(in crate::db) fn note_refused(
    refused: &mut Option<(SequenceNumber, SequenceNumber)>,
    first: SequenceNumber,
    last: SequenceNumber,
) {
    let before = refused.filter(|(_, end)| end + 1 == first);
    *refused = Some((before.map_or(first, |(start, _)| start), last));
}

/// Logs the rejected numbers as no-ops. Do not call this between commits without WAL and their
/// marker: a log reader that has seen the no-ops would not notice the missing commits.
fn report(wal: &Wal, commit_time_us: u64, refused: &mut Option<(SequenceNumber, SequenceNumber)>) -> Result<()> {
    if let Some((first_sequence, last_sequence)) = *refused {
        let len = (last_sequence - first_sequence + 1).min(REFUSED_LOGGED_MAX);
        let header = GroupHeader { first_sequence, last_sequence: first_sequence + len - 1, commit_time_us };
        wal.append(&header, &vec![NOTHING; len as usize])?;
        *refused = None;
    }
    Ok(())
}

fn insert(memtable: &Memtable, functions: &MergeFunctions, payload: &[u8], first_sequence: SequenceNumber) {
    let mut writer = memtable.writer();
    let decoded = decode_group(payload, |batch, op| {
        let sequence = first_sequence + batch;
        match op.kind {
            EntryKind::RangeDelete => writer.insert_range_tombstone(op.range_tombstone(sequence)),
            EntryKind::Merge => insert_operands(memtable, &mut writer, functions, &op, sequence),
            _ => writer.insert(op.key, sequence, op.kind, op.value),
        }
    });
    assert!(decoded.is_some(), "a prepared batch can be decoded");
}
