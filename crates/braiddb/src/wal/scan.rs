//! Reads the records of one segment, in order or after a break.
//!
//! Memory: a window of the file, at least as long as the longest record asked for. No length from the file is believed
//! beyond the segment's own, and that not beyond the file's.

use super::format::{
    Lsn, RECORD_ALIGN, RECORD_HEADER_LEN, RECORD_MAGIC, RecordFlags, RecordHeader, SEGMENT_HEADER_LEN, SegmentHeader,
    payload_checksum, record_len,
};
use crate::{
    base::{Error, Result, SequenceNumber},
    codec::{Compression, decompress},
    platform::File,
};
use std::{borrow::Cow, path::Path};

/// How much is read at once.
const WINDOW_LEN: u64 = 256 << 10;

/// A reader of a segment whose header has been verified.
pub struct SegmentReader<'a> {
    header: &'a SegmentHeader,
    file: &'a dyn File,
    path: &'a Path,
    window: Vec<u8>,
    window_at: u64,
}

/// What begins at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A whole record: its header and link. Whether it continues the chain is for the caller to see.
    Record(RecordHeader, u64),
    /// A header whose payload does not match.
    Torn(RecordHeader),
    /// Bytes with a record's magic that are no header of this segment.
    Remains,
    /// Anything else.
    Nothing,
}

/// What stands past the end of a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beyond {
    /// How many whole records.
    pub records: u64,
    /// The highest `durable_lsn` of any.
    pub durable_lsn: Lsn,
    /// The highest sequence number of any, torn ones included.
    pub last_sequence: SequenceNumber,
}

impl Beyond {
    /// Takes in what was found elsewhere.
    pub fn add(&mut self, other: Beyond) {
        self.records += other.records;
        self.durable_lsn = self.durable_lsn.max(other.durable_lsn);
        self.last_sequence = self.last_sequence.max(other.last_sequence);
    }
}

impl<'a> SegmentReader<'a> {
    /// A reader of `file`, whose header area holds `header`.
    pub fn new(header: &'a SegmentHeader, file: &'a dyn File, path: &'a Path) -> SegmentReader<'a> {
        SegmentReader { header, file, path, window: Vec::new(), window_at: 0 }
    }

    /// What begins at `offset`.
    pub fn find(&mut self, offset: u64) -> Result<Found> {
        let (file_id, epoch, limit) = (self.header.file_id, self.header.epoch, self.header.len);
        let lsn = self.header.start_lsn + offset;
        let Some(bytes) = self.bytes(offset, RECORD_HEADER_LEN as u64)? else { return Ok(Found::Nothing) };
        if !bytes.starts_with(&RECORD_MAGIC) {
            return Ok(Found::Nothing);
        }
        let decoded = bytes.try_into().ok().and_then(|bytes| RecordHeader::decode(bytes, file_id, offset));
        let Some((header, link)) = decoded else { return Ok(Found::Remains) };
        if header.epoch != epoch || header.durable_lsn > lsn || header.record_len() > limit - offset {
            return Ok(Found::Remains);
        }
        let stored = self.bytes(offset + RECORD_HEADER_LEN as u64, u64::from(header.stored_len))?;
        if stored.is_some_and(|stored| payload_checksum(file_id, offset, stored) == header.payload_checksum) {
            Ok(Found::Record(header, link))
        } else {
            Ok(Found::Torn(header))
        }
    }

    /// The unpacked payload of the whole record that was found at `offset`.
    pub fn payload(&mut self, offset: u64, header: &RecordHeader) -> Result<Cow<'_, [u8]>> {
        let path = self.path;
        let bad = |detail: &str| Error::corruption(path, offset, detail);
        let stored = self
            .bytes(offset + RECORD_HEADER_LEN as u64, u64::from(header.stored_len))?
            .ok_or_else(|| bad("the log record reaches past its segment"))?;
        if !header.flags.contains(RecordFlags::LZ4) {
            return Ok(Cow::Borrowed(stored));
        }
        let raw_len = usize::try_from(header.raw_len).map_err(|_| bad("the log record does not fit in memory"))?;
        decompress(Compression::Lz4, stored, raw_len)
            .map(Cow::Owned)
            .ok_or_else(|| bad("the log record's payload cannot be unpacked"))
    }

    /// Looks for whole records anywhere from `offset` on, their place in the chain disregarded.
    pub fn beyond(&mut self, offset: u64) -> Result<Beyond> {
        let mut beyond = Beyond::default();
        let mut offset = offset.max(SEGMENT_HEADER_LEN).next_multiple_of(RECORD_ALIGN);
        while offset < self.header.len {
            // A header that passes was written here in this life of the file, so nothing begins inside its record.
            // Stepping over it also keeps the time linear.
            offset += match self.find(offset)? {
                Found::Record(RecordHeader { durable_lsn, last_sequence, stored_len, .. }, _) => {
                    beyond.add(Beyond { records: 1, durable_lsn, last_sequence });
                    record_len(u64::from(stored_len))
                }
                Found::Torn(header) => {
                    beyond.add(Beyond { records: 0, durable_lsn: 0, last_sequence: header.last_sequence });
                    header.record_len()
                }
                Found::Remains | Found::Nothing => RECORD_ALIGN,
            };
        }
        Ok(beyond)
    }

    /// The `len` bytes at `offset`; `None` if they reach past the segment.
    fn bytes(&mut self, offset: u64, len: u64) -> Result<Option<&[u8]>> {
        if offset.checked_add(len).is_none_or(|end| end > self.header.len) {
            return Ok(None);
        }
        let held = self.window_at..self.window_at + self.window.len() as u64;
        if offset < held.start || offset + len > held.end {
            self.fill(offset, len.max(WINDOW_LEN).min(self.header.len - offset))?;
        }
        let from = usize::try_from(offset - self.window_at).unwrap_or(usize::MAX);
        let end = usize::try_from(offset - self.window_at + len).unwrap_or(usize::MAX);
        match self.window.get(from..end) {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(Error::corruption(self.path, offset, "the log segment is shorter than its header says")),
        }
    }

    fn fill(&mut self, offset: u64, len: u64) -> Result<()> {
        let file_len = self.file.len().map_err(|e| Error::io("read the length of", self.path, e))?;
        let len = usize::try_from(len.min(file_len.saturating_sub(offset))).unwrap_or(usize::MAX);
        self.window.resize(len, 0);
        self.window_at = offset;
        let read = self.file.read_exact_at(&mut self.window, offset);
        if read.is_err() {
            self.window.clear();
        }
        read.map_err(|e| Error::io("read", self.path, e))
    }
}
