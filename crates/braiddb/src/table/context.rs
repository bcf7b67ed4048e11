use super::{IndexTrigger, Moment, NewFilters, RecentWrites};
use crate::{
    cache::BlockCache,
    platform::{DeferredClose, Runtime, SystemRuntime, Vfs},
};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct TableContext {
    pub vfs: Arc<dyn Vfs>,
    pub cache: Arc<BlockCache>,
    pub trigger: Arc<IndexTrigger>,
    pub runtime: Arc<dyn Runtime>,
    pub in_place: bool,
    pub recent_writes: Arc<RecentWrites>,
    /// Filters of runs that were written and not opened yet.
    pub new_filters: Arc<NewFilters>,
    pub deferred_close: Arc<DeferredClose>,
}

impl TableContext {
    pub fn new(vfs: Arc<dyn Vfs>, cache: Arc<BlockCache>) -> TableContext {
        let trigger = Arc::new(IndexTrigger::new(u64::MAX));
        let runtime = Arc::new(SystemRuntime::new());
        let (recent_writes, new_filters, deferred_close) = Default::default();
        TableContext { vfs, cache, trigger, runtime, in_place: true, recent_writes, new_filters, deferred_close }
    }

    #[inline(always)]
    pub fn moment(&self) -> Moment {
        Moment::now(&*self.runtime)
    }
}

/// Position of an entry in a run, ordered like entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub block: u16,
    pub slot: u16,
}
