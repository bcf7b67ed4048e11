//! What the manifest knows of a run.

use super::Expiries;
use crate::{
    base::{FileId, FileNumber, SequenceNumber, limits::MAX_INTERNAL_KEY_LEN},
    codec::{ByteReader, put_bytes, put_varint},
};

/// How much of a blob file a run refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobUse {
    /// The blob file.
    pub file: FileNumber,
    /// Bytes referred to.
    pub bytes: u64,
    /// Values referred to.
    pub values: u64,
}

/// What the manifest knows of a run, and what the run's file says of itself but for the number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunMeta {
    /// The number in the file's name.
    pub number: FileNumber,
    /// The file's random identity.
    pub file_id: FileId,
    /// The file's length.
    pub file_bytes: u64,
    /// The lengths of all keys and values.
    pub raw_bytes: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Data blocks.
    pub blocks: u32,
    /// The smallest key of entries, or start of range tombstones; empty if there is neither.
    pub smallest: Vec<u8>,
    /// The largest key of entries (which is in the run), or end of range tombstones (which none of them covers).
    pub largest: Vec<u8>,
    /// The smallest sequence number of entries and range tombstones; 0 if there is neither.
    pub min_sequence: SequenceNumber,
    /// The largest sequence number of entries and range tombstones; 0 if there is neither.
    pub max_sequence: SequenceNumber,
    /// Range tombstones.
    pub range_tombstones: u32,
    /// References to blob files, by file number.
    pub blob_uses: Vec<BlobUse>,
    /// When its entries expire.
    pub expiries: Expiries,
    /// Whether the keys stand apart, too.
    pub has_key_block: bool,
    /// Where the embedded view begins; 0 if there is none.
    pub view_offset: u64,
    /// The length of the embedded view; 0 if there is none.
    pub view_bytes: u64,
}

impl RunMeta {
    /// Appends all but the expiries: numbers as varints in the order of the fields, the file id as u64, keys with their length before
    /// them, blob uses with their number before them, `has_key_block` as a byte.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.number);
        out.extend_from_slice(&self.file_id.to_le_bytes());
        for number in [self.file_bytes, self.raw_bytes, self.entries, self.tombstones, u64::from(self.blocks)] {
            put_varint(out, number);
        }
        put_bytes(out, &self.smallest);
        put_bytes(out, &self.largest);
        for number in [self.min_sequence, self.max_sequence, u64::from(self.range_tombstones)] {
            put_varint(out, number);
        }
        encode_blob_uses(&self.blob_uses, out);
        out.push(u8::from(self.has_key_block));
        put_varint(out, self.view_offset);
        put_varint(out, self.view_bytes);
    }

    /// Reads what [`RunMeta::encode`] wrote; without expiries.
    pub fn decode(reader: &mut ByteReader<'_>) -> Option<RunMeta> {
        Some(RunMeta {
            number: reader.varint()?,
            file_id: reader.u64()?,
            file_bytes: reader.varint()?,
            raw_bytes: reader.varint()?,
            entries: reader.varint()?,
            tombstones: reader.varint()?,
            blocks: reader.varint()?.try_into().ok()?,
            smallest: decode_key(reader)?,
            largest: decode_key(reader)?,
            min_sequence: reader.varint()?,
            max_sequence: reader.varint()?,
            range_tombstones: reader.varint()?.try_into().ok()?,
            blob_uses: decode_blob_uses(reader)?,
            expiries: Expiries::default(),
            has_key_block: match reader.u8()? {
                0 => false,
                1 => true,
                _ => return None,
            },
            view_offset: reader.varint()?,
            view_bytes: reader.varint()?,
        })
    }
}

/// Reads a key with its length before it.
pub(super) fn decode_key(reader: &mut ByteReader<'_>) -> Option<Vec<u8>> {
    reader.bytes().filter(|key| key.len() <= MAX_INTERNAL_KEY_LEN).map(<[u8]>::to_vec)
}

/// Appends blob uses: their number, then file, bytes and values of each, all varints.
pub(super) fn encode_blob_uses(uses: &[BlobUse], out: &mut Vec<u8>) {
    put_varint(out, uses.len() as u64);
    for blob_use in uses {
        put_varint(out, blob_use.file);
        put_varint(out, blob_use.bytes);
        put_varint(out, blob_use.values);
    }
}

/// Reads what [`encode_blob_uses`] wrote.
pub(super) fn decode_blob_uses(reader: &mut ByteReader<'_>) -> Option<Vec<BlobUse>> {
    let count = usize::try_from(reader.varint()?).ok().filter(|&count| count <= reader.remaining() / 3)?;
    let mut uses = Vec::with_capacity(count);
    for _ in 0..count {
        uses.push(BlobUse { file: reader.varint()?, bytes: reader.varint()?, values: reader.varint()? });
    }
    Some(uses)
}
