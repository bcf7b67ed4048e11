//! Rows computed from their numbers, and how they are spread over runs.

/// Bytes of a tree id and a user key of 16.
pub(super) const KEY_LEN: usize = 20;
/// Bytes of a value.
pub(super) const VALUE_LEN: usize = 120;

/// An internal key.
pub(super) type Key = [u8; KEY_LEN];
/// A value.
pub(super) type Value = [u8; VALUE_LEN];

/// How many rows each run gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// As many as each other run.
    Even,
    /// The first, oldest run gets nine tenths of all, the others share the rest.
    NineTenths,
}

impl Layout {
    /// Its name in the figures.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Even => "even",
            Layout::NineTenths => "90/10",
        }
    }

    /// The first row of each run, and `rows` at the end.
    pub(super) fn borders(self, rows: u64, runs: usize) -> Vec<u64> {
        let runs = runs as u64;
        match self {
            Layout::NineTenths if runs > 1 => {
                let first = rows * 9 / 10;
                let rest = (0..runs).map(|run| first + (rows - first) * run / (runs - 1));
                std::iter::once(0).chain(rest).collect()
            }
            _ => (0..=runs).map(|run| rows * run / runs).collect(),
        }
    }
}

/// A permutation of the 64-bit numbers (the finalizer of splitmix64).
pub(super) fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The key of a row: 16 bytes in no order that the row's number has, behind the id of the first tree.
#[inline]
pub(super) fn key(row: u64) -> Key {
    let mut key = [0; KEY_LEN];
    key[3] = 1;
    key[4..12].copy_from_slice(&mix(row).to_be_bytes());
    key[12..].copy_from_slice(&mix(!row).to_be_bytes());
    key
}

/// The first key of one of so many equal parts of the keyspace.
pub(super) fn border(part: usize, parts: usize) -> Key {
    let mut key = [0; KEY_LEN];
    key[3] = 1;
    let head = (u128::from(part as u64) << 64) / parts as u128;
    key[4..12].copy_from_slice(&(head as u64).to_be_bytes());
    key
}

/// What a value begins with.
#[inline]
pub(super) fn stamp(row: u64) -> u64 {
    mix(row ^ 0x76a1_0e00_0000_0000)
}

/// The value of a row.
pub(super) fn value(row: u64) -> Value {
    let mut value = [0; VALUE_LEN];
    let mut word = stamp(row);
    for chunk in value.chunks_exact_mut(8) {
        chunk.copy_from_slice(&word.to_le_bytes());
        word = word.rotate_left(23) ^ 0x5bd1_e995_97f4_a7c5;
    }
    value
}
