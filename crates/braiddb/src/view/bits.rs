//! Bit differences of keys, the arithmetic of blind search.
//!
//! Bits are numbered from the key's front, most significant bit of a byte first. A key continues
//! with zero bits after its end. Two sorted keys are distinguished by the **first bit that
//! differs**: the smaller key has 0 there. Keys that differ only by trailing zero bytes have no
//! such bit; their lengths order them.

pub(crate) use crate::base::shared_prefix_len as common_prefix_len;
use std::cmp::Ordering;

/// Bytes of a query that blind search reads: 255 difference bits after the segment's base byte.
pub(crate) const WINDOW_BYTES: usize = 32;

const BYTES_NUMBERED: usize = 1 << 28;

/// Query bytes that difference bits can refer to, zero past its end.
pub(crate) type Window = [u64; WINDOW_BYTES / 8];

/// Compares keys word by word, faster than a call for usual lengths.
#[inline(always)]
pub(crate) fn is_equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let (Some((a_words, a_last)), Some((b_words, b_last))) = (last_word(a), last_word(b)) else { return a == b };
    a_words.chunks_exact(8).zip(b_words.chunks_exact(8)).all(|(x, y)| x == y) && a_last == b_last
}

#[inline(always)]
pub(crate) fn is_joined(key: &[u8], (first, rest): ([u8; 4], &[u8])) -> bool {
    let Some((before, after)) = key.split_first_chunk::<4>() else { return false };
    if after.len() != rest.len() || u32::from_ne_bytes(*before) != u32::from_ne_bytes(first) {
        return false;
    }
    let ends = |bytes: &[u8]| Some((word(bytes.first_chunk()?), word(bytes.last_chunk()?)));
    let (Some((start, end)), Some((rest_start, rest_end))) = (ends(after), ends(rest)) else {
        return is_same(after, rest);
    };
    // The last word may overlap the first, so 8 to 16 bytes take two words and no byte loop.
    (start ^ rest_start) | (end ^ rest_end) == 0 && (rest.len() <= 16 || is_same(after, rest))
}

#[inline(always)]
fn word(bytes: &[u8; 8]) -> u64 {
    u64::from_ne_bytes(*bytes)
}

/// Not inlined: its loops would take registers.
#[inline(never)]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a == b
}

#[inline(always)]
fn last_word(key: &[u8]) -> Option<(&[u8], &[u8; 8])> {
    Some((key, key.last_chunk::<8>()?))
}

/// Returns the order and the first bit that differs, if any.
#[inline]
pub(crate) fn compare_bits(a: &[u8], b: &[u8]) -> (Ordering, Option<u32>) {
    let at = common_prefix_len(a, b);
    match (a.get(at), b.get(at)) {
        (Some(x), Some(y)) => (x.cmp(y), Some(bit_number(at, x ^ y))),
        (None, None) => (Ordering::Equal, None),
        (Some(_), None) => (Ordering::Greater, first_set_bit(a, at)),
        (None, Some(_)) => (Ordering::Less, first_set_bit(b, at)),
    }
}

fn first_set_bit(key: &[u8], from: usize) -> Option<u32> {
    let at = from + key[from..].iter().position(|&byte| byte != 0)?;
    Some(bit_number(at, key[at]))
}

fn bit_number(at: usize, byte: u8) -> u32 {
    // A query can be longer than stored keys; bits past them may share a number.
    at.min(BYTES_NUMBERED) as u32 * 8 + byte.leading_zeros()
}

#[inline(always)]
pub(crate) fn window(key: &[u8], base: u8) -> Window {
    std::array::from_fn(|word| word_at(key, usize::from(base) + 8 * word))
}

/// Returns eight bytes, the first one lowest; zero past the end.
#[inline(always)]
fn word_at(key: &[u8], from: usize) -> u64 {
    if let Some(bytes) = key.get(from..from + 8).and_then(|bytes| bytes.first_chunk::<8>()) {
        return u64::from_le_bytes(*bytes);
    }
    let Some(left) = key.len().checked_sub(from).filter(|&left| left > 0) else { return 0 };
    match key.last_chunk::<8>() {
        Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * left),
        None => key[from..].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}

#[inline]
pub(crate) fn head(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::MAX_INTERNAL_KEY_LEN;

    #[test]
    fn bit_number_past_longest_key_exceeds_all_stored_bits() {
        let last = bit_number(MAX_INTERNAL_KEY_LEN - 1, 1);
        assert_eq!(last, MAX_INTERNAL_KEY_LEN as u32 * 8 - 1);
        for at in [MAX_INTERNAL_KEY_LEN, 1 << 29, 1 << 31, usize::MAX] {
            assert!(bit_number(at, 0x80) > last, "byte {at}");
        }
    }
}
