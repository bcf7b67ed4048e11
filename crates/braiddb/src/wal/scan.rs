//! Reads the records of one segment, in order or after a break.
//!
//! Memory is a window of the file, at least as long as the longest record requested. The segment's
//! length limits lengths in the file.

use super::{
    format::{Lsn, SEGMENT_HEADER_LEN, SegmentHeader},
    record::{
        RECORD_HEADER_LEN_MAX, Record, RecordFlags, RecordHeader, begins_like_record, find_magic, payload_checksum,
        with_each_magic,
    },
};
use crate::{
    base::{Error, Result},
    codec::{Compression, decompress},
    platform::File,
};
use std::{borrow::Cow, path::Path};

/// Bytes per read.
const WINDOW_LEN: u64 = 256 << 10;

/// Bytes of the first read where little is expected; each further read doubles them.
const SHORT_WINDOW_LEN: u64 = 4 << 10;

pub struct SegmentReader<'a> {
    header: &'a SegmentHeader,
    file: &'a dyn File,
    path: &'a Path,
    window: Vec<u8>,
    window_at: u64,
    /// Bytes of the next read.
    window_len: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Record(Record),
    Torn(Record),
    Remains,
    Nothing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beyond {
    pub records: u64,
    pub durable_lsn: Lsn,
}

impl Beyond {
    pub fn add(&mut self, other: Beyond) {
        self.records += other.records;
        self.durable_lsn = self.durable_lsn.max(other.durable_lsn);
    }
}

impl<'a> SegmentReader<'a> {
    pub fn new(header: &'a SegmentHeader, file: &'a dyn File, path: &'a Path) -> SegmentReader<'a> {
        SegmentReader { header, file, path, window: Vec::new(), window_at: 0, window_len: WINDOW_LEN }
    }

    /// Reads little at first: for a reader that has read almost everything before.
    pub fn short(header: &'a SegmentHeader, file: &'a dyn File, path: &'a Path) -> SegmentReader<'a> {
        SegmentReader { window_len: SHORT_WINDOW_LEN, ..SegmentReader::new(header, file, path) }
    }

    pub fn find(&mut self, offset: u64) -> Result<Found> {
        let segment = self.header;
        let left = segment.len.saturating_sub(offset);
        let Some(bytes) = self.bytes(offset, left.min(RECORD_HEADER_LEN_MAX as u64))? else {
            return Ok(Found::Nothing);
        };
        if !begins_like_record(bytes) {
            return Ok(Found::Nothing);
        }
        let Some(record) = RecordHeader::decode(bytes, segment, offset).filter(|record| record.file_len() <= left)
        else {
            return Ok(Found::Remains);
        };
        let is_whole = self
            .stored(offset, &record)?
            .is_some_and(|stored| payload_checksum(segment, offset, stored) == record.header.payload_checksum);
        Ok(if is_whole { Found::Record(record) } else { Found::Torn(record) })
    }

    pub fn payload(&mut self, offset: u64, record: &Record) -> Result<Cow<'_, [u8]>> {
        let path = self.path;
        let bad = |detail: &str| Error::corruption(path, offset, detail);
        let stored = self.stored(offset, record)?.ok_or_else(|| bad("the log record reaches past its segment"))?;
        if !record.header.flags.contains(RecordFlags::LZ4) {
            return Ok(Cow::Borrowed(stored));
        }
        let raw_len =
            usize::try_from(record.header.raw_len).map_err(|_| bad("the log record does not fit in memory"))?;
        decompress(Compression::Lz4, stored, raw_len)
            .map(Cow::Owned)
            .ok_or_else(|| bad("the log record's payload cannot be decompressed"))
    }

    /// Searches for whole records, in the chain or not.
    pub fn beyond(&mut self, offset: u64) -> Result<Beyond> {
        let mut beyond = Beyond::default();
        let mut offset = offset.max(SEGMENT_HEADER_LEN);
        while let Some(at) = self.next_magic(offset)? {
            // The header was written here in the current use of the file, so no other record begins
            // inside this one. Skipping it keeps the time linear.
            let (record, seen) = match self.find(at)? {
                Found::Record(record) => (record, Beyond { records: 1, durable_lsn: record.header.durable_lsn }),
                Found::Torn(record) => (record, Beyond::default()),
                Found::Remains | Found::Nothing => {
                    offset = at + 1;
                    continue;
                }
            };
            beyond.add(seen);
            offset = at + record.file_len();
        }
        Ok(beyond)
    }

    pub fn next_record(&mut self, offset: u64) -> Result<Option<(u64, Record)>> {
        let mut offset = offset.max(SEGMENT_HEADER_LEN);
        while let Some(at) = self.next_magic(offset)? {
            match self.find(at)? {
                Found::Record(record) | Found::Torn(record) => return Ok(Some((at, record))),
                Found::Remains | Found::Nothing => offset = at + 1,
            }
        }
        Ok(None)
    }

    /// The record at `offset` if its header is whole once one bit, or its magic, is repaired.
    pub fn repaired(&mut self, offset: u64) -> Result<Option<Record>> {
        let segment = self.header;
        let len = segment.len.saturating_sub(offset).min(RECORD_HEADER_LEN_MAX as u64);
        let Some(bytes) = self.bytes(offset, len)? else { return Ok(None) };
        let mut bytes = bytes.to_vec();
        let with_magic = with_each_magic(&bytes).find_map(|bytes| RecordHeader::decode(&bytes, segment, offset));
        if with_magic.is_some() {
            return Ok(with_magic);
        }
        // Byte 2 is the header's length; later bytes are not in its checksum.
        let header_len = bytes.get(2).map_or(0, |len| usize::from(*len)).max(3).min(bytes.len());
        for bit in 0..8 * header_len {
            let Some(byte) = bytes.get_mut(bit / 8) else { break };
            *byte ^= 1 << (bit % 8);
            let record = RecordHeader::decode(&bytes, segment, offset);
            if let Some(byte) = bytes.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
            if record.is_some() {
                return Ok(record);
            }
        }
        Ok(None)
    }

    pub fn is_zeroed(&self) -> bool {
        self.header.is_zeroed
    }

    pub fn len(&self) -> u64 {
        self.header.len
    }

    /// `None` if all bytes from `offset` on are zero.
    pub fn end_of_written(&mut self, mut offset: u64) -> Result<Option<u64>> {
        let mut end = None;
        while offset < self.header.len {
            let io_error = |e| Error::io("find the written parts of", self.path, e);
            let Some(written) = self.file.next_written(offset).map_err(io_error)? else { break };
            offset = offset.max(written);
            let len = WINDOW_LEN.min(self.header.len.saturating_sub(offset));
            let Some(bytes) = self.bytes(offset, len)?.filter(|bytes| !bytes.is_empty()) else { break };
            if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
                end = Some(offset + last as u64 + 1);
            }
            offset += len;
        }
        Ok(end)
    }

    pub(super) fn next_magic(&mut self, mut offset: u64) -> Result<Option<u64>> {
        while offset < self.header.len {
            if !self.holds(offset, 1) {
                // Skip unwritten parts, but read the last byte to notice a cut file.
                let io_error = |e| Error::io("find the written parts of", self.path, e);
                let last = self.header.len - 1;
                offset = self.file.next_written(offset).map_err(io_error)?.unwrap_or(last).clamp(offset, last);
            }
            if self.bytes(offset, 1)?.is_none() {
                return Ok(None);
            }
            let from = usize::try_from(offset - self.window_at).unwrap_or(usize::MAX);
            let ahead = self.window.get(from..).unwrap_or_default();
            match find_magic(ahead) {
                Some(at) => return Ok(Some(offset + at as u64)),
                None => offset += ahead.len() as u64,
            }
        }
        Ok(None)
    }

    fn stored(&mut self, offset: u64, record: &Record) -> Result<Option<&[u8]>> {
        self.bytes(offset + record.header_len as u64, u64::from(record.header.stored_len))
    }

    fn bytes(&mut self, offset: u64, len: u64) -> Result<Option<&[u8]>> {
        if offset.checked_add(len).is_none_or(|end| end > self.header.len) {
            return Ok(None);
        }
        if !self.holds(offset, len) {
            self.fill(offset, len.max(self.window_len).min(self.header.len - offset))?;
            self.window_len = (2 * self.window_len).min(WINDOW_LEN);
        }
        let from = usize::try_from(offset - self.window_at).unwrap_or(usize::MAX);
        let end = usize::try_from(offset - self.window_at + len).unwrap_or(usize::MAX);
        match self.window.get(from..end) {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(Error::corruption(self.path, offset, "the log segment is shorter than its header says")),
        }
    }

    fn holds(&self, offset: u64, len: u64) -> bool {
        offset >= self.window_at && offset + len <= self.window_at + self.window.len() as u64
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
