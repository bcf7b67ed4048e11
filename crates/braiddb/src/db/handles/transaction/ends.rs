//! The first and last pair of a tree in a transaction, and the bounds that it leaves if it deletes
//! them: see `txn/tree_ends.rs`.

use super::{handle::Transaction, iter::TransactionIter};
use crate::{
    base::Result,
    db::{
        engine::{catalog::TreeState, key::KeyBuf},
        handles::{database::Db, iter::user_bounds, tree::Tree},
        record::bytes::{Key, Value},
    },
    txn::{Side, Ticket, Written},
};
use std::sync::Arc;

/// Maximum first and last pairs that a transaction remembers.
const ENDS_MAX: usize = 64;

impl Transaction {
    /// Returns the first pair. Counts as a read of all keys up to it, so only an earlier key or a
    /// change of this one conflicts.
    ///
    /// If this transaction also deletes the pair, as a queue does, later calls, and
    /// [`Tree::first`], begin behind it. The first call since the open passes all keys deleted
    /// before the first pair that no merge has removed.
    pub fn first(&self, tree: &Tree) -> Result<Option<(Key, Value)>> {
        self.end(tree.db(), tree.state(), Side::First)
    }

    /// Returns the last pair. Counts as a read of all keys from it on.
    pub fn last(&self, tree: &Tree) -> Result<Option<(Key, Value)>> {
        self.end(tree.db(), tree.state(), Side::Last)
    }

    /// Removes and returns the first pair, as a queue does: see [`Tree::pop_first`]. Counts as a read
    /// of all keys up to it.
    pub fn pop_first(&self, tree: &Tree) -> Result<Option<(Key, Value)>> {
        self.pop(tree, Side::First)
    }

    /// Removes and returns the last pair. Counts as a read of all keys from it on.
    pub fn pop_last(&self, tree: &Tree) -> Result<Option<(Key, Value)>> {
        self.pop(tree, Side::Last)
    }

    pub(in crate::db) fn pop(&self, tree: &Tree, side: Side) -> Result<Option<(Key, Value)>> {
        let row = self.end(tree.db(), tree.state(), side)?;
        row.iter().try_for_each(|(key, _)| self.delete(tree, key))?;
        Ok(row)
    }

    /// Returns the first or last entry of a tree of either kind.
    pub(in crate::db) fn end(&self, db: &Db, tree: &Arc<TreeState>, side: Side) -> Result<Option<(Key, Value)>> {
        let (start, end) = user_bounds(tree.id, &(..));
        let mut rows = TransactionIter::new(self, db, tree, start, end);
        // The snapshot is older than this call: INVARIANT B1.
        if let Some(bound) = self.db().engine().commits.tree_ends.bound(tree.id, side, self.sequence()) {
            rows.begin_at(side, bound);
        }
        let row = if side == Side::First { rows.next() } else { rows.next_back() }.transpose()?;
        drop(rows);
        // With own writes before it, the row may not be the first one after the commit.
        if let Some((key, _)) = row.as_ref().filter(|_| self.writes().borrow().is_empty()) {
            let end = (tree.id, side, KeyBuf::new(tree.id, key).to_vec());
            let mut ends = self.ends.borrow_mut();
            if ends.len() < ENDS_MAX && !ends.contains(&end) {
                ends.push(end);
            }
        }
        Ok(row)
    }

    /// Proposes the bounds behind deleted first and last pairs: INVARIANT B1.
    pub(super) fn propose_ends(&self) -> Vec<Ticket> {
        let (ends, writes) = (self.ends.borrow(), self.writes().borrow());
        let is_deleted = |key: &[u8]| matches!(writes.get(key), Some(Written::Gone));
        let popped = ends.iter().filter(|(_, _, key)| is_deleted(key));
        popped.map(|(tree, side, key)| self.db().engine().commits.tree_ends.propose(*tree, *side, key)).collect()
    }
}
