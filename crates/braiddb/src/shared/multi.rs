//! Multi-trees of a shared database.

use super::database::SharedDb;
use crate::{
    base::{Error, Result, SequenceNumber, TreeId},
    db::{
        Db, Key, KeyRange, MultiIter, MultiTree, MultiValues, ReadMulti, Snapshot, SnapshotMultiTree, Transaction,
        TransactionMultiTree, Value,
    },
};
use std::{fmt, sync::Arc};

/// A multi-tree of a [`SharedDb`]: many sorted values per key, see [`MultiTree`]. Clones are cheap
/// and shared across threads.
///
/// Reads see a state that has all acknowledged writes of this process.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// # if !cfg!(any(unix, windows)) { return Ok(()) }
/// # let dir = std::env::temp_dir().join(format!("braiddb-doc-shared-multi-{}", std::process::id()));
/// let db = braiddb::Db::builder().open_shared(&dir)?;
/// let (albums, by_artist) = (db.tree("albums")?, db.multi_tree("by artist")?);
/// let mut batch = db.batch();
/// batch.put(&albums, "1", "Ten").add(&by_artist, "Pearl Jam", "1");
/// batch.commit()?;
/// by_artist.add("Pearl Jam", "2")?;
/// assert_eq!(by_artist.count_values("Pearl Jam")?, 2);
/// # db.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedMultiTree {
    db: SharedDb,
    name: Arc<str>,
    id: TreeId,
}

impl fmt::Debug for SharedMultiTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMultiTree").field("name", &self.name).field("db", &self.db).finish_non_exhaustive()
    }
}

impl SharedMultiTree {
    pub(super) fn new(db: &SharedDb, tree: &MultiTree) -> SharedMultiTree {
        SharedMultiTree { db: db.clone(), name: tree.name().into(), id: tree.id() }
    }

    pub(super) fn database(&self) -> &SharedDb {
        &self.db
    }

    /// Returns the tree's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the handle of this tree in a state of [`SharedDb::state`], for reads that this one
    /// lacks.
    pub fn in_state(&self, state: &Db) -> Result<MultiTree> {
        let tree = state.open_multi_tree(&self.name)?;
        if tree.id() == self.id {
            return Ok(tree);
        }
        Err(Error::NotFound(format!("the tree {:?} was dropped", self.name)))
    }

    fn now(&self) -> Result<MultiTree> {
        self.in_state(&self.db.state()?)
    }

    /// Returns the handle of this tree for a transaction of [`SharedDb::update`],
    /// [`SharedDb::begin`] or [`SharedDb::begin_exclusive`].
    pub fn in_transaction(&self, transaction: &Transaction) -> Result<MultiTree> {
        self.in_state(Db::of_transaction(transaction))
    }

    /// Returns a view of this tree at a snapshot of [`SharedDb::snapshot`].
    pub fn in_snapshot(&self, snapshot: &Snapshot) -> Result<SnapshotMultiTree> {
        Ok(snapshot.multi_tree(&self.in_state(snapshot.database())?))
    }

    /// Adds a value to `key`, or does nothing if the key has it. Returns the commit's sequence
    /// number.
    pub fn add(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        let mut batch = self.db.batch();
        batch.add(self, key, value);
        batch.commit()
    }

    /// Deletes one value of `key`, which may be absent.
    pub fn delete_pair(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        let mut batch = self.db.batch();
        batch.delete_pair(self, key, value);
        batch.commit()
    }

    /// Deletes `key` with all its values, in constant time.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        let mut batch = self.db.batch();
        batch.delete(self, key);
        batch.commit()
    }

    /// Deletes all keys in `range` with their values, in constant time.
    pub fn delete_range(&self, range: impl KeyRange) -> Result<SequenceNumber> {
        let mut batch = self.db.batch();
        batch.delete_range(self, range);
        batch.commit()
    }

    /// Returns true if `key` has a value.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.now()?.contains(key)
    }

    /// Returns true if `key` has `value`.
    pub fn contains_pair(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.now()?.contains_pair(key, value)
    }

    /// Iterates over the values of `key`, at one state.
    pub fn values(&self, key: impl AsRef<[u8]>) -> Result<MultiValues> {
        Ok(self.now()?.values(key))
    }

    /// Counts the values of `key` exactly.
    pub fn count_values(&self, key: impl AsRef<[u8]>) -> Result<u64> {
        self.now()?.count_values(key)
    }

    /// Iterates over pairs with keys in `range`, at one state.
    pub fn range(&self, range: impl KeyRange) -> Result<MultiIter> {
        Ok(self.now()?.range(range))
    }

    /// Iterates over all pairs, at one state.
    pub fn iter(&self) -> Result<MultiIter> {
        self.range(..)
    }

    /// Counts pairs with keys in a range exactly.
    pub fn count(&self, range: impl KeyRange) -> Result<u64> {
        ReadMulti::count(&self.now()?, range)
    }

    /// Removes and returns the first pair, atomically.
    pub fn pop_first(&self) -> Result<Option<(Key, Value)>> {
        self.pop(|tree| tree.pop_first())
    }

    /// Removes and returns the last pair, atomically.
    pub fn pop_last(&self) -> Result<Option<(Key, Value)>> {
        self.pop(|tree| tree.pop_last())
    }

    fn pop(
        &self,
        pop: impl Fn(&TransactionMultiTree<'_, '_>) -> Result<Option<(Key, Value)>>,
    ) -> Result<Option<(Key, Value)>> {
        self.db.update(|tx| pop(&tx.multi_tree(&self.in_transaction(tx)?)))
    }
}
