//! Compactions that the user asks for, on a full disk in parts.

use super::{background, choose, hash_indexes, install, io_throttle};
use crate::{
    base::Result,
    compaction::{Plan, droppable_runs},
    db::{engine::root::Engine, files::reserve::Stage, write::full_disk},
    version::Partition,
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Maximum repetitions of a compaction while background jobs occupy the space.
const COMPACT_TRIES: u32 = 4;

/// Maximum trees to separate in a partition. More would make more small files than the merges free.
const TREES_PARTED_MAX: usize = 16;

/// Maximum number of jobs after the merges of a compaction, plus four per partition.
const SETTLE_JOBS_MIN: usize = 64;

pub fn all(engine: &Engine) -> Result<()> {
    let _hurry = io_throttle::hurry(engine);
    let deep = engine.storage.reserve.begin_compaction();
    let ids: Vec<u64> = engine.cell.state.load().version.partitions.iter().map(|p| p.id).collect();
    each(engine, ids)?;
    // The limit matters: under concurrent writes there is always another job.
    settle_after_compaction(engine, SETTLE_JOBS_MIN + 4 * engine.cell.state.load().version.partitions.len())?;
    // Releases the space before returning, except files that readers pin.
    engine.storage.table.deferred_close.work_through();
    drop(deep);
    full_disk::keep_reserve_after(engine, true);
    Ok(())
}

/// Executes a plan for the whole partition, once no other job works on it.
pub(in crate::db) fn by_plan(engine: &Engine, id: u64, plan: impl Fn(&Partition) -> Plan) -> Result<()> {
    while !try_compact(engine, id, &plan)? {
        let mut work = engine.maintenance.work.lock();
        engine.maintenance.work_changed.wait_for(&mut work, Duration::from_millis(10));
    }
    Ok(())
}

/// Like [`by_plan`], but returns false while another job works on the partition or work is
/// left.
fn try_compact(engine: &Engine, id: u64, plan: impl Fn(&Partition) -> Plan) -> Result<bool> {
    engine.health.check_writable()?;
    let partition = {
        let mut work = engine.maintenance.work.lock();
        let state = engine.cell.state.load();
        let Some(partition) = state.version.partitions.iter().find(|p| p.id == id) else { return Ok(true) };
        if !work.busy.insert(id) {
            return Ok(false);
        }
        Arc::clone(partition)
    };
    let plan = plan(&partition);
    // The first job only drops runs that need no reading; the next attempt merges the others.
    let is_step =
        !droppable_runs(&partition, engine.readers.snapshots.strata()[0], install::expired_by_us(engine)).is_empty();
    let is_empty = partition.all_runs().next().is_none();
    let indexed = hash_indexes::partitions_in_use(engine);
    let done = if is_empty { Ok(()) } else { background::run_partition(engine, &partition, &plan, Some(Stage::Merge)) };
    engine.maintenance.work.lock().busy.remove(&id);
    engine.signal_work();
    done?;
    hash_indexes::reset_pause(engine, id);
    hash_indexes::build_for_new_runs(engine, &indexed, false);
    Ok(!is_step)
}

/// Merges these partitions wholly, or on a full disk in parts. Partitions without space wait
/// for the space that the other merges free.
pub(in crate::db) fn each(engine: &Engine, mut ids: Vec<u64>) -> Result<()> {
    let _in_use = engine.storage.reserve.begin();
    let mut tries_left = COMPACT_TRIES;
    loop {
        let mut refused = Vec::new();
        let mut full = None;
        let mut is_any_merged = false;
        for id in ids {
            let whole = find_partition(engine, id);
            let merged = partition(engine, id);
            engine.storage.table.deferred_close.work_through();
            match (merged, whole) {
                (Err(error), Some(whole)) if error.is_disk_full() => {
                    let (left, is_part_merged) = in_parts(engine, &whole)?;
                    is_any_merged |= is_part_merged;
                    refused.extend(left);
                    full = Some(error);
                }
                (merged, _) => {
                    merged?;
                    is_any_merged = true;
                }
            }
        }
        match full.filter(|_| !refused.is_empty()) {
            None => return Ok(()),
            Some(error) if !is_any_merged && tries_left == 0 => return Err(error),
            Some(_) => {
                tries_left = if is_any_merged { COMPACT_TRIES } else { tries_left - 1 };
                wait_for_jobs(engine);
                ids = refused;
            }
        }
    }
}

fn wait_for_jobs(engine: &Engine) {
    let mut work = engine.maintenance.work.lock();
    for _ in 0..500 {
        if !work.flushing && work.busy.is_empty() {
            break;
        }
        engine.maintenance.work_changed.wait_for(&mut work, Duration::from_millis(10));
    }
}

/// All partitions are merged by then, so a full disk only delays views.
pub(in crate::db) fn settle_after_compaction(engine: &Engine, jobs_max: usize) -> Result<()> {
    match background::run_until_settled(engine, jobs_max) {
        Err(error) if error.is_disk_full() => {
            tracing::warn!(%error, "everything is compacted; what is left to tidy up waits for space");
            Ok(())
        }
        done => done,
    }
}

pub fn partition(engine: &Engine, id: u64) -> Result<()> {
    by_plan(engine, id, |partition| choose::whole_merge(engine, partition))
}

fn find_partition(engine: &Engine, id: u64) -> Option<Arc<Partition>> {
    engine.cell.state.load().version.partitions.iter().find(|p| p.id == id).map(Arc::clone)
}

/// Merges a partition in parts, each installed before the next, so that it frees space. Trees
/// are first cut apart: runs of a tree written in key order would all reach into the next tree
/// if it received writes meanwhile. Returns the partitions without space, and whether any part
/// was merged.
fn in_parts(engine: &Engine, whole: &Partition) -> Result<(BTreeSet<u64>, bool)> {
    let (start, end) = (&whole.layout.start, &whole.layout.end);
    let (mut merged, mut stuck) = (BTreeSet::new(), BTreeSet::new());
    loop {
        let state = engine.cell.state.load_full();
        let is_inside =
            |p: &Partition| p.layout.start >= *start && end.as_ref().is_none_or(|end| p.layout.start < *end);
        // From the end: the newest tree is often small.
        let is_next = |p: &&Arc<Partition>| is_inside(p) && !merged.contains(&p.id) && !stuck.contains(&p.id);
        let Some(next) = state.version.partitions.iter().rev().find(is_next).map(Arc::clone) else { break };
        drop(state);
        let cut = last_tree_of(engine, &next);
        let is_cut = cut.is_some();
        let plan = cut.map_or(Plan::Prefix, |at| Plan::Cut { at });
        let done = by_plan(engine, next.id, |_| plan.clone());
        engine.storage.table.deferred_close.work_through();
        match done {
            Err(error) if error.is_disk_full() => {
                stuck.insert(next.id);
                continue;
            }
            done => done?,
        }
        if is_cut {
            continue;
        }
        stuck.clear();
        let state = engine.cell.state.load();
        merged.extend(state.version.partitions.iter().find(|p| p.layout.start == next.layout.start).map(|p| p.id));
    }
    Ok((stuck, !merged.is_empty()))
}

fn last_tree_of(engine: &Engine, partition: &Partition) -> Option<Vec<u8>> {
    let (start, end) = (&partition.layout.start, &partition.layout.end);
    let is_inside = |at: &Vec<u8>| at > start && end.as_ref().is_none_or(|end| at < end);
    let trees = engine.catalog.by_name.read();
    let begins: Vec<Vec<u8>> = trees.values().map(|tree| tree.id.first_key().to_vec()).filter(is_inside).collect();
    drop(trees);
    if begins.len() > TREES_PARTED_MAX {
        return None;
    }
    let reaches = |at: &&Vec<u8>| {
        let mut metas = partition.all_runs().map(|handle| handle.run().meta());
        let mut others = partition.all_runs().map(|handle| handle.run().meta());
        metas.any(|meta| meta.largest >= **at) && others.any(|meta| meta.smallest < **at)
    };
    begins.iter().filter(reaches).max().cloned()
}

/// Carries out a plan. A whole merge without space is replaced by one that separates the trees or
/// merges only the first keys.
pub(in crate::db) fn run_partition_or_prefix(engine: &Engine, partition: &Arc<Partition>, plan: &Plan) -> Result<()> {
    let stage = stage_of(engine, partition);
    let done = background::run_partition(engine, partition, plan, stage);
    let is_of_all = match plan {
        Plan::Split => true,
        Plan::Major { inputs } => inputs.len() == partition.all_runs().count(),
        _ => false,
    };
    match done {
        Err(error) if is_of_all && stage.is_some() && error.is_disk_full() => {
            let less = last_tree_of(engine, partition).map_or(Plan::Prefix, |at| Plan::Cut { at });
            background::run_partition(engine, partition, &less, stage)
        }
        done => done,
    }
}

/// Returns the part of the reserve for a background merge. Usually there is none, unless it
/// drops range tombstones or more than a tenth of the entries, or there are too many unindexed
/// runs. Each takes whole disk blocks.
pub(in crate::db) fn stage_of(engine: &Engine, partition: &Arc<Partition>) -> Option<Stage> {
    let is_worth_it = || partition.counts().is_some_and(|(entries, dead)| dead.saturating_mul(10) > entries);
    let is_crowded = partition.layout.loose.len() > engine.settings.loose_runs;
    (is_crowded || partition.tombstones.is_some() || is_worth_it()).then_some(Stage::Merge)
}
