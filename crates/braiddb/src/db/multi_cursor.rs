//! Cursors over multi-trees: pairs borrowed where they stand, by key and by value, in either direction.
//!
//! A cursor over the tree's entries, and how the present one falls into key and value. Where pairs of one key follow each
//! other, that is known from the pair before: they begin with the same bytes.

use super::{
    counting::count,
    cursor::Cursor,
    multi::{MultiTree, TERMINATOR, bounds_of, no_pair, pair_key, split, unescape},
    snapshot::Hold,
};
use crate::base::{Result, SequenceNumber, TreeId};

/// Reads the pairs of a multi-tree in order, from any key or value, forward and backward, as of one moment. Keys and values are
/// borrowed, not copied.
///
/// A new cursor stands nowhere: [`next`](MultiCursor::next) takes it to the first pair, [`prev`](MultiCursor::prev) to the last.
/// Moves return whether there is a pair to stand on. Those that stay among the values of a key, and find no other, leave the cursor
/// where it is; all others leave it off all pairs then. It keeps old versions from being removed as a [`crate::Snapshot`] does.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// let db = braiddb::Db::in_memory()?;
/// let albums = db.multi_tree("albums by artist")?;
/// for (artist, album) in [("Pearl Jam", "Ten"), ("Pearl Jam", "Vs."), ("Tool", "Lateralus"), ("Tool", "Undertow")] {
///     albums.add(artist, album)?;
/// }
/// let mut cursor = albums.cursor();
/// assert!(cursor.seek_value("Pearl Jam", "U")?);
/// assert_eq!(cursor.pair(), (&b"Pearl Jam"[..], &b"Vs."[..]));
/// assert!(!cursor.next_value()?);
/// assert!(cursor.next_key()?);
/// assert_eq!(cursor.value(), b"Lateralus");
/// assert_eq!(cursor.count()?, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MultiCursor {
    cursor: Cursor,
    tree: TreeId,
    /// The escaped key of the present pair, and the terminator; empty before the first.
    front: Vec<u8>,
    /// Its key, where that has zero bytes.
    unescaped: Vec<u8>,
    is_escaped: bool,
}

impl MultiCursor {
    pub(super) fn over(tree: &MultiTree, hold: Option<Hold>) -> MultiCursor {
        let cursor = Cursor::over(tree.db(), tree.state(), hold);
        MultiCursor { cursor, tree: tree.state().id, front: Vec::new(), unescaped: Vec::new(), is_escaped: false }
    }

    /// After a move: takes the pair apart that it stands on.
    #[inline]
    fn arrive(&mut self, is_there: bool) -> Result<bool> {
        if is_there && (self.front.is_empty() || !self.cursor.key().starts_with(&self.front)) {
            self.enter_key()?;
        }
        Ok(is_there)
    }

    fn enter_key(&mut self) -> Result<()> {
        self.front.clear();
        let row = self.cursor.key();
        let Some((at, is_escaped)) = split(row) else {
            let error = no_pair(row);
            self.cursor.leave();
            return Err(error);
        };
        self.front.extend_from_slice(&row[..at]);
        self.is_escaped = is_escaped;
        if is_escaped {
            self.unescaped.clear();
            unescape(&row[..at - TERMINATOR.len()], &mut self.unescaped);
        }
        Ok(())
    }

    fn begin_at(&mut self, is_forward: bool, internal: &[u8]) -> Result<bool> {
        let is_there = self.cursor.begin_at(is_forward, internal)?;
        self.arrive(is_there)
    }

    /// Moves to the first pair whose key is `key` or greater.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.begin_at(true, &bounds_of(self.tree, key.as_ref()).0)
    }

    /// Moves to the last pair whose key is less than `key`.
    pub fn seek_before(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.begin_at(false, &bounds_of(self.tree, key.as_ref()).0)
    }

    /// Moves to the first pair of `key` whose value is `value` or greater. Without one it stands on no pair.
    pub fn seek_value(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let is_there = self.begin_at(true, &pair_key(self.tree, key.as_ref(), value.as_ref()))?;
        self.stay_within(is_there, key.as_ref())
    }

    /// Moves to the last pair of `key` whose value is less than `value`. Without one it stands on no pair.
    pub fn seek_value_before(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let is_there = self.begin_at(false, &pair_key(self.tree, key.as_ref(), value.as_ref()))?;
        self.stay_within(is_there, key.as_ref())
    }

    /// Moves to the first value of `key`. Without one it stands on no pair.
    pub fn seek_first_value(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.seek_value(key, b"")
    }

    /// Moves to the last value of `key`. Without one it stands on no pair.
    pub fn seek_last_value(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let is_there = self.begin_at(false, &bounds_of(self.tree, key.as_ref()).1)?;
        self.stay_within(is_there, key.as_ref())
    }

    /// Leaves a pair of another key.
    fn stay_within(&mut self, is_there: bool, key: &[u8]) -> Result<bool> {
        if is_there && self.key() != key {
            self.cursor.leave();
            return Ok(false);
        }
        Ok(is_there)
    }

    /// Moves to the first pair.
    pub fn seek_first(&mut self) -> Result<bool> {
        let is_there = self.cursor.seek_first()?;
        self.arrive(is_there)
    }

    /// Moves to the last pair.
    pub fn seek_last(&mut self) -> Result<bool> {
        let is_there = self.cursor.seek_last()?;
        self.arrive(is_there)
    }

    /// Moves to the next pair.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a pair borrows from its cursor, as no iterator's item can")]
    pub fn next(&mut self) -> Result<bool> {
        let is_there = self.cursor.next()?;
        self.arrive(is_there)
    }

    /// Moves to the pair before.
    #[inline]
    pub fn prev(&mut self) -> Result<bool> {
        let is_there = self.cursor.prev()?;
        self.arrive(is_there)
    }

    /// Moves to the next value of the key it stands on; stays where it is if there is none.
    #[inline]
    pub fn next_value(&mut self) -> Result<bool> {
        if !self.is_on_pair() {
            return Ok(false);
        }
        if self.cursor.next()? && self.cursor.key().starts_with(&self.front) {
            return Ok(true);
        }
        let is_there = self.cursor.prev()?;
        self.arrive(is_there).map(|_| false)
    }

    /// Moves to the value before, of the key it stands on; stays where it is if there is none.
    #[inline]
    pub fn prev_value(&mut self) -> Result<bool> {
        if !self.is_on_pair() {
            return Ok(false);
        }
        if self.cursor.prev()? && self.cursor.key().starts_with(&self.front) {
            return Ok(true);
        }
        let is_there = self.cursor.next()?;
        self.arrive(is_there).map(|_| false)
    }

    /// Moves to the first pair of the next key, past all values that are left of this one. On no pair, to the first of all.
    pub fn next_key(&mut self) -> Result<bool> {
        if !self.is_on_pair() {
            return self.next();
        }
        // With one value to a key, that is the next pair.
        if !self.cursor.next()? || !self.cursor.key().starts_with(&self.front) {
            return self.arrive(self.cursor.is_on_row());
        }
        let end = bounds_of(self.tree, self.key()).1;
        self.begin_at(true, &end)
    }

    /// Moves to the last pair of the key before, past all values of this one. On no pair, to the last of all.
    pub fn prev_key(&mut self) -> Result<bool> {
        if !self.is_on_pair() {
            return self.prev();
        }
        if !self.cursor.prev()? || !self.cursor.key().starts_with(&self.front) {
            return self.arrive(self.cursor.is_on_row());
        }
        let start = bounds_of(self.tree, self.key()).0;
        self.begin_at(false, &start)
    }

    /// Whether it stands on a pair.
    #[inline]
    pub fn is_on_pair(&self) -> bool {
        self.cursor.is_on_row()
    }

    /// The key it stands on. Panics if there is none.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.pair().0
    }

    /// The value it stands on. Panics if there is none.
    #[inline]
    pub fn value(&self) -> &[u8] {
        &self.cursor.key()[self.front.len()..]
    }

    /// Key and value it stands on. Panics if there is no pair.
    #[inline]
    pub fn pair(&self) -> (&[u8], &[u8]) {
        let (front, value) = self.cursor.key().split_at(self.front.len());
        (if self.is_escaped { &self.unescaped } else { &front[..front.len() - TERMINATOR.len()] }, value)
    }

    /// How many values the key has that it stands on: see [`MultiTree::count`]. Panics if it stands on no pair.
    pub fn count(&self) -> Result<u64> {
        let (db, tree, hold) = self.cursor.source();
        let (start, end) = bounds_of(self.tree, self.key());
        count(db, tree, &start, &end, Some(hold))
    }

    /// The commit whose pairs it shows.
    pub fn snapshot_sequence(&self) -> SequenceNumber {
        self.cursor.snapshot_sequence()
    }

    /// Takes it to the present: it shows all that was committed before, and stands nowhere.
    pub fn refresh(&mut self) {
        self.cursor.refresh();
    }
}
