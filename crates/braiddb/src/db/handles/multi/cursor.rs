//! Cursors over multi-trees: borrowed pairs in key and value order.
//!
//! Splits each entry into key and value. Pairs of one key share their first bytes, so the split is
//! reused.

use super::tree::{MultiTree, TERMINATOR, bounds_of, is_split_at, no_pair, pair_key, split, unescape};
use crate::{
    base::{Result, SequenceNumber, TreeId},
    db::{
        engine::{
            key::{TREE_ID_LEN, check_key},
            read_hold::Hold,
        },
        handles::{counting::count, cursor::Cursor},
    },
};
use std::cell::RefCell;

/// Maximum backoff of lookahead: it is skipped for up to 2^4 - 1 keys.
const PAUSE_SHIFT_MAX: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    There,
    /// Before that row, after a key's values.
    Before,
    /// After that row: before a key's values, or after the last.
    After,
}

/// Reads the pairs of a multi-tree in either direction at one snapshot. Keys and values are
/// borrowed, not copied.
///
/// On a new cursor [`next`](MultiCursor::next) moves to the first pair and
/// [`prev`](MultiCursor::prev) to the last. Moves return true on a pair. A move within one key that
/// finds no value leaves the cursor between two keys, where `next` and `prev` continue. A cursor
/// pins old versions, as a [`crate::Snapshot`] does.
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
/// assert_eq!(cursor.count_values()?, 2);
/// # Ok(())
/// # }
/// ```
pub struct MultiCursor {
    cursor: Cursor,
    tree: TreeId,
    place: Place,
    /// Length of the current row's escaped key and terminator, on a pair.
    front_len: usize,
    /// These bytes, between two keys or while moving within a key.
    front: Vec<u8>,
    /// The key, if it contains zero bytes.
    unescaped: Vec<u8>,
    is_escaped: bool,
    /// Number of next rows known to have the same key.
    sure: u32,
    /// Consecutive failed lookaheads, and keys to pass before the next.
    misses: u32,
    pause: u32,
    /// Last key counted, and its values.
    counted: RefCell<Option<(Vec<u8>, u64)>>,
}

impl std::fmt::Debug for MultiCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MultiCursor").finish_non_exhaustive()
    }
}

impl MultiCursor {
    pub(in crate::db) fn over(tree: &MultiTree, hold: Option<Hold>) -> MultiCursor {
        MultiCursor {
            cursor: Cursor::over(tree.db(), tree.state(), hold),
            tree: tree.state().id,
            place: Place::There,
            front_len: 0,
            front: Vec::new(),
            unescaped: Vec::new(),
            is_escaped: false,
            sure: 0,
            misses: 0,
            pause: 0,
            counted: RefCell::default(),
        }
    }

    #[inline]
    fn arrive(&mut self, is_there: bool, is_forward: bool) -> Result<bool> {
        self.place = Place::There;
        self.sure = 0;
        if is_there {
            self.enter_key()?;
            if is_forward && self.pause == 0 {
                self.skip_missing();
            } else {
                self.pause = self.pause.saturating_sub(1);
            }
        }
        Ok(is_there)
    }

    /// Backs off where keys have one value.
    fn skip_missing(&mut self) {
        let front = &self.cursor.key()[..self.front_len];
        self.sure = self.cursor.rows_after_with(front);
        self.misses = if self.sure > 0 { 0 } else { (self.misses + 1).min(PAUSE_SHIFT_MAX) };
        self.pause = (1 << self.misses) - 1;
    }

    #[inline]
    fn step_within(&mut self) -> bool {
        let is_there = self.sure > 0 && self.cursor.step_ahead();
        self.sure = if is_there { self.sure - 1 } else { 0 };
        is_there
    }

    #[inline]
    fn is_within_key(&self) -> bool {
        !self.front.is_empty() && self.cursor.key().starts_with(&self.front)
    }

    #[inline]
    fn keep_front(&mut self) {
        self.front.clear();
        self.front.extend_from_slice(&self.cursor.key()[..self.front_len]);
    }

    #[inline]
    fn enter_key(&mut self) -> Result<()> {
        // Consecutive keys often have equal lengths.
        if is_split_at(self.cursor.key(), self.front_len) {
            self.is_escaped = false;
            return Ok(());
        }
        self.enter_other_key()
    }

    #[inline(never)]
    fn enter_other_key(&mut self) -> Result<()> {
        let row = self.cursor.key();
        let Some((at, is_escaped)) = split(row) else {
            let error = no_pair(row);
            self.front.clear();
            self.place = Place::Before;
            return Err(error);
        };
        self.front_len = at;
        self.is_escaped = is_escaped;
        if is_escaped {
            self.unescaped.clear();
            unescape(&row[..at - TERMINATOR.len()], &mut self.unescaped);
        }
        Ok(())
    }

    fn begin_at(&mut self, is_forward: bool, internal: &[u8]) -> Result<bool> {
        self.sure = 0;
        let is_there = self.cursor.begin_at(is_forward, internal)?;
        self.arrive(is_there, is_forward)
    }

    /// The last `end_len` bytes of `internal` do not belong to the key.
    fn begin_within(&mut self, key: &[u8], is_forward: bool, internal: &[u8], end_len: usize) -> Result<bool> {
        let escaped = &internal[TREE_ID_LEN..internal.len() - end_len];
        self.is_escaped = escaped.len() != key.len();
        self.front.clear();
        self.front.extend_from_slice(escaped);
        self.front.extend_from_slice(&TERMINATOR);
        if self.is_escaped {
            self.unescaped.clear();
            self.unescaped.extend_from_slice(key);
        }
        let is_there = self.cursor.begin_at(is_forward, internal).inspect_err(|_| {
            self.front.clear();
            (self.place, self.sure) = (Place::There, 0);
        })?;
        Ok(self.arrive_within(is_there, is_forward))
    }

    #[inline]
    fn arrive_within(&mut self, is_there: bool, is_forward: bool) -> bool {
        let is_within = is_there && self.is_within_key();
        self.front_len = self.front.len();
        self.sure = if is_within && is_forward { self.cursor.rows_after_with(&self.front) } else { 0 };
        self.place = match (is_within, is_forward) {
            (true, _) => Place::There,
            (false, true) => Place::Before,
            (false, false) => Place::After,
        };
        is_within
    }

    /// Moves to the first pair at or after `key`.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.begin_at(true, &bounds_of(self.tree, key.as_ref()).0)
    }

    /// Moves to the last pair before `key`.
    pub fn seek_before(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.begin_at(false, &bounds_of(self.tree, key.as_ref()).0)
    }

    /// Moves to the first value of `key` at or after `value`.
    pub fn seek_value(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.begin_within(key, true, &pair_key(self.tree, key, value), TERMINATOR.len() + value.len())
    }

    /// Moves to the last value of `key` before `value`.
    pub fn seek_value_before(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.begin_within(key, false, &pair_key(self.tree, key, value), TERMINATOR.len() + value.len())
    }

    /// Moves to the first value of `key`.
    pub fn seek_first_value(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.seek_value(key, b"")
    }

    /// Moves to the last value of `key`.
    pub fn seek_last_value(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.begin_within(key, false, &bounds_of(self.tree, key).1, TERMINATOR.len())
    }

    /// Moves to the first pair.
    pub fn seek_first(&mut self) -> Result<bool> {
        self.sure = 0;
        let is_there = self.cursor.seek_first()?;
        self.arrive(is_there, true)
    }

    /// Moves to the last pair.
    pub fn seek_last(&mut self) -> Result<bool> {
        self.sure = 0;
        let is_there = self.cursor.seek_last()?;
        self.arrive(is_there, false)
    }

    /// Moves to the next pair.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a pair borrows from its cursor, as no iterator's item can")]
    pub fn next(&mut self) -> Result<bool> {
        if self.step_within() {
            return Ok(true);
        }
        let is_there = if self.place == Place::Before { self.cursor.is_on_row() } else { self.cursor.next()? };
        self.arrive(is_there, true)
    }

    /// Moves to the previous pair.
    #[inline]
    pub fn prev(&mut self) -> Result<bool> {
        self.sure = 0;
        let is_there = if self.place == Place::After { self.cursor.is_on_row() } else { self.cursor.prev()? };
        self.arrive(is_there, false)
    }

    /// Moves to the next value of the current key.
    #[inline]
    pub fn next_value(&mut self) -> Result<bool> {
        if self.step_within() {
            return Ok(true);
        }
        self.next_value_there()
    }

    fn next_value_there(&mut self) -> Result<bool> {
        if self.place == Place::Before || self.place == Place::There && !self.cursor.is_on_row() {
            return Ok(false);
        }
        if self.place == Place::There {
            self.keep_front();
            // The decoded rows usually show that this is the last value.
            if self.cursor.is_last_with(self.front_len) {
                self.place = Place::After;
                return Ok(false);
            }
        }
        let is_there = self.cursor.next()?;
        Ok(self.arrive_within(is_there, true))
    }

    /// Moves to the previous value of the current key.
    #[inline]
    pub fn prev_value(&mut self) -> Result<bool> {
        self.sure = 0;
        if self.place == Place::After {
            let is_within = self.cursor.is_on_row() && self.is_within_key();
            self.place = if is_within { Place::There } else { Place::After };
            return Ok(is_within);
        }
        if self.place == Place::There {
            if !self.cursor.is_on_row() {
                return Ok(false);
            }
            self.keep_front();
        }
        let is_there = self.cursor.prev()?;
        Ok(self.arrive_within(is_there, false))
    }

    /// Moves to the first pair of the next key.
    pub fn next_key(&mut self) -> Result<bool> {
        if !self.is_on_pair() || !self.next_value()? {
            return self.next();
        }
        let end = bounds_of(self.tree, self.key()).1;
        self.begin_at(true, &end)
    }

    /// Moves to the last pair of the previous key.
    pub fn prev_key(&mut self) -> Result<bool> {
        if !self.is_on_pair() || !self.prev_value()? {
            return self.prev();
        }
        let start = bounds_of(self.tree, self.key()).0;
        self.begin_at(false, &start)
    }

    /// Returns true if the cursor is on a pair.
    #[inline]
    pub fn is_on_pair(&self) -> bool {
        self.place == Place::There && self.cursor.is_on_row()
    }

    /// Returns the current key. Panics if there is none.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.pair().0
    }

    /// Returns the current value. Panics if there is none.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.pair().1
    }

    /// Returns the current pair. Panics if there is none.
    #[inline(always)]
    pub fn pair(&self) -> (&[u8], &[u8]) {
        assert!(self.place == Place::There, "the cursor stands on no pair");
        let (front, value) = self.cursor.key().split_at(self.front_len);
        (if self.is_escaped { &self.unescaped } else { &front[..front.len() - TERMINATOR.len()] }, value)
    }

    /// Counts the values of the current key: see [`MultiTree::count_values`]. Panics if there is
    /// none.
    pub fn count_values(&self) -> Result<u64> {
        self.count_values_of(self.key())
    }

    /// Counts the values of `key` without moving, and caches the last count.
    pub fn count_values_of(&self, key: impl AsRef<[u8]>) -> Result<u64> {
        let key = key.as_ref();
        if let Some((counted, values)) = &*self.counted.borrow()
            && counted == key
        {
            return Ok(*values);
        }
        check_key(key)?;
        let (db, tree, hold) = self.cursor.source();
        let (start, end) = bounds_of(self.tree, key);
        let values = count(db, tree, &start, &end, Some(hold))?;
        let mut counted = self.counted.borrow_mut();
        let (counted, known) = counted.get_or_insert_default();
        counted.clear();
        counted.extend_from_slice(key);
        *known = values;
        Ok(values)
    }

    /// Returns the snapshot's sequence number.
    pub fn snapshot_sequence(&self) -> SequenceNumber {
        self.cursor.snapshot_sequence()
    }

    /// Moves to the latest snapshot and resets the position.
    pub fn refresh(&mut self) {
        self.cursor.refresh();
        (self.place, self.sure) = (Place::There, 0);
        self.counted.take();
    }
}
