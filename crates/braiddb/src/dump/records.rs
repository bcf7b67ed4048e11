//! The payload of a records frame: records of one tree.
//!
//! | field | |
//! |---|---|
//! | flags | u8: 0x01 long value, 0x02 operands, 0x04 expires, 0x08 base of the previous operands |
//! | shared | varint: length of the prefix shared with the previous key in the frame, or 0 |
//! | key | bytes: the remaining key |
//! | sequence number | varint: zigzag of the difference from the previous record in the frame, or 0 |
//! | expires | varint, only with 0x04: microseconds since 1970 |
//! | value | bytes; of a long value only the length (varint); the bytes follow in piece frames |

use super::format::PAYLOAD_LEN;
use crate::{
    base::Result,
    codec::{ByteReader, put_bytes, put_varint, unzigzag, zigzag},
    db::{DumpedContent, DumpedEntry, EntrySink},
};

const LONG: u8 = 1;
const OPERANDS: u8 = 2;
const EXPIRES: u8 = 4;
const BENEATH: u8 = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub records: u64,
    pub bytes: u64,
}

impl Amount {
    pub fn add(&mut self, other: Amount) {
        self.records += other.records;
        self.bytes += other.bytes;
    }

    fn count(&mut self, entry: &DumpedEntry<'_>) {
        let value = match entry.content {
            DumpedContent::Value(bytes) | DumpedContent::Operands(bytes) => bytes.len() as u64,
            DumpedContent::LongValue(len) | DumpedContent::LongOperands(len) => len,
        };
        self.records += 1;
        self.bytes += entry.key.len() as u64 + value;
    }
}

#[derive(Debug, Default)]
pub struct RecordsBuilder {
    payload: Vec<u8>,
    last_key: Vec<u8>,
    last_sequence: u64,
    amount: Amount,
}

impl RecordsBuilder {
    pub fn add(&mut self, entry: &DumpedEntry<'_>) {
        let (content, is_long, is_operands) = match entry.content {
            DumpedContent::Value(value) => (Ok(value), 0, 0),
            DumpedContent::LongValue(len) => (Err(len), LONG, 0),
            DumpedContent::Operands(operands) => (Ok(operands), 0, OPERANDS),
            DumpedContent::LongOperands(len) => (Err(len), LONG, OPERANDS),
        };
        let expires = if entry.expires_us.is_some() { EXPIRES } else { 0 };
        let beneath = if entry.is_beneath { BENEATH } else { 0 };
        if self.payload.is_empty() {
            self.payload.reserve(PAYLOAD_LEN + PAYLOAD_LEN / 16);
        }
        let out = &mut self.payload;
        out.push(is_long | is_operands | expires | beneath);
        let shared = self.last_key.iter().zip(entry.key).take_while(|(a, b)| a == b).count();
        put_varint(out, shared as u64);
        put_bytes(out, &entry.key[shared..]);
        put_varint(out, zigzag(entry.sequence.cast_signed().wrapping_sub(self.last_sequence.cast_signed())));
        entry.expires_us.iter().for_each(|us| put_varint(out, *us));
        match content {
            Ok(bytes) => put_bytes(out, bytes),
            Err(len) => put_varint(out, len),
        }
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&entry.key[shared..]);
        self.last_sequence = entry.sequence;
        self.amount.count(entry);
    }

    pub fn is_full(&self) -> bool {
        self.payload.len() >= PAYLOAD_LEN
    }

    pub fn take(&mut self) -> Option<(Vec<u8>, Amount)> {
        let taken = std::mem::take(self);
        (taken.amount.records > 0).then_some((taken.payload, taken.amount))
    }
}

pub fn begins_beneath(payload: &[u8]) -> bool {
    payload.first().is_some_and(|flags| flags & BENEATH != 0)
}

/// Until the sink fails; `None` for invalid bytes.
pub fn read_records(payload: &[u8], sink: &mut dyn EntrySink) -> Option<Result<Amount>> {
    let mut reader = ByteReader::new(payload);
    let (mut key, mut sequence, mut amount) = (Vec::new(), 0_u64, Amount::default());
    while !reader.is_at_end() {
        let flags = reader.u8().filter(|flags| flags & !(LONG | OPERANDS | EXPIRES | BENEATH) == 0)?;
        let shared = usize::try_from(reader.varint()?).ok().filter(|shared| *shared <= key.len())?;
        key.truncate(shared);
        key.extend_from_slice(reader.bytes()?);
        sequence = sequence.cast_signed().wrapping_add(unzigzag(reader.varint()?)).cast_unsigned();
        let expires_us = if flags & EXPIRES != 0 { Some(reader.varint()?) } else { None };
        let content = match flags & (LONG | OPERANDS) {
            0 => DumpedContent::Value(reader.bytes()?),
            LONG => DumpedContent::LongValue(reader.varint()?),
            OPERANDS => DumpedContent::Operands(reader.bytes()?),
            _ => DumpedContent::LongOperands(reader.varint()?),
        };
        // The pieces come next: the record is the last of its frame.
        if flags & LONG != 0 && !reader.is_at_end() {
            return None;
        }
        let entry = DumpedEntry { key: &key, sequence, expires_us, is_beneath: flags & BENEATH != 0, content };
        amount.count(&entry);
        if let Err(e) = sink.entry(&entry) {
            return Some(Err(e));
        }
    }
    (amount.records > 0).then_some(Ok(amount))
}
