//! In-memory filters of unindexed runs.
//!
//! A get probes every unindexed run of its partition, almost always in vain. So flushes, and merges
//! of unindexed runs, build a filter of two bytes a key. It is never written to a file: only the
//! process that wrote the run has it.

use crate::base::{FileId, FileNumber, bloom_place};
use crate::cache::prefetch;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// 16 bits a key.
const KEYS_PER_WORD: usize = 4;

/// Maximum bytes of filters that wait for their run; the oldest are dropped. A flush of eight
/// million keys needs a quarter of this.
const WAITING_BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
pub struct KeyFilter {
    words: Box<[u64]>,
}

impl KeyFilter {
    pub fn of(hashes: &[u64]) -> KeyFilter {
        let mut words = vec![0; hashes.len() / KEYS_PER_WORD + 1].into_boxed_slice();
        for &hash in hashes {
            let (word, bits) = bloom_place(hash, words.len());
            words[word] |= bits;
        }
        KeyFilter { words }
    }

    #[inline(always)]
    pub fn may_contain(&self, hash: u64) -> bool {
        let (word, bits) = bloom_place(hash, self.words.len());
        self.words[word] & bits == bits
    }

    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.words[bloom_place(hash, self.words.len()).0]);
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

#[derive(Debug)]
struct Waiting {
    number: FileNumber,
    file: FileId,
    filter: KeyFilter,
}

/// Filters of runs that were written and not opened yet. Shared by all threads.
#[derive(Debug, Default)]
pub struct NewFilters {
    waiting: Mutex<VecDeque<Waiting>>,
}

impl NewFilters {
    pub(super) fn put(&self, number: FileNumber, file: FileId, filter: KeyFilter) {
        let mut waiting = self.waiting.lock();
        let mut bytes = filter.bytes() + waiting.iter().map(|other| other.filter.bytes()).sum::<usize>();
        while bytes > WAITING_BYTES_MAX
            && let Some(oldest) = waiting.pop_front()
        {
            bytes -= oldest.filter.bytes();
        }
        waiting.push_back(Waiting { number, file, filter });
    }

    pub fn take(&self, number: FileNumber, file: FileId) -> Option<KeyFilter> {
        let mut waiting = self.waiting.lock();
        let at = waiting.iter().position(|other| (other.number, other.file) == (number, file))?;
        waiting.remove(at).map(|taken| taken.filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::hash64;

    fn hash(key: u64) -> u64 {
        hash64(&key.to_le_bytes())
    }

    #[test]
    fn may_contain_of_own_keys_is_true_and_of_others_rarely() {
        for keys in [0, 1, 3, 100, 10_000] {
            let hashes: Vec<u64> = (0..keys).map(hash).collect();
            let filter = KeyFilter::of(&hashes);
            assert!(hashes.iter().all(|&hash| filter.may_contain(hash)));
            let passed = (keys..keys + 10_000).filter(|&key| filter.may_contain(hash(key))).count();
            assert!(passed < 300, "{passed} of 10,000 others pass a filter of {keys}");
            assert!(filter.bytes() as u64 <= 2 * keys + 8);
        }
    }

    #[test]
    fn take_of_filter_succeeds_once_for_its_file() {
        let filters = NewFilters::default();
        (0..200).for_each(|number| filters.put(number, 7, KeyFilter::of(&[number])));
        assert!(filters.take(100, 8).is_none() && filters.take(200, 7).is_none());
        for number in 0..200 {
            assert!(filters.take(number, 7).is_some_and(|filter| filter.may_contain(number)));
            assert!(filters.take(number, 7).is_none());
        }
    }

    #[test]
    fn put_above_limit_drops_oldest_filters() {
        let filters = NewFilters::default();
        let filter = || KeyFilter { words: vec![0; WAITING_BYTES_MAX / 32].into_boxed_slice() };
        (0..10).for_each(|number| filters.put(number, 7, filter()));
        let left: Vec<u64> = (0..10).filter(|&number| filters.take(number, 7).is_some()).collect();
        assert_eq!(left, [6, 7, 8, 9]);
    }
}
