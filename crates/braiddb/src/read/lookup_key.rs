use crate::{
    codec::{hash64, hash64_of_words},
    version::key_head,
};

/// An internal key with its hash and head (first eight bytes), from words where possible, to avoid
/// a wait for the freshly written key ([`hash64_of_words`]).
#[derive(Clone, Copy, Debug)]
pub struct LookupKey<'a> {
    key: &'a [u8],
    hash: u64,
    head: u64,
}

impl<'a> LookupKey<'a> {
    #[inline]
    pub fn of(key: &'a [u8]) -> LookupKey<'a> {
        debug_assert!(key.len() >= 4, "internal keys begin with a tree's id");
        LookupKey { key, hash: hash64(key), head: key_head(key) }
    }

    /// `key` equals `prefix` followed by `rest`.
    #[inline(always)]
    pub fn of_parts(key: &'a [u8], prefix: [u8; 4], rest: &'a [u8]) -> LookupKey<'a> {
        debug_assert_eq!(key, [&prefix, rest].concat());
        match LookupKey::hash_and_head_of_words(prefix, rest) {
            Some((hash, head)) => LookupKey { key, hash, head },
            None => LookupKey::of(key),
        }
    }

    /// `None` if the length does not allow hashing from words.
    #[inline(always)]
    pub fn hash_and_head_of_words(prefix: [u8; 4], rest: &[u8]) -> Option<(u64, u64)> {
        let (hash, first) = (hash64_of_words(prefix, rest)?, rest.first_chunk::<8>()?);
        Some((hash, u64::from(u32::from_be_bytes(prefix)) << 32 | u64::from_be_bytes(*first) >> 32))
    }

    #[inline(always)]
    pub fn key(self) -> &'a [u8] {
        self.key
    }

    #[inline(always)]
    pub fn hash(self) -> u64 {
        self.hash
    }

    #[inline(always)]
    pub fn head(self) -> u64 {
        self.head
    }
}
