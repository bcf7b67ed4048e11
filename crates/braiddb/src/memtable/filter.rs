//! A filter over the hashes of the keys in a memtable.
//!
//! A Bloom filter ([`bloom_place`]). One writer; readers need no more order than what makes the entry itself visible to them, since the bits are set
//! before the entry is published.

use super::{chunk_pool::ChunkPool, search};
use crate::base::bloom_place;
use crate::platform::pages::Zeroed;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

#[derive(Debug)]
pub(super) struct Filter {
    /// They take memory as they are written, unless the database is being written much: the filter of a memtable that stays small takes little.
    words: Zeroed<AtomicU64>,
    /// Where it is counted, if it is.
    pool: Option<Arc<ChunkPool>>,
}

impl Filter {
    /// An empty filter of about `bytes` bytes.
    pub fn new(bytes: usize, pool: Option<Arc<ChunkPool>>) -> Filter {
        let filter = Filter { words: Zeroed::new(bytes / size_of::<AtomicU64>()), pool };
        if let Some(pool) = &filter.pool {
            pool.note_taken(filter.bytes());
            if pool.bytes() > 0 {
                // The database is being written, and most of the filter will be. It would be read first, each time.
                filter.words.populate();
            }
        }
        filter
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        self.words.bytes()
    }

    /// Adds a key. Writer only.
    pub fn insert(&self, hash: u64) {
        let (word, bits) = self.place(hash);
        // There is one writer, so nothing is lost between the load and the store.
        word.store(word.load(Relaxed) | bits, Relaxed);
    }

    /// Asks for what [`Filter::insert`] will change.
    pub fn prefetch(&self, hash: u64) {
        search::prefetch(std::ptr::from_ref(self.place(hash).0).cast());
    }

    /// Whether a key with this hash may have been added.
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
