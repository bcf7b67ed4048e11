//! A scan together with the state that it reads. Finished scans rest with the present state, and
//! the next one takes them: a new scan has to open its partitions and allocate.

use super::{ReadState, ScanCursor};
use crate::base::{SequenceNumber, TreeId};
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Scans at rest. More than run at the same time in most programs.
const RESTING_MAX: usize = 8;

/// Of a state that may have been replaced.
pub const UNKNOWN_AGE: u64 = u64::MAX;

#[derive(Debug)]
pub struct StateScan {
    pub state: Arc<ReadState>,
    pub cursor: ScanCursor,
    /// The count of [`RestingScans`] before the state was loaded.
    age: u64,
    pub ahead: RowsAhead,
}

/// What an iterator leaves to the next one.
#[derive(Debug, Default)]
pub struct RowsAhead {
    /// An empty vector with memory.
    pub rows: Vec<ChunkRow>,
    /// Rows that the last iterator returned.
    pub likely_rows: u32,
}

/// A row within a chunk of bytes.
#[derive(Clone, Copy, Debug)]
pub struct ChunkRow {
    pub key: u32,
    pub value: u32,
    pub end: u32,
}

impl StateScan {
    pub fn new(state: Arc<ReadState>, age: u64, snapshot: SequenceNumber, tree: TreeId) -> Box<StateScan> {
        let cursor = ScanCursor::new(&state, snapshot, tree);
        Box::new(StateScan { state, cursor, age, ahead: RowsAhead::default() })
    }

    /// Never rests again: nobody knows how old this state is. Reset the scan next.
    pub fn move_to(&mut self, state: Arc<ReadState>) {
        (self.state, self.age) = (state, UNKNOWN_AGE);
    }

    /// The position is lost.
    pub fn reset(&mut self, snapshot: SequenceNumber) {
        self.cursor.reset(&self.state, snapshot);
    }
}

/// Scans of the present state that no cursor uses. They hold no snapshot.
///
/// INVARIANT S1: while a scan rests, its state is the present one. Otherwise a scan taken after a
/// hold could lack a commit that the hold sees, and an old state's memory and files would stay. The
/// writer of the state counts before and after it stores, so the count is odd meanwhile. A reader
/// loads the count before the state; if it is even, and the same when the scan comes to rest, the
/// state was not replaced.
#[derive(Debug, Default)]
pub struct RestingScans {
    /// Changes under the lock.
    changes: AtomicU64,
    #[expect(clippy::vec_box, reason = "a scan is large, and cursors hold it boxed")]
    scans: Mutex<Vec<Box<StateScan>>>,
}

impl RestingScans {
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Returns a scan of the present state, unpositioned.
    #[inline]
    pub fn take(&self, snapshot: SequenceNumber, tree: TreeId) -> Option<Box<StateScan>> {
        let mut scan = self.scans.lock().pop()?;
        scan.cursor.set_tree(tree);
        scan.cursor.wake(&scan.state, snapshot);
        Some(scan)
    }

    pub fn leave(&self, mut scan: Box<StateScan>) {
        scan.cursor.rest();
        let mut scans = self.scans.lock();
        let is_present = scan.age == self.changes.load(Ordering::Relaxed) && scan.age.is_multiple_of(2);
        if is_present && scans.len() < RESTING_MAX {
            scans.push(scan);
        }
    }

    /// Runs `store`, which replaces the present state. One caller at a time.
    pub fn change(&self, store: impl FnOnce()) {
        let mut scans = self.scans.lock();
        self.changes.fetch_add(1, Ordering::AcqRel);
        let old = std::mem::take(&mut *scans);
        drop(scans);
        store();
        self.changes.fetch_add(1, Ordering::AcqRel);
        drop(old);
    }
}
