//! Fast path for point lookups (ADR 0039): few instructions, mostly without calls or data-dependent
//! loops, so that the processor overlaps the memory waits of consecutive gets.
//!
//! Preconditions; a lookup that fails one returns [`FastGet::Unknown`], a miss:
//! - Of the views below the memtables that may hold the key, the first has only newer entries than
//!   the rest. It is open, has a hash index with direct offsets, and the snapshot covers it.
//! - The partition's runs and the memtables searched have no range tombstones.
//! - The newest version is a plain value or a tombstone: no TTL, blob, stream or operand.
//! - Its block is read in place and was verified in the current span of 32 seconds.
//!
//! It must never wait, lock, issue a read, verify a block or return an error. Only `whole`
//! allocates, for internal keys above 64 bytes. Only a page fault on a mapped block reads the disk.
//!
//! After a miss the caller runs the general path ([`super::get_with`]) from the start: for one get
//! on a newly loaded state, for up to four keys of a group on the same state. With more misses the
//! whole group takes the general path.
//!
//! INVARIANT G1: a result other than `Unknown` equals the general path's, for the same state and
//! sequence number, loaded in the order of R1 (`state.rs`). `fast_path.rs` and
//! `fast_path_batches.rs` in `db/read/tests` compare single, batched and general gets with a
//! `BTreeMap`. During flushes and merges they check that a get is not older than the last finished
//! commit, and that both keys of a commit show the same one.

use super::{GROUP_KEYS, LookupKey, ReadState};
use crate::{
    base::SequenceNumber,
    codec::hash64,
    memtable::Memtable,
    table::{EntryOffset, Moment, Run},
    version::{FirstView, is_counted, key_head},
    view::{FastGet, Likely, Probe, prefetched_value},
};
use std::{ops::Deref, sync::Arc};

/// Maximum misses in a group of 16. With more the whole group takes the general path, which repeats
/// the work.
const UNKNOWN_MAX: u32 = 4;

/// `whole` makes the internal key, only where its parts do not suffice.
#[inline(always)]
pub fn fast_get<'s, K: Deref<Target = [u8]>>(
    state: &'s ReadState,
    (prefix, key): ([u8; 4], &[u8]),
    whole: impl Fn([u8; 4], &[u8]) -> K + Copy,
    snapshot: impl FnOnce() -> SequenceNumber,
    now: impl FnOnce() -> Moment,
) -> FastGet<'s> {
    match probe_key(state, prefix, key, whole, snapshot) {
        Ok((probe, runs)) => probe.resolve(runs, (prefix, key), now()),
        Err(known) => known,
    }
}

/// Looks up keys with the same prefix of four bytes, in three stages: buckets, entries,
/// comparisons. Each stage prefetches for all keys before the next waits. Stores the values in
/// `values` and returns one bit for each miss; `None` after more than [`UNKNOWN_MAX`].
///
/// Each stage is a function: one for all runs out of registers and takes about 20 instructions a
/// key more.
#[inline(always)]
pub fn fast_get_many<'s, K: Deref<Target = [u8]>>(
    state: &'s ReadState,
    (prefix, keys): ([u8; 4], &[&[u8]]),
    whole: impl Fn([u8; 4], &[u8]) -> K + Copy,
    snapshot: SequenceNumber,
    now: impl FnOnce() -> Moment,
    values: &mut [Option<&'s [u8]>; GROUP_KEYS],
) -> Option<u32> {
    let (mut probe, mut likely) = ([None; GROUP_KEYS], [None; GROUP_KEYS]);
    let unknown = probe_all(state, (prefix, keys), whole, snapshot, &mut probe, values)?;
    let unknown = prefetch_all(&probe, &mut likely, unknown)?;
    resolve_all((prefix, keys), &probe, &likely, now(), values, unknown)
}

type ProbeIn<'s> = (Probe<'s>, &'s [Arc<Run>]);

/// Stage 1: prefetches the buckets; memtables may answer already.
#[inline(never)]
fn probe_all<'s, K: Deref<Target = [u8]>>(
    state: &'s ReadState,
    (prefix, keys): ([u8; 4], &[&[u8]]),
    whole: impl Fn([u8; 4], &[u8]) -> K + Copy,
    snapshot: SequenceNumber,
    probe: &mut [Option<ProbeIn<'s>>; GROUP_KEYS],
    values: &mut [Option<&'s [u8]>; GROUP_KEYS],
) -> Option<u32> {
    let mut unknown = 0;
    for (at, (&key, (probe, value))) in keys.iter().zip(probe.iter_mut().zip(values)).enumerate() {
        match probe_key(state, prefix, key, whole, || snapshot) {
            Ok(on) => *probe = Some(on),
            Err(FastGet::Value(known)) => *value = Some(known),
            Err(FastGet::Absent) => {}
            Err(FastGet::Unknown) => unknown = one_more(unknown, at)?,
        }
    }
    Some(unknown)
}

/// Stage 2: prefetches the entries that the buckets refer to.
#[inline(never)]
fn prefetch_all<'s>(
    probe: &[Option<ProbeIn<'s>>; GROUP_KEYS],
    likely: &mut [Option<(&'s Run, EntryOffset)>; GROUP_KEYS],
    mut unknown: u32,
) -> Option<u32> {
    for (at, (on, likely)) in probe.iter().zip(likely).enumerate() {
        let Some((probe, runs)) = on else { continue };
        match probe.prefetch(runs) {
            Likely::Entry(run, entry_offset) => *likely = Some((run, entry_offset)),
            Likely::Absent => {}
            Likely::Unknown => unknown = one_more(unknown, at)?,
        }
    }
    Some(unknown)
}

/// Stage 3: compares keys and takes the values.
#[inline(never)]
fn resolve_all<'s>(
    (prefix, keys): ([u8; 4], &[&[u8]]),
    probe: &[Option<ProbeIn<'s>>; GROUP_KEYS],
    likely: &[Option<(&'s Run, EntryOffset)>; GROUP_KEYS],
    now: Moment,
    values: &mut [Option<&'s [u8]>; GROUP_KEYS],
    mut unknown: u32,
) -> Option<u32> {
    for (at, ((&key, likely), value)) in keys.iter().zip(likely).zip(values).enumerate() {
        let Some((run, entry_offset)) = *likely else { continue };
        if let Some(known) = prefetched_value(run, entry_offset, (prefix, key), now) {
            *value = Some(known);
            continue;
        }
        let probe = probe.get(at).copied().flatten();
        match probe.map_or(FastGet::Unknown, |(probe, runs)| probe.resolve_slow(runs, prefix, key, now)) {
            FastGet::Value(known) => *value = Some(known),
            FastGet::Absent => {}
            FastGet::Unknown => unknown = one_more(unknown, at)?,
        }
    }
    Some(unknown)
}

#[inline(always)]
fn one_more(unknown: u32, at: usize) -> Option<u32> {
    let unknown = unknown | 1 << at;
    (unknown.count_ones() <= UNKNOWN_MAX).then_some(unknown)
}

/// Starts a lookup, or returns a result that needs no bucket. A processor looks about 300
/// instructions ahead: while it waits for the entry of one get, it should reach the bucket of the
/// next. So the bucket is prefetched before any precondition is checked.
#[inline(always)]
fn probe_key<'s, K: Deref<Target = [u8]>>(
    state: &'s ReadState,
    prefix: [u8; 4],
    key: &[u8],
    whole: impl Fn([u8; 4], &[u8]) -> K + Copy,
    snapshot: impl FnOnce() -> SequenceNumber,
) -> Result<ProbeIn<'s>, FastGet<'s>> {
    let (hash, head) = match LookupKey::hash_and_head_of_words(prefix, key) {
        Some(known) => known,
        None => hash_and_head(prefix, key, whole),
    };
    let number = match state.version.find_by_prefix(head) {
        Some(number) => number,
        None => find_slow(state, head, prefix, key, whole),
    };
    let partition = state.version.partitions.get(number).ok_or(FastGet::Unknown)?;
    if let Some((view, _)) = partition.main_view() {
        view.prefetch_bucket(hash);
    }
    let snapshot = snapshot();
    let FirstView { view, runs, is_only, apart } = partition.first_view_with(hash).ok_or(FastGet::Unknown)?;
    let probe = view.probe(hash, snapshot, is_only).ok_or(FastGet::Unknown)?;
    if let Some(run) = apart.filter(|_| is_counted(hash)) {
        run.note_read(1);
    }
    if !state.active.is_empty()
        && let Some(known) = ask(&state.active, prefix, key, whole, hash, snapshot)
    {
        return Err(known);
    }
    if !state.frozen.is_empty() {
        for memtable in &state.frozen {
            if let Some(known) = ask(memtable, prefix, key, whole, hash, snapshot) {
                return Err(known);
            }
        }
    }
    Ok((probe, runs))
}

// Rare or slow work is not inlined: it would take registers from the fast path.

#[inline(never)]
fn hash_and_head<K: Deref<Target = [u8]>>(
    prefix: [u8; 4],
    key: &[u8],
    whole: impl Fn([u8; 4], &[u8]) -> K,
) -> (u64, u64) {
    let whole = whole(prefix, key);
    (hash64(&whole), key_head(&whole))
}

#[cold]
#[inline(never)]
fn find_slow<K: Deref<Target = [u8]>>(
    state: &ReadState,
    head: u64,
    prefix: [u8; 4],
    key: &[u8],
    whole: impl Fn([u8; 4], &[u8]) -> K,
) -> usize {
    state.version.find_slow(head, &whole(prefix, key))
}

/// `None` if it has no version of the key.
#[inline(always)]
fn ask<'s, K: Deref<Target = [u8]>>(
    memtable: &'s Memtable,
    prefix: [u8; 4],
    key: &[u8],
    whole: impl Fn([u8; 4], &[u8]) -> K,
    hash: u64,
    snapshot: SequenceNumber,
) -> Option<FastGet<'s>> {
    if memtable.is_empty() {
        return None;
    }
    if memtable.has_range_tombstones() {
        return Some(FastGet::Unknown);
    }
    if !memtable.may_contain(hash) {
        return None;
    }
    get_in(memtable, prefix, key, whole, hash, snapshot)
}

#[inline(never)]
fn get_in<'s, K: Deref<Target = [u8]>>(
    memtable: &'s Memtable,
    prefix: [u8; 4],
    key: &[u8],
    whole: impl Fn([u8; 4], &[u8]) -> K,
    hash: u64,
    snapshot: SequenceNumber,
) -> Option<FastGet<'s>> {
    memtable.get_hashed(&whole(prefix, key), hash, snapshot).map(FastGet::of)
}
