//! What a segment holds, for tools.

use super::{
    format::{SEGMENT_HEADER_LEN, SegmentHeader},
    record::Record,
    scan::{Found, SegmentReader},
};
use crate::{
    base::{Error, Result},
    platform::{OpenMode, Vfs},
};
use std::path::Path;

/// A segment's contents in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentDump {
    /// The header.
    pub header: SegmentHeader,
    /// The offset at which the chain of records ends.
    pub end_offset: u64,
    /// Whether bytes that look like a record stand there.
    pub remains: bool,
    /// Whole records that stand past the end.
    pub records_beyond: u64,
}

/// Reads one segment and shows each record of its chain, with its offset. The file is not written to.
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

/// The unpacked payload of a record that [`inspect_segment`] has shown; empty if it is no commit group.
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
