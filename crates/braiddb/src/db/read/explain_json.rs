//! An explained get as JSON.

use super::explain::{Explain, ExplainedStep, FoundPlace, Outcome};
use crate::{
    base::{FoundEntry, FoundKind, ReadSource, ReadStep, SkipReason, ViewName},
    platform::{SystemTime, UNIX_EPOCH},
};
use serde_json::{Value, json};
use std::time::Duration;

impl Explain {
    /// Returns a JSON object in one line. Each step has its name in `step`, its fields, and its time
    /// in `took_ns`. Needs the feature `json`.
    pub fn to_json(&self) -> String {
        let steps: Vec<Value> = self.steps.iter().map(step_json).collect();
        json!({
            "sequence": self.sequence,
            "outcome": outcome_json(&self.outcome),
            "took_ns": nanos(self.took),
            "steps": steps,
        })
        .to_string()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn unix_us(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).ok().and_then(|age| u64::try_from(age.as_micros()).ok()).unwrap_or(0)
}

fn outcome_json(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Absent => json!({"result": "absent"}),
        Outcome::Deleted { sequence, is_range } => {
            json!({"result": "deleted", "sequence": sequence, "is_range": is_range})
        }
        Outcome::Expired { sequence, expires, place } => json!({
            "result": "expired",
            "sequence": sequence,
            "expires_us": unix_us(*expires),
            "place": place_json(*place),
        }),
        Outcome::Found { sequence, bytes, expires, place } => json!({
            "result": "found",
            "sequence": sequence,
            "bytes": bytes,
            "expires_us": expires.map(unix_us),
            "place": place_json(*place),
        }),
    }
}

fn place_json(place: FoundPlace) -> Value {
    match place {
        FoundPlace::Memtable(position) => json!({"memtable": position}),
        FoundPlace::Run(run) => json!({"run": run}),
    }
}

fn step_json(step: &ExplainedStep) -> Value {
    let mut line = match &step.step {
        ReadStep::FastPath { is_answered } => json!({"step": "fast_path", "is_answered": is_answered}),
        ReadStep::Memtable { position, entries, is_excluded, found, covered_by } => json!({
            "step": "memtable",
            "position": position,
            "entries": entries,
            "is_excluded": is_excluded,
            "found": found.map(found_json),
            "covered_by": covered_by,
        }),
        ReadStep::Partition { id, unindexed_runs, view_runs, covered_by } => json!({
            "step": "partition",
            "id": id,
            "unindexed_runs": unindexed_runs,
            "view_runs": view_runs,
            "covered_by": covered_by,
        }),
        ReadStep::RunSkipped { run, reason } => {
            json!({"step": "run_skipped", "run": run, "reason": reason_name(*reason)})
        }
        ReadStep::HashIndex { view, candidates, is_complete } => json!({
            "step": "hash_index",
            "view": view_json(*view),
            "candidates": candidates,
            "is_complete": is_complete,
        }),
        ReadStep::Segment { view, segment, candidates, source } => json!({
            "step": "segment",
            "view": view_json(*view),
            "segment": segment,
            "candidates": candidates,
            "source": source_name(*source),
        }),
        ReadStep::Block { run, block, offset, bytes, source } => json!({
            "step": "block",
            "run": run,
            "block": block,
            "offset": offset,
            "bytes": bytes,
            "source": source_name(*source),
        }),
        ReadStep::Compared { found } => json!({"step": "compared", "found": found.map(found_json)}),
        ReadStep::Blob { file, offset, bytes } => {
            json!({"step": "blob", "file": file, "offset": offset, "bytes": bytes})
        }
        ReadStep::Stream { pieces, bytes } => json!({"step": "stream", "pieces": pieces, "bytes": bytes}),
        ReadStep::Merged { bytes } => json!({"step": "merged", "bytes": bytes}),
    };
    line["took_ns"] = json!(nanos(step.took));
    line
}

fn found_json(found: FoundEntry) -> Value {
    let kind = match found.kind {
        FoundKind::Value => "value",
        FoundKind::Tombstone => "tombstone",
        FoundKind::Blob => "blob",
        FoundKind::Stream => "stream",
        FoundKind::Merge => "merge",
        FoundKind::Expiring => "expiring",
    };
    json!({"kind": kind, "sequence": found.sequence})
}

fn view_json(view: ViewName) -> Value {
    match view {
        ViewName::File(number) => json!({"file": number}),
        ViewName::OfRun(run) => json!({"of_run": run}),
    }
}

fn reason_name(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::Filter => "filter",
        SkipReason::KeyRange => "key_range",
        SkipReason::Older => "older",
    }
}

fn source_name(source: ReadSource) -> &'static str {
    match source {
        ReadSource::Cache => "cache",
        ReadSource::Mapped => "mapped",
        ReadSource::MappedUnchecked => "mapped_unchecked",
        ReadSource::Disk => "disk",
    }
}
