//! The engine's statistics, as text and as JSON.

use std::io::{self, Write};

use braiddb::stats::{PartitionStats, ReaderStats, RunStats, Stats};
use serde_json::{Value, json};

use crate::{
    demo::{Drawn, draw_partitions},
    notation::{show_bytes, show_count, show_counted},
    text_form::to_hex,
};

pub fn write_text(stats: &Stats, drawn: Drawn, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "on disk          {}", show_bytes(stats.disk_bytes))?;
    let (reserve, whole) = (stats.disk_reserve_bytes, stats.disk_reserve_bytes_whole);
    if reserve < whole {
        let (reserve, whole) = (show_bytes(reserve), show_bytes(whole));
        writeln!(out, "disk reserve     {reserve} of {whole}: the disk was full, and only deletes are accepted")?;
    } else if whole > 0 {
        writeln!(out, "disk reserve     {}", show_bytes(whole))?;
    }
    let (memtables, cache) = (show_bytes(stats.memtable_bytes), show_bytes(stats.cache_bytes));
    writeln!(out, "in memory        {}: memtables {memtables}, cache {cache}", show_bytes(stats.memory_bytes))?;
    writeln!(out, "last commit      {}", show_count(stats.last_sequence))?;
    writeln!(out, "recovered        {} of the log", show_counted(stats.recovered_records, "record"))?;
    if let Some(note) = &stats.log_tail_note {
        writeln!(out, "end of the log   {note}")?;
    }
    if let Some(age_us) = stats.oldest_snapshot_age_us {
        let (count, oldest) = (show_count(stats.snapshots as u64), stats.oldest_snapshot.unwrap_or_default());
        writeln!(out, "readers          {count}, the oldest at commit {oldest}, open for {:.1} s", seconds(age_us))?;
    }
    for reader in &stats.overstaying {
        writeln!(out, "long reader      {}", show_reader(reader))?;
    }
    for damage in &stats.damaged_partitions {
        writeln!(out, "damaged          {damage}")?;
    }
    if let Some(failure) = &stats.failure {
        writeln!(out, "writes refused   {failure}")?;
    }
    let runs: usize = stats.partitions.iter().map(|partition| partition.runs.len() + partition.loose.len()).sum();
    let runs = show_counted(runs as u64, "run");
    writeln!(out, "partitions       {} with {runs}", stats.partitions.len())?;
    writeln!(out)?;
    out.write_all(draw_partitions(&stats.partitions, drawn, 100).as_bytes())
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

fn show_reader(reader: &ReaderStats) -> String {
    let holds = match reader.is_expired {
        true => "expired".to_owned(),
        false => format!("pins at least {} garbage entries", show_count(reader.dead_entries_held)),
    };
    let ReaderStats { kind, sequence, age_us, commits_behind, .. } = reader;
    let behind = show_counted(*commits_behind, "commit");
    format!("{kind} at commit {sequence}, open for {:.1} s, {behind} behind, {holds}", seconds(*age_us))
}

pub fn to_json(stats: &Stats) -> Value {
    json!({
        "disk_bytes": stats.disk_bytes,
        "memory_bytes": stats.memory_bytes,
        "memtable_bytes": stats.memtable_bytes,
        "cache_bytes": stats.cache_bytes,
        "cache_hits": stats.cache_hits,
        "cache_misses": stats.cache_misses,
        "blocks_in_place": stats.blocks_in_place,
        "direct_io": stats.direct_io,
        "direct_io_refused": stats.direct_io_refused,
        "open_files": stats.open_files,
        "open_files_max": stats.open_files_max,
        "file_reopenings": stats.file_reopenings,
        "batch_reads": stats.batch_reads.to_string(),
        "io_uring_refused": stats.io_uring_refused,
        "rate_limit_bytes_per_second": stats.rate_limiter.bytes_per_second,
        "rate_limited_flush_bytes": stats.rate_limiter.flush_bytes,
        "rate_limited_merge_bytes": stats.rate_limiter.merge_bytes,
        "rate_limit_waited_us": stats.rate_limiter.waited_ns / 1000,
        "user_bytes_written": stats.user_bytes_written,
        "log_bytes_written": stats.log_bytes_written,
        "run_bytes_written": stats.run_bytes_written,
        "view_bytes_written": stats.view_bytes_written,
        "blob_bytes_written": stats.blob_bytes_written,
        "manifest_bytes_written": stats.manifest_bytes_written,
        "commits": stats.commits,
        "syncs": stats.syncs,
        "flushes": stats.flushes,
        "merges": stats.merges,
        "loose_merges": stats.loose_merges,
        "folds": stats.folds,
        "views_healed": stats.views_healed,
        "hash_indexes": stats.hash_indexes,
        "hash_index_bytes": stats.hash_index_bytes,
        "background_errors": stats.background_errors,
        "slowed_us": stats.slowed_us,
        "stalls": stats.stalls,
        "stall_us_max": stats.stall_us_max,
        "pressure_per_mille": stats.pressure_per_mille,
        "snapshots": stats.snapshots,
        "oldest_snapshot": stats.oldest_snapshot,
        "oldest_snapshot_age_us": stats.oldest_snapshot_age_us,
        "overstaying": stats.overstaying.iter().map(reader_json).collect::<Vec<_>>(),
        "dead_entries_held": stats.dead_entries_held,
        "readers_expired": stats.readers_expired,
        "last_sequence": stats.last_sequence,
        "frozen_memtables": stats.frozen_memtables,
        "failure": stats.failure,
        "damaged_partitions": stats.damaged_partitions,
        "recovered_records": stats.recovered_records,
        "log_tail_note": stats.log_tail_note,
        "partitions": stats.partitions.iter().map(partition_json).collect::<Vec<_>>(),
    })
}

fn reader_json(reader: &ReaderStats) -> Value {
    json!({
        "kind": reader.kind.to_string(),
        "sequence": reader.sequence,
        "age_us": reader.age_us,
        "commits_behind": reader.commits_behind,
        "dead_entries_held": reader.dead_entries_held,
        "is_expired": reader.is_expired,
    })
}

fn partition_json(partition: &PartitionStats) -> Value {
    json!({
        "first_key": to_hex(&partition.first_key),
        "runs": partition.runs.iter().map(run_json).collect::<Vec<_>>(),
        "loose": partition.loose.iter().map(run_json).collect::<Vec<_>>(),
        "view_bytes": partition.view_bytes,
        "view_entries": partition.view_entries,
        "view_stale": partition.view_stale,
    })
}

fn run_json(run: &RunStats) -> Value {
    json!({"number": run.number, "bytes": run.bytes, "entries": run.entries})
}
