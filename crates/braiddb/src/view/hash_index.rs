//! Where keys stand, by their hashes: what gets use instead of a search, once many were made.
//!
//! The index is a table of buckets of one cache line, in memory alone. It is made of a view by who works in the background
//! when readers have searched the view often enough to pay for it, and goes with the view. A get then reads one line of the
//! table and the entry; without it, it reads the anchors' last level and a segment's record instead of that line.
//!
//! ```text
//! bucket     15 words, each of one key; 1 word that is not 0 if keys had no room
//! word       tag, run, block, slot, from the high bits to the low; 0 if it is of no key
//! block      counted from the first that the view has of the run
//! tag        as many bits of the hash as are left, never 0
//! ```
//!
//! Each key that the view shows to who sees all is in its bucket with its newest version, unless the bucket had no room:
//! so a full bucket without the key tells nothing, and any other that the key is not there.

use super::simd::{Simd, Words};
use crate::cache::prefetch;
use crate::table::Position;

/// The last word of a bucket says whether keys had no room.
const LEFT_OUT: usize = 15;
/// How many keys there are to a bucket. Of buckets with one in ten more than they have room for, about one key in eighty
/// has none.
const KEYS_PER_BUCKET: u64 = 11;
/// With fewer bits, tags say too little.
const TAG_BITS_MIN: u32 = 6;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket(Words);

/// How positions are told in a word: see the module's text.
#[derive(Clone, Debug)]
struct Fields {
    slot_bits: u32,
    block_bits: u32,
    position_bits: u32,
    /// The first block of each run.
    first_blocks: Vec<u16>,
}

/// The index of a view.
#[derive(Debug)]
pub(crate) struct HashIndex {
    buckets: Box<[Bucket]>,
    fields: Fields,
}

/// The words of a bucket that may be of a key.
#[derive(Clone, Copy)]
pub(crate) struct Candidates<'a> {
    words: &'a Words,
    lanes: u32,
    is_complete: bool,
}

/// The part of a run that a view has: its first block, and the one it goes on to; and the most entries of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) blocks: (u16, u16),
    pub(crate) block_entries: u16,
}

fn bits(greatest: u32) -> u32 {
    32 - greatest.leading_zeros()
}

/// How many bytes an index of so many keys takes.
pub(crate) fn index_bytes(keys: u64) -> usize {
    (keys / KEYS_PER_BUCKET + 1) as usize * size_of::<Bucket>()
}

impl HashIndex {
    /// An empty index for so many keys of the runs of a view. `None` if their positions take too many bits.
    pub(crate) fn new(keys: u64, parts: &[Part]) -> Option<HashIndex> {
        let slots = parts.iter().map(|part| part.block_entries.saturating_sub(1)).max().unwrap_or(0);
        let blocks = parts.iter().map(|part| part.blocks.1.saturating_sub(part.blocks.0)).max().unwrap_or(0);
        let (slot_bits, block_bits) = (bits(slots.into()), bits(blocks.into()));
        let position_bits = slot_bits + block_bits + bits(u32::try_from(parts.len()).ok()?.saturating_sub(1));
        if position_bits > 32 - TAG_BITS_MIN {
            return None;
        }
        let buckets = u32::try_from(keys / KEYS_PER_BUCKET + 1).ok()?;
        Some(HashIndex {
            buckets: vec![Bucket([0; 16]); buckets as usize].into_boxed_slice(),
            fields: Fields {
                slot_bits,
                block_bits,
                position_bits,
                first_blocks: parts.iter().map(|part| part.blocks.0).collect(),
            },
        })
    }

    /// Takes in the newest version of a key.
    pub(crate) fn insert(&mut self, hash: u64, run: usize, position: Position) {
        let fields = &self.fields;
        let block = position.block - fields.first_blocks[run];
        debug_assert!(bits(block.into()) <= fields.block_bits && bits(position.slot.into()) <= fields.slot_bits);
        let word =
            (((run as u32) << fields.block_bits) | u32::from(block)) << fields.slot_bits | u32::from(position.slot);
        let word = word | self.tag(hash);
        let at = self.bucket_of(hash);
        let words = &mut self.buckets[at].0;
        match words[..LEFT_OUT].iter().position(|&word| word == 0) {
            Some(free) => words[free] = word,
            None => words[LEFT_OUT] = 1,
        }
    }

    /// Where a key with this hash may stand.
    #[inline(always)]
    pub(crate) fn find(&self, simd: Simd, hash: u64) -> Candidates<'_> {
        let words = &self.buckets[self.bucket_of(hash)].0;
        let lanes = simd.match_words(words, u32::MAX << self.fields.position_bits, self.tag(hash));
        Candidates { words, lanes: lanes & !(1 << LEFT_OUT), is_complete: words[LEFT_OUT] == 0 }
    }

    /// The run and the position that a word tells.
    #[inline(always)]
    pub(crate) fn place(&self, word: u32) -> (usize, Position) {
        let fields = &self.fields;
        let word = word & !(u32::MAX << fields.position_bits);
        let (run, rest) = (word >> (fields.block_bits + fields.slot_bits), word >> fields.slot_bits);
        let block = rest & !(u32::MAX << fields.block_bits);
        let first = fields.first_blocks.get(run as usize).copied().unwrap_or(0);
        let slot = word & !(u32::MAX << fields.slot_bits);
        (run as usize, Position { block: first.wrapping_add(block as u16), slot: slot as u16 })
    }

    /// Asks for the line that [`HashIndex::find`] will read.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        prefetch(&self.buckets[self.bucket_of(hash)]);
    }

    /// Bytes of memory held.
    pub(crate) fn resident_bytes(&self) -> usize {
        size_of_val(&*self.buckets) + self.fields.first_blocks.len() * size_of::<u16>() + size_of::<HashIndex>()
    }

    /// The high half of the hash chooses the bucket, the low half gives the tag.
    #[inline(always)]
    fn bucket_of(&self, hash: u64) -> usize {
        (((hash >> 32) * self.buckets.len() as u64) >> 32) as usize
    }

    #[inline(always)]
    fn tag(&self, hash: u64) -> u32 {
        let bits = self.fields.position_bits;
        (hash as u32 >> bits).max(1) << bits
    }
}

impl Candidates<'_> {
    /// Whether a key that is none of these is not in the view.
    #[inline(always)]
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }
}

impl Iterator for Candidates<'_> {
    type Item = u32;

    #[inline(always)]
    fn next(&mut self) -> Option<u32> {
        if self.lanes == 0 {
            return None;
        }
        let lane = self.lanes.trailing_zeros() as usize;
        self.lanes &= self.lanes - 1;
        Some(self.words[lane % self.words.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::hash64;

    fn parts(runs: usize, blocks: u16, block_entries: u16) -> Vec<Part> {
        (0..runs).map(|run| Part { blocks: (run as u16 * 7, run as u16 * 7 + blocks), block_entries }).collect()
    }

    #[test]
    fn what_is_taken_in_is_found_or_its_bucket_is_full() {
        for (runs, blocks, entries) in [(1, 0, 1), (1, 65_535, 255), (3, 100, 27), (24, 8_000, 30), (32, 1, 1)] {
            let parts = parts(runs, blocks.min(65_535 - 7 * runs as u16 + 7), entries);
            let keys = 5_000u64;
            let mut index = HashIndex::new(keys, &parts).unwrap();
            let place = |key: u64| {
                let part = parts[key as usize % runs];
                let blocks = u64::from(part.blocks.1 - part.blocks.0) + 1;
                let block = part.blocks.0 + (key * 7919 % blocks) as u16;
                (key as usize % runs, Position { block, slot: (key % u64::from(entries)) as u16 })
            };
            for key in 0..keys {
                let (run, position) = place(key);
                index.insert(hash64(&key.to_le_bytes()), run, position);
            }
            let (mut left_out, mut others) = (0, 0);
            for simd in [Simd::Portable, Simd::detect()] {
                for key in 0..2 * keys {
                    let found = index.find(simd, hash64(&key.to_le_bytes()));
                    let is_found = found.into_iter().any(|word| index.place(word) == place(key));
                    if key < keys {
                        assert!(is_found || !found.is_complete(), "key {key} of {runs} runs");
                        left_out += u64::from(!is_found);
                    }
                    others += found.count() as u64 - u64::from(is_found && key < keys);
                }
            }
            assert!(left_out < 2 * keys / 40, "{left_out} keys without room");
            assert!(others < 2 * 2 * keys / 4, "{others} false candidates of {runs} runs");
        }
    }

    #[test]
    fn positions_of_too_many_bits_are_refused() {
        assert!(HashIndex::new(1000, &parts(2, 65_000, 255)).is_some());
        assert!(HashIndex::new(1000, &parts(5, 65_000, 255)).is_none());
    }
}
