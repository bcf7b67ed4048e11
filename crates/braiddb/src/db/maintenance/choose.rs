//! Chooses the next background job: a flush, or the partition to merge and its plan.

use super::{
    garbage_limit, io_throttle,
    partition_shape::{self, Shares},
    space::SpaceGain,
    upgrade::{self, is_older},
};
use crate::{
    compaction::{MERGED_BLOCKS_MAX, PARTITION_BLOCKS_MAX, PartitionShape, Plan, PlanOptions, deadest, plan},
    db::engine::{
        events::event::MergeKind, parts::maintenance::WorkState, root::Engine, slow_commits::report::BackgroundWork,
        thread_pool::Role,
    },
    read::ReadState,
    version::Partition,
};
use std::sync::{Arc, atomic::Ordering};

/// Maximum runs of a view under load. More than 8 already lengthen its segment records, but with a
/// maximum of 8 a load writes a third more and overwrites a quarter more.
const VIEW_RUNS_MAX: usize = 24;

/// Maximum runs of a view while idle: the capacity of the shortest segment records.
const VIEW_RUNS_MAX_IDLE: usize = 8;

/// Maximum garbage entries of a partition, in percent.
const DEAD_PERCENT_MAX: u64 = 40;

/// Maximum garbage entries of the database while idle, in percent.
const DEAD_PERCENT_MAX_IDLE: u64 = 10;

/// Time after which a partition with 1 % expired entries is merged. A larger share is merged
/// sooner, a smaller one later.
pub(super) const EXPIRED_HUNDREDTH_FOR_US_MAX: u64 = 24 * 3600 * 1_000_000;

/// Time after which any expired entry is merged away. A merge of each partition once a month is
/// cheap.
const EXPIRED_FOR_US_MAX: u64 = 30 * 24 * 3600 * 1_000_000;

#[derive(Debug)]
pub(super) enum Job {
    Flush,
    Partition(Arc<Partition>, Plan),
}

impl Job {
    pub(super) fn work(&self) -> BackgroundWork {
        match self {
            Job::Flush => BackgroundWork::Flush,
            Job::Partition(partition, plan) => {
                BackgroundWork::Merge { partition: partition.id, kind: MergeKind::of(plan) }
            }
        }
    }
}

pub(super) fn next_job(engine: &Engine, role: Role, settle: bool) -> Option<Job> {
    if matches!(role, Role::Logger | Role::Cleaner) {
        return None;
    }
    if role != Role::Flusher {
        // Compute and cache these counts before taking the lock, so that nothing is read under
        // it.
        let state = engine.cell.state.load_full();
        Shares::of(&state.version);
        for partition in &state.version.partitions {
            let _ = partition.counts();
        }
    }
    let gain = if role == Role::Flusher { None } else { SpaceGain::on_full_disk(engine) };
    if role != Role::Flusher && engine.maintenance.work.lock().idle {
        upgrade::find_older_blobs(engine);
    }
    let mut work = engine.maintenance.work.lock();
    if engine.health.closing.load(Ordering::Acquire) || engine.health.has_failed() || engine.settings.read_only {
        return None;
    }
    let now_ns = engine.now_ns();
    let state = engine.cell.state.load_full();
    let may_flush = settle || work.flush_not_before_ns <= now_ns;
    if role != Role::Merger && may_flush && !state.frozen.is_empty() && !work.flushing {
        work.flushing = true;
        return Some(Job::Flush);
    }
    if role == Role::Flusher || !settle && work.merge_not_before_ns > now_ns {
        return None;
    }
    // A compaction merges everything, and a full disk has no space for other merges meanwhile.
    if gain.is_some() && !settle && engine.storage.reserve.is_compacting() {
        return None;
    }
    let idle = settle || work.idle;
    if !io_throttle::may_begin_merge(engine, work.busy.len()) && !idle {
        return None;
    }
    let options = PlanOptions {
        partition_bytes_max: engine.settings.partition_bytes(),
        partition_blocks_max: PARTITION_BLOCKS_MAX,
        merged_blocks_max: MERGED_BLOCKS_MAX,
        loose_max: engine.settings.loose_runs.max(2),
        fold_bytes_per_entry: engine.settings.fold_bytes_per_entry,
        view_runs_max: VIEW_RUNS_MAX,
        view_runs_max_idle: VIEW_RUNS_MAX_IDLE,
        dead_percent_max: DEAD_PERCENT_MAX,
        expired_for_us_max: EXPIRED_FOR_US_MAX,
        expired_hundredth_for_us_max: EXPIRED_HUNDREDTH_FOR_US_MAX,
        idle,
        has_space: work.no_space_until_ns <= now_ns,
    };
    let deadest =
        if idle { choose_deadest(engine, &state, &work) } else { garbage_limit::choose(engine, &state, &work) };
    let is_affordable = |(partition, plan): &(Arc<Partition>, Plan)| is_affordable(gain.as_ref(), partition, plan);
    let chosen = deadest.filter(is_affordable).or_else(|| choose(engine, &state, &work, &options, gain.as_ref()));
    let older = || choose_older(engine, &state, &work).filter(|_| idle).filter(is_affordable);
    let (partition, plan) = chosen.or_else(older)?;
    work.busy.insert(partition.id);
    Some(Job::Partition(partition, plan))
}

/// On a full disk a job must free what it takes. Otherwise background jobs would use up the space,
/// and the reserve, without which a compaction cannot begin.
fn is_affordable(gain: Option<&SpaceGain>, partition: &Partition, plan: &Plan) -> bool {
    gain.is_none_or(|gain| gain.is_paid(partition, plan))
}

/// Chooses a partition for which the planner has a job: the one with the most unindexed runs.
fn choose(
    engine: &Engine,
    state: &ReadState,
    work: &WorkState,
    options: &PlanOptions,
    gain: Option<&SpaceGain>,
) -> Option<(Arc<Partition>, Plan)> {
    let shares = Shares::of(&state.version);
    let mut best: Option<(usize, Arc<Partition>, Plan)> = None;
    for partition in &state.version.partitions {
        if work.busy.contains(&partition.id) || work.failed.contains_key(&partition.id) {
            continue;
        }
        let loose = partition.layout.loose.len();
        if best.as_ref().is_some_and(|(most, ..)| *most >= loose) {
            continue;
        }
        if let Some(plan) = plan(&partition_shape::shape(engine, partition, &shares, work, options.idle), options)
            && is_affordable(gain, partition, &plan)
        {
            best = Some((loose, Arc::clone(partition), plan));
        }
    }
    best.map(|(_, partition, plan)| (partition, plan))
}

/// While idle, with no better work: chooses a partition with files of an earlier format
/// version.
fn choose_older(engine: &Engine, state: &ReadState, work: &WorkState) -> Option<(Arc<Partition>, Plan)> {
    let is_free = |p: &&Arc<Partition>| !work.busy.contains(&p.id) && !work.failed.contains_key(&p.id);
    let mut partitions = state.version.partitions.iter().filter(is_free);
    let partition = partitions.find(|partition| upgrade::may_upgrade(engine) && is_older(partition, work))?;
    Some((Arc::clone(partition), whole_merge(engine, partition)))
}

/// While idle: chooses the partition whose merge reclaims most, if there is too much garbage.
/// Ignores partitions with a running job.
fn choose_deadest(engine: &Engine, state: &ReadState, work: &WorkState) -> Option<(Arc<Partition>, Plan)> {
    let shares = Shares::of(&state.version);
    let partitions = &state.version.partitions;
    let shape = |partition: &Arc<Partition>| {
        let mut shape = partition_shape::shape(engine, partition, &shares, work, true);
        if work.busy.contains(&partition.id) || work.failed.contains_key(&partition.id) {
            shape.dead_held = u64::MAX;
        }
        shape
    };
    let shapes: Vec<PartitionShape> = partitions.iter().map(shape).collect();
    let partition = &partitions[deadest(shapes.iter(), DEAD_PERCENT_MAX_IDLE)?];
    let inputs = partition.all_runs().map(|h| h.run().meta().number).collect();
    Some((Arc::clone(partition), Plan::Major { inputs }))
}

pub(in crate::db) fn whole_merge(engine: &Engine, partition: &Partition) -> Plan {
    let metas = || partition.all_runs().map(|handle| handle.run().meta());
    let bytes: u64 = metas().map(|meta| meta.file_bytes).sum();
    let blocks: u64 = metas().map(|meta| u64::from(meta.blocks)).sum();
    if bytes > engine.settings.partition_bytes() || blocks > PARTITION_BLOCKS_MAX {
        return Plan::Split;
    }
    Plan::Major { inputs: metas().map(|meta| meta.number).collect() }
}
