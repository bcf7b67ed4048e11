//! Multi-trees: many sorted values per key.
//!
//! Each pair is the key of an entry without a value. Escaped keys make pairs sort by key, then by
//! value, and never interleave:
//!
//! ```text
//! key with each 00 written as 00 FF | 00 01 | value
//! ```
//!
//! The terminator 00 01 sorts before any escaped continuation of the key. This encoding is final.

use super::cursor::MultiCursor;
use crate::{
    base::{Error, Result, SequenceNumber, TreeId},
    db::{
        engine::{
            catalog::TreeState,
            key::{KeyBuf, check_key},
            read_hold::Hold,
        },
        handles::{
            batch::Batch,
            counting::{count, count_kept},
            database::Db,
            key_range::KeyRange,
            tree::writes::{extend, pop},
        },
        record::bytes::{Key, Value},
    },
};
use std::{borrow::Cow, ops::Bound, sync::Arc};

pub(in crate::db) const TERMINATOR: [u8; 2] = [0, 1];

/// Sorts after every pair of an escaped key.
const AFTER_TERMINATOR: [u8; 2] = [0, 2];

/// Borrows keys without zero bytes.
pub(in crate::db) fn escape(key: &[u8]) -> Cow<'_, [u8]> {
    if find_zero(key).is_none() {
        return Cow::Borrowed(key);
    }
    let zeros = key.iter().filter(|&&byte| byte == 0).count();
    let mut out = Vec::with_capacity(key.len() + zeros);
    for &byte in key {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    Cow::Owned(out)
}

/// Sets a bit per zero byte. Bits above the lowest may be false positives.
#[inline]
fn zeros(word: [u8; 8]) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let word = u64::from_le_bytes(word);
    // Borrows propagate only upward, so the lowest bit is exact.
    word.wrapping_sub(ONES) & !word & (ONES << 7)
}

/// Scans eight bytes at a time.
#[inline]
fn find_zero(bytes: &[u8]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let zeros = zeros(*word);
        if zeros != 0 {
            return Some(8 * index + zeros.trailing_zeros() as usize / 8);
        }
    }
    rest.iter().position(|&byte| byte == 0).map(|at| 8 * words.len() + at)
}

/// Returns true if `at` splits a pair with an unescaped key. Faster than [`split`].
#[inline]
pub(in crate::db) fn is_split_at(bytes: &[u8], at: usize) -> bool {
    let Some((key, &TERMINATOR)) = bytes.get(..at).and_then(|front| front.split_last_chunk()) else { return false };
    // The last word may overlap the one before.
    let (words, _) = key.as_chunks::<8>();
    match key.last_chunk() {
        Some(last) => zeros(*last) == 0 && words.iter().all(|word| zeros(*word) == 0),
        None => !key.contains(&0),
    }
}

/// Returns the value's offset and whether the key is escaped; `None` if this is no pair.
pub fn split(bytes: &[u8]) -> Option<(usize, bool)> {
    let (mut at, mut is_escaped) = (0, false);
    loop {
        at += find_zero(&bytes[at..])?;
        match *bytes.get(at + 1)? {
            0xff => is_escaped = true,
            1 => return Some((at + 2, is_escaped)),
            _ => return None,
        }
        at += 2;
    }
}

/// Unescapes a key without terminator into the empty `out`.
pub fn unescape(escaped: &[u8], out: &mut Vec<u8>) {
    let mut rest = escaped;
    while let Some(at) = rest.iter().position(|&byte| byte == 0) {
        out.extend_from_slice(&rest[..=at]);
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
}

#[cold]
pub(in crate::db) fn no_pair(bytes: &[u8]) -> Error {
    Error::corruption("", 0, format!("a multi-tree holds the key b\"{}\", which is no pair", bytes.escape_ascii()))
}

#[inline]
pub(in crate::db) fn pair_key(tree: TreeId, key: &[u8], value: &[u8]) -> KeyBuf {
    KeyBuf::of_pieces(&[&tree.first_key(), &escape(key), &TERMINATOR, value])
}

pub(in crate::db) fn bounds_of(tree: TreeId, key: &[u8]) -> (KeyBuf, KeyBuf) {
    let escaped = escape(key);
    let bound = |after: &[u8]| KeyBuf::of_pieces(&[&tree.first_key(), &escaped, after]);
    (bound(&TERMINATOR), bound(&AFTER_TERMINATOR))
}

pub(in crate::db) fn bounds_of_keys(tree: TreeId, range: &impl KeyRange) -> (Vec<u8>, Option<Vec<u8>>) {
    let start = match range.first() {
        Bound::Included(key) => bounds_of(tree, key).0.to_vec(),
        Bound::Excluded(key) => bounds_of(tree, key).1.to_vec(),
        Bound::Unbounded => tree.first_key().to_vec(),
    };
    let end = match range.last() {
        Bound::Included(key) => Some(bounds_of(tree, key).1.to_vec()),
        Bound::Excluded(key) => Some(bounds_of(tree, key).0.to_vec()),
        Bound::Unbounded => tree.end_key().map(Vec::from),
    };
    (start, end)
}

/// Also returns the bytes of a pair before its value.
pub(in crate::db) fn bounds_of_values(tree: TreeId, key: &[u8], range: &impl KeyRange) -> (usize, Vec<u8>, Vec<u8>) {
    let (first, end) = bounds_of(tree, key);
    let at = |value: &[u8], after: &[u8]| [&*first, value, after].concat();
    let start = match range.first() {
        Bound::Included(value) => at(value, &[]),
        Bound::Excluded(value) => at(value, &[0]),
        Bound::Unbounded => first.to_vec(),
    };
    let end = match range.last() {
        Bound::Included(value) => at(value, &[0]),
        Bound::Excluded(value) => at(value, &[]),
        Bound::Unbounded => end.to_vec(),
    };
    (first.len(), start, end)
}

/// A tree with many sorted, distinct values per key. Clones are cheap and shared across threads.
/// Reads see the latest commit.
///
/// Keys and values have up to 64 KiB each. A million values of one key cost the same as a million
/// keys.
///
/// Methods have the names of [`Tree`](crate::Tree)'s, for pairs in place of rows. Where a name has `value`, the
/// method takes a key and concerns its values; where it has `pair`, it takes both.
/// [`ReadMulti`](crate::views::ReadMulti) has the reads.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// let db = braiddb::Db::in_memory()?;
/// let tags = db.multi_tree("tags")?;
/// tags.add(b"Ten", b"grunge")?;
/// tags.add(b"Ten", b"1991")?;
/// tags.add(b"Vs.", b"1993")?;
/// assert_eq!(tags.count_values(b"Ten")?, 2);
/// for tag in tags.values(b"Ten") {
///     println!("{}", tag?); // 1991, then grunge
/// }
/// for pair in &tags {
///     let (album, tag) = pair?;
///     println!("{album}: {tag}");
/// }
/// assert!(tags.contains_pair(b"Ten", b"grunge")?);
/// assert_eq!((tags.count(b"T".as_slice()..b"U")?, tags.len()?), (2, 3));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MultiTree {
    db: Db,
    state: Arc<TreeState>,
}

impl std::fmt::Debug for MultiTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MultiTree")
            .field("name", &self.name())
            .field("path", &self.db().engine().dir)
            .finish_non_exhaustive()
    }
}

impl MultiTree {
    pub(in crate::db) fn new(db: &Db, state: Arc<TreeState>) -> Result<MultiTree> {
        Ok(MultiTree { db: db.clone(), state })
    }

    pub(in crate::db) fn state(&self) -> &Arc<TreeState> {
        &self.state
    }

    pub(crate) fn id(&self) -> TreeId {
        self.state.id
    }

    pub(in crate::db) fn db(&self) -> &Db {
        &self.db
    }

    fn write(&self, fill: impl FnOnce(&mut Batch)) -> Result<SequenceNumber> {
        let mut batch = self.db.batch();
        fill(&mut batch);
        batch.commit()
    }

    /// Returns the current name.
    pub fn name(&self) -> String {
        self.state.name.read().clone()
    }

    /// Adds a value to `key`, or does nothing if the key has it.
    pub fn add(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        self.write(|batch| _ = batch.add(self, key, value))
    }

    /// Adds many pairs, in batches of up to 1000 pairs or 1 MiB. Each batch is atomic, the whole is
    /// not.
    pub fn extend<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, pairs: impl IntoIterator<Item = (K, V)>) -> Result<()> {
        extend(&self.db, pairs, |batch, key, value| _ = batch.add(self, key, value))
    }

    /// Deletes one value of `key`, which may be absent.
    pub fn delete_pair(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        self.write(|batch| _ = batch.delete_pair(self, key, value))
    }

    /// Deletes `key` with all its values, in constant time.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        self.write(|batch| _ = batch.delete(self, key))
    }

    /// Deletes all keys in `range` with their values, in constant time.
    pub fn delete_range(&self, range: impl KeyRange) -> Result<SequenceNumber> {
        self.write(|batch| _ = batch.delete_range(self, range))
    }

    /// Deletes all pairs, in constant time.
    pub fn clear(&self) -> Result<SequenceNumber> {
        self.delete_range(..)
    }

    /// Removes and returns the first pair, atomically, in constant time: see
    /// [`Tree::pop_first`](crate::Tree::pop_first).
    pub fn pop_first(&self) -> Result<Option<(Key, Value)>> {
        pop(&self.db, self.state.id, |tx| tx.multi_tree(self).pop_first())
    }

    /// Removes and returns the last pair, atomically.
    pub fn pop_last(&self) -> Result<Option<(Key, Value)>> {
        pop(&self.db, self.state.id, |tx| tx.multi_tree(self).pop_last())
    }

    #[inline]
    pub(in crate::db) fn checked_pair(&self, key: &[u8], value: &[u8]) -> Result<KeyBuf> {
        self.state.check()?;
        check_key(key)?;
        check_key(value)?;
        Ok(pair_key(self.state.id, key, value))
    }

    pub(in crate::db) fn count_at(&self, key: &[u8], hold: Option<&Hold>) -> Result<u64> {
        self.state.check()?;
        check_key(key)?;
        let start = pair_key(self.state.id, key, b"");
        if let Some(values) = count_kept(&self.db, &start, AFTER_TERMINATOR[1], hold)? {
            return Ok(values);
        }
        let end = bounds_of(self.state.id, key).1;
        count(&self.db, &self.state, &start, &end, hold)
    }

    /// Returns a cursor over all pairs.
    pub fn cursor(&self) -> MultiCursor {
        MultiCursor::over(self, None)
    }
}
