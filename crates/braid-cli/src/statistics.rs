//! The engine's statistics, as text and as JSON.

use std::{
    io::{self, Write},
    time::Duration,
};

use braiddb::stats::{PartitionStats, ReaderStats, RunStats, SlowCause, SlowCommit, Stats};
use serde_json::{Value, json};

use crate::{
    demo::{Drawn, draw_partitions},
    notation::{show_bytes, show_count, show_counted, show_time},
    text_form::to_hex,
};

/// The process whose statistics they are.
pub enum Seen {
    /// It has the database open for writing, and knows everything.
    ByOwner,
    /// It reads the files. Its counters are its own.
    ByReader {
        /// The process that has the database open for writing.
        owner: Option<String>,
    },
}

/// Members that a reader knows: all that the files have.
const OF_FILES: [&str; 10] = [
    "disk_bytes",
    "disk_reserve_bytes",
    "disk_reserve_bytes_whole",
    "memtable_bytes",
    "last_sequence",
    "damaged_partitions",
    "recovered_records",
    "log_tail_note",
    "partitions",
    "trees",
];

/// Makes the members null that only the owner knows, and names them in `not_known`.
pub fn remove_unknown(report: &mut Value, owner: Option<&str>) {
    let mut not_known = Vec::new();
    for (name, value) in report.as_object_mut().into_iter().flatten() {
        if !OF_FILES.contains(&name.as_str()) {
            *value = Value::Null;
            not_known.push(name.clone());
        }
    }
    report["not_known"] = json!(not_known);
    report["owner"] = json!(owner);
}

pub fn write_text(stats: &Stats, seen: &Seen, drawn: Drawn, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "on disk          {}", show_bytes(stats.disk_bytes))?;
    let (reserve, whole) = (stats.disk_reserve_bytes, stats.disk_reserve_bytes_whole);
    if reserve < whole {
        let (reserve, whole) = (show_bytes(reserve), show_bytes(whole));
        writeln!(out, "disk reserve     {reserve} of {whole}: the disk was full, and only deletes are accepted")?;
    } else if whole > 0 {
        writeln!(out, "disk reserve     {}", show_bytes(whole))?;
    }
    let (memtables, cache) = (show_bytes(stats.memtable_bytes), show_bytes(stats.cache_bytes));
    match seen {
        Seen::ByOwner => {
            writeln!(out, "in memory        {}: memtables {memtables}, cache {cache}", show_bytes(stats.memory_bytes))?;
        }
        Seen::ByReader { owner } => {
            let records = show_counted(stats.recovered_records, "record");
            writeln!(out, "in the log       {records} not in other files yet: {memtables} of memtables")?;
            if let Some(owner) = owner {
                writeln!(out, "open in          {owner}")?;
            }
        }
    }
    writeln!(out, "last commit      {}", show_count(stats.last_sequence))?;
    if let Seen::ByOwner = seen {
        writeln!(out, "recovered        {} of the log", show_counted(stats.recovered_records, "record"))?;
    }
    if let Some(note) = &stats.log_tail_note {
        writeln!(out, "end of the log   {note}")?;
    }
    if let (Some(age_us), Seen::ByOwner) = (stats.oldest_snapshot_age_us, seen) {
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
    write_slow_commits(stats, out)?;
    writeln!(out)?;
    out.write_all(draw_partitions(&stats.partitions, drawn, 100).as_bytes())
}

/// Maximum slow commits in the text; the latest.
const SLOW_SHOWN: usize = 10;

fn write_slow_commits(stats: &Stats, out: &mut dyn Write) -> io::Result<()> {
    let slow = stats.slow_commit_totals.iter().filter(|total| total.commits > 0 || total.part_us > 0);
    let total: u64 = slow.clone().map(|total| total.commits).sum();
    if total == 0 {
        return Ok(());
    }
    writeln!(out, "slow commits     {}", show_count(total))?;
    writeln!(out, "  cause        commits       time")?;
    for total in slow {
        let (cause, commits, time) = (total.cause.to_string(), show_count(total.commits), seconds(total.part_us));
        writeln!(out, "  {cause:<11} {commits:>8} {time:>8.2} s")?;
    }
    writeln!(out, "  ended                     commit   records      bytes     took  time by part")?;
    for commit in stats.slow_commits.iter().rev().take(SLOW_SHOWN) {
        let number = commit.sequence.map_or("failed".to_owned(), |sequence| sequence.to_string());
        let (ended, records, bytes) = (show_time(commit.ended), show_count(commit.records), show_bytes(commit.bytes));
        let (took, parts) = (commit.took.as_secs_f64(), show_parts(commit));
        writeln!(out, "  {ended:<20} {number:>11} {records:>9} {bytes:>10} {took:>6.2} s  {parts}")?;
    }
    Ok(())
}

/// `memory full 1.2s, sync 80.0ms; flush running for 1.5s`.
fn show_parts(commit: &SlowCommit) -> String {
    let mut text = commit.parts.to_string();
    if let Some(behind) = commit.behind {
        text += &format!("; commits before it: {behind}");
    }
    if let Some(running) = commit.background {
        text += &format!("; {} running for {:.1?}", running.work, running.ran_for);
    }
    text
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
        "slow_commits": stats.slow_commits.iter().map(slow_commit_json).collect::<Vec<_>>(),
        "slow_commit_totals": stats.slow_commit_totals.iter().map(|total| json!({
            "cause": total.cause.name(),
            "commits": total.commits,
            "part_us": total.part_us,
        })).collect::<Vec<_>>(),
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

/// Parts are in microseconds.
fn slow_commit_json(commit: &SlowCommit) -> Value {
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let parts = SlowCause::ALL.iter().map(|part| (part.name().to_owned(), json!(us(commit.parts.get(*part)))));
    json!({
        "ended": show_time(commit.ended),
        "took_us": us(commit.took),
        "cause": commit.cause.name(),
        "parts_us": parts.collect::<serde_json::Map<_, _>>(),
        "behind": commit.behind.map(SlowCause::name),
        "background": commit.background.map(|running| json!({
            "work": running.work.to_string(),
            "ran_for_us": us(running.ran_for),
        })),
        "records": commit.records,
        "bytes": commit.bytes,
        "sequence": commit.sequence,
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

#[cfg(test)]
mod tests {
    use super::{Seen, to_json, write_text};
    use crate::demo::Drawn;
    use braiddb::{Db, stats::SlowCause};
    use std::time::Duration;

    fn text_of(db: &Db) -> String {
        let mut out = Vec::new();
        write_text(&db.stats(), &Seen::ByOwner, Drawn::Worst, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn slow_commits_are_shown_by_cause_and_one_by_one() {
        let db = Db::builder().slow_commit(Duration::ZERO).open_in_memory().unwrap();
        let tree = db.tree("t").unwrap();
        let mut sequence = 0;
        for key in 0..30u32 {
            sequence = tree.put(key.to_be_bytes(), b"v").unwrap();
        }
        let (text, stats) = (text_of(&db), db.stats());
        let count = stats.slow_commits.len();
        assert!(text.contains(&format!("slow commits     {count}\n  cause        commits       time\n")), "{text}");
        let table: Vec<&str> =
            text.split_once("ended  ").unwrap().1.lines().skip(1).take_while(|line| !line.is_empty()).collect();
        // The latest first.
        assert_eq!(table.len(), 10, "{text}");
        assert!(table[0].contains(&format!(" {sequence} ")), "{text}");
        let json = to_json(&stats);
        let last = json["slow_commits"].as_array().unwrap().last().unwrap();
        assert_eq!((&last["sequence"], &last["records"]), (&sequence.into(), &1.into()), "{last}");
        let parts: u64 = SlowCause::ALL.iter().map(|cause| last["parts_us"][cause.name()].as_u64().unwrap()).sum();
        assert!(last["took_us"].as_u64().unwrap() >= parts, "{last}");
        let total: u64 =
            json["slow_commit_totals"].as_array().unwrap().iter().map(|t| t["commits"].as_u64().unwrap()).sum();
        assert_eq!(total, count as u64);
    }

    #[test]
    fn no_slow_commit_shows_no_table() {
        let db = Db::builder().slow_commit(Duration::MAX).open_in_memory().unwrap();
        db.tree("t").unwrap().put(b"k", b"v").unwrap();
        assert!(!text_of(&db).contains("slow commits"));
    }
}
