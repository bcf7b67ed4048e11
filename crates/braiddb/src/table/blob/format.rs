//! Format of a blob file, and of a reference to one of its records.
//!
//! A file header is followed by records, each at a multiple of eight bytes:
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | magic `BLOB` |
//! | 4 | compression of the compressed chunks |
//! | 5..8 | zero |
//! | 8..16 | length of the value |
//! | 16..24 | length of the record, without the padding behind it |
//! | 24..28 | length of the key |
//! | 28..32 | zero |
//! | 32..40 | checksum of bytes 0..32 |
//! | 40.. | the internal key |
//! | .. | the chunk table: for each chunk its stored length (four bytes, top bit: compressed) and the checksum of its stored bytes (eight bytes, by their offset) |
//! | .. | checksum of key and chunk table (eight bytes, by the key's offset) |
//! | .. | the chunks |
//!
//! A chunk is 64 KiB of the value, the last one less; an empty value has none. Each can be read
//! alone.
//!
//! **Holes.** Writers reserve ranges before they write, so a crash or failed write leaves arbitrary
//! bytes without references. A walk resumes at the next multiple of eight with a valid header,
//! whose checksum includes file id and offset: no value can imitate one.
//!
//! **A reference** is five varints (file number, offset divided by eight, length of the value,
//! length of the record, compression) and the eight bytes of the record header's checksum.

use crate::{
    base::{EntryKind, FileId, FileNumber, limits},
    codec::{ByteReader, Compression, checksum, put_varint},
};
use std::path::{Path, PathBuf};

pub const BLOB_CHUNK_LEN: usize = 64 << 10;

pub const RECORD_HEADER_LEN: usize = 40;

pub const CHUNK_ENTRY_LEN: usize = 12;

pub const TABLE_CHECKSUM_LEN: usize = 8;

pub const RECORD_ALIGN: u64 = 8;

pub const RECORD_MAGIC: [u8; 4] = *b"BLOB";

const COMPRESSED: u32 = 1 << 31;

const _: () = assert!(BLOB_CHUNK_LEN < COMPRESSED as usize);
const _: () = assert!(EntryKind::BlobRef as u8 == 3);

pub fn blob_path(dir: &Path, number: FileNumber) -> PathBuf {
    dir.join(format!("{number:06}.blob"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlobRef {
    pub file: FileNumber,
    pub offset: u64,
    pub len: u64,
    /// Record with header and key: the garbage that a dead value leaves.
    pub stored_len: u64,
    pub compression: Compression,
    pub checksum: u64,
}

impl BlobRef {
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.file);
        put_varint(out, self.offset / RECORD_ALIGN);
        put_varint(out, self.len);
        put_varint(out, self.stored_len);
        put_varint(out, self.compression as u64);
        out.extend_from_slice(&self.checksum.to_le_bytes());
    }

    pub fn decode(bytes: &[u8]) -> Option<BlobRef> {
        let mut reader = ByteReader::new(bytes);
        BlobRef::read(&mut reader).filter(|_| reader.is_at_end())
    }

    pub fn read(reader: &mut ByteReader<'_>) -> Option<BlobRef> {
        let file = reader.varint()?;
        let offset = reader.varint()?.checked_mul(RECORD_ALIGN)?;
        let (len, stored_len) = (reader.varint()?, reader.varint()?);
        let compression = Compression::from_byte(u8::try_from(reader.varint()?).ok()?)?;
        let checksum = reader.u64()?;
        let sane = len <= limits::MAX_VALUE_LEN && offset.checked_add(stored_len).is_some();
        sane.then_some(BlobRef { file, offset, len, stored_len, compression, checksum })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    pub compression: Compression,
    pub value_len: u64,
    pub stored_len: u64,
    pub key_len: u32,
}

impl RecordHeader {
    pub fn chunk_count(&self) -> u64 {
        self.value_len.div_ceil(BLOB_CHUNK_LEN as u64)
    }

    pub fn head_len(&self) -> u64 {
        head_len(u64::from(self.key_len), self.chunk_count())
    }

    pub fn chunk_len(&self, index: u64) -> u64 {
        self.value_len.saturating_sub(index.saturating_mul(BLOB_CHUNK_LEN as u64)).min(BLOB_CHUNK_LEN as u64)
    }

    pub fn encode(&self, file_id: FileId, offset: u64) -> ([u8; RECORD_HEADER_LEN], u64) {
        let mut out = [0; RECORD_HEADER_LEN];
        out[0..4].copy_from_slice(&RECORD_MAGIC);
        out[4] = self.compression as u8;
        out[8..16].copy_from_slice(&self.value_len.to_le_bytes());
        out[16..24].copy_from_slice(&self.stored_len.to_le_bytes());
        out[24..28].copy_from_slice(&self.key_len.to_le_bytes());
        let sum = checksum(file_id, offset, &out[..32]);
        out[32..40].copy_from_slice(&sum.to_le_bytes());
        (out, sum)
    }

    /// `None` if no record begins there.
    pub fn decode(bytes: &[u8], file_id: FileId, offset: u64) -> Option<(RecordHeader, u64)> {
        let bytes = bytes.get(..RECORD_HEADER_LEN)?;
        if !bytes.starts_with(&RECORD_MAGIC) {
            return None;
        }
        let mut reader = ByteReader::new(&bytes[4..]);
        let (flags, value_len, stored_len) = (reader.u32()?, reader.u64()?, reader.u64()?);
        let (key_len, zero, sum) = (reader.u32()?, reader.u32()?, reader.u64()?);
        if checksum(file_id, offset, &bytes[..32]) != sum || zero != 0 {
            return None;
        }
        let compression = Compression::from_byte(u8::try_from(flags).ok()?)?;
        let header = RecordHeader { compression, value_len, stored_len, key_len };
        let sane = value_len <= limits::MAX_VALUE_LEN
            && key_len as usize <= limits::MAX_INTERNAL_KEY_LEN
            && (header.head_len()..=header.head_len() + value_len).contains(&stored_len);
        sane.then_some((header, sum))
    }
}

pub fn head_len(key_len: u64, chunk_count: u64) -> u64 {
    (RECORD_HEADER_LEN + TABLE_CHECKSUM_LEN) as u64 + key_len + chunk_count * CHUNK_ENTRY_LEN as u64
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkEntry {
    pub stored_len: u32,
    pub compressed: bool,
    pub checksum: u64,
}

impl ChunkEntry {
    pub fn encode(&self, out: &mut Vec<u8>) {
        let flag = if self.compressed { COMPRESSED } else { 0 };
        out.extend_from_slice(&(self.stored_len | flag).to_le_bytes());
        out.extend_from_slice(&self.checksum.to_le_bytes());
    }

    pub fn decode(reader: &mut ByteReader<'_>) -> Option<ChunkEntry> {
        let word = reader.u32()?;
        let checksum = reader.u64()?;
        Some(ChunkEntry { stored_len: word & !COMPRESSED, compressed: word & COMPRESSED != 0, checksum })
    }
}
