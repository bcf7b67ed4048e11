//! A frame as JSON.

use serde_json::{Map, Value, json};

use super::{
    frame::Frame,
    reading::{Inside, OldReader, Reading, SlowCommit, SlowTotal, TreeLine},
    sections::NOT_KNOWN,
};

/// Members that are not known are null, and `not_known` names them.
pub fn to_json(frame: &Frame) -> Value {
    let now = &frame.now;
    let inside = now.inside.as_ref();
    let mut report = json!({
        "source": frame.title,
        "owner": now.owner,
        "seconds": frame.seconds,
        "commits_per_second": frame.commits_per_second,
        "last_commit": now.sizes.last_commit,
        "disk_bytes": now.sizes.disk_bytes,
        "partitions": now.sizes.partitions,
        "runs": now.sizes.runs,
        "unindexed_runs": now.sizes.unindexed_runs,
        "garbage_entries": now.sizes.garbage_entries,
        "alarms": now.alarms,
        "rates": rates(frame),
        "requests": inside.map(|_| requests(frame)),
        "memory": inside.map(memory),
        "pressure_per_mille": inside.map(|inside| inside.pressure_per_mille),
        "readers": inside.map(readers),
        "slow_commits": inside.and_then(|inside| inside.slow_commits.as_ref()).map(|commits| {
            commits.iter().map(slow_commit).collect::<Vec<_>>()
        }),
    });
    report["slow_commit_totals"] = inside.map(slow_totals).unwrap_or_default();
    report["trees"] = now.trees.iter().map(tree).collect();
    report["trees_left_out"] = json!(now.trees_left_out);
    report["not_known"] = not_known(now);
    report
}

fn not_known(now: &Reading) -> Value {
    match &now.inside {
        None => json!(NOT_KNOWN),
        Some(inside) if inside.slow_commits.is_none() => json!(["slow commits"]),
        Some(_) => json!([]),
    }
}

fn rates(frame: &Frame) -> Value {
    let Some(change) = &frame.change else { return Value::Null };
    let rate = |count| frame.per_second(count);
    json!({
        "user_bytes": rate(change.user_bytes_written),
        "log_bytes": rate(change.log_bytes_written),
        "file_bytes": rate(change.file_bytes_written),
        "syncs": rate(change.syncs),
        "flushes": rate(change.flushes),
        "merges": rate(change.merges),
        "folds": rate(change.folds),
        "stalls": rate(change.stalls),
        "throttled_us": rate(change.slowed_us),
        "conflicts": rate(change.conflicts),
        "cache_hits": rate(change.cache_hits),
        "cache_misses": rate(change.cache_misses),
    })
}

fn slow_commit(slow: &SlowCommit) -> Value {
    let parts: Map<String, Value> = slow.parts.iter().map(|(name, us)| (name.clone(), json!(us))).collect();
    json!({
        "time_us": slow.time_us, "commit": slow.commit, "took_us": slow.took_us, "cause": slow.cause, "parts_us": parts,
        "background": slow.background,
    })
}

fn slow_totals(inside: &Inside) -> Value {
    let one = |total: &SlowTotal| json!({"cause": total.cause, "commits": total.commits, "part_us": total.part_us});
    inside.slow_totals.iter().map(one).collect()
}

fn requests(frame: &Frame) -> Value {
    let one = |latency: &super::frame::Latency| {
        json!({
            "kind": latency.kind, "per_second": latency.per_second, "p50_us": latency.p50_us, "p99_us": latency.p99_us,
        })
    };
    frame.latencies.iter().map(one).collect()
}

fn memory(inside: &Inside) -> Value {
    let memory = &inside.memory;
    json!({
        "all_bytes": memory.all_bytes,
        "memtable_bytes": memory.memtable_bytes,
        "memtable_bytes_max": memory.memtable_bytes_max,
        "cache_bytes": memory.cache_bytes,
        "hash_index_bytes": memory.hash_index_bytes,
        "open_files": memory.open_files,
        "frozen_memtables": inside.frozen_memtables,
    })
}

fn readers(inside: &Inside) -> Value {
    let readers = &inside.readers;
    let one = |reader: &OldReader| {
        json!({
            "kind": reader.kind, "commit": reader.commit, "age_us": reader.age_us,
            "commits_behind": reader.commits_behind, "garbage_entries": reader.garbage_entries,
            "is_expired": reader.is_expired,
        })
    };
    json!({
        "count": readers.count,
        "oldest_age_us": readers.oldest_age_us,
        "garbage_entries": readers.garbage_entries,
        "expired": readers.expired,
        "old": readers.old.iter().map(one).collect::<Vec<_>>(),
    })
}

fn tree(tree: &TreeLine) -> Value {
    json!({"name": tree.name, "multi": tree.is_multi, "keys": tree.keys, "bytes": tree.bytes})
}
