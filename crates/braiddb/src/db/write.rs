//! Writing: from a prepared batch to a published commit.

use super::settings::Durability;
use super::{
    core::{Answer, Committed, Core, Request, WriteState},
    open::SYNC_FAILED_NAME,
};
use crate::{
    base::{EntryKind, Error, Result, SequenceNumber},
    commit::{PreparedBatch, decode_group},
    platform::OpenMode,
    wal::GroupHeader,
};
use std::sync::atomic::Ordering;

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
        if batch.bytes.len() > BATCH_BYTES_MAX {
            let len = batch.bytes.len();
            return Err(Error::InvalidArgument(format!("a batch of {len} bytes; the most is {BATCH_BYTES_MAX}")));
        }
        let bytes = batch.bytes.len() as u64;
        self.pressure.slow_down(bytes, &*self.settings.runtime, &self.counters);
        let committed = self.submit(batch.bytes, check_trees)?;
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        self.counters.user_bytes.fetch_add(batch.user_bytes, Ordering::Relaxed);
        if durability == Durability::Sync {
            self.sync_to(committed.lsn)?;
        }
        if self.settings.background_threads == 0 {
            self.run_inline();
        }
        Ok(committed.sequence)
    }

    fn submit(&self, mut bytes: Vec<u8>, check_trees: impl Fn() -> Result<()>) -> Result<Committed> {
        loop {
            // Before the look at the trees: a drop after it changes the count.
            let drops = self.catalog.drops.load(Ordering::Acquire);
            check_trees()?;
            let request = Request { bytes, drops };
            let answer =
                self.queue.submit(request, GROUP_BYTES_MAX, |r| r.bytes.len(), |group| self.commit_group(group));
            let abandoned =
                || Err(Error::CommitUnknown { reason: "the thread that led the commit panicked".to_owned() });
            match answer.unwrap_or_else(abandoned)? {
                Answer::Committed(committed) => return Ok(committed),
                Answer::LookAgain(request) => bytes = request.bytes,
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

    fn commit_group(&self, mut group: Vec<Request>) -> Vec<Result<Answer>> {
        let mut write = self.write.lock();
        let outdated = self.take_outdated(&mut group);
        let done = self.contained("a commit", || self.try_commit_group(&mut write, &group));
        let mut answers: Vec<Result<Answer>> = match done.unwrap_or_else(|reason| Err(Error::CommitUnknown { reason }))
        {
            Ok(first) => (0..group.len() as u64)
                .map(|i| Ok(Answer::Committed(Committed { sequence: first.sequence + i, lsn: first.lsn })))
                .collect(),
            Err(e) => group.iter().map(|_| Err(e.duplicate())).collect(),
        };
        for (at, request) in outdated {
            answers.insert(at, Ok(Answer::LookAgain(request)));
        }
        answers
    }

    /// Takes the requests out of a group that were made before the last tree was dropped, each with its place.
    fn take_outdated(&self, group: &mut Vec<Request>) -> Vec<(usize, Request)> {
        let drops = self.catalog.drops.load(Ordering::Acquire);
        if group.iter().all(|request| request.drops == drops) {
            return Vec::new();
        }
        let (outdated, current) =
            std::mem::take(group).into_iter().enumerate().partition::<Vec<_>, _>(|(_, r)| r.drops != drops);
        *group = current.into_iter().map(|(_, request)| request).collect();
        outdated
    }

    fn try_commit_group(&self, write: &mut WriteState, group: &[Request]) -> Result<Committed> {
        self.check_writable()?;
        if group.is_empty() {
            return Ok(Committed { sequence: write.last_sequence, lsn: 0 });
        }
        self.make_room()?;
        let wal = self.wal.as_ref().ok_or(Error::Closed)?;
        let WriteState { last_sequence, payload } = write;
        let payload: &[u8] = match group {
            [only] => &only.bytes,
            _ => {
                payload.clear();
                group.iter().for_each(|r| payload.extend_from_slice(&r.bytes));
                payload
            }
        };
        let first_sequence = *last_sequence + 1;
        // Numbers are used up even if the log cannot take the group.
        *last_sequence += group.len() as u64;
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
        self.insert(payload, first_sequence);
        self.snapshots.publish(*last_sequence);
        Ok(Committed { sequence: first_sequence, lsn })
    }

    fn insert(&self, payload: &[u8], first_sequence: SequenceNumber) {
        let state = self.state.load();
        let mut writer = state.active.writer();
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

    /// Freezes the active memtable if it is full, and waits while too many wait for their flush.
    fn make_room(&self) -> Result<()> {
        if self.state.load().active.bytes() < self.settings.memtable_bytes() {
            return Ok(());
        }
        self.wait_for_flush()?;
        self.freeze();
        Ok(())
    }
}
