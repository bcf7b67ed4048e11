//! Varints: seven bits a byte, least significant first, the top bit set in all bytes but the last.

const MAX_VARINT_LEN: usize = 10;

#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Panics if `out` is too short.
#[inline]
pub fn write_varint(out: &mut [u8], mut value: u64) {
    let last = varint_len(value) - 1;
    for byte in &mut out[..last] {
        *byte = value as u8 | 0x80;
        value >>= 7;
    }
    out[last] = value as u8;
}

#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[inline]
pub fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Returns the value and its encoded length; `None` if truncated or above `u64`.
#[inline]
pub fn read_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    if let Some(&first) = bytes.first()
        && first < 0x80
    {
        return Some((u64::from(first), 1));
    }
    match bytes.first_chunk().map(|next| read_short(u64::from_le_bytes(*next))) {
        Some(Some(read)) => Some(read),
        _ => read_by_byte(bytes),
    }
}

#[inline]
fn read_short(bytes: u64) -> Option<(u64, usize)> {
    const TOP_BITS: u64 = 0x8080_8080_8080_8080;
    let ends = !bytes & TOP_BITS;
    // All bits up to the top bit of its last byte.
    let own = bytes & (ends ^ ends.wrapping_sub(1));
    let pairs = own & 0x007f_007f_007f_007f | (own & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    let value = fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4;
    (ends != 0).then(|| (value, ends.trailing_zeros() as usize / 8 + 1))
}

fn read_by_byte(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().take(MAX_VARINT_LEN).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if i == MAX_VARINT_LEN - 1 && bits > 1 {
            return None;
        }
        value |= bits << (7 * i);
        if byte < 0x80 {
            return Some((value, i + 1));
        }
    }
    None
}

#[inline]
pub fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

#[inline]
pub fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varint_of_every_length_round_trips() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value));
                let mut written = vec![0; out.len()];
                write_varint(&mut written, value);
                assert_eq!(written, out);
                assert_eq!(read_varint(&out), Some((value, out.len())));
                assert_eq!(read_varint(&out[..out.len() - 1]), None);
            }
        }
        assert_eq!(read_varint(&[0xff; 10]), None);
    }

    #[test]
    fn read_varint_equals_read_by_byte() {
        let mut random = 1_u64;
        for round in 0..20_000_u64 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(round);
            let mut bytes = [random.to_le_bytes(), random.rotate_left(23).to_le_bytes()].concat();
            bytes[..round as usize % 11].iter_mut().for_each(|byte| *byte |= 0x80);
            bytes[round as usize % 11] &= 0x7f;
            for len in 0..=bytes.len() {
                assert_eq!(read_varint(&bytes[..len]), read_by_byte(&bytes[..len]), "{:x?}", &bytes[..len]);
            }
        }
    }

    #[test]
    fn zigzag_of_small_numbers_is_small_and_round_trips() {
        assert_eq!([0, -1, 1, -2, i64::MAX, i64::MIN].map(zigzag), [0, 1, 2, 3, u64::MAX - 1, u64::MAX]);
        for number in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(number)), number);
        }
    }
}
