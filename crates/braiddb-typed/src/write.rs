//! Reads and writes of a typed tree in a transaction.

use crate::{
    codec::ValueCodec,
    error::Result,
    key::{self, TupleKey},
    schema::{Expiry, Schema},
    source::Source,
    view::View,
};
use braiddb::Transaction;
use std::{
    fmt,
    ops::Deref,
    time::{Duration, SystemTime},
};

/// A [`TypedTree`](crate::TypedTree) in a transaction. Reads are those of [`View`], and see the
/// transaction's own writes.
///
/// After an error of a write, abort the transaction: it may contain a part of the write.
pub struct InTransaction<'a, K, V, C> {
    view: View<'a, K, V, C>,
    tx: &'a Transaction,
}

impl<K, V, C> fmt::Debug for InTransaction<'_, K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InTransaction").field("tree", &self.view.schema.tree).finish_non_exhaustive()
    }
}

impl<'a, K, V, C> Deref for InTransaction<'a, K, V, C> {
    type Target = View<'a, K, V, C>;

    fn deref(&self) -> &View<'a, K, V, C> {
        &self.view
    }
}

impl<'a, K: TupleKey, V, C: ValueCodec<V>> InTransaction<'a, K, V, C> {
    pub(crate) fn new(schema: &'a Schema<K, V, C>, tx: &'a Transaction) -> InTransaction<'a, K, V, C> {
        InTransaction { view: View { schema, source: Source::Transaction(tx) }, tx }
    }

    /// Sets the record of `key`. It expires by the tree's default, if that has one.
    pub fn put(&self, key: &K, value: &V) -> Result<()> {
        self.write(key, value, Expiry::Default)
    }

    /// Sets a record that expires after `ttl`, with its index entries.
    pub fn put_with_ttl(&self, key: &K, value: &V, ttl: Duration) -> Result<()> {
        self.write(key, value, Expiry::After(ttl))
    }

    /// Sets a record that expires at `expires`, with its index entries.
    pub fn put_until(&self, key: &K, value: &V, expires: SystemTime) -> Result<()> {
        self.write(key, value, Expiry::At(expires))
    }

    /// Sets the record of `key` and keeps its expiry time, or that there is none.
    pub fn put_keep_ttl(&self, key: &K, value: &V) -> Result<()> {
        self.write(key, value, Expiry::Keep)
    }

    fn write(&self, key: &K, value: &V, expiry: Expiry) -> Result<()> {
        let (schema, key) = (self.view.schema, key::pack(key)?);
        let (bytes, entries) = schema.prepare(&key, value)?;
        schema.put(self.tx, &key, &bytes, &entries, expiry)
    }

    /// Sets the record of `key`, and returns the previous one.
    pub fn insert(&self, key: &K, value: &V) -> Result<Option<V>> {
        let before = self.get(key)?;
        self.put(key, value)?;
        Ok(before)
    }

    /// Removes the record of `key`, and returns it.
    pub fn remove(&self, key: &K) -> Result<Option<V>> {
        let (schema, key) = (self.view.schema, key::pack(key)?);
        let before = schema.remove(self.tx, &key)?;
        before.map(|bytes| schema.decode_value(&key, &bytes)).transpose()
    }

    /// Removes all records.
    pub fn clear(&self) -> Result<()> {
        self.view.schema.clear(self.tx)
    }
}
