//! State of flushes, merges and other background work.

use super::{garbage_limit::GarbageLimit, index_look::Look, pressure::Pressure, scrubber::Scrubber};
use crate::base::{FileNumber, SequenceNumber};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

#[derive(Debug, Default)]
pub struct Maintenance {
    pub work: Mutex<WorkState>,
    pub work_changed: Condvar,
    pub pressure: Pressure,
    pub garbage_limit: GarbageLimit,
    /// Held by the thread that builds hash indexes, so that no other reserves the same memory.
    /// Contains the last check of each partition while idle.
    pub indexing: Mutex<HashMap<u64, Look>>,
    pub scrubber: Scrubber,
}

#[derive(Debug, Default)]
pub struct WorkState {
    pub flushing: bool,
    pub busy: HashSet<u64>,
    /// For each partition: garbage entries left after its last merge, and the snapshots of that
    /// time.
    pub held: BTreeMap<u64, (u64, Vec<SequenceNumber>)>,
    /// Blob files of mostly garbage: merges move their live values out.
    pub sparse_blobs: BTreeSet<FileNumber>,
    /// Blob files of earlier format versions, once searched: merges move their values too.
    pub older_blobs: Option<BTreeSet<FileNumber>>,
    /// Blob files with an unreadable value, which cannot be moved. They remain.
    pub unmovable_blobs: BTreeSet<FileNumber>,
    /// Bytes of each partition that could not be split. The next attempt comes after growth by
    /// half.
    pub unsplit: BTreeMap<u64, u64>,
    /// Partitions whose merge failed for good (damaged input); skipped until the next open.
    pub failed: BTreeMap<u64, String>,
    /// No flush before this time, after a flush found the disk full.
    pub flush_not_before_ns: u64,
    /// No merge before this time, after a flush or a merge found the disk full.
    pub merge_not_before_ns: u64,
    /// No optional work before this time, after a full disk.
    pub cramped_until_ns: u64,
    /// Time of the last flush, if it found no space.
    pub flush_refused_at_ns: Option<u64>,
    pub idle: bool,
    /// Commits and flushes at the last check.
    pub seen: u64,
    pub quiet_since_ns: u64,
}
