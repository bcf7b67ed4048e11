//! Exact counts, from views where possible and by a scan elsewhere: see `read/count.rs`.

use super::{
    cursor::Cursor, database::Db, iter::user_bounds, key_range::KeyRange, snapshot::Snapshot,
    transaction::handle::Transaction, tree::Tree,
};
use crate::{
    base::{ReaderKind, Result},
    db::{
        engine::{catalog::TreeState, read_hold::Hold},
        read::{healing, point_read},
    },
    read::{self, Counted},
};
use std::sync::Arc;

/// Returns the cached count of keys between `start` and `start` with the last byte `end`.
#[inline]
pub(in crate::db) fn count_kept(db: &Db, start: &[u8], end: u8, hold: Option<&Hold>) -> Result<Option<u64>> {
    let engine = db.engine();
    engine.health.check_open()?;
    let (state, snapshot) = engine.state_for(hold)?;
    // Ignore damage here: the general path finds it.
    Ok(read::count_kept(&state, start, end, snapshot).unwrap_or_default())
}

pub(in crate::db) fn count(
    db: &Db,
    tree: &Arc<TreeState>,
    start: &[u8],
    end: &[u8],
    hold: Option<&Hold>,
) -> Result<u64> {
    let engine = db.engine();
    engine.health.check_open()?;
    let counted = |hold: Option<&Hold>| -> Result<Counted> {
        healing::retry(engine, || {
            let (state, snapshot) = engine.state_for(hold)?;
            read::count(&state, start, end, snapshot, point_read::time_of(engine, hold))
        })
    };
    let mut found = counted(hold)?;
    if found.left.is_empty() {
        return Ok(found.keys);
    }
    // Scanned and counted keys must belong to the same snapshot.
    let hold = match hold {
        Some(hold) => hold.clone(),
        None => {
            let hold = Hold::now(engine, ReaderKind::Iterator);
            found = counted(Some(&hold))?;
            hold
        }
    };
    let mut cursor = Cursor::new(db, tree, Some(hold));
    for (start, end) in &found.left {
        let mut is_there = cursor.begin_at(true, start)?;
        while is_there && cursor.internal_key() < end.as_slice() {
            found.keys += 1;
            is_there = cursor.next()?;
        }
    }
    Ok(found.keys)
}

pub(in crate::db) fn count_within(
    db: &Db,
    tree: &Arc<TreeState>,
    (start, end): (Vec<u8>, Option<Vec<u8>>),
    hold: Option<&Hold>,
) -> Result<u64> {
    // Only the largest tree id, never assigned, has no end.
    let Some(end) = end else { return Ok(0) };
    count(db, tree, &start, &end, hold)
}

fn is_empty(db: &Db, tree: &Arc<TreeState>, hold: Option<Hold>) -> Result<bool> {
    db.engine().health.check_open()?;
    let mut cursor = Cursor::new(db, tree, hold);
    Ok(!cursor.begin_at(true, &tree.id.first_key())?)
}

impl Tree {
    /// Counts the keys in a range exactly.
    ///
    /// O(log n) per partition of settled data, plus a lookup per write not yet merged into a view.
    /// O(n) where views contain large values, expiring values or merge operands, or after many
    /// writes. [`Tree::approximate`] never scans far.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// let albums = db.tree("albums")?;
    /// for _ in 0..100 {
    ///     albums.put(b"1", b"Ten")?;
    /// }
    /// albums.put(b"2", b"Vs.")?;
    /// albums.delete(b"2")?;
    /// assert_eq!((albums.len()?, albums.count(b"2".as_slice()..)?), (1, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub fn count(&self, range: impl KeyRange) -> Result<u64> {
        self.state().check()?;
        count_within(self.db(), self.state(), user_bounds(self.state().id, &range), None)
    }

    /// Counts all keys exactly: see [`Tree::count`]. [`Tree::len_estimate`] is faster.
    pub fn len(&self) -> Result<u64> {
        self.count(..)
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> Result<bool> {
        self.state().check()?;
        is_empty(self.db(), self.state(), None)
    }
}

impl Snapshot {
    /// Counts keys in a range (`..` for all) exactly: see [`Tree::count`].
    pub fn count(&self, tree: &Tree, range: impl KeyRange) -> Result<u64> {
        self.check_tree(tree.state())?;
        count_within(tree.db(), tree.state(), user_bounds(tree.state().id, &range), Some(self.hold()))
    }

    /// Counts all keys of `tree` exactly: see [`Tree::count`].
    pub fn len(&self, tree: &Tree) -> Result<u64> {
        self.count(tree, ..)
    }

    /// Returns true if `tree` has no keys.
    pub fn is_empty(&self, tree: &Tree) -> Result<bool> {
        self.check_tree(tree.state())?;
        is_empty(tree.db(), tree.state(), Some(self.hold().clone()))
    }
}

impl Transaction {
    /// Counts keys in a range (`..` for all), own writes included: see [`Tree::count`]. Reads the
    /// whole range.
    pub fn count(&self, tree: &Tree, range: impl KeyRange) -> Result<u64> {
        self.check_tree(tree.db(), tree.state())?;
        let (start, end) = user_bounds(tree.state().id, &range);
        end.map_or(Ok(0), |end| self.count_between(tree.state(), &start, &end))
    }
}
