//! Limits garbage under write load ([`crate::Builder::garbage_percent`]).
//!
//! The garbage in views is known. In unindexed runs it is estimated: merges and folds record how
//! many entries new to a view superseded others. A residue run, shared by several partitions, takes
//! its space until the last of them releases it.

use super::partition_shape::{self, Shares};
use crate::{
    compaction::{DeadEstimate, PartitionShape, Plan, estimate_dead},
    db::engine::{parts::maintenance::WorkState, root::Engine},
    read::ReadState,
    version::Partition,
};
use std::{collections::BTreeMap, sync::Arc};

#[cfg(test)]
mod tests;

/// Returns the garbage relative to the limit, in per mille; 0 without a limit.
pub fn to_limit(engine: &Engine, state: &ReadState, work: &WorkState) -> u64 {
    let Some(percent_max) = engine.settings.dead_percent else { return 0 };
    // Exclude partitions whose merge reclaims nothing, so that writers do not wait for them.
    let is_left = |partition: &Partition| is_left_alone(engine, partition, work);
    estimate(engine, state, work, percent_max, is_left).per_mille * 100 / percent_max
}

/// Under write load: chooses the partition whose merge reclaims most, above the limit. Ignores
/// partitions with a running job.
pub(in crate::db) fn choose(engine: &Engine, state: &ReadState, work: &WorkState) -> Option<(Arc<Partition>, Plan)> {
    let percent_max = engine.settings.dead_percent?;
    let partitions = &state.version.partitions;
    // Fold unindexed runs first, before their number throttles writers.
    let urgent = engine.settings.loose_runs.max(2) * 3 / 2;
    if partitions.iter().any(|partition| partition.loose_weight() >= urgent) {
        return None;
    }
    let is_taken = |partition: &Partition| work.busy.contains(&partition.id) || is_left_alone(engine, partition, work);
    let partition = &partitions[estimate(engine, state, work, percent_max, is_taken).deadest?];
    let inputs = partition.all_runs().map(|handle| handle.run().meta().number).collect();
    Some((Arc::clone(partition), Plan::Major { inputs }))
}

/// Returns whether the limit skips a partition: its merges fail, or it is unchanged since its
/// last merge.
fn is_left_alone(engine: &Engine, partition: &Partition, work: &WorkState) -> bool {
    let is_as_merged =
        || engine.maintenance.garbage_limit.merged.lock().get(&partition.id) == Some(&entries_of(partition));
    work.failed.contains_key(&partition.id) || is_as_merged()
}

fn estimate(
    engine: &Engine,
    state: &ReadState,
    work: &WorkState,
    percent_max: u64,
    is_taken: impl Fn(&Partition) -> bool,
) -> DeadEstimate {
    let shares = Shares::of(&state.version);
    let shape = |partition: &Arc<Partition>| {
        let mut shape = partition_shape::shape(engine, partition, &shares, work, false);
        if is_taken(partition) {
            shape.dead_held = u64::MAX;
        }
        shape
    };
    let shapes: Vec<PartitionShape> = state.version.partitions.iter().map(shape).collect();
    let runs = state.version.partitions.iter().flat_map(|partition| partition.all_runs());
    let metas: BTreeMap<_, _> = runs.map(|handle| (handle.run().meta().number, handle.run().meta().entries)).collect();
    let released = metas.iter().map(|(&run, entries)| entries * (1000 - shares.total(run).min(1000)) / 1000).sum();
    estimate_dead(shapes.iter(), (percent_max, engine.maintenance.garbage_limit.per_mille(), released))
}

/// Updates the estimate from a partition whose new entries were folded into its view or merged
/// with all others.
pub(in crate::db) fn learn_superseding(engine: &Engine, before: &Partition, plan: &Plan) {
    if engine.settings.dead_percent.is_none() {
        return;
    }
    let state = engine.cell.state.load();
    let partitions = &state.version.partitions;
    let Some(after) = partitions.iter().find(|partition| partition.id == before.id) else { return };
    if matches!(plan, Plan::Major { .. }) {
        let mut merged = engine.maintenance.garbage_limit.merged.lock();
        merged.retain(|id, _| partitions.iter().any(|partition| partition.id == *id));
        merged.insert(after.id, entries_of(after));
    }
    if after.layout.loose.iter().any(|run| before.layout.loose.contains(run)) {
        return;
    }
    let (Some((entries, dead)), Some((entries_after, dead_after))) = (before.counts(), after.counts()) else {
        return;
    };
    let all = entries_of(before);
    let (live, live_after) = (entries.saturating_sub(dead), entries_after.saturating_sub(dead_after));
    engine.maintenance.garbage_limit.learn(all.saturating_sub(entries), live, live_after);
}

fn entries_of(partition: &Partition) -> u64 {
    let share = |handle| partition.share_per_mille(handle);
    partition.all_runs().map(|handle| handle.run().meta().entries * share(handle) / 1000).sum()
}
