//! Checksums and hashes, both XXH3 of 64 bits.

use crate::base::FileId;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The checksum of a unit that stands at `offset` of the file `file_id`. Both are mixed in, so that a unit that was
/// written to the wrong place, or belongs to another file, does not pass.
pub fn checksum(file_id: FileId, offset: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, file_id ^ offset.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The hash of a key; its low byte is the tag in a view.
#[inline]
pub fn hash64(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}
