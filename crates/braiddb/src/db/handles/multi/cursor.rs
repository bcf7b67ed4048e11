//! Cursors over multi-trees: pairs borrowed where they stand, by key and by value, in either direction.
//!
//! A cursor over the tree's entries, and how the present one falls into key and value. Where pairs of one key follow each
//! other, that is known from the pair before: they begin with the same bytes.

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

/// After that many looks ahead in vain, there are 2 to this power of keys, less one, before the next.
const PAUSE_SHIFT_MAX: u32 = 4;

/// Whether a cursor stands on a pair, or beside the values of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// On the row of the cursor beneath, if that stands on one.
    There,
    /// Right before that row, after the values of a key.
    Before,
    /// Right after that row: before the values of a key, or after them where that row is the last.
    After,
}

/// Reads the pairs of a multi-tree in order, from any key or value, forward and backward, as of one moment. Keys and values are
/// borrowed, not copied.
///
/// A new cursor stands nowhere: [`next`](MultiCursor::next) takes it to the first pair, [`prev`](MultiCursor::prev) to the last.
/// Moves return whether there is a pair to stand on. Those that stay among the values of one key, and find no other, leave the
/// cursor between that key and the one beside it: `next` and `prev` go on from there. It keeps old versions from being removed as a
/// [`crate::Snapshot`] does.
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
pub struct MultiCursor {
    cursor: Cursor,
    tree: TreeId,
    place: Place,
    /// How many bytes of the row beneath are its escaped key and the terminator: of a cursor that stands on a pair.
    front_len: usize,
    /// Those bytes, of a cursor that stands beside the values of a key, or moves from one to another; empty if there are none.
    front: Vec<u8>,
    /// Its key, where that has zero bytes.
    unescaped: Vec<u8>,
    is_escaped: bool,
    /// So many rows after the present one have been decoded ahead and are known to be of its key.
    sure: u32,
    /// How often that was looked for in vain, and how many keys are to be passed without another look.
    vain_looks: u32,
    pause: u32,
    /// The key that was counted last, and how many values it has: at one moment that does not change.
    counted: RefCell<Option<(Vec<u8>, u64)>>,
}

impl std::fmt::Debug for MultiCursor {
    /// Without what is inside: see [`Db`](crate::Db).
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
            vain_looks: 0,
            pause: 0,
            counted: RefCell::default(),
        }
    }

    /// After a move: takes the pair apart that it stands on.
    #[inline]
    fn arrive(&mut self, is_there: bool, is_forward: bool) -> Result<bool> {
        self.place = Place::There;
        self.sure = 0;
        if is_there {
            self.enter_key()?;
            if is_forward && self.pause == 0 {
                self.look_ahead();
            } else {
                self.pause = self.pause.saturating_sub(1);
            }
        }
        Ok(is_there)
    }

    /// Finds out how many of the rows that were decoded ahead are of the present key. Where keys have one value each, that is tried
    /// less and less often.
    fn look_ahead(&mut self) {
        let front = &self.cursor.key()[..self.front_len];
        self.sure = self.cursor.rows_after_with(front);
        self.vain_looks = if self.sure > 0 { 0 } else { (self.vain_looks + 1).min(PAUSE_SHIFT_MAX) };
        self.pause = (1 << self.vain_looks) - 1;
    }

    /// Moves to the next pair if that is known to be of the same key.
    #[inline]
    fn step_within(&mut self) -> bool {
        let is_there = self.sure > 0 && self.cursor.step_ahead();
        self.sure = if is_there { self.sure - 1 } else { 0 };
        is_there
    }

    /// Whether the row of the cursor beneath is of the key that it was on before.
    #[inline]
    fn is_within_key(&self) -> bool {
        !self.front.is_empty() && self.cursor.key().starts_with(&self.front)
    }

    /// Keeps what its pair begins with, before a move.
    #[inline]
    fn keep_front(&mut self) {
        self.front.clear();
        self.front.extend_from_slice(&self.cursor.key()[..self.front_len]);
    }

    #[inline]
    fn enter_key(&mut self) -> Result<()> {
        // Keys are often as long as the one before.
        if is_split_at(self.cursor.key(), self.front_len) {
            self.is_escaped = false;
            return Ok(());
        }
        self.enter_other_key()
    }

    /// The same of a key of any length.
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

    /// The same for who wants a value of `key` alone. `internal` ends with so many bytes that are not of the key.
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
            // As the cursor beneath, it stands nowhere.
            self.front.clear();
            (self.place, self.sure) = (Place::There, 0);
        })?;
        Ok(self.arrive_within(is_there, is_forward))
    }

    /// After a move to another value of the present key: whether there was one.
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

    /// Moves to the first pair whose key is `key` or greater.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.begin_at(true, &bounds_of(self.tree, key.as_ref()).0)
    }

    /// Moves to the last pair whose key is less than `key`.
    pub fn seek_before(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.begin_at(false, &bounds_of(self.tree, key.as_ref()).0)
    }

    /// Moves to the first pair of `key` whose value is `value` or greater.
    pub fn seek_value(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.begin_within(key, true, &pair_key(self.tree, key, value), TERMINATOR.len() + value.len())
    }

    /// Moves to the last pair of `key` whose value is less than `value`.
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

    /// Moves to the pair before.
    #[inline]
    pub fn prev(&mut self) -> Result<bool> {
        self.sure = 0;
        let is_there = if self.place == Place::After { self.cursor.is_on_row() } else { self.cursor.prev()? };
        self.arrive(is_there, false)
    }

    /// Moves to the next value of the key it stands on, or beside.
    #[inline]
    pub fn next_value(&mut self) -> Result<bool> {
        if self.step_within() {
            return Ok(true);
        }
        self.next_value_there()
    }

    /// [`MultiCursor::next_value`] where that is not known.
    fn next_value_there(&mut self) -> Result<bool> {
        if self.place == Place::Before || self.place == Place::There && !self.cursor.is_on_row() {
            return Ok(false);
        }
        if self.place == Place::There {
            self.keep_front();
            // Mostly that is known of the last value, and the next row need not be read.
            if self.cursor.is_last_with(self.front_len) {
                self.place = Place::After;
                return Ok(false);
            }
        }
        let is_there = self.cursor.next()?;
        Ok(self.arrive_within(is_there, true))
    }

    /// Moves to the value before, of the key it stands on, or beside.
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

    /// Moves to the first pair of the next key, past all values that are left of this one.
    pub fn next_key(&mut self) -> Result<bool> {
        // With one value to a key, that is the next pair.
        if !self.is_on_pair() || !self.next_value()? {
            return self.next();
        }
        let end = bounds_of(self.tree, self.key()).1;
        self.begin_at(true, &end)
    }

    /// Moves to the last pair of the key before, past all values of this one.
    pub fn prev_key(&mut self) -> Result<bool> {
        if !self.is_on_pair() || !self.prev_value()? {
            return self.prev();
        }
        let start = bounds_of(self.tree, self.key()).0;
        self.begin_at(false, &start)
    }

    /// Whether it stands on a pair.
    #[inline]
    pub fn is_on_pair(&self) -> bool {
        self.place == Place::There && self.cursor.is_on_row()
    }

    /// The key it stands on. Panics if there is none.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.pair().0
    }

    /// The value it stands on. Panics if there is none.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.pair().1
    }

    /// Key and value it stands on. Panics if there is no pair.
    #[inline(always)]
    pub fn pair(&self) -> (&[u8], &[u8]) {
        assert!(self.place == Place::There, "the cursor stands on no pair");
        let (front, value) = self.cursor.key().split_at(self.front_len);
        (if self.is_escaped { &self.unescaped } else { &front[..front.len() - TERMINATOR.len()] }, value)
    }

    /// How many values the key has that it stands on: see [`MultiTree::count`]. Panics if it stands on no pair.
    pub fn count(&self) -> Result<u64> {
        self.count_of(self.key())
    }

    /// How many values a key has, at the moment that the cursor shows; it stays where it is. Asked for one key again, it knows.
    pub fn count_of(&self, key: impl AsRef<[u8]>) -> Result<u64> {
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

    /// The commit whose pairs it shows.
    pub fn snapshot_sequence(&self) -> SequenceNumber {
        self.cursor.snapshot_sequence()
    }

    /// Takes it to the present: it shows all that was committed before, and stands nowhere.
    pub fn refresh(&mut self) {
        self.cursor.refresh();
        (self.place, self.sure) = (Place::There, 0);
        self.counted.take();
    }
}
