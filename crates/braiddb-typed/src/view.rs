//! Reads of a typed tree, at one source.

use crate::{
    codec::ValueCodec,
    entry::Index,
    error::{Error, Result},
    key::{self, Bounds, TupleKey},
    schema::Schema,
    source::{Pairs, Source},
};
use foundationdb_tuple::TuplePack;
use std::{
    fmt,
    ops::{Bound, RangeBounds},
    time::SystemTime,
};

/// Reads of a [`TypedTree`](crate::TypedTree) at a snapshot or in a transaction.
pub struct View<'a, K, V, C> {
    pub(crate) schema: &'a Schema<K, V, C>,
    pub(crate) source: Source<'a>,
}

impl<K, V, C> Clone for View<'_, K, V, C> {
    fn clone(&self) -> Self {
        View { schema: self.schema, source: self.source.clone() }
    }
}

impl<K, V, C> fmt::Debug for View<'_, K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("tree", &self.schema.tree).finish_non_exhaustive()
    }
}

impl<'a, K: TupleKey, V, C: ValueCodec<V>> View<'a, K, V, C> {
    /// Returns the record of `key`.
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        self.get_packed(&key::pack(key)?)
    }

    fn get_packed(&self, key: &[u8]) -> Result<Option<V>> {
        self.source.get_with(&self.schema.tree, key, |value| self.schema.decode_value(key, value))?.transpose()
    }

    /// Returns the records of `keys`, in their order. Faster than separate gets.
    pub fn multi_get(&self, keys: &[K]) -> Result<Vec<Option<V>>> {
        let keys = keys.iter().map(key::pack).collect::<Result<Vec<_>>>()?;
        let values = self.source.multi_get(&self.schema.tree, &keys)?;
        let decode = |(key, value): (&Vec<u8>, Option<braiddb::Value>)| {
            value.map(|value| self.schema.decode_value(key, &value)).transpose()
        };
        keys.iter().zip(values).map(decode).collect()
    }

    /// Returns the record of `key` and its expiry time; `None`: never.
    pub fn get_with_expiry(&self, key: &K) -> Result<Option<(V, Option<SystemTime>)>> {
        let key = key::pack(key)?;
        let found = self.source.get_with_expiry(&self.schema.tree, &key)?;
        found.map(|(value, expires)| Ok((self.schema.decode_value(&key, &value)?, expires))).transpose()
    }

    /// Returns whether `key` has a record.
    pub fn contains(&self, key: &K) -> Result<bool> {
        Ok(self.source.contains(&self.schema.tree, &key::pack(key)?)?)
    }

    /// Iterates over all records in key order.
    pub fn iter(&self) -> Records<'a, K, V, C> {
        self.records(key::bounds::<K>(&(..)))
    }

    /// Iterates over the records with keys in `range`.
    pub fn range(&self, range: impl RangeBounds<K>) -> Records<'a, K, V, C> {
        self.records(key::bounds(&range))
    }

    /// Iterates over the records whose keys begin with the elements of the tuple `prefix`: `&(1,)`
    /// for all keys `(1, _)`.
    pub fn prefix(&self, prefix: &impl TuplePack) -> Records<'a, K, V, C> {
        self.records(
            key::pack(prefix)
                .map(|prefix| match prefix.is_empty() {
                    true => key::bounds::<K>(&(..)),
                    false => Ok(key::bounds_of_prefix(prefix)),
                })
                .and_then(|bounds| bounds),
        )
    }

    fn records(&self, bounds: Result<Bounds>) -> Records<'a, K, V, C> {
        let (pairs, refused) = pairs(&self.source, self.schema, bounds);
        Records { schema: self.schema, pairs, refused }
    }

    /// Returns the first record.
    pub fn first(&self) -> Result<Option<(K, V)>> {
        self.iter().next().transpose()
    }

    /// Returns the last record.
    pub fn last(&self) -> Result<Option<(K, V)>> {
        self.iter().next_back().transpose()
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> Result<bool> {
        let first = self.source.range(&self.schema.tree, key::bounds::<K>(&(..))?).next();
        Ok(first.transpose()?.is_none())
    }

    /// Counts the records with keys in `range` exactly: see [`braiddb::Tree::count`].
    pub fn count(&self, range: impl RangeBounds<K>) -> Result<u64> {
        Ok(self.source.count(&self.schema.tree, key::bounds(&range)?)?)
    }

    /// Counts all records exactly: see [`braiddb::Tree::count`].
    pub fn len(&self) -> Result<u64> {
        self.count(..)
    }

    /// Returns the record with `value` in a unique index, or the first one in another index.
    pub fn get_by(&self, index: &str, value: &impl TuplePack) -> Result<Option<(K, V)>> {
        self.by_index(index, value).next().transpose()
    }

    /// Iterates over the records with `value` in the index, in key order.
    pub fn by_index<I: TuplePack>(&self, index: &str, value: &I) -> IndexRecords<'a, K, V, C> {
        self.index_range::<I>(index, (Bound::Included(value), Bound::Included(value)))
    }

    /// Iterates over the records with index values in `range`, in the order of these values, then
    /// of their keys.
    pub fn index_range<I: TuplePack>(&self, index: &str, range: impl RangeBounds<I>) -> IndexRecords<'a, K, V, C> {
        self.entries(index, |index| index.bounds(&range))
    }

    /// Iterates over the records whose index values begin with the elements of the tuple `prefix`.
    pub fn index_prefix(&self, index: &str, prefix: &impl TuplePack) -> IndexRecords<'a, K, V, C> {
        self.entries(index, |index| index.bounds_of_prefix(prefix))
    }

    /// Iterates over all records in the order of an index.
    pub fn index_iter(&self, index: &str) -> IndexRecords<'a, K, V, C> {
        self.index_range::<()>(index, ..)
    }

    fn entries(&self, name: &str, bounds: impl FnOnce(&Index<V>) -> Result<Bounds>) -> IndexRecords<'a, K, V, C> {
        let source = self.source.fixed();
        let checked = self.schema.index(name).and_then(|index| {
            self.schema.check_ready(&source, index)?;
            Ok((index, bounds(index)?))
        });
        let (index, bounds) = match checked {
            Ok((index, bounds)) => (Some(index), Ok(bounds)),
            Err(error) => (None, Err(error)),
        };
        let (entries, refused) = pairs(&source, self.schema, bounds);
        IndexRecords { view: View { schema: self.schema, source }, index, entries, refused }
    }
}

/// Returns the pairs, or an error for the iterator's first item.
fn pairs<'a, K, V, C>(
    source: &Source<'a>,
    schema: &Schema<K, V, C>,
    bounds: Result<Bounds>,
) -> (Pairs<'a>, Option<Error>) {
    match bounds {
        Ok(bounds) => (source.range(&schema.tree, bounds), None),
        Err(error) => (Box::new(std::iter::empty()), Some(error)),
    }
}

/// Records in key order; `rev()` for the reverse. An error in a record does not end it.
pub struct Records<'a, K, V, C> {
    schema: &'a Schema<K, V, C>,
    pairs: Pairs<'a>,
    refused: Option<Error>,
}

impl<K, V, C> fmt::Debug for Records<'_, K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("tree", &self.schema.tree).finish_non_exhaustive()
    }
}

impl<K: TupleKey, V, C: ValueCodec<V>> Records<'_, K, V, C> {
    fn step(&mut self, is_forward: bool) -> Option<Result<(K, V)>> {
        if let Some(error) = self.refused.take() {
            return Some(Err(error));
        }
        let pair = if is_forward { self.pairs.next()? } else { self.pairs.next_back()? };
        Some(
            pair.map_err(Error::from)
                .and_then(|(key, value)| Ok((self.schema.decode_key(&key)?, self.schema.decode_value(&key, &value)?))),
        )
    }
}

impl<K: TupleKey, V, C: ValueCodec<V>> Iterator for Records<'_, K, V, C> {
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

impl<K: TupleKey, V, C: ValueCodec<V>> DoubleEndedIterator for Records<'_, K, V, C> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}

/// Records in the order of an index; `rev()` for the reverse.
pub struct IndexRecords<'a, K, V, C> {
    view: View<'a, K, V, C>,
    index: Option<&'a Index<V>>,
    entries: Pairs<'a>,
    refused: Option<Error>,
}

impl<K, V, C> fmt::Debug for IndexRecords<'_, K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexRecords").field("view", &self.view).field("index", &self.index).finish_non_exhaustive()
    }
}

impl<K: TupleKey, V, C: ValueCodec<V>> IndexRecords<'_, K, V, C> {
    fn step(&mut self, is_forward: bool) -> Option<Result<(K, V)>> {
        if let Some(error) = self.refused.take() {
            return Some(Err(error));
        }
        let index = self.index?;
        loop {
            let pair = if is_forward { self.entries.next()? } else { self.entries.next_back()? };
            match pair.map_err(Error::from).and_then(|(entry, stored)| self.record(index, &entry, &stored)) {
                Ok(None) => {}
                Ok(Some(record)) => return Some(Ok(record)),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Returns the entry's record; `None` if it has expired.
    fn record(&self, index: &Index<V>, entry: &[u8], stored: &[u8]) -> Result<Option<(K, V)>> {
        let schema = self.view.schema;
        let Some((_, key)) = index.split(entry, stored) else {
            return Err(Error::key(&schema.name(), entry, "it is no entry of the index"));
        };
        if let Some(value) = self.view.get_packed(key)? {
            return Ok(Some((schema.decode_key(key)?, value)));
        }
        // Copies through the wall clock may end microseconds apart.
        if self.view.source.get_with_expiry(&schema.tree, entry)?.is_none_or(|(_, expires)| expires.is_some()) {
            return Ok(None);
        }
        let (tree, index, key) = (schema.name(), index.name.clone(), crate::text::show(key));
        Err(Error::StaleIndex { tree, index, key })
    }
}

impl<K: TupleKey, V, C: ValueCodec<V>> Iterator for IndexRecords<'_, K, V, C> {
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

impl<K: TupleKey, V, C: ValueCodec<V>> DoubleEndedIterator for IndexRecords<'_, K, V, C> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}
