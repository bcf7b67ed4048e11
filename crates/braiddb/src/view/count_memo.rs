//! Caches key counts of ranges in a view.
//!
//! A table of one-line slots by the hash of the range's start; later ranges replace earlier ones.
//! It holds ranges of several segments whose end differs from their start only in the last byte, as
//! for a multi-tree's key. Bytes are compared, so counts are exact.

use crate::codec::hash64;
use parking_lot::RwLock;

/// Maximum bytes of a start; longer ones are not cached. Makes a slot one cache line.
const START_LEN_MAX: usize = 46;
const SHARES: usize = 16;
const SHARE_SLOTS_MAX: usize = 4096;
const SEGMENTS_PER_SLOT: usize = 2;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Slot {
    keys: u64,
    len: u8,
    end: u8,
    start: [u8; START_LEN_MAX],
}

const EMPTY: Slot = Slot { keys: 0, len: 0, end: 0, start: [0; START_LEN_MAX] };

#[derive(Debug)]
pub(super) struct CountMemo {
    shares: [RwLock<Box<[Slot]>>; SHARES],
    slots: usize,
}

#[derive(Clone, Copy)]
pub(super) struct MemoRange<'a> {
    start: &'a [u8],
    end: u8,
    hash: u64,
}

impl MemoRange<'_> {
    pub(super) fn of<'a>(start: &'a [u8], end: &[u8]) -> Option<MemoRange<'a>> {
        let ((_, front), (last, other)) = (start.split_last()?, end.split_last()?);
        if front == other { MemoRange::to_byte(start, *last) } else { None }
    }

    #[inline]
    pub(super) fn to_byte(start: &[u8], end: u8) -> Option<MemoRange<'_>> {
        (start.len() <= START_LEN_MAX).then(|| MemoRange { start, end, hash: hash64(start) })
    }
}

impl CountMemo {
    pub(super) fn new(segments: u32) -> CountMemo {
        let slots = (segments as usize / SEGMENTS_PER_SLOT / SHARES).clamp(1, SHARE_SLOTS_MAX);
        CountMemo { shares: std::array::from_fn(|_| RwLock::new(vec![EMPTY; slots].into_boxed_slice())), slots }
    }

    pub(super) fn resident_bytes(&self) -> usize {
        SHARES * self.slots * size_of::<Slot>()
    }

    fn place(&self, range: MemoRange<'_>) -> (&RwLock<Box<[Slot]>>, usize) {
        let share = (range.hash >> 60) as usize % SHARES;
        (&self.shares[share], (range.hash as u32 as usize) % self.slots)
    }

    pub(super) fn get(&self, range: MemoRange<'_>) -> Option<u64> {
        let (share, at) = self.place(range);
        let slot = &share.read()[at];
        let is_it = slot.end == range.end && slot.start[..usize::from(slot.len)] == *range.start;
        (is_it && slot.len > 0).then_some(slot.keys)
    }

    pub(super) fn put(&self, range: MemoRange<'_>, keys: u64) {
        let (share, at) = self.place(range);
        let mut slot = Slot { keys, len: range.start.len() as u8, end: range.end, ..EMPTY };
        slot.start[..range.start.len()].copy_from_slice(range.start);
        share.write()[at] = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_memo_after_put_returns_count_of_same_range_only() {
        for segments in [0, 64, 1_000_000] {
            let memo = CountMemo::new(segments);
            assert!(memo.resident_bytes() <= (64 * SHARES).max(32 * segments as usize));
            let key = |number: u32| [&number.to_be_bytes()[..], &[0, 1]].concat();
            for number in 0..2000 {
                let start = key(number);
                for end in [2, 3] {
                    let end = [&start[..start.len() - 1], &[end]].concat();
                    let range = MemoRange::of(&start, &end).unwrap();
                    assert_eq!(memo.get(range), None);
                    memo.put(range, u64::from(number) << 8 | u64::from(end[5]));
                    assert_eq!(memo.get(range), Some(u64::from(number) << 8 | u64::from(end[5])));
                }
            }
        }
        assert!(MemoRange::of(b"", b"").is_none() && MemoRange::of(b"a1", b"b2").is_none());
        assert!(MemoRange::of(b"a1", b"a22").is_none() && MemoRange::of(&[1; 47], &[1; 47]).is_none());
        assert!(MemoRange::of(&[1; 46], &[1; 46]).is_some());
    }
}
