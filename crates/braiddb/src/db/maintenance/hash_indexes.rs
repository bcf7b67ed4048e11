//! Hash indexes for views that many gets search, for those that come in place of such views or beside them, and while the database rests for those that
//! gets may come to.

use crate::{
    base::Result,
    db::engine::{parts::index_look::Look, root::Engine, stats::hash_index_bytes},
    table::Run,
    version::Partition,
    view::View,
};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
};

/// All hash indexes together take at most this part of the memory, and nothing of the cache's least share.
const MEMORY_SHARE: usize = 4;
/// At least so many per cent of the blocks must be in memory, the system's included: else making the index would read them from the disk, and gets
/// that do so would gain little.
const IN_MEMORY_PERCENT_MIN: u64 = 90;

/// After a flush indexes are made of so many entries: at a hundred nanoseconds each, that is some ten milliseconds.
const ENTRIES_AFTER_FLUSH_MAX: u64 = 128 << 10;

/// Those made at rest leave as much of the memory for hash indexes that gets ask for.
const MEMORY_SHARE_AT_REST: usize = 2 * MEMORY_SHARE;
/// Where there could be none, it is looked at again after so long at least and at most.
const PAUSE_NS_MIN: u64 = 10_000_000_000;
const PAUSE_NS_MAX: u64 = 3_600_000_000_000;
/// Views of fewer entries are searched quickly, and have an index only if gets ask for it.
const ENTRIES_AT_REST_MIN: u64 = 2048;

impl Engine {
    /// Makes hash indexes for the views that want one.
    pub fn index_what_is_searched(&self) {
        if !self.storage.table.trigger.take() {
            return;
        }
        let _indexing = self.maintenance.indexing.lock();
        let state = self.cell.state.load_full();
        let views = state.version.partitions.iter().flat_map(|partition| partition.open_views());
        let mut lent = 0;
        for (view, runs) in views.filter(|(view, _)| view.wants_hash_index()) {
            if !self.index_if_there_is_room(view, runs, &mut lent, &|| self.is_closing()) {
                view.refuse_hash_index();
            }
        }
        self.take_back(lent);
    }

    /// The partitions of which gets have used hash indexes, if the views there are now go: see [`Engine::index_what_came`].
    pub fn partitions_with_hash_indexes(&self) -> Vec<u64> {
        let state = self.cell.state.load();
        let is_used = |partition: &&Arc<Partition>| partition.open_views().any(|(view, _)| view.has_used_hash_index());
        state.version.partitions.iter().filter(is_used).map(|partition| partition.id).collect()
    }

    /// Makes hash indexes for views of these partitions that were never asked whether they inherit one: mostly those that have come just now. Gets would otherwise
    /// search each of them some thousand times first, and then until a thread has time for it. Those that come next have one if these are used. After a flush
    /// that is for runs that stand apart alone, and for so many entries that it does not hold up the next.
    pub fn index_what_came(&self, partitions: &[u64], after_flush: bool) {
        if partitions.is_empty() {
            return;
        }
        let indexing =
            if after_flush { self.maintenance.indexing.try_lock() } else { Some(self.maintenance.indexing.lock()) };
        let Some(_indexing) = indexing else { return };
        let (state, mut lent) = (self.cell.state.load_full(), 0);
        let mut entries_left = if after_flush { ENTRIES_AFTER_FLUSH_MAX } else { u64::MAX };
        for partition in state.version.partitions.iter().filter(|partition| partitions.contains(&partition.id)) {
            for handle in &partition.apart {
                let entries = handle.run().meta().entries;
                // A reader who comes by what is damaged tells of it.
                if entries <= entries_left
                    && self.is_room_for_hash_index(View::hash_index_bytes_of(entries), MEMORY_SHARE)
                    && let Ok(view) = handle.view()
                    && view.may_inherit_hash_index()
                    && self.index_if_there_is_room(view, handle.alone(), &mut lent, &|| self.is_closing())
                {
                    entries_left -= entries;
                }
            }
            if let Some(view) = partition.view.as_ref().filter(|_| !after_flush)
                && view.may_inherit_hash_index()
            {
                self.index_if_there_is_room(view, &partition.view_runs, &mut lent, &|| self.is_closing());
            }
        }
        self.take_back(lent);
    }

    /// Makes the hash index of one view that nobody has searched yet, if nothing was committed lately and nothing is being merged; returns whether it did. So gets
    /// that come after a load find it there. Each partition has that once, and again when it has twice as many entries: if the index was used, the views after it
    /// inherit one. Where there can be none at the time, it is looked at again later, and each time after twice as long.
    pub fn index_at_rest(&self) -> bool {
        // Of several databases one would take the memory of another, which may be read more.
        if self.settings.hash_index_after == u64::MAX || self.tenant.common.is_shared() || !self.is_at_rest() {
            return false;
        }
        // Whoever else makes some goes on with it.
        let Some(mut looks) = self.maintenance.indexing.try_lock() else { return false };
        let (state, now_ns) = (self.cell.state.load_full(), self.now_ns());
        forget_others(&mut looks, &state.version.partitions);
        for partition in &state.version.partitions {
            // A reader who comes by what is damaged tells of it.
            let (Ok(()), Some((view, runs))) = (partition.open_main_view(), partition.main_view()) else { continue };
            let (entries, look) = (view.meta().entries, looks.entry(partition.id).or_default());
            if entries < ENTRIES_AT_REST_MIN
                || entries < 2 * look.entries
                || now_ns < look.again_ns
                || view.hash_index_bytes() > 0
            {
                continue;
            }
            if !self.is_at_rest() {
                return false;
            }
            let mut lent = 0;
            // Where blocks have to be in the cache to be read, there is better use for its memory.
            let is_made = self.is_room_for_hash_index(View::hash_index_bytes_of(entries), MEMORY_SHARE_AT_REST)
                && view.is_read_in_place(runs).unwrap_or(false)
                && self.index_if_there_is_room(view, runs, &mut lent, &|| !self.is_at_rest());
            if is_made {
                look.entries = entries;
                self.take_back(lent);
                return true;
            }
            look.pause_ns = (2 * look.pause_ns).clamp(PAUSE_NS_MIN, PAUSE_NS_MAX);
            look.again_ns = now_ns.saturating_add(look.pause_ns);
        }
        false
    }

    /// Whether nothing was committed lately, and nothing is flushed or merged.
    fn is_at_rest(&self) -> bool {
        let work = self.maintenance.work.lock();
        work.idle && !work.flushing && work.busy.is_empty() && !self.health.closing.load(Ordering::Acquire)
    }

    /// After a merge that a user asked for: what was made for the view before it is gone with that.
    pub fn look_again_at_rest(&self, partition: u64) {
        self.maintenance.indexing.lock().remove(&partition);
    }

    /// Takes back what was lent, which counts as what open files have from now on.
    fn take_back(&self, lent: usize) {
        if lent > 0 {
            self.share_memory(&self.storage.disk.lock().files);
            self.reserve(0, lent);
        }
    }

    fn is_closing(&self) -> bool {
        self.health.closing.load(Ordering::Acquire)
    }

    fn is_room_for_hash_index(&self, bytes: usize, share: usize) -> bool {
        let bytes_max = (self.settings.memory / share) as u64;
        bytes <= self.tenant.common.spare_bytes() && self.hash_index_bytes_of_all() + bytes as u64 <= bytes_max
    }

    /// Makes the hash index of a view, if its data is in memory. Returns whether it did. What it takes is taken from the cache before, and counted in `lent`.
    fn index_if_there_is_room(
        &self,
        view: &View,
        runs: &[Arc<Run>],
        lent: &mut usize,
        is_cancelled: &dyn Fn() -> bool,
    ) -> bool {
        let wanted = View::hash_index_bytes_of(view.meta().entries);
        // A reader who comes by what is damaged tells of it.
        if !self.is_room_for_hash_index(wanted, MEMORY_SHARE) || !is_in_memory(view, runs).unwrap_or(false) {
            return false;
        }
        self.reserve(wanted, 0);
        let is_made = view.make_hash_index(runs, is_cancelled).unwrap_or(false);
        if is_made {
            *lent += wanted;
            self.counters.hash_indexes.fetch_add(1, Ordering::Relaxed);
        } else {
            self.reserve(0, wanted);
        }
        is_made
    }

    /// What the hash indexes take of all databases that share the memory.
    fn hash_index_bytes_of_all(&self) -> u64 {
        self.tenant.common.databases().iter().map(|engine| hash_index_bytes(&engine.cell.state.load().version)).sum()
    }
}

/// Forgets partitions that are gone, once there are many of them.
fn forget_others(looks: &mut HashMap<u64, Look>, partitions: &[Arc<Partition>]) {
    if looks.len() > 2 * partitions.len() + 16 {
        let present: HashSet<u64> = partitions.iter().map(|partition| partition.id).collect();
        looks.retain(|id, _| present.contains(id));
    }
}

/// Whether the blocks of a view are in memory, but for a few.
fn is_in_memory(view: &View, runs: &[Arc<Run>]) -> Result<bool> {
    let (blocks, in_memory) = view.blocks_in_memory(runs)?;
    Ok(in_memory * 100 >= blocks * IN_MEMORY_PERCENT_MIN)
}
