//! Builds hash indexes: for views that many gets search, for their successors and neighbours, and
//! at idle time for views that gets may search.

use crate::{
    base::Result,
    db::engine::{parts::index_attempt::IndexAttempt, root::Engine, stats::hash_index_bytes},
    table::Run,
    version::Partition,
    view::View,
};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
};

/// All hash indexes together use at most 1/4 of the memory budget, and nothing of the cache's
/// minimum.
const MEMORY_SHARE: usize = 4;
/// Minimum share of a view's blocks in memory, page cache included, in percent. Otherwise the build
/// would read from disk, and gets that read from disk gain little.
const IN_MEMORY_PERCENT_MIN: u64 = 90;

/// Maximum entries to index after a flush. At 100 ns each, this takes about 10 ms.
const ENTRIES_AFTER_FLUSH_MAX: u64 = 128 << 10;

/// Limit at idle time: 1/8 of the memory. Half of the budget stays for views that gets request.
const MEMORY_SHARE_AT_REST: usize = 2 * MEMORY_SHARE;
/// Minimum and maximum delay before another attempt to index a partition.
const PAUSE_NS_MIN: u64 = 10_000_000_000;
const PAUSE_NS_MAX: u64 = 3_600_000_000_000;
/// Minimum entries of a view to index at idle time. Smaller views are fast without an index and get
/// one only on request.
const ENTRIES_AT_REST_MIN: u64 = 2048;

/// Builds hash indexes for the views that requested one.
pub fn build_searched(engine: &Engine) {
    if !engine.storage.table.trigger.take() {
        return;
    }
    let _indexing = engine.maintenance.indexing.lock();
    let state = engine.cell.state.load_full();
    let views = state.version.partitions.iter().flat_map(|partition| partition.open_views());
    let mut reserved = 0;
    for (view, runs) in views.filter(|(view, _)| view.wants_hash_index()) {
        if !index_if_there_is_room(engine, view, runs, &mut reserved, &|| is_closing(engine)) {
            view.refuse_hash_index();
        }
    }
    take_back(engine, reserved);
}

/// Returns the partitions in which gets used hash indexes. See [`build_for_new_runs`].
pub fn partitions_in_use(engine: &Engine) -> Vec<u64> {
    let state = engine.cell.state.load();
    let is_used = |partition: &&Arc<Partition>| partition.open_views().any(|(view, _)| view.has_used_hash_index());
    state.version.partitions.iter().filter(is_used).map(|partition| partition.id).collect()
}

/// Builds hash indexes for new views of these partitions, so that they inherit the indexes of
/// the views they replace. Otherwise gets would first search each view some thousand times and
/// wait for a free thread. A view's successor inherits an index only if this one is used. After
/// a flush, only unindexed runs are considered, up to a maximum of entries that does not delay
/// the next flush.
pub fn build_for_new_runs(engine: &Engine, partitions: &[u64], after_flush: bool) {
    if partitions.is_empty() {
        return;
    }
    let indexing =
        if after_flush { engine.maintenance.indexing.try_lock() } else { Some(engine.maintenance.indexing.lock()) };
    let Some(_indexing) = indexing else { return };
    let (state, mut reserved) = (engine.cell.state.load_full(), 0);
    let mut entries_left = if after_flush { ENTRIES_AFTER_FLUSH_MAX } else { u64::MAX };
    for partition in state.version.partitions.iter().filter(|partition| partitions.contains(&partition.id)) {
        for handle in &partition.apart {
            let entries = handle.run().meta().entries;
            // Skip a damaged view: a reader that meets it reports the error.
            if entries <= entries_left
                && is_room_for_hash_index(engine, View::hash_index_bytes_of(entries), MEMORY_SHARE)
                && let Ok(view) = handle.view()
                && view.may_inherit_hash_index()
                && index_if_there_is_room(engine, view, handle.alone(), &mut reserved, &|| is_closing(engine))
            {
                entries_left -= entries;
            }
        }
        if let Some(view) = partition.view.as_ref().filter(|_| !after_flush)
            && view.may_inherit_hash_index()
        {
            index_if_there_is_room(engine, view, &partition.view_runs, &mut reserved, &|| is_closing(engine));
        }
    }
    take_back(engine, reserved);
}

/// Builds the hash index of one view that no get has searched yet, if the database is idle.
/// Returns whether it did. Gets after a load then find an index. Each partition gets one this
/// way, and another when it has twice as many entries; a used index is inherited. A failed
/// attempt is repeated later, each time after twice the delay.
pub fn build_at_rest(engine: &Engine) -> bool {
    // With shared memory, an index here could displace data of a busier database.
    if engine.settings.hash_index_after == u64::MAX || engine.tenant.common.is_shared() || !is_at_rest(engine) {
        return false;
    }
    let Some(mut looks) = engine.maintenance.indexing.try_lock() else { return false };
    let (state, now_ns) = (engine.cell.state.load_full(), engine.now_ns());
    forget_others(&mut looks, &state.version.partitions);
    for partition in &state.version.partitions {
        let (Ok(()), Some((view, runs))) = (partition.open_main_view(), partition.main_view()) else { continue };
        let (entries, attempt) = (view.meta().entries, looks.entry(partition.id).or_default());
        if entries < ENTRIES_AT_REST_MIN
            || entries < 2 * attempt.entries
            || now_ns < attempt.again_ns
            || view.hash_index_bytes() > 0
        {
            continue;
        }
        if !is_at_rest(engine) {
            return false;
        }
        let mut reserved = 0;
        // If blocks must be cached to be read, the cache uses this memory better.
        let is_made = is_room_for_hash_index(engine, View::hash_index_bytes_of(entries), MEMORY_SHARE_AT_REST)
            && view.is_read_in_place(runs).unwrap_or(false)
            && index_if_there_is_room(engine, view, runs, &mut reserved, &|| !is_at_rest(engine));
        if is_made {
            attempt.entries = entries;
            take_back(engine, reserved);
            return true;
        }
        attempt.pause_ns = (2 * attempt.pause_ns).clamp(PAUSE_NS_MIN, PAUSE_NS_MAX);
        attempt.again_ns = now_ns.saturating_add(attempt.pause_ns);
    }
    false
}

fn is_at_rest(engine: &Engine) -> bool {
    let work = engine.maintenance.work.lock();
    work.idle && !work.flushing && work.busy.is_empty() && !engine.health.closing.load(Ordering::Acquire)
}

/// Allows another index at idle time after a requested merge: the old view's index is gone.
pub fn reset_pause(engine: &Engine, partition: u64) {
    engine.maintenance.indexing.lock().remove(&partition);
}

/// Moves the reserved bytes to the account of open files.
fn take_back(engine: &Engine, reserved: usize) {
    if reserved > 0 {
        engine.share_memory(&engine.storage.disk.lock().files);
        engine.reserve(0, reserved);
    }
}

fn is_closing(engine: &Engine) -> bool {
    engine.health.closing.load(Ordering::Acquire)
}

fn is_room_for_hash_index(engine: &Engine, bytes: usize, share: usize) -> bool {
    let bytes_max = (engine.settings.memory / share) as u64;
    bytes <= engine.tenant.common.spare_bytes() && hash_index_bytes_of_all(engine) + bytes as u64 <= bytes_max
}

/// Builds the hash index of a view whose data is in memory. Returns whether it did. Reserves
/// the bytes from the cache first and adds them to `reserved`.
fn index_if_there_is_room(
    engine: &Engine,
    view: &View,
    runs: &[Arc<Run>],
    reserved: &mut usize,
    is_cancelled: &dyn Fn() -> bool,
) -> bool {
    let wanted = View::hash_index_bytes_of(view.meta().entries);
    if !is_room_for_hash_index(engine, wanted, MEMORY_SHARE) || !is_in_memory(view, runs).unwrap_or(false) {
        return false;
    }
    engine.reserve(wanted, 0);
    let is_made = view.make_hash_index(runs, is_cancelled).unwrap_or(false);
    if is_made {
        *reserved += wanted;
        engine.counters.hash_indexes.fetch_add(1, Ordering::Relaxed);
    } else {
        engine.reserve(0, wanted);
    }
    is_made
}

fn hash_index_bytes_of_all(engine: &Engine) -> u64 {
    engine.tenant.common.databases().iter().map(|engine| hash_index_bytes(&engine.cell.state.load().version)).sum()
}

fn forget_others(looks: &mut HashMap<u64, IndexAttempt>, partitions: &[Arc<Partition>]) {
    if looks.len() > 2 * partitions.len() + 16 {
        let present: HashSet<u64> = partitions.iter().map(|partition| partition.id).collect();
        looks.retain(|id, _| present.contains(id));
    }
}

fn is_in_memory(view: &View, runs: &[Arc<Run>]) -> Result<bool> {
    let (blocks, in_memory) = view.blocks_in_memory(runs)?;
    Ok(in_memory * 100 >= blocks * IN_MEMORY_PERCENT_MIN)
}
