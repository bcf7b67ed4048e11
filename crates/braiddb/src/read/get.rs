use super::{LookupKey, ReadState};
use crate::{
    base::{EntryKind, EntryRef, FoundEntry, NoTrace, ReadStep, ReadTrace, Result, SequenceNumber, SkipReason},
    table::RunMeta,
    version::{Partition, RunHandle, is_counted},
    view::{CacheMiss, Leaf, Query, View},
};
use crossbeam_epoch::Guard;
use std::ops::Deref;

/// Maximum keys looked up together.
pub const GROUP_KEYS: usize = 16;

const RUNS_AT_ONCE: usize = 24;

#[derive(Clone, Copy, Debug, Default)]
pub struct Lookup {
    hash: u64,
    head: u64,
    partition: usize,
    /// Leaf in the partition's view; `None` if that is not open or has a hash index.
    leaf: Option<Leaf>,
    /// Segment of the partition's view; `None` without a view or without entries.
    segment: Option<u32>,
    by_hash: bool,
}

impl Lookup {
    #[inline]
    pub fn of(lookup_key: LookupKey<'_>) -> Lookup {
        Lookup { hash: lookup_key.hash(), head: lookup_key.head(), ..Lookup::default() }
    }

    fn restart_from(self) -> Lookup {
        Lookup { hash: self.hash, head: self.head, ..Lookup::default() }
    }
}

/// Returns the newest version of `key` at or below `snapshot`; `None` if absent or deleted.
///
/// Sources are searched from new to old. A range tombstone deletes lower sequence numbers in its
/// own source and older ones, which have only lower numbers: one that covers the key ends the
/// search.
#[inline]
pub fn get<'g>(
    state: &'g ReadState,
    key: &[u8],
    snapshot: SequenceNumber,
    guard: &'g Guard,
) -> Result<Option<EntryRef<'g>>> {
    get_with(state, LookupKey::of(key), snapshot, true, guard, NoTrace)
}

/// [`get`] that reports its steps. The sequence number of a plain value is valid only
/// `with_sequence`.
#[inline(always)]
pub fn get_with<'g>(
    state: &'g ReadState,
    lookup_key: LookupKey<'_>,
    snapshot: SequenceNumber,
    with_sequence: bool,
    guard: &'g Guard,
    trace: impl ReadTrace,
) -> Result<Option<EntryRef<'g>>> {
    let (key, hash) = (lookup_key.key(), lookup_key.hash());
    let partition = &state.version.partitions[state.version.find_by_head(lookup_key.head(), key)];
    let only_view = partition.only_view();
    if let Some((view, _)) = only_view {
        view.prefetch_by_hash(hash);
    }
    if let Some(decided) = get_in_memtables(state, key, hash, snapshot, trace) {
        return Ok(decided);
    }
    trace.note(|| partition_step(partition, key, snapshot));
    let Some((view, runs)) = only_view else {
        return get_in_partition(partition, key, hash, None, snapshot, guard, trace);
    };
    let query = Query { key, hash, snapshot, with_sequence };
    let found = view.search(runs, None, query, guard, trace)?;
    Ok(found.and_then(|entry| live(entry, 0)))
}

/// Prepares keys in stages: each prefetches for all keys before the next one waits. Passes blocks
/// missing in the cache to `is_absent`.
pub fn prepare<'a, K: Deref<Target = [u8]>>(
    state: &'a ReadState,
    keys: &[K],
    lookups: &mut [Lookup; GROUP_KEYS],
    guard: &Guard,
    mut is_absent: impl FnMut(CacheMiss<'a>),
) {
    let partitions = &state.version.partitions;
    let main_view = |lookup: &Lookup| partitions[lookup.partition].main_view();
    for (lookup, key) in lookups.iter_mut().zip(keys) {
        *lookup = Lookup { partition: state.version.find_by_head(lookup.head, key), ..lookup.restart_from() };
        if let Some((view, _)) = main_view(lookup) {
            lookup.by_hash = view.prefetch_by_hash(lookup.hash);
            if !lookup.by_hash {
                lookup.leaf = Some(view.find_leaf(key));
            }
        }
    }
    for (lookup, key) in lookups.iter_mut().zip(keys) {
        match main_view(lookup) {
            Some((view, runs)) if lookup.by_hash => drop(view.prefetch_candidate(runs, lookup.hash, true)),
            // Another thread can open the view, so the leaf may be missing.
            Some((view, _)) => lookup.segment = lookup.leaf.and_then(|leaf| view.segment_in_leaf(key, leaf)),
            None => {}
        }
    }
    for lookup in lookups.iter().filter(|lookup| lookup.by_hash) {
        if let Some((view, runs)) = main_view(lookup) {
            view.prefetch_candidate(runs, lookup.hash, false).into_iter().for_each(&mut is_absent);
        }
    }
    for (lookup, key) in lookups.iter().zip(keys) {
        if let (Some((view, runs)), Some(segment)) = (main_view(lookup), lookup.segment) {
            view.prefetch_slot(runs, segment, key, lookup.hash, guard);
        }
    }
    for (lookup, key) in lookups.iter().zip(keys) {
        if let (Some((view, runs)), Some(segment)) = (main_view(lookup), lookup.segment) {
            view.prefetch_entry(runs, segment, key, lookup.hash, guard).into_iter().for_each(&mut is_absent);
        }
    }
}

/// [`get`] of a key prepared on the same state. A plain value's sequence number is undefined.
pub fn get_prepared<'g>(
    state: &'g ReadState,
    key: &[u8],
    lookup: &Lookup,
    snapshot: SequenceNumber,
    guard: &'g Guard,
) -> Result<Option<EntryRef<'g>>> {
    let Lookup { hash, partition, segment, .. } = *lookup;
    if let Some(decided) = get_in_memtables(state, key, hash, snapshot, NoTrace) {
        return Ok(decided);
    }
    let partition = &state.version.partitions[partition];
    let found = match (partition.only_view(), segment) {
        (Some((view, runs)), Some(segment)) => view.get_in_segment(runs, segment, key, hash, snapshot, guard)?,
        (Some((view, runs)), None) => view.find_hashed(runs, key, hash, snapshot, guard)?,
        (None, _) => return get_in_partition(partition, key, hash, segment, snapshot, guard, NoTrace),
    };
    Ok(found.and_then(|entry| live(entry, 0)))
}

/// Searches the memtables. `None`: they do not decide. `Some(None)`: deleted.
#[inline]
fn get_in_memtables<'g>(
    state: &'g ReadState,
    key: &[u8],
    hash: u64,
    snapshot: SequenceNumber,
    trace: impl ReadTrace,
) -> Option<Option<EntryRef<'g>>> {
    for (position, memtable) in state.memtables().enumerate() {
        if memtable.is_empty() {
            continue;
        }
        let deleted = memtable.newest_covering(key, snapshot);
        let found = memtable.get_hashed(key, hash, snapshot);
        trace.note(|| ReadStep::Memtable {
            position,
            entries: memtable.entry_count(),
            is_excluded: !memtable.may_contain(hash),
            found: found.as_ref().map(FoundEntry::of),
            covered_by: (deleted > 0).then_some(deleted),
        });
        if let Some(entry) = found {
            return Some(live(entry, deleted));
        }
        if deleted > 0 {
            return Some(None);
        }
    }
    None
}

fn live(entry: EntryRef<'_>, deleted: SequenceNumber) -> Option<EntryRef<'_>> {
    (entry.kind != EntryKind::Tombstone && entry.sequence >= deleted).then_some(entry)
}

fn get_in_partition<'g>(
    partition: &'g Partition,
    key: &[u8],
    hash: u64,
    segment: Option<u32>,
    snapshot: SequenceNumber,
    guard: &'g Guard,
    trace: impl ReadTrace,
) -> Result<Option<EntryRef<'g>>> {
    let skip = |handle: &RunHandle, reason| {
        trace.note(|| ReadStep::RunSkipped { run: handle.run().meta().number, reason });
    };
    let deleted = partition.newest_covering(key, snapshot);
    let mut best: Option<EntryRef<'g>> = None;
    let mut apart = [Step::Unknown; RUNS_AT_ONCE];
    let mut segment = segment;
    let mut is_prepared = false;
    partition.apart.iter().for_each(|handle| handle.prefetch_filter(hash));
    if let Some(view) = &partition.view {
        view.prefetch_by_hash(hash);
    }
    // Newest first by highest sequence number, but a merged run may overlap the next. So the search
    // continues until no later run can hold anything newer.
    let is_counted = is_counted(hash);
    for (index, handle) in partition.apart.iter().enumerate() {
        if best.is_some_and(|b| b.sequence >= handle.run().meta().max_sequence) {
            partition.apart.iter().skip(index).for_each(|handle| skip(handle, SkipReason::Older));
            break;
        }
        if handle.lacks(hash) {
            skip(handle, SkipReason::Filter);
            continue;
        }
        let others = partition.apart.get(index + 1..).unwrap_or_default();
        if index > 0 && !is_prepared && others.iter().any(|other| !other.lacks(hash)) {
            // Not for the newest run, which has most keys read soon after their write.
            segment = prepare_apart(partition, key, hash, segment, &mut apart);
            is_prepared = true;
        }
        let step = match apart.get(index) {
            Some(Step::Outside) => {
                // The filter was asked above.
                skip(handle, SkipReason::KeyRange);
                continue;
            }
            Some(Step::Segment(segment)) => Some(*segment),
            _ if is_outside(handle.run().meta(), key) => {
                skip(handle, SkipReason::KeyRange);
                continue;
            }
            _ => None,
        };
        if is_counted {
            handle.note_read(1);
        }
        let (view, runs) = (handle.view()?, handle.alone());
        let query = Query { key, hash, snapshot, with_sequence: true };
        best = newer(best, view.search(runs, step, query, guard, trace)?);
    }
    if let Some(view) = &partition.view
        && best.is_none_or(|b| b.sequence < partition.view_max_sequence)
    {
        let query = Query { key, hash, snapshot, with_sequence: true };
        best = newer(best, view.search(&partition.view_runs, segment, query, guard, trace)?);
    }
    Ok(best.and_then(|entry| live(entry, deleted)))
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Unknown,
    Outside,
    Leaf(Leaf),
    Segment(u32),
}

/// Starts the lookup in all sources but the newest run, to overlap their memory waits. Returns the
/// segment in the partition's view if known.
fn prepare_apart(
    partition: &Partition,
    key: &[u8],
    hash: u64,
    segment: Option<u32>,
    apart: &mut [Step; RUNS_AT_ONCE],
) -> Option<u32> {
    let begin = |view: &View| match view.prefetch_by_hash(hash) {
        true => Step::Unknown,
        false => Step::Leaf(view.find_leaf(key)),
    };
    let advance = |view: &View, step: Step| match step {
        Step::Leaf(leaf) => view.segment_in_leaf(key, leaf).map_or(Step::Unknown, Step::Segment),
        step => step,
    };
    let main = partition.view.as_ref().filter(|_| segment.is_none());
    let main_step = main.map_or(Step::Unknown, |view| begin(view));
    for (handle, step) in partition.apart.iter().zip(&mut *apart).skip(1) {
        // The search itself opens the view.
        *step = match handle.opened_view() {
            _ if handle.lacks(hash) || is_outside(handle.run().meta(), key) => Step::Outside,
            Some(view) => begin(view),
            None => Step::Unknown,
        };
    }
    for (handle, step) in partition.apart.iter().zip(apart) {
        if let (Step::Leaf(_), Some(view)) = (*step, handle.opened_view()) {
            *step = advance(view, *step);
        }
    }
    match main.map(|view| advance(view, main_step)) {
        Some(Step::Segment(segment)) => Some(segment),
        _ => segment,
    }
}

#[cold]
fn partition_step(partition: &Partition, key: &[u8], snapshot: SequenceNumber) -> ReadStep {
    let covered_by = partition.newest_covering(key, snapshot);
    ReadStep::Partition {
        id: partition.id,
        unindexed_runs: partition.apart.len(),
        view_runs: partition.view_runs.len(),
        covered_by: (covered_by > 0).then_some(covered_by),
    }
}

#[inline]
fn is_outside(meta: &RunMeta, key: &[u8]) -> bool {
    key < meta.smallest.as_slice() || key > meta.largest.as_slice()
}

fn newer<'g>(a: Option<EntryRef<'g>>, b: Option<EntryRef<'g>>) -> Option<EntryRef<'g>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.sequence > a.sequence { b } else { a }),
        (a, b) => a.or(b),
    }
}
