//! Environment of tables, and positions of entries.

use super::{IndexTrigger, Moment, NewFilters, RecentWrites};
use crate::{
    cache::BlockCache,
    platform::{Disposal, Runtime, SystemRuntime, Vfs},
};
use std::sync::Arc;

/// Environment of tables.
#[derive(Clone, Debug)]
pub struct TableContext {
    pub vfs: Arc<dyn Vfs>,
    pub cache: Arc<BlockCache>,
    /// Requests for indexes by readers.
    pub trigger: Arc<IndexTrigger>,
    pub runtime: Arc<dyn Runtime>,
    /// Whether blocks may be read in mapped files.
    pub in_place: bool,
    pub recent_writes: Arc<RecentWrites>,
    /// Filters of runs that were written and not opened yet.
    pub new_filters: Arc<NewFilters>,
    /// Removes and closes files.
    pub disposal: Arc<Disposal>,
}

impl TableContext {
    /// Makes a context without index requests, with the system's clock.
    pub fn new(vfs: Arc<dyn Vfs>, cache: Arc<BlockCache>) -> TableContext {
        let trigger = Arc::new(IndexTrigger::new(u64::MAX));
        let runtime = Arc::new(SystemRuntime::new());
        let (recent_writes, new_filters, disposal) = Default::default();
        TableContext { vfs, cache, trigger, runtime, in_place: true, recent_writes, new_filters, disposal }
    }

    #[inline(always)]
    pub fn moment(&self) -> Moment {
        Moment::now(&*self.runtime)
    }
}

/// Position of an entry in a run. Positions are ordered like entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub block: u16,
    /// Index of the entry in its block.
    pub slot: u16,
}
