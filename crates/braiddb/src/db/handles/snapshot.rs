//! Snapshots: the database as of one commit.

use super::{conditional, cursor::Cursor, database::Db, iter::Iter, key_range::KeyRange, tree::Tree};
use crate::{
    base::{ReaderKind, Result, SequenceNumber},
    db::{
        engine::{catalog::TreeState, key::KeyBuf, read_hold::Hold},
        read::point_read,
        record::{bytes::Value, version::Version},
    },
};

/// The database as of one commit. Needs constant memory but pins old versions. After
/// [`crate::Builder::reader_age_max`], if set, its reads fail with [`crate::Error::ReaderExpired`].
#[derive(Clone)]
pub struct Snapshot {
    db: Db,
    hold: Hold,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot")
            .field("sequence", &self.sequence())
            .field("path", &self.db.engine().dir)
            .finish_non_exhaustive()
    }
}

impl Snapshot {
    pub(in crate::db) fn new(db: &Db) -> Snapshot {
        Snapshot::held(db, Hold::now(db.engine(), ReaderKind::Snapshot))
    }

    pub(in crate::db) fn held(db: &Db, hold: Hold) -> Snapshot {
        Snapshot { db: db.clone(), hold }
    }

    pub(in crate::db) fn db(&self) -> &Db {
        &self.db
    }

    pub(in crate::db) fn hold(&self) -> &Hold {
        &self.hold
    }

    #[inline]
    pub(in crate::db) fn check_tree(&self, tree: &TreeState) -> Result<()> {
        tree.check_in(self.db.engine().log.incarnation)
    }

    /// Returns its sequence number.
    pub fn sequence(&self) -> SequenceNumber {
        self.hold.sequence()
    }

    /// Returns the value of `key`.
    pub fn get(&self, tree: &Tree, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.check_tree(tree.state())?;
        let mut internal = KeyBuf::empty();
        let key = internal.seek_of(tree.state(), key.as_ref())?;
        point_read::get(self.db.engine(), key, Some(&self.hold), Value::of_cow)
    }

    /// Returns the value of `key` and its version.
    pub fn get_versioned(&self, tree: &Tree, key: impl AsRef<[u8]>) -> Result<Option<(Value, Version)>> {
        self.check_tree(tree.state())?;
        let key = KeyBuf::of(tree.state(), key.as_ref())?;
        conditional::get_versioned(self.db.engine(), &key, Some(&self.hold))
    }

    /// Calls `read` with the value of `key`: see [`Tree::get_with`].
    pub fn get_with<R>(&self, tree: &Tree, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.check_tree(tree.state())?;
        let mut internal = KeyBuf::empty();
        let key = internal.seek_of(tree.state(), key.as_ref())?;
        point_read::get(self.db.engine(), key, Some(&self.hold), |value| read(&value))
    }

    /// Returns true if `key` has a value.
    pub fn contains(&self, tree: &Tree, key: impl AsRef<[u8]>) -> Result<bool> {
        self.check_tree(tree.state())?;
        let key = KeyBuf::of(tree.state(), key.as_ref())?;
        point_read::contains(self.db.engine(), &key, Some(&self.hold))
    }

    /// Returns the values of `keys`.
    pub fn multi_get<K: AsRef<[u8]>>(&self, tree: &Tree, keys: &[K]) -> Result<Vec<Option<Value>>> {
        let mut values = vec![None; keys.len()];
        self.multi_get_with(tree, keys, |index, value| values[index] = value.map(Value::of))?;
        Ok(values)
    }

    /// Calls `read` with the value of each key: see [`Tree::multi_get_with`].
    pub fn multi_get_with<K: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        keys: &[K],
        read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.check_tree(tree.state())?;
        point_read::multi_get(self.db.engine(), tree.state().id, keys, Some(&self.hold), read)
    }

    /// Returns a cursor over all pairs of `tree`.
    pub fn cursor(&self, tree: &Tree) -> Cursor {
        Cursor::over(&self.db, tree.state(), Some(self.hold.clone()))
    }

    /// Iterates over pairs with keys in `range`.
    pub fn range(&self, tree: &Tree, range: impl KeyRange) -> Iter {
        Iter::over_range(&self.db, tree.state(), range, Some(self.hold.clone()))
    }

    /// Iterates over pairs with keys that begin with `prefix`.
    pub fn prefix(&self, tree: &Tree, prefix: impl AsRef<[u8]>) -> Iter {
        Iter::over_prefix(&self.db, tree.state(), prefix.as_ref(), Some(self.hold.clone()))
    }

    /// Iterates over all pairs.
    pub fn iter(&self, tree: &Tree) -> Iter {
        self.prefix(tree, b"")
    }
}
