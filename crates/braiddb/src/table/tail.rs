//! Index and footer: everything that is read when a run is opened.
//!
//! The **index** is an uncompressed unit:
//!
//! ```text
//! number of data blocks    varint
//! for each: length of its unit, length before compression (varints), entries (u8); zeros after it (varint) in files
//!   with padded blocks
//! number of key chunks     varint
//! for each: its first data block, less that of the chunk before; length of its unit (varints)
//! smallest key, largest key    varint length and bytes each
//! blob uses                    their number, then file, bytes, values of each (varints)
//! ```
//!
//! The **footer** is the last 144 bytes of the file:
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | `BRAIDEND` |
//! | 8..16 | offset of the key chunks; end of the data blocks |
//! | 16..24 | offset of the range tombstones |
//! | 24..32 | offset of the index |
//! | 32..40 | end of the index |
//! | 40..48, 48..56 | offset and length of the view; zeros if there is none |
//! | 56..64 | checksum of the view, by file id and its offset; 0 if there is none |
//! | 64..72, 72..80 | entries, tombstones among them |
//! | 80..88 | total length of keys and values |
//! | 88..96, 96..104 | lowest and highest sequence number of entries and range tombstones |
//! | 104..108 | data blocks |
//! | 108..112 | range tombstones |
//! | 112..116 | flags: 1 has key chunks; others are zero |
//! | 116..120 | configured block size |
//! | 120..128 | zeros |
//! | 128..136 | length of the file |
//! | 136..144 | checksum of 0..136, by file id and the footer's offset |

use super::{
    Expiries,
    format::{PAGE_BYTES, UNIT_HEADER_LEN},
    meta::{BlobUse, RunMeta, decode_blob_uses, decode_key, encode_blob_uses},
};
use crate::cache::UnitNote;
use crate::{
    base::{Error, FileId, FileNumber, Result, SequenceNumber, limits::MAX_RUN_BLOCKS},
    codec::{ByteReader, FILE_HEADER_LEN, checksum, put_bytes, put_varint},
};
use std::{ops::Range, path::Path};

pub(super) const FOOTER_LEN: usize = 144;
const FOOTER_MAGIC: &[u8; 8] = b"BRAIDEND";
const HAS_KEY_CHUNKS: u32 = 1;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Footer {
    pub keys_offset: u64,
    pub tombstones_offset: u64,
    pub index_offset: u64,
    pub index_end: u64,
    pub view_offset: u64,
    pub view_bytes: u64,
    pub view_checksum: u64,
    pub entries: u64,
    pub tombstones: u64,
    pub raw_bytes: u64,
    pub min_sequence: SequenceNumber,
    pub max_sequence: SequenceNumber,
    pub blocks: u32,
    pub range_tombstones: u32,
    pub has_key_block: bool,
    pub block_bytes: u32,
    pub file_bytes: u64,
}

impl Footer {
    pub fn encode(&self, file_id: FileId) -> [u8; FOOTER_LEN] {
        let mut out = Vec::with_capacity(FOOTER_LEN);
        out.extend_from_slice(FOOTER_MAGIC);
        for number in [
            self.keys_offset,
            self.tombstones_offset,
            self.index_offset,
            self.index_end,
            self.view_offset,
            self.view_bytes,
            self.view_checksum,
            self.entries,
            self.tombstones,
            self.raw_bytes,
            self.min_sequence,
            self.max_sequence,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let flags = if self.has_key_block { HAS_KEY_CHUNKS } else { 0 };
        for number in [self.blocks, self.range_tombstones, flags, self.block_bytes, 0, 0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.file_bytes.to_le_bytes());
        let sum = checksum(file_id, self.file_bytes - FOOTER_LEN as u64, &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out.try_into().expect("the fields add up to the length")
    }

    pub fn decode(bytes: &[u8; FOOTER_LEN], file_id: FileId, file_bytes: u64, path: &Path) -> Result<Footer> {
        let offset = file_bytes.saturating_sub(FOOTER_LEN as u64);
        let bad = |detail: &str| Error::corruption(path, offset, detail);
        let (fields, sum) = bytes.split_at(FOOTER_LEN - 8);
        if checksum(file_id, offset, fields).to_le_bytes() != sum {
            return Err(bad("the footer's checksum does not match; is the file cut short?"));
        }
        let footer = Footer::read(fields).ok_or_else(|| bad("the footer is malformed"))?;
        if footer.file_bytes != file_bytes || !footer.is_in_order() {
            return Err(bad("the footer's offsets contradict each other"));
        }
        Ok(footer)
    }

    fn read(fields: &[u8]) -> Option<Footer> {
        let mut reader = ByteReader::new(fields);
        if reader.take(8)? != FOOTER_MAGIC {
            return None;
        }
        let mut footer = Footer {
            keys_offset: reader.u64()?,
            tombstones_offset: reader.u64()?,
            index_offset: reader.u64()?,
            index_end: reader.u64()?,
            view_offset: reader.u64()?,
            view_bytes: reader.u64()?,
            view_checksum: reader.u64()?,
            entries: reader.u64()?,
            tombstones: reader.u64()?,
            raw_bytes: reader.u64()?,
            min_sequence: reader.u64()?,
            max_sequence: reader.u64()?,
            blocks: reader.u32()?,
            range_tombstones: reader.u32()?,
            ..Footer::default()
        };
        let flags = reader.u32()?;
        footer.has_key_block = flags & HAS_KEY_CHUNKS != 0;
        footer.block_bytes = reader.u32()?;
        let reserved = reader.u64()?;
        footer.file_bytes = reader.u64()?;
        (flags & !HAS_KEY_CHUNKS == 0 && reserved == 0 && reader.is_at_end()).then_some(footer)
    }

    fn is_in_order(&self) -> bool {
        let view_end = if self.view_bytes == 0 {
            (self.view_offset == 0 && self.view_checksum == 0).then_some(self.index_end)
        } else {
            let begins = self.index_end.checked_next_multiple_of(PAGE_BYTES) == Some(self.view_offset);
            self.view_offset.checked_add(self.view_bytes).filter(|_| begins)
        };
        let is_sorted =
            [FILE_HEADER_LEN as u64, self.keys_offset, self.tombstones_offset, self.index_offset, self.index_end]
                .is_sorted();
        is_sorted && view_end.and_then(|end| end.checked_add(FOOTER_LEN as u64)) == Some(self.file_bytes)
    }

    pub fn meta(
        &self,
        number: FileNumber,
        file_id: FileId,
        smallest: Vec<u8>,
        largest: Vec<u8>,
        blob_uses: Vec<BlobUse>,
        expiries: Expiries,
    ) -> RunMeta {
        RunMeta {
            number,
            file_id,
            file_bytes: self.file_bytes,
            raw_bytes: self.raw_bytes,
            entries: self.entries,
            tombstones: self.tombstones,
            blocks: self.blocks,
            smallest,
            largest,
            min_sequence: self.min_sequence,
            max_sequence: self.max_sequence,
            range_tombstones: self.range_tombstones,
            blob_uses,
            expiries,
            has_key_block: self.has_key_block,
            view_offset: self.view_offset,
            view_bytes: self.view_bytes,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct BlockEntry {
    pub unit_len: u64,
    pub raw_len: u32,
    pub entries: u8,
    pub padding: u16,
}

impl BlockEntry {
    pub fn is_plain(&self) -> bool {
        self.unit_len == UNIT_HEADER_LEN as u64 + u64::from(self.raw_len)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkEntry {
    pub first_block: u16,
    pub offset: u64,
    pub unit_len: u64,
}

#[derive(Debug)]
enum Offsets {
    /// Each block but the first begins at the page of its number.
    Grid {
        blocks: usize,
        end: u64,
    },
    Narrow(Box<[u32]>),
    Wide(Box<[u64]>),
}

impl Offsets {
    fn new(offsets: Vec<u64>, is_padded: bool) -> Offsets {
        if let Some((&end, starts)) = offsets.split_last()
            && is_padded
            && starts.len() > 1
            && starts.iter().enumerate().skip(1).all(|(block, &start)| start == block as u64 * PAGE_BYTES)
        {
            return Offsets::Grid { blocks: starts.len(), end };
        }
        let narrow: Option<Box<[u32]>> = offsets.iter().map(|&offset| u32::try_from(offset).ok()).collect();
        narrow.map_or_else(|| Offsets::Wide(offsets.into()), Offsets::Narrow)
    }
}

#[derive(Debug)]
pub(super) struct Index {
    offsets: Offsets,
    is_padded: bool,
    /// Until the run moves them into the cache's slots.
    pub notes: Vec<UnitNote>,
    pub chunks: Box<[ChunkEntry]>,
    pub smallest: Vec<u8>,
    pub largest: Vec<u8>,
    pub blob_uses: Vec<BlobUse>,
    pub expiries: Expiries,
}

pub(super) fn encode_index(
    is_padded: bool,
    blocks: &[BlockEntry],
    chunks: &[ChunkEntry],
    smallest: &[u8],
    largest: &[u8],
    blob_uses: &[BlobUse],
    expiries: &Expiries,
) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, blocks.len() as u64);
    for block in blocks {
        put_varint(&mut out, block.unit_len);
        put_varint(&mut out, u64::from(block.raw_len));
        out.push(block.entries);
        if is_padded {
            put_varint(&mut out, u64::from(block.padding));
        }
    }
    put_varint(&mut out, chunks.len() as u64);
    let mut before = 0;
    for chunk in chunks {
        put_varint(&mut out, u64::from(chunk.first_block - before));
        put_varint(&mut out, chunk.unit_len);
        before = chunk.first_block;
    }
    put_bytes(&mut out, smallest);
    put_bytes(&mut out, largest);
    encode_blob_uses(blob_uses, &mut out);
    if !expiries.is_empty() {
        expiries.encode(&mut out);
    }
    out
}

impl Index {
    /// `None` if it does not match the footer.
    pub fn decode(bytes: &[u8], footer: &Footer, is_padded: bool) -> Option<Index> {
        let mut reader = ByteReader::new(bytes);
        let blocks = usize::try_from(reader.varint()?).ok()?;
        if blocks > MAX_RUN_BLOCKS || blocks > bytes.len() / 3 || blocks as u64 != u64::from(footer.blocks) {
            return None;
        }
        let mut offsets = Vec::with_capacity(blocks + 1);
        let mut notes = Vec::with_capacity(blocks);
        let (mut offset, mut entries) = (FILE_HEADER_LEN as u64, 0u64);
        for _ in 0..blocks {
            offsets.push(offset);
            let unit_len = reader.varint()?;
            let raw_len = usize::try_from(reader.varint()?).ok()?;
            let count = reader.u8()?;
            let note = UnitNote::new(raw_len, count);
            let padding = if is_padded { reader.varint()? } else { 0 };
            // With padding, a unit's end follows from its uncompressed length: see `unit`.
            let plain_len = (UNIT_HEADER_LEN + note.len()) as u64;
            let is_expected = !is_padded || note.len() == 0 || unit_len <= plain_len;
            let is_fit = padding == 0 || (unit_len == plain_len && note.len() > 0 && padding < PAGE_BYTES);
            if count == 0 || !is_expected || !is_fit {
                return None;
            }
            offset = offset.checked_add(unit_len)?.checked_add(padding).filter(|&end| end <= footer.keys_offset)?;
            entries += u64::from(count);
            notes.push(note);
        }
        offsets.push(offset);
        if offset != footer.keys_offset || entries != footer.entries {
            return None;
        }
        let chunks = decode_chunks(&mut reader, footer)?;
        let (smallest, largest) = (decode_key(&mut reader)?, decode_key(&mut reader)?);
        let blob_uses = decode_blob_uses(&mut reader)?;
        let expiries = if reader.is_at_end() { Expiries::default() } else { Expiries::decode(&mut reader)? };
        if expiries.entries > footer.entries {
            return None;
        }
        reader.is_at_end().then(|| Index {
            offsets: Offsets::new(offsets, is_padded),
            is_padded,
            notes,
            chunks,
            smallest,
            largest,
            blob_uses,
            expiries,
        })
    }

    #[inline]
    pub fn blocks(&self) -> usize {
        match &self.offsets {
            Offsets::Grid { blocks, .. } => *blocks,
            Offsets::Narrow(offsets) => offsets.len() - 1,
            Offsets::Wide(offsets) => offsets.len() - 1,
        }
    }

    #[inline]
    pub fn is_grid(&self) -> bool {
        matches!(self.offsets, Offsets::Grid { .. })
    }

    /// `len` is the block's uncompressed length, 0 if unknown.
    #[inline]
    pub fn unit(&self, block: usize, len: usize) -> Range<u64> {
        let (start, next) = (self.offset(block), self.offset(block + 1));
        // Padded units are uncompressed; in a padded file, compression makes no unit longer.
        let end = if self.is_padded && len > 0 { next.min(start + (UNIT_HEADER_LEN + len) as u64) } else { next };
        start..end
    }

    /// Past the last block: its end with padding.
    #[inline]
    pub fn offset(&self, block: usize) -> u64 {
        let block = block.min(self.blocks());
        match &self.offsets {
            Offsets::Grid { blocks, end } if block == *blocks => *end,
            Offsets::Grid { .. } => (block as u64 * PAGE_BYTES).max(FILE_HEADER_LEN as u64),
            Offsets::Narrow(offsets) => u64::from(offsets[block]),
            Offsets::Wide(offsets) => offsets[block],
        }
    }

    pub fn resident_bytes(&self) -> usize {
        let offsets = match &self.offsets {
            Offsets::Grid { .. } => 0,
            Offsets::Narrow(offsets) => size_of_val(&**offsets),
            Offsets::Wide(offsets) => size_of_val(&**offsets),
        };
        offsets
            + size_of_val(&*self.notes)
            + size_of_val(&*self.chunks)
            + self.smallest.capacity()
            + self.largest.capacity()
            + size_of_val(&*self.blob_uses)
    }
}

fn decode_chunks(reader: &mut ByteReader<'_>, footer: &Footer) -> Option<Box<[ChunkEntry]>> {
    let count = usize::try_from(reader.varint()?).ok().filter(|&count| count <= reader.remaining() / 2)?;
    let mut chunks: Vec<ChunkEntry> = Vec::with_capacity(count);
    let mut offset = footer.keys_offset;
    for _ in 0..count {
        let step = u16::try_from(reader.varint()?).ok()?;
        let unit_len = reader.varint()?;
        let first_block = match chunks.last() {
            // The first chunk begins with the first block, each later one with a later block.
            None => Some(0).filter(|_| step == 0)?,
            Some(before) => before.first_block.checked_add(step).filter(|_| step > 0)?,
        };
        chunks.push(ChunkEntry { first_block, offset, unit_len });
        offset = offset.checked_add(unit_len).filter(|&end| end <= footer.tombstones_offset)?;
    }
    let is_present = footer.has_key_block && footer.blocks > 0;
    let is_in_run = chunks.last().is_none_or(|last| u32::from(last.first_block) < footer.blocks);
    (offset == footer.tombstones_offset && is_in_run && chunks.is_empty() != is_present).then(|| chunks.into())
}
