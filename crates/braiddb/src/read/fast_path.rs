//! Gets that are answered at once: of keys whose place a hash index tells to the byte, in files that are read in place, beside memtables that can be asked
//! and runs whose filters tell that they have no such key, or that the newest of them has it.
//!
//! This is [`super::get_with`] for the case that nearly all gets of a warm database are, with as few instructions as can be, none of which waits for
//! the memory that the get before it waits for: so the processor, which looks some hundred instructions ahead, is at work on the next get
//! while this one waits. What the case is not is left to the other way, which asks the same again.

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

/// With more keys of a group unknown than this, the rest is not looked at: most of it would be done twice.
const UNKNOWN_MAX: u32 = 4;

/// [`FastGet`] of a key in a state, in two parts. What is found is a plain value, and its sequence number means nothing. The key is made as a whole, by
/// `whole`, only where it is needed so.
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

/// [`fast_get`] of several keys that begin with the same four bytes: what each of them needs from memory is asked for before any is waited for, but for
/// the filters of runs that stand apart. Puts
/// the values of those that are there into `values`, and returns a bit for each key of which nothing is known; `None` if that is so of many. The
/// keys are made as a whole, by `whole`, only where they are needed so.
///
/// Each stage is a function of its own: one for all of them has not registers enough, and takes some twenty instructions a key more.
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

/// A get that has begun, and the runs that it is of.
type ProbeIn<'s> = (Probe<'s>, &'s [Arc<Run>]);

/// Begins the gets of which nothing is known yet.
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

/// Asks for the entries that the buckets tell of.
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

/// Reads the entries.
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

/// The bits of the unknown with one more; `None` if those are too many.
#[inline(always)]
fn one_more(unknown: u32, at: usize) -> Option<u32> {
    let unknown = unknown | 1 << at;
    (unknown.count_ones() <= UNKNOWN_MAX).then_some(unknown)
}

/// Begins the get of a key in two parts, or says what is known of it already.
///
/// A processor looks some three hundred instructions ahead. What it does while it waits for the entry of the get before must lead it to the bucket of this
/// one: so the bucket is asked for as soon as it can be told, and all that is to be made sure of comes after that.
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

// What is seldom needed, or takes long anyway, is not inlined: with it the rest has not registers enough.

/// The hash and the head of a key of which words do not tell them.
#[inline(never)]
fn hash_and_head<K: Deref<Target = [u8]>>(
    prefix: [u8; 4],
    key: &[u8],
    whole: impl Fn([u8; 4], &[u8]) -> K,
) -> (u64, u64) {
    let whole = whole(prefix, key);
    (hash64(&whole), key_head(&whole))
}

/// The partition of a key of which the head does not tell it.
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

/// What a memtable says of a key; `None` if it has nothing to say.
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
