//! Batches: writes that take effect together, and their bytes in the log.
//!
//! A log record's payload is a group: batch after batch, each with one sequence number, in order:
//!
//! | field | |
//! |---|---|
//! | operation count | varint of twice the count; the low bit is reserved and zero |
//! | operations | each: kind u8, key (varint length, bytes), and unless it is a tombstone: value (varint length, bytes) |
//!
//! Keys are internal keys. In a prepared batch the operations stand in key order and no key occurs twice (several
//! writes to one key collapse to the last, and a range delete takes away what stood before it in its range), range
//! deletes first.

use crate::{
    base::{EntryKind, Error, RangeTombstone, RangeTombstoneSet, Result, limits},
    codec::{ByteReader, put_bytes, put_varint},
};

/// One operation of a batch, borrowed from the group's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    /// What it does.
    pub kind: EntryKind,
    /// The internal key; of a range delete the first key.
    pub key: &'a [u8],
    /// The value; of a range delete the end of the range.
    pub value: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    kind: EntryKind,
    key_start: usize,
    key_len: usize,
    value_start: usize,
    value_len: usize,
}

/// Operations in the order they were asked for.
#[derive(Clone, Debug, Default)]
pub struct RawBatch {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    error: Option<String>,
}

impl RawBatch {
    /// Adds an operation. The key is given in pieces, which are joined. A key or value beyond the limits makes the
    /// whole batch fail when it is prepared.
    pub fn push(&mut self, kind: EntryKind, key: &[&[u8]], value: &[u8]) {
        let key_start = self.bytes.len();
        for piece in key {
            self.bytes.extend_from_slice(piece);
        }
        let key_len = self.bytes.len() - key_start;
        if value.len() as u64 > limits::MAX_VALUE_LEN {
            self.fail(format!("a value has {} bytes; the most is {}", value.len(), limits::MAX_VALUE_LEN));
        }
        if key_len > limits::MAX_INTERNAL_KEY_LEN {
            self.fail(format!("a key has {} bytes; the most is {}", key_len - 4, limits::MAX_KEY_LEN));
        }
        // The value of a range delete is a key, and a run is refused where a key of it is too long.
        if kind == EntryKind::RangeDelete && value.len() > limits::MAX_INTERNAL_KEY_LEN {
            let len = value.len().saturating_sub(4);
            self.fail(format!("the end of a range has {len} bytes; the most is {}", limits::MAX_KEY_LEN));
        }
        self.bytes.extend_from_slice(value);
        let value_start = key_start + key_len;
        self.slots.push(Slot { kind, key_start, key_len, value_start, value_len: value.len() });
    }

    /// Makes the batch fail when it is prepared; the first reason is kept.
    pub fn fail(&mut self, reason: String) {
        self.error.get_or_insert(reason);
    }

    /// How many operations were added.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// How many bytes of keys and values were added.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets all operations.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.slots.clear();
        self.error = None;
    }

    fn key(&self, slot: &Slot) -> &[u8] {
        &self.bytes[slot.key_start..slot.key_start + slot.key_len]
    }

    fn value(&self, slot: &Slot) -> &[u8] {
        &self.bytes[slot.value_start..slot.value_start + slot.value_len]
    }

    /// The operations that count, range deletes first, then by key.
    fn effective(&self) -> Vec<&Slot> {
        if self.slots.len() == 1 {
            return self.slots.iter().collect();
        }
        let deletes: Vec<(usize, &Slot)> =
            self.slots.iter().enumerate().filter(|(_, s)| s.kind == EntryKind::RangeDelete).collect();
        // The place in the batch stands for the sequence number, so that a look-up is a search and not a walk.
        let ranges = deletes.iter().map(|(at, s)| RangeTombstone {
            start: self.key(s).to_vec(),
            end: self.value(s).to_vec(),
            sequence: *at as u64,
        });
        let ranges = RangeTombstoneSet::new(ranges.collect());
        let covered = |order: usize, key: &[u8]| ranges.covering(key).first().is_some_and(|&at| at > order as u64);
        let mut points: Vec<(usize, &Slot)> = self
            .slots
            .iter()
            .enumerate()
            .filter(|(order, s)| s.kind != EntryKind::RangeDelete && !covered(*order, self.key(s)))
            .collect();
        let sorted = points.windows(2).all(|w| self.key(w[0].1) < self.key(w[1].1));
        if !sorted {
            // Of equal keys the last written comes first, and the others go.
            points.sort_by(|a, b| self.key(a.1).cmp(self.key(b.1)).then(b.0.cmp(&a.0)));
            points.dedup_by(|later, first| self.key(later.1) == self.key(first.1));
        }
        deletes.iter().map(|(_, s)| *s).chain(points.into_iter().map(|(_, s)| s)).collect()
    }

    /// The batch's bytes. `place` is asked for each value: it may put it elsewhere and return what stands in its
    /// place (a blob reference).
    pub fn prepare(&self, mut place: impl FnMut(&[u8], &[u8]) -> Result<Option<Vec<u8>>>) -> Result<PreparedBatch> {
        if let Some(reason) = &self.error {
            return Err(Error::InvalidArgument(reason.clone()));
        }
        let slots = self.effective();
        let mut bytes = Vec::with_capacity(self.bytes.len() + 8 * slots.len() + 8);
        put_varint(&mut bytes, 2 * slots.len() as u64);
        for slot in &slots {
            let (key, value) = (self.key(slot), self.value(slot));
            let placed = if slot.kind == EntryKind::Value { place(key, value)? } else { None };
            bytes.push(if placed.is_some() { EntryKind::BlobRef } else { slot.kind } as u8);
            put_bytes(&mut bytes, key);
            if slot.kind != EntryKind::Tombstone {
                put_bytes(&mut bytes, placed.as_deref().unwrap_or(value));
            }
        }
        Ok(PreparedBatch { bytes, operations: slots.len(), user_bytes: self.bytes.len() as u64 })
    }
}

/// A batch as it goes into the log.
#[derive(Clone, Debug, Default)]
pub struct PreparedBatch {
    /// The bytes, as the module describes.
    pub bytes: Vec<u8>,
    /// How many operations they hold.
    pub operations: usize,
    /// Bytes of keys and values that the caller gave.
    pub user_bytes: u64,
}

/// Walks a group: calls `visit` with the index of the batch within the group and each operation. `None` if the bytes
/// are not those of a group; then some operations may have been visited already.
pub fn decode_group<'a>(payload: &'a [u8], mut visit: impl FnMut(u64, Operation<'a>)) -> Option<u64> {
    let mut reader = ByteReader::new(payload);
    let mut batch = 0;
    while !reader.is_at_end() {
        let head = reader.varint()?;
        if head & 1 != 0 {
            return None;
        }
        for _ in 0..head / 2 {
            let kind = EntryKind::from_byte(reader.u8()?)?;
            let key = reader.bytes()?;
            let value = if kind == EntryKind::Tombstone { &[] } else { reader.bytes()? };
            let is_key = |key: &[u8]| (4..=limits::MAX_INTERNAL_KEY_LEN).contains(&key.len());
            if !is_key(key) || (kind == EntryKind::RangeDelete && !is_key(value)) {
                return None;
            }
            visit(batch, Operation { kind, key, value });
        }
        batch += 1;
    }
    Some(batch)
}

impl Operation<'_> {
    /// The range tombstone that a range delete makes at `sequence`.
    pub fn range_tombstone(&self, sequence: u64) -> RangeTombstone {
        RangeTombstone { start: self.key.to_vec(), end: self.value.to_vec(), sequence }
    }
}
