//! The frames of a dump, and the catalog in the first of them.
//!
//! A dump is a file header and consecutive frames, the last one an end frame. A frame:
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | length of the stored payload |
//! | 4..8 | length of the decompressed payload |
//! | 8 | kind: 1 catalog, 2 records, 3 a piece of a long value, 4 end |
//! | 9 | compression |
//! | 10..14 | tree number; 0 for catalog and end |
//! | 14..16 | zero |
//! | 16..24 | checksum(file id, 0, stored payload) |
//! | 24..32 | checksum(file id, offset of the frame, bytes 0..24) |
//! | 32.. | payload |
//!
//! So threads can process payloads in any order; only the headers are read in sequence. The end
//! frame has the totals and a hash of all headers, which reveals missing, repeated and moved
//! frames.

use crate::{
    base::{Corruption, Error, FileId, Result},
    codec::{ByteReader, Compression, FILE_HEADER_LEN, FileHeader, FileKind, checksum, compress, decompress},
    codec::{put_bytes, put_varint},
    db::DumpedCatalog,
};
use std::path::Path;

pub const FRAME_HEADER_LEN: usize = 32;

/// Maximum bytes of a payload, stored or decompressed.
pub const PAYLOAD_LEN_MAX: usize = 2 << 20;

/// A frame ends once its payload has this length.
pub const PAYLOAD_LEN: usize = 256 << 10;

// The last item of a frame is shorter than half the limit.
const _: () = assert!(PAYLOAD_LEN + (1 << 20) <= PAYLOAD_LEN_MAX);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    Catalog = 1,
    Records = 2,
    Piece = 3,
    End = 4,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<FrameKind> {
        [FrameKind::Catalog, FrameKind::Records, FrameKind::Piece, FrameKind::End]
            .into_iter()
            .find(|k| *k as u8 == byte)
    }
}

#[derive(Clone, Debug)]
pub struct Frame {
    pub kind: FrameKind,
    pub compression: Compression,
    pub tree: u32,
    pub len: u32,
    pub payload: Vec<u8>,
    pub sum: u64,
    pub offset: u64,
}

#[cold]
pub fn damaged(offset: u64, detail: impl Into<String>) -> Error {
    Error::DumpDamaged { offset, detail: detail.into() }
}

impl Frame {
    pub fn pack(kind: FrameKind, tree: u32, id: FileId, compression: Compression, payload: Vec<u8>) -> Frame {
        let len = u32::try_from(payload.len()).unwrap_or_else(|_| unreachable!("frames are ended before"));
        let (compression, payload) = match compress(compression, &payload) {
            Some(packed) => (compression, packed),
            None => (Compression::None, payload),
        };
        let sum = checksum(id, 0, &payload);
        Frame { kind, compression, tree, len, payload, sum, offset: 0 }
    }

    pub fn header(&self, id: FileId, offset: u64) -> [u8; FRAME_HEADER_LEN] {
        let mut out = [0; FRAME_HEADER_LEN];
        let stored = u32::try_from(self.payload.len()).unwrap_or_else(|_| unreachable!("packing makes it shorter"));
        out[0..4].copy_from_slice(&stored.to_le_bytes());
        out[4..8].copy_from_slice(&self.len.to_le_bytes());
        out[8] = self.kind as u8;
        out[9] = self.compression as u8;
        out[10..14].copy_from_slice(&self.tree.to_le_bytes());
        out[16..24].copy_from_slice(&self.sum.to_le_bytes());
        let sum = checksum(id, offset, &out[..24]);
        out[24..32].copy_from_slice(&sum.to_le_bytes());
        out
    }

    pub fn of_header(header: &[u8; FRAME_HEADER_LEN], id: FileId, offset: u64) -> Result<(Frame, usize)> {
        let bad = |detail: &str| damaged(offset, detail);
        let number = |range: std::ops::Range<usize>| {
            let bytes = header.get(range).unwrap_or_default();
            bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let (stored, len, kind, compression) = (number(0..4), number(4..8), number(8..9), number(9..10));
        let (tree, zeros, sum, header_sum) = (number(10..14), number(14..16), number(16..24), number(24..32));
        if checksum(id, offset, &header[..24]) != header_sum {
            return Err(bad("a frame's header does not match its checksum, or is at another offset"));
        }
        // The checksum is valid: a newer build wrote this value.
        let newer = |what: String| Error::Unsupported {
            path: "the dump".into(),
            detail: format!("at byte {offset} it has {what}; use a newer build"),
        };
        let byte = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
        let kind = FrameKind::from_byte(byte(kind)).ok_or_else(|| newer(format!("a frame of kind {kind}")))?;
        let compression = Compression::from_byte(byte(compression));
        let compression = compression.ok_or_else(|| newer("a frame that is compressed otherwise".to_owned()))?;
        if zeros != 0 {
            return Err(newer("a frame with more to it than this build knows".to_owned()));
        }
        if compression == Compression::Zstd && !cfg!(feature = "zstd") {
            let detail =
                format!("at byte {offset} it has Zstandard, which this build was made without (feature `zstd`)");
            return Err(Error::Unsupported { path: "the dump".into(), detail });
        }
        let is_as_packed = if compression == Compression::None { stored == len } else { stored < len };
        let has_tree = matches!(kind, FrameKind::Records | FrameKind::Piece);
        if len > PAYLOAD_LEN_MAX as u64 || !is_as_packed || has_tree == (tree == 0) {
            return Err(bad("a frame has a length or a tree that no frame has"));
        }
        let (len, tree) = (u32::try_from(len).unwrap_or(u32::MAX), u32::try_from(tree).unwrap_or(u32::MAX));
        let frame = Frame { kind, compression, tree, len, payload: Vec::new(), sum, offset };
        Ok((frame, usize::try_from(stored).unwrap_or(usize::MAX)))
    }

    pub fn unpack(self, id: FileId) -> Result<Vec<u8>> {
        if checksum(id, 0, &self.payload) != self.sum {
            return Err(damaged(self.offset, "a frame's payload does not match the checksum in its header"));
        }
        if self.compression == Compression::None {
            return Ok(self.payload);
        }
        let unpacked = decompress(self.compression, &self.payload, self.len as usize);
        unpacked.ok_or_else(|| damaged(self.offset, "a frame's payload cannot be unpacked"))
    }
}

pub fn encode_header(id: FileId, sequence: u64) -> [u8; FILE_HEADER_LEN] {
    FileHeader::new(FileKind::Dump, id, [sequence, 0]).encode()
}

pub fn decode_header(bytes: &[u8]) -> Result<(FileId, u64)> {
    if !bytes.starts_with(FileKind::Dump.magic()) {
        let reason = "what was given is no dump, which would begin with BRAIDDMP: give what `braid dump` has written";
        return Err(Error::InvalidArgument(reason.to_owned()));
    }
    match FileHeader::decode(FileKind::Dump, bytes, Path::new("the dump"), 0) {
        Ok(header) => Ok((header.file_id, header.numbers[0])),
        Err(Error::Corruption(Corruption { offset, detail, .. })) => Err(damaged(offset, detail)),
        Err(e) => Err(e),
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub frames: u64,
    pub trees: u64,
    pub records: u64,
    pub bytes: u64,
    /// XXH3 of the file header and of all earlier frame headers.
    pub chain: u64,
}

impl Totals {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        [self.frames, self.trees, self.records, self.bytes].into_iter().for_each(|number| put_varint(&mut out, number));
        out.extend_from_slice(&self.chain.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Totals> {
        let mut reader = ByteReader::new(bytes);
        let mut next = || reader.varint();
        let (frames, trees, records, bytes) = (next()?, next()?, next()?, next()?);
        let chain = reader.u64()?;
        reader.is_at_end().then_some(Totals { frames, trees, records, bytes, chain })
    }
}

#[derive(Debug, Default)]
pub struct Source {
    pub incarnation: u64,
    /// The database's time, and its lead over the wall clock.
    pub time_us: u64,
    pub ahead_us: u64,
    pub catalog: DumpedCatalog,
}

/// Older builds may skip unknown items of catalog frames from 128 on.
const ITEM_SOURCE: u8 = 1;
const ITEM_CURSOR: u8 = 2;
const ITEM_FUNCTION: u8 = 3;
const ITEM_TREE: u8 = 4;
const ITEM_RETENTION: u8 = 5;
const ITEM_OPTIONAL: u8 = 128;

impl Source {
    pub fn encode(&self) -> Vec<Vec<u8>> {
        let mut payloads = vec![Vec::new()];
        let mut item = |tag: u8, contents: &[u8]| {
            if payloads.last().is_none_or(|payload| payload.len() >= PAYLOAD_LEN) {
                payloads.push(Vec::new());
            }
            let Some(payload) = payloads.last_mut() else { return };
            payload.push(tag);
            put_bytes(payload, contents);
        };
        let mut out = Vec::new();
        let catalog = &self.catalog;
        let numbers = [self.incarnation, self.time_us, self.ahead_us, u64::from(catalog.next_tree)];
        numbers.into_iter().for_each(|number| put_varint(&mut out, number));
        item(ITEM_SOURCE, &out);
        if let Some(cursor) = &catalog.application_cursor {
            item(ITEM_CURSOR, cursor);
        }
        if let Some((bytes, age_us)) = catalog.retention {
            out.clear();
            put_varint(&mut out, bytes);
            put_varint(&mut out, age_us);
            item(ITEM_RETENTION, &out);
        }
        for (name, number) in &catalog.functions {
            out.clear();
            put_varint(&mut out, *number);
            out.extend_from_slice(name.as_bytes());
            item(ITEM_FUNCTION, &out);
        }
        for tree in &catalog.trees {
            out.clear();
            put_bytes(&mut out, &tree.state.encode());
            out.extend_from_slice(tree.name.as_bytes());
            item(ITEM_TREE, &out);
        }
        payloads
    }

    /// Returns the first unknown required item; `None` for invalid bytes.
    pub fn take(&mut self, payload: &[u8]) -> Option<Option<u8>> {
        let mut reader = ByteReader::new(payload);
        while !reader.is_at_end() {
            let (tag, contents) = (reader.u8()?, reader.bytes()?);
            let mut fields = ByteReader::new(contents);
            let rest = |fields: &ByteReader<'_>| contents.get(fields.position()..).map(<[u8]>::to_vec);
            match tag {
                ITEM_SOURCE => {
                    (self.incarnation, self.time_us) = (fields.varint()?, fields.varint()?);
                    self.ahead_us = fields.varint()?;
                    self.catalog.next_tree = u32::try_from(fields.varint()?).ok()?;
                }
                ITEM_CURSOR => self.catalog.application_cursor = Some(contents.to_vec()),
                ITEM_RETENTION => self.catalog.retention = Some((fields.varint()?, fields.varint()?)),
                ITEM_FUNCTION => {
                    let number = fields.varint()?;
                    self.catalog.functions.push((String::from_utf8(rest(&fields)?).ok()?, number));
                }
                ITEM_TREE => {
                    let state = fields.bytes()?;
                    self.catalog.add_tree(&rest(&fields)?, state)?;
                }
                ITEM_OPTIONAL.. => {}
                unknown => return Some(Some(unknown)),
            }
        }
        Some(None)
    }
}
