//! Lines of memory that will be read soon, asked for little by little.
//!
//! A processor has room for few lines on their way to it, whatever cache they come into. Who asks for a hundred at once waits until there is
//! room, and does nothing else; who asks for a few as each row is passed works while they come.

use super::{Ahead, arena::LINE_BYTES};
use std::ops::Range;

/// How many ranges are kept; what has no room is asked for at once.
const RANGES: usize = 4;

/// Ranges of addresses that are asked for in order. They are only ever fetched, by and for nothing else, so they may lie anywhere; but
/// whoever asks for all of one asks for each of its lines.
#[derive(Debug, Default)]
pub struct PrefetchQueue {
    ranges: [Range<usize>; RANGES],
    at: u32,
    end: u32,
}

impl PrefetchQueue {
    /// Adds a range, after all that are there; if there is no room, it is asked for now.
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

    /// Asks for the next lines of the first range, so many even if that ends before.
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

    /// Asks for all that is left.
    #[inline]
    pub fn prefetch_all(&mut self) {
        while self.at != self.end {
            prefetch_range(self.ranges[self.at as usize % RANGES].clone());
            self.pass();
        }
    }

    /// Goes on to the next range, if there is one.
    #[inline]
    fn pass(&mut self) {
        self.at += 1;
        if self.at == self.end {
            self.clear();
        }
    }

    /// Whether nothing is left to be asked for.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.at == self.end
    }

    /// How many bytes are left to be asked for.
    #[cfg(test)]
    pub fn bytes_left(&self) -> usize {
        self.ranges[self.at as usize..self.end as usize].iter().map(|range| range.end.saturating_sub(range.start)).sum()
    }

    /// Forgets all.
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
    fn ranges_are_passed_in_order() {
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
    fn what_has_no_room_is_not_kept() {
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
    fn addresses_may_be_any() {
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
