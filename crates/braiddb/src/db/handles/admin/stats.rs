//! Collects the statistics of an open database.

use crate::{
    db::{
        engine::{
            root::Engine,
            stats::{PartitionStats, RunStats, Stats, hash_index_bytes},
        },
        maintenance::upgrade,
        read::reader_registry,
    },
    platform::OpenFilesStats,
    version::Partition,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns the present statistics.
pub fn collect(engine: &Engine) -> Stats {
    let (counters, storage, log) = (&engine.counters, &engine.storage, &engine.log);
    let state = engine.cell.state.load_full();
    let memtables = state.memtables().map(|m| m.bytes()).sum::<usize>();
    let memtable_bytes = (memtables + engine.tenant.common.chunk_pool.bytes()) as u64;
    let (cache, cache_bytes) = (storage.table.cache.stats(), storage.table.cache.usage_bytes() as u64);
    let (readers, (disk_reserve_bytes, disk_reserve_bytes_whole)) =
        (reader_registry::summary(engine), storage.reserve.bytes());
    let (io, resident) = (storage.table.vfs.io_report(), storage.disk.lock().files.resident_bytes() as u64);
    let files = engine.settings.open_files.as_ref().map_or_else(OpenFilesStats::default, |files| files.stats());
    Stats {
        open_files: files.open,
        open_files_max: files.max,
        file_reopenings: files.reopened,
        commits: load(&counters.commits),
        user_bytes_written: load(&counters.user_bytes),
        log_kept_bytes: log.wal.as_ref().map_or(0, |wal| wal.retained().1),
        log_bytes_written: log.wal.as_ref().map_or(0, |w| w.stats().bytes_written),
        run_bytes_written: load(&counters.run_bytes),
        view_bytes_written: load(&counters.view_bytes),
        blob_bytes_written: storage.blobs.bytes_written(),
        manifest_bytes_written: load(&counters.manifest_bytes),
        disk_bytes: storage.table.vfs.list(&engine.dir).map_or(0, |files| files.iter().map(|f| f.len).sum()),
        disk_reserve_bytes,
        disk_reserve_bytes_whole,
        memory_bytes: memtable_bytes + cache_bytes + resident,
        memtable_bytes,
        memtable_bytes_max: engine.settings.memtable_bytes() as u64,
        cache_bytes,
        cache_hits: cache.hits,
        cache_misses: cache.misses,
        blocks_in_place: cache.checked,
        direct_io: io.direct,
        direct_io_refused: io.direct_refused,
        batch_reads: io.batches,
        io_uring_refused: io.io_uring_refused,
        rate_limiter: engine.settings.rate_limiter.as_ref().map_or_else(Default::default, |limiter| limiter.stats()),
        syncs: log.wal.as_ref().map_or(0, |w| w.stats().syncs),
        flushes: load(&counters.flushes),
        merges: load(&counters.merges),
        loose_merges: load(&counters.loose_merges),
        expired: load(&counters.expired),
        folds: load(&counters.folds),
        views_healed: load(&counters.views_healed),
        hash_indexes: load(&counters.hash_indexes),
        hash_index_bytes: hash_index_bytes(&state.version),
        background_errors: load(&counters.background_errors),
        transaction_conflicts: load(&counters.conflicts),
        transaction_retries: load(&counters.retries),
        recovered_records: load(&counters.recovered_records),
        scrub: engine.maintenance.scrubber.stats(),
        log_tail_note: counters.log_tail_note.lock().clone(),
        snapshots: readers.count,
        oldest_snapshot: readers.oldest,
        oldest_snapshot_age_us: readers.oldest_age_us,
        overstaying: readers.overstaying,
        dead_entries_held: readers.dead_held,
        readers_expired: load(&counters.readers_expired),
        last_sequence: engine.readers.snapshots.visible(),
        frozen_memtables: state.frozen.len(),
        failure: engine.health.failure(),
        older_runs: upgrade::older_runs(&state),
        damaged_partitions: engine.maintenance.work.lock().failed.values().cloned().collect(),
        partitions: state.version.partitions.iter().map(|p| partition_stats(p)).collect(),
        ..delays(engine)
    }
}

/// Returns the statistics of delayed commits, without others.
fn delays(engine: &Engine) -> Stats {
    let counters = &engine.counters;
    Stats {
        slowed_us: load(&counters.slowed_ns) / 1000,
        stalls: load(&counters.stalls),
        stall_us_max: load(&counters.stall_ns_max) / 1000,
        running: engine.commits.slow.all_running(engine.now_ns()),
        slow_commits: engine.commits.slow.commits(),
        slow_commit_totals: engine.commits.slow.totals(),
        pressure_per_mille: engine.maintenance.pressure.per_mille(),
        ..Stats::default()
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn partition_stats(partition: &Partition) -> PartitionStats {
    let runs: Vec<RunStats> = partition
        .all_runs()
        .map(|h| h.run().meta())
        .map(|m| RunStats {
            number: m.number,
            bytes: m.file_bytes,
            entries: m.entries,
            raw_bytes: m.raw_bytes,
            view_bytes: m.view_bytes,
        })
        .collect();
    let (runs, loose) = runs.split_at(partition.runs.len());
    let view = partition.view.as_ref().map(|v| v.meta());
    PartitionStats {
        first_key: partition.layout.start.clone(),
        runs: runs.to_vec(),
        loose: loose.to_vec(),
        view_bytes: view.map_or(0, |v| v.file_bytes),
        view_entries: view.map_or(0, |v| v.entries),
        view_stale: view.map_or(0, |v| v.stale),
    }
}
