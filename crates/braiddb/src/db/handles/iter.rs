//! Iterators: owned pairs at one snapshot.
//!
//! Each end is a [`Cursor`], created on first use. After its first row an end reads ahead: it
//! copies rows into one allocation, which they share. It reads as many as the last iterator over
//! this state returned, if known, or else twice as many each time.

use super::{cursor::Cursor, database::Db, key_range::KeyRange};
use crate::{
    base::{Chunk, Error, INLINE_MAX, ReaderKind, Result, TreeId},
    db::{
        engine::{
            catalog::TreeState,
            key::{KeyBuf, TREE_ID_LEN},
            read_hold::Hold,
        },
        record::bytes::{Key, Value},
    },
    read::{ChunkRow, RowsAhead},
    txn::Side,
};
use std::{
    ops::{Bound, ControlFlow},
    sync::Arc,
};

/// Rows of the first batch, without a better guess.
const FIRST_ROWS: u32 = 4;

/// Maximum rows of a batch.
const ROWS_MAX: u32 = 128;

/// Bytes of a batch. `Key` and `Value` document it.
const BATCH_BYTES: usize = 16 << 10;

/// Bytes reserved for each row.
const LIKELY_ROW: usize = 128;

/// Rows from this size on are read singly.
const BIG_ROW: usize = 2 << 10;

/// Internal keys: inclusive start, exclusive end.
pub fn user_bounds(tree: TreeId, range: &impl KeyRange) -> (Vec<u8>, Option<Vec<u8>>) {
    let (start, end) = key_bounds(tree, range);
    (start.to_vec(), end.map(|end| end.to_vec()))
}

fn key_bounds(tree: TreeId, range: &impl KeyRange) -> (KeyBuf, Option<KeyBuf>) {
    let with = |key: &[u8], after: bool| {
        let id = tree.first_key();
        if after { KeyBuf::of_pieces(&[&id, key, &[0]]) } else { KeyBuf::new(tree, key) }
    };
    let start = match range.first() {
        Bound::Included(key) => with(key, false),
        Bound::Excluded(key) => with(key, true),
        Bound::Unbounded => with(b"", false),
    };
    let end = match range.last() {
        Bound::Included(key) => Some(with(key, true)),
        Bound::Excluded(key) => Some(with(key, false)),
        Bound::Unbounded => tree.end_key().map(|end| KeyBuf::copy_of(&end)),
    };
    (start, end)
}

/// Returns the smallest key after all keys with this prefix.
pub fn prefix_end(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = prefix.last_mut() {
        if *last < 0xff {
            *last += 1;
            return Some(prefix);
        }
        prefix.pop();
    }
    None
}

#[cold]
pub(in crate::db) fn is_of_one_record(error: &Error) -> bool {
    error.is_merge_failed() || error.is_corruption()
}

/// Pairs in key order from both ends, at one snapshot.
///
/// After an error about one value ([`Error::MergeFailed`], a damaged large value) the next call
/// continues; any other error ends the iterator.
pub struct Iter {
    /// The first end takes it.
    source: Option<(Db, Arc<TreeState>, Hold)>,
    bounds: Bounds,
    front: Option<End>,
    back: Option<Box<End>>,
    failed: Option<Error>,
    is_done: bool,
}

impl std::fmt::Debug for Iter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}

/// Internal keys: inclusive start, exclusive end.
struct Bounds {
    start: KeyBuf,
    end: Option<KeyBuf>,
    /// The end is a key of the tree, not of the next tree.
    is_end_within: bool,
}

impl Bounds {
    /// The user key that ends a scan in this direction.
    fn limit(&self, is_forward: bool) -> Option<&[u8]> {
        let limit = if is_forward { self.end.as_ref().filter(|_| self.is_end_within) } else { Some(&self.start) };
        limit.map(|key| &key[TREE_ID_LEN..]).filter(|key| is_forward || !key.is_empty())
    }
}

#[inline(always)]
fn is_within(key: &[u8], limit: Option<&[u8]>, is_forward: bool) -> bool {
    limit.is_none_or(|limit| if is_forward { key < limit } else { key >= limit })
}

/// One end of an iterator.
struct End {
    cursor: Cursor,
    /// Rows read ahead, in order, and the next one to return.
    rows: Vec<ChunkRow>,
    at: usize,
    chunk: Option<Chunk>,
    is_forward: bool,
    has_begun: bool,
    /// The cursor's row is neither returned nor read ahead.
    is_row_unread: bool,
    has_ended: bool,
    /// Follows the rows read ahead.
    failed: Option<Error>,
    /// Rows to read ahead; 1 before the first row.
    rows_ahead: u32,
    likely_rows: u32,
    returned: u32,
}

impl End {
    fn new(mut cursor: Cursor, is_forward: bool) -> End {
        let RowsAhead { rows, likely_rows } = cursor.take_ahead();
        End {
            cursor,
            rows,
            at: 0,
            chunk: None,
            is_forward,
            has_begun: false,
            is_row_unread: false,
            has_ended: false,
            failed: None,
            rows_ahead: 1,
            likely_rows,
            returned: 0,
        }
    }

    /// The key of the row returned last.
    fn last_key(&self) -> Option<&[u8]> {
        match (self.at.checked_sub(1), &self.chunk) {
            (Some(last), Some(chunk)) => {
                let ChunkRow { key, value, .. } = self.rows[last];
                Some(chunk.get(key as usize, value as usize))
            }
            _ => (self.returned > 0 && self.cursor.is_on_row()).then(|| self.cursor.key()),
        }
    }

    #[inline(always)]
    fn next_ahead(&mut self) -> Option<(Key, Value)> {
        let &ChunkRow { key, value, end } = self.rows.get(self.at)?;
        let chunk = self.chunk.as_mut()?;
        self.at += 1;
        let (key, value) = (key as usize..value as usize, value as usize..end as usize);
        Some((Key::shared(chunk.take(key.start, key.end)), Value::shared(chunk.take(value.start, value.end))))
    }

    fn next(&mut self, bounds: &Bounds) -> Option<Result<(Key, Value)>> {
        match self.next_ahead() {
            Some(row) => Some(Ok(row)),
            None => self.read(bounds),
        }
    }

    /// Reads rows ahead, or one row.
    #[inline(never)]
    fn read(&mut self, bounds: &Bounds) -> Option<Result<(Key, Value)>> {
        if let Some(e) = self.failed.take() {
            return Some(Err(self.pass_failed(e)));
        }
        if self.has_ended {
            return None;
        }
        let is_there = if std::mem::take(&mut self.is_row_unread) { Ok(true) } else { self.step(bounds) };
        match is_there {
            Ok(true) if is_within(self.cursor.key(), bounds.limit(self.is_forward), self.is_forward) => {}
            Ok(_) => {
                self.has_ended = true;
                return None;
            }
            Err(e) => return Some(Err(e)),
        }
        self.rows.clear();
        (self.at, self.chunk) = (0, None);
        if self.rows_ahead > 1 && self.read_ahead(bounds) {
            return self.next(bounds);
        }
        if let Some(e) = self.failed.take() {
            return Some(Err(self.pass_failed(e)));
        }
        self.is_row_unread = false;
        self.returned = self.returned.saturating_add(1);
        if self.rows_ahead == 1 {
            self.rows_ahead = match self.likely_rows {
                0 | 1 => FIRST_ROWS,
                likely => (likely - 1).clamp(2, ROWS_MAX),
            };
        }
        let row = self.cursor.row();
        Some(row.map(|(key, value)| (Key::of(key), Value::of(value))))
    }

    /// The cursor is on the row of this error, which counts as returned.
    #[cold]
    fn pass_failed(&mut self, error: Error) -> Error {
        self.rows.clear();
        (self.at, self.chunk) = (0, None);
        self.returned = self.returned.saturating_add(1);
        error
    }

    fn step(&mut self, bounds: &Bounds) -> Result<bool> {
        if std::mem::replace(&mut self.has_begun, true) {
            return if self.is_forward { self.cursor.next() } else { self.cursor.prev() };
        }
        match (&bounds.end, self.is_forward) {
            (_, true) => self.cursor.begin_at(true, &bounds.start),
            (Some(end), false) => self.cursor.begin_at(false, end),
            (None, false) => self.cursor.seek_last(),
        }
    }

    /// Reads the cursor's row and the next ones. Returns false if it read none: the cursor's row is
    /// big, or its value failed.
    fn read_ahead(&mut self, bounds: &Bounds) -> bool {
        let (is_forward, rows_max) = (self.is_forward, self.rows_ahead as usize);
        let limit = bounds.limit(is_forward);
        let mut bytes = Chunk::buffer(self.rows_ahead as usize * LIKELY_ROW);
        let (rows, mut shared) = (&mut self.rows, 0);
        let (mut is_row_unread, mut has_ended) = (false, false);
        let visited = self.cursor.visit_plain(is_forward, |key, value| {
            if !is_within(key, limit, is_forward) {
                has_ended = true;
                return ControlFlow::Break(());
            }
            let len = key.len() + value.len();
            if len >= BIG_ROW || bytes.len() + len > BATCH_BYTES {
                is_row_unread = true;
                return ControlFlow::Break(());
            }
            let start = bytes.len();
            Chunk::reserve(&mut bytes, len, BATCH_BYTES);
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(value);
            rows.push(ChunkRow { key: start as u32, value: (start + key.len()) as u32, end: bytes.len() as u32 });
            shared += usize::from(key.len() > INLINE_MAX) + usize::from(value.len() > INLINE_MAX);
            if rows.len() < rows_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        match visited {
            Ok(Some(flow)) => self.has_ended = has_ended || flow.is_continue(),
            // Nobody may want that value, and it may be long.
            Ok(None) => is_row_unread = true,
            Err(e) => self.failed = Some(e),
        }
        self.is_row_unread = is_row_unread;
        self.rows_ahead = (self.rows_ahead * 2).min(ROWS_MAX);
        if self.rows.is_empty() {
            return false;
        }
        self.returned = self.returned.saturating_add(self.rows.len() as u32);
        self.chunk = Some(Chunk::new(bytes, shared));
        true
    }

    /// The rows read ahead and not returned were not needed.
    fn leave(mut self) {
        let likely_rows = self.returned.saturating_sub((self.rows.len() - self.at) as u32);
        self.rows.clear();
        self.cursor.leave_scan(RowsAhead { rows: self.rows, likely_rows });
    }
}

impl Iter {
    pub(in crate::db) fn over(
        db: &Db,
        tree: &Arc<TreeState>,
        start: Vec<u8>,
        end: Option<Vec<u8>>,
        hold: Option<Hold>,
    ) -> Iter {
        Iter::over_keys(db, tree, KeyBuf::copy_of(&start), end.as_deref().map(KeyBuf::copy_of), hold)
    }

    #[inline]
    fn over_keys(db: &Db, tree: &Arc<TreeState>, start: KeyBuf, end: Option<KeyBuf>, hold: Option<Hold>) -> Iter {
        let engine = hold.as_ref().map_or(db.engine(), Hold::engine);
        let failed = tree.check_in(engine.log.incarnation).and_then(|()| db.engine().health.check_open()).err();
        let hold = hold.unwrap_or_else(|| Hold::now(db.engine(), ReaderKind::Iterator));
        let is_done = end.as_deref().is_some_and(|end| *end <= *start);
        let is_end_within = end.as_deref().is_some_and(|end| end.starts_with(&tree.id.first_key()));
        let bounds = Bounds { start, end, is_end_within };
        let source = Some((db.clone(), Arc::clone(tree), hold));
        Iter { source, bounds, front: None, back: None, failed, is_done }
    }

    pub(in crate::db) fn over_range(db: &Db, tree: &Arc<TreeState>, range: impl KeyRange, hold: Option<Hold>) -> Iter {
        let (start, end) = key_bounds(tree.id, &range);
        Iter::over_keys(db, tree, start, end, hold)
    }

    pub(in crate::db) fn over_prefix(db: &Db, tree: &Arc<TreeState>, prefix: &[u8], hold: Option<Hold>) -> Iter {
        let start = KeyBuf::new(tree.id, prefix);
        let mut end = start.clone();
        let has_end = end.set_prefix_end();
        Iter::over_keys(db, tree, start, has_end.then_some(end), hold)
    }

    /// Before the first row of an iterator over a whole tree: skips keys beyond the tree's bound.
    pub(in crate::db) fn begin_at_bound(&mut self, side: Side) {
        let Some((db, tree, hold)) = &self.source else { return };
        // The hold is older than this call: INVARIANT B1.
        match (side, db.engine().commits.tree_ends.bound(tree.id, side, hold.sequence())) {
            (_, None) => {}
            (Side::First, Some(bound)) => self.bounds.start = KeyBuf::copy_of(&bound),
            (Side::Last, Some(bound)) => {
                self.bounds.end = Some(KeyBuf::copy_of(&bound));
                self.bounds.is_end_within = true;
            }
        }
    }

    fn new_end(&mut self, is_forward: bool) -> End {
        let cursor = match self.source.take() {
            Some((db, tree, hold)) => Cursor::with(db, tree, hold),
            None => {
                let other = if is_forward { self.back.as_deref() } else { self.front.as_ref() };
                let Some(other) = other else { unreachable!("the other end took the source") };
                let (db, tree, hold) = other.cursor.source();
                Cursor::new(db, tree, Some(hold.clone()))
            }
        };
        End::new(cursor, is_forward)
    }

    #[inline(never)]
    fn row(&mut self, is_forward: bool) -> Option<Result<(Key, Value)>> {
        if self.is_done || self.failed.is_some() {
            return self.fail();
        }
        if is_forward && self.front.is_none() {
            self.front = Some(self.new_end(true));
        } else if !is_forward && self.back.is_none() {
            self.back = Some(Box::new(self.new_end(false)));
        }
        let (end, other) = match (is_forward, &mut self.front, &mut self.back) {
            (true, Some(front), back) => (front, back.as_deref()),
            (false, front, Some(back)) => (&mut **back, front.as_ref()),
            _ => unreachable!("the end was made above"),
        };
        match end.next(&self.bounds) {
            Some(Ok((key, value))) => {
                let is_met =
                    other.and_then(End::last_key).is_some_and(|met| (*key < *met) != is_forward || *key == *met);
                self.is_done = is_met;
                (!is_met).then_some(Ok((key, value)))
            }
            Some(Err(e)) => self.fail_at(e, is_forward),
            None => {
                self.is_done = true;
                None
            }
        }
    }

    #[cold]
    fn fail(&mut self) -> Option<Result<(Key, Value)>> {
        self.is_done = true;
        self.failed.take().map(Err)
    }

    /// Ends the iterator, unless the error is of one record, which the other end may have passed.
    #[cold]
    fn fail_at(&mut self, error: Error, is_forward: bool) -> Option<Result<(Key, Value)>> {
        let end = if is_forward { self.front.as_ref() } else { self.back.as_deref() };
        // A failed seek or step leaves no position to continue from.
        if !is_of_one_record(&error) || end.is_none_or(|end| !end.cursor.is_on_row()) {
            self.is_done = true;
            // Release what the cursors pin.
            (self.front, self.back) = (None, None);
            return Some(Err(error));
        }
        let (end, other) = match is_forward {
            true => (self.front.as_ref(), self.back.as_deref()),
            false => (self.back.as_deref(), self.front.as_ref()),
        };
        if let (Some(end), Some(met)) = (end, other.and_then(End::last_key)) {
            let key = end.cursor.key();
            self.is_done = (key < met) != is_forward || key == met;
        }
        (!self.is_done).then_some(Err(error))
    }
}

impl Drop for Iter {
    fn drop(&mut self) {
        if let Some(back) = self.back.take() {
            back.leave();
        }
        if let Some(front) = self.front.take() {
            front.leave();
        }
    }
}

impl Iterator for Iter {
    type Item = Result<(Key, Value)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.back.is_none()
            && let Some(front) = &mut self.front
            && let Some(row) = front.next_ahead()
        {
            return Some(Ok(row));
        }
        self.row(true)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.row(false)
    }
}

impl std::iter::FusedIterator for Iter {}

#[cfg(test)]
mod tests;
