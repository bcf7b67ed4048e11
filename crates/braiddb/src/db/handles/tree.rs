//! The handle of a tree.

use super::{
    batch::{Batch, commit},
    cursor::Cursor,
    database::Db,
    iter::Iter,
};
use crate::{
    base::{EntryKind, Result, SequenceNumber},
    commit::RawBatch,
    db::{
        engine::{
            catalog::TreeState,
            key::{KeyBuf, check_key},
        },
        record::bytes::{Key, Value},
        write::pipeline::CommitCondition,
    },
};
use std::{ops::RangeBounds, slice, sync::Arc};

/// A named tree: keys in order, each with a value. Cheap to clone; threads share it freely; it keeps the database open.
#[derive(Clone)]
pub struct Tree {
    db: Db,
    state: Arc<TreeState>,
}

impl std::fmt::Debug for Tree {
    /// Without what is inside: see [`Db`](crate::Db).
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

    /// Commits one operation.
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

    /// Its name now.
    pub fn name(&self) -> String {
        self.state.name.read().clone()
    }

    /// Gives `key` a value, in place of the one it has. It expires if the tree's values do ([`crate::TreeOptions::ttl`]), and not otherwise,
    /// whatever the value before it had: [`Tree::put_keep_ttl`] keeps the time at which that expires. The commit's sequence number.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        match self.db.engine().with_default_expiry(&self.state, value.as_ref()) {
            None => self.write(EntryKind::Value, key.as_ref(), value.as_ref()),
            Some(expiring) => self.write(EntryKind::Expiring, key.as_ref(), &expiring),
        }
    }

    /// Takes `key` away; it need not be there.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        self.write(EntryKind::Tombstone, key.as_ref(), b"")
    }

    /// Takes all keys in `range` away, in constant time.
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<SequenceNumber> {
        let mut batch = Batch::default();
        batch.delete_range(self, range);
        batch.commit(&self.db, self.db.engine().settings.durability)
    }

    /// The value of `key`, if there is one.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = self.checked(key.as_ref())?;
        self.db.engine().get_now(self.state.id, key, |value| Value::new(value.into_owned()))
    }

    /// Shows the value of `key` to `read`, if there is one, where it stands: nothing is copied. `read` should be quick, as
    /// memory that others evict meanwhile cannot be used again before it returns.
    pub fn get_with<R>(&self, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let key = self.checked(key.as_ref())?;
        self.db.engine().get_now(self.state.id, key, |value| read(&value))
    }

    /// A key that is to be looked up. Fails if the tree was dropped, or the key is too long.
    #[inline(always)]
    fn checked<'k>(&self, key: &'k [u8]) -> Result<&'k [u8]> {
        self.state.check()?;
        check_key(key)?;
        Ok(key)
    }

    /// Whether there is a value of `key`. Reads no blob.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = KeyBuf::of(&self.state, key.as_ref())?;
        self.db.engine().contains(&key, None)
    }

    /// The values of many keys, all as of one moment.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        let mut values = vec![None; keys.len()];
        self.multi_get_with(keys, |index, value| values[index] = value.map(|v| Value::new(v.to_vec())))?;
        Ok(values)
    }

    /// Shows the values of many keys, all as of one moment, to `read`, with their places among the keys and where they
    /// stand; `None` for a key without one. Much faster than as many gets: what they need from memory is fetched at once.
    pub fn multi_get_with<K: AsRef<[u8]>>(&self, keys: &[K], read: impl FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.state.check()?;
        self.db.engine().multi_get(self.state.id, keys, None, read)
    }

    /// A cursor over all pairs, as of now.
    pub fn cursor(&self) -> Cursor {
        Cursor::over(&self.db, &self.state, None)
    }

    /// The pairs whose keys lie in `range`, in order, as of now.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        Iter::over_range(&self.db, &self.state, range, None)
    }

    /// The pairs whose keys begin with `prefix`, in order, as of now.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        Iter::over_prefix(&self.db, &self.state, prefix.as_ref(), None)
    }

    /// All pairs, in order, as of now.
    pub fn iter(&self) -> Iter {
        self.prefix(b"")
    }

    /// The first pair.
    pub fn first(&self) -> Result<Option<(Key, Value)>> {
        self.iter().next().transpose()
    }

    /// The last pair.
    pub fn last(&self) -> Result<Option<(Key, Value)>> {
        self.iter().next_back().transpose()
    }

    /// About how many keys there are: [`RangeEstimate::keys`](crate::RangeEstimate) of all, with the error that is stated there.
    /// [`Tree::len`] counts exactly.
    pub fn len_estimate(&self) -> Result<u64> {
        self.approximate::<&[u8]>(..).map(|estimate| estimate.keys)
    }
}
