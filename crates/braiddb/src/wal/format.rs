//! The bytes of a log segment's header area.
//!
//! A segment begins with a header area of 136 bytes:
//!
//! | bytes | field |
//! |---|---|
//! | 0..64 | the file header; its numbers are the start LSN and the epoch |
//! | 64..72 | the number in the file's name |
//! | 72..80 | the segment's length in bytes; the file is at least that long from before its first use |
//! | 80..88 | the LSN at which the log before this segment ends |
//! | 88..96 | the link of the last record of the epoch before; 0 unless this segment begins an epoch |
//! | 96..104 | the epoch before if this segment begins one (0: there was none), else this epoch |
//! | 104..112 | how far the log was known to be synced |
//! | 112..120 | the last sequence number when this segment was made |
//! | 120..128 | the base of commit times: microseconds since 1970, less than 2^63 |
//! | 128..136 | checksum of bytes 64..128 |
//!
//! Records follow without gaps; see [`super::record`]. What a record says of itself, it says relative to the header area:
//! this keeps its numbers short, and the epoch need not stand in it at all.
//!
//! The **link** of the header area is the high half of its checksum; the first record carries it, so that a chain can be
//! verified from any segment on.
//!
//! All checksums mix in the file id and the place. A recycled segment has a new file id, so that none of the records
//! of its former lives passes.

use crate::{
    base::{Error, FileId, FileNumber, MAX_SEQUENCE, Result, SequenceNumber},
    codec::{ByteReader, FILE_HEADER_LEN, FileHeader, FileKind, checksum},
};
use std::path::{Path, PathBuf};

/// A position in the log: a byte count that goes on over segments, their headers included, and never goes back.
pub type Lsn = u64;

/// One life of the log, from one open to the next. Later ones have larger numbers.
pub type Epoch = u32;

/// What a record says of the one before it: the half of that one's header checksum that is not stored.
pub type Link = u32;

/// Headers that tell of later positions are refused, so that no sum of two positions overflows.
pub const MAX_LSN: Lsn = 1 << 62;

/// No commit time is later than this, in microseconds since 1970, so that the difference of any two fits 64 bits.
pub const MAX_TIME_US: u64 = i64::MAX.cast_unsigned();

/// Optional feature of a log segment: its file was never recycled, so where no record was written stand zeros.
pub const ZEROED_SEGMENT: u64 = 1;

/// The length of a segment's header area in bytes.
pub const SEGMENT_HEADER_LEN: u64 = 136;

/// Where the header area's checksum stands.
const CHECKSUM_AT: usize = SEGMENT_HEADER_LEN as usize - 8;

/// The name of a segment's file.
pub fn segment_path(dir: &Path, number: FileNumber) -> PathBuf {
    dir.join(format!("{number:06}.wal"))
}

/// The number in a segment's file name; `None` if it is no such name.
pub fn segment_number(name: &str) -> Option<FileNumber> {
    let number: FileNumber = name.strip_suffix(".wal")?.parse().ok()?;
    (format!("{number:06}.wal") == name).then_some(number)
}

/// What a segment's header area says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The random identity of this life of the file.
    pub file_id: FileId,
    /// The LSN of the segment's first byte.
    pub start_lsn: Lsn,
    /// The epoch of all its records.
    pub epoch: Epoch,
    /// The number in the file's name.
    pub number: FileNumber,
    /// The segment's length in bytes.
    pub len: u64,
    /// Where the log before this segment ends.
    pub previous_end_lsn: Lsn,
    /// The link of the last record of the epoch before; 0 unless this segment begins an epoch.
    pub previous_link: Link,
    /// The epoch before, or this one.
    pub previous_epoch: Epoch,
    /// How far the log was known to be synced.
    pub durable_lsn: Lsn,
    /// The last sequence number when this segment was made: the last before it, or an earlier one.
    pub previous_sequence: SequenceNumber,
    /// What the records' commit times are relative to, in microseconds since 1970.
    pub base_time_us: u64,
    /// Whether the file has no earlier life: bytes that were not written yet are zeros.
    pub is_zeroed: bool,
}

impl SegmentHeader {
    /// Whether an epoch begins here.
    pub fn begins_epoch(&self) -> bool {
        self.previous_epoch != self.epoch
    }

    /// The LSN just past the segment.
    pub fn limit_lsn(&self) -> Lsn {
        self.start_lsn.saturating_add(self.len)
    }

    /// The header area's bytes, and the link that the first record must carry.
    pub fn encode(&self) -> ([u8; SEGMENT_HEADER_LEN as usize], Link) {
        let mut out = [0; SEGMENT_HEADER_LEN as usize];
        let header = FileHeader::new(FileKind::Wal, self.file_id, [self.start_lsn, u64::from(self.epoch)]);
        let header = FileHeader { optional_features: if self.is_zeroed { ZEROED_SEGMENT } else { 0 }, ..header };
        out[..FILE_HEADER_LEN].copy_from_slice(&header.encode());
        let fields = [
            self.number,
            self.len,
            self.previous_end_lsn,
            u64::from(self.previous_link),
            u64::from(self.previous_epoch),
            self.durable_lsn,
            self.previous_sequence,
            self.base_time_us,
        ];
        for (chunk, field) in out[FILE_HEADER_LEN..].chunks_exact_mut(8).zip(fields) {
            chunk.copy_from_slice(&field.to_le_bytes());
        }
        let sum = checksum(self.file_id, FILE_HEADER_LEN as u64, &out[FILE_HEADER_LEN..CHECKSUM_AT]);
        out[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        (out, link_of(sum))
    }

    /// Reads a header area; the second value is the link that the first record must carry.
    pub fn decode(bytes: &[u8], path: &Path) -> Result<(SegmentHeader, Link)> {
        let header = FileHeader::decode(FileKind::Wal, bytes, path, 0)?;
        let bad = |detail: &str| Error::corruption(path, FILE_HEADER_LEN as u64, detail);
        let rest = bytes
            .get(FILE_HEADER_LEN..SEGMENT_HEADER_LEN as usize)
            .ok_or_else(|| bad("the segment header is cut short"))?;
        let mut reader = ByteReader::new(rest);
        let mut next = || reader.u64().unwrap_or_default();
        let (number, len, previous_end_lsn, previous_link) = (next(), next(), next(), next());
        let (previous_epoch, durable_lsn, previous_sequence, base_time_us) = (next(), next(), next(), next());
        let sum = next();
        if checksum(header.file_id, FILE_HEADER_LEN as u64, &rest[..CHECKSUM_AT - FILE_HEADER_LEN]) != sum {
            return Err(bad("the segment header's checksum does not match"));
        }
        let epoch = |value: u64| Epoch::try_from(value).map_err(|_| bad("the epoch is out of range"));
        let decoded = SegmentHeader {
            file_id: header.file_id,
            start_lsn: header.numbers[0],
            epoch: epoch(header.numbers[1])?,
            number,
            len,
            previous_end_lsn,
            previous_link: Link::try_from(previous_link).map_err(|_| bad("the link is out of range"))?,
            previous_epoch: epoch(previous_epoch)?,
            durable_lsn,
            previous_sequence,
            base_time_us,
            is_zeroed: header.optional_features & ZEROED_SEGMENT != 0,
        };
        let sane = decoded.start_lsn < MAX_LSN
            && (SEGMENT_HEADER_LEN..MAX_LSN).contains(&len)
            && previous_end_lsn <= decoded.start_lsn
            && decoded.previous_epoch <= decoded.epoch
            && previous_sequence <= MAX_SEQUENCE
            && base_time_us <= MAX_TIME_US;
        if !sane {
            return Err(bad("the segment header contradicts itself"));
        }
        Ok((decoded, link_of(sum)))
    }
}

/// The link of what has this header checksum.
pub fn link_of(sum: u64) -> Link {
    (sum >> 32) as Link
}
