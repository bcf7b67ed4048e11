//! Share of new entries that supersede others, learned from merges.

use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Minimum new entries of a merge to learn from.
const NEW_ENTRIES_MIN: u64 = 256;

/// Maximum share in thousandths. A tombstone counts twice: it and its victim are garbage.
const SUPERSEDING_MOST: u64 = 2000;

/// The share of recent entries that superseded another, in thousandths. `merged` has the entries of
/// each partition after its last major merge: no merge for the limit before they change.
#[derive(Debug, Default)]
pub struct GarbageLimit {
    pub(in crate::db) per_mille: AtomicU64,
    pub(in crate::db) merged: Mutex<BTreeMap<u64, u64>>,
}

impl GarbageLimit {
    /// Learns from a merge of `new` entries into `live_before` live ones that left `live_after`.
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
