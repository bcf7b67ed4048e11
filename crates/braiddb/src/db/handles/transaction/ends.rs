//! The first and last pair of a tree in a transaction, and the bounds that it leaves if it deletes
//! them: see `txn/tree_ends.rs`.

use super::handle::Transaction;
use crate::{
    base::Result,
    db::{
        engine::key::KeyBuf,
        handles::tree::Tree,
        record::bytes::{Key, Value},
    },
    txn::{Side, Ticket, Written},
};

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
        self.end(tree, Side::First)
    }

    /// Returns the last pair. Counts as a read of all keys from it on.
    pub fn last(&self, tree: &Tree) -> Result<Option<(Key, Value)>> {
        self.end(tree, Side::Last)
    }

    pub(in crate::db) fn end(&self, tree: &Tree, side: Side) -> Result<Option<(Key, Value)>> {
        let mut rows = self.iter(tree);
        // The snapshot is older than this call: INVARIANT B1.
        if let Some(bound) = self.db().engine().commits.tree_ends.bound(tree.state().id, side, self.sequence()) {
            rows.begin_at(side, bound);
        }
        let row = if side == Side::First { rows.next() } else { rows.next_back() }.transpose()?;
        drop(rows);
        // With own writes before it, the row may not be the first one after the commit.
        if let Some((key, _)) = row.as_ref().filter(|_| self.writes().borrow().is_empty()) {
            let end = (tree.state().id, side, KeyBuf::new(tree.state().id, key).to_vec());
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
