//! Index entries: records of the same tree, behind all others.
//!
//! | index | key | value |
//! |---|---|---|
//! | any | FF, then the tuple (name, value, elements of the record's key) | empty |
//! | unique | FF, then the tuple (name, value) | the record's key |
//!
//! The value is one element: a tuple is nested. An entry has its record's expiry time. Entries are
//! in the records' tree so that a rename, drop, copy, dump or backup treats both alike.

use crate::{
    element,
    error::{Error, Result},
    key::{BEYOND_RECORDS, Bounds, pack},
};
use foundationdb_tuple::TuplePack;
use std::{
    collections::BTreeMap,
    fmt,
    ops::{Bound, RangeBounds},
};

/// Computes packed index values of a record.
type Values<V> = Box<dyn Fn(&V) -> Result<Vec<Vec<u8>>> + Send + Sync>;

/// A declared index.
pub struct Index<V> {
    pub name: String,
    pub is_unique: bool,
    values: Values<V>,
    /// FF and the name: the begin of each entry.
    prefix: Vec<u8>,
}

impl<V> fmt::Debug for Index<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("name", &self.name).field("is_unique", &self.is_unique).finish_non_exhaustive()
    }
}

/// An entry's key to its value.
pub type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns the begin of each entry of an index.
pub fn prefix_of(name: &str) -> Result<Vec<u8>> {
    Ok([vec![BEYOND_RECORDS], pack(&name)?].concat())
}

/// Packs an index value as one element.
pub fn pack_value<I: TuplePack>(value: &I) -> Result<Vec<u8>> {
    // An element of the outermost tuple: a tuple is nested in it.
    pack(&(value,))
}

impl<V> Index<V> {
    pub fn new<I: TuplePack, L: IntoIterator<Item = I>>(
        name: &str,
        is_unique: bool,
        values: impl Fn(&V) -> L + Send + Sync + 'static,
    ) -> Result<Index<V>> {
        let values = move |value: &V| values(value).into_iter().map(|value| pack_value(&value)).collect();
        Ok(Index { name: name.to_owned(), is_unique, values: Box::new(values), prefix: prefix_of(name)? })
    }

    /// Adds the entries of a record.
    pub fn add_entries(&self, key: &[u8], value: &V, entries: &mut Entries) -> Result<()> {
        for packed in (self.values)(value)? {
            let mut entry = [&self.prefix[..], &packed].concat();
            if self.is_unique {
                entries.insert(entry, key.to_vec());
            } else {
                entry.extend_from_slice(key);
                entries.insert(entry, Vec::new());
            }
        }
        Ok(())
    }

    /// Returns whether the entry belongs to this index.
    pub fn has(&self, entry: &[u8]) -> bool {
        entry.starts_with(&self.prefix) && entry.get(self.prefix.len()) != Some(&BEYOND_RECORDS)
    }

    /// Splits an entry into packed value and record key.
    pub fn split<'a>(&self, entry: &'a [u8], stored: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let rest = entry.strip_prefix(&self.prefix[..])?;
        let (value, key) = rest.split_at_checked(element::first_len(rest)?)?;
        match self.is_unique {
            true => key.is_empty().then_some((value, stored)),
            false => Some((value, key)),
        }
    }

    /// Returns the entries' bounds, of values in `range`.
    pub fn bounds<I: TuplePack>(&self, range: &impl RangeBounds<I>) -> Result<Bounds> {
        let at = |value: &I, is_after: bool| {
            let mut bound = [&self.prefix[..], &pack_value(value)?].concat();
            // Behind all entries of the value.
            bound.extend(is_after.then_some(BEYOND_RECORDS));
            Ok::<_, Error>(bound)
        };
        let start = match range.start_bound() {
            Bound::Included(value) => at(value, false)?,
            Bound::Excluded(value) => at(value, true)?,
            Bound::Unbounded => self.prefix.clone(),
        };
        let end = match range.end_bound() {
            Bound::Included(value) => at(value, true)?,
            Bound::Excluded(value) => at(value, false)?,
            Bound::Unbounded => [&self.prefix[..], &[BEYOND_RECORDS]].concat(),
        };
        Ok((Bound::Included(start), Bound::Excluded(end)))
    }

    /// Returns the entries' bounds, of tuples that begin with the elements of `prefix`.
    pub fn bounds_of_prefix<P: TuplePack>(&self, prefix: &P) -> Result<Bounds> {
        let mut start = [&self.prefix[..], &pack_value(prefix)?].concat();
        // Without the end of the nested tuple. A prefix that is no tuple has none.
        if start.get(self.prefix.len()) == Some(&0x05) {
            start.pop();
        }
        Ok(crate::key::bounds_of_prefix(start))
    }
}
