//! The range tombstones of a memtable.
//!
//! They are gathered in a list, and made into a set by the first reader that asks after an insert, so that a thousand
//! inserts in a row cost a thousand pushes. Without tombstones a reader pays one load.

use crate::base::{RangeTombstone, RangeTombstoneSet};
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
    /// The set of the first so many of the list.
    set: RwLock<(usize, Arc<RangeTombstoneSet>)>,
}

impl RangeTombstones {
    /// Adds one.
    pub fn insert(&self, tombstone: RangeTombstone) {
        // The list keeps one copy, the set one, and its fragments another of each key.
        let bytes = 3 * (size_of::<RangeTombstone>() + tombstone.start.len() + tombstone.end.len());
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

    /// How many have been inserted.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Bytes they take, about.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}
