//! Queue of memory ranges to prefetch little by little.
//!
//! A processor has few outstanding line requests: a hundred at once stall it.

use super::{Ahead, arena::LINE_BYTES};
use std::ops::Range;

/// Maximum ranges. Further ones are prefetched at once.
const RANGES: usize = 4;

/// Address ranges, prefetched in order. Any address is allowed.
#[derive(Debug, Default)]
pub struct PrefetchQueue {
    ranges: [Range<usize>; RANGES],
    at: u32,
    end: u32,
}

impl PrefetchQueue {
    #[inline]
    pub fn add(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        match self.ranges.get_mut(self.end as usize) {
            Some(free) => {
                *free = range;
                self.end += 1;
            }
            None => prefetch_range(range),
        }
    }

    /// `LINES` lines even if the range ends earlier.
    #[inline(always)]
    pub fn prefetch<const LINES: usize>(&mut self) {
        if self.at == self.end {
            return;
        }
        let range = &mut self.ranges[self.at as usize % RANGES];
        Ahead::from_address(range.start).prefetch::<LINES>(0);
        range.start = range.start.saturating_add(LINES * LINE_BYTES);
        if range.start >= range.end {
            self.pass();
        }
    }

    #[inline]
    pub fn prefetch_all(&mut self) {
        while self.at != self.end {
            prefetch_range(self.ranges[self.at as usize % RANGES].clone());
            self.pass();
        }
    }

    #[inline]
    fn pass(&mut self) {
        self.at += 1;
        if self.at == self.end {
            self.clear();
        }
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.at == self.end
    }

    #[cfg(test)]
    pub fn bytes_left(&self) -> usize {
        self.ranges[self.at as usize..self.end as usize].iter().map(|range| range.end.saturating_sub(range.start)).sum()
    }

    #[inline]
    pub fn clear(&mut self) {
        (self.at, self.end) = (0, 0);
    }
}

fn prefetch_range(range: Range<usize>) {
    for line in range.step_by(LINE_BYTES) {
        Ahead::from_address(line).prefetch::<1>(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(prefetches: &PrefetchQueue) -> Vec<(usize, usize)> {
        prefetches.ranges[prefetches.at as usize..prefetches.end as usize]
            .iter()
            .map(|range| (range.start, range.end))
            .collect()
    }

    #[test]
    fn prefetch_of_several_ranges_keeps_their_order() {
        let mut prefetches = PrefetchQueue::default();
        prefetches.prefetch::<4>();
        assert_eq!(left(&prefetches), []);
        prefetches.add(640..1000);
        prefetches.add(64..64);
        prefetches.add(6400..6528);
        prefetches.prefetch::<4>();
        assert_eq!(left(&prefetches), [(896, 1000), (6400, 6528)]);
        prefetches.prefetch::<4>();
        assert_eq!(left(&prefetches), [(6400, 6528)]);
        prefetches.prefetch::<2>();
        assert_eq!(left(&prefetches), []);
        prefetches.prefetch::<2>();
        prefetches.add(128..256);
        assert_eq!(left(&prefetches), [(128, 256)]);
        prefetches.prefetch_all();
        assert_eq!(left(&prefetches), []);
    }

    #[test]
    fn add_to_full_queue_keeps_nothing() {
        let mut prefetches = PrefetchQueue::default();
        for at in 0..2 * RANGES {
            prefetches.add(at * 64..at * 64 + 64);
        }
        assert_eq!(left(&prefetches).len(), RANGES);
        (1..RANGES).for_each(|_| prefetches.prefetch::<1>());
        prefetches.add(0..64);
        assert_eq!(left(&prefetches), [((RANGES - 1) * 64, RANGES * 64)], "room comes back with the last");
        prefetches.prefetch::<1>();
        assert_eq!(left(&prefetches), []);
        prefetches.add(0..64);
        assert_eq!(left(&prefetches), [(0, 64)]);
    }

    #[test]
    fn prefetch_of_any_address_does_not_fault() {
        let mut prefetches = PrefetchQueue::default();
        prefetches.add(usize::MAX - 100..usize::MAX);
        prefetches.prefetch::<1>();
        prefetches.prefetch_all();
        assert_eq!(left(&prefetches), []);
        prefetches.add(usize::MAX - 100..usize::MAX);
        prefetches.prefetch::<8>();
        assert_eq!(left(&prefetches), []);
    }
}
