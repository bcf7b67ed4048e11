//! The range tombstones of a memtable.
//!
//! Inserts append to a list. The first scan after an insert builds one set of all tombstones.
//!
//! Point reads may come between any two inserts. They search several sets of decreasing size: new
//! tombstones become a set, which is merged with the previous set while that is less than twice as
//! large. So each tombstone is sorted O(log n) times, and a point read searches O(log n) sets.

use crate::base::{RangeTombstone, RangeTombstoneSet, SequenceNumber};
use parking_lot::{Mutex, RwLock};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

#[derive(Debug, Default)]
pub(super) struct RangeTombstones {
    /// Length of the list; increased after the list.
    count: AtomicUsize,
    bytes: AtomicUsize,
    all: Mutex<Vec<RangeTombstone>>,
    /// Number of tombstones included, and their set, for scans.
    set: RwLock<(usize, Arc<RangeTombstoneSet>)>,
    sets: RwLock<(usize, Vec<RangeTombstoneSet>)>,
}

impl RangeTombstones {
    pub fn insert(&self, tombstone: RangeTombstone) {
        // The list and both kinds of set have copies.
        let bytes = 5 * (size_of::<RangeTombstone>() + tombstone.start.len() + tombstone.end.len());
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut all = self.all.lock();
        all.push(tombstone);
        self.count.store(all.len(), Ordering::Release);
    }

    pub fn get(&self) -> Option<Arc<RangeTombstoneSet>> {
        // A visible tombstone was inserted before the reader learned its sequence number: the load
        // includes it.
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

    pub fn newest_covering(&self, key: &[u8], snapshot: SequenceNumber) -> SequenceNumber {
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

    #[inline]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}
