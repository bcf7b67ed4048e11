//! Range scans of a transaction: its snapshot merged with its own writes.

use super::handle::Transaction;
use crate::{
    base::{Error, Result},
    db::{
        engine::{catalog::TreeState, key::TREE_ID_LEN},
        handles::{cursor::Cursor, database::Db, iter::is_of_one_record},
        record::bytes::{Key, Value},
    },
    txn::{self, RangeSlot, Written},
};
use std::{
    ops::Bound::{Excluded, Included},
    sync::Arc,
};

#[derive(Debug)]
struct Side {
    is_forward: bool,
    cursor: Option<Box<Cursor>>,
    is_on_row: bool,
    at: Vec<u8>,
    has_begun: bool,
    /// The cursor's row was returned.
    is_row_returned: bool,
    /// Where the cursor begins, if no row comes before: see `txn/tree_ends.rs`.
    bound: Option<Vec<u8>>,
    slot: Option<RangeSlot>,
}

enum Next {
    Nowhere,
    Stored,
    Own(Vec<u8>, Written),
}

/// Pairs in key order from both ends, with the transaction's own writes. Later writes appear ahead
/// of its position. All keys passed count as read. After an error about one value the next call
/// continues; any other error ends the iterator.
pub struct TransactionIter<'t> {
    transaction: &'t Transaction,
    tree: Arc<TreeState>,
    start: Vec<u8>,
    end: Vec<u8>,
    front: Side,
    back: Side,
    failed: Option<Error>,
    is_done: bool,
}

/// An internal key, and its value or the value's error.
pub(in crate::db) type Row = (Vec<u8>, Result<Vec<u8>>);

impl std::fmt::Debug for TransactionIter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransactionIter").finish_non_exhaustive()
    }
}

impl Side {
    fn new(is_forward: bool) -> Side {
        Side {
            is_forward,
            cursor: None,
            is_on_row: false,
            at: Vec::new(),
            has_begun: false,
            is_row_returned: false,
            bound: None,
            slot: None,
        }
    }
}

impl<'t> TransactionIter<'t> {
    pub(in crate::db) fn new(
        transaction: &'t Transaction,
        db: &Db,
        tree: &Arc<TreeState>,
        start: Vec<u8>,
        end: Option<Vec<u8>>,
    ) -> TransactionIter<'t> {
        let failed = transaction.check_tree(db, tree).and_then(|()| db.engine().health.check_open()).err();
        // Only the largest tree id, never assigned, has no end.
        let end = end.unwrap_or_default();
        let is_done = end <= start;
        let (front, back) = (Side::new(true), Side::new(false));
        TransactionIter { transaction, tree: Arc::clone(tree), start, end, front, back, failed, is_done }
    }

    /// Begins at a bound beyond which the tree has no row at the transaction's snapshot.
    pub(super) fn begin_at(&mut self, side: txn::Side, bound: Vec<u8>) {
        let end = if side == txn::Side::First { &mut self.front } else { &mut self.back };
        end.bound = Some(bound);
    }

    fn row(&mut self, is_forward: bool) -> Option<Result<(Key, Value)>> {
        let row = self.step(is_forward).transpose()?;
        Some(row.and_then(|(key, value)| Ok((Key::of(&key[TREE_ID_LEN..]), Value::new(value?)))))
    }

    /// Returns the next row: its internal key, and its value or the value's error. The outer error
    /// ends the iterator.
    pub(in crate::db) fn step(&mut self, is_forward: bool) -> Result<Option<Row>> {
        if let Some(e) = self.failed.take() {
            self.is_done = true;
            return Err(e);
        }
        if self.is_done {
            return Ok(None);
        }
        let row = self.advance(is_forward).inspect_err(|_| {
            (self.is_done, self.front.cursor, self.back.cursor) = (true, None, None);
        })?;
        self.is_done = row.is_none();
        Ok(row)
    }

    fn advance(&mut self, is_forward: bool) -> Result<Option<Row>> {
        self.transaction.hold().check()?;
        let TransactionIter { transaction, tree, start, end, front, back, .. } = self;
        let (side, other) = if is_forward { (front, back) } else { (back, front) };
        // Exclude rows yielded by the other end.
        let (start, end) = match (is_forward, other.has_begun) {
            (_, false) => (start.as_slice(), end.as_slice()),
            (true, true) => (start.as_slice(), other.at.as_slice()),
            (false, true) => (other.at.as_slice(), end.as_slice()),
        };
        let is_start_shown = !is_forward && other.has_begun;
        side.begin(transaction, tree, start, end)?;
        side.skip_hidden(transaction, start, end, is_start_shown)?;
        let row = match side.next(transaction, start, end, is_start_shown) {
            Next::Nowhere => None,
            Next::Own(key, written) => match transaction.resolve(&key, written) {
                Ok(None) => None,
                Ok(Some(value)) => Some((key, Ok(value))),
                Err(e) if is_of_one_record(&e) => Some((key, Err(e))),
                Err(e) => return Err(e),
            },
            Next::Stored => match &mut side.cursor {
                Some(cursor) => {
                    let value = match cursor.value() {
                        Err(e) if !is_of_one_record(&e) => return Err(e),
                        value => value.map(<[u8]>::to_vec),
                    };
                    let key = cursor.internal_key().to_vec();
                    side.is_row_returned = true;
                    Some((key, value))
                }
                None => None,
            },
        };
        side.note(transaction, start, end, row.as_ref().map(|(key, _)| key.as_slice()))?;
        let Some((key, value)) = row else { return Ok(None) };
        side.at.clear();
        side.at.extend_from_slice(&key);
        side.has_begun = true;
        Ok(Some((key, value)))
    }
}

impl Side {
    fn begin(&mut self, transaction: &Transaction, tree: &Arc<TreeState>, start: &[u8], end: &[u8]) -> Result<()> {
        if let Some(cursor) = &mut self.cursor {
            if std::mem::take(&mut self.is_row_returned) {
                self.is_on_row = if self.is_forward { cursor.next()? } else { cursor.prev()? };
            }
            return Ok(());
        }
        let from = if self.is_forward { start } else { end };
        self.slot = transaction.reads().map(|reads| reads.borrow_mut().begin_range(from));
        let cursor = Cursor::new(transaction.db(), tree, Some(transaction.hold().clone()));
        self.is_on_row =
            self.cursor.insert(Box::new(cursor)).begin_at(self.is_forward, self.bound.as_deref().unwrap_or(from))?;
        Ok(())
    }

    fn is_within(&self, key: &[u8], start: &[u8], end: &[u8], is_start_shown: bool) -> bool {
        if self.is_forward { key < end } else { key > start || (key == start && !is_start_shown) }
    }

    fn skip_hidden(&mut self, transaction: &Transaction, start: &[u8], end: &[u8], is_start_shown: bool) -> Result<()> {
        while self.is_on_row {
            let writes = transaction.writes().borrow();
            let Some(cursor) = &mut self.cursor else { return Ok(()) };
            if writes.is_empty() {
                return Ok(());
            }
            let key = cursor.internal_key();
            if let Some((from, to)) = writes.deleted().covering(key) {
                let edge = if self.is_forward { to } else { from }.to_vec();
                drop(writes);
                self.is_on_row = cursor.begin_at(self.is_forward, &edge)?;
            } else if writes.has_point(key) {
                drop(writes);
                self.is_on_row = if self.is_forward { cursor.next()? } else { cursor.prev()? };
            } else {
                return Ok(());
            }
            let Some(cursor) = &self.cursor else { return Ok(()) };
            if self.is_on_row && !self.is_within(cursor.internal_key(), start, end, is_start_shown) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn next(&self, transaction: &Transaction, start: &[u8], end: &[u8], is_start_shown: bool) -> Next {
        let stored = self.cursor.as_ref().filter(|_| self.is_on_row).map(|cursor| cursor.internal_key());
        let stored = stored.filter(|key| self.is_within(key, start, end, is_start_shown));
        let is_shown =
            |(_, written): &(&[u8], &Written)| **written != Written::Gone && !transaction.is_expired(written);
        let writes = transaction.writes().borrow();
        let own = if writes.is_empty() {
            None
        } else if self.is_forward {
            let from = if self.has_begun { Excluded(self.at.as_slice()) } else { Included(start) };
            writes.range(from, end).find(is_shown)
        } else {
            let from = if is_start_shown { Excluded(start) } else { Included(start) };
            let end = if self.has_begun { self.at.as_slice() } else { end };
            writes.range(from, end).rev().find(is_shown)
        };
        match (stored, own) {
            (None, None) => Next::Nowhere,
            (Some(_), None) => Next::Stored,
            (Some(stored), Some((key, _))) if (stored < key) == self.is_forward => Next::Stored,
            (_, Some((key, written))) => Next::Own(key.to_vec(), written.clone()),
        }
    }

    /// Records the range read, up to `key` or the end.
    fn note(&self, transaction: &Transaction, start: &[u8], end: &[u8], key: Option<&[u8]>) -> Result<()> {
        let (Some(reads), Some(slot)) = (transaction.reads(), self.slot) else { return Ok(()) };
        let mut reads = reads.borrow_mut();
        match (self.is_forward, key) {
            (true, Some(key)) => reads.grow_end(slot, key, true),
            (true, None) => reads.grow_end(slot, end, false),
            (false, Some(key)) => reads.grow_start(slot, key),
            (false, None) => reads.grow_start(slot, start),
        }
        drop(reads);
        transaction.check_size()
    }
}

impl Drop for TransactionIter<'_> {
    fn drop(&mut self) {
        let Some(reads) = self.transaction.reads() else { return };
        for slot in [self.front.slot, self.back.slot].into_iter().flatten() {
            reads.borrow_mut().end_range(slot);
        }
    }
}

impl Iterator for TransactionIter<'_> {
    type Item = Result<(Key, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.row(true)
    }
}

impl DoubleEndedIterator for TransactionIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.row(false)
    }
}

impl std::iter::FusedIterator for TransactionIter<'_> {}
