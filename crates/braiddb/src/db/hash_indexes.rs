//! Hash indexes for views that many gets search.

use super::{core::Core, stats::hash_index_bytes};
use crate::{base::Result, table::Run, version::Partition, view::View};
use std::sync::{Arc, atomic::Ordering};

/// All hash indexes together take at most this part of the memory, and nothing of the cache's least share.
const MEMORY_SHARE: usize = 4;
/// At least so many per cent of the blocks must be in memory, the system's included: else making the index would read them from the disk, and gets
/// that do so would gain little.
const IN_MEMORY_PERCENT_MIN: u64 = 90;

impl Core {
    /// Makes hash indexes for the views that want one.
    pub fn index_what_is_searched(&self) {
        if !self.table.demand.take() {
            return;
        }
        let state = self.state.load_full();
        let views = state.version.partitions.iter().flat_map(|partition| partition.open_views());
        let mut lent = 0;
        for (view, runs) in views.filter(|(view, _)| view.wants_hash_index()) {
            if !self.index_if_there_is_room(view, runs, &mut lent) {
                view.refuse_hash_index();
            }
        }
        self.take_back(lent);
    }

    /// The partitions of which gets have used hash indexes, if the views there are now go: see [`Core::index_what_came`].
    pub fn partitions_with_hash_indexes(&self) -> Vec<u64> {
        let state = self.state.load();
        let is_used = |partition: &&Arc<Partition>| partition.open_views().any(|(view, _)| view.has_used_hash_index());
        state.version.partitions.iter().filter(is_used).map(|partition| partition.id).collect()
    }

    /// Makes hash indexes for views that have come into one of these partitions: gets would otherwise search each of them some thousand times first, and then until a
    /// thread has time for it. Those that come next have one if these are used.
    pub fn index_what_came(&self, partitions: &[u64]) {
        if partitions.is_empty() {
            return;
        }
        let (state, mut lent) = (self.state.load_full(), 0);
        for partition in state.version.partitions.iter().filter(|partition| partitions.contains(&partition.id)) {
            // A reader who comes by what is damaged tells of it.
            partition.apart.iter().for_each(|handle| drop(handle.view()));
            for (view, runs) in partition.open_views().filter(|(view, _)| view.may_inherit_hash_index()) {
                self.index_if_there_is_room(view, runs, &mut lent);
            }
        }
        self.take_back(lent);
    }

    /// Takes back what was lent, which counts as what open files have from now on.
    fn take_back(&self, lent: usize) {
        self.share_memory(&self.disk.lock().files);
        self.lend(0, lent);
    }

    /// Makes the hash index of a view, if its data is in memory. Returns whether it did. What it takes is taken from the cache before, and counted in `lent`.
    fn index_if_there_is_room(&self, view: &View, runs: &[Arc<Run>], lent: &mut usize) -> bool {
        let wanted = view.hash_index_bytes_wanted();
        let is_within_share =
            self.hash_index_bytes_of_all() + wanted as u64 <= (self.settings.memory / MEMORY_SHARE) as u64;
        if !is_within_share || wanted > self.member.common.spare_bytes() {
            return false;
        }
        self.lend(wanted, 0);
        *lent += wanted;
        // A reader who comes by what is damaged tells of it.
        let is_made = self.index_view(view, runs).is_ok_and(|is_made| is_made);
        self.counters.hash_indexes.fetch_add(u64::from(is_made), Ordering::Relaxed);
        is_made
    }

    /// What the hash indexes take of all databases that share the memory.
    fn hash_index_bytes_of_all(&self) -> u64 {
        self.member.common.databases().iter().map(|core| hash_index_bytes(&core.state.load().version)).sum()
    }

    fn index_view(&self, view: &View, runs: &[Arc<Run>]) -> Result<bool> {
        let (blocks, in_memory) = view.blocks_in_memory(runs)?;
        if in_memory * 100 < blocks * IN_MEMORY_PERCENT_MIN {
            return Ok(false);
        }
        view.make_hash_index(runs, &|| self.closing.load(Ordering::Acquire))
    }
}
