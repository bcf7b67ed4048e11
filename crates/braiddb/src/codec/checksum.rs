//! Checksums and hashes, both 64-bit XXH3.

use crate::base::FileId;
use std::hash::Hasher;
use twox_hash::XxHash3_64;

pub struct Checksummer(XxHash3_64);

impl Checksummer {
    pub fn new() -> Checksummer {
        Checksummer(XxHash3_64::new())
    }

    pub fn add(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    pub fn finish(&self) -> u64 {
        self.0.finish()
    }
}

/// File and offset are mixed in, so a misplaced or foreign unit does not match.
pub fn checksum(file_id: FileId, offset: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(file_id ^ offset.wrapping_mul(0x9e37_79b9_7f4a_7c15), bytes)
}

/// Returns the length of the shortest prefix of at least `least` bytes with checksum `sum`, for
/// units whose length was lost. O(n).
pub fn length_with_checksum(file_id: FileId, offset: u64, bytes: &[u8], least: usize, sum: u64) -> Option<usize> {
    let mut hasher = XxHash3_64::with_seed(file_id ^ offset.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (front, rest) = bytes.split_at_checked(least)?;
    hasher.write(front);
    if hasher.finish() == sum {
        return Some(least);
    }
    let found = rest.iter().position(|byte| {
        hasher.write(std::slice::from_ref(byte));
        hasher.finish() == sum
    })?;
    Some(least + found + 1)
}

/// The low byte is the key's tag in a view.
#[inline]
pub fn hash64(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// Fast path of [`hash64`] for a key in two parts. `None` if `rest` has fewer than 8 bytes, 13 to
/// 15, or more than 28.
///
/// The key was usually just written word by word and copied behind a prefix. A load that spans two
/// recent stores cannot be forwarded from the store buffer, and each get would wait for the cache
/// misses of the previous one. Here `rest` is loaded in the words in which it was probably stored,
/// and shifted together in registers.
#[inline(always)]
pub fn hash64_of_words(prefix: [u8; 4], rest: &[u8]) -> Option<u64> {
    // The most common key length first.
    if let Ok(rest) = <&[u8; 16]>::try_from(rest) {
        let (first, last) = (word(rest.first_chunk()?), word(rest.last_chunk()?));
        return Some(hash_of_long(prefix, 16, (first, first >> 32 | last << 32), (first, last)));
    }
    let (first, last) = (word(rest.first_chunk()?), word(rest.last_chunk()?));
    match rest.len() {
        // XXH3 for 9 to 16 bytes.
        8..=12 => {
            let start = u64::from(u32::from_le_bytes(prefix)) | first << 32;
            let (low, high) = (start ^ (SECRET[3] ^ SECRET[4]), last ^ (SECRET[5] ^ SECRET[6]));
            let sum = (4 + rest.len() as u64).wrapping_add(low.swap_bytes()).wrapping_add(high);
            Some(avalanche(sum.wrapping_add(folded_product(low, high))))
        }
        17..=28 => {
            let (second, before_last) = (word(rest[4..].first_chunk()?), word(rest[..rest.len() - 8].last_chunk()?));
            Some(hash_of_long(prefix, rest.len(), (first, second), (before_last, last)))
        }
        _ => None,
    }
}

/// XXH3 for 17 to 32 bytes: the first and last 16. `second` follows the prefix and 4 bytes of
/// `rest`.
#[inline(always)]
fn hash_of_long(prefix: [u8; 4], len: usize, (first, second): (u64, u64), (before_last, last): (u64, u64)) -> u64 {
    let start = u64::from(u32::from_le_bytes(prefix)) | first << 32;
    let sum = (4 + len as u64).wrapping_mul(PRIME);
    let sum = sum.wrapping_add(folded_product(start ^ SECRET[0], second ^ SECRET[1]));
    avalanche(sum.wrapping_add(folded_product(before_last ^ SECRET[2], last ^ SECRET[3])))
}

/// First words of XXH3's default secret.
const SECRET: [u64; 7] = [
    0xbe4b_a423_396c_feb8,
    0x1cad_21f7_2c81_017c,
    0xdb97_9083_e96d_d4de,
    0x1f67_b3b7_a4a4_4072,
    0x78e5_c0cc_4ee6_79cb,
    0x2172_ffcc_7dd0_5a82,
    0x8e24_43f7_7446_08b8,
];
const PRIME: u64 = 0x9e37_79b1_85eb_ca87;

#[inline(always)]
fn word(bytes: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*bytes)
}

#[inline(always)]
fn folded_product(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline(always)]
fn avalanche(sum: u64) -> u64 {
    let sum = (sum ^ sum >> 37).wrapping_mul(0x1656_6791_9e37_79f9);
    sum ^ sum >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash64_of_words_equals_hash64() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|i| (i * i * 31 / 8) as u8).collect();
        for len in 0..100 {
            for at in (0..2000).step_by(97) {
                let (prefix, rest) = (*bytes[at..].first_chunk().unwrap(), &bytes[at + 4..at + 4 + len]);
                let is_expected = matches!(len, 8..=12 | 16..=28);
                let whole = hash64(&[&prefix, rest].concat());
                assert_eq!(hash64_of_words(prefix, rest), is_expected.then_some(whole), "{len} bytes");
            }
        }
    }

    #[test]
    fn checksummer_of_pieces_equals_checksum_of_whole() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|i| (i * i / 8) as u8).collect();
        for piece in [1, 7, 240, 241, 1024, 10_000] {
            let mut sum = Checksummer::new();
            bytes.chunks(piece).for_each(|piece| sum.add(piece));
            assert_eq!(sum.finish(), hash64(&bytes));
        }
        assert_eq!(Checksummer::new().finish(), hash64(b""));
    }
}
