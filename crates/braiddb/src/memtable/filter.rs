//! A Bloom filter ([`bloom_place`]) over the key hashes of a memtable.
//!
//! One thread writes. Bits are set before the entry is published, so readers need no other
//! ordering.

use super::{chunk_pool::ChunkPool, search};
use crate::base::bloom_place;
use crate::platform::pages::Zeroed;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

#[derive(Debug)]
pub(super) struct Filter {
    words: Zeroed<AtomicU64>,
    pool: Option<Arc<ChunkPool>>,
}

impl Filter {
    pub fn new(bytes: usize, pool: Option<Arc<ChunkPool>>) -> Filter {
        let filter = Filter { words: Zeroed::new(bytes / size_of::<AtomicU64>()), pool };
        if let Some(pool) = &filter.pool {
            pool.note_taken(filter.bytes());
            if pool.bytes() > 0 {
                // Under write load most of the filter will be written: allocate all pages at once.
                filter.words.populate();
            }
        }
        filter
    }

    pub fn bytes(&self) -> usize {
        self.words.bytes()
    }

    pub fn insert(&self, hash: u64) {
        let (word, bits) = self.place(hash);
        // With one writer, no update is lost between load and store.
        word.store(word.load(Relaxed) | bits, Relaxed);
    }

    pub fn prefetch(&self, hash: u64) {
        search::prefetch(std::ptr::from_ref(self.place(hash).0).cast());
    }

    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let (word, bits) = self.place(hash);
        word.load(Relaxed) & bits == bits
    }

    #[inline]
    fn place(&self, hash: u64) -> (&AtomicU64, u64) {
        let (word, bits) = bloom_place(hash, self.words.len());
        (&self.words[word], bits)
    }
}
impl Drop for Filter {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.note_given_back(self.bytes());
        }
    }
}
