//! Finds writes after a commit in memtables and runs.
//!
//! Precondition: the caller holds a snapshot of that commit. Flushes and merges then keep the
//! newest version of each key, and all newer tombstones.

use super::ReadState;
use crate::{
    base::{RangeTombstoneSet, Result, SequenceNumber},
    codec::hash64,
    version::{Partition, RunHandle},
};
use std::sync::Arc;

/// Returns the sequence number of the newest version or tombstone of `key` at or below `at`; 0 if
/// none.
pub fn newest_sequence(state: &ReadState, key: &[u8], at: SequenceNumber) -> Result<SequenceNumber> {
    let hash = hash64(key);
    for memtable in state.memtables().filter(|memtable| !memtable.is_empty()) {
        let entry = memtable.get_hashed(key, hash, at).map_or(0, |entry| entry.sequence);
        let newest = entry.max(memtable.newest_covering(key, at));
        if newest > 0 {
            return Ok(newest);
        }
    }
    let partition = &state.version.partitions[state.version.find(key)];
    let guard = crossbeam_epoch::pin();
    let mut newest = partition.newest_covering(key, at);
    for handle in &partition.apart {
        let meta = handle.run().meta();
        if meta.max_sequence <= newest || key < meta.smallest.as_slice() || key > meta.largest.as_slice() {
            continue;
        }
        let found = handle.view()?.get_hashed(handle.alone(), key, hash, at, &guard)?;
        newest = newest.max(found.map_or(0, |entry| entry.sequence));
    }
    if let Some(view) = &partition.view
        && partition.view_max_sequence > newest
    {
        let found = view.get_hashed(&partition.view_runs, key, hash, at, &guard)?;
        newest = newest.max(found.map_or(0, |entry| entry.sequence));
    }
    Ok(newest)
}

/// True if a commit after `after` wrote or deleted a key of `start..end`. O(entries in the range)
/// of all memtables and runs with entries of later commits.
pub fn is_written_after(state: &ReadState, start: &[u8], end: &[u8], after: SequenceNumber) -> Result<bool> {
    for memtable in state.memtables().filter(|memtable| memtable.max_sequence() > after) {
        if memtable.range_tombstones().is_some_and(|set| is_deleted_after(&set, start, end, after)) {
            return Ok(true);
        }
        let mut scan = memtable.scan_from(start);
        while scan.advance() && scan.entry().key < end {
            if scan.entry().sequence > after {
                return Ok(true);
            }
        }
    }
    let partitions = &state.version.partitions;
    for partition in &partitions[state.version.find(start)..] {
        if partition.layout.start.as_slice() >= end {
            break;
        }
        if partition.tombstones.as_ref().is_some_and(|set| is_deleted_after(set, start, end, after)) {
            return Ok(true);
        }
        for handle in partition.all_runs().filter(|handle| handle.run().meta().max_sequence > after) {
            if is_run_written_after(partition, handle, start, end, after)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn is_deleted_after(set: &RangeTombstoneSet, start: &[u8], end: &[u8], after: SequenceNumber) -> bool {
    set.iter().any(|t| t.sequence > after && t.start.as_slice() < end && start < t.end.as_slice())
}

fn is_run_written_after(
    partition: &Partition,
    handle: &Arc<RunHandle>,
    start: &[u8],
    end: &[u8],
    after: SequenceNumber,
) -> Result<bool> {
    let layout = &partition.layout;
    let start = start.max(&layout.start);
    let end = layout.end.as_deref().map_or(end, |partition_end| end.min(partition_end));
    let meta = handle.run().meta();
    if start >= end || start > meta.largest.as_slice() || end <= meta.smallest.as_slice() {
        return Ok(false);
    }
    let from = handle.view()?.position_of(handle.run(), start, &crossbeam_epoch::pin())?;
    let mut scan = handle.run().scan(from);
    while scan.next()? && scan.entry().key < end {
        if scan.entry().sequence > after {
            return Ok(true);
        }
    }
    Ok(false)
}
