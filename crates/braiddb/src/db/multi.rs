//! Multi-trees: many values to a key, sorted.
//!
//! Key and value together make the key of an entry without a value. In it the key is escaped so that pairs sort by key
//! and then by value, and no key's pairs mix with another's:
//!
//! ```text
//! key with each 00 written as 00 FF | 00 01 | value
//! ```
//!
//! The terminator 00 01 is less than any escaped continuation of the key. This encoding is final.

use super::{
    batch::Batch,
    bytes::{Key, Value},
    catalog::TreeState,
    database::Db,
    iter::Iter,
    tree::check_key,
};
use crate::base::{Result, SequenceNumber};
use std::{
    ops::{Bound, RangeBounds},
    sync::Arc,
};

/// Ends the escaped key.
const TERMINATOR: [u8; 2] = [0, 1];

/// The least bytes greater than every pair of an escaped key.
const AFTER_TERMINATOR: [u8; 2] = [0, 2];

fn escape(key: &[u8], out: &mut Vec<u8>) {
    for &byte in key {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
}

/// The user key of a pair.
pub fn multi_key(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + value.len() + 4);
    escape(key, &mut out);
    out.extend_from_slice(&TERMINATOR);
    out.extend_from_slice(value);
    out
}

/// The key and value of a pair; `None` if the bytes are not those of a pair.
pub fn split_multi_key(bytes: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut key = Vec::with_capacity(bytes.len());
    let mut at = 0;
    loop {
        let byte = *bytes.get(at)?;
        if byte != 0 {
            key.push(byte);
            at += 1;
            continue;
        }
        match *bytes.get(at + 1)? {
            0xff => key.push(0),
            1 => return Some((key, bytes[at + 2..].to_vec())),
            _ => return None,
        }
        at += 2;
    }
}

/// A tree that keeps many values to a key, sorted; each pair once. Cheap to clone; threads share it freely.
#[derive(Clone, Debug)]
pub struct MultiTree {
    db: Db,
    state: Arc<TreeState>,
}

impl MultiTree {
    pub(super) fn new(db: &Db, state: Arc<TreeState>) -> Result<MultiTree> {
        Ok(MultiTree { db: db.clone(), state })
    }

    pub(super) fn state(&self) -> &Arc<TreeState> {
        &self.state
    }

    pub(super) fn db(&self) -> &Db {
        &self.db
    }

    fn write(&self, fill: impl FnOnce(&mut Batch)) -> Result<SequenceNumber> {
        let mut batch = Batch::default();
        fill(&mut batch);
        batch.commit(&self.db, self.db.core().settings.durability)
    }

    /// Its name now.
    pub fn name(&self) -> String {
        self.state.name.read().clone()
    }

    /// Adds a value to those of `key`; one that is there already stays once.
    pub fn add(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        self.write(|batch| {
            batch.add(self, key, value);
        })
    }

    /// Takes a value from those of `key`; it need not be there.
    pub fn remove(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        self.write(|batch| {
            batch.remove(self, key, value);
        })
    }

    /// Takes all values of `key` away, in constant time.
    pub fn remove_all(&self, key: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        check_key(key.as_ref())?;
        let (start, end) = self.bounds_of(key.as_ref());
        self.write(|batch| {
            batch.remove_all(self, &start, &end);
        })
    }

    /// Whether `value` is among those of `key`.
    pub fn contains(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        check_key(key.as_ref())?;
        check_key(value.as_ref())?;
        self.state.check()?;
        let mut internal = self.state.id.first_key().to_vec();
        internal.extend_from_slice(&multi_key(key.as_ref(), value.as_ref()));
        self.db.core().contains(&internal, None)
    }

    /// Where the pairs of a key begin, and where they end.
    pub(super) fn bounds_of(&self, key: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut start = self.state.id.first_key().to_vec();
        escape(key, &mut start);
        let mut end = start.clone();
        start.extend_from_slice(&TERMINATOR);
        end.extend_from_slice(&AFTER_TERMINATOR);
        (start, end)
    }

    /// The pairs of `key`, by value.
    pub fn values(&self, key: impl AsRef<[u8]>) -> MultiIter {
        let (start, end) = self.bounds_of(key.as_ref());
        MultiIter(Iter::over(&self.db, &self.state, start, Some(end), None))
    }

    /// The pairs whose keys lie in `range`, by key and value.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> MultiIter {
        let start = match range.start_bound() {
            Bound::Included(key) => self.bounds_of(key.as_ref()).0,
            Bound::Excluded(key) => self.bounds_of(key.as_ref()).1,
            Bound::Unbounded => self.state.id.first_key().to_vec(),
        };
        let end = match range.end_bound() {
            Bound::Included(key) => Some(self.bounds_of(key.as_ref()).1),
            Bound::Excluded(key) => Some(self.bounds_of(key.as_ref()).0),
            Bound::Unbounded => self.state.id.end_key().map(Vec::from),
        };
        MultiIter(Iter::over(&self.db, &self.state, start, end, None))
    }

    /// The pairs whose keys begin with `prefix`, by key and value.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> MultiIter {
        let mut escaped = Vec::new();
        escape(prefix.as_ref(), &mut escaped);
        MultiIter(Iter::over_prefix(&self.db, &self.state, &escaped, None))
    }

    /// All pairs, by key and value.
    pub fn iter(&self) -> MultiIter {
        self.prefix(b"")
    }
}

/// The pairs of a multi-tree, in order, from both ends.
#[derive(Debug)]
pub struct MultiIter(Iter);

pub(super) fn split_pair(pair: Result<(Key, Value)>) -> Result<(Key, Value)> {
    let (bytes, _) = pair?;
    let (key, value) = split_multi_key(&bytes).ok_or_else(|| {
        crate::base::Error::corruption("", 0, format!("a multi-tree holds the key {bytes:?}, which is no pair"))
    })?;
    Ok((Key::new(key), Value::new(value)))
}

impl Iterator for MultiIter {
    type Item = Result<(Key, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(split_pair)
    }
}

impl DoubleEndedIterator for MultiIter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(split_pair)
    }
}
