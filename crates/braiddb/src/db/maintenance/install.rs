//! Runs flushes, folds and merges and installs their results.

use super::{log_archive, log_trim};
use crate::{
    base::{Error, FileNumber, Result, SequenceNumber, TreeId},
    codec::Compression,
    compaction::{self, FlushOutput, JobContext, MergeOutput, MergePart, Plan, Target},
    db::{
        engine::{parts::state_cell::Memtables, parts::storage::DiskState, root::Engine},
        files::reserve::Stage,
    },
    memtable::Memtable,
    platform::Urgency,
    read::ReadState,
    table::{
        RunOptions,
        blob::{BlobRef, Lane},
    },
    version::{Change, Edit, Layout, Partition, RunHandle, Version},
    view::ViewMeta,
    wal::Wal,
};
use parking_lot::Mutex;
use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};

/// Default minimum of bytes from one flush for a partition to get its own run. Partitions with
/// fewer share a residue run.
const OWN_RUN_BYTES_MIN: u64 = 64 << 10;

/// On small volumes the minimum is 1/1024 of the volume, but at least 8 KiB.
const OWN_RUN_BYTES_LEAST: u64 = 8 << 10;
const OWN_RUNS_OF_VOLUME: u64 = 1024;

/// Minimum change of the clock's lead that is recorded. Gradual clock corrections stay below it.
const TIME_AHEAD_US_MIN: u64 = 1_000_000;

/// Returns the approximate number of parts of a split, given the number of partitions. More parts
/// reduce rewriting as the database grows; large databases should not have too many.
fn parts_of_split(partitions: usize) -> u64 {
    match partitions {
        0..16 => 8,
        16..256 => 4,
        _ => 2,
    }
}

/// Minimum bytes of a part. A smaller part would be little more than the first page of its file.
const PART_BYTES_MIN: u64 = 8 << 10;

/// On a full disk, a part merged alone has at most 1/4 of the reserve.
const PARTS_OF_RESERVE: u64 = 4;

/// Moved blob bytes after which a merge syncs them, so that no other thread's sync has to write
/// many of them.
const MOVED_BYTES_UNSYNCED_MAX: u64 = 16 << 20;

/// Blobs that a merge moves out of files to be deleted.
#[derive(Debug, Default)]
struct Relocation {
    condemned: BTreeSet<FileNumber>,
    moved: Mutex<Moved>,
}

#[derive(Debug, Default)]
struct Moved {
    /// Target files; each counts once as pending.
    files: BTreeSet<FileNumber>,
    bytes_unsynced: u64,
    /// Blobs moved for the current key, old to new. Versions of a stream share pieces; each piece
    /// is moved once.
    key: Vec<u8>,
    of_key: HashMap<BlobRef, BlobRef>,
}

impl Engine {
    pub(in crate::db) fn put_into_force(&self, changes: Vec<Change>) -> Result<()> {
        self.install(&mut self.storage.disk.lock(), changes, None)
    }

    fn time_change(&self) -> Change {
        Change::Time { now_us: self.now().us, ahead_us: self.ahead_us() }
    }

    /// Records in the manifest how far time is ahead of the wall clock, if a change of the clock
    /// altered it.
    pub fn note_time(&self) -> Result<()> {
        let noted_us = self.clock.noted_ahead_us.load(Ordering::Relaxed);
        if self.ahead_us().abs_diff(noted_us) < TIME_AHEAD_US_MIN {
            return Ok(());
        }
        self.install(&mut self.storage.disk.lock(), Vec::new(), None)
    }

    /// Returns a time such that no reader sees values that expired by then.
    pub fn expired_by_us(&self) -> u64 {
        self.readers.snapshots.expired_by(self.now().us)
    }

    pub(in crate::db) fn run_options(&self) -> RunOptions {
        RunOptions {
            compression: self.settings.compression,
            block_bytes: self.settings.block_bytes,
            key_blocks: self.settings.key_blocks,
            write_bytes: self.settings.run_write_bytes(),
            is_unnumbered: false,
            is_unbuffered: false,
            has_filter: false,
        }
    }

    /// Calls `work` with the job context and `install` with its result. On failure removes the
    /// created files, unless the edit may be durable.
    fn with_context<R>(
        &self,
        urgency: Urgency,
        relocate: Option<&Relocation>,
        work: impl FnOnce(&JobContext<'_>) -> Result<R>,
        install: impl FnOnce(R) -> Result<()>,
    ) -> Result<()> {
        let created = Mutex::default();
        // Read these before the work: later readers never see the versions that it drops.
        let (strata, expired_by_us) = (self.readers.snapshots.strata(), self.expired_by_us());
        let compressions = self.catalog.compressions.read().clone();
        let compression_of = move |tree: TreeId| -> Compression {
            compressions.get(&tree).copied().unwrap_or(self.settings.compression)
        };
        let relocate_blob = |key: &[u8], blob: &BlobRef| -> Result<Option<BlobRef>> {
            relocate.map_or(Ok(None), |relocation| self.relocate_blob(key, blob, relocation))
        };
        let done = work(&JobContext {
            table: self.table_for(urgency),
            dir: self.dir.clone(),
            run_options: self.run_options(),
            compression_of: &compression_of,
            functions: &self.functions,
            new_file_number: &|| self.storage.new_file_number(),
            new_file_id: &|| self.settings.runtime.random_u64(),
            strata,
            expired_by_us,
            expired: &self.counters.expired,
            relocate: relocate.map(|_| &relocate_blob as compaction::Relocate<'_>),
            run_bytes_max: self.settings.partition_bytes().saturating_mul(2),
            created: &created,
            cancelled: &|| self.health.closing.load(Ordering::Acquire) || self.health.has_failed(),
        })
        .and_then(|made| {
            // Values must be on disk before runs refer to them; the log need not be.
            if let Some(relocation) = relocate {
                self.storage.blobs.sync_bulk(&relocation.moved.lock().files)?;
            }
            self.storage.blobs.sync()?;
            self.storage.table.vfs.sync_dir(&self.dir).map_err(|e| Error::io("sync", &self.dir, e))?;
            install(made)
        });
        if done.is_err() && !self.health.has_failed() {
            self.remove_files(&created.into_inner());
        }
        done
    }

    /// Minimum bytes for an own run; lower on a small volume, since a residue run takes its space
    /// until all its partitions are merged.
    fn own_run_bytes_min(&self) -> u64 {
        let by_volume = self.settings.volume_bytes.map_or(u64::MAX, |volume| volume / OWN_RUNS_OF_VOLUME);
        by_volume.clamp(OWN_RUN_BYTES_LEAST, OWN_RUN_BYTES_MIN)
    }

    pub(in crate::db) fn remove_files(&self, paths: &[PathBuf]) {
        for path in paths {
            match self.storage.table.vfs.remove(path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(path = %path.display(), error = %e, "a file of a failed job could not be removed");
                }
                _ => {}
            }
        }
    }

    fn relocate_blob(&self, key: &[u8], blob: &BlobRef, relocation: &Relocation) -> Result<Option<BlobRef>> {
        if !relocation.condemned.contains(&blob.file) {
            return Ok(None);
        }
        let mut moved = relocation.moved.lock();
        if moved.key != key {
            moved.key = key.to_vec();
            moved.of_key.clear();
        }
        if let Some(known) = moved.of_key.get(blob) {
            return Ok(Some(*known));
        }
        let value = match self.storage.blobs.read_uncached(blob) {
            // Keep the reference to an unreadable value: it must not block merges of the partition
            // forever.
            Err(e) if e.is_corruption() || matches!(e, Error::Unsupported { .. }) => {
                tracing::error!(error = %e, "a value that cannot be read stays in its blob file");
                self.maintenance.work.lock().unmovable_blobs.insert(blob.file);
                return Ok(None);
            }
            read => read?,
        };
        self.storage.limited.iter().for_each(|limited| limited.wait(value.len() as u64));
        let new = self.storage.blobs.write_to(Lane::Bulk, key, &value, blob.compression)?;
        if !moved.files.insert(new.file) {
            self.storage.blobs.settle(&[new.file], None);
        }
        moved.of_key.insert(*blob, new);
        moved.bytes_unsynced += new.stored_len;
        if moved.bytes_unsynced >= MOVED_BYTES_UNSYNCED_MAX {
            moved.bytes_unsynced = 0;
            self.storage.blobs.sync_bulk(&moved.files)?;
        }
        Ok(Some(new))
    }

    /// Flushes the oldest frozen memtable. Returns false if there is none. The caller ensures that
    /// only one flush runs.
    pub fn flush_oldest(&self) -> Result<bool> {
        let state = self.cell.state.load_full();
        let Some(memtable) = state.frozen.last().cloned() else { return Ok(false) };
        let start = self.now_ns();
        self.with_context(
            Urgency::Flush,
            None,
            |context| compaction::flush(context, &memtable, &state.version, self.own_run_bytes_min()),
            |outputs| self.install_flush(&memtable, &state.version, outputs),
        )?;
        self.maintenance.pressure.note_flush(memtable.raw_bytes() as u64, self.now_ns() - start);
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    fn install_flush(&self, memtable: &Arc<Memtable>, planned: &Version, outputs: Vec<FlushOutput>) -> Result<()> {
        log_trim::sync_retained(self)?;
        log_archive::sync_log(self)?;
        log_archive::archive_or_warn(self);
        let mut disk = self.storage.disk.lock();
        let flushed = memtable.max_sequence();
        let must_archive = log_archive::segments_to_archive(self);
        let mut changes = Vec::new();
        for output in &outputs {
            self.counters.run_bytes.fetch_add(output.run.file_bytes, Ordering::Relaxed);
            changes.push(Change::NewRun(Box::new(output.run.clone())));
            for partition in receivers(output, planned, disk.manifest.layout()) {
                changes.push(Change::AddLoose { partition, run: output.run.number });
            }
        }
        changes.push(Change::Flushed(flushed));
        let oldest_segment = self.log.wal.as_ref().map_or(0, |wal| wal.oldest_needed_by(flushed, &must_archive));
        if let Some(wal) = &self.log.wal {
            changes.push(Change::Log { oldest_segment, durable_lsn: wal.durable_lsn() });
        }
        self.install(&mut disk, changes, Some(memtable))?;
        let beside = log_trim::held_beside_log(self, &disk);
        drop(disk);
        if let Some(wal) = &self.log.wal {
            log_trim::release_segments(self, wal, oldest_segment, &beside);
        }
        Ok(())
    }

    /// Releases the log segments whose commits are all in runs.
    pub fn release_log(&self, wal: &Wal) -> Result<()> {
        log_trim::sync_retained(self)?;
        log_archive::archive_or_warn(self);
        let mut disk = self.storage.disk.lock();
        let layout = disk.manifest.layout();
        let (flushed, must_archive) = (layout.flushed, log_archive::segments_to_archive(self));
        let oldest_segment = wal.oldest_needed_by(flushed, &must_archive);
        if oldest_segment == layout.oldest_segment {
            return Ok(());
        }
        let changes = vec![Change::Log { oldest_segment, durable_lsn: wal.durable_lsn() }];
        self.install(&mut disk, changes, None)?;
        let beside = log_trim::held_beside_log(self, &disk);
        drop(disk);
        log_trim::release_segments(self, wal, oldest_segment, &beside);
        Ok(())
    }

    /// Writes an edit and publishes its version. The caller has synced the version's files and the
    /// directory.
    fn install(&self, disk: &mut DiskState, changes: Vec<Change>, flushed: Option<&Arc<Memtable>>) -> Result<()> {
        let memtables = flushed.map_or(Memtables::Same, Memtables::Flushed);
        let done = self.catch_panic("an edit", || self.try_install(disk, changes, memtables));
        done.unwrap_or_else(|reason| Err(Error::ReadOnly { reason }))
    }

    /// Like `install`, but also switches to a new memtable, which readers of the old state do not
    /// have. The caller holds the write lock.
    pub(in crate::db) fn install_with_fresh_memtable(&self, disk: &mut DiskState, changes: Vec<Change>) -> Result<()> {
        let done = self.catch_panic("an edit", || self.try_install(disk, changes, Memtables::Fresh));
        done.unwrap_or_else(|reason| Err(Error::ReadOnly { reason }))
    }

    fn try_install(&self, disk: &mut DiskState, mut changes: Vec<Change>, memtables: Memtables<'_>) -> Result<()> {
        self.check_not_failed()?;
        // After the close, another process may own the files.
        self.health.check_open()?;
        changes.push(Change::NextFile(self.storage.next_file.load(Ordering::Relaxed)));
        let time = self.time_change();
        if let Change::Time { ahead_us, .. } = &time {
            self.clock.noted_ahead_us.store(*ahead_us, Ordering::Relaxed);
        }
        changes.push(time);
        let edit = Edit::new(changes);
        let mut committed = disk.manifest.commit(&edit);
        // An edit is small, and no space is reclaimed without it.
        if committed.as_ref().is_err_and(Error::is_disk_full) && self.release(Stage::Log) {
            committed = disk.manifest.commit(&edit);
        }
        committed.inspect_err(|e| {
            if !e.is_disk_full() {
                self.poison(e);
            }
        })?;
        self.counters.manifest_bytes.store(disk.manifest.bytes_written(), Ordering::Relaxed);
        self.storage.next_file.fetch_max(disk.manifest.layout().next_file, Ordering::Relaxed);
        let before = Arc::clone(&self.cell.state.load().version);
        let version = disk.files.version(disk.manifest.layout(), Some(&before)).inspect_err(|e| self.poison(e))?;
        drop(before);
        self.publish_version(version, memtables, &disk.files);
        self.storage.flushed.store(disk.manifest.layout().flushed, Ordering::Release);
        self.log.watches.wake_if_waiting_anywhere();
        disk.files.release_unused(disk.manifest.layout());
        self.release_blobs(disk.manifest.layout());
        Ok(())
    }

    fn check_not_failed(&self) -> Result<()> {
        if self.health.has_failed() {
            let failure = self.health.failure();
            return Err(failure.map_or(Error::Closed, |reason| Error::ReadOnly { reason }));
        }
        Ok(())
    }

    /// Releases unreferenced blob files, as every edit does.
    pub fn reclaim_blobs(&self) {
        // The thread that drops a stream may already be inside a call.
        let Ok(_inside) = self.health.enter_past_closing() else { return };
        if self.health.check_writable().is_ok() {
            self.release_blobs(self.storage.disk.lock().manifest.layout());
        }
    }

    /// Defers the removal of unused blob files until the readers of all states so far are gone.
    fn release_blobs(&self, layout: &Layout) {
        let released = self.storage.blobs.release_unused(layout);
        let sparse = self.storage.blobs.sparse_files(layout, &*self.storage.table.vfs);
        let mut work = self.maintenance.work.lock();
        work.sparse_blobs = sparse.into_iter().filter(|file| !work.unmovable_blobs.contains(file)).collect();
        drop(work);
        if released.is_empty() {
            return;
        }
        let _change = self.cell.change.lock();
        let old = self.cell.state.load_full();
        self.publish(ReadState {
            active: Arc::clone(&old.active),
            frozen: old.frozen.clone(),
            version: Arc::clone(&old.version),
            garbage: old.garbage.follow(released),
        });
    }

    /// Executes a plan for a partition. The caller ensures that no other job works on it.
    pub fn run_plan(&self, partition: &Arc<Partition>, plan: &Plan) -> Result<()> {
        let oldest = self.readers.snapshots.strata()[0];
        let dropped = compaction::droppable_runs(partition, oldest, self.expired_by_us());
        if !dropped.is_empty() {
            return self.drop_runs(partition, &dropped);
        }
        let relocation = match plan {
            // A moved blob is stored twice until all partitions have moved theirs, which a full
            // disk cannot afford.
            Plan::Fold | Plan::Rebuild | Plan::Cut { .. } | Plan::Prefix => Relocation::default(),
            _ => self.relocation(),
        };
        let done = self.run_merge(partition, plan, &relocation);
        let files: Vec<FileNumber> = relocation.moved.lock().files.iter().copied().collect();
        self.storage.blobs.settle(&files, None);
        done
    }

    fn relocation(&self) -> Relocation {
        let work = self.maintenance.work.lock();
        let mut condemned = work.sparse_blobs.clone();
        let older = work.older_blobs.iter().flatten().filter(|file| !work.unmovable_blobs.contains(file));
        condemned.extend(older);
        Relocation { condemned, moved: Mutex::default() }
    }

    fn run_merge(&self, partition: &Arc<Partition>, plan: &Plan, relocation: &Relocation) -> Result<()> {
        let relocate = (!relocation.condemned.is_empty()).then_some(relocation);
        let snapshots = self.readers.snapshots.strata();
        let work = |context: &JobContext<'_>| match plan {
            Plan::Rebuild => compaction::rebuild(context, partition),
            Plan::Fold => compaction::fold(context, partition),
            Plan::Cut { at } => compaction::cut(context, partition, at),
            Plan::Loose { inputs } => compaction::merge(context, partition, inputs, Target::Loose),
            Plan::Major { inputs } => compaction::merge(context, partition, inputs, Target::View),
            Plan::Split | Plan::Prefix => {
                let all: Vec<FileNumber> = partition.all_runs().map(|h| h.run().meta().number).collect();
                let version = Arc::clone(&self.cell.state.load().version);
                let parts = parts_of_split(version.partitions.len());
                let bytes = part_bytes(partition, self.settings.partition_bytes(), parts);
                if *plan == Plan::Split {
                    return compaction::merge(context, partition, &all, Target::Parts(bytes));
                }
                // The disk may have no more free space than the reserve.
                let bytes = match self.storage.reserve.bytes() {
                    (_, 0) => bytes,
                    (_, whole) => bytes.min(whole / PARTS_OF_RESERVE).max(PART_BYTES_MIN),
                };
                let shared = version.runs_of_others(partition.id);
                compaction::merge(context, partition, &all, Target::Prefix { bytes, shared: &shared })
            }
        };
        let mut unsplit = None;
        self.with_context(Urgency::Merge, relocate, work, |output| {
            if let (Plan::Split | Plan::Prefix, [part]) = (plan, output.parts.as_slice()) {
                let bytes = part.written.iter().map(|run| run.file_bytes).sum();
                let blocks: u64 = part.written.iter().map(|run| u64::from(run.blocks)).sum();
                let is_large = bytes > self.settings.partition_bytes() || blocks > compaction::PARTITION_BLOCKS_MAX;
                unsplit = is_large.then_some(bytes);
            }
            self.install_merge(partition, &output, &snapshots)
        })?;
        if let Some(bytes) = unsplit {
            self.maintenance.work.lock().unsplit.insert(partition.id, bytes);
        }
        let merged = !matches!(plan, Plan::Fold | Plan::Rebuild | Plan::Cut { .. });
        let counter = if merged { &self.counters.merges } else { &self.counters.folds };
        counter.fetch_add(1, Ordering::Relaxed);
        if matches!(plan, Plan::Loose { .. }) {
            self.counters.loose_merges.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn install_merge(&self, partition: &Partition, output: &MergeOutput, snapshots: &[SequenceNumber]) -> Result<()> {
        let mut disk = self.storage.disk.lock();
        let current = disk.manifest.layout().partitions[&partition.id].clone();
        let gone = |number: &FileNumber| output.consumed.contains(number) || output.folded.contains(number);
        let stays = |n: &FileNumber| output.parts.iter().any(|p| p.loose.contains(n));
        let added: Vec<FileNumber> = current.loose.iter().copied().filter(|n| !gone(n) && !stays(n)).collect();
        let mut changes = Vec::new();
        for meta in output.parts.iter().flat_map(|p| &p.written) {
            self.counters.run_bytes.fetch_add(meta.file_bytes, Ordering::Relaxed);
            changes.push(Change::NewRun(Box::new(meta.clone())));
        }
        let is_new = |view: &&ViewMeta| current.view.as_ref().is_none_or(|old| old.number != view.number);
        for view in output.parts.iter().filter_map(|p| p.view.as_ref()).filter(is_new) {
            self.counters.view_bytes.fetch_add(view.file_bytes, Ordering::Relaxed);
        }
        let split = output.parts.len() > 1;
        let mut ids = Vec::new();
        if split {
            changes.push(Change::DropPartition(partition.id));
        }
        for part in &output.parts {
            let id = if split { self.storage.new_file_number() } else { partition.id };
            if split {
                changes.push(Change::NewPartition { id, start: part.start.clone(), end: part.end.clone() });
            }
            changes.push(set_runs(id, part, &added, disk.manifest.layout()));
            ids.push(id);
        }
        self.install(&mut disk, changes, None)?;
        if partition.all_runs().all(|h| output.consumed.contains(&h.run().meta().number)) {
            self.note_held(&ids, snapshots);
        }
        Ok(())
    }

    /// Records how many garbage entries a full merge had to keep. They do not justify another merge
    /// until a snapshot ends.
    fn note_held(&self, ids: &[u64], snapshots: &[SequenceNumber]) {
        let state = self.cell.state.load();
        let mut work = self.maintenance.work.lock();
        let exists: BTreeSet<u64> = state.version.partitions.iter().map(|p| p.id).collect();
        work.held.retain(|id, _| exists.contains(id));
        work.unsplit.retain(|id, _| exists.contains(id));
        for partition in state.version.partitions.iter().filter(|p| ids.contains(&p.id)) {
            let dead = partition.counts().map_or(0, |(_, dead)| dead);
            work.held.insert(partition.id, (dead, snapshots.to_vec()));
        }
    }

    /// Drops runs that are fully expired or fully covered by a range tombstone. The next job
    /// rebuilds the view.
    fn drop_runs(&self, partition: &Partition, dropped: &BTreeSet<FileNumber>) -> Result<()> {
        let mut disk = self.storage.disk.lock();
        let current = disk.manifest.layout().partitions[&partition.id].clone();
        let keep = |numbers: &[FileNumber]| -> Vec<FileNumber> {
            numbers.iter().copied().filter(|n| !dropped.contains(n)).collect()
        };
        let runs = keep(&current.runs);
        let view = if runs.len() == current.runs.len() { current.view.map(Box::new) } else { None };
        let change = Change::SetRuns { partition: partition.id, runs, loose: keep(&current.loose), view };
        self.install(&mut disk, vec![change], None)
    }

    /// Marks a view as damaged, so that reads use the runs' own views until it is rebuilt.
    pub fn note_damaged_view(&self, number: FileNumber, reason: &Error) -> Result<()> {
        let mut disk = self.storage.disk.lock();
        if disk.files.damaged_views().contains_key(&number) {
            return Ok(());
        }
        tracing::warn!(number, %reason, "a view is damaged and will be rebuilt");
        disk.files.set_view_damaged(number, reason.to_string());
        let before = Arc::clone(&self.cell.state.load().version);
        let DiskState { manifest, files } = &mut *disk;
        let version = files.version(manifest.layout(), Some(&before))?;
        drop(before);
        self.publish_version(version, Memtables::Same, files);
        self.counters.views_healed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Returns the size of the parts of a split: equal, about `parts` in the maximum of a partition.
fn part_bytes(partition: &Partition, partition_bytes: u64, parts: u64) -> u64 {
    let share = |h: &Arc<RunHandle>| h.run().meta().file_bytes * partition.share_per_mille(h) / 1000;
    let bytes: u64 = partition.all_runs().map(share).sum();
    let (entries, dead) = partition.counts().unwrap_or((1, 0));
    let live = (u128::from(bytes) * u128::from(entries.saturating_sub(dead)) / u128::from(entries.max(1))) as u64;
    let part = (partition_bytes / parts).max(1);
    let parts = ((live + part / 2) / part).max(2);
    // Add 1/16, so that an estimate that is too low leaves no small part at the end.
    (live / parts / 16 * 17).max(part / 2).max(PART_BYTES_MIN)
}

/// Returns the partitions that get a run: those it was made for, with the parts of partitions that
/// were split meanwhile.
fn receivers(output: &FlushOutput, planned: &Version, layout: &Layout) -> Vec<u64> {
    let mut ids = BTreeSet::new();
    for id in &output.partitions {
        if layout.partitions.contains_key(id) {
            ids.insert(*id);
            continue;
        }
        let Some(old) = planned.partitions.iter().find(|p| p.id == *id) else { continue };
        let first = old.layout.start.as_slice().max(&output.run.smallest);
        for (new, part) in &layout.partitions {
            let starts_before_end =
                old.layout.end.as_ref().is_none_or(|end| part.start < *end) && part.start <= output.run.largest;
            if starts_before_end && part.end.as_deref().is_none_or(|end| first < end) {
                ids.insert(*new);
            }
        }
    }
    ids.into_iter().collect()
}

/// Sets a part's runs, with the unindexed runs that flushes added meanwhile.
fn set_runs(id: u64, part: &MergePart, added: &[FileNumber], layout: &Layout) -> Change {
    let reaches = |number: &&FileNumber| {
        layout
            .runs
            .get(number)
            .is_some_and(|meta| part.start <= meta.largest && part.end.as_ref().is_none_or(|end| meta.smallest < *end))
    };
    let loose = part.loose.iter().chain(added.iter().filter(reaches)).copied().collect();
    Change::SetRuns { partition: id, runs: part.runs.clone(), loose, view: part.view.clone().map(Box::new) }
}
