//! `/metrics` in the text format of Prometheus, and `/ready`.

use crate::{
    body::Body,
    place::in_pool,
    problem::Problem,
    service::{Answer, Service, plain, typed},
};
use braiddb::stats::Stats;
use hyper::StatusCode;
use std::fmt::Write as _;

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub async fn metrics(service: &Service) -> Answer {
    let db = service.db();
    let stats = in_pool(move || db.stats()).await?;
    let mut text = of_database(&stats);
    write_head(&mut text, "http_responses_total", "counter", "HTTP responses by the class of their status");
    for (class, count) in service.responses().into_iter().enumerate() {
        let _ = writeln!(text, "braiddb_http_responses_total{{class=\"{}xx\"}} {count}", class + 1);
    }
    let kept = service.snapshots().len() as u64;
    write_metric(&mut text, "http_kept_snapshots", "gauge", "Snapshots kept for the next pages of scans", kept);
    let streams = service.streams().running();
    write_metric(&mut text, "http_change_streams", "gauge", "Open change streams", streams);
    let backups = service.backups().running();
    write_metric(&mut text, "http_backups", "gauge", "Backups that are being downloaded", backups);
    let uploads = service.running_uploads();
    write_metric(&mut text, "http_uploads", "gauge", "Bodies above 64 KiB that are being received or applied", uploads);
    Ok(typed(StatusCode::OK, CONTENT_TYPE, Body::whole(text)))
}

/// 200 if the database takes requests, else 503. Reads memory only: anyone may ask, without a token.
pub fn ready(service: &Service) -> Answer {
    match service.db().health() {
        Ok(()) => Ok(plain(StatusCode::OK, "ready\n")),
        Err(error) => {
            let detail = format!("the database takes no writes until it is opened again: {error}");
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "Not ready", detail))
        }
    }
}

fn write_head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP braiddb_{name} {help}\n# TYPE braiddb_{name} {kind}");
}

fn write_metric(text: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    write_head(text, name, kind, help);
    let _ = writeln!(text, "braiddb_{name} {value}");
}

fn write_slow_commits(text: &mut String, stats: &Stats) {
    write_head(text, "slow_commits_total", "counter", "Slow commits by cause");
    for total in &stats.slow_commit_totals {
        let _ = writeln!(text, "braiddb_slow_commits_total{{cause=\"{}\"}} {}", total.cause.name(), total.commits);
    }
    let help = "Time of slow commits by part";
    write_head(text, "slow_commit_microseconds_total", "counter", help);
    for total in &stats.slow_commit_totals {
        let (part, us) = (total.cause.name(), total.part_us);
        let _ = writeln!(text, "braiddb_slow_commit_microseconds_total{{part=\"{part}\"}} {us}");
    }
}

fn of_database(stats: &Stats) -> String {
    let runs = stats.partitions.iter().map(|partition| partition.runs.len() + partition.loose.len());
    let counters = [
        ("commits_total", "Commits", stats.commits),
        ("syncs_total", "Syncs of the log", stats.syncs),
        ("user_bytes_written_total", "Bytes of keys and values written", stats.user_bytes_written),
        ("log_bytes_written_total", "Bytes written to the log", stats.log_bytes_written),
        ("run_bytes_written_total", "Bytes written to runs", stats.run_bytes_written),
        ("blob_bytes_written_total", "Bytes written to blob files", stats.blob_bytes_written),
        ("view_bytes_written_total", "Bytes written to views", stats.view_bytes_written),
        ("flushes_total", "Flushes of memtables", stats.flushes),
        ("folds_total", "Folds of runs into views", stats.folds),
        ("merges_total", "Merges of runs", stats.merges),
        ("stalls_total", "Commits that waited for a flush", stats.stalls),
        ("throttled_microseconds_total", "Time for which commits were throttled", stats.slowed_us),
        ("cache_hits_total", "Blocks found in the block cache", stats.cache_hits),
        ("cache_misses_total", "Blocks read into the block cache", stats.cache_misses),
        ("expired_total", "Expired records dropped by merges", stats.expired),
        ("readers_expired_total", "Readers that exceeded their maximum age", stats.readers_expired),
        ("transaction_conflicts_total", "Transactions refused for a conflict", stats.transaction_conflicts),
        ("transaction_retries_total", "Transactions repeated after a conflict", stats.transaction_retries),
        ("background_errors_total", "Failed flushes and merges", stats.background_errors),
    ];
    let gauges = [
        ("last_sequence", "Sequence number of the latest commit", stats.last_sequence),
        ("disk_bytes", "Bytes of all files", stats.disk_bytes),
        ("memory_bytes", "Memory of caches, memtables and indexes", stats.memory_bytes),
        ("memtable_bytes", "Memory of memtables", stats.memtable_bytes),
        ("cache_bytes", "Memory of the block cache", stats.cache_bytes),
        ("log_kept_bytes", "Bytes of the retained log", stats.log_kept_bytes),
        ("disk_reserve_bytes", "Bytes reserved for deletes on a full disk", stats.disk_reserve_bytes),
        ("snapshots", "Open readers", stats.snapshots as u64),
        ("oldest_snapshot_age_microseconds", "Age of the oldest reader", stats.oldest_snapshot_age_us.unwrap_or(0)),
        ("open_files", "Open table files", stats.open_files as u64),
        ("partitions", "Partitions", stats.partitions.len() as u64),
        ("runs", "Runs of all partitions", runs.sum::<usize>() as u64),
        ("damaged_partitions", "Partitions with damaged files", stats.damaged_partitions.len() as u64),
        ("failed", "1 if the database takes no writes until it is opened again", u64::from(stats.failure.is_some())),
    ];
    let mut text = String::new();
    for (name, help, value) in counters {
        write_metric(&mut text, name, "counter", help, value);
    }
    write_slow_commits(&mut text, stats);
    for (name, help, value) in gauges {
        write_metric(&mut text, name, "gauge", help, value);
    }
    text
}
