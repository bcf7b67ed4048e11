//! Merge functions: operands are written without reading the value and applied on read.

use super::point_read::{self, Unresolved};
use crate::{
    base::{EntryKind, EntryRef, Error, Result, SequenceNumber},
    codec::{Base, MergeFunctions, Operands},
    commit::Operation,
    db::engine::{key::TREE_ID_LEN, root::Engine},
    memtable::{Memtable, MemtableWriter},
    read::{self, ReadState},
};

/// Inserts operands. Applies those of cheap functions at once if the memtable knows the base, so
/// that a counter does not accumulate operands.
#[cold]
pub fn insert_operands(
    memtable: &Memtable,
    writer: &mut MemtableWriter<'_>,
    functions: &MergeFunctions,
    operation: &Operation<'_>,
    sequence: SequenceNumber,
) {
    let Operation { kind, key, value } = *operation;
    match applied(memtable, functions, operation, sequence) {
        Some((kind, value)) => writer.insert(key, sequence, kind, &value),
        None => writer.insert(key, sequence, kind, value),
    }
}

fn applied(
    memtable: &Memtable,
    functions: &MergeFunctions,
    operation: &Operation<'_>,
    sequence: SequenceNumber,
) -> Option<(EntryKind, Vec<u8>)> {
    let operands = Operands::decode(operation.value).filter(|operands| functions.are_eager(operands))?;
    let user_key = operation.key.get(TREE_ID_LEN..)?;
    let value_on = |base: Option<&[u8]>| Some((EntryKind::Value, functions.apply(user_key, base, &operands).ok()?));
    match operands.base {
        Base::Absent => return value_on(None),
        Base::Value(value) => return value_on(Some(value)),
        Base::Beneath => {}
    }
    let deleted = memtable.newest_covering(operation.key, sequence);
    let Some(newest) = memtable.get(operation.key, sequence).filter(|entry| entry.sequence >= deleted) else {
        return if deleted > 0 { value_on(None) } else { None };
    };
    match newest.kind {
        EntryKind::Value => value_on(Some(newest.value)),
        EntryKind::Tombstone => value_on(None),
        EntryKind::Merge => {
            let older = Operands::decode(newest.value)?;
            let lowest = newest.sequence.saturating_sub(older.reach);
            let piled = functions.condense(user_key, operands.on_top_of(&older, sequence - lowest));
            Some((EntryKind::Merge, piled))
        }
        _ => None,
    }
}

/// Applies operands to their base at a snapshot. Returns the value and the base's expiry time.
/// All lookups use `state`, in which `entry` was found.
#[cold]
pub fn merged(
    engine: &Engine,
    state: &ReadState,
    entry: &FoundOperands,
    now_us: u64,
) -> Result<(Vec<u8>, Option<u64>)> {
    let FoundOperands { key, sequence, operands } = entry;
    let user_key = key.get(TREE_ID_LEN..).unwrap_or_default();
    let mut expires_us = None;
    let mut lists = vec![(*sequence, operands.clone())];
    let base = loop {
        let Some((sequence, operands)) = lists.last() else { break None };
        let operands = decode(engine, user_key, operands)?;
        match operands.base {
            Base::Absent => break None,
            Base::Value(value) => break Some(value.to_vec()),
            Base::Beneath => {}
        }
        let Some(beneath) = sequence.checked_sub(operands.reach.saturating_add(1)) else { break None };
        let (sequence, found) = {
            let guard = crossbeam_epoch::pin();
            match read::get(state, key, beneath, &guard)? {
                None => break None,
                Some(EntryRef { kind: EntryKind::Merge, sequence, value, .. }) => (sequence, Err(value.to_vec())),
                Some(entry) => (entry.sequence, Ok(Unresolved::of(&entry))),
            }
        };
        match found {
            Err(operands) => lists.push((sequence, operands)),
            Ok(value) => match point_read::resolve_with_end(engine, state, value, now_us)? {
                None => break None,
                Some((value, end)) => {
                    expires_us = end;
                    break Some(value.into_vec());
                }
            },
        }
    };
    let mut value = base;
    for (_, operands) in lists.iter().rev() {
        let operands = decode(engine, user_key, operands)?;
        let applied = engine.functions.apply(user_key, value.as_deref(), &operands);
        value = Some(applied.map_err(|e| engine.catalog.with_tree(e, key))?);
    }
    Ok((value.unwrap_or_default(), expires_us))
}

/// All operands of a key as one list, and their base.
#[derive(Debug)]
pub struct Pile {
    /// Value of an entry equivalent to all of them.
    pub operands: Vec<u8>,
    /// The base entry and its commit.
    pub beneath: Option<(SequenceNumber, Unresolved)>,
}

impl Pile {
    /// Returns the same list without a base.
    pub fn on_nothing(&self) -> Result<Vec<u8>> {
        let misunderstood = || Error::InvalidArgument("operands that cannot be understood".to_owned());
        let operands = Operands::decode(&self.operands).ok_or_else(misunderstood)?;
        Ok(if operands.base == Base::Beneath { operands.on(Base::Absent) } else { self.operands.clone() })
    }
}

/// Collects a key's operands without applying them. All lookups use `state`, in which `entry` was
/// found.
#[cold]
pub fn pile_up(engine: &Engine, state: &ReadState, entry: &FoundOperands) -> Result<Pile> {
    let user_key = entry.key.get(TREE_ID_LEN..).unwrap_or_default();
    let mut lists = vec![(entry.sequence, entry.operands.clone())];
    let mut beneath = None;
    while let Some((sequence, operands)) = lists.last() {
        let operands = decode(engine, user_key, operands)?;
        let Some(below) =
            sequence.checked_sub(operands.reach.saturating_add(1)).filter(|_| operands.base == Base::Beneath)
        else {
            break;
        };
        let guard = crossbeam_epoch::pin();
        match read::get(state, &entry.key, below, &guard)? {
            None => break,
            Some(EntryRef { kind: EntryKind::Merge, sequence, value, .. }) => lists.push((sequence, value.to_vec())),
            Some(entry) => {
                beneath = Some((entry.sequence, Unresolved::of(&entry)));
                break;
            }
        }
    }
    let Some((sequence, mut piled)) = lists.pop() else { unreachable!("there is one at least") };
    let lowest = sequence - decode(engine, user_key, &piled)?.reach.min(sequence);
    for (sequence, newer) in lists.iter().rev() {
        piled = decode(engine, user_key, newer)?.on_top_of(&decode(engine, user_key, &piled)?, sequence - lowest);
    }
    Ok(Pile { operands: piled, beneath })
}

#[derive(Clone, Debug)]
pub struct FoundOperands {
    pub key: Vec<u8>,
    pub sequence: SequenceNumber,
    pub operands: Vec<u8>,
}

impl FoundOperands {
    pub fn of(entry: &EntryRef<'_>) -> FoundOperands {
        FoundOperands { key: entry.key.to_vec(), sequence: entry.sequence, operands: entry.value.to_vec() }
    }
}

fn decode<'a>(engine: &Engine, user_key: &[u8], operands: &'a [u8]) -> Result<Operands<'a>> {
    Operands::decode(operands).ok_or_else(|| {
        let key = user_key.escape_ascii();
        Error::corruption(&engine.dir, 0, format!("the operands merged into the key \"{key}\" cannot be understood"))
    })
}
