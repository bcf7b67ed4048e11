//! The bytes of a log segment's header area.
//!
//! A segment begins with a header area of 136 bytes:
//!
//! | bytes | field |
//! |---|---|
//! | 0..64 | the file header; its numbers are the start LSN and the epoch |
//! | 64..72 | the number in the file's name |
//! | 72..80 | the segment's length in bytes; the file is at least that long |
//! | 80..88 | the LSN at which the log before this segment ends |
//! | 88..96 | the link of the previous epoch's last record; 0 unless this segment begins an epoch |
//! | 96..104 | the previous epoch if this segment begins one (0: none), else this epoch |
//! | 104..112 | how far the log was known to be synced |
//! | 112..120 | the last sequence number when this segment was made |
//! | 120..128 | the base of commit times: microseconds since 1970, less than 2^63 |
//! | 128..136 | checksum of bytes 64..128 |
//!
//! Records follow without gaps; see [`super::record`]. Their numbers are relative to the header
//! area, which makes them short and a stored epoch unnecessary.
//!
//! The **link** of the header area is the high half of its checksum. The first record carries it,
//! so a chain can be verified from any segment on. All checksums mix in the file id and the
//! position. A recycled segment has a new file id, so records of its earlier uses never pass.

use crate::{
    base::{Error, FileId, FileNumber, MAX_SEQUENCE, Result, SequenceNumber},
    codec::{ByteReader, FILE_HEADER_LEN, FileHeader, FileKind, checksum},
};
use std::path::{Path, PathBuf};

/// A position in the log: a byte count over all segments with headers. Never decreases.
pub type Lsn = u64;

/// One use of the log, from open to close. Later epochs have larger numbers.
pub type Epoch = u32;

/// Reference to the previous record: the unstored half of its header checksum.
pub type Link = u32;

/// Refused in headers beyond this, so that no sum of two positions overflows.
pub const MAX_LSN: Lsn = 1 << 62;

/// Latest commit time, in microseconds since 1970: the difference of any two fits 64 bits.
pub const MAX_TIME_US: u64 = i64::MAX.cast_unsigned();

/// Optional feature: the file was never recycled, so unwritten bytes are zeros.
pub const ZEROED_SEGMENT: u64 = 1;

pub const SEGMENT_HEADER_LEN: u64 = 136;

const CHECKSUM_AT: usize = SEGMENT_HEADER_LEN as usize - 8;

pub fn segment_path(dir: &Path, number: FileNumber) -> PathBuf {
    dir.join(format!("{number:06}.wal"))
}

pub fn segment_number(name: &str) -> Option<FileNumber> {
    let number: FileNumber = name.strip_suffix(".wal")?.parse().ok()?;
    (format!("{number:06}.wal") == name).then_some(number)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub file_id: FileId,
    pub start_lsn: Lsn,
    pub epoch: Epoch,
    pub number: FileNumber,
    pub len: u64,
    pub previous_end_lsn: Lsn,
    pub previous_link: Link,
    pub previous_epoch: Epoch,
    pub durable_lsn: Lsn,
    /// The last sequence number when this segment was made; later ones may precede it too.
    pub previous_sequence: SequenceNumber,
    pub base_time_us: u64,
    pub is_zeroed: bool,
}

impl SegmentHeader {
    pub fn begins_epoch(&self) -> bool {
        self.previous_epoch != self.epoch
    }

    pub fn limit_lsn(&self) -> Lsn {
        self.start_lsn.saturating_add(self.len)
    }

    /// Returns also the link that the first record must carry.
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

pub fn link_of(sum: u64) -> Link {
    (sum >> 32) as Link
}
