//! How many keys a range has, exactly: counted where that can be done by views, and walked where not. See `read/count.rs`.
//! Estimates are in `ranges.rs`.

use super::{
    cursor::Cursor,
    database::Db,
    iter::user_bounds,
    multi::tree::{MultiTree, bounds_of_keys},
    snapshot::Snapshot,
    transaction::handle::Transaction,
    tree::Tree,
};
use crate::{
    base::{ReaderKind, Result},
    db::engine::{catalog::TreeState, read_hold::Hold},
    read::{self, Counted},
};
use std::{ops::RangeBounds, sync::Arc};

/// The same of the keys from `start` to the one that differs from it in its last byte, which is `end` there, if that is known already.
#[inline]
pub(in crate::db) fn count_kept(db: &Db, start: &[u8], end: u8, hold: Option<&Hold>) -> Result<Option<u64>> {
    let engine = db.engine();
    engine.health.check_open()?;
    let (state, snapshot) = engine.state_for(hold)?;
    // What a damaged view says is found out by who reads more of it.
    Ok(read::count_kept(&state, start, end, snapshot).unwrap_or_default())
}

/// Counts the internal keys of `start..end`, within a tree, that exist for a hold, or now.
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
        engine.healing(|| {
            let (state, snapshot) = engine.state_for(hold)?;
            read::count(&state, start, end, snapshot, engine.time_of(hold))
        })
    };
    let mut found = counted(hold)?;
    if found.left.is_empty() {
        return Ok(found.keys);
    }
    // What is walked is to be of the same moment as what is counted.
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

/// Counts a range of internal keys of a tree; one without an end goes to the tree's end.
fn count_within(
    db: &Db,
    tree: &Arc<TreeState>,
    (start, end): (Vec<u8>, Option<Vec<u8>>),
    hold: Option<&Hold>,
) -> Result<u64> {
    // Only a tree whose number is never reached has no end.
    let Some(end) = end else { return Ok(0) };
    count(db, tree, &start, &end, hold)
}

/// Whether a tree has no key for a hold, or now.
fn is_empty(db: &Db, tree: &Arc<TreeState>, hold: Option<Hold>) -> Result<bool> {
    db.engine().health.check_open()?;
    let mut cursor = Cursor::new(db, tree, hold);
    Ok(!cursor.begin_at(true, &tree.id.first_key())?)
}

impl Tree {
    /// How many keys there are in a range. Exact.
    ///
    /// O(log n) for each partition that the range meets, where the data is settled; beyond that it costs a look-up for each write that was not merged
    /// into a view since. Where large values, values that expire or operands of merge functions are in views, or where very much was
    /// written, it is a walk over the keys there: O(n). [`Tree::approximate`] never walks far.
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
    pub fn count<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64> {
        self.state().check()?;
        count_within(self.db(), self.state(), user_bounds(self.state().id, &range), None)
    }

    /// How many keys there are. Exact, at the cost of [`Tree::count`] over all; [`Tree::len_estimate`] is quicker.
    pub fn len(&self) -> Result<u64> {
        self.count::<&[u8]>(..)
    }

    /// Whether there are no keys. Exact, at the cost of a look for the first.
    pub fn is_empty(&self) -> Result<bool> {
        self.state().check()?;
        is_empty(self.db(), self.state(), None)
    }
}

impl MultiTree {
    /// How many pairs there are whose keys lie in a range. Exact, at the cost of [`Tree::count`].
    pub fn count_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64> {
        self.state().check()?;
        count_within(self.db(), self.state(), bounds_of_keys(self.state().id, &range), None)
    }

    /// How many pairs there are. Exact, at the cost of [`Tree::count`] over all.
    pub fn len(&self) -> Result<u64> {
        self.count_range::<&[u8]>(..)
    }

    /// Whether there are no pairs. Exact, at the cost of a look for the first.
    pub fn is_empty(&self) -> Result<bool> {
        self.state().check()?;
        is_empty(self.db(), self.state(), None)
    }
}

impl Snapshot {
    /// How many keys of a tree there were in a range; `..` for all. Exact: see [`Tree::count`].
    pub fn count_range<K: AsRef<[u8]>>(&self, tree: &Tree, range: impl RangeBounds<K>) -> Result<u64> {
        self.check_tree(tree.state())?;
        count_within(tree.db(), tree.state(), user_bounds(tree.state().id, &range), Some(self.hold()))
    }

    /// How many pairs of a multi-tree there were whose keys lie in a range; `..` for all. Exact: see [`Tree::count`].
    pub fn count_pairs<K: AsRef<[u8]>>(&self, tree: &MultiTree, range: impl RangeBounds<K>) -> Result<u64> {
        self.check_tree(tree.state())?;
        count_within(tree.db(), tree.state(), bounds_of_keys(tree.state().id, &range), Some(self.hold()))
    }

    /// Whether a tree had no keys. Exact.
    pub fn is_empty(&self, tree: &Tree) -> Result<bool> {
        self.check_tree(tree.state())?;
        is_empty(tree.db(), tree.state(), Some(self.hold().clone()))
    }
}

impl Transaction {
    /// How many keys of a tree there are in a range, its own writes included; `..` for all. Exact: see [`Tree::count`]. All of the range
    /// counts as read.
    pub fn count_range<K: AsRef<[u8]>>(&self, tree: &Tree, range: impl RangeBounds<K>) -> Result<u64> {
        self.check_tree(tree.db(), tree.state())?;
        let (start, end) = user_bounds(tree.state().id, &range);
        end.map_or(Ok(0), |end| self.count_between(tree.state(), &start, &end))
    }

    /// How many pairs of a multi-tree there are whose keys lie in a range, its own writes included; `..` for all. Exact. All of the range
    /// counts as read.
    pub fn count_pairs<K: AsRef<[u8]>>(&self, tree: &MultiTree, range: impl RangeBounds<K>) -> Result<u64> {
        self.check_tree(tree.db(), tree.state())?;
        let (start, end) = bounds_of_keys(tree.state().id, &range);
        end.map_or(Ok(0), |end| self.count_between(tree.state(), &start, &end))
    }
}
