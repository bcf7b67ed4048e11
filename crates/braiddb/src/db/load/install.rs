//! Installs the runs of a load by one edit, at one sequence number, as one commit.
//!
//! - INVARIANT L1: a load is newer than all earlier commits and older than all later ones. Its
//!   number is drawn under `write`, and no other commit happens until the edit is installed.
//! - INVARIANT L2: entries in memtables are newer than those in runs, since reads stop at the first
//!   memtable with an entry. So memtables with keys of the load's range are flushed first, at first
//!   without blocking writers, the remainder under `write`.
//! - INVARIANT L3: a reader at a sequence number sees all commits up to it and none above. The
//!   version with the runs is published before the number. With the new version and an older
//!   number, a reader skips the load's entries. With an older read state and the load's number or a
//!   later one, it misses the load, so it must miss everything later too: the new read state begins
//!   a new active memtable, which that reader lacks. A snapshot at the load's number loads its read
//!   state after the version was published.
//! - INVARIANT L4: a crash loses no commit before a surviving one. The log is synced before the
//!   edit is written. Later commits have higher numbers and go to the log. Recovery applies records
//!   above the flushed number, which a load does not change.
//! - Transactions find the load's range in the conflict window, or its entries in the runs.

use super::placement::{Existing, Place, divide};
use crate::{
    base::{EntryKind, Error, Result, SequenceNumber, limits, split_internal_key},
    commit::RawBatch,
    db::{
        engine::{
            catalog::TreeState,
            edits,
            parts::commits::{GroupDelay, WriteState},
            root::Engine,
        },
        maintenance::{background, flush},
        write::{
            backpressure, conflict_window, pipeline,
            stages::note_refused,
            update_scope,
            wal_bypass::{self, Marker},
        },
    },
    read::ReadState,
    table::RunMeta,
    version::{Change, Layout, PartitionLayout},
};
use parking_lot::MutexGuard;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
    time::Duration,
};

const FLUSHES_WHILE_OTHERS_WRITE: u32 = 2;

/// Maximum wait for jobs on the load's partitions. After it, the runs stay in one partition.
const PATIENCE_NS: u64 = 10_000_000_000;

/// Divisor of the maximum partition size: a smaller part does not become a partition.
const PARTS_MAX: u64 = 8;

struct Reserved<'a> {
    engine: &'a Engine,
    ids: BTreeSet<u64>,
}

impl<'a> Reserved<'a> {
    fn of(engine: &'a Engine, runs: &[RunMeta]) -> Result<Reserved<'a>> {
        let mut reserved = Reserved { engine, ids: BTreeSet::new() };
        let until_ns = engine.now_ns().saturating_add(PATIENCE_NS);
        loop {
            engine.health.check_writable()?;
            let mut work = engine.maintenance.work.lock();
            // Loaded under the lock: a job publishes its version before it releases its partition.
            let state = engine.cell.state.load_full();
            let wanted: BTreeSet<u64> =
                state.version.partitions.iter().filter(|p| reaches(&p.layout, runs)).map(|p| p.id).collect();
            let mut is_complete = true;
            for id in wanted.difference(&reserved.ids.clone()) {
                match work.busy.insert(*id) {
                    true => drop(reserved.ids.insert(*id)),
                    false => is_complete = false,
                }
            }
            if is_complete || engine.now_ns() >= until_ns {
                return Ok(reserved);
            }
            engine.maintenance.work_changed.wait_for(&mut work, Duration::from_millis(10));
        }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut work = self.engine.maintenance.work.lock();
        work.busy.retain(|id| !self.ids.contains(id));
        drop(work);
        self.engine.signal_work();
    }
}

fn reaches(partition: &PartitionLayout, runs: &[RunMeta]) -> bool {
    let first = runs.partition_point(|run| run.largest < partition.start);
    runs.get(first).is_some_and(|run| partition.end.as_ref().is_none_or(|end| run.smallest < *end))
}

fn is_in_memory(state: &ReadState, first: &[u8], last: &[u8]) -> bool {
    state.memtables().filter(|memtable| !memtable.is_empty()).any(|memtable| {
        let meets = |set: &crate::base::RangeTombstoneSet| {
            set.iter().any(|t| t.start.as_slice() <= last && first < t.end.as_slice())
        };
        let mut scan = memtable.scan_from(first);
        memtable.range_tombstones().is_some_and(|set| meets(&set)) || (scan.advance() && scan.entry().key <= last)
    })
}

/// Installs sorted, disjoint runs of a tree and returns their sequence number. Runs without
/// sequence numbers get the load's; runs of a dump keep theirs. Files must be synced; the
/// directory need not be. The caller prevents a close.
pub fn commit_runs(engine: &Engine, tree: &TreeState, runs: Vec<RunMeta>, user_bytes: u64) -> Result<SequenceNumber> {
    engine.health.check_writable()?;
    update_scope::check_outside(engine)?;
    engine.storage.table.vfs.sync_dir(&engine.dir).map_err(|e| Error::io("sync", &engine.dir, e))?;
    let reserved = Reserved::of(engine, &runs)?;
    let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
        return Ok(engine.readers.snapshots.visible());
    };
    let range = (first.smallest.clone(), last.largest.clone());
    // Before writers are blocked.
    sync_log(engine)?;
    let mut write = write_past_memtables(engine, tree, &range)?;
    let done = engine.catch_panic("a load", || install_holding(engine, &mut write, runs, &range, &reserved));
    let done = done.unwrap_or_else(|reason| Err(Error::ReadOnly { reason }));
    // Also after a failure: other threads may have seen the number in use.
    write.holds_back = false;
    engine.readers.snapshots.publish(write.last_sequence);
    engine.log.watches.wake_if_waiting();
    drop(write);
    drop(reserved);
    let sequence = match done {
        Err(e) if engine.health.has_failed() => Err(Error::CommitUnknown { reason: e.to_string() }),
        done => done,
    }?;
    engine.counters.note_commits(1, user_bytes);
    if engine.settings.background_threads == 0 {
        background::run_inline(engine, &mut |_, _| ());
    }
    Ok(sequence)
}

fn sync_log(engine: &Engine) -> Result<()> {
    engine.log.wal.as_ref().map_or(Ok(()), |wal| pipeline::sync_to(engine, wal.end_lsn()))
}

/// Locks writes once no memtable has keys of the range.
fn write_past_memtables<'e>(
    engine: &'e Engine,
    tree: &TreeState,
    range: &(Vec<u8>, Vec<u8>),
) -> Result<MutexGuard<'e, WriteState>> {
    let mut flushes = 0;
    loop {
        let write = conflict_window::await_no_exclusive(engine)?;
        engine.health.check_writable()?;
        // A drop marks the tree before it commits, so it is seen here or comes after the load.
        tree.check()?;
        if !is_in_memory(&engine.cell.state.load_full(), &range.0, &range.1) {
            return Ok(write);
        }
        backpressure::wait(engine, &mut GroupDelay::default())?;
        engine.freeze();
        flushes += 1;
        if flushes > FLUSHES_WHILE_OTHERS_WRITE {
            flush::frozen(engine, u64::MAX)?;
            continue;
        }
        drop(write);
        flush::frozen(engine, u64::MAX)?;
    }
}

fn install_holding(
    engine: &Engine,
    write: &mut WriteState,
    mut runs: Vec<RunMeta>,
    range: &(Vec<u8>, Vec<u8>),
    reserved: &Reserved<'_>,
) -> Result<SequenceNumber> {
    backpressure::wait(engine, &mut GroupDelay::default())?;
    // Holds back visibility: a watcher must not see the marker before the runs.
    write.holds_back = true;
    mark_load(engine, write, range)?;
    sync_log(engine)?;
    let sequence = write.last_sequence + 1;
    write.last_sequence = sequence;
    if engine.commits.window.is_open() {
        engine.commits.window.note(sequence, &written(range)?);
    }
    if let Some((tree, _)) = split_internal_key(&range.0) {
        engine.commits.tree_ends.forget(tree);
    }
    for run in &mut runs {
        if run.max_sequence == 0 {
            (run.min_sequence, run.max_sequence) = (sequence, sequence);
        }
        engine.counters.run_bytes.fetch_add(run.file_bytes, Ordering::Relaxed);
    }
    let mut disk = engine.storage.disk.lock();
    let mut changes = changes_for(engine, disk.manifest.layout(), runs, reserved);
    changes.push(Change::LastSequence(sequence));
    if let Some(wal) = &engine.log.wal {
        let oldest_segment = disk.manifest.layout().oldest_segment;
        changes.push(Change::Log { oldest_segment, durable_lsn: wal.durable_lsn() });
    }
    let installed = edits::apply_with_fresh_memtable(engine, &mut disk, changes);
    if installed.as_ref().is_err_and(Error::is_disk_full) {
        // The log lacks the number and no run has it; without a note that is a gap.
        note_refused(&mut write.refused, sequence, sequence);
    }
    installed.map(|()| sequence)
}

/// Logs that the range changes without WAL. Flushes commits without WAL first, so that no crash
/// keeps the load and loses them.
fn mark_load(engine: &Engine, write: &mut WriteState, (first, last): &(Vec<u8>, Vec<u8>)) -> Result<()> {
    let (Some((tree, start)), Some((_, end))) = (split_internal_key(first), split_internal_key(last)) else {
        return Ok(());
    };
    let end = [end, &[0]].concat();
    wal_bypass::log_marker(engine, write, &Marker::Range(tree, start.to_vec(), Some(end)))
}

fn changes_for(engine: &Engine, layout: &Layout, runs: Vec<RunMeta>, reserved: &Reserved<'_>) -> Vec<Change> {
    let part_bytes = engine.settings.partition_bytes() / PARTS_MAX;
    let mut changes: Vec<Change> = runs.iter().map(|run| Change::NewRun(Box::new(run.clone()))).collect();
    let mut touched: BTreeMap<&[u8], (u64, &PartitionLayout)> = BTreeMap::new();
    touched.extend(
        layout.partitions.iter().filter(|(_, p)| reaches(p, &runs)).map(|(id, p)| (p.start.as_slice(), (*id, p))),
    );
    for (id, partition) in touched.into_values() {
        let is_here = |run: &&RunMeta| reaches(partition, std::slice::from_ref(run));
        let new: Vec<&RunMeta> = runs.iter().filter(is_here).collect();
        let places = match reserved.ids.contains(&id) {
            true => divide(&Existing { partition, runs: &layout.runs }, &new, part_bytes),
            false => Vec::new(),
        };
        if places.len() < 2 {
            changes.extend(new.iter().map(|run| Change::AddLoose { partition: id, run: run.number }));
            continue;
        }
        changes.push(Change::DropPartition(id));
        for Place { start, end, runs, loose, view } in places {
            let id = engine.storage.new_file_number();
            changes.push(Change::NewPartition { id, start, end });
            changes.push(Change::SetRuns { partition: id, runs, loose, view: view.map(Box::new) });
        }
    }
    changes
}

fn written(range: &(Vec<u8>, Vec<u8>)) -> Result<Vec<u8>> {
    let mut batch = RawBatch::default();
    let mut end = range.1.clone();
    end.push(0);
    // No key is above the longest one, so its prefix is incremented.
    if end.len() > limits::MAX_INTERNAL_KEY_LEN {
        end.pop();
        while end.last() == Some(&0xff) {
            end.pop();
        }
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
    }
    batch.push(EntryKind::RangeDelete, &[&range.0], &end);
    Ok(batch.prepare()?.bytes().to_vec())
}
