//! Rows: keys and values computed from row numbers, so that whatever is read can be checked without a copy of the data.
//!
//! A key is eight bytes that stand for the row's number, then zeros (the digit) up to its size. A value is a piece of
//! a pool made beforehand, with a stamp of its row in front: making one costs no more than copying it.

use std::fmt;

use crate::random::Random;

/// Bytes of a key that tell its row; no key has fewer.
pub const HEAD_BYTES: usize = 8;
/// The bytes that values are cut from, but for the length of the longest.
const POOL_BYTES: usize = 1 << 20;
/// Each piece of the pool of this many bytes has its share of bytes that compress.
const PIECE_BYTES: usize = 64;
/// What keys are filled up with, as in RocksDB's db_bench.
const PADDING: u8 = b'0';

/// Which rows stand beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// Those whose numbers do: the key is the number, big-endian.
    Numbers,
    /// Any: the key is the number in a permutation of all numbers.
    Scattered,
}

/// How rows are given keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Which rows stand beside each other.
    pub order: KeyOrder,
    /// Bytes of a key.
    pub size: usize,
}

impl Keys {
    /// The number at the head of a row's key: keys are in the order of their heads.
    #[inline]
    pub fn head(self, row: u64) -> u64 {
        match self.order {
            KeyOrder::Numbers => row,
            KeyOrder::Scattered => mix(row),
        }
    }

    /// The row of a head.
    #[inline]
    pub fn row_of_head(self, head: u64) -> u64 {
        match self.order {
            KeyOrder::Numbers => head,
            KeyOrder::Scattered => unmix(head),
        }
    }

    /// The head of a key, if it is a key of this form.
    #[inline]
    pub fn head_of(self, key: &[u8]) -> Option<u64> {
        let (head, padding) = key.split_first_chunk::<HEAD_BYTES>()?;
        (key.len() == self.size && padding.iter().all(|byte| *byte == PADDING)).then(|| u64::from_be_bytes(*head))
    }

    /// Room for a key, to be filled by [`Keys::write`].
    pub fn buffer(self) -> Vec<u8> {
        vec![PADDING; self.size]
    }

    /// Makes the key of a row in a buffer of [`Keys::buffer`].
    #[inline]
    pub fn write(self, row: u64, key: &mut [u8]) {
        key[..HEAD_BYTES].copy_from_slice(&self.head(row).to_be_bytes());
    }
}

/// The sizes of values; which one a row has follows from its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueSize {
    /// The smallest, in bytes.
    pub min: usize,
    /// The largest.
    pub max: usize,
}

impl ValueSize {
    /// All the same.
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

/// Makes values.
#[derive(Debug)]
pub struct Values {
    pool: Vec<u8>,
    size: ValueSize,
}

impl Values {
    /// Values of these sizes of which the share `compressible` (0 to 1) is one byte again and again, the rest random.
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

    /// Puts a value of a row into `value`, in place of what is there; another one for each `turn`.
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

/// Whether a value, whatever its size, was made for this row.
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

/// Its inverse.
fn unmix(mut x: u64) -> u64 {
    x = (x ^ (x >> 31) ^ (x >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    x = (x ^ (x >> 27) ^ (x >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    x ^ (x >> 30) ^ (x >> 60)
}
