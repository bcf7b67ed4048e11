//! Measures partitions for the planner: the shape of their runs and views, expired entries, and the
//! cut of a split.

use super::install;
use crate::{
    base::FileNumber,
    compaction::{PARTITION_BLOCKS_MAX, PartitionShape, RunShape, ViewShape, best_cut},
    db::engine::{parts::maintenance::WorkState, root::Engine},
    version::{Partition, RunHandle, Version},
};
use std::{collections::HashMap, sync::Arc};

/// A run is sparse if partitions read less than this share of its entries, in per mille.
const SPARSE_PER_MILLE: u64 = 600;

/// [`SPARSE_PER_MILLE`] while idle.
const SPARSE_PER_MILLE_IDLE: u64 = 800;

/// A run smaller than this fraction of its partition (1/32) is never sparse: it is not worth a
/// merge.
const SPARSE_SHARE: u64 = 32;

/// [`SPARSE_SHARE`] while idle.
const SPARSE_SHARE_IDLE: u64 = 512;

pub(in crate::db) fn shape(
    engine: &Engine,
    partition: &Partition,
    shares: &Shares,
    work: &WorkState,
    idle: bool,
) -> PartitionShape {
    let (sparse_below, sparse_share) = match idle {
        true => (SPARSE_PER_MILLE_IDLE, SPARSE_SHARE_IDLE),
        false => (SPARSE_PER_MILLE, SPARSE_SHARE),
    };
    let run = |handle: &Arc<RunHandle>| {
        let meta = handle.run().meta();
        let share = partition.share_per_mille(handle);
        RunShape {
            number: meta.number,
            bytes: meta.file_bytes * share / 1000,
            entries: meta.entries * share / 1000,
            blocks: u64::from(meta.blocks) * share / 1000,
            is_sparse: meta.file_bytes * sparse_share >= engine.settings.partition_bytes()
                && shares.total(meta.number) < sparse_below,
        }
    };
    let (mut runs, mut loose, mut loose_reads) = (Vec::new(), Vec::new(), 0);
    for (index, handle) in partition.all_runs().enumerate() {
        if index < partition.runs.len() {
            runs.push(run(handle));
        } else {
            loose.push(run(handle));
            loose_reads += handle.reads();
        }
    }
    let expired_by_us = install::expired_by_us(engine);
    let counts = partition.counts().map(|(entries, dead)| {
        let counted = if partition.view.is_some() { &partition.runs[..] } else { oldest_apart(partition) };
        let expired = expired_entries(partition, counted, expired_by_us).min(entries);
        // An expired entry may already count as garbage; avoid counting it twice.
        let dead =
            dead + (u128::from(entries.saturating_sub(dead)) * u128::from(expired) / u128::from(entries.max(1))) as u64;
        ViewShape { entries, dead }
    });
    let earliest = partition.all_runs().filter_map(|handle| handle.run().meta().expiries.earliest()).min();
    let moves_blobs = |meta: &crate::table::RunMeta| meta.blob_uses.iter().any(|u| work.sparse_blobs.contains(&u.file));
    let held = work.held.get(&partition.id).filter(|(_, snapshots)| {
        let now = engine.readers.snapshots.strata();
        snapshots.iter().rev().skip(1).all(|s| now.binary_search(s).is_ok())
    });
    PartitionShape {
        cut: cut_of(engine, partition, runs.iter().chain(&loose)),
        is_in_order: !idle || best_cut(key_ranges(partition, runs.iter().chain(&loose))).is_some(),
        runs,
        loose,
        loose_weight: partition.loose_weight(),
        loose_adding: partition.adding_runs(),
        loose_reads,
        has_view: partition.view.is_some(),
        counts,
        dead_held: held.map_or(0, |(dead, _)| *dead),
        expired_for_us: earliest.map_or(0, |earliest| expired_by_us.saturating_sub(earliest)),
        expired: earliest.map_or(0, |_| {
            expired_entries(partition, &partition.runs, expired_by_us)
                + expired_entries(partition, &partition.loose_runs(), expired_by_us)
        }),
        unsplit_bytes: work.unsplit.get(&partition.id).copied().unwrap_or(0),
        relocate_blobs: !work.sparse_blobs.is_empty() && partition.all_runs().any(|h| moves_blobs(h.run().meta())),
    }
}

fn cut_of<'a>(
    engine: &Engine,
    partition: &Partition,
    shapes: impl Iterator<Item = &'a RunShape> + Clone,
) -> Option<Vec<u8>> {
    let too_many = shapes.clone().map(|run| run.blocks).sum::<u64>() > PARTITION_BLOCKS_MAX;
    if !too_many && shapes.clone().map(|run| run.bytes).sum::<u64>() <= engine.settings.partition_bytes() {
        return None;
    }
    best_cut(key_ranges(partition, shapes)).map(<[u8]>::to_vec)
}

fn key_ranges<'a, 's>(
    partition: &'a Partition,
    shapes: impl Iterator<Item = &'s RunShape>,
) -> Vec<(&'a [u8], &'a [u8], u64)> {
    let range = |(handle, shape): (&'a Arc<RunHandle>, &RunShape)| {
        let meta = handle.run().meta();
        let largest = meta.largest.as_slice();
        let end = partition.layout.end.as_deref().map_or(largest, |end| largest.min(end));
        (meta.smallest.as_slice().max(&partition.layout.start), end, shape.bytes)
    };
    partition.all_runs().zip(shapes).map(range).collect()
}

/// Returns the run that [`Partition::counts`] counts without a view.
fn oldest_apart(partition: &Partition) -> &[Arc<RunHandle>] {
    partition.apart.last().map_or(&[], std::slice::from_ref)
}

fn expired_entries(partition: &Partition, runs: &[Arc<RunHandle>], expired_by_us: u64) -> u64 {
    let expired = |handle: &Arc<RunHandle>| {
        let expired = handle.run().meta().expiries.expired_by(expired_by_us);
        if expired == 0 { 0 } else { expired.saturating_mul(partition.share_per_mille(handle)) / 1000 }
    };
    runs.iter().map(expired).fold(0, u64::saturating_add)
}

/// Share of each run that all partitions together read, in per mille.
pub(in crate::db) struct Shares(HashMap<FileNumber, u64>);

impl Shares {
    pub(in crate::db) fn of(version: &Version) -> Shares {
        let mut shares = HashMap::new();
        for partition in &version.partitions {
            for handle in partition.all_runs() {
                *shares.entry(handle.run().meta().number).or_default() += partition.share_per_mille(handle);
            }
        }
        Shares(shares)
    }

    /// The tolerance of 10 covers rounding, and ranks that are exact only to a segment.
    pub(in crate::db) fn total(&self, run: FileNumber) -> u64 {
        self.0.get(&run).map_or(1000, |share| share + 10)
    }
}
