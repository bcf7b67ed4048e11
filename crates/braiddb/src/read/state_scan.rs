//! A scan together with the state that it reads, and a pool of idle scans of the present state. A
//! new scan has to open its partitions and allocate; one from the pool need not.

use super::{ReadState, ScanCursor};
use crate::base::{SequenceNumber, TreeId};
use parking_lot::Mutex;
use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Maximum idle scans. Each keeps the cursors of up to 64 partitions.
const RESTING_MAX: usize = 8;

/// Age of a scan whose state may be outdated. Odd, so the pool never accepts it.
pub const UNKNOWN_AGE: u64 = u64::MAX;

#[derive(Debug)]
pub struct StateScan {
    pub state: Arc<ReadState>,
    pub cursor: ScanCursor,
    /// The count of [`RestingScans`] before the state was loaded.
    age: u64,
    pub ahead: RowsAhead,
}

/// Buffers and the row count that the next iterator reuses.
#[derive(Debug, Default)]
pub struct RowsAhead {
    /// Empty; its capacity is reused.
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

    /// The age of this state is unknown, so the scan never returns to the pool. Reset it next.
    pub fn move_to(&mut self, state: Arc<ReadState>) {
        (self.state, self.age) = (state, UNKNOWN_AGE);
    }

    /// The position is lost.
    pub fn reset(&mut self, snapshot: SequenceNumber) {
        self.cursor.reset(&self.state, snapshot);
    }
}

/// A scan whose owner returns it to [`RestingScans`] when it is dropped.
#[derive(Debug)]
pub struct PooledScan(Option<Box<StateScan>>);

impl PooledScan {
    pub fn new(scan: Box<StateScan>) -> PooledScan {
        PooledScan(Some(scan))
    }

    /// Only the drop of its owner takes it.
    pub fn take(&mut self) -> Option<Box<StateScan>> {
        self.0.take()
    }
}

impl Deref for PooledScan {
    type Target = StateScan;

    #[inline(always)]
    fn deref(&self) -> &StateScan {
        self.0.as_deref().expect("the owner was dropped")
    }
}

impl DerefMut for PooledScan {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut StateScan {
        self.0.as_deref_mut().expect("the owner was dropped")
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
    /// Becomes odd under the lock.
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

#[cfg(test)]
mod tests;
