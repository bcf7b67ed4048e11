//! Golden table of the planner: `plans.txt` states the job for each shape of a partition.
//!
//! A change of policy changes the table: `BRAIDDB_BLESS=1` writes the new one, for review.

use crate::compaction::*;
use std::fmt::Write;

const TABLE: &str = include_str!("plans.txt");

fn options() -> PlanOptions {
    PlanOptions {
        partition_bytes_max: 100_000,
        partition_blocks_max: 10_000,
        merged_blocks_max: 1000,
        loose_max: 4,
        fold_bytes_per_entry: 10,
        view_runs_max: 8,
        view_runs_max_idle: 4,
        dead_percent_max: 25,
        expired_for_us_max: 1000,
        expired_hundredth_for_us_max: 100,
        idle: false,
        has_space: true,
    }
}

pub(super) fn runs(sizes: &[u64], first: u64) -> Vec<RunShape> {
    sizes
        .iter()
        .enumerate()
        .map(|(i, &size)| RunShape {
            number: first + i as u64,
            bytes: 100 * size,
            entries: size,
            blocks: size,
            is_sparse: false,
        })
        .collect()
}

pub(super) fn shape(view: &[u64], loose: &[u64]) -> PartitionShape {
    PartitionShape {
        runs: runs(view, 1),
        loose: runs(loose, 101),
        loose_weight: loose.len(),
        loose_adding: 0,
        loose_reads: 0,
        has_view: !view.is_empty(),
        counts: Some(ViewShape { entries: 100, dead: 0 }),
        dead_held: 0,
        cut: None,
        is_in_order: false,
        expired_for_us: 0,
        expired: 0,
        unsplit_bytes: 0,
        relocate_blobs: false,
    }
}

fn sizes(text: &str) -> Vec<u64> {
    text.split(',').map(|size| size.parse().unwrap_or_else(|_| panic!("no size: {text}"))).collect()
}

/// Sets what one word of a row says: `dead=26`, `idle`, `102.blocks=600`.
fn apply(word: &str, shape: &mut PartitionShape, options: &mut PlanOptions) {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    let number = || value.parse::<u64>().unwrap_or_else(|_| panic!("no number: {word}"));
    if let Some((run, field)) = name.split_once('.') {
        let run: u64 = run.parse().unwrap_or_else(|_| panic!("no run: {word}"));
        let run = shape.runs.iter_mut().chain(&mut shape.loose).find(|shape| shape.number == run).expect("a run");
        match field {
            "bytes" => run.bytes = number(),
            "blocks" => run.blocks = number(),
            "sparse" => run.is_sparse = true,
            _ => panic!("no field of a run: {word}"),
        }
        return;
    }
    match name {
        "dead" => shape.counts = Some(ViewShape { entries: 100, dead: number() }),
        "held" => shape.dead_held = number(),
        "weight" => shape.loose_weight = number() as usize,
        "reads" => shape.loose_reads = number(),
        "unsplit" => shape.unsplit_bytes = number(),
        "expired" => shape.expired = number(),
        "expired_for" => shape.expired_for_us = number(),
        "cut" => shape.cut = Some(value.as_bytes().to_vec()),
        "blobs" => shape.relocate_blobs = true,
        "viewless" => shape.has_view = false,
        "in_order" => shape.is_in_order = true,
        "loose_max" => options.loose_max = number() as usize,
        "idle" => options.idle = true,
        "full_disk" => options.has_space = false,
        _ => panic!("no field: {word}"),
    }
}

/// The job of a row, as the table has it: `fold`, `merge 101 2`.
fn planned(words: &str) -> String {
    let of = |name| words.split_whitespace().find_map(|word| word.strip_prefix(name)).map(sizes).unwrap_or_default();
    let (mut shape, mut options) = (shape(&of("view="), &of("new=")), options());
    for word in words.split_whitespace().filter(|word| !word.starts_with("view=") && !word.starts_with("new=")) {
        apply(word, &mut shape, &mut options);
    }
    let list = |inputs: &[u64]| inputs.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    match plan(&shape, &options) {
        None => "nothing".to_owned(),
        Some(Plan::Loose { inputs }) => format!("merge new {}", list(&inputs)),
        Some(Plan::Major { inputs }) => format!("merge {}", list(&inputs)),
        Some(Plan::Cut { at }) => format!("cut at {}", String::from_utf8_lossy(&at)),
        Some(other) => format!("{other:?}").to_lowercase(),
    }
}

#[test]
fn plans_match_golden_table() {
    let mut now = String::new();
    for line in TABLE.lines() {
        let row: Vec<&str> = line.split('|').map(str::trim).collect();
        match row[..] {
            [name, words, _] => writeln!(now, "{name:56} | {words:60} | {}", planned(words)).unwrap(),
            _ => writeln!(now, "{line}").unwrap(),
        }
    }
    if std::env::var_os("BRAIDDB_BLESS").is_some() {
        #[expect(clippy::disallowed_methods, reason = "a source file, not one of a database")]
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/compaction/tests/plans.txt"), &now).unwrap();
    }
    for (expected, found) in TABLE.lines().zip(now.lines()) {
        assert_eq!(expected, found, "the table says otherwise; BRAIDDB_BLESS=1 accepts the new plans");
    }
}
