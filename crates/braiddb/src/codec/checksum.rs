//! Checksums and hashes, both XXH3 of 64 bits.

use crate::base::FileId;
use twox_hash::XxHash3_64;

/// The checksum of a unit that stands at `offset` of the file `file_id`. Both are mixed in, so that a unit that was
/// written to the wrong place, or belongs to another file, does not pass.
pub fn checksum(file_id: FileId, offset: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(file_id ^ offset.wrapping_mul(0x9e37_79b9_7f4a_7c15), bytes)
}

/// The hash of a key; its low byte is the tag in a view.
#[inline]
pub fn hash64(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}
