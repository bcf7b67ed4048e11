//! Compactions that the user asks for, on a full disk in parts.

use super::{
    background, choose, flush, hash_indexes, install, io_throttle,
    space::{self, SpaceGain},
};
use crate::{
    base::{Error, Result},
    compaction::{Plan, droppable_runs},
    db::{engine::root::Engine, files::reserve::Stage, write::full_disk},
    version::Partition,
    view::Bounds,
};
use std::{cell::Cell, collections::BTreeSet, sync::Arc, time::Duration};

/// Maximum repetitions of a compaction while background jobs occupy the space.
const COMPACT_TRIES: u32 = 4;

/// Maximum trees to separate in a partition. More would make more small files than the merges free.
const TREES_PARTED_MAX: usize = 16;

/// Maximum number of jobs after the merges of a compaction, plus four per partition.
const SETTLE_JOBS_MIN: usize = 64;

/// Merges everything. The flush before it may use as much of the reserve as the merges.
pub fn all(engine: &Engine) -> Result<()> {
    let _hurry = io_throttle::hurry(engine);
    let deep = engine.storage.reserve.begin_compaction();
    flush_all(engine)?;
    let ids: Vec<u64> = engine.cell.state.load().version.partitions.iter().map(|p| p.id).collect();
    each(engine, ids)?;
    // While the reserve is in use, only jobs that free space are chosen.
    full_disk::keep_reserve_after(engine, true);
    // The limit matters: under concurrent writes there is always another job.
    settle_after_compaction(engine, SETTLE_JOBS_MIN + 4 * engine.cell.state.load().version.partitions.len())?;
    // Releases the space before returning, except files that readers pin.
    engine.storage.table.deferred_close.work_through();
    drop(deep);
    full_disk::keep_reserve_after(engine, true);
    Ok(())
}

/// Flushes everything. On a full disk, repeats that after background jobs that occupy the space.
fn flush_all(engine: &Engine) -> Result<()> {
    for _ in 0..COMPACT_TRIES {
        match flush::all(engine) {
            Err(error) if error.is_disk_full() => wait_for_jobs(engine),
            done => return done,
        }
    }
    flush::all(engine)
}

#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    Done,
    /// Another job works on the partition, or work is left.
    Again,
    /// Other partitions replaced it.
    Gone,
}

/// Executes a plan for the whole partition, once no other job works on it. Returns false if other
/// partitions replaced it meanwhile. `plan` returns `None` if there is nothing to do.
pub(in crate::db) fn by_plan(engine: &Engine, id: u64, plan: impl Fn(&Partition) -> Option<Plan>) -> Result<bool> {
    loop {
        match try_compact(engine, id, &plan)? {
            Attempt::Again => {
                let mut work = engine.maintenance.work.lock();
                engine.maintenance.work_changed.wait_for(&mut work, Duration::from_millis(10));
            }
            attempt => return Ok(attempt == Attempt::Done),
        }
    }
}

fn try_compact(engine: &Engine, id: u64, plan: impl Fn(&Partition) -> Option<Plan>) -> Result<Attempt> {
    engine.health.check_writable()?;
    let partition = {
        let mut work = engine.maintenance.work.lock();
        let state = engine.cell.state.load();
        let Some(partition) = state.version.partitions.iter().find(|p| p.id == id) else { return Ok(Attempt::Gone) };
        if !work.busy.insert(id) {
            return Ok(Attempt::Again);
        }
        Arc::clone(partition)
    };
    // The first job only drops runs that need no reading; the next attempt merges the others.
    let is_step =
        !droppable_runs(&partition, engine.readers.snapshots.strata()[0], install::expired_by_us(engine)).is_empty();
    let plan = plan(&partition).filter(|_| partition.all_runs().next().is_some());
    let indexed = hash_indexes::partitions_in_use(engine);
    let done = match &plan {
        Some(plan) => background::run_partition(engine, &partition, plan, Some(Stage::Merge)),
        None => Ok(()),
    };
    engine.maintenance.work.lock().busy.remove(&id);
    engine.signal_work();
    done?;
    hash_indexes::reset_pause(engine, id);
    hash_indexes::build_for_new_runs(engine, &indexed, false);
    Ok(if is_step && plan.is_some() { Attempt::Again } else { Attempt::Done })
}

/// Merges these partitions wholly, or on a full disk in parts. Partitions without space wait
/// for the space that the other merges free.
pub(in crate::db) fn each(engine: &Engine, ids: Vec<u64>) -> Result<()> {
    let _in_use = engine.storage.reserve.begin();
    let state = engine.cell.state.load_full();
    let chosen = state.version.partitions.iter().filter(|partition| ids.contains(&partition.id));
    let mut ranges: Vec<Bounds> = chosen.map(|partition| partition.bounds()).collect();
    // Partitions pin their files.
    drop(state);
    if engine.storage.reserve.is_used() {
        // Before merges use up the space. Background jobs that still run occupy some.
        wait_for_jobs(engine);
        space::free_space(engine, &ranges, engine.settings.partition_bytes(), false)?;
    }
    let part_bytes = match engine.storage.reserve.bytes() {
        (_, 0) => engine.settings.partition_bytes(),
        (_, whole) => engine.settings.partition_bytes().min(whole / 2),
    };
    let mut tries_left = COMPACT_TRIES;
    let mut is_last_resort = false;
    loop {
        let is_short = engine.storage.reserve.is_used() && !is_last_resort;
        let gain = is_short.then(|| SpaceGain::of(engine, &engine.cell.state.load_full().version));
        let Pass { refused, full, is_any_merged } = merge_all(engine, &ranges, gain.as_ref())?;
        if refused.is_empty() {
            return Ok(());
        }
        if is_any_merged {
            (tries_left, is_last_resort) = (COMPACT_TRIES, false);
        } else if tries_left == 0 {
            return Err(full.unwrap_or_else(|| full_disk::disk_full(engine)));
        } else {
            tries_left -= 1;
            space::free_space(engine, &refused, part_bytes, true)?;
            is_last_resort = true;
        }
        wait_for_jobs(engine);
        ranges = refused;
    }
}

#[derive(Default)]
struct Pass {
    refused: Vec<Bounds>,
    full: Option<Error>,
    is_any_merged: bool,
}

/// With `gain`, skips partitions whose merge does not free what it takes.
fn merge_all(engine: &Engine, ranges: &[Bounds], gain: Option<&SpaceGain>) -> Result<Pass> {
    let mut pass = Pass::default();
    let mut left: Vec<Bounds> = ranges.iter().rev().cloned().collect();
    while let Some(range) = left.pop() {
        let mut inside = partitions_in(engine, &range);
        if inside.len() > 1 {
            left.extend(inside.into_iter().rev().map(|(_, bounds)| bounds));
            continue;
        }
        let Some((id, bounds)) = inside.pop() else { continue };
        let is_skipped = Cell::new(false);
        let merged = by_plan(engine, id, |partition| {
            let plan = choose::whole_merge(engine, partition);
            is_skipped.set(gain.is_some_and(|gain| !gain.is_paid(partition, &plan)));
            (!is_skipped.get()).then_some(plan)
        });
        engine.storage.table.deferred_close.work_through();
        match merged {
            Ok(true) if is_skipped.get() => pass.refused.push(bounds),
            Ok(true) => pass.is_any_merged = true,
            Ok(false) => left.push(bounds),
            Err(error) if error.is_disk_full() => {
                let (stuck, is_part_merged) = in_parts(engine, &bounds)?;
                pass.is_any_merged |= is_part_merged;
                pass.refused.extend(stuck);
                pass.full = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(pass)
}

/// Returns the partitions that begin in a range.
pub(super) fn partitions_in(engine: &Engine, range: &Bounds) -> Vec<(u64, Bounds)> {
    let state = engine.cell.state.load();
    let partitions = state.version.partitions.iter();
    let inside = partitions.filter(|p| p.layout.start >= range.start && range.ends_after(&p.layout.start));
    inside.map(|partition| (partition.id, partition.bounds())).collect()
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

pub fn partition(engine: &Engine, id: u64) -> Result<bool> {
    by_plan(engine, id, |partition| Some(choose::whole_merge(engine, partition)))
}

/// Merges a partition in parts, each installed before the next, so that it frees space. Trees
/// are first cut apart: runs of a tree written in key order would all reach into the next tree
/// if it received writes meanwhile. Returns the partitions without space, and whether any part
/// was merged.
fn in_parts(engine: &Engine, whole: &Bounds) -> Result<(Vec<Bounds>, bool)> {
    let (mut merged, mut stuck) = (BTreeSet::new(), BTreeSet::new());
    // From the end: the newest tree is often small.
    let is_next = |(id, _): &(u64, Bounds), merged: &BTreeSet<u64>, stuck: &BTreeSet<u64>| {
        !merged.contains(id) && !stuck.contains(id)
    };
    while let Some((id, bounds)) =
        partitions_in(engine, whole).into_iter().rev().find(|next| is_next(next, &merged, &stuck))
    {
        let Some(cut) = find_starting_at(engine, &bounds.start).map(|next| last_tree_of(engine, &next)) else {
            continue;
        };
        let is_cut = cut.is_some();
        let plan = cut.map_or(Plan::Prefix, |at| Plan::Cut { at });
        let done = by_plan(engine, id, |_| Some(plan.clone()));
        engine.storage.table.deferred_close.work_through();
        match done {
            Err(error) if error.is_disk_full() => {
                stuck.insert(id);
                continue;
            }
            Ok(true) if !is_cut => {}
            done => {
                done?;
                continue;
            }
        }
        stuck.clear();
        merged.extend(find_starting_at(engine, &bounds.start).map(|partition| partition.id));
    }
    let left = partitions_in(engine, whole).into_iter().filter(|(id, _)| stuck.contains(id));
    Ok((left.map(|(_, bounds)| bounds).collect(), !merged.is_empty()))
}

pub(super) fn find_starting_at(engine: &Engine, start: &[u8]) -> Option<Arc<Partition>> {
    engine.cell.state.load().version.partitions.iter().find(|p| p.layout.start == start).map(Arc::clone)
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
    let done = background::run_partition(engine, partition, plan, None);
    let Some(stage) = stage_of(engine, partition).filter(|_| done.as_ref().is_err_and(Error::is_disk_full)) else {
        return done;
    };
    let done = match is_paid(engine, partition, plan) {
        true => background::run_partition(engine, partition, plan, Some(stage)),
        false => done,
    };
    let is_of_all = match plan {
        Plan::Split => true,
        Plan::Major { inputs } => inputs.len() == partition.all_runs().count(),
        _ => false,
    };
    match done {
        Err(error) if is_of_all && error.is_disk_full() => {
            let less = last_tree_of(engine, partition).map_or(Plan::Prefix, |at| Plan::Cut { at });
            background::run_partition(engine, partition, &less, Some(stage))
        }
        done => done,
    }
}

fn is_paid(engine: &Engine, partition: &Partition, plan: &Plan) -> bool {
    let state = engine.cell.state.load_full();
    SpaceGain::of(engine, &state.version).is_paid(partition, plan)
}

/// Returns the part of the reserve for a background merge. Usually there is none, unless it
/// drops range tombstones or more than a tenth of the entries, or there are too many unindexed
/// runs. Each takes whole disk blocks.
pub(in crate::db) fn stage_of(engine: &Engine, partition: &Arc<Partition>) -> Option<Stage> {
    let is_worth_it = || partition.counts().is_some_and(|(entries, dead)| dead.saturating_mul(10) > entries);
    let is_crowded = partition.layout.loose.len() > engine.settings.loose_runs;
    (is_crowded || partition.tombstones.is_some() || is_worth_it()).then_some(Stage::Merge)
}
