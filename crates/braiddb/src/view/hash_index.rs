//! In-memory hash index of a view: maps the hash of a key to the position of its newest version.
//!
//! A background thread builds it once readers have searched the view often enough, or used the
//! index of a predecessor or neighbour. A get then reads one bucket and the entry, instead of the
//! last anchor level, a segment record and the entry.
//!
//! ```text
//! bucket  15 words of one key each; a last word with two more tag bits of each key, and its top bit
//!         set if the bucket overflowed
//! word    tag, block, place, from high bits to low; 0 if unused
//! block   number counted through all runs, in each from the first block that the view refers to
//! place   byte offset of the entry in its block if all words have one (direct offsets), else its slot
//! tag     the remaining bits, from the key's hash, never 0; two more bits are in the last word
//! ```
//!
//! Direct offsets need blocks that are read in place and are at most a page long or have one entry,
//! and at most 65,536 blocks, to leave bits for tags. A get then skips the slots at the block's
//! end.
//!
//! INVARIANT H1: the bucket of each key that the view shows at its newest snapshot has the key's
//! newest version, or is marked as overflowed. So a bucket without key and mark proves absence.

use super::simd::{Simd, Words, match_words_twice};
use crate::base::{EntryRef, Result};
use crate::cache::prefetch;
use crate::platform::pages::{Line, Zeroed, bytes_in_huge_pages};
use crate::table::{EntryOffset, Moment, OFFSET_BITS, Position, Run};
use crossbeam_epoch::Guard;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

const LAST: usize = 15;
const LEFT_OUT: u32 = 1 << 31;
/// Average keys in a bucket of 15. About one key in 80 overflows.
const KEYS_PER_BUCKET: u64 = 11;
/// Minimum tag bits with slots. Fewer bits give too many false candidates.
const TAG_BITS_MIN: u32 = 6;
/// Minimum tag bits with direct offsets. With two more in the last word, one in six gets of absent
/// keys reads an entry in vain, which costs less than slot lookups.
const EXACT_TAG_BITS_MIN: u32 = 4;

type Bucket = Line;

#[derive(Clone, Debug)]
struct Fields {
    has_direct_offsets: bool,
    place_bits: u32,
    position_bits: u32,
    spans: Box<[Span]>,
}

/// Blocks of a run: the number of blocks before it, and its first block.
#[derive(Clone, Copy, Debug)]
struct Span {
    before: u32,
    first: u16,
}

#[derive(Debug)]
pub(crate) struct HashIndex {
    buckets: Zeroed<Bucket>,
    fields: Fields,
    is_used: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a>(&'a Words);

#[derive(Clone, Copy)]
pub(crate) struct Candidates<'a> {
    words: &'a Words,
    lanes: u32,
    /// Number of bits of `lanes` for each word. A word's lowest bit says whether it matches.
    bits_per_lane: u32,
    is_complete: bool,
}

/// A view's part of a run: first and last block, and the maximum entries of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) blocks: (u16, u16),
    pub(crate) block_entries: u16,
    pub(crate) has_offsets: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) run: usize,
    pub(crate) block: u16,
    pub(crate) slot: u16,
    pub(crate) offset: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) run: usize,
    pub(crate) block: u16,
    place: u16,
}

fn bits(greatest: u32) -> u32 {
    32 - greatest.leading_zeros()
}

pub(crate) fn index_bytes(keys: u64) -> usize {
    bytes_in_huge_pages((keys / KEYS_PER_BUCKET + 1) as usize * size_of::<Bucket>())
}

impl HashIndex {
    /// Creates an empty index for `keys` keys; `None` if positions need too many bits.
    pub(crate) fn new(keys: u64, parts: &[Part]) -> Option<HashIndex> {
        let slots = parts.iter().map(|part| part.block_entries.saturating_sub(1)).max().unwrap_or(0);
        let mut blocks = 0;
        let span = |part: &Part| {
            let span = Span { before: blocks, first: part.blocks.0 };
            blocks += u32::from(part.blocks.1.saturating_sub(part.blocks.0)) + 1;
            span
        };
        let spans: Box<[Span]> = parts.iter().map(span).collect();
        let block_bits = bits(blocks.saturating_sub(1));
        let has_offsets = parts.iter().all(|part| part.has_offsets);
        let has_direct_offsets = has_offsets && block_bits + OFFSET_BITS <= 32 - EXACT_TAG_BITS_MIN;
        let (place_bits, tag_bits_min) =
            if has_direct_offsets { (OFFSET_BITS, EXACT_TAG_BITS_MIN) } else { (bits(slots.into()), TAG_BITS_MIN) };
        let position_bits = block_bits + place_bits;
        if position_bits > 32 - tag_bits_min {
            return None;
        }
        let buckets = u32::try_from(keys / KEYS_PER_BUCKET + 1).ok()?;
        Some(HashIndex {
            buckets: Zeroed::in_huge_pages(buckets as usize),
            fields: Fields { has_direct_offsets, place_bits, position_bits, spans },
            is_used: AtomicBool::new(false),
        })
    }

    #[inline(always)]
    pub(crate) fn insert(&mut self, simd: Simd, hash: u64, site: Site) {
        let fields = &self.fields;
        let span = fields.spans[site.run];
        let block = span.before + u32::from(site.block - span.first);
        let place = if fields.has_direct_offsets { site.offset } else { site.slot };
        if bits(place.into()) > fields.place_bits {
            // The place does not fit: mark the bucket, so that gets search the view.
            let at = self.bucket_of(hash);
            self.buckets[at].0[LAST] |= LEFT_OUT;
            return;
        }
        let word = block << fields.place_bits | u32::from(place);
        let word = word | self.tag(hash);
        let at = self.bucket_of(hash);
        let words = &mut self.buckets[at].0;
        let free = (simd.match_words(words, u32::MAX, 0) & !(1 << LAST)).trailing_zeros() as usize;
        if free < LAST {
            words[free] = word;
            words[LAST] |= low_tag(hash) << (2 * free);
        } else {
            words[LAST] |= LEFT_OUT;
        }
    }

    #[inline(always)]
    pub(crate) fn find(&self, simd: Simd, hash: u64) -> Candidates<'_> {
        let words = &self.buckets[self.bucket_of(hash)].0;
        let matching = simd.match_words(words, u32::MAX << self.fields.position_bits, self.tag(hash));
        let last = words[LAST];
        let others = last ^ (low_tag(hash) * 0x5555_5555);
        let (mut rest, mut lanes) = (matching & !(1 << LAST), 0);
        while rest != 0 {
            let lane = rest.trailing_zeros();
            rest &= rest - 1;
            lanes |= u32::from(others >> (2 * lane) & 0b11 == 0) << lane;
        }
        Candidates { words, lanes, bits_per_lane: 1, is_complete: last & LEFT_OUT == 0 }
    }

    #[inline(always)]
    pub(crate) fn ask(&self, hash: u64) -> Asked<'_> {
        let bucket = &self.buckets[self.bucket_of(hash)];
        prefetch(bucket);
        Asked(&bucket.0)
    }

    /// [`HashIndex::find`] without dispatch or data-dependent loop, so the next get can start.
    #[inline(always)]
    pub(crate) fn find_at_once<'a>(&self, hash: u64, Asked(words): Asked<'a>) -> Candidates<'a> {
        let matching = match_words_twice(words, u32::MAX << self.fields.position_bits, self.tag(hash));
        let last = words[LAST];
        let others = last ^ (low_tag(hash) * 0x5555_5555);
        // One even bit for each of the first 15 words whose two low tag bits match.
        let equal = !(others | others >> 1) & 0x1555_5555;
        Candidates { words, lanes: matching & equal, bits_per_lane: 2, is_complete: last & LEFT_OUT == 0 }
    }

    #[inline(always)]
    pub(crate) fn decode(&self, word: u32) -> Word {
        let fields = &self.fields;
        let word = word & !(u32::MAX << fields.position_bits);
        let block = word >> fields.place_bits;
        let mut run = 0;
        for span in fields.spans.iter().skip(1) {
            run += usize::from(span.before <= block);
        }
        let Span { before, first } = fields.spans.get(run).copied().unwrap_or(Span { before: 0, first: 0 });
        let place = word & !(u32::MAX << fields.place_bits);
        Word { run, block: first.wrapping_add((block - before) as u16), place: place as u16 }
    }

    /// The sequence number of a plain value is valid only `with_sequence`. `None` if `runs` are not
    /// the view's.
    #[inline(always)]
    pub(crate) fn read<'g>(
        &self,
        word: u32,
        runs: &[Arc<Run>],
        with_sequence: bool,
        guard: &'g Guard,
    ) -> Option<Result<EntryRef<'g>>> {
        let Word { run, block, place } = self.decode(word);
        let run = runs.get(run)?;
        Some(match self.fields.has_direct_offsets {
            true => run.read_at(EntryOffset { block, offset: place }, with_sequence, guard),
            false => run.read(Position { block, slot: place }, guard),
        })
    }

    /// Returns the entry if its block is in place and recently checked. A plain value's sequence
    /// number is undefined.
    #[inline(always)]
    pub(crate) fn entry_in_place<'r>(&self, word: u32, runs: &'r [Arc<Run>], now: Moment) -> Option<EntryRef<'r>> {
        let (run, entry_offset) = self.entry_offset(word);
        runs.get(run)?.entry_at_hand(entry_offset, now)
    }

    /// [`HashIndex::entry_in_place`] for plain entries whose key has `key_len` bytes.
    #[inline(always)]
    pub(crate) fn plain_in_place<'r>(
        &self,
        word: u32,
        runs: &'r [Arc<Run>],
        key_len: usize,
        now: Moment,
    ) -> Option<(&'r [u8], &'r [u8])> {
        let (run, entry_offset) = self.entry_offset(word);
        runs.get(run)?.plain_at_hand(entry_offset, key_len, now)
    }

    /// Needs direct offsets.
    #[inline(always)]
    pub(crate) fn entry_offset(&self, word: u32) -> (usize, EntryOffset) {
        let Word { run, block, place } = self.decode(word);
        (run, EntryOffset { block, offset: place })
    }

    /// Prefetches for [`HashIndex::read`]: first (`queue`) the slot, then the entry; with direct
    /// offsets both at once.
    #[inline(always)]
    pub(crate) fn prefetch_entry(&self, Word { block, place, .. }: Word, run: &Run, queue: bool) {
        match (self.fields.has_direct_offsets, queue) {
            (true, true) => {
                run.prefetch_slot(block);
                run.prefetch_at(EntryOffset { block, offset: place });
            }
            (true, false) => {}
            (false, true) => run.prefetch_soon(Position { block, slot: place }),
            (false, false) => run.prefetch(Position { block, slot: place }),
        }
    }

    #[cold]
    pub(crate) fn prefetch_entries(&self, candidates: Candidates<'_>, runs: &[Arc<Run>]) {
        for word in candidates {
            let word = self.decode(word);
            if let Some(run) = runs.get(word.run) {
                self.prefetch_entry(word, run, true);
            }
        }
    }

    /// Only the first thread writes, so the flag's line stays shared.
    #[inline(always)]
    pub(crate) fn note_use(&self) {
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn has_direct_offsets(&self) -> bool {
        self.fields.has_direct_offsets
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        prefetch(&self.buckets[self.bucket_of(hash)]);
    }

    pub(crate) fn resident_bytes(&self) -> usize {
        self.buckets.bytes() + size_of_val(&*self.fields.spans) + size_of::<HashIndex>()
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

#[inline(always)]
fn low_tag(hash: u64) -> u32 {
    hash as u32 & 0b11
}

impl Candidates<'_> {
    #[inline(always)]
    pub(crate) fn is_one(&self) -> bool {
        self.lanes & self.lanes.wrapping_sub(1) == 0
    }

    /// True if a key that matches no candidate is not in the view.
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
        let lane = (self.lanes.trailing_zeros() / self.bits_per_lane) as usize;
        self.lanes &= self.lanes - 1;
        Some(self.words[lane % self.words.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::hash64;

    fn parts(runs: usize, blocks: u16, block_entries: u16, has_offsets: bool) -> Vec<Part> {
        let part = |run: usize| Part { blocks: (run as u16 * 7, run as u16 * 7 + blocks), block_entries, has_offsets };
        (0..runs).map(part).collect()
    }

    #[test]
    fn hash_index_after_insert_finds_key_or_full_bucket() {
        let shapes =
            [(1, 0, 1), (1, 65_535, 255), (3, 100, 27), (24, 8_000, 30), (32, 1, 1), (2, 8_000, 30), (1, 16_383, 255)];
        for ((runs, blocks, entries), has_offsets) in
            shapes.into_iter().flat_map(|shape| [(shape, false), (shape, true)])
        {
            let parts = parts(runs, blocks.min(65_535 - 7 * runs as u16 + 7), entries, has_offsets);
            let keys = 5_000u64;
            let mut index = HashIndex::new(keys, &parts).unwrap();
            assert_eq!(index.has_direct_offsets(), has_offsets && (usize::from(blocks) + 1) * runs <= 1 << 16);
            let site = |key: u64| {
                let part = parts[key as usize % runs];
                let blocks = u64::from(part.blocks.1 - part.blocks.0) + 1;
                let block = part.blocks.0 + (key * 7919 % blocks) as u16;
                let (slot, offset) = ((key % u64::from(entries)) as u16, (key * 31 % 4096) as u16);
                Site { run: key as usize % runs, block, slot, offset }
            };
            for key in 0..keys {
                let simd = if key % 2 == 0 { Simd::Portable } else { Simd::detect() };
                index.insert(simd, hash64(&key.to_le_bytes()), site(key));
            }
            let (mut left_out, mut others) = (0, 0);
            for simd in [Simd::Portable, Simd::detect()] {
                for key in 0..2 * keys {
                    let found = index.find(simd, hash64(&key.to_le_bytes()));
                    let at_once = index.find_at_once(hash64(&key.to_le_bytes()), index.ask(hash64(&key.to_le_bytes())));
                    assert_eq!(at_once.is_complete(), found.is_complete());
                    assert!(at_once.eq(found), "key {key} of {runs} runs");
                    let Site { run, block, slot, offset } = site(key);
                    let decode = Word { run, block, place: if index.has_direct_offsets() { offset } else { slot } };
                    let is_found = found.into_iter().any(|word| index.decode(word) == decode);
                    if key < keys {
                        assert!(is_found || !found.is_complete(), "key {key} of {runs} runs");
                        left_out += u64::from(!is_found);
                    }
                    others += found.count() as u64 - u64::from(is_found && key < keys);
                }
            }
            assert!(left_out < 2 * keys / 40, "{left_out} keys without room");
            // False candidates: one in 256 for each of 11 keys; with direct offsets and many
            // blocks, one in 64.
            let others_max = if index.fields.position_bits > 26 { keys } else { keys / 2 };
            assert!(others < others_max, "{others} false candidates of {runs} runs");
        }
    }

    #[test]
    fn hash_index_with_too_many_position_bits_is_refused() {
        assert!(HashIndex::new(1000, &parts(2, 65_000, 255, true)).is_some());
        assert!(HashIndex::new(1000, &parts(5, 65_000, 255, true)).is_none());
    }
}
