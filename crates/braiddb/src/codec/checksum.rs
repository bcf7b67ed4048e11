//! Checksums and hashes, both XXH3 of 64 bits.

use crate::base::FileId;
use std::hash::Hasher;
use twox_hash::XxHash3_64;

/// XXH3 of bytes that come piece by piece.
pub struct Checksummer(XxHash3_64);

impl Checksummer {
    /// Of no bytes yet.
    pub fn new() -> Checksummer {
        Checksummer(XxHash3_64::new())
    }

    /// Takes the next piece.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The checksum of all pieces, which is that of all of them together.
    pub fn finish(&self) -> u64 {
        self.0.finish()
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|i| (i * i / 8) as u8).collect();
        for piece in [1, 7, 240, 241, 1024, 10_000] {
            let mut sum = Checksummer::new();
            bytes.chunks(piece).for_each(|piece| sum.add(piece));
            assert_eq!(sum.finish(), hash64(&bytes));
        }
        assert_eq!(Checksummer::new().finish(), hash64(b""));
    }
}
