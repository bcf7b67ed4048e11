//! Batches of a shared database.

use super::{
    database::{SharedDb, logged},
    multi::SharedMultiTree,
    tree::SharedTree,
};
use crate::{
    base::{Error, Result, SequenceNumber},
    db::{AnyTree, Batch, Db, Durability, KeyRange, MultiTree, Tree},
    platform::SystemTime,
};
use std::{fmt, sync::Arc, time::Duration};

/// A [`SharedTree`] or a [`SharedMultiTree`].
pub trait AnySharedTree: sealed::Sealed {}

impl AnySharedTree for SharedTree {}
impl AnySharedTree for SharedMultiTree {}

mod sealed {
    use super::{AnyTree, Db, Result, SharedDb};

    pub trait Sealed {
        type InState: AnyTree;

        fn of(&self) -> &SharedDb;

        fn named(&self) -> &str;

        fn within(&self, state: &Db) -> Result<Self::InState>;
    }
}

impl sealed::Sealed for SharedTree {
    type InState = Tree;

    fn of(&self) -> &SharedDb {
        self.database()
    }

    fn named(&self) -> &str {
        self.name()
    }

    fn within(&self, state: &Db) -> Result<Tree> {
        self.in_state(state)
    }
}

impl sealed::Sealed for SharedMultiTree {
    type InState = MultiTree;

    fn of(&self) -> &SharedDb {
        self.database()
    }

    fn named(&self) -> &str {
        self.name()
    }

    fn within(&self, state: &Db) -> Result<MultiTree> {
        self.in_state(state)
    }
}

/// Writes of a [`SharedDb`] that commit atomically. The last write of a key wins. An error of a
/// call is returned by the commit. Dropping the batch discards them.
pub struct SharedBatch {
    db: SharedDb,
    /// The state that the trees are of, and the writes.
    begun: Option<(Db, Batch)>,
    error: Option<Error>,
}

impl fmt::Debug for SharedBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBatch").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl SharedBatch {
    pub(super) fn new(db: &SharedDb) -> SharedBatch {
        SharedBatch { db: db.clone(), begun: None, error: None }
    }

    fn change<T: AnySharedTree>(&mut self, tree: &T, write: impl FnOnce(&mut Batch, &T::InState)) -> &mut SharedBatch {
        if let Err(e) = self.try_change(tree, write) {
            self.error.get_or_insert(e);
        }
        self
    }

    fn try_change<T: AnySharedTree>(&mut self, tree: &T, write: impl FnOnce(&mut Batch, &T::InState)) -> Result<()> {
        if !Arc::ptr_eq(&tree.of().shared, &self.db.shared) {
            return Err(Error::InvalidArgument(format!("the tree {:?} is another database's", tree.named())));
        }
        let (state, batch) = match &mut self.begun {
            Some(begun) => begun,
            None => {
                // Only the trees matter, and a tree that was opened is in every later state.
                let state = self.db.any_state()?;
                let batch = state.batch();
                self.begun.insert((state, batch))
            }
        };
        let tree = tree.within(state).or_else(|_| tree.within(&self.db.state()?))?;
        write(batch, &tree);
        Ok(())
    }

    /// Sets the value of `key`.
    pub fn put(&mut self, tree: &SharedTree, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut SharedBatch {
        self.change(tree, |batch, tree| _ = batch.put(tree, key, value))
    }

    /// Sets a value that expires after `ttl`.
    pub fn put_with_ttl(
        &mut self,
        tree: &SharedTree,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> &mut SharedBatch {
        self.change(tree, |batch, tree| _ = batch.put_with_ttl(tree, key, value, ttl))
    }

    /// Sets a value that expires at a time.
    pub fn put_until(
        &mut self,
        tree: &SharedTree,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires: SystemTime,
    ) -> &mut SharedBatch {
        self.change(tree, |batch, tree| _ = batch.put_until(tree, key, value, expires))
    }

    /// Deletes `key`; in a multi-tree, with all its values, except later additions of this batch.
    pub fn delete(&mut self, tree: &impl AnySharedTree, key: impl AsRef<[u8]>) -> &mut SharedBatch {
        self.change(tree, |batch, tree| _ = batch.delete(tree, key))
    }

    /// Adds a value to `key` of a multi-tree.
    pub fn add(&mut self, tree: &SharedMultiTree, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut SharedBatch {
        self.change(tree, |batch, tree| _ = batch.add(tree, key, value))
    }

    /// Deletes one value of `key` of a multi-tree.
    pub fn delete_pair(
        &mut self,
        tree: &SharedMultiTree,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> &mut SharedBatch {
        self.change(tree, |batch, tree| _ = batch.delete_pair(tree, key, value))
    }

    /// Deletes all keys in `range`, except later writes of this batch.
    pub fn delete_range(&mut self, tree: &impl AnySharedTree, range: impl KeyRange) -> &mut SharedBatch {
        self.change(tree, |batch, tree| _ = batch.delete_range(tree, range))
    }

    /// Returns the number of writes.
    pub fn len(&self) -> usize {
        self.begun.as_ref().map_or(0, |(_, batch)| batch.len())
    }

    /// Returns true if empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Commits atomically with the database's durability, and returns the commit's sequence number.
    pub fn commit(self) -> Result<SequenceNumber> {
        let durability = self.db.durability();
        self.commit_with(durability)
    }

    /// Commits with the given durability: see [`SharedBatch::commit`].
    pub fn commit_with(self, durability: Durability) -> Result<SequenceNumber> {
        let SharedBatch { db, begun, error } = self;
        if let Some(e) = error {
            return Err(e);
        }
        match begun {
            Some((_, batch)) => db.commit_batch(batch, logged(durability)),
            None => Ok(db.state()?.snapshot().sequence()),
        }
    }
}
