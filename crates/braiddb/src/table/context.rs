//! What tables need, and how their entries are named.

use super::Demand;
use crate::{cache::BlockCache, platform::Vfs};
use std::sync::Arc;

/// What tables need of the world.
#[derive(Clone, Debug)]
pub struct TableContext {
    /// Files.
    pub vfs: Arc<dyn Vfs>,
    /// The block cache.
    pub cache: Arc<BlockCache>,
    /// What readers ask for.
    pub demand: Arc<Demand>,
}

impl TableContext {
    /// A context without demand.
    pub fn new(vfs: Arc<dyn Vfs>, cache: Arc<BlockCache>) -> TableContext {
        TableContext { vfs, cache, demand: Arc::new(Demand::new(u64::MAX)) }
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
