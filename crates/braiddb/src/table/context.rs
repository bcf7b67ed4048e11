//! What tables need, and how their entries are named.

use super::{IndexTrigger, Moment, NewFilters, RecentWrites};
use crate::{
    cache::BlockCache,
    platform::{Disposal, Runtime, SystemRuntime, Vfs},
};
use std::sync::Arc;

/// What tables need of the world.
#[derive(Clone, Debug)]
pub struct TableContext {
    /// Files.
    pub vfs: Arc<dyn Vfs>,
    /// The block cache.
    pub cache: Arc<BlockCache>,
    /// What readers ask for.
    pub trigger: Arc<IndexTrigger>,
    /// The clock.
    pub runtime: Arc<dyn Runtime>,
    /// Whether blocks may be read where their file is mapped.
    pub in_place: bool,
    /// What was written of them a short while ago.
    pub recent_writes: Arc<RecentWrites>,
    /// Filters of runs that were written and not opened yet.
    pub new_filters: Arc<NewFilters>,
    /// Who removes files and closes them.
    pub disposal: Arc<Disposal>,
}

impl TableContext {
    /// A context without demand, of the system's time.
    pub fn new(vfs: Arc<dyn Vfs>, cache: Arc<BlockCache>) -> TableContext {
        let trigger = Arc::new(IndexTrigger::new(u64::MAX));
        let runtime = Arc::new(SystemRuntime::new());
        let (recent_writes, new_filters, disposal) = Default::default();
        TableContext { vfs, cache, trigger, runtime, in_place: true, recent_writes, new_filters, disposal }
    }

    /// What moment it is.
    #[inline(always)]
    pub fn moment(&self) -> Moment {
        Moment::now(&*self.runtime)
    }
}

/// Where an entry stands in a run. Positions of a run are in the order of its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The block.
    pub block: u16,
    /// The entry in the block.
    pub slot: u16,
}
