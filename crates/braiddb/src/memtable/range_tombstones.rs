//! The range tombstones of a memtable.
//!
//! They are gathered in a list. Scans want one set of them all, which is made by the first that asks after an insert, so
//! that a thousand inserts in a row cost a thousand pushes. Point reads, which may come between any two inserts, go by
//! several sets of growing size, the largest first: what was inserted since becomes a set, which is joined with the one
//! before while that is not twice as large. So each tombstone is sorted into O(log n) sets, and a point read searches so
//! many. Without tombstones a reader pays one load.

use crate::base::{RangeTombstone, RangeTombstoneSet, SequenceNumber};
use parking_lot::{Mutex, RwLock};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

#[derive(Debug, Default)]
pub(super) struct RangeTombstones {
    /// How many have been inserted. Grows after the list has.
    count: AtomicUsize,
    bytes: AtomicUsize,
    all: Mutex<Vec<RangeTombstone>>,
    /// The set of the first so many of the list, for scans.
    set: RwLock<(usize, Arc<RangeTombstoneSet>)>,
    /// The sets of the first so many of the list, for point reads.
    sets: RwLock<(usize, Vec<RangeTombstoneSet>)>,
}

impl RangeTombstones {
    /// Adds one.
    pub fn insert(&self, tombstone: RangeTombstone) {
        // The list keeps one copy, each kind of set one, and its fragments another of each key.
        let bytes = 5 * (size_of::<RangeTombstone>() + tombstone.start.len() + tombstone.end.len());
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut all = self.all.lock();
        all.push(tombstone);
        self.count.store(all.len(), Ordering::Release);
    }

    /// All that were inserted before; `None` if there are none.
    pub fn get(&self) -> Option<Arc<RangeTombstoneSet>> {
        // Whoever may see a tombstone came to know its sequence number after it was inserted, so this load sees it.
        let count = self.count.load(Ordering::Acquire);
        if count == 0 {
            return None;
        }
        {
            let set = self.set.read();
            if set.0 >= count {
                return Some(Arc::clone(&set.1));
            }
        }
        let mut set = self.set.write();
        if set.0 < count {
            let all = self.all.lock().clone();
            *set = (all.len(), Arc::new(RangeTombstoneSet::new(all)));
        }
        Some(Arc::clone(&set.1))
    }

    /// The newest at or below `snapshot` that covers `key`; 0 if there is none.
    pub fn newest_covering(&self, key: &[u8], snapshot: SequenceNumber) -> SequenceNumber {
        // As in `get`.
        let count = self.count.load(Ordering::Acquire);
        if count == 0 {
            return 0;
        }
        let newest =
            |sets: &[RangeTombstoneSet]| sets.iter().map(|set| set.newest_covering(key, snapshot)).max().unwrap_or(0);
        {
            let sets = self.sets.read();
            if sets.0 >= count {
                return newest(&sets.1);
            }
        }
        let mut sets = self.sets.write();
        self.take_in(&mut sets);
        newest(&sets.1)
    }

    /// Brings the sets for point reads up to date.
    fn take_in(&self, (taken, sets): &mut (usize, Vec<RangeTombstoneSet>)) {
        let mut fresh = {
            let all = self.all.lock();
            let fresh = all.get(*taken..).unwrap_or_default().to_vec();
            *taken = all.len();
            fresh
        };
        while let Some(before) = sets.pop_if(|before| before.len() < 2 * fresh.len()) {
            fresh.extend(before.into_tombstones());
        }
        let joined = RangeTombstoneSet::new(fresh);
        if !joined.is_empty() {
            sets.push(joined);
        }
    }

    /// How many have been inserted.
    #[inline]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Bytes they take, about.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}
