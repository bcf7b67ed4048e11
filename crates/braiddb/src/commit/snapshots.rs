//! The list of snapshots in use, and the sequence number that new readers see.
//!
//! The commit leader publishes; readers load. A snapshot is taken under the list's lock, and so is the set that a
//! flush or merge keeps versions for: every snapshot taken later is at or above the number published by then.

use crate::base::SequenceNumber;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

/// Which snapshots are in use.
#[derive(Debug, Default)]
pub struct SnapshotList {
    visible: AtomicU64,
    in_use: Mutex<BTreeMap<SequenceNumber, usize>>,
}

impl SnapshotList {
    /// A list without snapshots.
    pub fn new(visible: SequenceNumber) -> SnapshotList {
        SnapshotList { visible: AtomicU64::new(visible), in_use: Mutex::default() }
    }

    /// The newest published commit.
    #[inline]
    pub fn visible(&self) -> SequenceNumber {
        self.visible.load(Ordering::Acquire)
    }

    /// Lets readers see all commits up to `sequence`. Called by the commit leader only, with growing numbers.
    pub fn publish(&self, sequence: SequenceNumber) {
        self.visible.store(sequence, Ordering::Release);
    }

    /// Takes a snapshot of now. Each must be released.
    pub fn acquire(&self) -> SequenceNumber {
        let mut in_use = self.in_use.lock();
        let sequence = self.visible();
        *in_use.entry(sequence).or_default() += 1;
        sequence
    }

    /// Takes another hold of a snapshot that is in use.
    pub fn acquire_again(&self, sequence: SequenceNumber) {
        *self.in_use.lock().entry(sequence).or_default() += 1;
    }

    /// Gives a snapshot back.
    pub fn release(&self, sequence: SequenceNumber) {
        let mut in_use = self.in_use.lock();
        if let Some(count) = in_use.get_mut(&sequence) {
            *count -= 1;
            if *count == 0 {
                in_use.remove(&sequence);
            }
        }
    }

    /// What a flush or merge must keep: for each of these, ascending, the newest version at or below it. The last is
    /// what is visible now.
    pub fn strata(&self) -> Vec<SequenceNumber> {
        let in_use = self.in_use.lock();
        let visible = self.visible();
        let mut strata: Vec<SequenceNumber> = in_use.keys().copied().collect();
        if strata.last() != Some(&visible) {
            strata.push(visible);
        }
        strata
    }

    /// How many snapshots are in use, and the oldest.
    pub fn in_use(&self) -> (usize, Option<SequenceNumber>) {
        let in_use = self.in_use.lock();
        (in_use.values().sum(), in_use.keys().next().copied())
    }
}
