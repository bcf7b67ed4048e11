//! The reads of a transaction: keys, found or not, and ranges.
//!
//! Keys are appended as they are read; repeated ones are removed now and then. Checks compare
//! hashes: a collision, once in 2^64 pairs, makes a transaction fail needlessly, but never hides a
//! conflict.

use super::Intervals;
use crate::codec::hash64;

/// Minimum bytes of keys at which repeated ones are removed.
const TIDY_BYTES_MIN: usize = 64 << 10;

const LEN_BYTES: usize = size_of::<u32>();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeSlot(usize);

#[derive(Debug, Default)]
pub struct ReadSet {
    keys: Vec<u8>,
    last: usize,
    tidy_at: usize,
    ranges: Intervals,
    /// Ranges still being read; free places are `None`.
    growing: Vec<Option<(Vec<u8>, Vec<u8>)>>,
    /// Sorted hashes of all keys; empty until [`ReadSet::seal`].
    hashes: Vec<u64>,
}

impl ReadSet {
    #[inline]
    pub fn add_key(&mut self, key: &[u8]) {
        if !self.keys.is_empty() && self.keys[self.last + LEN_BYTES..] == *key {
            return;
        }
        if self.keys.len() >= self.tidy_at.max(TIDY_BYTES_MIN) {
            self.tidy();
        }
        self.last = self.keys.len();
        self.keys.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.keys.extend_from_slice(key);
    }

    /// Begins an empty range at `at`, to be read in either direction.
    pub fn begin_range(&mut self, at: &[u8]) -> RangeSlot {
        let range = Some((at.to_vec(), at.to_vec()));
        match self.growing.iter().position(Option::is_none) {
            Some(free) => {
                self.growing[free] = range;
                RangeSlot(free)
            }
            None => {
                self.growing.push(range);
                RangeSlot(self.growing.len() - 1)
            }
        }
    }

    #[inline]
    pub fn grow_end(&mut self, slot: RangeSlot, end: &[u8], is_inclusive: bool) {
        if let Some((_, reach)) = &mut self.growing[slot.0] {
            reach.clear();
            reach.extend_from_slice(end);
            if is_inclusive {
                reach.push(0);
            }
        }
    }

    #[inline]
    pub fn grow_start(&mut self, slot: RangeSlot, start: &[u8]) {
        if let Some((reach, _)) = &mut self.growing[slot.0] {
            reach.clear();
            reach.extend_from_slice(start);
        }
    }

    pub fn add_range(&mut self, start: &[u8], end: &[u8]) {
        self.ranges.add(start.to_vec(), end.to_vec());
    }

    pub fn end_range(&mut self, slot: RangeSlot) {
        if let Some((start, end)) = self.growing[slot.0].take() {
            self.ranges.add(start, end);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty() && self.growing.iter().all(Option::is_none)
    }

    pub fn size_bytes(&self) -> usize {
        self.keys.len() + self.ranges.size_bytes()
    }

    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.keys.as_slice();
        std::iter::from_fn(move || {
            let (len, after) = rest.split_first_chunk::<LEN_BYTES>()?;
            let (key, after) = after.split_at(u32::from_le_bytes(*len) as usize);
            rest = after;
            Some(key)
        })
    }

    pub fn ranges(&self) -> &Intervals {
        &self.ranges
    }

    pub fn seal(&mut self) {
        for range in self.growing.drain(..).flatten() {
            self.ranges.add(range.0, range.1);
        }
        let mut hashes: Vec<u64> = self.keys().map(hash64).collect();
        hashes.sort_unstable();
        hashes.dedup();
        self.hashes = hashes;
    }

    /// True if a key of this hash was read, or a range with the key. The set is sealed.
    #[inline]
    pub fn has_key(&self, key: &[u8]) -> bool {
        let hash = hash64(key);
        let was_looked_up = match self.hashes.as_slice() {
            [] => false,
            [only] => *only == hash,
            hashes => hashes.binary_search(&hash).is_ok(),
        };
        was_looked_up || self.ranges.covering(key).is_some()
    }

    /// True if a key in `start..end` was read, or an overlapping range. The set is sealed.
    pub fn meets(&self, start: &[u8], end: &[u8]) -> bool {
        self.ranges.meets(start, end) || self.keys().any(|key| start <= key && key < end)
    }

    #[cold]
    fn tidy(&mut self) {
        let mut keys: Vec<&[u8]> = self.keys().collect();
        keys.sort_unstable();
        keys.dedup();
        let mut tidied = Vec::with_capacity(self.keys.len());
        let mut last = 0;
        for key in keys {
            last = tidied.len();
            tidied.extend_from_slice(&(key.len() as u32).to_le_bytes());
            tidied.extend_from_slice(key);
        }
        (self.keys, self.last) = (tidied, last);
        self.tidy_at = 2 * self.keys.len();
    }
}
