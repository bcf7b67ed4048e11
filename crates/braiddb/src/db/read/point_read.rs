//! Point reads, and the repair of damaged views that they find.

use super::{
    healing,
    merge_operands::{self, FoundOperands},
};
use crate::{
    base::{Content, EntryKind, EntryRef, Error, NoTrace, ReadStep, ReaderKind, Result, SequenceNumber, TreeId},
    db::engine::{
        key::{KeyBuf, check_key},
        read_hold::Hold,
        root::Engine,
    },
    read::{self, GROUP_KEYS, Lookup, LookupKey, ReadState},
    table::blob::{BlobRef, BlobValue, Pieces},
    view::{CacheMiss, FastGet, read_misses},
};
use crossbeam_epoch::Guard;
use std::{borrow::Cow, cell::OnceCell, sync::Arc};

/// The contents of an entry that may need further reads.
#[derive(Debug)]
pub struct Unresolved {
    what: What,
    /// Time of expiry.
    expires_us: Option<u64>,
}

#[derive(Debug)]
enum What {
    Value(Vec<u8>),
    Blob(Vec<u8>),
    Stream(Vec<u8>),
    Operands(FoundOperands),
    /// Malformed contents.
    Nonsense,
}

impl Unresolved {
    pub fn expires_us(&self) -> Option<u64> {
        self.expires_us
    }

    /// Returns the step that reads the value, of the bytes then known; `None` for values in the
    /// entry.
    pub fn reading_step(&self) -> Option<Box<dyn Fn(u64) -> ReadStep>> {
        match &self.what {
            What::Blob(reference) => {
                let (file, offset) = BlobRef::decode(reference).map_or((0, 0), |blob| (blob.file, blob.offset));
                Some(Box::new(move |bytes| ReadStep::Blob { file, offset, bytes }))
            }
            What::Stream(list) => {
                let pieces = Pieces::decode(list).map_or(0, |pieces| pieces.list.len());
                Some(Box::new(move |bytes| ReadStep::Stream { pieces, bytes }))
            }
            What::Operands(_) => Some(Box::new(|bytes| ReadStep::Merged { bytes })),
            What::Value(_) | What::Nonsense => None,
        }
    }

    /// Returns the contents of an entry.
    pub fn of(entry: &EntryRef<'_>) -> Unresolved {
        let Some(content) = Content::of(entry.kind, entry.value) else {
            return Unresolved { what: What::Nonsense, expires_us: None };
        };
        let what = match content.kind {
            EntryKind::BlobRef => What::Blob(content.value.to_vec()),
            EntryKind::Stream => What::Stream(content.value.to_vec()),
            EntryKind::Merge => What::Operands(FoundOperands::of(entry)),
            _ => What::Value(content.value.to_vec()),
        };
        Unresolved { what, expires_us: content.expires_us }
    }
}

/// A value and its metadata.
#[derive(Debug)]
pub struct Resolved {
    pub value: BlobValue,
    /// Commit that wrote it.
    pub sequence: SequenceNumber,
    /// Expiry in microseconds since 1970; for merged operands, that of the base.
    pub expires_us: Option<u64>,
}

#[inline]
pub fn has_expired(entry: &EntryRef<'_>, now_us: u64) -> bool {
    entry.kind == EntryKind::Expiring
        && Content::of(entry.kind, entry.value).is_some_and(|content| content.expires_us <= Some(now_us))
}

/// Passes the latest value of a key to `read`. A large value is passed owned.
#[inline]
pub fn get_now<R>(
    engine: &Engine,
    tree: TreeId,
    key: &[u8],
    read: impl FnOnce(Cow<'_, [u8]>) -> R,
) -> Result<Option<R>> {
    if let Some(state) = engine.cell.fast_state.borrow() {
        let answer = fast_get(engine, &state, tree, key);
        #[cfg(test)]
        super::tests::fast_path::note(&answer);
        // After a close there is no state to borrow; a borrow means that the read began before.
        match answer {
            FastGet::Value(value) => return Ok(Some(read(Cow::Borrowed(value)))),
            FastGet::Absent => return Ok(None),
            FastGet::Unknown => {}
        }
    }
    get_slow(engine, tree, key, read)
}

/// Looks up the latest value on the fast path.
#[inline(always)]
pub fn fast_get<'s>(engine: &Engine, state: &'s ReadState, tree: TreeId, key: &[u8]) -> FastGet<'s> {
    // State before sequence number, as in `state_for`.
    let at = || engine.readers.snapshots.visible();
    read::fast_get(state, (tree.first_key(), key), whole_key, at, || engine.storage.table.moment())
}

/// General path of [`get_now`]; separate because inlining costs the fast path
/// registers.
#[inline(never)]
fn get_slow<R>(engine: &Engine, tree: TreeId, key: &[u8], read: impl FnOnce(Cow<'_, [u8]>) -> R) -> Result<Option<R>> {
    let whole = KeyBuf::new(tree, key);
    get(engine, LookupKey::of_parts(&whole, tree.first_key(), key), None, read)
}

/// Passes the value of an internal key at a snapshot, or the latest one, to `read`.
#[inline]
pub fn get<R>(
    engine: &Engine,
    key: LookupKey<'_>,
    snapshot: Option<&Hold>,
    read: impl FnOnce(Cow<'_, [u8]>) -> R,
) -> Result<Option<R>> {
    get_with(engine, key, snapshot, false, |value, _| read(value))
}

/// [`get`] that also passes the commit that wrote the value.
#[inline]
pub fn get_entry<R>(
    engine: &Engine,
    key: LookupKey<'_>,
    snapshot: Option<&Hold>,
    read: impl FnOnce(Cow<'_, [u8]>, SequenceNumber) -> R,
) -> Result<Option<R>> {
    get_with(engine, key, snapshot, true, read)
}

/// Passes the commit only with `with_sequence`.
#[inline(always)]
fn get_with<R>(
    engine: &Engine,
    key: LookupKey<'_>,
    snapshot: Option<&Hold>,
    with_sequence: bool,
    read: impl FnOnce(Cow<'_, [u8]>, SequenceNumber) -> R,
) -> Result<Option<R>> {
    engine.health.check_open()?;
    {
        let (state, at) = engine.state_for(snapshot)?;
        let guard = crossbeam_epoch::pin();
        match read::get_with(&state, key, at, with_sequence, &guard, NoTrace) {
            Ok(None) => return Ok(None),
            Ok(Some(entry)) if entry.kind == EntryKind::Value => {
                return Ok(Some(read(Cow::Borrowed(entry.value), entry.sequence)));
            }
            Ok(Some(entry)) if entry.kind == EntryKind::Expiring => {
                if let Some(plain) = plain_by(&entry, time_of(engine, snapshot)) {
                    return Ok(plain.map(|value| read(Cow::Borrowed(value), entry.sequence)));
                }
            }
            // Other kinds are slow anyway: start again on the general path.
            _ => {}
        }
    }
    Ok(get_unresolved(engine, key.key(), snapshot)?.map(|Resolved { value, sequence, .. }| match value {
        BlobValue::Owned(value) => read(Cow::Owned(value), sequence),
        BlobValue::InPlace(value) => read(Cow::Borrowed(&value), sequence),
    }))
}

/// Returns an expiring entry's value at `now_us`, if any; `None` if it needs further reads.
fn plain_by<'e>(entry: &EntryRef<'e>, now_us: u64) -> Option<Option<&'e [u8]>> {
    let content = Content::of(entry.kind, entry.value)?;
    if content.expires_us.is_some_and(|expires_us| expires_us <= now_us) {
        return Some(None);
    }
    (content.kind == EntryKind::Value).then_some(Some(content.value))
}

/// [`get`] of large values, and after damage to a view.
#[cold]
pub fn get_unresolved(engine: &Engine, key: &[u8], snapshot: Option<&Hold>) -> Result<Option<Resolved>> {
    let found = healing::retry(engine, || {
        // Keep the state until the blob is read.
        let (state, at) = engine.state_for(snapshot)?;
        let (found, sequence) = {
            let guard = crossbeam_epoch::pin();
            match read::get(&state, key, at, &guard)? {
                None => return Ok(None),
                Some(entry) => (Unresolved::of(&entry), entry.sequence),
            }
        };
        let resolved = resolve_with_end(engine, &state, found, time_of(engine, snapshot))?;
        Ok(resolved.map(|(value, expires_us)| Resolved { value, sequence, expires_us }))
    });
    found.map_err(|e| engine.catalog.with_tree(e, key))
}

/// Returns the time that decides expiry: the reader's creation, or now.
pub fn time_of(engine: &Engine, snapshot: Option<&Hold>) -> u64 {
    snapshot.map_or_else(|| engine.now().us, |hold| hold.held().taken_us)
}

/// Returns the value of an entry found in `state`; `None` if expired.
pub fn resolve(engine: &Engine, state: &ReadState, found: Unresolved, now_us: u64) -> Result<Option<BlobValue>> {
    Ok(resolve_with_end(engine, state, found, now_us)?.map(|(value, _)| value))
}

/// [`resolve`] with the expiry time: see [`Resolved::expires_us`].
pub fn resolve_with_end(
    engine: &Engine,
    state: &ReadState,
    found: Unresolved,
    now_us: u64,
) -> Result<Option<(BlobValue, Option<u64>)>> {
    if found.expires_us.is_some_and(|expires_us| expires_us <= now_us) {
        return Ok(None);
    }
    let value = match found.what {
        What::Value(value) => BlobValue::Owned(value),
        What::Blob(reference) => engine.storage.blobs.read(&reference)?,
        What::Stream(list) => BlobValue::Owned(engine.storage.blobs.read_pieces(&engine.storage.blobs.pieces(&list)?)?),
        What::Operands(operands) => {
            let (value, expires_us) = merge_operands::merged(engine, state, &operands, now_us)?;
            return Ok(Some((BlobValue::Owned(value), expires_us)));
        }
        What::Nonsense => {
            let detail = "an entry with an expiry time holds what cannot be understood";
            return Err(Error::corruption(&engine.dir, 0, detail));
        }
    };
    Ok(Some((value, found.expires_us)))
}

pub fn contains(engine: &Engine, key: &[u8], snapshot: Option<&Hold>) -> Result<bool> {
    engine.health.check_open()?;
    let found = healing::retry(engine, || {
        let guard = crossbeam_epoch::pin();
        let (state, at) = engine.state_for(snapshot)?;
        let found = read::get(&state, key, at, &guard)?;
        Ok(found
            .is_some_and(|entry| entry.kind != EntryKind::Expiring || !has_expired(&entry, time_of(engine, snapshot))))
    });
    found.map_err(|e| engine.catalog.with_tree(e, key))
}

/// Passes the values of many keys, all at one snapshot, to `read`.
pub fn multi_get<K: AsRef<[u8]>>(
    engine: &Arc<Engine>,
    tree: TreeId,
    keys: &[K],
    snapshot: Option<&Hold>,
    mut read: impl FnMut(usize, Option<&[u8]>),
) -> Result<()> {
    engine.health.check_open()?;
    let mut room = [&[][..]; GROUP_KEYS];
    if snapshot.is_none() && keys.len() <= GROUP_KEYS {
        let keys = checked(keys, &mut room)?;
        if fast_get_group(engine, tree, keys, None, &mut read) {
            return Ok(());
        }
        let hold = Hold::now(engine, ReaderKind::MultiGet);
        return get_group_healing(engine, tree, keys, Some(&hold), &mut read);
    }
    // The groups may use different states, so pin the versions.
    let hold = if snapshot.is_none() { Some(Hold::now(engine, ReaderKind::MultiGet)) } else { None };
    let snapshot = snapshot.or(hold.as_ref());
    for (group, keys) in keys.chunks(GROUP_KEYS).enumerate() {
        let keys = checked(keys, &mut room)?;
        let mut read = |i, value: Option<&[u8]>| read(group * GROUP_KEYS + i, value);
        if !fast_get_group(engine, tree, keys, snapshot, &mut read) {
            get_group_healing(engine, tree, keys, snapshot, &mut read)?;
        }
    }
    Ok(())
}

/// Fast path: passes a group's values from one state to `read` if nearly all are found by
/// [`read::fast_get_many`] and all are plain. On `false` it has passed nothing.
#[inline(always)]
fn fast_get_group(
    engine: &Engine,
    tree: TreeId,
    keys: &[&[u8]],
    snapshot: Option<&Hold>,
    read: &mut impl FnMut(usize, Option<&[u8]>),
) -> bool {
    let Some(state) = engine.cell.fast_state.borrow() else { return false };
    // State before sequence number, as in `state_for`.
    let at = match snapshot {
        None => engine.readers.snapshots.visible(),
        Some(hold) if hold.check().is_ok() => hold.sequence(),
        Some(_) => return false,
    };
    let now = || engine.storage.table.moment();
    let guard = OnceCell::new();
    let mut values = [None; GROUP_KEYS];
    let answer = read::fast_get_many(&state, (tree.first_key(), keys), whole_key, at, now, &mut values);
    let Some(unknown) = answer else { return false };
    if unknown != 0 && !get_remaining(engine, &state, tree, keys, unknown, at, &mut values, &guard) {
        return false;
    }
    #[cfg(test)]
    super::tests::fast_path_batches::note(keys.len() as u32 - unknown.count_ones());
    for (at, value) in values.iter().take(keys.len()).enumerate() {
        read(at, *value);
    }
    true
}

/// Looks up the keys whose bits are set in `others`. Returns `false` if a value is not plain or
/// something is damaged.
#[cold]
#[expect(clippy::too_many_arguments, reason = "they are those of the one call that there is")]
fn get_remaining<'g>(
    engine: &Engine,
    state: &'g ReadState,
    tree: TreeId,
    keys: &[&[u8]],
    others: u32,
    at: SequenceNumber,
    values: &mut [Option<&'g [u8]>; GROUP_KEYS],
    guard: &'g OnceCell<Guard>,
) -> bool {
    // The empty state follows a close or supersession; the general path reports the error.
    if state.version.partitions.is_empty() {
        return false;
    }
    let is_other = |place: &usize| others >> place & 1 != 0;
    let mut lookups = [Lookup::default(); GROUP_KEYS];
    let whole = internal(tree, (0..keys.len()).filter(is_other).map(|place| keys[place]), &mut lookups);
    prepare(engine, state, &whole, &mut lookups);
    // Pin late: a pin keeps evicted memory from being reused.
    let guard = guard.get_or_init(crossbeam_epoch::pin);
    let places = values.iter_mut().enumerate().filter(|(place, _)| is_other(place));
    for ((_, value), (key, lookup)) in places.zip(whole.iter().zip(&lookups)) {
        match read::get_prepared(state, key, lookup, at, guard) {
            Ok(None) => {}
            Ok(Some(entry)) if entry.kind == EntryKind::Value => *value = Some(entry.value),
            _ => return false,
        }
    }
    true
}

/// Passes the values of a group. May continue in another state after damage, so it needs a
/// snapshot.
#[inline(never)]
fn get_group_healing(
    engine: &Engine,
    tree: TreeId,
    keys: &[&[u8]],
    snapshot: Option<&Hold>,
    read: &mut impl FnMut(usize, Option<&[u8]>),
) -> Result<()> {
    let mut lookups = [Lookup::default(); GROUP_KEYS];
    let whole = internal(tree, keys.iter().copied(), &mut lookups);
    let mut next = 0;
    let done = healing::retry(engine, || get_group(engine, &whole, lookups, &mut next, snapshot, read));
    done.map_err(|e| engine.catalog.with_tree(e, &tree.first_key()))
}

fn get_group(
    engine: &Engine,
    keys: &[KeyBuf],
    mut lookups: [Lookup; GROUP_KEYS],
    next: &mut usize,
    snapshot: Option<&Hold>,
    read: &mut impl FnMut(usize, Option<&[u8]>),
) -> Result<()> {
    let (state, at) = engine.state_for(snapshot)?;
    prepare(engine, &state, keys, &mut lookups);
    while *next < keys.len() {
        let unresolved = {
            let guard = crossbeam_epoch::pin();
            match read::get_prepared(&state, &keys[*next], &lookups[*next], at, &guard)? {
                Some(entry) if entry.kind != EntryKind::Value => Some(Unresolved::of(&entry)),
                found => {
                    read(*next, found.map(|entry| entry.value));
                    None
                }
            }
        };
        if let Some(unresolved) = unresolved {
            read(*next, resolve(engine, &state, unresolved, time_of(engine, snapshot))?.as_deref());
        }
        *next += 1;
    }
    Ok(())
}

/// Reads the missing view pages of all keys at once, then the missing blocks.
fn prepare(engine: &Engine, state: &ReadState, keys: &[KeyBuf], lookups: &mut [Lookup; GROUP_KEYS]) {
    for _ in 0..2 {
        let mut misses = Vec::new();
        read::prepare(state, keys, lookups, &crossbeam_epoch::pin(), |missing| misses.push(missing));
        let has_pages = misses.iter().any(|misses| matches!(misses, CacheMiss::Page(..)));
        if misses.len() > 1 || has_pages {
            read_misses(&*engine.storage.table.vfs, &mut misses);
        }
        if !has_pages {
            break;
        }
    }
}

/// Collects a group's keys in `room`. Fails if one is too long.
#[inline(always)]
fn checked<'r, 'k, K: AsRef<[u8]>>(keys: &'k [K], room: &'r mut [&'k [u8]; GROUP_KEYS]) -> Result<&'r [&'k [u8]]> {
    for (key, place) in keys.iter().zip(&mut *room) {
        *place = key.as_ref();
        check_key(place)?;
    }
    Ok(room.get(..keys.len()).unwrap_or(room))
}

#[inline(never)]
fn whole_key(tree: [u8; 4], key: &[u8]) -> KeyBuf {
    KeyBuf::of_pieces(&[&tree, key])
}

fn internal<'k>(tree: TreeId, keys: impl Iterator<Item = &'k [u8]>, lookups: &mut [Lookup; GROUP_KEYS]) -> Vec<KeyBuf> {
    let mut internal = Vec::with_capacity(GROUP_KEYS);
    for (key, lookup) in keys.zip(lookups) {
        let whole = KeyBuf::new(tree, key);
        *lookup = Lookup::of(LookupKey::of_parts(&whole, tree.first_key(), key));
        internal.push(whole);
    }
    internal
}
