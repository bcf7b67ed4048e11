//! Snapshots in use, and when their readers are checked next.

use crate::{base::SequenceNumber, commit::SnapshotList};
use std::sync::atomic::AtomicU64;

/// Readers of a database.
#[derive(Debug)]
pub struct Readers {
    pub snapshots: SnapshotList,
    /// The time of the next check for readers that pin too much, in nanoseconds.
    pub next_reader_check_ns: AtomicU64,
}

impl Readers {
    /// No readers; the last commit is `last_sequence`.
    pub fn new(last_sequence: SequenceNumber) -> Readers {
        Readers { snapshots: SnapshotList::new(last_sequence), next_reader_check_ns: AtomicU64::new(0) }
    }
}
