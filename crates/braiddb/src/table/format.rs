//! Layout of a run file `NNN.run`, and the framing of its units.
//!
//! A run is written once, from front to back, and never changed. All numbers are little-endian.
//!
//! ```text
//! 0           file header, 64 bytes (`codec/header.rs`)
//! 64          data blocks; zeros where the next block starts a page units; `block.rs`
//! keys        key chunks, if any                                   units; `key_block.rs`
//! tombstones  range tombstones, if any                             unit; below
//! index       block index and the run's properties                 unit; `tail.rs`
//!             zeros up to a multiple of 4096, only before a view
//! view        the embedded view, if any                            its checksum is in the footer
//! end - 144   footer                                               `tail.rs`
//! ```
//!
//! Each part begins where the one before it ends. A checksum covers every byte but the zeros, which
//! are checked.
//!
//! A **unit**:
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | checksum of all following bytes, by file id and the unit's offset in the file |
//! | 8 | compression: 0 none, 1 LZ4 block, 2 Zstandard frame |
//! | 9..13 | uncompressed length |
//! | 13.. | the contents |
//!
//! References to a unit store its length in the file. The uncompressed length is at most 256 times
//! the compressed one plus 64 bytes, so the file's length bounds a reader's memory.
//!
//! **Range tombstones**: their number (varint), then for each, in order of (start, end, sequence):
//! start and end as varint length and bytes, and the sequence number as a varint.

use crate::{
    base::{Error, FileId, RangeTombstone, RangeTombstoneSet, Result, limits::MAX_INTERNAL_KEY_LEN},
    codec::{ByteReader, Compression, checksum, compress, decompress_into, put_bytes, put_varint},
};
use std::path::Path;

pub(super) const UNIT_HEADER_LEN: usize = 13;

/// Alignment of the view, and of data blocks where that costs little.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Maximum uncompressed length.
pub(super) fn longest_raw(stored: usize) -> usize {
    stored.saturating_mul(256).saturating_add(64)
}

/// Appends a unit without its checksum. The contents have at most 4 GiB - 1.
pub(super) fn put_unit(out: &mut Vec<u8>, method: Compression, raw: &[u8]) {
    let len = u32::try_from(raw.len()).expect("the writer refuses larger entries");
    let fitting = |method| compress(method, raw).filter(|packed| raw.len() <= longest_raw(packed.len()));
    let (method, packed) = match (method, fitting(method)) {
        (method, Some(packed)) => (method, Some(packed)),
        // Zstandard may exceed the reader's limit; LZ4 cannot.
        (Compression::Zstd, None) => (Compression::Lz4, fitting(Compression::Lz4)),
        _ => (Compression::None, None),
    };
    out.reserve(UNIT_HEADER_LEN + packed.as_deref().unwrap_or(raw).len());
    out.extend_from_slice(&[0; 8]);
    out.push(if packed.is_some() { method as u8 } else { Compression::None as u8 });
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(packed.as_deref().unwrap_or(raw));
}

pub(super) fn stamp_unit(unit: &mut [u8], file_id: FileId, offset: u64) {
    let sum = checksum(file_id, offset, &unit[8..]);
    unit[..8].copy_from_slice(&sum.to_le_bytes());
}

pub(super) enum Contents<'a> {
    Plain(&'a [u8]),
    Unpacked,
}

pub(super) fn open_unit<'a>(
    unit: &'a [u8],
    file_id: FileId,
    offset: u64,
    path: &Path,
    out: &mut Vec<u8>,
) -> Result<Contents<'a>> {
    let bad = |detail: &str| Error::corruption(path, offset, detail);
    let mut reader = ByteReader::new(unit);
    let header = (reader.u64(), reader.u8(), reader.u32());
    let (Some(sum), Some(method), Some(raw_len)) = header else { return Err(bad("a unit is cut short")) };
    if checksum(file_id, offset, &unit[8..]) != sum {
        return Err(bad("a unit's checksum does not match"));
    }
    let contents = &unit[UNIT_HEADER_LEN..];
    let raw_len = usize::try_from(raw_len).map_err(|_| bad("a unit is too long for this machine"))?;
    match Compression::from_byte(method) {
        None => Err(bad("a unit has an unknown compression")),
        Some(Compression::None) if contents.len() == raw_len => Ok(Contents::Plain(contents)),
        Some(Compression::None) => Err(bad("a unit's length is wrong")),
        Some(_) if raw_len > longest_raw(contents.len()) => Err(bad("a unit claims to unpack to too much")),
        #[cfg(not(feature = "zstd"))]
        Some(Compression::Zstd) => Err(Error::Unsupported {
            path: path.to_owned(),
            detail: "it is compressed with Zstandard; use a build with the feature `zstd`".to_owned(),
        }),
        Some(method) if decompress_into(method, contents, raw_len, out) => Ok(Contents::Unpacked),
        Some(_) => Err(bad("a unit does not unpack")),
    }
}

pub(super) fn read_unit(mut unit: Vec<u8>, file_id: FileId, offset: u64, path: &Path) -> Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    if let Contents::Unpacked = open_unit(&unit, file_id, offset, path, &mut unpacked)? {
        return Ok(unpacked);
    }
    unit.drain(..UNIT_HEADER_LEN);
    Ok(unit)
}

pub(super) fn encode_tombstones(tombstones: &RangeTombstoneSet) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, tombstones.len() as u64);
    for tombstone in tombstones.iter() {
        put_bytes(&mut out, &tombstone.start);
        put_bytes(&mut out, &tombstone.end);
        put_varint(&mut out, tombstone.sequence);
    }
    out
}

pub(super) fn decode_tombstones(bytes: &[u8]) -> Option<RangeTombstoneSet> {
    let mut reader = ByteReader::new(bytes);
    let count = usize::try_from(reader.varint()?).ok().filter(|&count| count <= bytes.len() / 3)?;
    let mut tombstones = Vec::with_capacity(count);
    for _ in 0..count {
        let (start, end, sequence) = (reader.bytes()?, reader.bytes()?, reader.varint()?);
        if start >= end || end.len() > MAX_INTERNAL_KEY_LEN || start.len() > MAX_INTERNAL_KEY_LEN {
            return None;
        }
        tombstones.push(RangeTombstone { start: start.to_vec(), end: end.to_vec(), sequence });
    }
    let is_sorted = tombstones.is_sorted_by(|a, b| a < b);
    (reader.is_at_end() && is_sorted).then(|| RangeTombstoneSet::new(tombstones))
}
