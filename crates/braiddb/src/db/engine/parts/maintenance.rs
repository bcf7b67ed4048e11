//! State of flushes, merges and other background work.

use super::{
    garbage_limit::GarbageLimit, index_attempt::IndexAttempt, pressure::Pressure, scrubber::Scrubber, upcalls::Upcalls,
};
use crate::base::{FileNumber, SequenceNumber};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

#[derive(Debug)]
pub struct Maintenance {
    pub upcalls: Upcalls,
    pub work: Mutex<WorkState>,
    pub work_changed: Condvar,
    pub pressure: Pressure,
    pub garbage_limit: GarbageLimit,
    /// Also keeps two threads from reserving the same memory for hash indexes.
    pub indexing: Mutex<HashMap<u64, IndexAttempt>>,
    pub scrubber: Scrubber,
}

impl Maintenance {
    pub fn new(upcalls: Upcalls) -> Maintenance {
        Maintenance {
            upcalls,
            work: Mutex::default(),
            work_changed: Condvar::new(),
            pressure: Pressure::default(),
            garbage_limit: GarbageLimit::default(),
            indexing: Mutex::default(),
            scrubber: Scrubber::default(),
        }
    }
}

#[derive(Debug, Default)]
pub struct WorkState {
    pub flushing: bool,
    pub busy: HashSet<u64>,
    /// Garbage entries left by the last merge of each partition, and the snapshots of that time.
    pub held: BTreeMap<u64, (u64, Vec<SequenceNumber>)>,
    /// Blob files of mostly garbage, to be emptied by merges.
    pub sparse_blobs: BTreeSet<FileNumber>,
    /// Blob files of earlier format versions, once searched, to be emptied as well.
    pub older_blobs: Option<BTreeSet<FileNumber>>,
    /// Blob files with an unreadable value. They remain.
    pub unmovable_blobs: BTreeSet<FileNumber>,
    /// Bytes of partitions that could not be split. The next attempt comes after growth by half.
    pub unsplit: BTreeMap<u64, u64>,
    /// Partitions with damaged input; not merged until the next open.
    pub failed: BTreeMap<u64, String>,
    /// Set when a flush finds the disk full.
    pub flush_not_before_ns: u64,
    /// Set when a flush or a merge finds the disk full.
    pub merge_not_before_ns: u64,
    /// No optional work before this time, after a full disk.
    pub no_space_until_ns: u64,
    /// Time of the last flush, if it found no space.
    pub flush_refused_at_ns: Option<u64>,
    pub idle: bool,
    pub seen: u64,
    pub quiet_since_ns: u64,
}
