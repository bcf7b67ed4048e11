//! Writing: from a prepared batch to a published commit.

use super::settings::Durability;
use super::{
    core::{Answer, Committed, Core, Request, WriteState},
    open::SYNC_FAILED_NAME,
};
use crate::{
    base::{EntryKind, Error, Result, SequenceNumber},
    commit::{PreparedBatch, decode_group},
    memtable::Memtable,
    platform::OpenMode,
    read::ReadState,
    wal::GroupHeader,
};
use arc_swap::Guard;
use std::sync::{Arc, atomic::Ordering};

/// The most bytes of a batch, blobs not counted. A group with it stays below what a log record can hold.
const BATCH_BYTES_MAX: usize = 1 << 31;

/// The most bytes of a commit group.
const GROUP_BYTES_MAX: usize = 1 << 20;

impl Core {
    /// Commits a prepared batch to trees that nobody else can drop. `Ok` means what `durability` promises.
    pub fn commit(&self, batch: PreparedBatch, durability: Durability) -> Result<SequenceNumber> {
        self.commit_checked(batch, durability, || Ok(()))
    }

    /// Commits a prepared batch if `check_trees` says that its trees have not been dropped by the time of the commit.
    pub fn commit_checked(
        &self,
        batch: PreparedBatch,
        durability: Durability,
        check_trees: impl Fn() -> Result<()>,
    ) -> Result<SequenceNumber> {
        self.check_writable()?;
        if batch.operations == 0 {
            return Ok(self.snapshots.visible());
        }
        let len = batch.bytes().len();
        if len > BATCH_BYTES_MAX {
            return Err(Error::InvalidArgument(format!("a batch of {len} bytes; the most is {BATCH_BYTES_MAX}")));
        }
        self.pressure.slow_down(len as u64, &*self.settings.runtime, &self.counters);
        let committed = self.submit(batch, check_trees)?;
        if durability == Durability::Sync {
            self.sync_to(committed.lsn)?;
        }
        if self.settings.background_threads == 0 {
            self.run_inline();
        }
        Ok(committed.sequence)
    }

    fn submit(&self, mut batch: PreparedBatch, check_trees: impl Fn() -> Result<()>) -> Result<Committed> {
        loop {
            // Before the look at the trees: a drop after it changes the count.
            let drops = self.catalog.drops.load(Ordering::Acquire);
            check_trees()?;
            let size_bytes = |request: &Request| request.batch.bytes().len();
            let commit = |group: &mut [Request], answer: &mut dyn FnMut(_)| self.commit_group(group, answer);
            let answer = self.queue.submit(Request { batch, drops }, GROUP_BYTES_MAX, size_bytes, commit);
            let abandoned =
                || Err(Error::CommitUnknown { reason: "the thread that led the commit panicked".to_owned() });
            match answer.unwrap_or_else(abandoned)? {
                Answer::Committed(committed) => return Ok(committed),
                Answer::LookAgain(request) => batch = request.batch,
            }
        }
    }

    /// Makes everything logged before `lsn` survive a power failure.
    pub fn sync_to(&self, lsn: u64) -> Result<()> {
        let Some(wal) = &self.wal else { return Ok(()) };
        match self.contained("a sync", || wal.sync(lsn)).unwrap_or_else(|reason| Err(Error::ReadOnly { reason })) {
            Ok(_) => Ok(()),
            Err(e) => {
                self.leave_marker();
                self.latch(&e);
                Err(Error::CommitUnknown { reason: e.to_string() })
            }
        }
    }

    /// Leaves word for the next open that a sync has failed. If that fails too, there is nothing more to be done.
    pub(super) fn leave_marker(&self) {
        let path = self.dir.join(SYNC_FAILED_NAME);
        if let Err(e) = self.table.vfs.open(&path, OpenMode::CreateNew) {
            tracing::warn!(path = %path.display(), error = %e, "a failed sync could not be noted");
        }
    }

    /// Commits a group. Requests that were made before the last tree was dropped are not in it: each is handed back.
    fn commit_group(&self, group: &mut [Request], answer: &mut dyn FnMut(Result<Answer>)) {
        let mut write = self.write.lock();
        let drops = self.catalog.drops.load(Ordering::Acquire);
        let done = self.contained("a commit", || self.try_commit_group(&mut write, group, drops));
        let done = done.unwrap_or_else(|reason| Err(Error::CommitUnknown { reason }));
        drop(write);
        let mut committed = 0;
        for request in group {
            if request.drops != drops {
                answer(Ok(Answer::LookAgain(std::mem::take(request))));
                continue;
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

    /// Commits those requests of a group that saw so many trees dropped; the first one's number, and where the log then
    /// ends.
    fn try_commit_group(&self, write: &mut WriteState, group: &[Request], drops: u64) -> Result<Committed> {
        self.check_writable()?;
        let WriteState { last_sequence, payload } = write;
        let mut user_bytes = 0;
        let current = group.iter().filter(|request| request.drops == drops);
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
        let state = self.make_room()?;
        let wal = self.wal.as_ref().ok_or(Error::Closed)?;
        let first_sequence = *last_sequence + 1;
        // Numbers are used up even if the log cannot take the group.
        *last_sequence += count;
        let header = GroupHeader {
            first_sequence,
            last_sequence: *last_sequence,
            commit_time_us: self.settings.runtime.unix_time_us(),
        };
        let lsn = wal.append(&header, payload).inspect_err(|e| {
            if !e.is_disk_full() {
                self.latch(e);
            }
        })?;
        insert(&state.active, payload, first_sequence);
        self.snapshots.publish(*last_sequence);
        self.counters.note_commits(count, user_bytes);
        if wal.take_call_for_next() {
            self.signal_work();
        }
        Ok(Committed { sequence: first_sequence, lsn })
    }

    /// Freezes the active memtable if it is full, and waits while too many wait for their flush. Gives a state whose active
    /// memtable has room; it is the active one as long as the caller has `write`.
    fn make_room(&self) -> Result<Guard<Arc<ReadState>>> {
        let state = self.state.load();
        if state.active.bytes_used() < self.settings.memtable_bytes() {
            return Ok(state);
        }
        drop(state);
        self.wait_for_flush()?;
        self.freeze();
        Ok(self.state.load())
    }
}

fn insert(memtable: &Memtable, payload: &[u8], first_sequence: SequenceNumber) {
    let mut writer = memtable.writer();
    let decoded = decode_group(payload, |batch, op| {
        let sequence = first_sequence + batch;
        if op.kind == EntryKind::RangeDelete {
            writer.insert_range_tombstone(op.range_tombstone(sequence));
        } else {
            writer.insert(op.key, sequence, op.kind, op.value);
        }
    });
    assert!(decoded.is_some(), "a prepared batch can be decoded");
}
