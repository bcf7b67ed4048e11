//! Reads segments for tools.

use super::{
    format::{Link, SEGMENT_HEADER_LEN, SegmentHeader},
    record::Record,
    scan::{Found, SegmentReader},
};
use crate::{
    base::{Error, Result, SequenceNumber},
    platform::{File, OpenMode, Vfs},
};
use std::{ops::RangeInclusive, path::Path, sync::Arc};

type GroupVisitor<'a> = dyn FnMut(RangeInclusive<SequenceNumber>, &[u8]) -> Result<()> + 'a;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentDump {
    pub header: SegmentHeader,
    pub end_offset: u64,
    /// Bytes that look like a record follow the chain.
    pub remains: bool,
    pub records_beyond: u64,
}

/// Calls `visitor` with offset and record.
pub fn inspect_segment(
    vfs: &dyn Vfs,
    path: &Path,
    visitor: &mut dyn FnMut(u64, &Record) -> Result<()>,
) -> Result<SegmentDump> {
    let file = vfs.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
    let mut bytes = [0; SEGMENT_HEADER_LEN as usize];
    let len = file.read_at(&mut bytes, 0).map_err(|e| Error::io("read", path, e))?;
    let (header, mut link) = SegmentHeader::decode(bytes.get(..len).unwrap_or_default(), path)?;
    let mut reader = SegmentReader::new(&header, &*file, path);
    let mut offset = SEGMENT_HEADER_LEN;
    let found = loop {
        match reader.find(offset)? {
            Found::Record(record) if record.header.previous_link == link => {
                visitor(offset, &record)?;
                offset += record.file_len();
                link = record.link;
            }
            other => break other,
        }
    };
    let records_beyond = reader.beyond(offset)?.records;
    Ok(SegmentDump { header, end_offset: offset, remains: found != Found::Nothing, records_beyond })
}

/// Calls `visitor` with each commit group in the first `used_len` bytes. Damage there is an error.
pub fn read_groups(vfs: &dyn Vfs, path: &Path, used_len: u64, visitor: &mut GroupVisitor<'_>) -> Result<()> {
    let (header, mut link, file) = open_segment(vfs, path)?;
    let mut reader = SegmentReader::new(&header, &*file, path);
    let mut offset = SEGMENT_HEADER_LEN;
    while offset < used_len {
        let record = match reader.find(offset)? {
            Found::Record(record) if record.header.previous_link == link => record,
            _ => return Err(Error::corruption(path, offset, "a record of the log is damaged")),
        };
        if record.header.flags.is_group() {
            let numbers = record.header.first_sequence..=record.header.last_sequence;
            visitor(numbers, &reader.payload(offset, &record)?)?;
        }
        offset += record.file_len();
        link = record.link;
    }
    Ok(())
}

/// The first sequence number is `None` without a whole group.
pub fn first_group(vfs: &dyn Vfs, path: &Path) -> Result<(SegmentHeader, Option<SequenceNumber>)> {
    let (header, mut link, file) = open_segment(vfs, path)?;
    let mut reader = SegmentReader::new(&header, &*file, path);
    let mut offset = SEGMENT_HEADER_LEN;
    loop {
        match reader.find(offset)? {
            Found::Record(record) if record.header.previous_link == link => {
                if record.header.flags.is_group() {
                    return Ok((header, Some(record.header.first_sequence)));
                }
                offset += record.file_len();
                link = record.link;
            }
            _ => return Ok((header, None)),
        }
    }
}

/// Returns the length that the header states. The file may be shorter.
pub fn stated_len(vfs: &dyn Vfs, path: &Path) -> Result<u64> {
    Ok(open_segment(vfs, path)?.0.len)
}

fn open_segment(vfs: &dyn Vfs, path: &Path) -> Result<(SegmentHeader, Link, Arc<dyn File>)> {
    let file = vfs.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
    let mut bytes = [0; SEGMENT_HEADER_LEN as usize];
    let len = file.read_at(&mut bytes, 0).map_err(|e| Error::io("read", path, e))?;
    let (header, link) = SegmentHeader::decode(bytes.get(..len).unwrap_or_default(), path)?;
    Ok((header, link, file))
}

/// Decompressed; empty unless it is a commit group.
pub fn record_payload(vfs: &dyn Vfs, path: &Path, offset: u64, record: &Record) -> Result<Vec<u8>> {
    if !record.header.flags.is_group() {
        return Ok(Vec::new());
    }
    let file = vfs.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
    let mut bytes = [0; SEGMENT_HEADER_LEN as usize];
    let len = file.read_at(&mut bytes, 0).map_err(|e| Error::io("read", path, e))?;
    let (header, _) = SegmentHeader::decode(bytes.get(..len).unwrap_or_default(), path)?;
    let mut reader = SegmentReader::new(&header, &*file, path);
    Ok(reader.payload(offset, record)?.into_owned())
}
