//! `GET /stats`: the statistics as JSON, for the page and for scripts.

use crate::{
    body::Body,
    journal::Journal,
    json,
    load::bounds_us,
    monitor::{COLUMNS, Reading},
    place::in_pool,
    problem::Problem,
    query::Query,
    service::{Answer, Service, typed},
};
use braiddb::stats::{
    PartitionStats, ReaderStats, RunStats, RunningWork, SlowCause, SlowCommit, SlowCommitTotal, Stats, TreeInfo,
};
use hyper::{StatusCode, http::request::Parts};
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::SystemTime};

/// Maximum bytes of a partition's first key in the answer.
const KEY_BYTES_MAX: usize = 128;
/// Bytes of the tree's id at the begin of an internal key.
const TREE_BYTES: usize = 4;

pub async fn stats(service: &Service, request: &Parts) -> Answer {
    let query = Query::of(request.uri.query(), &["partitions", "since"])?;
    let has_partitions = query.flag("partitions")?;
    let since_us = query.number::<u64>("since", "of microseconds since 1970")?;
    let reading = service.monitor().read(service).await?;
    let mut answer = json!({
        "time_us": reading.time_us,
        "server": of_server(service, &reading),
        "engine": of_engine(&reading.stats),
        "partitions": of_sums(&reading),
        "running": reading.stats.running.iter().map(of_running).collect::<Vec<_>>(),
        "readers": reading.stats.overstaying.iter().map(of_reader).collect::<Vec<_>>(),
        "events": service.journal().map(Journal::entries),
        "damaged_partitions": reading.stats.damaged_partitions,
        "slow_commits": of_slow_commits(service, &reading.stats),
        "slow_commit_totals": reading.stats.slow_commit_totals.iter().map(of_total).collect::<Vec<_>>(),
        "requests": {"bounds_us": bounds_us().as_slice(), "kinds": service.load().counted()},
    });
    if let Some(since_us) = since_us {
        let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
        let rows: Vec<Vec<u64>> = service.monitor().samples(since_us).iter().map(|row| row.to_vec()).collect();
        answer["samples"] = json!({"names": names, "rows": rows});
    }
    if !has_partitions {
        return Ok(typed(StatusCode::OK, "application/json", Body::whole(format!("{answer}\n"))));
    }
    let db = service.db();
    let text = in_pool(move || {
        let trees = db.trees()?;
        answer["partition_list"] = of_partitions(&reading.stats.partitions, &trees);
        Ok::<_, Problem>(format!("{answer}\n"))
    });
    Ok(typed(StatusCode::OK, "application/json", Body::whole(text.await??)))
}

fn of_server(service: &Service, reading: &Reading) -> Value {
    let [ok, redirected, refused, failed] = [2, 3, 4, 5].map(|class| service.responses()[class - 1]);
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "name": service.name(),
        "write": service.may_write(),
        "follower": service.is_follower(),
        "not_ready": service.db().health().err().map(|error| error.to_string()),
        "uptime_us": micros(service.monitor().began.elapsed()),
        "readings": service.monitor().readings(),
        "reading_us": micros(reading.took),
        "reading_age_us": micros(reading.at.elapsed()),
        "kept_snapshots": service.snapshots().len(),
        "uploads": service.running_uploads(),
        "last_failure": service.monitor().last_failure(),
        "responses": {"2xx": ok, "3xx": redirected, "4xx": refused, "5xx": failed},
    })
}

fn micros(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The names are those of [`Stats`].
fn of_engine(stats: &Stats) -> Value {
    let written = json!({
        "user_bytes_written": stats.user_bytes_written,
        "log_bytes_written": stats.log_bytes_written,
        "run_bytes_written": stats.run_bytes_written,
        "view_bytes_written": stats.view_bytes_written,
        "blob_bytes_written": stats.blob_bytes_written,
        "manifest_bytes_written": stats.manifest_bytes_written,
        "disk_bytes": stats.disk_bytes,
        "disk_reserve_bytes": stats.disk_reserve_bytes,
        "disk_reserve_bytes_whole": stats.disk_reserve_bytes_whole,
        "log_kept_bytes": stats.log_kept_bytes,
        "recovered_records": stats.recovered_records,
        "log_tail_note": stats.log_tail_note,
    });
    let memory = json!({
        "memory_bytes": stats.memory_bytes,
        "memtable_bytes": stats.memtable_bytes,
        "memtable_bytes_max": stats.memtable_bytes_max,
        "frozen_memtables": stats.frozen_memtables,
        "cache_bytes": stats.cache_bytes,
        "cache_hits": stats.cache_hits,
        "cache_misses": stats.cache_misses,
        "hash_indexes": stats.hash_indexes,
        "hash_index_bytes": stats.hash_index_bytes,
        "open_files": stats.open_files,
        "open_files_max": stats.open_files_max,
        "file_reopenings": stats.file_reopenings,
        "direct_io": stats.direct_io,
        "direct_io_refused": stats.direct_io_refused,
        "batch_reads": stats.batch_reads.to_string(),
        "io_uring_refused": stats.io_uring_refused,
    });
    let work = json!({
        "last_sequence": stats.last_sequence,
        "commits": stats.commits,
        "syncs": stats.syncs,
        "flushes": stats.flushes,
        "merges": stats.merges,
        "loose_merges": stats.loose_merges,
        "folds": stats.folds,
        "expired": stats.expired,
        "views_healed": stats.views_healed,
        "older_runs": stats.older_runs,
        "background_errors": stats.background_errors,
        "failure": stats.failure,
        "transaction_conflicts": stats.transaction_conflicts,
        "transaction_retries": stats.transaction_retries,
        "slowed_us": stats.slowed_us,
        "stalls": stats.stalls,
        "stall_us_max": stats.stall_us_max,
        "pressure_per_mille": stats.pressure_per_mille,
        "rate_limit_bytes_per_second": stats.rate_limiter.bytes_per_second,
        "rate_limit_waited_us": stats.rate_limiter.waited_ns / 1000,
        "scrub_passes": stats.scrub.passes,
        "scrub_bytes": stats.scrub.bytes,
        "scrub_damaged_units": stats.scrub.damaged_units,
        "snapshots": stats.snapshots,
        "oldest_snapshot": stats.oldest_snapshot,
        "oldest_snapshot_age_us": stats.oldest_snapshot_age_us,
        "dead_entries_held": stats.dead_entries_held,
        "readers_expired": stats.readers_expired,
    });
    joined([written, memory, work])
}

/// Joins objects. One literal of all fields would exceed the compiler's limit of recursion.
fn joined(parts: [Value; 3]) -> Value {
    let fields = parts.into_iter().filter_map(|part| match part {
        Value::Object(fields) => Some(fields),
        _ => None,
    });
    Value::Object(fields.flatten().collect())
}

fn of_sums(reading: &Reading) -> Value {
    let sums = &reading.sums;
    json!({
        "count": sums.partitions,
        "runs": sums.runs,
        "unindexed_runs": sums.unindexed_runs,
        "run_bytes": sums.run_bytes,
        "raw_bytes": sums.raw_bytes,
        "entries": sums.entries,
        "view_bytes": sums.view_bytes,
        "garbage": sums.garbage,
    })
}

/// `null` for a follower: it does not commit.
fn of_slow_commits(service: &Service, stats: &Stats) -> Value {
    if service.is_follower() {
        return Value::Null;
    }
    stats.slow_commits.iter().map(of_slow_commit).collect()
}

fn of_slow_commit(commit: &SlowCommit) -> Value {
    let parts = commit.parts.longest_first();
    let ended = commit.ended.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    json!({
        "sequence": commit.sequence,
        "time_us": micros(ended),
        "took_us": micros(commit.took),
        "cause": commit.cause.name(),
        "parts": parts.iter().map(|(part, took)| json!({"name": part.name(), "us": micros(*took)})).collect::<Vec<_>>(),
        "behind": commit.behind.map(SlowCause::name),
        "background": commit.background.as_ref().map(of_running),
        "records": commit.records,
        "bytes": commit.bytes,
    })
}

fn of_running(running: &RunningWork) -> Value {
    json!({"work": running.work.to_string(), "ran_for_us": micros(running.ran_for)})
}

fn of_total(total: &SlowCommitTotal) -> Value {
    json!({"cause": total.cause.name(), "commits": total.commits, "part_us": total.part_us})
}

fn of_reader(reader: &ReaderStats) -> Value {
    json!({
        "kind": reader.kind.to_string(),
        "sequence": reader.sequence,
        "age_us": reader.age_us,
        "commits_behind": reader.commits_behind,
        "dead_entries_held": reader.dead_entries_held,
        "is_expired": reader.is_expired,
    })
}

fn of_partitions(partitions: &[PartitionStats], trees: &[TreeInfo]) -> Value {
    let names: BTreeMap<u32, &str> = trees.iter().map(|tree| (tree.id, tree.name.as_str())).collect();
    partitions.iter().map(|partition| of_partition(partition, &names)).collect()
}

/// The first key is an internal key: the tree's id, then the user's key. The first partition has none:
/// it begins with the first tree.
fn of_partition(partition: &PartitionStats, names: &BTreeMap<u32, &str>) -> Value {
    let first = partition.first_key.split_first_chunk::<TREE_BYTES>();
    let tree = first.map(|(tree, _)| u32::from_be_bytes(*tree));
    let key = first.map_or(&[][..], |(_, key)| &key[..key.len().min(KEY_BYTES_MAX)]);
    json!({
        "tree_id": tree,
        "tree": tree.map_or_else(|| names.values().next(), |tree| names.get(&tree)),
        "key": json::of_bytes(key),
        "runs": partition.runs.iter().map(of_run).collect::<Vec<_>>(),
        "unindexed": partition.loose.iter().map(of_run).collect::<Vec<_>>(),
        "view_bytes": partition.view_bytes,
        "view_entries": partition.view_entries,
        "garbage": partition.view_stale,
    })
}

fn of_run(run: &RunStats) -> Value {
    json!({
        "number": run.number,
        "bytes": run.bytes,
        "entries": run.entries,
        "raw_bytes": run.raw_bytes,
        "view_bytes": run.view_bytes,
    })
}
