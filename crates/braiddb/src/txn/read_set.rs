//! What a transaction has read: keys, whether they were there or not, and ranges.
//!
//! Keys are appended as they are read, a few nanoseconds each; now and then those read more than once are thrown out. For
//! checks they are known by their hashes: two keys of one hash make a transaction fail that could have gone on, once in 2^64
//! pairs, and never one go on that must fail.

use super::Intervals;
use crate::codec::hash64;

/// Repeated keys are first thrown out at so many bytes.
const TIDY_BYTES_MIN: usize = 64 << 10;

/// What stands before each key.
const LEN_BYTES: usize = size_of::<u32>();

/// A range that is being read, and grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeSlot(usize);

/// What was read.
#[derive(Debug, Default)]
pub struct ReadSet {
    /// Each key, after its length.
    keys: Vec<u8>,
    /// Where the last one begins.
    last: usize,
    /// At so many bytes repeated keys are thrown out.
    tidy_at: usize,
    /// Ranges that grow no more.
    ranges: Intervals,
    /// Those that may; a place that is free is empty.
    growing: Vec<Option<(Vec<u8>, Vec<u8>)>>,
    /// Of all keys, in order; empty until [`ReadSet::seal`].
    hashes: Vec<u64>,
}

impl ReadSet {
    /// Notes that a key was looked up.
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

    /// Notes that a range begins to be read, from either end: nothing of it so far.
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

    /// All before `end`, and from the range's start on, was read.
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

    /// All from `start` on, and before the range's end, was read.
    #[inline]
    pub fn grow_start(&mut self, slot: RangeSlot, start: &[u8]) {
        if let Some((reach, _)) = &mut self.growing[slot.0] {
            reach.clear();
            reach.extend_from_slice(start);
        }
    }

    /// The range grows no more.
    pub fn end_range(&mut self, slot: RangeSlot) {
        if let Some((start, end)) = self.growing[slot.0].take() {
            self.ranges.add(start, end);
        }
    }

    /// Whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty() && self.growing.iter().all(Option::is_none)
    }

    /// Bytes of memory that it takes, about.
    pub fn size_bytes(&self) -> usize {
        self.keys.len() + self.ranges.size_bytes()
    }

    /// The keys, some perhaps more than once.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.keys.as_slice();
        std::iter::from_fn(move || {
            let (len, after) = rest.split_first_chunk::<LEN_BYTES>()?;
            let (key, after) = after.split_at(u32::from_le_bytes(*len) as usize);
            rest = after;
            Some(key)
        })
    }

    /// The ranges. Those that still grew when it was sealed are among them.
    pub fn ranges(&self) -> &Intervals {
        &self.ranges
    }

    /// Nothing more will be read: makes it ready to be checked.
    pub fn seal(&mut self) {
        for range in self.growing.drain(..).flatten() {
            self.ranges.add(range.0, range.1);
        }
        let mut hashes: Vec<u64> = self.keys().map(hash64).collect();
        hashes.sort_unstable();
        hashes.dedup();
        self.hashes = hashes;
    }

    /// Whether a key of this hash was looked up, or the key lies in a range that was read. The set is sealed.
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

    /// Whether a key that was looked up lies in `start..end`, or the range meets one that was read. The set is sealed.
    pub fn meets(&self, start: &[u8], end: &[u8]) -> bool {
        self.ranges.meets(start, end) || self.keys().any(|key| start <= key && key < end)
    }

    /// Throws out what is there more than once.
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
