//! One way to read a multi-tree: the latest state, a snapshot or a transaction.

use super::{
    cursor::MultiCursor,
    iter::{MultiIter, MultiValues, split_pair},
    tree::{MultiTree, bounds_of, bounds_of_keys, bounds_of_values, escape},
};
use crate::{
    base::{Result, internal_key},
    db::{
        engine::{
            key::{KeyBuf, TREE_ID_LEN, check_key},
            read_hold::Hold,
        },
        handles::{
            counting::count_within,
            iter::{Iter, prefix_end},
            key_range::{KeyRange, check_bounds},
            snapshot::Snapshot,
            transaction::{handle::Transaction, iter::TransactionIter},
        },
        read::point_read,
        record::bytes::{Key, Value},
    },
    txn::Side,
};

/// Reads of a multi-tree: by [`MultiTree`] at the latest commit, by [`Snapshot::multi_tree`] at a
/// snapshot, and by [`Transaction::multi_tree`] with the transaction's own writes. Write a helper
/// once for all three.
///
/// The names are those of [`Read`](crate::Read), for pairs in place of rows. A name with `value`
/// takes a key and concerns its values.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// use braiddb::{Db, Value, views::ReadMulti};
///
/// fn newest(by_artist: &impl ReadMulti, artist: &str) -> braiddb::Result<Vec<Value>> {
///     by_artist.values(artist).rev().take(2).collect()
/// }
///
/// let db = Db::in_memory()?;
/// let by_artist = db.multi_tree("albums by artist")?;
/// by_artist.extend([("Tool", "1993 Undertow"), ("Tool", "1996 Ænima")])?;
/// let before = db.snapshot();
/// db.update(|tx| {
///     tx.multi_tree(&by_artist).add("Tool", "2001 Lateralus")?;
///     assert_eq!(newest(&tx.multi_tree(&by_artist), "Tool")?, ["2001 Lateralus", "1996 Ænima"]);
///     Ok(())
/// })?;
/// assert_eq!(newest(&by_artist, "Tool")?, ["2001 Lateralus", "1996 Ænima"]);
/// assert_eq!(newest(&before.multi_tree(&by_artist), "Tool")?, ["1996 Ænima", "1993 Undertow"]);
/// # Ok(())
/// # }
/// ```
pub trait ReadMulti {
    /// Pairs by key and value, from both ends.
    type Iter: DoubleEndedIterator<Item = Result<(Key, Value)>>;

    /// Values of one key in order, from both ends.
    type Values: DoubleEndedIterator<Item = Result<Value>>;

    /// Returns true if `key` has a value.
    fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool>;

    /// Returns true if `key` has `value`.
    fn contains_pair(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool>;

    /// Iterates over the values of `key` in `range`.
    fn values_range(&self, key: impl AsRef<[u8]>, range: impl KeyRange) -> Self::Values;

    /// Counts the values of `key` exactly: see [`MultiTree::count_values`].
    fn count_values(&self, key: impl AsRef<[u8]>) -> Result<u64>;

    /// Iterates over pairs with keys in `range`.
    fn range(&self, range: impl KeyRange) -> Self::Iter;

    /// Iterates over pairs with keys that begin with `prefix`.
    fn prefix(&self, prefix: impl AsRef<[u8]>) -> Self::Iter;

    /// Counts pairs with keys in a range exactly: see [`Tree::count`](crate::Tree::count).
    fn count(&self, range: impl KeyRange) -> Result<u64>;

    /// Iterates over the values of `key`.
    fn values(&self, key: impl AsRef<[u8]>) -> Self::Values {
        self.values_range(key, ..)
    }

    /// Returns the first value of `key`.
    fn first_value(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.values(key).next().transpose()
    }

    /// Returns the last value of `key`.
    fn last_value(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.values(key).next_back().transpose()
    }

    /// Iterates over all pairs.
    fn iter(&self) -> Self::Iter {
        self.range(..)
    }

    /// Returns the first pair.
    fn first(&self) -> Result<Option<(Key, Value)>> {
        self.iter().next().transpose()
    }

    /// Returns the last pair.
    fn last(&self) -> Result<Option<(Key, Value)>> {
        self.iter().next_back().transpose()
    }

    /// Counts all pairs exactly.
    fn len(&self) -> Result<u64> {
        self.count(..)
    }

    /// Returns true if there are no pairs.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.first()?.is_none())
    }
}

/// A multi-tree at a snapshot: see [`Snapshot::multi_tree`].
#[derive(Clone, Debug)]
pub struct SnapshotMultiTree {
    snapshot: Snapshot,
    tree: MultiTree,
}

/// A multi-tree in a transaction: see [`Transaction::multi_tree`].
#[derive(Clone, Copy, Debug)]
pub struct TransactionMultiTree<'t, 'r> {
    transaction: &'t Transaction,
    tree: &'r MultiTree,
}

impl Snapshot {
    /// Returns a view of a multi-tree at this snapshot.
    pub fn multi_tree(&self, tree: &MultiTree) -> SnapshotMultiTree {
        SnapshotMultiTree { snapshot: self.clone(), tree: tree.clone() }
    }
}

impl Transaction {
    /// Returns a view of a multi-tree in this transaction, to read and write.
    pub fn multi_tree<'t, 'r>(&'t self, tree: &'r MultiTree) -> TransactionMultiTree<'t, 'r> {
        TransactionMultiTree { transaction: self, tree }
    }
}

impl SnapshotMultiTree {
    /// Returns a cursor over all pairs.
    pub fn cursor(&self) -> MultiCursor {
        MultiCursor::over(&self.tree, Some(self.snapshot.hold().clone()))
    }
}

impl TransactionMultiTree<'_, '_> {
    /// Adds a value to `key`, or does nothing if the key has it.
    pub fn add(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.transaction.add_pair(self.tree, key.as_ref(), value.as_ref())
    }

    /// Deletes one value of `key`, which may be absent.
    pub fn delete_pair(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.transaction.delete_pair(self.tree, key.as_ref(), value.as_ref())
    }

    /// Deletes `key` with all its values.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        check_key(key.as_ref())?;
        let (start, end) = bounds_of(self.tree.state().id, key.as_ref());
        self.transaction.delete_between(self.tree.db(), self.tree.state(), start.to_vec(), end.to_vec())
    }

    /// Deletes all keys in `range` with their values.
    pub fn delete_range(&self, range: impl KeyRange) -> Result<()> {
        check_bounds(&range)?;
        let (start, end) = bounds_of_keys(self.tree.state().id, &range);
        self.transaction.delete_between(self.tree.db(), self.tree.state(), start, end.unwrap_or_default())
    }

    /// Deletes all pairs.
    pub fn clear(&self) -> Result<()> {
        self.delete_range(..)
    }

    /// Removes and returns the first pair.
    pub fn pop_first(&self) -> Result<Option<(Key, Value)>> {
        self.popped(self.first()?)
    }

    /// Removes and returns the last pair.
    pub fn pop_last(&self) -> Result<Option<(Key, Value)>> {
        self.popped(self.last()?)
    }

    fn popped(&self, pair: Option<(Key, Value)>) -> Result<Option<(Key, Value)>> {
        if let Some((key, value)) = &pair {
            self.delete_pair(key, value)?;
        }
        Ok(pair)
    }
}

/// Reads by internal keys.
trait Source {
    type Entries: DoubleEndedIterator<Item = Result<(Key, Value)>>;

    fn of(&self) -> &MultiTree;
    fn entries(&self, start: Vec<u8>, end: Option<Vec<u8>>) -> Self::Entries;
    /// Returns the first or last entry; begins at the bound that pops left.
    fn end(&self, side: Side) -> Result<Option<(Key, Value)>>;
    fn has(&self, pair: &KeyBuf) -> Result<bool>;
    fn count_values_of(&self, key: &[u8]) -> Result<u64>;
    fn count_between(&self, start: Vec<u8>, end: Option<Vec<u8>>) -> Result<u64>;
}

/// Reads at a snapshot, or at the latest commit.
macro_rules! source {
    ($view:ty, |$self:ident| $tree:expr, $hold:expr) => {
        impl Source for $view {
            type Entries = Iter;

            fn of(&$self) -> &MultiTree {
                $tree
            }

            fn entries(&$self, start: Vec<u8>, end: Option<Vec<u8>>) -> Iter {
                let hold: Option<&Hold> = $hold;
                Iter::over($tree.db(), $tree.state(), start, end, hold.cloned())
            }

            fn end(&$self, side: Side) -> Result<Option<(Key, Value)>> {
                let (start, end) = bounds_of_keys($tree.state().id, &(..));
                let mut entries = $self.entries(start, end);
                entries.begin_at_bound(side);
                if side == Side::First { entries.next() } else { entries.next_back() }.transpose()
            }

            fn has(&$self, pair: &KeyBuf) -> Result<bool> {
                check($tree, $hold)?;
                point_read::contains($tree.db().engine(), pair, $hold)
            }

            fn count_values_of(&$self, key: &[u8]) -> Result<u64> {
                check($tree, $hold)?;
                $tree.count_at(key, $hold)
            }

            fn count_between(&$self, start: Vec<u8>, end: Option<Vec<u8>>) -> Result<u64> {
                check($tree, $hold)?;
                count_within($tree.db(), $tree.state(), (start, end), $hold)
            }
        }
    };
}

source!(MultiTree, |self| self, None);
source!(SnapshotMultiTree, |self| &self.tree, Some(self.snapshot.hold()));

/// The tree must exist, in the database of the snapshot.
fn check(tree: &MultiTree, hold: Option<&Hold>) -> Result<()> {
    let engine = hold.map_or(tree.db().engine(), Hold::engine);
    tree.state().check_in(engine.log.incarnation)
}

impl<'t> Source for TransactionMultiTree<'t, '_> {
    type Entries = TransactionIter<'t>;

    fn of(&self) -> &MultiTree {
        self.tree
    }

    fn entries(&self, start: Vec<u8>, end: Option<Vec<u8>>) -> TransactionIter<'t> {
        TransactionIter::new(self.transaction, self.tree.db(), self.tree.state(), start, end)
    }

    fn end(&self, side: Side) -> Result<Option<(Key, Value)>> {
        self.transaction.end(self.tree.db(), self.tree.state(), side)
    }

    fn has(&self, pair: &KeyBuf) -> Result<bool> {
        self.transaction.check_tree(self.tree.db(), self.tree.state())?;
        self.transaction.contains_key(pair)
    }

    fn count_values_of(&self, key: &[u8]) -> Result<u64> {
        let (start, end) = bounds_of(self.tree.state().id, key);
        self.count_between(start.to_vec(), Some(end.to_vec()))
    }

    fn count_between(&self, start: Vec<u8>, end: Option<Vec<u8>>) -> Result<u64> {
        self.transaction.check_tree(self.tree.db(), self.tree.state())?;
        // Only the largest tree id, never assigned, has no end.
        end.map_or(Ok(0), |end| self.transaction.count_between(self.tree.state(), &start, &end))
    }
}

/// The methods of [`ReadMulti`], so that callers need not import it.
macro_rules! view {
    (<$($lifetime:lifetime),*> $view:ty, $entries:ty) => {
        impl<$($lifetime),*> $view {
            /// Returns true if `key` has a value.
            pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
                Ok(self.first_value(key)?.is_some())
            }

            /// Returns true if `key` has `value`.
            pub fn contains_pair(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
                self.has(&self.of().checked_pair(key.as_ref(), value.as_ref())?)
            }

            /// Iterates over the values of `key`.
            pub fn values(&self, key: impl AsRef<[u8]>) -> MultiValues<$entries> {
                self.values_range(key, ..)
            }

            /// Iterates over the values of `key` in `range`.
            pub fn values_range(&self, key: impl AsRef<[u8]>, range: impl KeyRange) -> MultiValues<$entries> {
                let (front_len, start, end) = bounds_of_values(self.of().state().id, key.as_ref(), &range);
                MultiValues::new(self.entries(start, Some(end)), front_len - TREE_ID_LEN)
            }

            /// Returns the first value of `key`.
            pub fn first_value(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
                self.values(key).next().transpose()
            }

            /// Returns the last value of `key`.
            pub fn last_value(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
                self.values(key).next_back().transpose()
            }

            /// Counts the values of `key` exactly.
            ///
            /// O(log n) in settled data with a snapshot at least as new. Otherwise adds a lookup per
            /// write not yet merged into a view; at worst scans all values.
            pub fn count_values(&self, key: impl AsRef<[u8]>) -> Result<u64> {
                check_key(key.as_ref())?;
                self.count_values_of(key.as_ref())
            }

            /// Iterates over pairs with keys in `range`.
            pub fn range(&self, range: impl KeyRange) -> MultiIter<$entries> {
                let (start, end) = bounds_of_keys(self.of().state().id, &range);
                MultiIter(self.entries(start, end))
            }

            /// Iterates over pairs with keys that begin with `prefix`.
            pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> MultiIter<$entries> {
                let mut start = Vec::new();
                internal_key(self.of().state().id, &escape(prefix.as_ref()), &mut start);
                let end = prefix_end(start.clone());
                MultiIter(self.entries(start, end))
            }

            /// Iterates over all pairs.
            pub fn iter(&self) -> MultiIter<$entries> {
                self.range(..)
            }

            /// Returns the first pair.
            pub fn first(&self) -> Result<Option<(Key, Value)>> {
                self.end(Side::First)?.map(|entry| split_pair(Ok(entry))).transpose()
            }

            /// Returns the last pair.
            pub fn last(&self) -> Result<Option<(Key, Value)>> {
                self.end(Side::Last)?.map(|entry| split_pair(Ok(entry))).transpose()
            }

            /// Counts pairs with keys in a range exactly: see [`Tree::count`](crate::Tree::count).
            pub fn count(&self, range: impl KeyRange) -> Result<u64> {
                let (start, end) = bounds_of_keys(self.of().state().id, &range);
                self.count_between(start, end)
            }

            /// Counts all pairs exactly.
            pub fn len(&self) -> Result<u64> {
                self.count(..)
            }

            /// Returns true if there are no pairs.
            pub fn is_empty(&self) -> Result<bool> {
                Ok(self.first()?.is_none())
            }
        }

        /// A type's own methods come before the trait's, so these calls do not recurse.
        impl<$($lifetime),*> ReadMulti for $view {
            type Iter = MultiIter<$entries>;
            type Values = MultiValues<$entries>;

            fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
                self.contains(key)
            }

            fn contains_pair(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
                self.contains_pair(key, value)
            }

            fn values_range(&self, key: impl AsRef<[u8]>, range: impl KeyRange) -> Self::Values {
                self.values_range(key, range)
            }

            fn count_values(&self, key: impl AsRef<[u8]>) -> Result<u64> {
                self.count_values(key)
            }

            fn range(&self, range: impl KeyRange) -> Self::Iter {
                self.range(range)
            }

            fn prefix(&self, prefix: impl AsRef<[u8]>) -> Self::Iter {
                self.prefix(prefix)
            }

            fn count(&self, range: impl KeyRange) -> Result<u64> {
                self.count(range)
            }
        }

        impl<$($lifetime),*> IntoIterator for &$view {
            type Item = Result<(Key, Value)>;
            type IntoIter = MultiIter<$entries>;

            fn into_iter(self) -> Self::IntoIter {
                self.iter()
            }
        }
    };
}

view!(<> MultiTree, Iter);
view!(<> SnapshotMultiTree, Iter);
view!(<'t, 'r> TransactionMultiTree<'t, 'r>, TransactionIter<'t>);
