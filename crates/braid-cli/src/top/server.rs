//! Readings of a server: `GET /stats` and `GET /trees`, as docs/http.md describes them.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    http::Client,
    reading::{
        Counters, Inside, Memory, OldReader, Readers, Reading, Requests, Sizes, SlowCommit, SlowTotal, TREES_AGE_MAX,
        TreeLine, largest,
    },
    sections::show_age,
};
use crate::notation::show_bytes;

/// The server may be busy with the sizes of its trees at most for one part of this many of the time.
const TREES_SHARE: u32 = 20;

pub struct Server {
    client: Client,
    trees: Mutex<Option<Trees>>,
}

struct Trees {
    answer: Value,
    read: Instant,
    took: Duration,
}

impl Trees {
    fn is_old(&self) -> bool {
        self.read.elapsed() >= TREES_AGE_MAX.max(self.took * TREES_SHARE)
    }
}

impl Server {
    pub fn new(client: Client) -> Server {
        Server { client, trees: Mutex::default() }
    }

    /// The first reading has no trees: their sizes can take long.
    pub fn read_first(&self) -> Result<Reading> {
        Ok(reading(&self.get("/stats")?, &Value::Null))
    }

    pub fn read(&self) -> Result<Reading> {
        let stats = self.get("/stats")?;
        let mut trees = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
        if trees.as_ref().is_none_or(Trees::is_old) {
            let begun = Instant::now();
            let answer = self.get("/trees")?;
            *trees = Some(Trees { answer, read: Instant::now(), took: begun.elapsed() });
        }
        Ok(reading(&stats, trees.as_ref().map_or(&Value::Null, |trees| &trees.answer)))
    }

    fn get(&self, path: &str) -> Result<Value> {
        let body = self.client.get(path)?;
        serde_json::from_slice(&body).with_context(|| format!("{}{path} is no JSON", self.client.address))
    }
}

/// Absent numbers are 0: an older server knows fewer.
pub fn reading(stats: &Value, trees: &Value) -> Reading {
    let (server, engine, partitions) = (&stats["server"], &stats["engine"], &stats["partitions"]);
    let is_follower = server["follower"] == true;
    let alarms = [&server["not_ready"], &engine["failure"]].into_iter().filter_map(Value::as_str);
    let damaged = list(&stats["damaged_partitions"]).filter_map(Value::as_str);
    let (trees, trees_left_out) = largest(list(&trees["trees"]).map(tree).collect());
    Reading {
        time_us: number(&stats["time_us"]),
        sizes: Sizes {
            last_commit: number(&engine["last_sequence"]),
            disk_bytes: number(&engine["disk_bytes"]),
            partitions: number(&partitions["count"]),
            runs: number(&partitions["runs"]),
            unindexed_runs: number(&partitions["unindexed_runs"]),
            garbage_entries: number(&partitions["garbage"]),
        },
        inside: Some(inside(stats)),
        trees,
        trees_left_out,
        alarms: alarms.chain(damaged).map(str::to_owned).chain(full_disk(engine)).chain(failure(stats)).collect(),
        owner: match is_follower {
            true => "a server that follows another process: counters are those of the server".to_owned(),
            false => format!("up {}", show_age(number(&server["uptime_us"]))),
        },
    }
}

fn full_disk(engine: &Value) -> Option<String> {
    let (left, whole) = (number(&engine["disk_reserve_bytes"]), number(&engine["disk_reserve_bytes_whole"]));
    (left < whole).then(|| {
        let (left, whole) = (show_bytes(left), show_bytes(whole));
        format!(
            "the disk is full: only deletes are accepted until space is free; {left} of the reserve of {whole} left"
        )
    })
}

/// The last request that the server could not answer, for a minute.
fn failure(stats: &Value) -> Option<String> {
    let failure = &stats["server"]["last_failure"];
    let age_us = number(&stats["time_us"]).saturating_sub(number(&failure["time_us"]));
    let is_recent = failure.is_object() && age_us < 60_000_000;
    is_recent.then(|| format!("a request failed {} ago: {}", show_age(age_us), text(&failure["detail"])))
}

fn inside(stats: &Value) -> Inside {
    let engine = &stats["engine"];
    let of = |name: &str| number(&engine[name]);
    let files = ["run_bytes_written", "view_bytes_written", "blob_bytes_written", "manifest_bytes_written"];
    Inside {
        counters: Counters {
            commits: of("commits"),
            user_bytes_written: of("user_bytes_written"),
            log_bytes_written: of("log_bytes_written"),
            file_bytes_written: files.iter().map(|name| of(name)).sum(),
            syncs: of("syncs"),
            flushes: of("flushes"),
            merges: of("merges") + of("loose_merges"),
            folds: of("folds"),
            stalls: of("stalls"),
            slowed_us: of("slowed_us"),
            conflicts: of("transaction_conflicts"),
            background_errors: of("background_errors"),
            cache_hits: of("cache_hits"),
            cache_misses: of("cache_misses"),
        },
        memory: Memory {
            all_bytes: of("memory_bytes"),
            memtable_bytes: of("memtable_bytes"),
            memtable_bytes_max: of("memtable_bytes_max"),
            cache_bytes: of("cache_bytes"),
            hash_index_bytes: of("hash_index_bytes"),
            open_files: of("open_files"),
        },
        pressure_per_mille: of("pressure_per_mille"),
        stall_us_max: of("stall_us_max"),
        frozen_memtables: of("frozen_memtables"),
        readers: Readers {
            count: of("snapshots"),
            oldest_age_us: engine["oldest_snapshot_age_us"].as_u64(),
            garbage_entries: of("dead_entries_held"),
            expired: of("readers_expired"),
            old: list(&stats["readers"]).map(reader).collect(),
        },
        requests: list(&stats["requests"]["kinds"]).map(requests).collect(),
        bounds_us: list(&stats["requests"]["bounds_us"]).map(number).collect(),
        slow_commits: stats["slow_commits"].as_array().map(|commits| {
            let mut commits: Vec<SlowCommit> = commits.iter().map(slow_commit).collect();
            commits.sort_by_key(|commit| std::cmp::Reverse(commit.time_us));
            commits
        }),
        slow_totals: list(&stats["slow_commit_totals"]).map(slow_total).filter(|total| total.commits > 0).collect(),
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn tree(value: &Value) -> TreeLine {
    TreeLine {
        name: text(&value["name"]),
        is_multi: value["kind"] == "multi",
        keys: number(&value["records_estimate"]),
        bytes: number(&value["bytes_estimate"]),
    }
}

fn reader(value: &Value) -> OldReader {
    OldReader {
        kind: text(&value["kind"]),
        commit: number(&value["sequence"]),
        age_us: number(&value["age_us"]),
        commits_behind: number(&value["commits_behind"]),
        garbage_entries: number(&value["dead_entries_held"]),
        is_expired: value["is_expired"] == true,
    }
}

fn requests(value: &Value) -> Requests {
    Requests {
        kind: text(&value["kind"]),
        count: number(&value["count"]),
        buckets: list(&value["buckets"]).map(number).collect(),
    }
}

fn slow_total(value: &Value) -> SlowTotal {
    SlowTotal { cause: text(&value["cause"]), commits: number(&value["commits"]), part_us: number(&value["part_us"]) }
}

fn slow_commit(value: &Value) -> SlowCommit {
    let part = |part: &Value| (text(&part["name"]), number(&part["us"]));
    SlowCommit {
        time_us: number(&value["time_us"]),
        commit: value["sequence"].as_u64(),
        took_us: number(&value["took_us"]),
        cause: text(&value["cause"]),
        background: value["background"]["work"].as_str().map(str::to_owned),
        parts: list(&value["parts"]).map(part).filter(|(_, us)| *us > 0).collect(),
    }
}
