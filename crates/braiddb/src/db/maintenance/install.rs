//! Runs flushes, folds and merges and installs their results.

use super::{io_throttle, log_archive, log_trim};
use crate::{
    base::{Error, FileNumber, Result, SequenceNumber, TreeId},
    codec::Compression,
    compaction::{self, FlushOutput, JobContext, MergeOutput, MergePart, Plan, Target},
    db::engine::{edits, root::Engine},
    memtable::Memtable,
    platform::Urgency,
    table::{
        RunOptions,
        blob::{BlobRef, Lane},
    },
    version::{Change, Layout, Partition, RunHandle, Version},
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

/// Returns a time such that no reader sees values that expired by then.
pub fn expired_by_us(engine: &Engine) -> u64 {
    engine.readers.snapshots.expired_by(engine.now().us)
}

pub(in crate::db) fn run_options(engine: &Engine) -> RunOptions {
    RunOptions {
        compression: engine.settings.compression,
        block_bytes: engine.settings.block_bytes,
        key_blocks: engine.settings.key_blocks,
        write_bytes: engine.settings.run_write_bytes(),
        is_unnumbered: false,
        is_unbuffered: false,
        has_filter: false,
    }
}

/// Calls `work` with the job context and `install` with its result. On failure removes the
/// created files, unless the edit may be durable.
fn with_context<R>(
    engine: &Engine,
    urgency: Urgency,
    relocate: Option<&Relocation>,
    work: impl FnOnce(&JobContext<'_>) -> Result<R>,
    install: impl FnOnce(R) -> Result<()>,
) -> Result<()> {
    let created = Mutex::default();
    // Read these before the work: later readers never see the versions that it drops.
    let (strata, expired_by_us) = (engine.readers.snapshots.strata(), expired_by_us(engine));
    let compressions = engine.catalog.compressions.read().clone();
    let compression_of =
        move |tree: TreeId| -> Compression { compressions.get(&tree).copied().unwrap_or(engine.settings.compression) };
    let relocate_blob = |key: &[u8], blob: &BlobRef| -> Result<Option<BlobRef>> {
        relocate.map_or(Ok(None), |relocation| relocate_blob(engine, key, blob, relocation))
    };
    let done = work(&JobContext {
        table: io_throttle::table_for(engine, urgency),
        dir: engine.dir.clone(),
        run_options: run_options(engine),
        compression_of: &compression_of,
        functions: &engine.functions,
        new_file_number: &|| engine.storage.new_file_number(),
        new_file_id: &|| engine.settings.runtime.random_u64(),
        strata,
        expired_by_us,
        expired: &engine.counters.expired,
        relocate: relocate.map(|_| &relocate_blob as compaction::Relocate<'_>),
        run_bytes_max: engine.settings.partition_bytes().saturating_mul(2),
        created: &created,
        cancelled: &|| engine.health.closing.load(Ordering::Acquire) || engine.health.has_failed(),
    })
    .and_then(|made| {
        // Values must be on disk before runs refer to them; the log need not be.
        if let Some(relocation) = relocate {
            engine.storage.blobs.sync_bulk(&relocation.moved.lock().files)?;
        }
        engine.storage.blobs.sync()?;
        engine.storage.table.vfs.sync_dir(&engine.dir).map_err(|e| Error::io("sync", &engine.dir, e))?;
        install(made)
    });
    if done.is_err() && !engine.health.has_failed() {
        remove_files(engine, &created.into_inner());
    }
    done
}

/// Minimum bytes for an own run; lower on a small volume, since a residue run takes its space
/// until all its partitions are merged.
fn own_run_bytes_min(engine: &Engine) -> u64 {
    let by_volume = engine.settings.volume_bytes.map_or(u64::MAX, |volume| volume / OWN_RUNS_OF_VOLUME);
    by_volume.clamp(OWN_RUN_BYTES_LEAST, OWN_RUN_BYTES_MIN)
}

pub(in crate::db) fn remove_files(engine: &Engine, paths: &[PathBuf]) {
    for path in paths {
        match engine.storage.table.vfs.remove(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), error = %e, "a file of a failed job could not be removed");
            }
            _ => {}
        }
    }
}

fn relocate_blob(engine: &Engine, key: &[u8], blob: &BlobRef, relocation: &Relocation) -> Result<Option<BlobRef>> {
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
    let value = match engine.storage.blobs.read_uncached(blob) {
        // Keep the reference to an unreadable value: it must not block merges of the partition
        // forever.
        Err(e) if e.is_corruption() || matches!(e, Error::Unsupported { .. }) => {
            tracing::error!(error = %e, "a value that cannot be read stays in its blob file");
            engine.maintenance.work.lock().unmovable_blobs.insert(blob.file);
            return Ok(None);
        }
        read => read?,
    };
    engine.storage.limited.iter().for_each(|limited| limited.wait(value.len() as u64));
    let new = engine.storage.blobs.write_to(Lane::Bulk, key, &value, blob.compression)?;
    if !moved.files.insert(new.file) {
        engine.storage.blobs.settle(&[new.file], None);
    }
    moved.of_key.insert(*blob, new);
    moved.bytes_unsynced += new.stored_len;
    if moved.bytes_unsynced >= MOVED_BYTES_UNSYNCED_MAX {
        moved.bytes_unsynced = 0;
        engine.storage.blobs.sync_bulk(&moved.files)?;
    }
    Ok(Some(new))
}

/// Flushes the oldest frozen memtable. Returns false if there is none. The caller ensures that
/// only one flush runs.
pub fn flush_oldest(engine: &Engine) -> Result<bool> {
    let state = engine.cell.state.load_full();
    let Some(memtable) = state.frozen.last().cloned() else { return Ok(false) };
    let start = engine.now_ns();
    with_context(
        engine,
        Urgency::Flush,
        None,
        |context| compaction::flush(context, &memtable, &state.version, own_run_bytes_min(engine)),
        |outputs| install_flush(engine, &memtable, &state.version, outputs),
    )?;
    engine.maintenance.pressure.note_flush(memtable.raw_bytes() as u64, engine.now_ns() - start);
    engine.counters.flushes.fetch_add(1, Ordering::Relaxed);
    Ok(true)
}

fn install_flush(
    engine: &Engine,
    memtable: &Arc<Memtable>,
    planned: &Version,
    outputs: Vec<FlushOutput>,
) -> Result<()> {
    log_trim::sync_retained(engine)?;
    log_archive::sync_log(engine)?;
    log_archive::archive_or_warn(engine);
    let mut disk = engine.storage.disk.lock();
    let flushed = memtable.max_sequence();
    let must_archive = log_archive::segments_to_archive(engine);
    let mut changes = Vec::new();
    for output in &outputs {
        engine.counters.run_bytes.fetch_add(output.run.file_bytes, Ordering::Relaxed);
        changes.push(Change::NewRun(Box::new(output.run.clone())));
        for partition in receivers(output, planned, disk.manifest.layout()) {
            changes.push(Change::AddLoose { partition, run: output.run.number });
        }
    }
    changes.push(Change::Flushed(flushed));
    let oldest_segment = engine.log.wal.as_ref().map_or(0, |wal| wal.oldest_needed_by(flushed, &must_archive));
    if let Some(wal) = &engine.log.wal {
        changes.push(Change::Log { oldest_segment, durable_lsn: wal.durable_lsn() });
    }
    edits::apply_locked(engine, &mut disk, changes, Some(memtable))?;
    let beside = log_trim::held_beside_log(engine, &disk);
    drop(disk);
    if let Some(wal) = &engine.log.wal {
        log_trim::release_segments(engine, wal, oldest_segment, &beside);
    }
    Ok(())
}

/// Releases the log segments whose commits are all in runs.
pub fn release_log(engine: &Engine, wal: &Wal) -> Result<()> {
    log_trim::sync_retained(engine)?;
    log_archive::archive_or_warn(engine);
    let mut disk = engine.storage.disk.lock();
    let layout = disk.manifest.layout();
    let (flushed, must_archive) = (layout.flushed, log_archive::segments_to_archive(engine));
    let oldest_segment = wal.oldest_needed_by(flushed, &must_archive);
    if oldest_segment == layout.oldest_segment {
        return Ok(());
    }
    let changes = vec![Change::Log { oldest_segment, durable_lsn: wal.durable_lsn() }];
    edits::apply_locked(engine, &mut disk, changes, None)?;
    let beside = log_trim::held_beside_log(engine, &disk);
    drop(disk);
    log_trim::release_segments(engine, wal, oldest_segment, &beside);
    Ok(())
}

/// Executes a plan for a partition. The caller ensures that no other job works on it.
pub fn run_plan(engine: &Engine, partition: &Arc<Partition>, plan: &Plan) -> Result<()> {
    let oldest = engine.readers.snapshots.strata()[0];
    let dropped = compaction::droppable_runs(partition, oldest, expired_by_us(engine));
    if !dropped.is_empty() {
        return drop_runs(engine, partition, &dropped);
    }
    let relocation = match plan {
        // A moved blob is stored twice until all partitions have moved theirs, which a full
        // disk cannot afford.
        Plan::Fold | Plan::Rebuild | Plan::Cut { .. } | Plan::Prefix | Plan::Rewrite { .. } => Relocation::default(),
        _ => relocation(engine),
    };
    let done = run_merge(engine, partition, plan, &relocation);
    let files: Vec<FileNumber> = relocation.moved.lock().files.iter().copied().collect();
    engine.storage.blobs.settle(&files, None);
    done
}

fn relocation(engine: &Engine) -> Relocation {
    let work = engine.maintenance.work.lock();
    let mut condemned = work.sparse_blobs.clone();
    let older = work.older_blobs.iter().flatten().filter(|file| !work.unmovable_blobs.contains(file));
    condemned.extend(older);
    Relocation { condemned, moved: Mutex::default() }
}

fn run_merge(engine: &Engine, partition: &Arc<Partition>, plan: &Plan, relocation: &Relocation) -> Result<()> {
    let relocate = (!relocation.condemned.is_empty()).then_some(relocation);
    let snapshots = engine.readers.snapshots.strata();
    let work = |context: &JobContext<'_>| match plan {
        Plan::Rebuild => compaction::rebuild(context, partition),
        Plan::Fold => compaction::fold(context, partition),
        Plan::Cut { at } => compaction::cut(context, partition, at),
        Plan::Loose { inputs } => compaction::merge(context, partition, inputs, Target::Loose),
        Plan::Rewrite { run } => compaction::merge(context, partition, &[*run], Target::Loose),
        Plan::Major { inputs } => compaction::merge(context, partition, inputs, Target::View),
        Plan::Split | Plan::Prefix => {
            let all: Vec<FileNumber> = partition.all_runs().map(|h| h.run().meta().number).collect();
            let version = Arc::clone(&engine.cell.state.load().version);
            let parts = parts_of_split(version.partitions.len());
            let bytes = part_bytes(partition, engine.settings.partition_bytes(), parts);
            if *plan == Plan::Split {
                return compaction::merge(context, partition, &all, Target::Parts(bytes));
            }
            // The disk may have no more free space than the reserve.
            let bytes = match engine.storage.reserve.bytes() {
                (_, 0) => bytes,
                (_, whole) => bytes.min(whole / PARTS_OF_RESERVE).max(PART_BYTES_MIN),
            };
            let shared = version.runs_of_others(partition.id);
            compaction::merge(context, partition, &all, Target::Prefix { bytes, shared: &shared })
        }
    };
    let mut unsplit = None;
    with_context(engine, Urgency::Merge, relocate, work, |output| {
        if let (Plan::Split | Plan::Prefix, [part]) = (plan, output.parts.as_slice()) {
            let bytes = part.written.iter().map(|run| run.file_bytes).sum();
            let blocks: u64 = part.written.iter().map(|run| u64::from(run.blocks)).sum();
            let is_large = bytes > engine.settings.partition_bytes() || blocks > compaction::PARTITION_BLOCKS_MAX;
            unsplit = is_large.then_some(bytes);
        }
        install_merge(engine, partition, &output, &snapshots)
    })?;
    if let Some(bytes) = unsplit {
        engine.maintenance.work.lock().unsplit.insert(partition.id, bytes);
    }
    let merged = !matches!(plan, Plan::Fold | Plan::Rebuild | Plan::Cut { .. });
    let counter = if merged { &engine.counters.merges } else { &engine.counters.folds };
    counter.fetch_add(1, Ordering::Relaxed);
    if matches!(plan, Plan::Loose { .. }) {
        engine.counters.loose_merges.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn install_merge(
    engine: &Engine,
    partition: &Partition,
    output: &MergeOutput,
    snapshots: &[SequenceNumber],
) -> Result<()> {
    let mut disk = engine.storage.disk.lock();
    let current = disk.manifest.layout().partitions[&partition.id].clone();
    let gone = |number: &FileNumber| output.consumed.contains(number) || output.folded.contains(number);
    let stays = |n: &FileNumber| output.parts.iter().any(|p| p.loose.contains(n));
    let added: Vec<FileNumber> = current.loose.iter().copied().filter(|n| !gone(n) && !stays(n)).collect();
    let mut changes = Vec::new();
    for meta in output.parts.iter().flat_map(|p| &p.written) {
        engine.counters.run_bytes.fetch_add(meta.file_bytes, Ordering::Relaxed);
        changes.push(Change::NewRun(Box::new(meta.clone())));
    }
    let is_new = |view: &&ViewMeta| current.view.as_ref().is_none_or(|old| old.number != view.number);
    for view in output.parts.iter().filter_map(|p| p.view.as_ref()).filter(is_new) {
        engine.counters.view_bytes.fetch_add(view.file_bytes, Ordering::Relaxed);
    }
    let split = output.parts.len() > 1;
    let mut ids = Vec::new();
    if split {
        changes.push(Change::DropPartition(partition.id));
    }
    for part in &output.parts {
        let id = if split { engine.storage.new_file_number() } else { partition.id };
        if split {
            changes.push(Change::NewPartition { id, start: part.start.clone(), end: part.end.clone() });
        }
        changes.push(set_runs(id, part, &added, disk.manifest.layout()));
        ids.push(id);
    }
    edits::apply_locked(engine, &mut disk, changes, None)?;
    if partition.all_runs().all(|h| output.consumed.contains(&h.run().meta().number)) {
        note_held(engine, &ids, snapshots);
    }
    Ok(())
}

/// Records how many garbage entries a full merge had to keep. They do not justify another merge
/// until a snapshot ends.
fn note_held(engine: &Engine, ids: &[u64], snapshots: &[SequenceNumber]) {
    let state = engine.cell.state.load();
    let mut work = engine.maintenance.work.lock();
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
fn drop_runs(engine: &Engine, partition: &Partition, dropped: &BTreeSet<FileNumber>) -> Result<()> {
    let mut disk = engine.storage.disk.lock();
    let current = disk.manifest.layout().partitions[&partition.id].clone();
    let keep = |numbers: &[FileNumber]| -> Vec<FileNumber> {
        numbers.iter().copied().filter(|n| !dropped.contains(n)).collect()
    };
    let runs = keep(&current.runs);
    let view = if runs.len() == current.runs.len() { current.view.map(Box::new) } else { None };
    let change = Change::SetRuns { partition: partition.id, runs, loose: keep(&current.loose), view };
    edits::apply_locked(engine, &mut disk, vec![change], None)
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
