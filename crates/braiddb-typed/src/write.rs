//! Reads and writes of a typed tree in a transaction.

use crate::{
    codec::ValueCodec,
    error::Result,
    key::{self, TupleKey},
    puts::put_forms,
    schema::{Expiry, Schema},
    source::Source,
    view::View,
};
use braiddb::Transaction;
use std::{
    fmt,
    ops::{Deref, RangeBounds},
    time::{Duration, SystemTime},
};

/// A [`TypedTree`](crate::TypedTree) in a transaction. Reads are those of [`View`], and see the
/// transaction's own writes.
///
/// A write that is refused ([`Error::NotUnique`](crate::Error::NotUnique)) leaves the transaction as it
/// was. After another error of a write, abort the transaction: it may contain a part of the write.
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

    put_forms!();

    fn write(&self, key: &K, value: &V, expiry: Expiry) -> Result<()> {
        let schema = self.view.schema;
        schema.put(self.tx, &schema.prepare(key, value, expiry)?)
    }

    /// Sets the record of `key`, and returns the previous one.
    pub fn insert(&self, key: &K, value: &V) -> Result<Option<V>> {
        let before = self.get(key)?;
        self.put(key, value)?;
        Ok(before)
    }

    /// Deletes the record of `key`, which may be absent, or not decodable: see
    /// [`TypedTree::delete`](crate::TypedTree::delete).
    pub fn delete(&self, key: &K) -> Result<()> {
        self.view.schema.delete(self.tx, &key::pack(key)?)
    }

    /// Removes the record of `key`, and returns it.
    pub fn remove(&self, key: &K) -> Result<Option<V>> {
        self.view.schema.remove(self.tx, &key::pack(key)?)
    }

    /// Deletes the records with keys in `range`: see
    /// [`TypedTree::delete_range`](crate::TypedTree::delete_range).
    pub fn delete_range(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.view.schema.delete_range(self.tx, &key::bounds(&range)?)
    }

    /// Removes all records.
    pub fn clear(&self) -> Result<()> {
        self.view.schema.clear(self.tx)
    }
}
