//! The handle of a tree.

use super::super::{batch::commit, cursor::Cursor, database::Db, expiry, iter::Iter, key_range::KeyRange};
use crate::{
    base::{EntryKind, Result, SequenceNumber},
    commit::RawBatch,
    db::{
        engine::{
            catalog::TreeState,
            key::{KeyBuf, check_key},
        },
        read::point_read,
        record::bytes::{Key, Value},
        write::pipeline::CommitCondition,
    },
    txn::Side,
};
use std::{slice, sync::Arc};

/// A named tree of sorted keys with one value each. Clones are cheap, shared across threads, and
/// keep the database open. Reads see the latest commit.
#[derive(Clone)]
pub struct Tree {
    db: Db,
    state: Arc<TreeState>,
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("name", &self.name()).field("path", &self.db.engine().dir).finish_non_exhaustive()
    }
}

impl Tree {
    pub(in crate::db) fn new(db: &Db, state: Arc<TreeState>) -> Result<Tree> {
        Ok(Tree { db: db.clone(), state })
    }

    pub(in crate::db) fn state(&self) -> &Arc<TreeState> {
        &self.state
    }

    pub(in crate::db) fn db(&self) -> &Db {
        &self.db
    }

    pub(in crate::db) fn write(&self, kind: EntryKind, key: &[u8], value: &[u8]) -> Result<SequenceNumber> {
        check_key(key)?;
        let mut batch = RawBatch::default();
        batch.push(kind, &[&self.state.id.first_key(), key], value);
        commit(
            &self.db,
            batch,
            slice::from_ref(&self.state),
            self.db.engine().settings.durability,
            CommitCondition::None,
        )
    }

    /// Returns the current name.
    pub fn name(&self) -> String {
        self.state.name.read().clone()
    }

    /// Sets the value of `key`, and returns the commit's sequence number. It expires only by the
    /// tree's default ([`crate::TreeOptions::ttl`]); [`Tree::put_keep_ttl`] keeps the previous
    /// expiry time.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        match expiry::with_default_expiry(self.db.engine(), &self.state, value.as_ref()) {
            None => self.write(EntryKind::Value, key.as_ref(), value.as_ref()),
            Some(expiring) => self.write(EntryKind::Expiring, key.as_ref(), &expiring),
        }
    }

    /// Deletes `key`, which may be absent.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        self.write(EntryKind::Tombstone, key.as_ref(), b"")
    }

    /// Deletes all keys in `range`, in constant time.
    pub fn delete_range(&self, range: impl KeyRange) -> Result<SequenceNumber> {
        let mut batch = self.db.batch();
        batch.delete_range(self, range);
        batch.commit()
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = self.checked(key.as_ref())?;
        point_read::get_now(self.db.engine(), self.state.id, key, Value::of_cow)
    }

    /// Calls `read` with the value of `key`, without a copy. Keep `read` short: memory evicted
    /// meanwhile is not reused before it returns.
    pub fn get_with<R>(&self, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let key = self.checked(key.as_ref())?;
        point_read::get_now(self.db.engine(), self.state.id, key, |value| read(&value))
    }

    #[inline(always)]
    pub(in crate::db) fn checked<'k>(&self, key: &'k [u8]) -> Result<&'k [u8]> {
        self.state.check()?;
        check_key(key)?;
        Ok(key)
    }

    /// Returns true if `key` has a value. Reads no blob.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = KeyBuf::of(&self.state, key.as_ref())?;
        point_read::contains(self.db.engine(), &key, None)
    }

    /// Returns the values of `keys` at one snapshot.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        let mut values = vec![None; keys.len()];
        self.multi_get_with(keys, |index, value| values[index] = value.map(Value::of))?;
        Ok(values)
    }

    /// Calls `read` with each key's index and value, if any, at one snapshot and without copies.
    /// Much faster than separate gets: memory accesses overlap.
    pub fn multi_get_with<K: AsRef<[u8]>>(&self, keys: &[K], read: impl FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.state.check()?;
        point_read::multi_get(self.db.engine(), self.state.id, keys, None, read)
    }

    /// Returns a cursor over all pairs.
    pub fn cursor(&self) -> Cursor {
        Cursor::over(&self.db, &self.state, None)
    }

    /// Iterates over pairs with keys in `range`.
    pub fn range(&self, range: impl KeyRange) -> Iter {
        Iter::over_range(&self.db, &self.state, range, None)
    }

    /// Iterates over pairs with keys that begin with `prefix`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        Iter::over_prefix(&self.db, &self.state, prefix.as_ref(), None)
    }

    /// Iterates over all pairs.
    pub fn iter(&self) -> Iter {
        self.prefix(b"")
    }

    /// Returns the first pair.
    pub fn first(&self) -> Result<Option<(Key, Value)>> {
        self.end(Side::First)
    }

    /// Returns the last pair.
    pub fn last(&self) -> Result<Option<(Key, Value)>> {
        self.end(Side::Last)
    }

    fn end(&self, side: Side) -> Result<Option<(Key, Value)>> {
        let mut rows = self.iter();
        rows.begin_at_bound(side);
        let row = if side == Side::First { rows.next() } else { rows.next_back() };
        row.transpose()
    }

    /// Estimates the number of keys, as [`RangeEstimate::keys`](crate::stats::RangeEstimate).
    /// [`Tree::len`] is exact.
    pub fn len_estimate(&self) -> Result<u64> {
        self.approximate(..).map(|estimate| estimate.keys)
    }
}
