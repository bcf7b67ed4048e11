//! The bytes of a log record.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | magic 0xf9 |
//! | 1 | magic 0xb0, plus one flag at most: 1 = payload is LZ4, 2 = seal, 4 = note |
//! | 2 | length of this header, varints included |
//! | 3..7 | low half of the checksum of the header with these four bytes zero |
//! | 7..11 | link of the previous record |
//! | 11..19 | checksum of the stored payload; 0 if empty |
//! | 19.. | varints in their shortest form, up to the header's length |
//! | then | the stored payload; the next record follows without a gap |
//!
//! The varints, in order:
//!
//! | varint | |
//! |---|---|
//! | stored length of the payload | |
//! | decompressed length | only with LZ4 |
//! | first sequence number | minus the segment's `previous_sequence` |
//! | last sequence number | minus the first |
//! | `durable_lsn`: how far the log was known to be synced | the record's LSN minus it |
//! | commit time in microseconds | zigzag of it minus the segment's base time |
//!
//! The **link** of a record is the high half of its header's checksum; it covers the payload
//! through the payload's checksum. The first record of a segment carries the link of the header
//! area. A **seal** is the last record of a segment with a successor; its payload is number and
//! file id of the next segment. A **note** records how far the log is synced. Its payload is empty,
//! or zeros that fill the space before a seal, or the byte 1, which marks a clean close. Seals and
//! notes carry the last sequence number before them and the base time.
//!
//! Both checksums mix in the record's LSN in place of an offset. It differs between the uses of a
//! recycled file, so a stale record is recognised without a stored epoch.
//!
//! A header has exactly one encoding. The first magic byte occurs neither in UTF-8 nor in zeros, so
//! a search for records skips both quickly.

use super::format::{Link, Lsn, MAX_TIME_US, SegmentHeader, link_of};
use crate::{
    base::{FileId, FileNumber, MAX_SEQUENCE, SequenceNumber},
    codec::{ByteReader, checksum, put_varint, unzigzag, zigzag},
};

const FIXED_LEN: usize = 19;

/// Five varints of one byte.
pub const RECORD_HEADER_LEN_MIN: usize = FIXED_LEN + 5;

/// Three varints of 32 bits and three of 64.
pub const RECORD_HEADER_LEN_MAX: usize = FIXED_LEN + 3 * 5 + 3 * 10;

/// Every segment reserves this for a seal.
pub const SEAL_LEN_MAX: u64 = (RECORD_HEADER_LEN_MAX + SEAL_PAYLOAD_LEN) as u64;

/// Payload of the note that marks a clean close. Older builds ignore a note's payload.
pub const CLEAN_CLOSE: [u8; 1] = [1];

const SEAL_PAYLOAD_LEN: usize = 16;

const MAGIC: [u8; 2] = [0xf9, 0xb0];

const CHECKSUM_AT: usize = 3;

/// Bytes per compressed byte: one length byte of LZ4 stands for at most 255 bytes.
const LZ4_MAX_RATIO: u64 = 256;

const _: () = assert!(RECORD_HEADER_LEN_MAX <= u8::MAX as usize);
const _: () = assert!(MAGIC[1] & RecordFlags::MASK == 0);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordFlags(u8);

impl RecordFlags {
    pub const LZ4: RecordFlags = RecordFlags(1);
    pub const SEAL: RecordFlags = RecordFlags(2);
    pub const NOTE: RecordFlags = RecordFlags(4);

    const MASK: u8 = 7;

    pub fn contains(self, other: RecordFlags) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn is_group(self) -> bool {
        self.0 & (RecordFlags::SEAL.0 | RecordFlags::NOTE.0) == 0
    }

    fn of_magic(bytes: &[u8]) -> Option<RecordFlags> {
        match bytes {
            [first, second, ..] if *first == MAGIC[0] && second & !RecordFlags::MASK == MAGIC[1] => {
                Some(RecordFlags(second & RecordFlags::MASK)).filter(|flags| flags.0.count_ones() <= 1)
            }
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    pub flags: RecordFlags,
    pub stored_len: u32,
    pub raw_len: u32,
    pub first_sequence: SequenceNumber,
    pub last_sequence: SequenceNumber,
    /// Microseconds since 1970; in a seal or a note the segment's base time.
    pub commit_time_us: u64,
    pub previous_link: Link,
    pub durable_lsn: Lsn,
    pub payload_checksum: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub header: RecordHeader,
    pub header_len: usize,
    pub link: Link,
}

impl Record {
    pub fn file_len(&self) -> u64 {
        self.header_len as u64 + u64::from(self.header.stored_len)
    }
}

impl RecordHeader {
    pub fn encode(&self, segment: &SegmentHeader, offset: u64, out: &mut Vec<u8>) -> Record {
        let lsn = segment.start_lsn + offset;
        assert!(segment.previous_sequence <= self.first_sequence && self.first_sequence <= self.last_sequence);
        assert!(self.durable_lsn <= lsn && self.commit_time_us.max(segment.base_time_us) <= MAX_TIME_US);
        let from = out.len();
        out.extend_from_slice(&[0; FIXED_LEN]);
        put_varint(out, u64::from(self.stored_len));
        if self.flags.contains(RecordFlags::LZ4) {
            put_varint(out, u64::from(self.raw_len));
        }
        put_varint(out, self.first_sequence - segment.previous_sequence);
        put_varint(out, self.last_sequence - self.first_sequence);
        put_varint(out, lsn - self.durable_lsn);
        put_varint(out, zigzag(self.commit_time_us.cast_signed() - segment.base_time_us.cast_signed()));
        let bytes = &mut out[from..];
        bytes[..2].copy_from_slice(&[MAGIC[0], MAGIC[1] | self.flags.0]);
        bytes[2] = bytes.len() as u8;
        bytes[7..11].copy_from_slice(&self.previous_link.to_le_bytes());
        bytes[11..FIXED_LEN].copy_from_slice(&self.payload_checksum.to_le_bytes());
        let sum = checksum(segment.file_id, lsn, bytes);
        bytes[CHECKSUM_AT..7].copy_from_slice(&low_half(sum).to_le_bytes());
        Record { header: *self, header_len: bytes.len(), link: link_of(sum) }
    }

    /// Decodes a header; `None` if the record is not of the file's current use.
    pub fn decode(bytes: &[u8], segment: &SegmentHeader, offset: u64) -> Option<Record> {
        let flags = RecordFlags::of_magic(bytes)?;
        let header_len = usize::from(*bytes.get(2)?);
        if !(RECORD_HEADER_LEN_MIN..=RECORD_HEADER_LEN_MAX).contains(&header_len) {
            return None;
        }
        let bytes = bytes.get(..header_len)?;
        let mut reader = ByteReader::new(bytes.get(CHECKSUM_AT..)?);
        let lsn = segment.start_lsn.checked_add(offset)?;
        let sum = header_checksum(bytes, segment.file_id, lsn);
        if reader.u32()? != low_half(sum) {
            return None;
        }
        let (previous_link, payload_checksum) = (reader.u32()?, reader.u64()?);
        let stored_len = u32::try_from(reader.canonical_varint()?).ok()?;
        let raw_len =
            if flags.contains(RecordFlags::LZ4) { u32::try_from(reader.canonical_varint()?).ok()? } else { stored_len };
        let first_sequence = segment.previous_sequence.checked_add(reader.canonical_varint()?)?;
        let span = u32::try_from(reader.canonical_varint()?).ok()?;
        let header = RecordHeader {
            flags,
            stored_len,
            raw_len,
            first_sequence,
            last_sequence: first_sequence.checked_add(u64::from(span))?,
            durable_lsn: lsn.checked_sub(reader.canonical_varint()?)?,
            commit_time_us: segment.base_time_us.checked_add_signed(unzigzag(reader.canonical_varint()?))?,
            previous_link,
            payload_checksum,
        };
        (reader.is_at_end() && header.is_sane()).then_some(Record { header, header_len, link: link_of(sum) })
    }

    fn is_sane(&self) -> bool {
        u64::from(self.raw_len) <= u64::from(self.stored_len) * LZ4_MAX_RATIO
            && (self.stored_len > 0 || self.payload_checksum == 0)
            && self.last_sequence <= MAX_SEQUENCE
            && self.commit_time_us <= MAX_TIME_US
    }
}

pub fn begins_like_record(bytes: &[u8]) -> bool {
    RecordFlags::of_magic(bytes).is_some()
}

pub fn with_each_magic(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    [0, RecordFlags::LZ4.0, RecordFlags::SEAL.0, RecordFlags::NOTE.0].into_iter().map(|flags| {
        let mut bytes = bytes.to_vec();
        bytes.iter_mut().zip([MAGIC[0], MAGIC[1] | flags]).for_each(|(byte, magic)| *byte = magic);
        bytes
    })
}

/// Returns the first offset of a magic, or of a first part of one at the end.
pub fn find_magic(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += position_of(bytes.get(at..)?, MAGIC[0])?;
        let rest = bytes.get(at..)?;
        if rest.len() < MAGIC.len() || begins_like_record(rest) {
            return Some(at);
        }
        at += 1;
    }
}

fn position_of(bytes: &[u8], byte: u8) -> Option<usize> {
    // Without an early exit, the check of a chunk compiles to a few vector instructions.
    let has_it = |chunk: &[u8; 64]| chunk.iter().fold(false, |found, b| found | (*b == byte));
    let (chunks, _) = bytes.as_chunks();
    let from = 64 * chunks.iter().position(has_it).unwrap_or(chunks.len());
    Some(from + bytes.get(from..)?.iter().position(|b| *b == byte)?)
}

pub fn payload_checksum(segment: &SegmentHeader, offset: u64, stored: &[u8]) -> u64 {
    if stored.is_empty() { 0 } else { checksum(segment.file_id, segment.start_lsn + offset, stored) }
}

pub fn encode_seal(next: FileNumber, next_file_id: FileId) -> [u8; SEAL_PAYLOAD_LEN] {
    let mut out = [0; SEAL_PAYLOAD_LEN];
    out[..8].copy_from_slice(&next.to_le_bytes());
    out[8..].copy_from_slice(&next_file_id.to_le_bytes());
    out
}

pub fn decode_seal(payload: &[u8]) -> Option<(FileNumber, FileId)> {
    let mut reader = ByteReader::new(payload);
    let seal = (reader.u64()?, reader.u64()?);
    reader.is_at_end().then_some(seal)
}

fn header_checksum(bytes: &[u8], file_id: FileId, lsn: Lsn) -> u64 {
    let mut bare = [0; RECORD_HEADER_LEN_MAX];
    let bare = &mut bare[..bytes.len()];
    bare.copy_from_slice(bytes);
    bare[CHECKSUM_AT..7].fill(0);
    checksum(file_id, lsn, bare)
}

fn low_half(sum: u64) -> u32 {
    (sum & u64::from(u32::MAX)) as u32
}
