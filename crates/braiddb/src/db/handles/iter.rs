//! Iterators: copied pairs at one snapshot. Each end is a [`Cursor`] created on first use.

use super::{cursor::Cursor, database::Db};
use crate::{
    base::{Error, ReaderKind, Result, TreeId},
    db::{
        engine::{catalog::TreeState, key::TREE_ID_LEN, read_hold::Hold},
        record::bytes::{Key, Value},
    },
};
use std::{
    ops::{Bound, RangeBounds},
    sync::Arc,
};

/// Internal keys: inclusive start, exclusive end.
pub fn user_bounds<K: AsRef<[u8]>>(tree: TreeId, range: &impl RangeBounds<K>) -> (Vec<u8>, Option<Vec<u8>>) {
    let with = |key: &[u8], after: bool| {
        let mut out = Vec::with_capacity(TREE_ID_LEN + key.len() + 1);
        out.extend_from_slice(&tree.first_key());
        out.extend_from_slice(key);
        if after {
            out.push(0);
        }
        out
    };
    let start = match range.start_bound() {
        Bound::Included(key) => with(key.as_ref(), false),
        Bound::Excluded(key) => with(key.as_ref(), true),
        Bound::Unbounded => with(b"", false),
    };
    let end = match range.end_bound() {
        Bound::Included(key) => Some(with(key.as_ref(), true)),
        Bound::Excluded(key) => Some(with(key.as_ref(), false)),
        Bound::Unbounded => tree.end_key().map(Vec::from),
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
///
/// Pairs are copied; a [`Cursor`] is faster.
pub struct Iter {
    db: Db,
    tree: Arc<TreeState>,
    hold: Hold,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    front: Option<Box<Cursor>>,
    back: Option<Box<Cursor>>,
    failed: Option<Error>,
    done: bool,
}

impl std::fmt::Debug for Iter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
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
        let engine = hold.as_ref().map_or(db.engine(), Hold::engine);
        let failed = tree.check_in(engine.log.incarnation).and_then(|()| db.engine().health.check_open()).err();
        let hold = hold.unwrap_or_else(|| Hold::now(db.engine(), ReaderKind::Iterator));
        let done = end.as_ref().is_some_and(|end| *end <= start);
        Iter { db: db.clone(), tree: Arc::clone(tree), hold, start, end, front: None, back: None, failed, done }
    }

    pub(in crate::db) fn over_range<K: AsRef<[u8]>>(
        db: &Db,
        tree: &Arc<TreeState>,
        range: impl RangeBounds<K>,
        hold: Option<Hold>,
    ) -> Iter {
        let (start, end) = user_bounds(tree.id, &range);
        Iter::over(db, tree, start, end, hold)
    }

    pub(in crate::db) fn over_prefix(db: &Db, tree: &Arc<TreeState>, prefix: &[u8], hold: Option<Hold>) -> Iter {
        let mut start = tree.id.first_key().to_vec();
        start.extend_from_slice(prefix);
        let end = prefix_end(start.clone());
        Iter::over(db, tree, start, end, hold)
    }

    /// Returns true if the row is within bounds and was not yielded by the other end.
    fn advance(&mut self, forward: bool) -> Result<bool> {
        let new_cursor = || Box::new(Cursor::new(&self.db, &self.tree, Some(self.hold.clone())));
        let is_there = match (forward, &mut self.front, &mut self.back) {
            (true, Some(cursor), _) => cursor.next()?,
            (false, _, Some(cursor)) => cursor.prev()?,
            (true, front @ None, _) => front.insert(new_cursor()).begin_at(true, &self.start)?,
            (false, _, back @ None) => {
                let cursor = back.insert(new_cursor());
                match &self.end {
                    Some(end) => cursor.begin_at(false, end)?,
                    None => cursor.seek_last()?,
                }
            }
        };
        Ok(is_there && self.is_within(forward))
    }

    fn is_within(&self, forward: bool) -> bool {
        match (&self.front, &self.back) {
            // The two ends must not have met.
            (Some(front), Some(back)) => {
                let (here, there) = (front.internal_key(), back.internal_key());
                here < there && (forward && self.is_before_end(here) || !forward && there >= self.start.as_slice())
            }
            (Some(front), None) => self.is_before_end(front.internal_key()),
            (None, Some(back)) => back.internal_key() >= self.start.as_slice(),
            (None, None) => false,
        }
    }

    fn is_before_end(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_none_or(|end| key < end.as_slice())
    }

    fn row(&mut self, forward: bool) -> Option<Result<(Key, Value)>> {
        if let Some(e) = self.failed.take() {
            self.done = true;
            return Some(Err(e));
        }
        if self.done {
            return None;
        }
        match self.advance(forward) {
            Ok(true) => {
                let row = self.take_row(forward);
                // On such an error the cursor is still on the record and continues after it.
                self.done = row.as_ref().is_err_and(|e| !is_of_one_record(e));
                Some(row)
            }
            Ok(false) => {
                self.done = true;
                None
            }
            Err(e) => {
                // Release what the cursors pin.
                (self.done, self.front, self.back) = (true, None, None);
                Some(Err(e))
            }
        }
    }

    fn take_row(&mut self, forward: bool) -> Result<(Key, Value)> {
        let side = if forward { &mut self.front } else { &mut self.back };
        let Some(cursor) = side else { unreachable!("the cursor was made by advance") };
        let (key, value) = cursor.row()?;
        Ok((Key::new(key.to_vec()), Value::new(value.to_vec())))
    }
}

impl Iterator for Iter {
    type Item = Result<(Key, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.row(true)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.row(false)
    }
}

impl std::iter::FusedIterator for Iter {}
