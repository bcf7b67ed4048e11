//! Iterators.
//!
//! An iterator reads at one snapshot, which it holds. Each end has a cursor of its own, made when it is first used.
//! Cursors keep the files of their state alive; so after some rows an iterator looks whether its state was superseded,
//! and then goes on from the same key in the present one, which has all that its snapshot can see.

use super::{
    bytes::{Key, Value},
    catalog::TreeState,
    database::Db,
    snapshot::Hold,
};
use crate::{
    base::{Cursor, EntryKind, Error, Result, TreeId},
    read::{ReadState, ScanCursor},
};
use std::{
    ops::{Bound, RangeBounds},
    sync::Arc,
};

/// The length of a tree id before a user key.
const TREE_ID_LEN: usize = 4;

/// Rows between two looks at whether the state was superseded.
const ROWS_PER_LOOK: u32 = 1024;

/// How often one read tries again after a damaged view was set aside.
const HEAL_TRIES: usize = 64;

/// The internal bounds of a range of a tree: start inclusive, end exclusive.
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

/// The least bytes greater than everything that begins with `prefix`.
fn prefix_end(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = prefix.last_mut() {
        if *last < 0xff {
            *last += 1;
            return Some(prefix);
        }
        prefix.pop();
    }
    None
}

/// One end of an iterator.
#[derive(Debug, Default)]
struct End {
    /// The key shown last at this end.
    last: Option<Vec<u8>>,
    cursor: Option<Box<ScanCursor>>,
    state: Option<Arc<ReadState>>,
    rows: u32,
}

/// Pairs in key order, from both ends, as of one moment. Keeps the database open while it lives.
#[derive(Debug)]
pub struct Iter {
    db: Db,
    hold: Hold,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    front: End,
    back: End,
    failed: Option<Error>,
    done: bool,
}

impl Iter {
    pub(super) fn over(db: &Db, tree: &TreeState, start: Vec<u8>, end: Option<Vec<u8>>, hold: Option<Hold>) -> Iter {
        let failed = tree.check().and_then(|()| db.core().check_open()).err();
        let hold = hold.unwrap_or_else(|| Hold::now(db.core()));
        let done = end.as_ref().is_some_and(|end| *end <= start);
        Iter { db: db.clone(), hold, start, end, front: End::default(), back: End::default(), failed, done }
    }

    pub(super) fn over_range<K: AsRef<[u8]>>(
        db: &Db,
        tree: &TreeState,
        range: impl RangeBounds<K>,
        hold: Option<Hold>,
    ) -> Iter {
        let (start, end) = user_bounds(tree.id, &range);
        Iter::over(db, tree, start, end, hold)
    }

    pub(super) fn over_prefix(db: &Db, tree: &TreeState, prefix: &[u8], hold: Option<Hold>) -> Iter {
        let mut start = tree.id.first_key().to_vec();
        start.extend_from_slice(prefix);
        let end = prefix_end(start.clone());
        Iter::over(db, tree, start, end, hold)
    }

    /// Moves one end on by a row; whether there is one.
    fn advance(&mut self, forward: bool) -> Result<bool> {
        for _ in 0..HEAL_TRIES {
            match self.try_advance(forward) {
                Err(e) => {
                    self.db.core().heal(e)?;
                    let side = if forward { &mut self.front } else { &mut self.back };
                    side.cursor = None;
                }
                done => return done,
            }
        }
        self.try_advance(forward)
    }

    fn try_advance(&mut self, forward: bool) -> Result<bool> {
        let core = self.db.core();
        let side = if forward { &mut self.front } else { &mut self.back };
        side.rows += 1;
        if side.rows.is_multiple_of(ROWS_PER_LOOK)
            && side.state.as_ref().is_some_and(|s| !Arc::ptr_eq(s, &core.state.load()))
        {
            side.cursor = None;
        }
        if let Some(cursor) = &mut side.cursor {
            if forward { cursor.next()? } else { cursor.prev()? }
        } else {
            let state = core.state.load_full();
            let mut cursor = Box::new(ScanCursor::new(&state, self.hold.sequence()));
            match (forward, &side.last) {
                (true, None) => cursor.seek(&self.start)?,
                (true, Some(last)) => {
                    cursor.seek(last)?;
                    if cursor.valid() && cursor.key() == last.as_slice() {
                        cursor.next()?;
                    }
                }
                (false, Some(last)) => cursor.seek_before(last)?,
                (false, None) => match &self.end {
                    Some(end) => cursor.seek_before(end)?,
                    None => cursor.seek_last()?,
                },
            }
            side.state = Some(state);
            side.cursor = Some(cursor);
        }
        Ok(self.is_within(forward))
    }

    /// Whether the cursor of one end stands on a row that is neither past the bounds nor shown at the other end.
    fn is_within(&self, forward: bool) -> bool {
        let side = if forward { &self.front } else { &self.back };
        let Some(cursor) = side.cursor.as_ref().filter(|c| c.valid()) else { return false };
        let key = cursor.key();
        if forward {
            self.end.as_ref().is_none_or(|end| key < end.as_slice())
                && self.back.last.as_ref().is_none_or(|last| key < last.as_slice())
        } else {
            key >= self.start.as_slice() && self.front.last.as_ref().is_none_or(|last| key > last.as_slice())
        }
    }

    fn row(&mut self, forward: bool) -> Option<Result<(Key, Value)>> {
        if let Some(e) = self.failed.take() {
            self.done = true;
            return Some(Err(e));
        }
        if self.done {
            return None;
        }
        let row = self
            .db
            .core()
            .check_open()
            .and_then(|()| self.advance(forward))
            .and_then(|there| if there { self.take_row(forward).map(Some) } else { Ok(None) })
            // Whoever opened the database since it was closed may have removed what was to be read.
            .or_else(|e| self.db.core().check_open().and(Err(e)));
        self.done = !matches!(row, Ok(Some(_)));
        row.transpose()
    }

    fn take_row(&mut self, forward: bool) -> Result<(Key, Value)> {
        let side = if forward { &mut self.front } else { &mut self.back };
        let Some(cursor) = &side.cursor else { unreachable!("the cursor was made by advance") };
        let entry = cursor.entry();
        let last = side.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(entry.key);
        let key = Key::new(entry.key[TREE_ID_LEN..].to_vec());
        let value = match entry.kind {
            EntryKind::BlobRef => self.db.core().blobs.read(entry.value)?,
            _ => entry.value.to_vec(),
        };
        Ok((key, Value::new(value)))
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
