//! The bytes of a log segment: its header area, and the header of a record.
//!
//! A segment begins with a header area of 128 bytes:
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
//! | 112..120 | the last sequence number before this segment |
//! | 120..128 | checksum of bytes 64..120 |
//!
//! Records follow, each at a multiple of eight bytes:
//!
//! | bytes | field |
//! |---|---|
//! | 0..3 | magic `WRc` |
//! | 3 | flags: 1 = payload is LZ4, 2 = seal, 4 = note |
//! | 4..8 | low half of the checksum of the header with these four bytes zero |
//! | 8..12 | stored length of the payload |
//! | 12..16 | length of the payload once unpacked |
//! | 16..20 | last sequence number minus the first |
//! | 20..24 | epoch |
//! | 24..32 | first sequence number |
//! | 32..40 | commit time, microseconds since 1970 |
//! | 40..48 | link of the record before |
//! | 48..56 | `durable_lsn`: how far the log was known to be synced |
//! | 56..64 | checksum of the stored payload, as of the offset where it stands |
//! | 64.. | the stored payload, then zeros up to a multiple of eight |
//!
//! The **link** of a record is the checksum of its 64 header bytes, and so covers the payload through the payload's
//! checksum. The first record of a segment links to the checksum at byte 120 of the header area, so that a chain can
//! be verified from any segment on. A **seal** is the last record of a segment that the log went on from; its payload
//! is the number and the file id of the next segment. A **note** has no payload and says only how far the log is
//! synced.
//!
//! All checksums mix in the file id and the offset. A recycled segment has a new file id, so that none of the records
//! of its former lives passes.

use crate::{
    base::{Error, FileId, FileNumber, Result, SequenceNumber},
    codec::{ByteReader, FILE_HEADER_LEN, FileHeader, FileKind, checksum},
};
use std::path::{Path, PathBuf};

/// A position in the log: a byte count that goes on over segments, their headers included, and never goes back.
pub type Lsn = u64;

/// One life of the log, from one open to the next. Later ones have larger numbers.
pub type Epoch = u32;

/// Headers that tell of later positions are refused, so that no sum of two positions overflows.
pub const MAX_LSN: Lsn = 1 << 62;

/// The length of a segment's header area in bytes.
pub const SEGMENT_HEADER_LEN: u64 = 128;

/// The length of a record's header in bytes.
pub const RECORD_HEADER_LEN: usize = 64;

/// Records begin at multiples of this.
pub const RECORD_ALIGN: u64 = 8;

/// The length of a seal, which every segment keeps room for.
pub const SEAL_LEN: u64 = RECORD_HEADER_LEN as u64 + SEAL_PAYLOAD_LEN as u64;

/// The length of a seal's payload.
const SEAL_PAYLOAD_LEN: usize = 16;

/// The first bytes of a record.
pub const RECORD_MAGIC: [u8; 3] = *b"WRc";

/// The most that LZ4 can have saved: a byte of a match's length stands for at most 255 bytes.
const LZ4_MAX_RATIO: u64 = 256;

const _: () = assert!(SEGMENT_HEADER_LEN.is_multiple_of(RECORD_ALIGN));
const _: () = assert!((RECORD_HEADER_LEN as u64).is_multiple_of(RECORD_ALIGN));

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
    pub previous_link: u64,
    /// The epoch before, or this one.
    pub previous_epoch: Epoch,
    /// How far the log was known to be synced.
    pub durable_lsn: Lsn,
    /// The last sequence number before this segment.
    pub previous_sequence: SequenceNumber,
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
    pub fn encode(&self) -> ([u8; SEGMENT_HEADER_LEN as usize], u64) {
        let mut out = [0; SEGMENT_HEADER_LEN as usize];
        let header = FileHeader::new(FileKind::Wal, self.file_id, [self.start_lsn, u64::from(self.epoch)]);
        out[..FILE_HEADER_LEN].copy_from_slice(&header.encode());
        let fields = [
            self.number,
            self.len,
            self.previous_end_lsn,
            self.previous_link,
            u64::from(self.previous_epoch),
            self.durable_lsn,
            self.previous_sequence,
        ];
        for (chunk, field) in out[FILE_HEADER_LEN..].chunks_exact_mut(8).zip(fields) {
            chunk.copy_from_slice(&field.to_le_bytes());
        }
        let link = checksum(self.file_id, FILE_HEADER_LEN as u64, &out[FILE_HEADER_LEN..120]);
        out[120..].copy_from_slice(&link.to_le_bytes());
        (out, link)
    }

    /// Reads a header area; the second value is the link that the first record must carry.
    pub fn decode(bytes: &[u8], path: &Path) -> Result<(SegmentHeader, u64)> {
        let header = FileHeader::decode(FileKind::Wal, bytes, path, 0)?;
        let bad = |detail: &str| Error::corruption(path, FILE_HEADER_LEN as u64, detail);
        let rest = bytes
            .get(FILE_HEADER_LEN..SEGMENT_HEADER_LEN as usize)
            .ok_or_else(|| bad("the segment header is cut short"))?;
        let mut reader = ByteReader::new(rest);
        let mut next = || reader.u64().unwrap_or_default();
        let (number, len, previous_end_lsn, previous_link) = (next(), next(), next(), next());
        let (previous_epoch, durable_lsn, previous_sequence, sum) = (next(), next(), next(), next());
        if checksum(header.file_id, FILE_HEADER_LEN as u64, &rest[..56]) != sum {
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
            previous_link,
            previous_epoch: epoch(previous_epoch)?,
            durable_lsn,
            previous_sequence,
        };
        let sane = decoded.start_lsn < MAX_LSN
            && (SEGMENT_HEADER_LEN..MAX_LSN).contains(&len)
            && previous_end_lsn <= decoded.start_lsn
            && decoded.previous_epoch <= decoded.epoch;
        if !sane {
            return Err(bad("the segment header contradicts itself"));
        }
        Ok((decoded, sum))
    }
}

/// What a record is, and how its payload is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordFlags(u8);

impl RecordFlags {
    /// The payload is LZ4.
    pub const LZ4: RecordFlags = RecordFlags(1);
    /// The segment ends here and the log goes on in another.
    pub const SEAL: RecordFlags = RecordFlags(2);
    /// No group: it only says how far the log is synced.
    pub const NOTE: RecordFlags = RecordFlags(4);

    const ALL: u8 = 7;

    /// Whether all flags of `other` are set.
    pub fn contains(self, other: RecordFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the record is a commit group.
    pub fn is_group(self) -> bool {
        self.0 & (RecordFlags::SEAL.0 | RecordFlags::NOTE.0) == 0
    }
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// What it is.
    pub flags: RecordFlags,
    /// The length of the payload as it stands in the file.
    pub stored_len: u32,
    /// The length of the payload once unpacked.
    pub raw_len: u32,
    /// The first sequence number of the group.
    pub first_sequence: SequenceNumber,
    /// The last one.
    pub last_sequence: SequenceNumber,
    /// The epoch of the segment.
    pub epoch: Epoch,
    /// Microseconds since 1970.
    pub commit_time_us: u64,
    /// The link of the record before.
    pub previous_link: u64,
    /// How far the log was known to be synced.
    pub durable_lsn: Lsn,
    /// The checksum of the stored payload.
    pub payload_checksum: u64,
}

impl RecordHeader {
    /// The record's length in the file, padding included.
    pub fn record_len(&self) -> u64 {
        record_len(u64::from(self.stored_len))
    }

    /// Writes the header for a record at `offset` into `out` and returns the record's link.
    pub fn encode(&self, file_id: FileId, offset: u64, out: &mut [u8; RECORD_HEADER_LEN]) -> u64 {
        let span = u32::try_from(self.last_sequence - self.first_sequence).unwrap_or(u32::MAX);
        out[0..3].copy_from_slice(&RECORD_MAGIC);
        out[3] = self.flags.0;
        out[4..8].fill(0);
        out[8..12].copy_from_slice(&self.stored_len.to_le_bytes());
        out[12..16].copy_from_slice(&self.raw_len.to_le_bytes());
        out[16..20].copy_from_slice(&span.to_le_bytes());
        out[20..24].copy_from_slice(&self.epoch.to_le_bytes());
        out[24..32].copy_from_slice(&self.first_sequence.to_le_bytes());
        out[32..40].copy_from_slice(&self.commit_time_us.to_le_bytes());
        out[40..48].copy_from_slice(&self.previous_link.to_le_bytes());
        out[48..56].copy_from_slice(&self.durable_lsn.to_le_bytes());
        out[56..64].copy_from_slice(&self.payload_checksum.to_le_bytes());
        let sum = low_half(checksum(file_id, offset, out));
        out[4..8].copy_from_slice(&sum.to_le_bytes());
        checksum(file_id, offset, out)
    }

    /// The header at `offset` and the record's link; `None` if no record of this life of the file begins there.
    pub fn decode(bytes: &[u8; RECORD_HEADER_LEN], file_id: FileId, offset: u64) -> Option<(RecordHeader, u64)> {
        if !bytes.starts_with(&RECORD_MAGIC) {
            return None;
        }
        let mut reader = ByteReader::new(&bytes[3..]);
        let (flags, sum) = (reader.u8()?, reader.u32()?);
        let mut bare = *bytes;
        bare[4..8].fill(0);
        if low_half(checksum(file_id, offset, &bare)) != sum || flags & !RecordFlags::ALL != 0 {
            return None;
        }
        let (stored_len, raw_len, span, epoch) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let first_sequence = reader.u64()?;
        let flags = RecordFlags(flags);
        let lengths_fit = if flags.contains(RecordFlags::LZ4) {
            u64::from(raw_len) <= u64::from(stored_len) * LZ4_MAX_RATIO
        } else {
            raw_len == stored_len
        };
        if !lengths_fit {
            return None;
        }
        let header = RecordHeader {
            flags,
            stored_len,
            raw_len,
            first_sequence,
            last_sequence: first_sequence.checked_add(u64::from(span))?,
            epoch,
            commit_time_us: reader.u64()?,
            previous_link: reader.u64()?,
            durable_lsn: reader.u64()?,
            payload_checksum: reader.u64()?,
        };
        Some((header, checksum(file_id, offset, bytes)))
    }
}

/// The length in the file of a record whose stored payload has `stored_len` bytes.
pub fn record_len(stored_len: u64) -> u64 {
    (RECORD_HEADER_LEN as u64 + stored_len).next_multiple_of(RECORD_ALIGN)
}

/// The checksum of the payload of a record at `offset`.
pub fn payload_checksum(file_id: FileId, offset: u64, stored: &[u8]) -> u64 {
    checksum(file_id, offset + RECORD_HEADER_LEN as u64, stored)
}

/// The payload of a seal.
pub fn encode_seal(next: FileNumber, next_file_id: FileId) -> [u8; SEAL_PAYLOAD_LEN] {
    let mut out = [0; SEAL_PAYLOAD_LEN];
    out[..8].copy_from_slice(&next.to_le_bytes());
    out[8..].copy_from_slice(&next_file_id.to_le_bytes());
    out
}

/// The number and file id of the next segment, as a seal gives them.
pub fn decode_seal(payload: &[u8]) -> Option<(FileNumber, FileId)> {
    let mut reader = ByteReader::new(payload);
    let seal = (reader.u64()?, reader.u64()?);
    reader.is_at_end().then_some(seal)
}

fn low_half(sum: u64) -> u32 {
    (sum & u64::from(u32::MAX)) as u32
}
