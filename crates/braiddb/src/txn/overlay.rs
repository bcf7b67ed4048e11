//! The uncommitted writes of a transaction.

use super::Intervals;
use crate::{
    base::EntryKind,
    codec::{Base, Operands},
    commit::RawBatch,
};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    mem::size_of,
    ops::Bound::{self, Excluded, Included},
    sync::atomic::{AtomicU64, Ordering},
};

/// Memory of a write besides its bytes.
const WRITE_BYTES: usize = 2 * size_of::<Vec<u8>>();

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    Value(Vec<u8>),
    /// A value in blob files, or with expiry: kind and value of the entry, and the user's value
    /// length.
    Placed(EntryKind, Vec<u8>, u64),
    Gone,
    /// Operands for the value at the snapshot or an included base: see `codec/operands.rs`.
    Operands(Vec<u8>),
}

impl Written {
    pub fn len(&self) -> usize {
        match self {
            Written::Value(bytes) | Written::Operands(bytes) | Written::Placed(_, bytes, _) => bytes.len(),
            Written::Gone => 0,
        }
    }
}

/// A point to which a transaction can be rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Savepoint(u64);

/// Makes savepoints unique in the process.
static SAVEPOINTS: AtomicU64 = AtomicU64::new(0);

/// The writes before a savepoint, once for each key.
#[derive(Debug)]
struct Undo {
    savepoint: Savepoint,
    points: BTreeMap<Vec<u8>, Option<Written>>,
    /// The earlier deleted ranges, if a range was deleted since.
    deleted: Option<Intervals>,
}

impl Undo {
    fn note(&mut self, key: Vec<u8>, before: Option<Written>) -> usize {
        match self.points.entry(key) {
            Entry::Occupied(_) => 0,
            Entry::Vacant(slot) => {
                let bytes = WRITE_BYTES + slot.key().len() + before.as_ref().map_or(0, Written::len);
                slot.insert(before);
                bytes
            }
        }
    }
}

#[derive(Debug, Default)]
pub struct Overlay {
    points: BTreeMap<Vec<u8>, Written>,
    deleted: Intervals,
    bytes: usize,
    undo: Vec<Undo>,
    undo_bytes: usize,
}

impl Overlay {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty() && self.deleted.is_empty()
    }

    pub fn len(&self) -> usize {
        self.points.len() + self.deleted.len()
    }

    pub fn size_bytes(&self) -> usize {
        self.bytes + self.deleted.size_bytes() + self.undo_bytes
    }

    pub fn set(&mut self, key: &[u8], value: Written) {
        self.bytes += WRITE_BYTES + key.len() + value.len();
        let before = match self.points.get_mut(key) {
            Some(slot) => Some(std::mem::replace(slot, value)),
            None => {
                self.points.insert(key.to_vec(), value);
                None
            }
        };
        if let Some(before) = &before {
            self.bytes -= WRITE_BYTES + key.len() + before.len();
        }
        self.note(key, before);
    }

    fn note(&mut self, key: &[u8], before: Option<Written>) {
        if let Some(undo) = self.undo.last_mut() {
            self.undo_bytes += undo.note(key.to_vec(), before);
        }
    }

    /// The operands have no base. A blob value must have been loaded before; values with expiry are
    /// refused earlier.
    pub fn merge(&mut self, key: &[u8], operands: &Operands<'_>) {
        let piled = match self.get(key) {
            None | Some(Written::Placed(..)) => operands.on(Base::Beneath),
            Some(Written::Value(value)) => operands.on(Base::Value(value)),
            Some(Written::Gone) => operands.on(Base::Absent),
            Some(Written::Operands(before)) => match Operands::decode(before) {
                Some(before) => operands.on_top_of(&before, 0),
                None => operands.on(Base::Beneath),
            },
        };
        self.set(key, Written::Operands(piled));
    }

    pub fn delete_range(&mut self, start: Vec<u8>, end: Vec<u8>) {
        if start >= end {
            return;
        }
        let inside: Vec<Vec<u8>> = self.range(Included(&start), &end).map(|(key, _)| key.to_vec()).collect();
        for key in inside {
            if let Some(before) = self.points.remove(&key) {
                self.bytes -= WRITE_BYTES + key.len() + before.len();
                self.note(&key, Some(before));
            }
        }
        if let Some(undo) = self.undo.last_mut()
            && undo.deleted.is_none()
        {
            self.undo_bytes += self.deleted.size_bytes();
            undo.deleted = Some(self.deleted.clone());
        }
        self.deleted.add(start, end);
    }

    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<&Written> {
        self.points.get(key).or_else(|| self.deleted.covering(key).map(|_| &Written::Gone))
    }

    pub fn has_point(&self, key: &[u8]) -> bool {
        self.points.contains_key(key)
    }

    pub fn range<'a>(
        &'a self,
        from: Bound<&[u8]>,
        end: &[u8],
    ) -> impl DoubleEndedIterator<Item = (&'a [u8], &'a Written)> {
        let is_empty = match from {
            Included(from) | Excluded(from) => from >= end,
            Bound::Unbounded => false,
        };
        let bounds = if is_empty { (Included(end), Excluded(end)) } else { (from, Excluded(end)) };
        self.points.range::<[u8], _>(bounds).map(|(key, value)| (key.as_slice(), value))
    }

    pub fn deleted(&self) -> &Intervals {
        &self.deleted
    }

    /// Sets a savepoint. O(1).
    pub fn savepoint(&mut self) -> Savepoint {
        let savepoint = Savepoint(SAVEPOINTS.fetch_add(1, Ordering::Relaxed));
        self.undo.push(Undo { savepoint, points: BTreeMap::new(), deleted: None });
        self.undo_bytes += size_of::<Undo>();
        savepoint
    }

    /// `savepoint` stays valid, later ones do not. False for an invalid savepoint. O(log n) for
    /// each undone key.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> bool {
        let Some(at) = self.undo.iter().rposition(|undo| undo.savepoint == savepoint) else { return false };
        for undo in self.undo.split_off(at).into_iter().rev() {
            self.undo_bytes -= size_of::<Undo>() + undo.deleted.as_ref().map_or(0, Intervals::size_bytes);
            if let Some(ranges) = undo.deleted {
                self.deleted = ranges;
            }
            for (key, before) in undo.points {
                self.undo_bytes -= WRITE_BYTES + key.len() + before.as_ref().map_or(0, Written::len);
                self.put_back(key, before);
            }
        }
        self.undo.push(Undo { savepoint, points: BTreeMap::new(), deleted: None });
        self.undo_bytes += size_of::<Undo>();
        true
    }

    fn put_back(&mut self, key: Vec<u8>, before: Option<Written>) {
        let size = |value: &Written| WRITE_BYTES + value.len();
        let key_len = key.len();
        if let Some(value) = &before {
            self.bytes += key_len + size(value);
        }
        let now = match before {
            Some(value) => self.points.insert(key, value),
            None => self.points.remove(&key),
        };
        if let Some(value) = &now {
            self.bytes -= key_len + size(value);
        }
    }

    pub fn into_batch(self) -> RawBatch {
        let mut batch = RawBatch::default();
        for (start, end) in self.deleted.iter() {
            batch.push(EntryKind::RangeDelete, &[start], end);
        }
        for (key, value) in &self.points {
            match value {
                Written::Value(value) => batch.push(EntryKind::Value, &[key], value),
                Written::Placed(kind, value, len) => {
                    batch.push(*kind, &[key], value);
                    batch.count_placed(len.saturating_sub(value.len() as u64));
                }
                Written::Gone => batch.push(EntryKind::Tombstone, &[key], b""),
                Written::Operands(operands) => batch.push(EntryKind::Merge, &[key], operands),
            }
        }
        batch
    }
}
