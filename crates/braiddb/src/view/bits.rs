//! Where two keys differ: the bit arithmetic below blind search.
//!
//! Bits of a key are numbered from its front, the most significant bit of a byte first, and a key goes on with zero
//! bits after its end. Two sorted keys are told apart by the **first bit that differs**: the smaller has 0 there.
//! Keys that differ by trailing zero bytes alone have no such bit; their order is that of their lengths.

pub(crate) use crate::base::shared_prefix_len as common_prefix_len;
use std::cmp::Ordering;

/// How many bytes of a query blind search looks at: 255 bits of difference, past the segment's base byte.
pub(crate) const WINDOW_BYTES: usize = 32;

/// Bits of so many bytes have numbers of their own: more than a key that is stored can have.
const BYTES_NUMBERED: usize = 1 << 28;

/// The bytes of a query that a segment's difference bits may ask for; zero past the query's end. In words whose first byte
/// is the lowest: so they go from register to register.
pub(crate) type Window = [u64; WINDOW_BYTES / 8];

/// Whether two keys are the same: word by word, which is quicker than a call for keys of a usual length.
#[inline(always)]
pub(crate) fn is_equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let (Some((a_words, a_last)), Some((b_words, b_last))) = (last_word(a), last_word(b)) else { return a == b };
    a_words.chunks_exact(8).zip(b_words.chunks_exact(8)).all(|(x, y)| x == y) && a_last == b_last
}

/// Whether a key is two parts, one after the other; without a call if the second has 8 to 16 bytes, whatever it is inlined into.
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
    // The last word may have bytes of the first: so keys of 8 to 16 bytes take two, and none takes them one by one.
    (start ^ rest_start) | (end ^ rest_end) == 0 && (rest.len() <= 16 || is_same(after, rest))
}

#[inline(always)]
fn word(bytes: &[u8; 8]) -> u64 {
    u64::from_ne_bytes(*bytes)
}

/// Whether they are equal, as a function of its own: its loops take room and registers where they are inlined, and time where they are not needed.
#[inline(never)]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a == b
}

/// All bytes, and the last eight of them; `None` if there are not so many.
#[inline(always)]
fn last_word(key: &[u8]) -> Option<(&[u8], &[u8; 8])> {
    Some((key, key.last_chunk::<8>()?))
}

/// The order of two keys, and the first bit that differs; `None` if they are equal or differ by trailing zeros alone.
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

/// The first bit set in `key` at or after byte `from`.
fn first_set_bit(key: &[u8], from: usize) -> Option<u32> {
    let at = from + key[from..].iter().position(|&byte| byte != 0)?;
    Some(bit_number(at, key[at]))
}

/// The number of the most significant bit of `byte`, which is not zero and stands at byte `at` of a key.
fn bit_number(at: usize, byte: u8) -> u32 {
    // Keys that are stored have at most `MAX_INTERNAL_KEY_LEN` bytes. What is sought may be longer: past all of them is past all of them.
    at.min(BYTES_NUMBERED) as u32 * 8 + byte.leading_zeros()
}

/// The window of `key` from byte `base`.
#[inline(always)]
pub(crate) fn window(key: &[u8], base: u8) -> Window {
    std::array::from_fn(|word| word_at(key, usize::from(base) + 8 * word))
}

/// Eight bytes of a key, the first one lowest; zero past its end.
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

/// The first eight bytes of `key` after byte `skip` as a number whose order is that of the bytes; zero past the end.
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
    fn bits_past_all_keys_have_numbers_past_all_of_theirs() {
        let last = bit_number(MAX_INTERNAL_KEY_LEN - 1, 1);
        assert_eq!(last, MAX_INTERNAL_KEY_LEN as u32 * 8 - 1);
        for at in [MAX_INTERNAL_KEY_LEN, 1 << 29, 1 << 31, usize::MAX] {
            assert!(bit_number(at, 0x80) > last, "byte {at}");
        }
    }
}
