//! The block cache, shared by every open file of a database (or of several).

use crate::base::Result;
use crossbeam_epoch::Guard;
use std::{ops::Deref, sync::Arc};

/// Counters of a cache since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups answered from memory.
    pub hits: u64,
    /// Lookups that had to load.
    pub misses: u64,
    /// Units thrown out.
    pub evictions: u64,
    /// Loads that took the cache over its capacity.
    pub overshoots: u64,
    /// Bytes held now.
    pub usage_bytes: u64,
    /// Bytes allowed.
    pub capacity_bytes: u64,
    /// Bytes loaded.
    pub loaded_bytes: u64,
}

/// A cache.
#[derive(Debug)]
pub struct BlockCache {}

impl BlockCache {
    /// A cache.
    pub fn new(_capacity_bytes: usize) -> Arc<BlockCache> {
        todo!()
    }
    /// Changes the capacity.
    pub fn set_capacity(&self, _bytes: usize) {
        todo!()
    }
    /// Bytes held.
    pub fn usage_bytes(&self) -> usize {
        todo!()
    }
    /// Counters.
    pub fn stats(&self) -> CacheStats {
        todo!()
    }
}

/// The slots of one open file.
#[derive(Debug)]
pub struct CacheSlots {}

impl CacheSlots {
    /// Slots.
    pub fn new(_cache: &Arc<BlockCache>, _units: u32) -> CacheSlots {
        todo!()
    }
    /// What is cached.
    pub fn get<'g>(&self, _unit: u32, _guard: &'g Guard) -> Option<&'g [u8]> {
        todo!()
    }
    /// What is cached, or loaded.
    pub fn get_or_load<'g>(
        &self,
        _unit: u32,
        _guard: &'g Guard,
        _load: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<&'g [u8]> {
        todo!()
    }
    /// A counted unit.
    pub fn pin_or_load(&self, _unit: u32, _load: impl FnOnce() -> Result<Vec<u8>>) -> Result<PinnedUnit> {
        todo!()
    }
    /// Asks the processor to fetch the first byte at `offset` of the unit, and its end, if cached.
    pub fn prefetch(&self, _unit: u32, _offset: usize) {
        todo!()
    }
    /// Bytes of the slots.
    pub fn resident_bytes(&self) -> usize {
        todo!()
    }
}

/// A unit that stays in memory while this handle lives.
#[derive(Debug)]
pub struct PinnedUnit {}

impl Deref for PinnedUnit {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        todo!()
    }
}
