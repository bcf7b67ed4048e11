//! The tree, codec and indexes shared by all handles of a [`TypedTree`].
//!
//! [`TypedTree`]: crate::TypedTree

use crate::{
    codec::ValueCodec,
    definitions::{DEFINITIONS_KEY, Definition, Definitions},
    entry::{Entries, Index},
    error::{Error, Result},
    key::{self, Bounds, TupleKey},
    source::{NEVER, Source},
};
use braiddb::{Db, Durability, Transaction, Tree};
use std::{
    marker::PhantomData,
    time::{Duration, SystemTime},
};

pub struct Schema<K, V, C> {
    pub db: Db,
    pub tree: Tree,
    pub indexes: Vec<Index<V>>,
    /// The declared indexes, all ready.
    pub declared: Definitions,
    /// `declared`, encoded: equal bytes need no decoding.
    pub declared_bytes: Option<Vec<u8>>,
    pub types: PhantomData<fn() -> (K, C)>,
}

/// A record to put, encoded, with its entries.
pub struct Put {
    pub key: Vec<u8>,
    value: Vec<u8>,
    entries: Entries,
    expiry: Expiry,
}

/// The expiry time of a write.
#[derive(Clone, Copy, Debug)]
pub enum Expiry {
    /// By the tree's options.
    Default,
    After(Duration),
    At(SystemTime),
    Keep,
}

impl<K: TupleKey, V, C: ValueCodec<V>> Schema<K, V, C> {
    pub fn new(db: &Db, tree: Tree, mut indexes: Vec<Index<V>>) -> Schema<K, V, C> {
        indexes.sort_by(|one, other| one.name.cmp(&other.name));
        let define = |index: &Index<V>| Definition { name: index.name.clone(), unique: index.is_unique, ready: true };
        let declared = Definitions { indexes: indexes.iter().map(define).collect(), ..Definitions::default() };
        let declared_bytes = declared.encode();
        Schema { db: db.clone(), tree, indexes, declared, declared_bytes, types: PhantomData }
    }

    pub fn name(&self) -> String {
        self.tree.name()
    }

    pub fn decode_key(&self, bytes: &[u8]) -> Result<K> {
        key::unpack(bytes).map_err(|error| Error::key(&self.name(), bytes, error))
    }

    pub fn decode_value(&self, key: &[u8], bytes: &[u8]) -> Result<V> {
        C::decode(bytes).map_err(|error| Error::value(&self.name(), key, error))
    }

    fn encode_value(&self, key: &[u8], value: &V) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match C::encode(value, &mut bytes) {
            Ok(()) => Ok(bytes),
            Err(source) => Err(Error::Encode { tree: self.name(), key: crate::text::show(key), source }),
        }
    }

    /// Encodes a value, decodes it again, and makes index entries from the result. Later writes
    /// remove entries by the decoded value, so both must agree. Refuses a value that does not
    /// decode: it could not be read or removed.
    pub fn prepare(&self, key: &K, value: &V, expiry: Expiry) -> Result<Put> {
        let key = key::pack(key)?;
        let value = self.encode_value(&key, value)?;
        let entries = self.entries(&key, &self.decode_value(&key, &value)?)?;
        Ok(Put { key, value, entries, expiry })
    }

    pub fn index(&self, name: &str) -> Result<&Index<V>> {
        let found = self.indexes.iter().find(|index| index.name == name);
        found.ok_or_else(|| Error::NoIndex { tree: self.name(), index: name.to_owned() })
    }

    pub fn definitions(&self, source: &Source<'_>) -> Result<Definitions> {
        let stored = source.get(&self.tree, &DEFINITIONS_KEY)?;
        if stored == self.declared_bytes {
            return Ok(self.declared.clone());
        }
        Definitions::decode(&self.name(), stored.as_deref())
    }

    /// Fails unless the stored definitions are the declared ones: invariant D1.
    fn check_declared(&self, source: &Source<'_>) -> Result<()> {
        let stored = source.get(&self.tree, &DEFINITIONS_KEY)?;
        if stored == self.declared_bytes
            || Definitions::decode(&self.name(), stored.as_deref())?.is_like(&self.declared)
        {
            return Ok(());
        }
        Err(Error::IndexesChanged { tree: self.name() })
    }

    /// Fails unless the index is complete at the source's state.
    pub fn check_ready(&self, source: &Source<'_>, index: &Index<V>) -> Result<()> {
        match self.definitions(source)?.find(&index.name) {
            Some(found) if found.unique == index.is_unique && found.ready => Ok(()),
            Some(found) if found.unique == index.is_unique => {
                Err(Error::IndexIncomplete { tree: self.name(), index: index.name.clone() })
            }
            _ => Err(Error::IndexesChanged { tree: self.name() }),
        }
    }

    fn entries(&self, key: &[u8], value: &V) -> Result<Entries> {
        let mut entries = Entries::new();
        for index in &self.indexes {
            index.add_entries(key, value, &mut entries)?;
        }
        Ok(entries)
    }

    /// Writes a record and its entries. A duplicate in a unique index is refused before any write.
    pub fn put(&self, tx: &Transaction, put: &Put) -> Result<()> {
        let Put { key, value, entries, expiry } = put;
        let source = Source::Transaction(tx);
        self.check_declared(&source)?;
        let before = if self.indexes.is_empty() { None } else { source.get(&self.tree, key)? };
        let outdated = match before {
            Some(bytes) => self.entries(key, &self.decode_value(key, &bytes)?)?,
            None => Entries::new(),
        };
        // A record that expires at once has no entries, so a duplicate counts only if it stays.
        let undo = match (self.check_unique(&source, entries, key), expiry) {
            (Ok(()), _) => None,
            (Err(error), Expiry::After(_) | Expiry::At(_)) if error.is_not_unique() => Some((tx.savepoint(), error)),
            (Err(error), _) => return Err(error),
        };
        match *expiry {
            Expiry::Default => tx.put(&self.tree, key, value)?,
            Expiry::After(ttl) => tx.put_with_ttl(&self.tree, key, value, ttl)?,
            Expiry::At(time) => tx.put_until(&self.tree, key, value, time)?,
            Expiry::Keep => tx.put_keep_ttl(&self.tree, key, value)?,
        }
        if let Some((savepoint, error)) = undo
            && source.contains(&self.tree, key)?
        {
            tx.rollback_to(savepoint)?;
            return Err(error);
        }
        for entry in outdated.keys().filter(|entry| !entries.contains_key(*entry)) {
            self.delete_entry(tx, entry, key)?;
        }
        for (entry, owner) in entries {
            if !tx.put_expiring_with(&self.tree, entry, owner, key)? {
                self.delete_entry(tx, entry, key)?;
            }
        }
        Ok(())
    }

    /// Deletes an entry of the record `key`. One of another record stays: raw writes make duplicates.
    fn delete_entry(&self, tx: &Transaction, entry: &[u8], key: &[u8]) -> Result<()> {
        let owner = if self.is_unique(entry) { tx.get(&self.tree, entry)? } else { None };
        if owner.is_none_or(|owner| *owner == *key) {
            tx.delete(&self.tree, entry)?;
        }
        Ok(())
    }

    fn is_unique(&self, entry: &[u8]) -> bool {
        self.indexes.iter().any(|index| index.is_unique && index.has(entry))
    }

    fn check_unique(&self, source: &Source<'_>, entries: &Entries, key: &[u8]) -> Result<()> {
        for entry in entries.keys().filter(|entry| self.is_unique(entry)) {
            if let Some(other) = source.get(&self.tree, entry)?.filter(|other| other != key) {
                return Err(self.not_unique(entry, &other));
            }
        }
        Ok(())
    }

    pub fn not_unique(&self, entry: &[u8], other: &[u8]) -> Error {
        let index = self.indexes.iter().find(|index| index.has(entry));
        let (index, value) =
            index.and_then(|index| Some((index.name.clone(), index.split(entry, other)?.0))).unwrap_or_default();
        let (value, key) = (crate::text::show(value), crate::text::show(other));
        Error::NotUnique { tree: self.name(), index, value, key }
    }

    /// Writes a value that never expires.
    pub fn put_forever(&self, tx: &Transaction, key: &[u8], value: &[u8]) -> Result<()> {
        tx.put(&self.tree, key, value)?;
        // The put applied the tree's default TTL. Another thread may have changed that default, so read
        // the expiry back.
        if tx.get_with_expiry(&self.tree, key)?.is_none_or(|(_, expires)| expires.is_some()) {
            tx.put_with_ttl(&self.tree, key, value, NEVER)?;
        }
        Ok(())
    }

    /// Removes a record and its entries, and returns it.
    pub fn remove(&self, tx: &Transaction, key: &[u8]) -> Result<Option<V>> {
        let source = Source::Transaction(tx);
        self.check_declared(&source)?;
        let Some(bytes) = source.get(&self.tree, key)? else { return Ok(None) };
        let value = self.decode_value(key, &bytes)?;
        for entry in self.entries(key, &value)?.keys() {
            self.delete_entry(tx, entry, key)?;
        }
        tx.delete(&self.tree, key)?;
        Ok(Some(value))
    }

    /// Deletes a record and its entries, also one that cannot be decoded.
    pub fn delete(&self, tx: &Transaction, key: &[u8]) -> Result<()> {
        let source = Source::Transaction(tx);
        self.check_declared(&source)?;
        if self.indexes.is_empty() {
            return Ok(tx.delete(&self.tree, key)?);
        }
        let Some(bytes) = source.get(&self.tree, key)? else { return Ok(()) };
        self.delete_entries(tx, key, &bytes)?;
        Ok(tx.delete(&self.tree, key)?)
    }

    /// Deletes all records within bounds of packed keys, and their entries.
    pub fn delete_range(&self, tx: &Transaction, bounds: &Bounds) -> Result<()> {
        let source = Source::Transaction(tx);
        self.check_declared(&source)?;
        if !self.indexes.is_empty() {
            for pair in source.range(&self.tree, bounds.clone()) {
                let (key, value) = pair?;
                self.delete_entries(tx, &key, &value)?;
            }
        }
        Ok(tx.delete_range(&self.tree, bounds.clone())?)
    }

    /// Deletes the entries of a stored record, also of one that cannot be decoded.
    fn delete_entries(&self, tx: &Transaction, key: &[u8], value: &[u8]) -> Result<()> {
        let decoded = self.decode_value(key, value).and_then(|value| self.entries(key, &value));
        let entries = match decoded {
            Ok(entries) => entries.into_keys().collect(),
            Err(_) => self.find_entries(tx, key)?,
        };
        entries.iter().try_for_each(|entry| self.delete_entry(tx, entry, key))
    }

    /// Finds the entries of a record by a scan of the indexes.
    ///
    /// The scan is no read of the transaction, which every other write would conflict with. A commit
    /// that changes entries of the record changes the record too, and that was read.
    fn find_entries(&self, tx: &Transaction, key: &[u8]) -> Result<Vec<Vec<u8>>> {
        let source = Source::Snapshot(tx.snapshot());
        let mut found = Vec::new();
        for index in &self.indexes {
            for pair in source.range(&self.tree, index.bounds::<()>(&(..))?) {
                let (entry, stored) = pair?;
                if index.split(&entry, &stored).is_some_and(|(_, of)| of == key) {
                    found.push(entry);
                }
            }
        }
        Ok(found)
    }

    /// Removes all records, and all entries; the definitions stay.
    pub fn clear(&self, tx: &Transaction) -> Result<()> {
        self.check_declared(&Source::Transaction(tx))?;
        let all = key::bounds::<K>(&(..))?;
        tx.delete_range(&self.tree, all)?;
        for index in &self.indexes {
            tx.delete_range(&self.tree, index.bounds::<()>(&(..))?)?;
        }
        Ok(())
    }

    /// Runs `work` in a transaction that is repeated after conflicts.
    pub fn update<R>(&self, mut work: impl FnMut(&Transaction) -> Result<R>) -> Result<R> {
        Ok(self.db.update(|tx| Ok(work(tx)?))?)
    }

    /// Runs [`Schema::update`] with the given durability.
    pub fn update_with<R>(&self, durability: Durability, mut work: impl FnMut(&Transaction) -> Result<R>) -> Result<R> {
        Ok(self.db.update_with(durability, |tx| Ok(work(tx)?))?)
    }
}
