//! Rows: keys and values computed from row numbers.
//!
//! A key is an eight-byte row number, padded with the digit 0. A value is a piece of a precomputed
//! pool with a stamp of its row in front.

use std::fmt;

use crate::random::Random;

/// Bytes of a key that encode its row, and the minimum key size.
pub const HEAD_BYTES: usize = 8;
const POOL_BYTES: usize = 1 << 20;
/// Size of a pool piece in bytes; all have the same share of compressible bytes.
const PIECE_BYTES: usize = 64;
const PADDING: u8 = b'0';

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// Row order: the key is the number, big-endian.
    Numbers,
    /// Random order: the key is a permutation of the number.
    Scattered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    pub order: KeyOrder,
    pub size: usize,
}

impl Keys {
    #[inline]
    pub fn head(self, row: u64) -> u64 {
        match self.order {
            KeyOrder::Numbers => row,
            KeyOrder::Scattered => mix(row),
        }
    }

    #[inline]
    pub fn row_of_head(self, head: u64) -> u64 {
        match self.order {
            KeyOrder::Numbers => head,
            KeyOrder::Scattered => unmix(head),
        }
    }

    #[inline]
    pub fn head_of(self, key: &[u8]) -> Option<u64> {
        let (head, padding) = key.split_first_chunk::<HEAD_BYTES>()?;
        (key.len() == self.size && padding.iter().all(|byte| *byte == PADDING)).then(|| u64::from_be_bytes(*head))
    }

    pub fn buffer(self) -> Vec<u8> {
        vec![PADDING; self.size]
    }

    #[inline]
    pub fn write(self, row: u64, key: &mut [u8]) {
        key[..HEAD_BYTES].copy_from_slice(&self.head(row).to_be_bytes());
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueSize {
    pub min: usize,
    pub max: usize,
}

impl ValueSize {
    pub const fn fixed(bytes: usize) -> ValueSize {
        ValueSize { min: bytes, max: bytes }
    }

    #[inline]
    fn of_row(self, row: u64) -> usize {
        if self.min == self.max {
            return self.min;
        }
        let spread = (self.max - self.min) as u64 + 1;
        self.min + ((u128::from(mix(!row)) * u128::from(spread)) >> 64) as usize
    }
}

impl fmt::Display for ValueSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.min == self.max {
            true => write!(formatter, "{}", self.min),
            false => write!(formatter, "{}-{}", self.min, self.max),
        }
    }
}

#[derive(Debug)]
pub struct Values {
    pool: Vec<u8>,
    size: ValueSize,
}

impl Values {
    pub fn new(size: ValueSize, compressible: f64) -> Values {
        let random_bytes = ((1.0 - compressible) * PIECE_BYTES as f64).round() as usize;
        let mut random = Random::of(0, 0);
        let mut pool = Vec::with_capacity(POOL_BYTES + size.max + PIECE_BYTES);
        while pool.len() < POOL_BYTES + size.max {
            let mut piece = [b'x'; PIECE_BYTES];
            for bytes in piece[..random_bytes].chunks_mut(8) {
                bytes.copy_from_slice(&random.next().to_le_bytes()[..bytes.len()]);
            }
            pool.extend_from_slice(&piece);
        }
        Values { pool, size }
    }

    #[inline]
    pub fn write(&self, row: u64, turn: u64, value: &mut Vec<u8>) {
        let stamp = stamp(row);
        let size = self.size.of_row(row);
        let at = (stamp ^ turn.wrapping_mul(0x9e37_79b9_7f4a_7c15)) as usize % POOL_BYTES;
        value.clear();
        value.extend_from_slice(&self.pool[at..at + size]);
        let stamped = size.min(8);
        value[..stamped].copy_from_slice(&stamp.to_le_bytes()[..stamped]);
    }
}

#[inline]
pub fn is_of_row(value: &[u8], row: u64) -> bool {
    let stamp = stamp(row).to_le_bytes();
    match value.first_chunk::<8>() {
        Some(found) => *found == stamp,
        None => stamp.starts_with(value),
    }
}

fn stamp(row: u64) -> u64 {
    mix(row ^ 0x5bd1_e995_7f4a_7c15)
}

/// A permutation of the 64-bit numbers: the finalizer of SplitMix64.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn unmix(mut x: u64) -> u64 {
    x = (x ^ (x >> 31) ^ (x >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    x = (x ^ (x >> 27) ^ (x >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    x ^ (x >> 30) ^ (x >> 60)
}
