use super::Expiries;
use crate::{
    base::{FileId, FileNumber, SequenceNumber, limits::MAX_INTERNAL_KEY_LEN},
    codec::{ByteReader, put_bytes, put_varint},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobUse {
    pub file: FileNumber,
    pub bytes: u64,
    pub values: u64,
}

/// A run's facts in the manifest. The file has all but the number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunMeta {
    pub number: FileNumber,
    pub file_id: FileId,
    pub file_bytes: u64,
    /// Bytes of all keys and values.
    pub raw_bytes: u64,
    pub entries: u64,
    pub tombstones: u64,
    pub blocks: u32,
    /// Smallest key of an entry or start of a range tombstone; empty without either.
    pub smallest: Vec<u8>,
    /// Largest key of an entry (inclusive) or end of a range tombstone (exclusive).
    pub largest: Vec<u8>,
    pub min_sequence: SequenceNumber,
    /// Highest of entries and range tombstones; 0 without either.
    pub max_sequence: SequenceNumber,
    pub range_tombstones: u32,
    pub blob_uses: Vec<BlobUse>,
    pub expiries: Expiries,
    pub has_key_block: bool,
    /// 0 without an embedded view.
    pub view_offset: u64,
    pub view_bytes: u64,
}

impl RunMeta {
    /// Without expiries: numbers as varints in field order, the file id as u64, keys after their
    /// length, blob uses after their number, `has_key_block` as a byte.
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

pub(super) fn decode_key(reader: &mut ByteReader<'_>) -> Option<Vec<u8>> {
    reader.bytes().filter(|key| key.len() <= MAX_INTERNAL_KEY_LEN).map(<[u8]>::to_vec)
}

/// Their number, then file, bytes and values of each, all varints.
pub(super) fn encode_blob_uses(uses: &[BlobUse], out: &mut Vec<u8>) {
    put_varint(out, uses.len() as u64);
    for blob_use in uses {
        put_varint(out, blob_use.file);
        put_varint(out, blob_use.bytes);
        put_varint(out, blob_use.values);
    }
}

pub(super) fn decode_blob_uses(reader: &mut ByteReader<'_>) -> Option<Vec<BlobUse>> {
    let count = usize::try_from(reader.varint()?).ok().filter(|&count| count <= reader.remaining() / 3)?;
    let mut uses = Vec::with_capacity(count);
    for _ in 0..count {
        uses.push(BlobUse { file: reader.varint()?, bytes: reader.varint()?, values: reader.varint()? });
    }
    Some(uses)
}
