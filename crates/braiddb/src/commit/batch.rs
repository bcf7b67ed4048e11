//! Batches: writes that take effect together, and their bytes in the log.
//!
//! A log record's payload is a group: batches in order, each with one sequence number:
//!
//! | field | |
//! |---|---|
//! | operation count | varint of twice the count; the low bit is reserved and zero |
//! | operations | kind u8, key (varint length, bytes), value (likewise) except for tombstones |
//!
//! Keys are internal keys. In a prepared batch, range deletes come first, then the other operations
//! in key order, one per key: the last write that no range delete follows.

use crate::{
    base::{Content, EntryKind, Error, RangeTombstone, RangeTombstoneSet, Result, key_head, limits},
    codec::{Base, ByteReader, Operands, put_bytes, put_varint, varint_len, write_varint},
};
use std::{collections::HashMap, ops::Range};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    pub kind: EntryKind,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

pub const NOTHING: u8 = 0;

/// Bytes reserved for the operation count.
const HEAD_ROOM: usize = 10;

/// Minimum growth, in bytes, from the second operation on.
const ROOM_BYTES: usize = 2048;

pub const MERGED_INTO_EXPIRING: &str = "a merge function is used on a value that expires and is put by the same batch or \
    transaction: commit the value first";

/// Operations in the caller's order, encoded as in the log; copied only if they are disordered.
#[derive(Clone, Debug, Default)]
pub struct RawBatch {
    bytes: Vec<u8>,
    operations: usize,
    user_bytes: usize,
    last_key: Range<usize>,
    /// There is a range delete, or a key not above the previous one.
    is_disordered: bool,
    has_operands: bool,
    value_len_max: usize,
    error: Option<String>,
}

impl RawBatch {
    /// The key is given in pieces. A key or value beyond the limits makes the preparation fail.
    pub fn push(&mut self, kind: EntryKind, key: &[&[u8]], value: &[u8]) {
        let key_len: usize = key.iter().map(|piece| piece.len()).sum();
        self.check(kind, key_len, value.len());
        self.make_room(1 + varint_len(key_len as u64) + key_len + varint_len(value.len() as u64) + value.len());
        self.bytes.push(kind as u8);
        put_varint(&mut self.bytes, key_len as u64);
        let key_start = self.bytes.len();
        for piece in key {
            self.bytes.extend_from_slice(piece);
        }
        let key_range = key_start..self.bytes.len();
        if kind != EntryKind::Tombstone {
            put_bytes(&mut self.bytes, value);
        }
        let is_above = self.operations == 0 || self.bytes[self.last_key.clone()] < self.bytes[key_range.clone()];
        self.is_disordered |= !is_above || kind == EntryKind::RangeDelete;
        self.last_key = key_range;
        self.operations += 1;
        self.user_bytes += key_len + value.len();
        self.has_operands |= kind == EntryKind::Merge;
        if matches!(kind, EntryKind::Value | EntryKind::Expiring) {
            self.value_len_max = self.value_len_max.max(value.len());
        }
    }

    fn check(&mut self, kind: EntryKind, key_len: usize, value_len: usize) {
        if value_len as u64 > limits::MAX_VALUE_LEN {
            self.fail(format!("a value has {value_len} bytes, and at most {} are allowed", limits::MAX_VALUE_LEN));
        }
        if key_len > limits::MAX_INTERNAL_KEY_LEN {
            self.fail(format!("a key has {} bytes, and at most {} are allowed", key_len - 4, limits::MAX_KEY_LEN));
        }
        if kind == EntryKind::RangeDelete && value_len > limits::MAX_INTERNAL_KEY_LEN {
            let len = value_len.saturating_sub(4);
            self.fail(format!("the end of a range has {len} bytes, and at most {} are allowed", limits::MAX_KEY_LEN));
        }
    }

    fn make_room(&mut self, len: usize) {
        if self.operations == 0 {
            self.bytes.reserve_exact(HEAD_ROOM + len);
            self.bytes.resize(HEAD_ROOM, 0);
        } else if self.bytes.capacity() - self.bytes.len() < len {
            self.bytes.reserve(len.max(ROOM_BYTES));
        }
    }

    pub fn count_placed(&mut self, bytes: u64) {
        self.user_bytes += usize::try_from(bytes).unwrap_or(usize::MAX);
    }

    pub fn fail(&mut self, reason: String) {
        self.error.get_or_insert(reason);
    }

    pub fn len(&self) -> usize {
        self.operations
    }

    pub fn size_bytes(&self) -> usize {
        self.user_bytes
    }

    pub fn clear(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        *self = RawBatch { bytes, ..RawBatch::default() };
    }

    pub fn prepare(self) -> Result<PreparedBatch> {
        self.prepare_placing(usize::MAX, |_, _| Ok(None))
    }

    /// [`RawBatch::prepare`] where `place` may store a value of at least `len_min` bytes elsewhere
    /// and return a blob reference.
    pub fn prepare_placing(
        mut self,
        len_min: usize,
        place: impl FnMut(&[u8], &[u8]) -> Result<Option<Vec<u8>>>,
    ) -> Result<PreparedBatch> {
        if let Some(reason) = self.error {
            return Err(Error::InvalidArgument(reason));
        }
        if self.has_operands && self.is_disordered {
            self = self.with_operands_piled();
            if let Some(reason) = self.error {
                return Err(Error::InvalidArgument(reason));
            }
        }
        if (self.is_disordered && self.operations > 1) || self.value_len_max >= len_min {
            (self.bytes, self.operations) = self.rewritten(len_min, place)?;
        }
        let head = 2 * self.operations as u64;
        let start = HEAD_ROOM - varint_len(head);
        self.bytes.resize(self.bytes.len().max(HEAD_ROOM), 0);
        write_varint(&mut self.bytes[start..], head);
        let user_bytes = self.user_bytes as u64;
        Ok(PreparedBatch { bytes: self.bytes, start, operations: self.operations, user_bytes })
    }

    fn rewritten(
        &self,
        len_min: usize,
        mut place: impl FnMut(&[u8], &[u8]) -> Result<Option<Vec<u8>>>,
    ) -> Result<(Vec<u8>, usize)> {
        let operations = effective(&self.stored());
        let mut bytes = Vec::with_capacity(self.bytes.len());
        bytes.resize(HEAD_ROOM, 0);
        let mut room = Vec::new();
        for Stored { operation: Operation { kind, key, value }, bytes: whole } in &operations {
            let content = Content::of(*kind, value).filter(|content| content.kind == EntryKind::Value);
            let asked = content.filter(|content| content.value.len() >= len_min);
            match asked.map_or(Ok(None), |content| place(key, content.value))? {
                None => bytes.extend_from_slice(whole),
                Some(placed) => {
                    let expires_us = content.and_then(|content| content.expires_us);
                    let placed = Content { kind: EntryKind::BlobRef, value: &placed, expires_us };
                    let (kind, value) = placed.entry(&mut room);
                    bytes.push(kind as u8);
                    put_bytes(&mut bytes, key);
                    put_bytes(&mut bytes, value);
                }
            }
        }
        Ok((bytes, operations.len()))
    }

    fn with_operands_piled(&self) -> RawBatch {
        let mut piled = RawBatch::default();
        let mut last: HashMap<&[u8], (EntryKind, Vec<u8>)> = HashMap::new();
        let mut deleted: Vec<(&[u8], &[u8])> = Vec::new();
        for Stored { operation: Operation { kind, key, value }, .. } in self.stored() {
            if kind == EntryKind::RangeDelete {
                last.retain(|written, _| !(key <= *written && *written < value));
                deleted.push((key, value));
                piled.push(kind, &[key], value);
                continue;
            }
            let mut value = value.to_vec();
            if kind == EntryKind::Merge
                && let Some(operands) = Operands::decode(&value).filter(|operands| operands.base == Base::Beneath)
            {
                value = match last.get(key) {
                    Some((EntryKind::Value, before)) => operands.on(Base::Value(before)),
                    Some((EntryKind::Merge, before)) => match Operands::decode(before) {
                        Some(before) => operands.on_top_of(&before, 0),
                        None => value,
                    },
                    Some((EntryKind::Expiring, _)) => {
                        piled.fail(MERGED_INTO_EXPIRING.to_owned());
                        value
                    }
                    Some((EntryKind::BlobRef | EntryKind::Stream, _)) => {
                        piled.fail("a merge function is used on a stream that is put by the same batch: commit the stream first".to_owned());
                        value
                    }
                    Some(_) => operands.on(Base::Absent),
                    None if deleted.iter().any(|(start, end)| *start <= key && key < *end) => operands.on(Base::Absent),
                    None => value,
                };
            }
            piled.push(kind, &[key], &value);
            last.insert(key, (kind, value));
        }
        RawBatch { user_bytes: self.user_bytes, ..piled }
    }

    fn stored(&self) -> Vec<Stored<'_>> {
        let all = &self.bytes[HEAD_ROOM..];
        let mut reader = ByteReader::new(all);
        let mut stored = Vec::with_capacity(self.operations);
        while !reader.is_at_end() {
            let from = reader.position();
            let operation = Operation::read(&mut reader).expect("as it was pushed");
            stored.push(Stored { operation, bytes: &all[from..reader.position()] });
        }
        stored
    }
}

#[derive(Clone, Copy, Debug)]
struct Stored<'a> {
    operation: Operation<'a>,
    bytes: &'a [u8],
}

fn effective<'a>(stored: &[Stored<'a>]) -> Vec<Stored<'a>> {
    if stored.len() == 1 {
        return stored.to_vec();
    }
    let all = || stored.iter().map(|s| s.operation).enumerate();
    // The index in the batch serves as sequence number.
    let deletes = all().filter(|(_, op)| op.kind == EntryKind::RangeDelete);
    let ranges = RangeTombstoneSet::new(deletes.map(|(at, op)| op.range_tombstone(at as u64)).collect());
    let covered = |order: usize, key: &[u8]| ranges.covering(key).first().is_some_and(|&at| at > order as u64);
    let mut points: Vec<(u128, usize)> = all()
        .filter(|(order, op)| op.kind != EntryKind::RangeDelete && !covered(*order, op.key))
        .map(|(order, op)| (key_head(op.key), order))
        .collect();
    let compare = |a: &(u128, usize), b: &(u128, usize)| {
        a.0.cmp(&b.0).then_with(|| stored[a.1].operation.key.cmp(stored[b.1].operation.key))
    };
    points.sort_unstable_by(|a, b| compare(a, b).then_with(|| b.1.cmp(&a.1)));
    points.dedup_by(|later, first| compare(later, first).is_eq());
    let deletes = stored.iter().filter(|s| s.operation.kind == EntryKind::RangeDelete);
    deletes.copied().chain(points.iter().map(|(_, order)| stored[*order])).collect()
}

#[derive(Clone, Debug, Default)]
pub struct PreparedBatch {
    bytes: Vec<u8>,
    start: usize,
    pub operations: usize,
    pub user_bytes: u64,
}

impl PreparedBatch {
    pub fn of_log(bytes: &[u8]) -> PreparedBatch {
        PreparedBatch { bytes: bytes.to_vec(), start: 0, operations: 1, user_bytes: bytes.len() as u64 }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// Calls `visit` with each operation and the index of its batch. Returns the number of batches;
/// `None` if the bytes are not a group, possibly after some visits.
pub fn decode_group<'a>(payload: &'a [u8], mut visit: impl FnMut(u64, Operation<'a>)) -> Option<u64> {
    let mut reader = ByteReader::new(payload);
    let mut batch = 0;
    while !reader.is_at_end() {
        let head = reader.varint()?;
        if head & 1 != 0 {
            return None;
        }
        for _ in 0..head / 2 {
            visit(batch, Operation::read(&mut reader)?);
        }
        batch += 1;
    }
    Some(batch)
}

pub fn decode_batch<'a>(bytes: &'a [u8], mut visit: impl FnMut(Operation<'a>)) -> Option<usize> {
    let mut reader = ByteReader::new(bytes);
    let head = reader.varint().filter(|head| head & 1 == 0)?;
    for _ in 0..head / 2 {
        visit(Operation::read(&mut reader)?);
    }
    Some(reader.position())
}

pub fn split_group(payload: &[u8]) -> Option<Vec<&[u8]>> {
    let mut reader = ByteReader::new(payload);
    let mut batches = Vec::new();
    while !reader.is_at_end() {
        let from = payload.len() - reader.remaining();
        let head = reader.varint()?;
        if head & 1 != 0 {
            return None;
        }
        for _ in 0..head / 2 {
            Operation::read(&mut reader)?;
        }
        batches.push(payload.get(from..payload.len() - reader.remaining())?);
    }
    Some(batches)
}

impl<'a> Operation<'a> {
    #[inline]
    fn read(reader: &mut ByteReader<'a>) -> Option<Operation<'a>> {
        let kind = EntryKind::from_byte(reader.u8()?)?;
        let key = reader.bytes()?;
        let value = if kind == EntryKind::Tombstone { &[] } else { reader.bytes()? };
        let is_key = |key: &[u8]| (4..=limits::MAX_INTERNAL_KEY_LEN).contains(&key.len());
        if !is_key(key) || (kind == EntryKind::RangeDelete && !is_key(value)) {
            return None;
        }
        Some(Operation { kind, key, value })
    }

    pub fn range_tombstone(&self, sequence: u64) -> RangeTombstone {
        RangeTombstone { start: self.key.to_vec(), end: self.value.to_vec(), sequence }
    }
}
