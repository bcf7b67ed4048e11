//! Writes of a tree that read first, or write many keys.

use super::super::{batch::Batch, database::Db, tree::Tree};
use crate::{
    base::{Result, SequenceNumber},
    db::{
        engine::settings::Durability,
        handles::conditional::Update,
        record::bytes::{Key, Value},
        write::update_scope::check_outside,
    },
};

/// Rows and bytes of a batch of [`Tree::extend`].
const EXTEND_ROWS: usize = 1000;
const EXTEND_BYTES: usize = 1 << 20;

impl Tree {
    /// Sets the value of `key` with the given durability: see [`Tree::put`].
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<SequenceNumber> {
        let mut batch = self.db().batch();
        batch.put(self, key, value);
        batch.commit_with(durability)
    }

    /// Sets the value of `key`, and returns the one before. [`Tree::put`] is faster: it reads
    /// nothing.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// let albums = db.tree("albums")?;
    /// assert_eq!(albums.insert("1", "Ten")?, None);
    /// assert_eq!(albums.insert("1", "Vs.")?.unwrap(), "Ten");
    /// assert_eq!(albums.remove("1")?.unwrap(), "Vs.");
    /// assert_eq!(albums.remove("1")?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.fetch_update(key, |_| Update::Put(value.as_ref().to_vec()))
    }

    /// Deletes `key`, and returns the value that it took. [`Tree::delete`] is faster: it reads
    /// nothing.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.fetch_update(key, |value| if value.is_some() { Update::Delete } else { Update::Keep })
    }

    /// Removes and returns the first pair, atomically. Repeats after conflicts, as
    /// [`crate::Db::update`] does; after 1000 returns the conflict.
    ///
    /// Passes the deleted keys before the first pair that no merge has removed yet.
    pub fn pop_first(&self) -> Result<Option<(Key, Value)>> {
        check_outside(self.db().engine())?;
        self.db().update(|tx| tx.tree(self).pop_first())
    }

    /// Removes and returns the last pair: see [`Tree::pop_first`].
    pub fn pop_last(&self) -> Result<Option<(Key, Value)>> {
        check_outside(self.db().engine())?;
        self.db().update(|tx| tx.tree(self).pop_last())
    }

    /// Deletes all keys, in constant time.
    pub fn clear(&self) -> Result<SequenceNumber> {
        self.delete_range(..)
    }

    /// Sets many values, in batches of 1000 rows or 1 MiB. Each batch is atomic, the whole is not. [`Tree::bulk_load`] is faster for millions of rows.
    pub fn extend<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, rows: impl IntoIterator<Item = (K, V)>) -> Result<()> {
        extend(self.db(), rows, |batch, key, value| _ = batch.put(self, key, value))
    }
}

/// Writes rows in batches, with the database's durability.
pub(in crate::db) fn extend<K, V>(
    db: &Db,
    rows: impl IntoIterator<Item = (K, V)>,
    add: impl Fn(&mut Batch, K, V),
) -> Result<()> {
    let mut batch = db.batch();
    for (key, value) in rows {
        add(&mut batch, key, value);
        if batch.len() >= EXTEND_ROWS || batch.size_bytes() >= EXTEND_BYTES {
            std::mem::replace(&mut batch, db.batch()).commit()?;
        }
    }
    if !batch.is_empty() {
        batch.commit()?;
    }
    Ok(())
}
