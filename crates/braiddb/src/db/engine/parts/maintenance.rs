//! State of flushes, merges and other background work.

use super::{garbage_limit::GarbageLimit, index_look::Look, pressure::Pressure, scrubber::Scrubber};
use crate::base::{FileNumber, SequenceNumber};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The background work of a database.
#[derive(Debug, Default)]
pub struct Maintenance {
    pub work: Mutex<WorkState>,
    pub work_changed: Condvar,
    pub pressure: Pressure,
    pub garbage_limit: GarbageLimit,
    /// Held by the thread that builds hash indexes, so that no other reserves the same memory. Maps partitions to their last
    /// check while idle.
    pub indexing: Mutex<HashMap<u64, Look>>,
    pub scrubber: Scrubber,
}

/// What the workers share.
#[derive(Debug, Default)]
pub struct WorkState {
    pub flushing: bool,
    pub busy: HashSet<u64>,
    /// By partition: dead entries that were left after its last merge, and the snapshots of then.
    pub held: BTreeMap<u64, (u64, Vec<SequenceNumber>)>,
    /// Blob files that are mostly dead: merges move what is left out of them.
    pub sparse_blobs: BTreeSet<FileNumber>,
    /// Blob files of earlier format versions, once that was looked for: what they hold is moved as well.
    pub older_blobs: Option<BTreeSet<FileNumber>>,
    /// Blob files with a value that could not be read to be moved; they stay.
    pub unmovable_blobs: BTreeSet<FileNumber>,
    /// By partition: its bytes when a split could not cut it. It is not tried again before it has grown by half.
    pub unsplit: BTreeMap<u64, u64>,
    /// Partitions whose merge failed for good (damaged input); left alone until the next open.
    pub failed: BTreeMap<u64, String>,
    /// After a flush found the disk full: no flush before this time.
    pub flush_not_before_ns: u64,
    /// After a flush or a merge did: no merge before this time.
    pub merge_not_before_ns: u64,
    /// After a full disk: until then, what can stay as it is does.
    pub cramped_until_ns: u64,
    /// Whether the last flush found no space, and when that was.
    pub flush_refused_at_ns: Option<u64>,
    pub idle: bool,
    /// Commits and flushes at the last look.
    pub seen: u64,
    pub quiet_since_ns: u64,
}
