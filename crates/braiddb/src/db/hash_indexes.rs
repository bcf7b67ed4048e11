//! Hash indexes for views that many gets search.

use super::{core::Core, stats::hash_index_bytes};
use crate::{base::Result, table::Run, view::View};
use std::sync::{Arc, atomic::Ordering};

/// All hash indexes together take at most this part of the memory.
const MEMORY_SHARE: usize = 8;
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
        let bytes_max = (self.settings.memory / MEMORY_SHARE) as u64;
        let views = state.version.partitions.iter().flat_map(|partition| partition.open_views());
        for (view, runs) in views.filter(|(view, _)| view.wants_hash_index()) {
            let bytes = self.hash_index_bytes_of_all() + view.hash_index_bytes_wanted() as u64;
            // A reader who comes by what is damaged tells of it.
            if bytes <= bytes_max && self.index_view(view, runs).is_ok_and(|is_made| is_made) {
                self.counters.hash_indexes.fetch_add(1, Ordering::Relaxed);
            } else {
                view.refuse_hash_index();
            }
        }
        self.share_memory(&self.disk.lock().files);
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
