//! Batches of typed writes.

use crate::{
    codec::ValueCodec,
    error::Result,
    key::{self, TupleKey},
    schema::{Expiry, Put, Schema},
};
use braiddb::{Durability, Transaction};
use std::{
    fmt,
    time::{Duration, SystemTime},
};

enum Write {
    Put(Put),
    Delete(Vec<u8>),
}

/// Writes of one tree that commit together, in their order. For several trees, or with reads
/// between, use [`TypedTree::in_tx`](crate::TypedTree::in_tx).
///
/// ```
/// # fn main() -> braiddb_typed::Result<()> {
/// let db = braiddb::Db::in_memory()?;
/// let names: braiddb_typed::TypedTree<u32, String> = braiddb_typed::TypedTree::open(&db, "names")?;
/// let mut batch = names.batch();
/// batch.put(&1, &"Ann".to_owned())?.put(&2, &"Bob".to_owned())?.delete(&3)?;
/// batch.commit()?;
/// assert_eq!(names.len()?, 2);
/// # Ok(())
/// # }
/// ```
#[must_use = "a batch writes nothing before `commit`"]
pub struct TypedBatch<'a, K, V, C> {
    schema: &'a Schema<K, V, C>,
    writes: Vec<Write>,
}

impl<K, V, C> fmt::Debug for TypedBatch<'_, K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedBatch").field("writes", &self.writes.len()).finish_non_exhaustive()
    }
}

impl<'a, K: TupleKey, V, C: ValueCodec<V>> TypedBatch<'a, K, V, C> {
    pub(crate) fn new(schema: &'a Schema<K, V, C>) -> TypedBatch<'a, K, V, C> {
        TypedBatch { schema, writes: Vec::new() }
    }

    /// Adds a put; the record expires by the tree's default, if that has one.
    pub fn put(&mut self, key: &K, value: &V) -> Result<&mut Self> {
        self.push(key, value, Expiry::Default)
    }

    /// Adds a put of a record that expires after `ttl` from the commit on.
    pub fn put_with_ttl(&mut self, key: &K, value: &V, ttl: Duration) -> Result<&mut Self> {
        self.push(key, value, Expiry::After(ttl))
    }

    /// Adds a put of a record that expires at `expires`.
    pub fn put_until(&mut self, key: &K, value: &V, expires: SystemTime) -> Result<&mut Self> {
        self.push(key, value, Expiry::At(expires))
    }

    fn push(&mut self, key: &K, value: &V, expiry: Expiry) -> Result<&mut Self> {
        self.writes.push(Write::Put(self.schema.prepare(key, value, expiry)?));
        Ok(self)
    }

    /// Adds a deletion: see [`TypedTree::delete`](crate::TypedTree::delete).
    pub fn delete(&mut self, key: &K) -> Result<&mut Self> {
        self.writes.push(Write::Delete(key::pack(key)?));
        Ok(self)
    }

    /// Returns the number of writes.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Returns whether there are no writes.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Commits all writes, or none. Repeats after conflicts.
    pub fn commit(self) -> Result<()> {
        self.schema.update(|tx| self.write(tx))
    }

    /// Commits with the given durability.
    pub fn commit_with(self, durability: Durability) -> Result<()> {
        self.schema.update_with(durability, |tx| self.write(tx))
    }

    fn write(&self, tx: &Transaction) -> Result<()> {
        for write in &self.writes {
            match write {
                Write::Put(put) => self.schema.put(tx, put)?,
                Write::Delete(key) => self.schema.delete(tx, key)?,
            }
        }
        Ok(())
    }
}
