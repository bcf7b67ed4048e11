//! Trees of a shared database.

use super::{database::SharedDb, message::Request};
use crate::{
    base::{Error, Result, SequenceNumber, TreeId},
    db::{Db, Durability, Iter, Key, KeyRange, Read, Snapshot, SnapshotTree, Transaction, Tree, Update, Value},
};
use std::{fmt, sync::Arc, time::Duration};

/// A tree of a [`SharedDb`]. Clones are cheap and shared across threads.
///
/// Reads see a state that has all acknowledged writes of this process.
#[derive(Clone)]
pub struct SharedTree {
    db: SharedDb,
    name: Arc<str>,
    id: TreeId,
}

impl fmt::Debug for SharedTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTree").field("name", &self.name).field("db", &self.db).finish_non_exhaustive()
    }
}

impl SharedTree {
    pub(super) fn new(db: &SharedDb, tree: Tree) -> Result<SharedTree> {
        Ok(SharedTree { db: db.clone(), name: tree.name().into(), id: tree.id() })
    }

    /// Returns the tree's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the handle of this tree in a state of [`SharedDb::state`], for reads that this one
    /// lacks.
    pub fn in_state(&self, state: &Db) -> Result<Tree> {
        let tree = state.open_tree(&self.name)?;
        if tree.id() == self.id {
            return Ok(tree);
        }
        Err(Error::NotFound(format!("the tree {:?} was dropped", self.name)))
    }

    pub(super) fn id(&self) -> TreeId {
        self.id
    }

    pub(super) fn database(&self) -> &SharedDb {
        &self.db
    }

    pub(super) fn now(&self) -> Result<Tree> {
        self.in_state(&self.db.state()?)
    }

    /// Returns the handle of this tree for a transaction of [`SharedDb::update`] or
    /// [`SharedDb::begin`].
    pub fn in_transaction(&self, transaction: &Transaction) -> Result<Tree> {
        self.in_state(Db::of_transaction(transaction))
    }

    /// Returns a view of this tree at a snapshot of [`SharedDb::snapshot`].
    pub fn in_snapshot(&self, snapshot: &Snapshot) -> Result<SnapshotTree> {
        Ok(snapshot.tree(&self.in_state(snapshot.database())?))
    }

    /// Sets the value of `key`, and returns the commit's sequence number.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        self.put_with(key, value, self.db.durability())
    }

    /// Sets the value of `key` with the given durability.
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<SequenceNumber> {
        let mut batch = self.db.batch();
        batch.put(self, key, value);
        batch.commit_with(durability)
    }

    /// Sets a value that expires after `ttl`: see [`Tree::put_with_ttl`].
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<SequenceNumber> {
        let mut batch = self.db.batch();
        batch.put_with_ttl(self, key, value, ttl);
        batch.commit()
    }

    /// Deletes `key`, which may be absent.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        let mut batch = self.db.batch();
        batch.delete(self, key);
        batch.commit()
    }

    /// Deletes all keys in `range`, in constant time.
    pub fn delete_range(&self, range: impl KeyRange) -> Result<SequenceNumber> {
        let mut batch = self.db.batch();
        batch.delete_range(self, range);
        batch.commit()
    }

    /// Applies the merge function with this name: see [`Db::merge_function`] and [`Tree::merge`].
    pub fn merge(&self, key: impl AsRef<[u8]>, function: &str, operand: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        let mut state = self.db.state()?;
        let handle = match state.merge_function(function) {
            Ok(handle) => handle,
            // The owner gives an application's function its number.
            Err(_) => {
                self.db.call(Request::Function { name: function.to_owned() })?;
                state = self.db.state()?;
                state.merge_function(function)?
            }
        };
        let mut batch = state.batch();
        batch.merge(&self.in_state(&state)?, key, &handle, operand);
        self.db.commit_batch(batch, self.db.durability())
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.now()?.get(key)
    }

    /// Calls `read` with the value of `key`, without a copy.
    pub fn get_with<R>(&self, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.now()?.get_with(key, read)
    }

    /// Returns the values of `keys` at one state.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.now()?.multi_get(keys)
    }

    /// Returns true if `key` has a value.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.now()?.contains(key)
    }

    /// Iterates over pairs with keys in `range`, at one state.
    pub fn range(&self, range: impl KeyRange) -> Result<Iter> {
        Ok(self.now()?.range(range))
    }

    /// Iterates over pairs with keys that begin with `prefix`, at one state.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        Ok(self.now()?.prefix(prefix))
    }

    /// Iterates over all pairs, at one state.
    pub fn iter(&self) -> Result<Iter> {
        Ok(self.now()?.iter())
    }

    /// Returns the first pair.
    pub fn first(&self) -> Result<Option<(Key, Value)>> {
        self.now()?.first()
    }

    /// Returns the last pair.
    pub fn last(&self) -> Result<Option<(Key, Value)>> {
        self.now()?.last()
    }

    /// Counts the keys in a range exactly.
    pub fn count(&self, range: impl KeyRange) -> Result<u64> {
        Read::count(&self.now()?, range)
    }

    /// Atomically changes a value by `update`, which runs again after each conflict. Returns the
    /// previous value: see [`Tree::fetch_update`]. [`Update::PutKeepTtl`] and
    /// [`Update::PutWithTtl`] work too.
    pub fn fetch_update(
        &self,
        key: impl AsRef<[u8]>,
        mut update: impl FnMut(Option<&[u8]>) -> Update,
    ) -> Result<Option<Value>> {
        let key = key.as_ref();
        self.db.update(|tx| {
            let tree = self.in_transaction(tx)?;
            let before = tx.get(&tree, key)?;
            match update(before.as_deref()) {
                Update::Keep => {}
                Update::Put(value) => tx.put(&tree, key, value)?,
                Update::PutKeepTtl(value) => tx.put_keep_ttl(&tree, key, value)?,
                Update::PutWithTtl(value, ttl) => tx.put_with_ttl(&tree, key, value, ttl)?,
                Update::Delete => tx.delete(&tree, key)?,
            }
            Ok(before)
        })
    }

    /// Changes `key` from `expected` to `new`, where `None` means absent. Returns false if the
    /// value differs.
    pub fn compare_exchange(&self, key: impl AsRef<[u8]>, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<bool> {
        let before = self.fetch_update(key, |value| match (value == expected, new) {
            (true, Some(new)) => Update::Put(new.to_vec()),
            (true, None) => Update::Delete,
            (false, _) => Update::Keep,
        })?;
        Ok(before.as_deref() == expected)
    }

    /// Changes the value of `key` from `expected` to `new`. Returns false if the value differs or
    /// there is none.
    pub fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
        new: impl AsRef<[u8]>,
    ) -> Result<bool> {
        self.compare_exchange(key, Some(expected.as_ref()), Some(new.as_ref()))
    }

    /// Deletes `key` if its value is `expected`. Returns false if the value differs or there is none.
    pub fn compare_and_delete(&self, key: impl AsRef<[u8]>, expected: impl AsRef<[u8]>) -> Result<bool> {
        self.compare_exchange(key, Some(expected.as_ref()), None)
    }

    /// Sets the value of an absent `key`. Returns false if it exists.
    pub fn put_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.compare_exchange(key, None, Some(value.as_ref()))
    }

    /// Sets the value of `key`, and returns the one before.
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.fetch_update(key, |_| Update::Put(value.as_ref().to_vec()))
    }

    /// Deletes `key`, and returns its value.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.fetch_update(key, |value| if value.is_some() { Update::Delete } else { Update::Keep })
    }

    /// Removes and returns the first pair, atomically.
    pub fn pop_first(&self) -> Result<Option<(Key, Value)>> {
        self.pop(|tx, tree| tx.first(tree))
    }

    /// Removes and returns the last pair, atomically.
    pub fn pop_last(&self) -> Result<Option<(Key, Value)>> {
        self.pop(|tx, tree| tx.last(tree))
    }

    fn pop(&self, find: impl Fn(&Transaction, &Tree) -> Result<Option<(Key, Value)>>) -> Result<Option<(Key, Value)>> {
        self.db.update(|tx| {
            let tree = self.in_transaction(tx)?;
            let found = find(tx, &tree)?;
            if let Some((key, _)) = &found {
                tx.delete(&tree, key)?;
            }
            Ok(found)
        })
    }
}
