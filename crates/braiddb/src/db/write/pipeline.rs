//! Writing: from a prepared batch to a published commit.

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
        files::names::leave_marker,
        read::merge_operands::insert_operands,
    },
    memtable::Memtable,
    read::ReadState,
    txn::{Check, Validation},
    wal::{GroupHeader, Lsn, Wal},
};
use arc_swap::Guard;
use std::sync::{Arc, atomic::Ordering};

/// The most bytes of a batch, blobs not counted. A group with it stays below what a log record can hold.
const BATCH_BYTES_MAX: usize = 1 << 31;

/// How often a commit is sent back to have its terms looked at again.
const CHECKS_MAX: usize = 64;

/// Of so many commits that the log had no space for it is told, at most.
const REFUSED_TOLD_MAX: u64 = 1 << 24;

/// The most bytes of a commit group.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// On what terms a batch is committed.
#[derive(Debug)]
pub enum CommitCondition {
    /// None.
    None,
    /// If what was read has not been written since.
    Unchanged(Box<Check>),
    /// By the exclusive transaction that has this ticket.
    Exclusive(u64),
}

/// What is told of a transaction that others were in the way of.
pub fn changed() -> Error {
    Error::conflict("what it has read was written by another since")
}

/// What is told of one that cannot be checked.
pub fn outlived() -> Error {
    Error::conflict(
        "so much was committed meanwhile that it is not known any more whether what it has read is still so",
    )
}

impl Engine {
    /// Commits a prepared batch to trees that nobody else can drop. `Ok` means what `durability` promises.
    pub fn commit(&self, batch: PreparedBatch, durability: Durability) -> Result<SequenceNumber> {
        self.commit_checked(batch, durability, CommitCondition::None, || Ok(()))
    }

    /// Commits a prepared batch on these terms, if `check_trees` says that its trees have not been dropped by the time of the
    /// commit.
    pub fn commit_checked(
        &self,
        batch: PreparedBatch,
        durability: Durability,
        condition: CommitCondition,
        check_trees: impl Fn() -> Result<()>,
    ) -> Result<SequenceNumber> {
        self.health.check_writable()?;
        if batch.operations == 0 {
            return Ok(self.readers.snapshots.visible());
        }
        let len = batch.bytes().len();
        if len > BATCH_BYTES_MAX {
            return Err(Error::InvalidArgument(format!("a batch of {len} bytes; the most is {BATCH_BYTES_MAX}")));
        }
        if !self.maintenance.pressure.is_calm() {
            self.feel_pressure(&batch)?;
        }
        let is_unlogged = durability == Durability::None;
        let committed = match condition {
            CommitCondition::None => self.submit(batch, is_unlogged, None, check_trees)?,
            CommitCondition::Unchanged(check) => self.submit(batch, is_unlogged, Some(check), check_trees)?,
            CommitCondition::Exclusive(ticket) => self.commit_alone(ticket, batch, is_unlogged, check_trees)?,
        };
        if durability == Durability::Sync {
            self.sync_to(committed.lsn)?;
        }
        if self.settings.background_threads == 0 {
            self.run_inline();
            self.work_for_others();
        }
        Ok(committed.sequence)
    }

    fn submit(
        &self,
        batch: PreparedBatch,
        is_unlogged: bool,
        check: Option<Box<Check>>,
        check_trees: impl Fn() -> Result<()>,
    ) -> Result<Committed> {
        let mut waits_since_ns = None;
        let mut request = Request { batch, drops: 0, is_unlogged, check, validation: Validation::Unchanged };
        let mut checks = 0;
        loop {
            if self.commits.exclusivity.notices.load(Ordering::Relaxed) != 0 {
                self.heed_notices(&mut waits_since_ns)?;
            }
            // Before the look at the trees: a drop after it changes the count.
            request.drops = self.catalog.drops.load(Ordering::Acquire);
            check_trees()?;
            if let Some(check) = &mut request.check {
                self.look_ahead(check)?;
            }
            let size_bytes = |request: &Request| request.batch.bytes().len();
            let commit = |group: &mut [Request], answer: &mut dyn FnMut(_)| self.commit_group(group, answer);
            let answer = self.commits.queue.submit(request, GROUP_BYTES_MAX, size_bytes, commit);
            let abandoned =
                || Err(Error::CommitUnknown { reason: "the thread that led the commit panicked".to_owned() });
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

    /// Makes everything logged before `lsn` survive a power failure.
    pub fn sync_to(&self, lsn: u64) -> Result<()> {
        let Some(wal) = &self.log.wal else { return Ok(()) };
        let timed = self.storage.limited.as_ref().filter(|limited| limited.goes_by_latency());
        let began_ns = timed.map_or(0, |_| self.now_ns());
        let synced = self.catch_panic("a sync", || wal.sync(lsn));
        timed.iter().for_each(|limited| limited.note_latency(self.now_ns() - began_ns));
        match synced.unwrap_or_else(|reason| Err(Error::ReadOnly { reason })) {
            Ok(_) => {
                self.log.watches.wake_if_waiting_anywhere();
                Ok(())
            }
            Err(e) => {
                self.leave_marker();
                self.poison(&e);
                Err(Error::CommitUnknown { reason: e.to_string() })
            }
        }
    }

    /// Leaves word for the next open that a sync has failed.
    pub(in crate::db) fn leave_marker(&self) {
        leave_marker(&*self.storage.table.vfs, &self.dir);
    }

    /// Commits a group. Requests that were made before the last tree was dropped are not in it, nor are those whose terms are
    /// not met.
    fn commit_group(&self, group: &mut [Request], answer: &mut dyn FnMut(Result<Answer>)) {
        let mut write = self.commits.write.lock();
        if write.exclusive.is_some() && !self.health.closing.load(Ordering::Acquire) {
            drop(write);
            // Each of them waits by itself: INVARIANT X1 in `transacting.rs`.
            group.iter_mut().for_each(|request| answer(Ok(Answer::Retry(std::mem::take(request)))));
            return;
        }
        let drops = self.catalog.drops.load(Ordering::Acquire);
        let done = self.catch_panic("a commit", || self.try_commit_group(&mut write, group, drops));
        let done = done.unwrap_or_else(|reason| Err(Error::CommitUnknown { reason }));
        drop(write);
        let is_mixed = done.as_ref().is_err_and(Error::is_disk_full) && self.is_to_part(group);
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

    /// Looks at the terms of a group's requests, in order, each against all commits before it, those of the group included;
    /// and notes what they write.
    #[cold]
    fn admit(&self, mut last: SequenceNumber, group: &mut [Request], drops: u64) {
        self.commits.window.close_if_idle();
        for request in group.iter_mut().filter(|request| request.drops == drops) {
            if let Some(check) = &request.check {
                request.validation = match check.upto == last {
                    true => Validation::Unchanged,
                    false => self.commits.window.look(&check.reads, check.upto),
                };
                if request.validation != Validation::Unchanged {
                    continue;
                }
            }
            last += 1;
            if self.commits.window.is_open() {
                self.commits.window.note(last, request.batch.bytes());
            }
        }
    }

    /// Commits those requests of a group that saw so many trees dropped and whose terms are met; the first one's number, and
    /// where the log then ends.
    pub(in crate::db) fn try_commit_group(
        &self,
        write: &mut WriteState,
        group: &mut [Request],
        drops: u64,
    ) -> Result<Committed> {
        self.health.check_writable()?;
        // All three before commits are noted in the window: a number that is noted must be used up.
        let is_logged = self.prepare_for(write, group)?;
        let state = self.make_room()?;
        let wal = self.log.wal.as_ref().ok_or(Error::Closed)?;
        let WriteState { last_sequence, refused, payload, unlogged, holds_back, .. } = write;
        if self.commits.window.is_open() {
            self.admit(*last_sequence, group, drops);
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
        // Numbers are used up even if the log cannot take the group.
        *last_sequence += count;
        let header = GroupHeader {
            first_sequence,
            last_sequence: *last_sequence,
            commit_time_us: self.settings.runtime.unix_time_us(),
        };
        let lsn = match is_logged {
            true => log(wal, &header, payload, refused)
                .or_else(|e| self.log_with_reserve(wal, payload, || log(wal, &header, payload, refused), e))
                .inspect_err(|e| match e.is_disk_full() {
                    // Nothing stands under these numbers, but the window may have them: who begins now must not look for them.
                    true => {
                        note_refused(refused, first_sequence, *last_sequence);
                        self.readers.snapshots.publish(*last_sequence);
                    }
                    false => self.poison(e),
                })?,
            false => 0,
        };
        if !is_logged {
            *unlogged = *last_sequence;
            // Before anything of it can be seen: who makes durable what it has seen must know that the log lacks it.
            self.commits.unlogged.store(*last_sequence, Ordering::Release);
        }
        insert(&state.active, &self.functions, payload, first_sequence);
        if !*holds_back {
            self.readers.snapshots.publish(*last_sequence);
        }
        self.counters.note_commits(count, user_bytes);
        // Here, while the right to write is held: see `Watches`.
        self.log.watches.wake_if_waiting();
        if wal.take_call_for_next() {
            self.signal_work();
        }
        Ok(Committed { sequence: first_sequence, lsn })
    }

    /// Has the log tell of the commits that it has refused, before it is archived to its end: the next opening goes on after their numbers. Where it has no
    /// space yet, they are a gap.
    pub(in crate::db) fn tell_of_refused(&self) -> Result<()> {
        let mut write = self.commits.write.lock();
        let Some(wal) = self.log.wal.as_ref().filter(|_| write.unlogged == 0) else { return Ok(()) };
        match tell(wal, self.settings.runtime.unix_time_us(), &mut write.refused) {
            Err(e) if e.is_disk_full() => Ok(()),
            told => told.inspect_err(|e| self.poison(e)),
        }
    }

    /// The last commit at or before this number that is not one of those that the log refused and does not tell of yet: a crash gives
    /// their numbers to others, which whoever watches from there on must not miss.
    pub(in crate::db) fn before_refused(&self, commit: SequenceNumber) -> SequenceNumber {
        let refused = self.commits.write.lock().refused;
        refused.filter(|(first, last)| (*first..=*last).contains(&commit)).map_or(commit, |(first, _)| first - 1)
    }

    /// Freezes the active memtable if it is full, or takes too much of what databases share; and waits while too many wait for their flush. Gives a state whose active
    /// memtable has room; it is the active one as long as the caller has `write`.
    fn make_room(&self) -> Result<Guard<Arc<ReadState>>> {
        let state = self.cell.state.load();
        if state.active.bytes_used() < self.settings.memtable_bytes() {
            if !self.tenant.common.is_crowded() {
                return Ok(state);
            }
            drop(state);
            self.freeze_largest()?;
            return Ok(self.cell.state.load());
        }
        drop(state);
        self.wait_for_flush()?;
        self.freeze();
        Ok(self.cell.state.load())
    }
}

/// Has the log take a group; and before it, where it has refused some, as many batches that do nothing: who reads the log later must not
/// believe that it lacks something there.
fn log(
    wal: &Wal,
    header: &GroupHeader,
    payload: &[u8],
    refused: &mut Option<(SequenceNumber, SequenceNumber)>,
) -> Result<Lsn> {
    tell(wal, header.commit_time_us, refused)?;
    wal.append(header, payload)
}

/// Notes numbers that no commit has, for [`tell`].
pub(in crate::db) fn note_refused(
    refused: &mut Option<(SequenceNumber, SequenceNumber)>,
    first: SequenceNumber,
    last: SequenceNumber,
) {
    let before = refused.filter(|(_, end)| end + 1 == first);
    *refused = Some((before.map_or(first, |(start, _)| start), last));
}

/// Has the log tell of the commits that it has refused. Between commits that do not go through the log and the marker that tells of them there is no
/// place for that: who has read up to there would not miss them.
fn tell(wal: &Wal, commit_time_us: u64, refused: &mut Option<(SequenceNumber, SequenceNumber)>) -> Result<()> {
    if let Some((first_sequence, last_sequence)) = *refused {
        // More than these are not told of, and are a gap.
        let len = (last_sequence - first_sequence + 1).min(REFUSED_TOLD_MAX);
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
