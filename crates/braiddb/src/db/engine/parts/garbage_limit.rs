//! How many of the new entries supersede others, learned from merges.

use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Merges of fewer new entries tell nothing.
const NEW_ENTRIES_MIN: u64 = 256;

/// A tombstone is dead like what it deletes.
const SUPERSEDING_MOST: u64 = 2000;

/// Of a thousand entries that were new lately, how many have superseded another; tombstones that have count twice. And how many entries partitions had when they were
/// merged last: none is merged for the limit again before that has changed, whatever is estimated.
#[derive(Debug, Default)]
pub struct GarbageLimit {
    pub(in crate::db) per_mille: AtomicU64,
    pub(in crate::db) merged: Mutex<BTreeMap<u64, u64>>,
}

impl GarbageLimit {
    /// Learns that of so many new entries so many live ones more were left.
    pub(in crate::db) fn learn(&self, new: u64, live_before: u64, live_after: u64) {
        if new < NEW_ENTRIES_MIN {
            return;
        }
        let gone = (new + live_before).saturating_sub(live_after);
        let per_mille = (gone * 1000 / new).min(SUPERSEDING_MOST);
        self.per_mille.store(u64::midpoint(self.per_mille(), per_mille), Relaxed);
    }

    pub(in crate::db) fn per_mille(&self) -> u64 {
        self.per_mille.load(Relaxed)
    }
}
