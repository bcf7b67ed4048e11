//! Writes runs again one by one, for a compaction on a full disk.
//!
//! A merge frees its inputs at its end, if no other partition reads them. With runs that cover
//! many partitions, or a partition larger than the free space, merges of partitions would use up
//! the space before the first run is freed. This happens if a fast import or a full disk kept
//! merges from running.
//!
//! Here each run is written again for each partition that reads it, without deleted keys, and is
//! then removed. So at most one run is stored twice, and later merges free their inputs. Before, a
//! large partition whose runs overlap is cut at keys, which writes no data.

use super::{super::compact, gain::SpaceGain};
use crate::{
    base::{FileNumber, Result},
    compaction::Plan,
    db::engine::root::Engine,
    version::{Partition, RunHandle},
    view::Bounds,
};
use std::collections::{BTreeMap, BTreeSet};

/// Estimated overhead of a run: header, footer, indexes, and blocks that are not full.
const OVERHEAD_BYTES: u64 = 6 << 10;

/// A run is written again if that frees at least this fraction of it.
const GAIN_FRACTION_MIN: u64 = 8;

/// Maximum parts into which a partition is cut. Each run is split into as many files.
const PARTS_MAX: u64 = 16;

/// Keys per run from which the cuts are chosen.
const SAMPLES_OF_RUN: usize = 32;

/// Consecutive runs for which there is no space, after which the others are not tried.
const REFUSALS_MAX: u32 = 3;

/// Cuts partitions larger than `part_bytes`, then rewrites runs that free space. With `is_stuck`,
/// also rewrites large runs that several partitions read. Returns whether anything changed.
pub(in crate::db::maintenance) fn free_space(
    engine: &Engine,
    ranges: &[Bounds],
    part_bytes: u64,
    is_stuck: bool,
) -> Result<bool> {
    for range in ranges {
        for (_, bounds) in compact::partitions_in(engine, range) {
            cut_large(engine, &bounds, part_bytes)?;
        }
    }
    let (mut refusals, mut is_any_rewritten) = (0, false);
    for (run, readers) in runs_by_gain(engine, ranges, is_stuck) {
        match rewrite(engine, run, &readers) {
            Err(error) if error.is_disk_full() => refusals += 1,
            done => {
                done?;
                (refusals, is_any_rewritten) = (0, true);
            }
        }
        engine.storage.table.deferred_close.work_through();
        if refusals == REFUSALS_MAX {
            break;
        }
    }
    Ok(is_any_rewritten)
}

/// Returns the runs to rewrite in these ranges, those that free most first, with the ids of all
/// partitions that read them.
fn runs_by_gain(engine: &Engine, ranges: &[Bounds], is_stuck: bool) -> Vec<(FileNumber, Vec<u64>)> {
    #[derive(Default)]
    struct Candidate {
        size: u64,
        kept: u64,
        overhead: u64,
        is_inside: bool,
        readers: Vec<u64>,
    }
    let state = engine.cell.state.load_full();
    let gain = SpaceGain::of(engine, &state.version);
    let mut candidates: BTreeMap<FileNumber, Candidate> = BTreeMap::new();
    for partition in &state.version.partitions {
        let is_inside = ranges.iter().any(|range| is_within(partition, range));
        for handle in partition.all_runs() {
            let candidate = candidates.entry(handle.run().meta().number).or_default();
            candidate.size = handle.run().meta().file_bytes;
            let kept = gain.kept_bytes(partition, handle);
            candidate.kept += kept;
            candidate.overhead += if kept > 0 { OVERHEAD_BYTES } else { 0 };
            candidate.is_inside |= is_inside;
            candidate.readers.push(partition.id);
        }
    }
    let freed = |candidate: &Candidate| candidate.size.saturating_sub(candidate.kept + candidate.overhead);
    let is_worth_it = |candidate: &Candidate| {
        freed(candidate) > candidate.size / GAIN_FRACTION_MIN
            || is_stuck && candidate.readers.len() > 1 && candidate.overhead <= candidate.size / 2
    };
    candidates.retain(|_, candidate| candidate.is_inside && is_worth_it(candidate));
    let mut runs: Vec<_> = candidates.into_iter().collect();
    runs.sort_by_key(|(_, candidate)| std::cmp::Reverse(freed(candidate)));
    runs.into_iter().map(|(run, candidate)| (run, candidate.readers)).collect()
}

fn rewrite(engine: &Engine, run: FileNumber, readers: &[u64]) -> Result<()> {
    // Tests of crashes look for this span.
    let _span = tracing::debug_span!("rewrite_run", run, partitions = readers.len()).entered();
    let reads = |partition: &Partition| partition.all_runs().any(|handle| handle.run().meta().number == run);
    for id in readers {
        compact::by_plan(engine, *id, |partition| reads(partition).then_some(Plan::Rewrite { run }))?;
    }
    Ok(())
}

fn cut_large(engine: &Engine, bounds: &Bounds, part_bytes: u64) -> Result<()> {
    let state = engine.cell.state.load_full();
    let Some(partition) = compact::find_starting_at(engine, &bounds.start) else { return Ok(()) };
    let keys = cuts(&partition, &SpaceGain::of(engine, &state.version), part_bytes.max(OVERHEAD_BYTES));
    drop((partition, state));
    for at in keys {
        // Background jobs may have cut the partition elsewhere.
        let is_inside = |partition: &Partition| at > partition.layout.start && partition.bounds().ends_after(&at);
        let state = engine.cell.state.load_full();
        let id = state.version.partitions.iter().find(|partition| is_inside(partition)).map(|partition| partition.id);
        drop(state);
        if let Some(id) = id {
            compact::by_plan(engine, id, |partition| is_inside(partition).then(|| Plan::Cut { at: at.clone() }))?;
        }
    }
    Ok(())
}

/// Returns keys between parts of about equal size, at most `part_bytes`. None if few runs overlap:
/// then a merge in parts frees them one after the other.
fn cuts(partition: &Partition, gain: &SpaceGain, part_bytes: u64) -> Vec<Vec<u8>> {
    let kept: u64 = partition.all_runs().map(|handle| gain.kept_bytes(partition, handle)).sum();
    let parts = kept.div_ceil(part_bytes).min(PARTS_MAX);
    if parts < 2 {
        return Vec::new();
    }
    let samples: Vec<Vec<Vec<u8>>> = partition.all_runs().map(|handle| live_samples(partition, handle)).collect();
    let weights = partition.all_runs().zip(&samples).map(|(handle, keys)| {
        let weight = gain.kept_bytes(partition, handle) / (keys.len() as u64 + 1);
        keys.iter().map(move |key| (key, weight))
    });
    let mut keys: Vec<(&Vec<u8>, u64)> = weights.flatten().collect();
    keys.sort_unstable();
    let all: u64 = keys.iter().map(|(_, weight)| weight).sum();
    let (mut cuts, mut before) = (Vec::new(), 0);
    for (key, weight) in keys {
        let is_due = before * parts > all * (cuts.len() as u64 + 1);
        before += weight;
        if is_due && cuts.last() != Some(key) {
            cuts.push(key.clone());
        }
    }
    let parts_of = |keys: &Vec<Vec<u8>>| {
        let parts: BTreeSet<usize> = keys.iter().map(|key| cuts.partition_point(|cut| cut <= key)).collect();
        parts.len()
    };
    let sampled: Vec<usize> = samples.iter().filter(|keys| !keys.is_empty()).map(parts_of).collect();
    let is_overlapping = sampled.iter().sum::<usize>() * 2 >= sampled.len() * (cuts.len() + 1);
    if is_overlapping { cuts } else { Vec::new() }
}

fn live_samples(partition: &Partition, handle: &RunHandle) -> Vec<Vec<u8>> {
    let Ok(view) = handle.view() else { return Vec::new() };
    let bounds = partition.bounds();
    let is_live = |key: &[u8]| partition.tombstones.as_ref().is_none_or(|set| set.fragment(key).is_none());
    let mut keys = view.split_points(handle.alone(), SAMPLES_OF_RUN).unwrap_or_default();
    keys.retain(|key| *key > bounds.start && bounds.ends_after(key) && is_live(key));
    keys
}

fn is_within(partition: &Partition, range: &Bounds) -> bool {
    partition.layout.start >= range.start && range.ends_after(&partition.layout.start)
}
