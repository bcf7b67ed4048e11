//! Bounds-checked reader for bytes from disk.

use super::{read_varint, varint_len};

/// Methods return `None` if the bytes end early or are invalid; the caller makes that a
/// `Corruption` with file and offset.
#[derive(Clone, Debug)]
pub struct ByteReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> ByteReader<'a> {
    pub fn new(bytes: &'a [u8]) -> ByteReader<'a> {
        ByteReader { bytes, at: 0 }
    }

    pub fn position(&self) -> usize {
        self.at
    }

    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub fn is_at_end(&self) -> bool {
        self.remaining() == 0
    }

    #[inline]
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(len)?;
        let bytes = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(bytes)
    }

    #[inline]
    fn take_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.take_array().map(|[byte]| byte)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take_array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.take_array().map(u64::from_le_bytes)
    }

    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let (value, len) = read_varint(&self.bytes[self.at..])?;
        self.at += len;
        Some(value)
    }

    /// `None` if the encoding is longer than necessary.
    pub fn canonical_varint(&mut self) -> Option<u64> {
        let from = self.at;
        let value = self.varint()?;
        (self.at - from == varint_len(value)).then_some(value)
    }

    #[inline]
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.varint()?).ok()?;
        self.take(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_varint_of_overlong_encoding_returns_none() {
        for (bytes, value) in [(&[0][..], Some(0)), (&[0x7f], Some(127)), (&[0x80, 1], Some(128))] {
            assert_eq!(ByteReader::new(bytes).canonical_varint(), value);
        }
        for bytes in [&[0x80, 0][..], &[0xff, 0], &[0x80, 0x80, 0], &[0x80], &[]] {
            assert_eq!(ByteReader::new(bytes).canonical_varint(), None, "{bytes:?}");
        }
        assert_eq!(ByteReader::new(&[0x80, 0]).varint(), Some(0));
    }
}
