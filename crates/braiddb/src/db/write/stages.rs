//! The stages of a commit, each on the parts of a database that it uses, so that tests need no
//! database. `pipeline.rs` documents their order and INVARIANTS C1 to C3, and connects them to an
//! open database. The functions that take closures are inlined there: calls would slow each put.

use crate::{
    base::{EntryKind, Error, Result, SequenceNumber},
    codec::MergeFunctions,
    commit::{CommitQueue, NOTHING, SnapshotList, decode_group},
    db::{
        engine::{
            parts::commits::{Answer, Committed, Request, WriteState},
            wal_notify::Watches,
        },
        read::merge_operands::insert_operands,
    },
    memtable::Memtable,
    platform::Runtime,
    txn::{TreeEnds, Validation, Window},
    wal::{GroupHeader, Lsn, Wal},
};
use parking_lot::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Maximum bytes of a batch. A group with one of this size fits into a log record.
const BATCH_BYTES_MAX: usize = 1 << 31;

/// Maximum repetitions of a validation whose window was too short.
const CHECKS_MAX: usize = 64;

/// Maximum rejected sequence numbers to log as no-ops. More remain a gap.
const REFUSED_LOGGED_MAX: u64 = 1 << 24;

/// A commit group takes no further request once it exceeds this many bytes.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// Rejected sequence numbers, first and last.
pub type Refused = Option<(SequenceNumber, SequenceNumber)>;

/// The parts that the leader's stages use.
pub struct Parts<'a> {
    pub window: &'a Window,
    pub tree_ends: &'a TreeEnds,
    pub wal: &'a Wal,
    pub memtable: &'a Memtable,
    pub functions: &'a MergeFunctions,
    pub snapshots: &'a SnapshotList,
    /// The last commit without WAL.
    pub unlogged: &'a AtomicU64,
    pub runtime: &'a dyn Runtime,
    /// Refuses writes from now on.
    pub poison: &'a dyn Fn(&Error),
}

/// A group's commits, visible unless a load holds them back.
#[derive(Clone, Copy, Debug)]
pub struct Applied {
    pub first: Committed,
    /// 0 if the group had no valid request.
    pub count: u64,
    pub user_bytes: u64,
}

/// Valid requests of a group with their sequence numbers.
struct Numbered<'a> {
    first: SequenceNumber,
    last: SequenceNumber,
    count: u64,
    payload: &'a [u8],
    user_bytes: u64,
}

/// Work of the leader on a group before it changes the memtable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Enough,
    /// Databases that share their memory freeze the largest memtables.
    FreezeLargest,
    Freeze,
}

pub fn changed() -> Error {
    Error::conflict("what it has read was written by another since")
}

pub fn outlived() -> Error {
    Error::conflict(
        "so much was committed meanwhile that it is not known any more whether what it has read is still so",
    )
}

/// Refuses a batch that no log record holds.
pub fn check_len(len: usize) -> Result<()> {
    if len > BATCH_BYTES_MAX {
        return Err(Error::InvalidArgument(format!("a batch of {len} bytes; the most is {BATCH_BYTES_MAX}")));
    }
    Ok(())
}

/// Decides where a group finds room in memory.
#[inline]
pub fn room(active_bytes: usize, memtable_bytes: usize, is_crowded: impl FnOnce() -> bool) -> Room {
    match active_bytes < memtable_bytes {
        true if is_crowded() => Room::FreezeLargest,
        true => Room::Enough,
        false => Room::Freeze,
    }
}

/// Submits a request until it is committed or fails. `prepare` runs before each submission. For
/// `parks` see [`CommitQueue::submit`].
#[inline(always)]
pub fn submit(
    queue: &CommitQueue<Request, Result<Answer>>,
    mut request: Request,
    mut prepare: impl FnMut(&mut Request) -> Result<()>,
    mut parks: impl FnMut(bool),
    lead: impl Fn(&mut [Request], &mut dyn FnMut(Result<Answer>)),
) -> Result<Committed> {
    let mut checks = 0;
    loop {
        prepare(&mut request)?;
        let size_bytes = |request: &Request| request.batch.bytes().len();
        let answer = queue.submit(request, GROUP_BYTES_MAX, size_bytes, &mut parks, &lead);
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

/// Commits a group under `write` by `commit`, except requests with conflicts or from before the last tree drop,
/// and answers each request. `is_to_part` decides if a full disk retries the group's deletes alone.
#[inline(always)]
pub fn lead(
    mut write: MutexGuard<'_, WriteState>,
    drops: &AtomicU64,
    closing: &AtomicBool,
    group: &mut [Request],
    answer: &mut dyn FnMut(Result<Answer>),
    commit: impl FnOnce(&mut WriteState, &mut [Request], u64) -> Result<Committed>,
    is_to_part: impl FnOnce(&[Request]) -> bool,
) {
    if write.exclusive.is_some() && !closing.load(Ordering::Acquire) {
        drop(write);
        // Each request waits in its own thread: INVARIANT X1 in `conflict_window.rs`.
        group.iter_mut().for_each(|request| answer(Ok(Answer::Retry(std::mem::take(request)))));
        return;
    }
    let drops = drops.load(Ordering::Acquire);
    let done = commit(&mut write, group, drops);
    drop(write);
    let is_mixed = done.as_ref().is_err_and(Error::is_disk_full) && is_to_part(group);
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
            Ok(first) => Ok(Answer::Committed(Committed { sequence: first.sequence + committed, ..*first })),
            Err(e) => Err(e.duplicate()),
        });
        committed += 1;
    }
}

/// Runs the leader's stages on a group with room in the memtable. `retry` may repeat an append that
/// failed; it gets the group, the append and its error.
#[inline(always)]
pub fn commit(
    parts: &Parts<'_>,
    write: &mut WriteState,
    group: &mut [Request],
    drops: u64,
    is_logged: bool,
    retry: impl FnOnce(&[u8], &mut dyn FnMut() -> Result<Lsn>, Error) -> Result<Lsn>,
) -> Result<Applied> {
    let WriteState { last_sequence, refused, payload, unlogged, holds_back, .. } = write;
    if parts.window.is_open() {
        admit(parts.window, *last_sequence, group, drops);
    }
    let Some(numbered) = number(last_sequence, payload, group, drops) else {
        let first = Committed { sequence: *last_sequence, lsn: 0, delay: 0 };
        return Ok(Applied { first, count: 0, user_bytes: 0 });
    };
    let lsn = match is_logged {
        true => append(parts, &numbered, refused, retry)?,
        false => 0,
    };
    if !is_logged {
        *unlogged = numbered.last;
        // Before the commits are visible: a thread that makes its reads durable must know that
        // the log lacks them.
        parts.unlogged.store(numbered.last, Ordering::Release);
    }
    parts.tree_ends.note(numbered.payload);
    apply(parts.memtable, parts.functions, numbered.payload, numbered.first);
    if !*holds_back {
        parts.snapshots.publish(numbered.last);
    }
    let first = Committed { sequence: numbered.first, lsn, delay: 0 };
    Ok(Applied { first, count: numbered.count, user_bytes: numbered.user_bytes })
}

/// Validates the requests in order, and notes their writes in the window.
#[cold]
fn admit(window: &Window, mut last: SequenceNumber, group: &mut [Request], drops: u64) {
    window.close_if_idle();
    for request in group.iter_mut().filter(|request| request.drops == drops) {
        if let Some(check) = &request.check {
            request.validation = match check.upto == last {
                true => Validation::Unchanged,
                false => window.check(&check.reads, check.upto),
            };
            if request.validation != Validation::Unchanged {
                continue;
            }
        }
        last += 1;
        if window.is_open() {
            window.note(last, request.batch.bytes());
        }
    }
}

/// Gives the valid requests their sequence numbers, and joins their batches. The numbers are used
/// even if the log rejects the group (INVARIANT C1).
fn number<'a>(
    last_sequence: &mut SequenceNumber,
    payload: &'a mut Vec<u8>,
    group: &'a [Request],
    drops: u64,
) -> Option<Numbered<'a>> {
    let mut user_bytes = 0;
    let is_current = |request: &&Request| request.drops == drops && request.validation == Validation::Unchanged;
    let current = group.iter().filter(is_current);
    let mut current = current.inspect(|request| user_bytes += request.batch.user_bytes);
    let (payload, count): (&[u8], u64) = match (current.next(), current.next()) {
        (None, _) => return None,
        (Some(only), None) => (only.batch.bytes(), 1),
        (Some(first), Some(second)) => {
            payload.clear();
            let all = [first, second].into_iter().chain(current);
            let count = all.map(|request| payload.extend_from_slice(request.batch.bytes())).count();
            (payload, count as u64)
        }
    };
    let first = *last_sequence + 1;
    *last_sequence += count;
    Some(Numbered { first, last: *last_sequence, count, payload, user_bytes })
}

/// Appends a group as one record.
fn append(
    parts: &Parts<'_>,
    numbered: &Numbered<'_>,
    refused: &mut Refused,
    retry: impl FnOnce(&[u8], &mut dyn FnMut() -> Result<Lsn>, Error) -> Result<Lsn>,
) -> Result<Lsn> {
    let Numbered { first, last, payload, .. } = *numbered;
    let header =
        GroupHeader { first_sequence: first, last_sequence: last, commit_time_us: parts.runtime.unix_time_us() };
    log(parts.wal, &header, payload, refused)
        .or_else(|e| retry(payload, &mut || log(parts.wal, &header, payload, refused), e))
        .inspect_err(|e| match e.is_disk_full() {
            // The window may have notes under these numbers, so new transactions need later
            // snapshots.
            true => {
                note_refused(refused, first, last);
                parts.snapshots.publish(last);
            }
            false => (parts.poison)(e),
        })
}

/// Appends a group, after no-ops for rejected numbers: log readers must find no gap there.
fn log(wal: &Wal, header: &GroupHeader, payload: &[u8], refused: &mut Refused) -> Result<Lsn> {
    report(wal, header.commit_time_us, refused)?;
    wal.append(header, payload)
}

/// Notes rejected numbers for [`report`]. Loses an earlier range that is not adjacent.
pub fn note_refused(refused: &mut Refused, first: SequenceNumber, last: SequenceNumber) {
    let before = refused.filter(|(_, end)| end + 1 == first);
    *refused = Some((before.map_or(first, |(start, _)| start), last));
}

/// Logs the rejected numbers as no-ops. Do not call this between commits without WAL and their
/// marker: a log reader that has seen the no-ops would not notice the missing commits.
pub fn report(wal: &Wal, commit_time_us: u64, refused: &mut Refused) -> Result<()> {
    if let Some((first_sequence, last_sequence)) = *refused {
        let len = (last_sequence - first_sequence + 1).min(REFUSED_LOGGED_MAX);
        let header = GroupHeader { first_sequence, last_sequence: first_sequence + len - 1, commit_time_us };
        wal.append(&header, &vec![NOTHING; len as usize])?;
        *refused = None;
    }
    Ok(())
}

/// Adds the entries of a group to the memtable.
fn apply(memtable: &Memtable, functions: &MergeFunctions, payload: &[u8], first_sequence: SequenceNumber) {
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

/// Ends a sync of the log: wakes watchers of durable commits, or calls `fail`.
pub fn after_sync(synced: Result<Lsn>, watches: &Watches, fail: impl FnOnce(&Error)) -> Result<()> {
    match synced {
        Ok(_) => {
            watches.wake_synced();
            Ok(())
        }
        Err(e) => {
            fail(&e);
            Err(Error::CommitUnknown { reason: e.to_string() })
        }
    }
}
