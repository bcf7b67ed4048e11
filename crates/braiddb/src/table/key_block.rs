//! The key block: all keys of a run without values, to build a view without reading values.
//!
//! For small values it would nearly double the written bytes; then views are built from the data
//! blocks (ADR 0013). Chunks have about 32 KiB before compression. Each begins with the first entry
//! of a data block, so a scan can start anywhere.
//!
//! ```text
//! base       u64: the sequence number of the chunk's first entry
//! entries    one after the other:
//!              shared      varint: how many bytes the key shares with the key before; 0 for the first
//!              length      varint: of the rest
//!              kind        u8
//!              sequence    varint: zigzag(sequence - base)
//!              the rest of the key
//! ```

use super::format::put_unit;
use crate::{
    base::{EntryKind, EntryRef, MAX_SEQUENCE, SequenceNumber, limits::MAX_INTERNAL_KEY_LEN, shared_prefix_len},
    codec::{ByteReader, Compression, put_varint, unzigzag, zigzag},
};

/// A longer chunk ends with its block.
const CHUNK_BYTES: usize = 32 << 10;

/// Minimum ratio of value to key bytes.
const VALUES_TO_KEYS_MIN: u64 = 32;

/// Minimum bytes before that ratio is tested.
const BYTES_MIN: u64 = 16 << 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyBlocks {
    Never,
    #[default]
    WhereValuesAreLarge,
    Always,
}

#[derive(Debug)]
pub(super) struct KeyBlockBuilder {
    compression: Compression,
    raw: Vec<u8>,
    base: SequenceNumber,
    last_key: Vec<u8>,
    first_block: u16,
    /// First block of each chunk, and its unit without checksum.
    pub chunks: Vec<(u16, Vec<u8>)>,
    bytes: usize,
    is_wanted_always: bool,
    key_bytes: u64,
    value_bytes: u64,
}

impl KeyBlockBuilder {
    pub fn new(compression: Compression, wanted: KeyBlocks) -> Option<KeyBlockBuilder> {
        (wanted != KeyBlocks::Never).then(|| KeyBlockBuilder {
            compression,
            is_wanted_always: wanted == KeyBlocks::Always,
            key_bytes: 0,
            value_bytes: 0,
            raw: Vec::new(),
            base: 0,
            last_key: Vec::new(),
            first_block: 0,
            chunks: Vec::new(),
            bytes: 0,
        })
    }

    pub fn pays(&self) -> bool {
        self.is_wanted_always || (self.value_bytes > 0 && self.value_bytes >= VALUES_TO_KEYS_MIN * self.key_bytes)
    }

    /// Enough entries to predict the ratio.
    pub fn is_typical(&self) -> bool {
        self.key_bytes + self.value_bytes >= BYTES_MIN
    }

    pub fn add(&mut self, entry: &EntryRef<'_>, block: u16) {
        if self.raw.is_empty() {
            self.first_block = block;
            self.base = entry.sequence;
            self.raw.extend_from_slice(&self.base.to_le_bytes());
            self.last_key.clear();
        }
        self.key_bytes += entry.key.len() as u64;
        self.value_bytes += entry.value.len() as u64;
        let shared = shared_prefix_len(&self.last_key, entry.key);
        let rest = &entry.key[shared..];
        put_varint(&mut self.raw, shared as u64);
        put_varint(&mut self.raw, rest.len() as u64);
        self.raw.push(entry.kind as u8);
        put_varint(&mut self.raw, zigzag(entry.sequence.wrapping_sub(self.base).cast_signed()));
        self.raw.extend_from_slice(rest);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(rest);
    }

    pub fn end_block(&mut self) {
        if self.raw.len() >= CHUNK_BYTES {
            self.end_chunk();
        }
    }

    pub fn finish(&mut self) {
        if !self.raw.is_empty() {
            self.end_chunk();
        }
    }

    pub fn len(&self) -> usize {
        self.bytes + self.raw.len()
    }

    fn end_chunk(&mut self) {
        let mut unit = Vec::new();
        put_unit(&mut unit, self.compression, &self.raw);
        self.bytes += unit.len();
        self.chunks.push((self.first_block, unit));
        self.raw.clear();
    }
}

#[derive(Debug, Default)]
pub(super) struct ChunkReader {
    /// Filled by the caller before [`ChunkReader::begin`].
    pub contents: Vec<u8>,
    at: usize,
    base: SequenceNumber,
    pub key: Vec<u8>,
    pub sequence: SequenceNumber,
    /// `None` before the first entry.
    pub kind: Option<EntryKind>,
}

impl ChunkReader {
    pub fn begin(&mut self) -> Option<()> {
        let mut reader = ByteReader::new(&self.contents);
        self.base = reader.u64()?;
        self.at = reader.position();
        self.key.clear();
        Some(())
    }

    pub fn is_at_end(&self) -> bool {
        self.at == self.contents.len()
    }

    /// `None` at the end or if the entry is damaged.
    pub fn advance(&mut self) -> Option<()> {
        let mut reader = ByteReader::new(self.contents.get(self.at..)?);
        let shared = usize::try_from(reader.varint()?).ok().filter(|&shared| shared <= self.key.len())?;
        let len = usize::try_from(reader.varint()?).ok()?;
        self.kind = Some(EntryKind::from_byte(reader.u8()?)?);
        self.sequence = self.base.wrapping_add_signed(unzigzag(reader.varint()?));
        let rest = reader.take(len)?;
        if shared + len > MAX_INTERNAL_KEY_LEN || self.sequence > MAX_SEQUENCE {
            return None;
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(rest);
        self.at += reader.position();
        Some(())
    }
}
