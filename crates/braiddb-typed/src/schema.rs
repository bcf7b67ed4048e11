//! The tree, codec and indexes shared by all handles of a [`TypedTree`].
//!
//! [`TypedTree`]: crate::TypedTree

use crate::{
    codec::ValueCodec,
    definitions::{DEFINITIONS_KEY, Definition, Definitions},
    entry::{Entries, Index},
    error::{Error, Result},
    key::{self, TupleKey},
    source::{NEVER, Source},
};
use braiddb::{Db, Transaction, Tree};
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
    pub fn prepare(&self, key: &[u8], value: &V) -> Result<(Vec<u8>, Entries)> {
        let bytes = self.encode_value(key, value)?;
        let entries = self.entries(key, &self.decode_value(key, &bytes)?)?;
        Ok((bytes, entries))
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

    fn stored_entries(&self, key: &[u8], stored: Option<&[u8]>) -> Result<Entries> {
        match stored {
            Some(bytes) => self.entries(key, &self.decode_value(key, bytes)?),
            None => Ok(Entries::new()),
        }
    }

    /// Writes a record and its entries.
    pub fn put(&self, tx: &Transaction, key: &[u8], value: &[u8], entries: &Entries, expiry: Expiry) -> Result<()> {
        let source = Source::Transaction(tx);
        self.check_declared(&source)?;
        if !self.indexes.is_empty() {
            let before = source.get(&self.tree, key)?;
            for outdated in self.stored_entries(key, before.as_deref())?.into_keys() {
                if !entries.contains_key(&outdated) {
                    tx.delete(&self.tree, &outdated)?;
                }
            }
        }
        match expiry {
            Expiry::Default => tx.put(&self.tree, key, value)?,
            Expiry::After(ttl) => tx.put_with_ttl(&self.tree, key, value, ttl)?,
            Expiry::At(time) => tx.put_until(&self.tree, key, value, time)?,
            Expiry::Keep => tx.put_keep_ttl(&self.tree, key, value)?,
        }
        if entries.is_empty() {
            return Ok(());
        }
        // An own write that has expired already is absent: its entries too.
        let Some((_, expires)) = source.get_with_expiry(&self.tree, key)? else {
            for entry in entries.keys() {
                if source.get(&self.tree, entry)?.is_some_and(|owner| owner.is_empty() || owner == key) {
                    tx.delete(&self.tree, entry)?;
                }
            }
            return Ok(());
        };
        for (entry, owner) in entries {
            if self.is_unique(entry) {
                self.check_unique(&source, entry, key)?;
            }
            self.put_entry(tx, entry, owner, expires)?;
        }
        Ok(())
    }

    fn is_unique(&self, entry: &[u8]) -> bool {
        self.indexes.iter().any(|index| index.is_unique && index.has(entry))
    }

    fn check_unique(&self, source: &Source<'_>, entry: &[u8], key: &[u8]) -> Result<()> {
        match source.get(&self.tree, entry)? {
            Some(other) if other != key => Err(self.not_unique(entry, &other)),
            _ => Ok(()),
        }
    }

    pub fn not_unique(&self, entry: &[u8], other: &[u8]) -> Error {
        let index = self.indexes.iter().find(|index| index.has(entry));
        let (index, value) =
            index.and_then(|index| Some((index.name.clone(), index.split(entry, other)?.0))).unwrap_or_default();
        let (value, key) = (crate::text::show(value), crate::text::show(other));
        Error::NotUnique { tree: self.name(), index, value, key }
    }

    /// Writes an entry with the expiry time of its record.
    pub fn put_entry(&self, tx: &Transaction, entry: &[u8], owner: &[u8], expires: Option<SystemTime>) -> Result<()> {
        match expires {
            Some(time) => tx.put_until(&self.tree, entry, owner, time)?,
            None => {
                tx.put(&self.tree, entry, owner)?;
                // After the put, which read the option: a change between would expire the entry.
                if self.tree.options().ttl.is_some() {
                    tx.put_with_ttl(&self.tree, entry, owner, NEVER)?;
                }
            }
        }
        Ok(())
    }

    /// Removes a record and its entries. Returns whether it was there.
    pub fn remove(&self, tx: &Transaction, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let source = Source::Transaction(tx);
        self.check_declared(&source)?;
        let before = source.get(&self.tree, key)?;
        if !self.indexes.is_empty() {
            for entry in self.stored_entries(key, before.as_deref())?.into_keys() {
                tx.delete(&self.tree, &entry)?;
            }
        }
        tx.delete(&self.tree, key)?;
        Ok(before)
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
}
