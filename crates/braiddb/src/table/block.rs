//! The data block: a few entries in order, with random access.
//!
//! ```text
//! entries    one after the other:
//!              key length     varint
//!              value length   varint
//!              kind           u8
//!              sequence       varint: zigzag(sequence - base)
//!              key
//!              value
//! slots      for each entry, its offset in the block, u16
//! base       u64: the sequence number of the first entry
//! count      u8: how many entries, 1 to 255
//! ```
//!
//! The base is in the block because the run's smallest sequence number is known only at its end. A
//! read begins at the block's end, which shares a cache line or two with the slot.
//!
//! [`validate`] runs when a block is loaded, or checked to be read in place: then every slot leads
//! to a whole entry, and entries fill the block without gaps. [`entry`] still checks all bounds,
//! since recent writes may be read unchecked (`recent_writes.rs`).

use crate::{
    base::{
        EntryKind, EntryRef, MAX_SEQUENCE, SequenceNumber,
        limits::{MAX_BLOCK_ENTRIES, MAX_INTERNAL_KEY_LEN},
    },
    codec::{put_varint, read_varint, unzigzag, varint_len, zigzag},
};

const END_LEN: usize = 9;

const MAX_ENTRY_HEADER_LEN: usize = 31;

/// So that an offset fits a slot.
pub const MAX_BLOCK_BYTES: usize = 1 << 16;

/// Maximum key plus value length: a block with one entry then has a 32-bit length.
pub(super) const MAX_ENTRY_BYTES: usize = u32::MAX as usize - MAX_ENTRY_HEADER_LEN - END_LEN - 2;

#[derive(Debug, Default)]
pub(super) struct BlockBuilder {
    bytes: Vec<u8>,
    slots: Vec<u16>,
    base: SequenceNumber,
}

impl BlockBuilder {
    pub fn entries(&self) -> usize {
        self.slots.len()
    }

    pub fn len(&self) -> usize {
        self.bytes.len() + 2 * self.slots.len() + END_LEN
    }

    /// An empty block takes any entry.
    pub fn has_room_for(&self, entry: &EntryRef<'_>, block_bytes: usize) -> bool {
        if self.slots.is_empty() {
            return true;
        }
        let len = varint_len(entry.key.len() as u64)
            + varint_len(entry.value.len() as u64)
            + 1
            + varint_len(self.delta(entry.sequence))
            + entry.key.len()
            + entry.value.len();
        self.slots.len() < MAX_BLOCK_ENTRIES && self.len() + len + 2 <= block_bytes
    }

    pub fn add(&mut self, entry: &EntryRef<'_>) {
        if self.slots.is_empty() {
            self.base = entry.sequence;
        }
        assert!(self.slots.len() < MAX_BLOCK_ENTRIES && self.bytes.len() < MAX_BLOCK_BYTES);
        #[expect(clippy::cast_possible_truncation, reason = "asserted")]
        self.slots.push(self.bytes.len() as u16);
        put_varint(&mut self.bytes, entry.key.len() as u64);
        put_varint(&mut self.bytes, entry.value.len() as u64);
        self.bytes.push(entry.kind as u8);
        let delta = self.delta(entry.sequence);
        put_varint(&mut self.bytes, delta);
        self.bytes.extend_from_slice(entry.key);
        self.bytes.extend_from_slice(entry.value);
    }

    pub fn finish(&mut self) -> &[u8] {
        for slot in &self.slots {
            self.bytes.extend_from_slice(&slot.to_le_bytes());
        }
        self.bytes.extend_from_slice(&self.base.to_le_bytes());
        self.bytes.push(u8::try_from(self.slots.len()).expect("asserted by add"));
        &self.bytes
    }

    /// Keeps the memory, unless a large entry made it grow.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.bytes.clear();
        self.bytes.shrink_to(2 * MAX_BLOCK_BYTES);
    }

    fn delta(&self, sequence: SequenceNumber) -> u64 {
        // Sequence numbers are below 2^62, so their difference has 63 bits.
        zigzag(sequence.wrapping_sub(self.base).cast_signed())
    }
}

/// Estimate; exact for entries of equal length.
#[inline(always)]
pub(super) fn average_entry_bytes(len: usize, entries: u8) -> usize {
    let body = len.saturating_sub(END_LEN + 2 * usize::from(entries));
    // A wrong guess for a block above 2^16 bytes is harmless.
    ((body as u64).wrapping_mul(RECIPROCALS[usize::from(entries)]) >> 32) as usize
}

static RECIPROCALS: [u64; 256] = {
    let mut reciprocals = [0; 256];
    let mut number = 1;
    while number < 256 {
        reciprocals[number] = (1u64 << 32).div_ceil(number as u64);
        number += 1;
    }
    reciprocals
};

/// Distance of a slot before the block's end; for slot 0, all bytes after the entries.
#[inline(always)]
pub(super) fn slot_before_end(entries: u8, slot: u16) -> usize {
    END_LEN + 2 * usize::from(u16::from(entries).saturating_sub(slot))
}

/// 0 if the block is too short.
#[inline]
pub(super) fn entry_count(block: &[u8]) -> u16 {
    block.last().copied().map_or(0, u16::from)
}

#[derive(Clone, Copy, Debug)]
struct Parts<'a> {
    body: &'a [u8],
    base: SequenceNumber,
    count: usize,
}

#[inline(always)]
fn parts(block: &[u8]) -> Option<Parts<'_>> {
    let (body, end) = block.split_last_chunk::<END_LEN>()?;
    let (base, count) = end.split_first_chunk::<8>()?;
    Some(Parts { body, base: u64::from_le_bytes(*base), count: usize::from(*count.first()?) })
}

impl<'a> Parts<'a> {
    #[inline(always)]
    fn slot(&self, slot: usize) -> Option<usize> {
        let at = self.body.len().checked_sub(2 * self.count.checked_sub(slot)?)?;
        let offset = self.body.get(at..)?.first_chunk::<2>()?;
        Some(usize::from(u16::from_le_bytes(*offset)))
    }

    #[inline(always)]
    fn entry_at(&self, offset: usize) -> Option<(EntryRef<'a>, usize)> {
        let bytes = self.body.get(offset..)?;
        let Header { key_len, value_len, kind, delta, len: at } = match header(bytes) {
            Some(header) => header,
            None => long_header(bytes)?,
        };
        let kind = EntryKind::from_byte(kind)?;
        let rest = bytes.get(at..)?;
        let (key, rest) = rest.split_at_checked(key_len)?;
        let value = rest.get(..value_len)?;
        let sequence = self.base.wrapping_add_signed(unzigzag(delta));
        Some((EntryRef { key, sequence, kind, value }, offset + at + key.len() + value.len()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    key_len: usize,
    value_len: usize,
    kind: u8,
    delta: u64,
    len: usize,
}

/// Fast path for a common header: within eight bytes, with a key length of one byte, a value length
/// of at most two, and a sequence of at most four. No branch depends on the lengths.
#[inline(always)]
fn header(bytes: &[u8]) -> Option<Header> {
    let word = u64::from_le_bytes(*bytes.first_chunk::<8>()?);
    let Shape { header_len, value_bytes, value_mask } = Shape::of(word)?;
    let len = usize::from(header_len);
    let kind_at = 8 + 8 * u32::from(value_bytes);
    Some(Header {
        key_len: (word & 0x7f) as usize,
        value_len: (word >> 8 & 0x7f | word >> 9 & u64::from(value_mask)) as usize,
        kind: (word >> kind_at) as u8,
        delta: join_sevens(word << (64 - 8 * len) >> (64 - 8 * len) >> (kind_at + 8)),
        len,
    })
}

#[inline(always)]
fn join_sevens(bytes: u64) -> u64 {
    bytes & 0x7f | (bytes & 0x7f00) >> 1 | (bytes & 0x7f_0000) >> 2 | (bytes & 0x7f00_0000) >> 3
}

#[cold]
fn long_header(bytes: &[u8]) -> Option<Header> {
    let (key_len, mut at) = read_varint(bytes)?;
    let (value_len, len) = read_varint(bytes.get(at..)?)?;
    at += len;
    let kind = *bytes.get(at)?;
    at += 1;
    let (delta, len) = read_varint(bytes.get(at..)?)?;
    let (key_len, value_len) = (usize::try_from(key_len).ok()?, usize::try_from(value_len).ok()?);
    Some(Header { key_len, value_len, kind, delta, len: at + len })
}

/// `None` without that slot, or if the block is damaged.
#[inline(always)]
pub(super) fn entry(block: &[u8], slot: u16) -> Option<EntryRef<'_>> {
    let parts = parts(block)?;
    let slot = usize::from(slot);
    if slot >= parts.count {
        return None;
    }
    parts.entry_at(parts.slot(slot)?).map(|(entry, _)| entry)
}

/// `None` if the block is damaged or no entry begins there. A plain value's sequence number is 0
/// unless `with_sequence`: it would need the block's end.
#[inline(always)]
pub(super) fn entry_at(block: &[u8], offset: usize, with_sequence: bool) -> Option<EntryRef<'_>> {
    let (body, end) = block.split_last_chunk::<END_LEN>()?;
    let bytes = body.get(offset..)?;
    let Header { key_len, value_len, kind, delta, len: at } = match header(bytes) {
        Some(header) => header,
        None => long_header(bytes)?,
    };
    let kind = EntryKind::from_byte(kind)?;
    let (key, rest) = bytes.get(at..)?.split_at_checked(key_len)?;
    let value = rest.get(..value_len)?;
    let sequence = match kind {
        EntryKind::Value if !with_sequence => 0,
        _ => u64::from_le_bytes(*end.first_chunk()?).wrapping_add_signed(unzigzag(delta)),
    };
    Some(EntryRef { key, sequence, kind, value })
}

/// Reads a plain value with a common header and a key of `key_len` bytes. Minimal instructions,
/// since all of them delay the next get.
#[inline(always)]
pub(super) fn plain_at(block: &[u8], offset: usize, key_len: usize) -> Option<(&[u8], &[u8])> {
    let bytes = block.get(offset..block.len().checked_sub(END_LEN)?)?;
    let word = u64::from_le_bytes(*bytes.first_chunk::<8>()?);
    // A value length of two bytes shifts all later fields by one. Otherwise byte 2 is the kind,
    // bytes 3 to 6 at most the sequence.
    let is_long = word >> 15 & 1;
    let after = word >> (8 * is_long);
    // Key length, last byte of the value length, and kind.
    let found = word & 0xff | after & 0x00ff_8000;
    if found != u64::from(EntryKind::Value as u8) << 16 | key_len as u64 || key_len > 0x7f {
        return None;
    }
    let sequence_ends = !after & 0x0080_8080_8000_0000;
    if sequence_ends == 0 {
        return None;
    }
    let header_len = (u64::from(sequence_ends.trailing_zeros() / 8 + 1) + is_long) as usize;
    let value_len = (word >> 8 & 0x7f | after >> 1 & 0x3f80 & is_long.wrapping_neg()) as usize;
    let both = bytes.get(header_len..header_len + key_len + value_len)?;
    both.split_at_checked(key_len)
}

#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    block: &'a [u8],
    slots_at: usize,
}

impl<'a> Rows<'a> {
    pub(super) fn new(block: &'a [u8]) -> Option<Rows<'a>> {
        let slots_at = block.len().checked_sub(END_LEN + 2 * usize::from(entry_count(block)))?;
        Some(Rows { block, slots_at })
    }

    #[inline(always)]
    pub fn offsets(&self, from: u16) -> impl Iterator<Item = usize> + use<'a> {
        let slots =
            self.block.get(self.slots_at..self.block.len() - END_LEN).and_then(|s| s.get(2 * usize::from(from)..));
        let (slots, _) = slots.unwrap_or_default().as_chunks::<2>();
        slots.iter().map(|&slot| usize::from(u16::from_le_bytes(slot)))
    }

    /// Returns key and value, adjacent, and the key's length; `None` if the block is damaged.
    #[inline(always)]
    pub fn get(&self, offset: usize) -> Option<(&'a [u8], usize)> {
        if let Some(Lengths { key_len, value_len, header_len }) = self.block.get(offset..offset + 8).and_then(lengths) {
            let from = offset + header_len;
            return Some((self.block.get(from..from + key_len + value_len)?, key_len));
        }
        self.get_long(offset)
    }

    #[inline(always)]
    pub fn get_with_sequence(&self, offset: usize) -> Option<(&'a [u8], usize, SequenceNumber)> {
        let Header { key_len, value_len, delta, len, .. } = match self.block.get(offset..).and_then(header) {
            Some(header) => header,
            None => long_header(self.block.get(offset..)?)?,
        };
        let from = offset + len;
        let bytes = self.block.get(from..from.checked_add(key_len)?.checked_add(value_len)?)?;
        Some((bytes, key_len, self.base()?.wrapping_add_signed(unzigzag(delta))))
    }

    #[inline(always)]
    fn base(&self) -> Option<SequenceNumber> {
        let at = self.block.len().checked_sub(END_LEN)?;
        Some(u64::from_le_bytes(*self.block.get(at..)?.first_chunk()?))
    }

    #[cold]
    fn get_long(&self, offset: usize) -> Option<(&'a [u8], usize)> {
        let bytes = self.block.get(offset..)?;
        let Header { key_len, value_len, len, .. } = long_header(bytes)?;
        Some((bytes.get(len..)?.get(..key_len.checked_add(value_len)?)?, key_len))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lengths {
    key_len: usize,
    value_len: usize,
    header_len: usize,
}

/// Layout of a common header.
#[derive(Clone, Copy)]
struct Shape {
    /// 0 for other headers.
    header_len: u8,
    /// Bytes of the value's length; the mask has its bits from the second byte.
    value_bytes: u8,
    value_mask: u16,
}

/// Shapes by the top bits of a header's first eight bytes: set where a varint continues.
static SHAPES: [Shape; 256] = shapes();

const fn shapes() -> [Shape; 256] {
    let mut shapes = [Shape { header_len: 0, value_bytes: 1, value_mask: 0 }; 256];
    let mut tops = 0;
    while tops < 256 {
        // Byte 0 is the key's length, then one or two bytes of value length, one of kind, at most
        // four of sequence.
        let value_bytes = 1 + (tops >> 1 & 1);
        let kind = 1 + value_bytes;
        let mut end = kind + 1;
        while end < 8 && tops >> end & 1 == 1 {
            end += 1;
        }
        let is_usual = tops & 1 == 0 && tops >> (kind - 1) & 0b11 == 0 && end < 8 && end - kind <= 4;
        if is_usual {
            shapes[tops].header_len = end as u8 + 1;
            shapes[tops].value_bytes = value_bytes as u8;
            shapes[tops].value_mask = if value_bytes == 2 { 0x3f80 } else { 0 };
        }
        tops += 1;
    }
    shapes
}

impl Shape {
    #[inline(always)]
    fn of(word: u64) -> Option<Shape> {
        // Gather the top bits in the highest byte.
        let tops = (word >> 7 & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        let shape = SHAPES[tops as usize];
        (shape.header_len != 0).then_some(shape)
    }
}

#[inline(always)]
fn lengths(bytes: &[u8]) -> Option<Lengths> {
    let word = u64::from_le_bytes(*bytes.first_chunk::<8>()?);
    let shape = Shape::of(word)?;
    Some(Lengths {
        key_len: (word & 0x7f) as usize,
        value_len: (word >> 8 & 0x7f | word >> 9 & u64::from(shape.value_mask)) as usize,
        header_len: usize::from(shape.header_len),
    })
}

pub(super) fn validate(block: &[u8], entries: u16) -> bool {
    let walk = || {
        let parts = parts(block)?;
        let slots_at = parts.body.len().checked_sub(2 * parts.count)?;
        let mut at = 0;
        for slot in 0..parts.count {
            if parts.slot(slot)? != at {
                return None;
            }
            let (entry, end) = parts.entry_at(at)?;
            if end > slots_at || entry.key.len() > MAX_INTERNAL_KEY_LEN || entry.sequence > MAX_SEQUENCE {
                return None;
            }
            at = end;
        }
        (at == slots_at && parts.count > 0 && parts.count == usize::from(entries)).then_some(())
    };
    walk().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_at_of_other_kinds_returns_none() {
        let kinds = [EntryKind::Value, EntryKind::Tombstone, EntryKind::BlobRef, EntryKind::Merge, EntryKind::Stream];
        let lens = [0, 1, 20, 63, 127, 128, 129, 200, 300, 16_383, 16_384, 20_000];
        let deltas = [0, 1, 64, 1 << 10, 1 << 20, 1 << 26, 1 << 27, 1 << 28, 1 << 34, 1 << 41, 1 << 60];
        let bytes: Vec<u8> = (0..20_000_u32).map(|i| (i * 7 % 251) as u8).collect();
        let (mut reported, mut others) = (0, 0);
        for number in 0..lens.len() * lens.len() * deltas.len() * kinds.len() {
            let (key_len, rest) = (lens[number % lens.len()], number / lens.len());
            let (value_len, rest) = (lens[rest % lens.len()], rest / lens.len());
            let (delta, kind) = (deltas[rest % deltas.len()], kinds[rest / deltas.len()]);
            let (key, value) = (&bytes[..key_len], &bytes[bytes.len() - value_len..]);
            let mut builder = BlockBuilder::default();
            builder.add(&EntryRef { key: b"a", sequence: 1 << 61, kind: EntryKind::Value, value: b"" });
            let offset = builder.bytes.len();
            builder.add(&EntryRef { key, sequence: (1 << 61) - delta, kind, value });
            let is_usual = key_len < 128 && value_len < 1 << 14 && builder.delta((1 << 61) - delta) < 1 << 28;
            let block = builder.finish();
            let found = plain_at(block, offset, key_len);
            let is_plain = is_usual && kind == EntryKind::Value;
            assert_eq!(found, is_plain.then_some((key, value)), "{key_len} {value_len} {delta}");
            let other_lens = [0, 1, 16, 20, 100, 127, 128, 148, 255, 256, 276];
            for other in other_lens.into_iter().filter(|&len| len != key_len) {
                assert_eq!(plain_at(block, offset, other), None, "{key_len} is not {other}");
            }
            reported += u32::from(found.is_some());
            others += u32::from(found.is_none());
        }
        assert!(reported > 200 && others > 200, "{reported} {others}");
    }

    #[test]
    fn plain_at_of_random_bytes_agrees_with_entry_at() {
        let mut state = 7_u64;
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state ^ state >> 31
        };
        let mut reported = 0;
        for _ in 0..200_000 {
            let (offset, key_len) = ((next() % 3) as usize, (next() % 24) as usize);
            let mut block: Vec<u8> = (0..next() % 60).map(|_| (next() >> 24) as u8).collect();
            let usual = [key_len as u8, (next() % 20) as u8, (next() % 3) as u8];
            for (byte, usual) in block.iter_mut().skip(offset).zip(usual) {
                *byte = if next() % 8 == 0 { *byte } else { usual };
            }
            let known = block
                .len()
                .checked_sub(END_LEN)
                .and_then(|len| Parts { body: &block[..len], base: 0, count: 1 }.entry_at(offset));
            let known = known
                .map(|(entry, _)| entry)
                .filter(|entry| entry.kind == EntryKind::Value && entry.key.len() == key_len);
            let found = plain_at(&block, offset, key_len);
            match (found, known) {
                (Some(found), known) => {
                    assert_eq!(known.map(|entry| (entry.key, entry.value)), Some(found), "{block:?}");
                    reported += 1;
                }
                (None, Some(_)) => assert!(lengths(&block[offset..block.len() - END_LEN]).is_none(), "{block:?}"),
                (None, None) => {}
            }
        }
        assert!(reported > 50, "{reported}");
    }

    #[test]
    fn header_equals_long_header() {
        let numbers = [0, 1, 127, 128, 129, 16_383, 16_384, (1 << 21) - 1, 1 << 21, (1 << 28) - 1, 1 << 28, 1 << 40];
        let (mut short, mut by_table) = (0, 0);
        for (key_len, value_len, delta) in
            numbers.iter().flat_map(|&a| numbers.iter().flat_map(move |&b| numbers.map(|c| (a, b, c))))
        {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, key_len);
            put_varint(&mut bytes, value_len);
            bytes.push(EntryKind::BlobRef as u8);
            put_varint(&mut bytes, delta);
            for after in [0u8, 0x7f, 0xff] {
                let bytes = [&bytes[..], &[after; 8]].concat();
                let long = long_header(&bytes).unwrap();
                assert_eq!((long.key_len as u64, long.value_len as u64, long.delta), (key_len, value_len, delta));
                if let Some(header) = header(&bytes) {
                    assert_eq!(header, long);
                    short += 1;
                }
                let of_long = Lengths { key_len: long.key_len, value_len: long.value_len, header_len: long.len };
                if let Some(lengths) = lengths(&bytes) {
                    assert_eq!(lengths, of_long);
                    by_table += 1;
                }
                assert_eq!(
                    plain_at(&[&bytes[..], &[0; END_LEN]].concat(), 0, long.key_len),
                    None,
                    "it is no plain value"
                );
            }
        }
        assert!(short > 100 && by_table > 100, "{short} {by_table}");
        assert_eq!(lengths(&[1, 2, 3, 0x80, 0x80, 0x80, 0x80, 0x80]), None);
        // A continued kind byte is invalid.
        assert_eq!(header(&[1, 2, 0x81, 1, 0, 0, 0, 0]).map(|h| EntryKind::from_byte(h.kind)), None);
        assert_eq!(header(&[0xff; 8]), None);
    }
}
