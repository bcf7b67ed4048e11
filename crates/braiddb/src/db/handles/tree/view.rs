//! One way to read: the latest state, a snapshot or a transaction.

use super::super::{
    cursor::Cursor,
    iter::Iter,
    key_range::KeyRange,
    merge::MergeFunctionHandle,
    snapshot::Snapshot,
    transaction::{cursor::TransactionCursor, handle::Transaction, iter::TransactionIter},
    tree::Tree,
};
use crate::{
    base::Result,
    db::{
        engine::key::KeyBuf,
        record::{
            bytes::{Key, Value},
            version::Version,
        },
    },
    platform::SystemTime,
};
use std::time::Duration;

/// Reads of a tree: by [`Tree`] at the latest commit, by [`Snapshot::tree`] at a snapshot, and by
/// [`Transaction::tree`] with the transaction's own writes. Write a helper once for all three.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// use braiddb::{Db, Read};
///
/// fn titles(albums: &impl Read) -> braiddb::Result<Vec<String>> {
///     albums.prefix("1991/").map(|row| Ok(row?.1.to_string())).collect()
/// }
///
/// let db = Db::in_memory()?;
/// let albums = db.tree("albums")?;
/// albums.put("1991/1", "Ten")?;
/// let before = db.snapshot();
/// db.update(|tx| {
///     tx.tree(&albums).put("1991/2", "Nevermind")?;
///     assert_eq!(titles(&tx.tree(&albums))?, ["Ten", "Nevermind"]);
///     Ok(())
/// })?;
/// assert_eq!(titles(&albums)?, ["Ten", "Nevermind"]);
/// assert_eq!(titles(&before.tree(&albums))?, ["Ten"]);
/// # Ok(())
/// # }
/// ```
pub trait Read {
    /// Pairs in key order, from both ends.
    type Iter: DoubleEndedIterator<Item = Result<(Key, Value)>>;

    /// A cursor, as [`Cursor`] is.
    type Cursor: ReadCursor;

    /// Returns the value of `key`.
    fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>>;

    /// Calls `read` with the value of `key`, without a copy: see [`Tree::get_with`].
    fn get_with<R>(&self, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>>;

    /// Returns the values of `keys`.
    fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>>;

    /// Returns true if `key` has a value.
    fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool>;

    /// Iterates over pairs with keys in `range`.
    fn range(&self, range: impl KeyRange) -> Self::Iter;

    /// Iterates over pairs with keys that begin with `prefix`.
    fn prefix(&self, prefix: impl AsRef<[u8]>) -> Self::Iter;

    /// Returns a cursor over all pairs.
    fn cursor(&self) -> Self::Cursor;

    /// Counts the keys in a range exactly: see [`Tree::count`].
    fn count(&self, range: impl KeyRange) -> Result<u64>;

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

    /// Counts all keys exactly: see [`Tree::count`].
    fn len(&self) -> Result<u64> {
        self.count(..)
    }

    /// Returns true if there are no keys.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.first()?.is_none())
    }
}

/// Moves and rows of a cursor, of [`Cursor`] and
/// [`TransactionCursor`](crate::views::TransactionCursor).
pub trait ReadCursor {
    /// Moves to the first row with a key at or after `key`. Returns false if there is none.
    fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool>;

    /// Moves to the last row with a key before `key`. Returns false if there is none.
    fn seek_before(&mut self, key: impl AsRef<[u8]>) -> Result<bool>;

    /// Moves to the first row.
    fn seek_first(&mut self) -> Result<bool>;

    /// Moves to the last row.
    fn seek_last(&mut self) -> Result<bool>;

    /// Moves to the next row. After the last row it stays there and returns false.
    fn next(&mut self) -> Result<bool>;

    /// Moves to the previous row. Before the first row it stays there and returns false.
    fn prev(&mut self) -> Result<bool>;

    /// Returns true if the cursor is on a row.
    fn is_on_row(&self) -> bool;

    /// Returns the current key. Panics if there is no row.
    fn key(&self) -> &[u8];

    /// Returns the current key and value. Panics if there is no row.
    fn row(&self) -> Result<(&[u8], &[u8])>;
}

/// A tree at a snapshot: see [`Snapshot::tree`].
#[derive(Clone, Debug)]
pub struct SnapshotTree {
    snapshot: Snapshot,
    tree: Tree,
}

/// A tree in a transaction: see [`Transaction::tree`].
#[derive(Clone, Copy, Debug)]
pub struct TransactionTree<'t, 'r> {
    transaction: &'t Transaction,
    tree: &'r Tree,
}

impl Snapshot {
    /// Returns a view of `tree` at this snapshot.
    pub fn tree(&self, tree: &Tree) -> SnapshotTree {
        SnapshotTree { snapshot: self.clone(), tree: tree.clone() }
    }

    /// Returns the first pair.
    pub fn first(&self, tree: &Tree) -> Result<Option<(Key, Value)>> {
        self.iter(tree).next().transpose()
    }

    /// Returns the last pair.
    pub fn last(&self, tree: &Tree) -> Result<Option<(Key, Value)>> {
        self.iter(tree).next_back().transpose()
    }
}

impl Transaction {
    /// Returns a view of `tree` in this transaction, to read and write.
    pub fn tree<'t, 'r>(&'t self, tree: &'r Tree) -> TransactionTree<'t, 'r> {
        TransactionTree { transaction: self, tree }
    }

    /// Returns the values of `keys`. Counts as a read of each.
    pub fn multi_get<K: AsRef<[u8]>>(&self, tree: &Tree, keys: &[K]) -> Result<Vec<Option<Value>>> {
        if self.is_empty() {
            self.check_tree(tree.db(), tree.state())?;
            for key in keys {
                self.note_key(&KeyBuf::of(tree.state(), key.as_ref())?)?;
            }
            return self.snapshot().multi_get(tree, keys);
        }
        keys.iter().map(|key| self.get(tree, key)).collect()
    }
}

impl SnapshotTree {
    /// Returns the value of `key` and its version.
    pub fn get_versioned(&self, key: impl AsRef<[u8]>) -> Result<Option<(Value, Version)>> {
        self.snapshot.get_versioned(&self.tree, key)
    }
}

impl TransactionTree<'_, '_> {
    /// Sets the value of `key`: see [`Tree::put`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.transaction.put(self.tree, key, value)
    }

    /// Sets the value of `key`, and returns the one before.
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.transaction.insert(self.tree, key, value)
    }

    /// Deletes `key`, which may be absent.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.transaction.delete(self.tree, key)
    }

    /// Deletes `key`, and returns its value.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.transaction.remove(self.tree, key)
    }

    /// Sets a value that expires after `ttl`: see [`Tree::put_with_ttl`].
    pub fn put_with_ttl(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) -> Result<()> {
        self.transaction.put_with_ttl(self.tree, key, value, ttl)
    }

    /// Sets a value that expires at `expires`.
    pub fn put_until(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expires: SystemTime) -> Result<()> {
        self.transaction.put_until(self.tree, key, value, expires)
    }

    /// Sets a value and keeps the expiry time: see [`Tree::put_keep_ttl`].
    pub fn put_keep_ttl(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.transaction.put_keep_ttl(self.tree, key, value)
    }

    /// Returns the value of `key` and its expiry time.
    pub fn get_with_expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<(Value, Option<SystemTime>)>> {
        self.transaction.get_with_expiry(self.tree, key)
    }

    /// Applies a merge function: see [`Tree::merge`].
    pub fn merge(
        &self,
        key: impl AsRef<[u8]>,
        function: &MergeFunctionHandle,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.transaction.merge(self.tree, key, function, operand)
    }

    /// Deletes all keys in `range`.
    pub fn delete_range(&self, range: impl KeyRange) -> Result<()> {
        self.transaction.delete_range(self.tree, range)
    }

    /// Deletes all keys.
    pub fn clear(&self) -> Result<()> {
        self.delete_range(..)
    }

    /// Removes and returns the first pair.
    pub fn pop_first(&self) -> Result<Option<(Key, Value)>> {
        self.transaction.pop_first(self.tree)
    }

    /// Removes and returns the last pair.
    pub fn pop_last(&self) -> Result<Option<(Key, Value)>> {
        self.transaction.pop_last(self.tree)
    }
}

/// The methods of [`Read`], so that callers need not import it.
macro_rules! view {
    (<$($lifetime:lifetime),*> $view:ty, $iter:ty, $cursor:ty, |$self:ident| $on:expr, $tree:expr) => {
        impl<$($lifetime),*> $view {
            /// Returns the value of `key`.
            pub fn get(&$self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
                $on.get($tree, key)
            }

            /// Calls `read` with the value of `key`, without a copy: see [`Tree::get_with`].
            pub fn get_with<R>(&$self, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
                $on.get_with($tree, key, read)
            }

            /// Returns the values of `keys`.
            pub fn multi_get<K: AsRef<[u8]>>(&$self, keys: &[K]) -> Result<Vec<Option<Value>>> {
                $on.multi_get($tree, keys)
            }

            /// Returns true if `key` has a value.
            pub fn contains(&$self, key: impl AsRef<[u8]>) -> Result<bool> {
                $on.contains($tree, key)
            }

            /// Iterates over pairs with keys in `range`.
            pub fn range(&$self, range: impl KeyRange) -> $iter {
                $on.range($tree, range)
            }

            /// Iterates over pairs with keys that begin with `prefix`.
            pub fn prefix(&$self, prefix: impl AsRef<[u8]>) -> $iter {
                $on.prefix($tree, prefix)
            }

            /// Returns a cursor over all pairs.
            pub fn cursor(&$self) -> $cursor {
                $on.cursor($tree)
            }

            /// Iterates over all pairs.
            pub fn iter(&$self) -> $iter {
                $on.iter($tree)
            }

            /// Returns the first pair.
            pub fn first(&$self) -> Result<Option<(Key, Value)>> {
                $on.first($tree)
            }

            /// Returns the last pair.
            pub fn last(&$self) -> Result<Option<(Key, Value)>> {
                $on.last($tree)
            }

            /// Counts the keys in a range exactly: see [`Tree::count`].
            pub fn count(&$self, range: impl KeyRange) -> Result<u64> {
                $on.count($tree, range)
            }

            /// Counts all keys exactly: see [`Tree::count`].
            pub fn len(&$self) -> Result<u64> {
                $self.count(..)
            }

            /// Returns true if there are no keys.
            pub fn is_empty(&$self) -> Result<bool> {
                Ok($self.first()?.is_none())
            }
        }
    };
}

view!(<> SnapshotTree, Iter, Cursor, |self| self.snapshot, &self.tree);
view!(<'t, 'r> TransactionTree<'t, 'r>, TransactionIter<'t>, TransactionCursor<'t>, |self| self.transaction, self.tree);

/// A type's own methods come before the trait's, so these calls do not recurse.
macro_rules! read {
    (<$($lifetime:lifetime),*> $view:ty, $iter:ty, $cursor:ty) => {
        impl<$($lifetime),*> Read for $view {
            type Iter = $iter;
            type Cursor = $cursor;

            fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
                self.get(key)
            }

            fn get_with<R>(&self, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
                self.get_with(key, read)
            }

            fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
                self.multi_get(keys)
            }

            fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
                self.contains(key)
            }

            fn range(&self, range: impl KeyRange) -> $iter {
                self.range(range)
            }

            fn prefix(&self, prefix: impl AsRef<[u8]>) -> $iter {
                self.prefix(prefix)
            }

            fn cursor(&self) -> $cursor {
                self.cursor()
            }

            fn count(&self, range: impl KeyRange) -> Result<u64> {
                self.count(range)
            }
        }
    };
}

read!(<> Tree, Iter, Cursor);
read!(<> SnapshotTree, Iter, Cursor);
read!(<'t, 'r> TransactionTree<'t, 'r>, TransactionIter<'t>, TransactionCursor<'t>);

impl IntoIterator for &Tree {
    type Item = Result<(Key, Value)>;
    type IntoIter = Iter;

    fn into_iter(self) -> Iter {
        self.iter()
    }
}

impl IntoIterator for &SnapshotTree {
    type Item = Result<(Key, Value)>;
    type IntoIter = Iter;

    fn into_iter(self) -> Iter {
        self.iter()
    }
}

/// A type's own methods come before the trait's, so these calls do not recurse.
macro_rules! read_cursor {
    ($cursor:ty) => {
        impl ReadCursor for $cursor {
            fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
                self.seek(key)
            }

            fn seek_before(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
                self.seek_before(key)
            }

            fn seek_first(&mut self) -> Result<bool> {
                self.seek_first()
            }

            fn seek_last(&mut self) -> Result<bool> {
                self.seek_last()
            }

            fn next(&mut self) -> Result<bool> {
                self.next()
            }

            fn prev(&mut self) -> Result<bool> {
                self.prev()
            }

            fn is_on_row(&self) -> bool {
                self.is_on_row()
            }

            fn key(&self) -> &[u8] {
                self.key()
            }

            fn row(&self) -> Result<(&[u8], &[u8])> {
                self.row()
            }
        }
    };
}

read_cursor!(Cursor);
read_cursor!(TransactionCursor<'_>);
