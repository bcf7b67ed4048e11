//! Point reads.

use super::ReadState;
use crate::{
    base::{EntryKind, EntryRef, Result, SequenceNumber},
    codec::hash64,
    version::Partition,
};
use crossbeam_epoch::Guard;

/// The newest version of `key` at or below `snapshot`; `None` if there is none or it is deleted.
///
/// Sources are asked from new to old. Within one source, and among all of them, a range tombstone deletes what has a
/// lower sequence number; since older sources hold lower numbers only, one that covers the key ends the search.
pub fn get<'g>(
    state: &'g ReadState,
    key: &[u8],
    snapshot: SequenceNumber,
    guard: &'g Guard,
) -> Result<Option<EntryRef<'g>>> {
    let hash = hash64(key);
    for memtable in state.memtables() {
        let deleted = memtable.newest_covering(key, snapshot);
        if let Some(entry) = memtable.get_hashed(key, hash, snapshot) {
            return Ok(live(entry, deleted));
        }
        if deleted > 0 {
            return Ok(None);
        }
    }
    let partition = &state.version.partitions[state.version.find(key)];
    get_in_partition(partition, key, snapshot, guard)
}

fn live(entry: EntryRef<'_>, deleted: SequenceNumber) -> Option<EntryRef<'_>> {
    (entry.kind != EntryKind::Tombstone && entry.sequence >= deleted).then_some(entry)
}

fn get_in_partition<'g>(
    partition: &'g Partition,
    key: &[u8],
    snapshot: SequenceNumber,
    guard: &'g Guard,
) -> Result<Option<EntryRef<'g>>> {
    let deleted = partition.newest_covering(key, snapshot);
    let mut best: Option<EntryRef<'g>> = None;
    // The runs stand newest first by their highest number, but a merged run may reach further back than the next: so
    // go on until no other can hold anything newer than what was found.
    for handle in &partition.apart {
        let meta = handle.run().meta();
        if best.is_some_and(|b| b.sequence >= meta.max_sequence) {
            break;
        }
        if key < meta.smallest.as_slice() || key > meta.largest.as_slice() {
            continue;
        }
        let found = handle.view()?.get(handle.alone(), key, snapshot, guard)?;
        best = newer(best, found);
    }
    if let Some(view) = &partition.view
        && best.is_none_or(|b| b.sequence < partition.view_max_sequence)
    {
        best = newer(best, view.get(&partition.view_runs, key, snapshot, guard)?);
    }
    Ok(best.and_then(|entry| live(entry, deleted)))
}

fn newer<'g>(a: Option<EntryRef<'g>>, b: Option<EntryRef<'g>>) -> Option<EntryRef<'g>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.sequence > a.sequence { b } else { a }),
        (a, b) => a.or(b),
    }
}
