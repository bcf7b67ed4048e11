//! Where reads come from: the only module that calls the engine's read interface.

use crate::key::Bounds;
use braiddb::{Db, Result, Snapshot, Transaction, Tree, Value};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A copied pair.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Pairs in order, from both ends.
pub type Pairs<'a> = Box<dyn DoubleEndedIterator<Item = Result<Pair>> + 'a>;

/// The state that reads see.
#[derive(Clone, Debug)]
pub enum Source<'a> {
    /// Each read sees the latest commit.
    Latest(&'a Db),
    Snapshot(Snapshot),
    Transaction(&'a Transaction),
}

impl<'a> Source<'a> {
    /// Fixes the latest commit, so that several reads see one state.
    pub fn fixed(&self) -> Source<'a> {
        match self {
            Source::Latest(db) => Source::Snapshot(db.snapshot()),
            other => other.clone(),
        }
    }

    pub fn get(&self, tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(match self {
            Source::Latest(_) => tree.get(key)?,
            Source::Snapshot(snapshot) => snapshot.get(tree, key)?,
            Source::Transaction(tx) => tx.get(tree, key)?,
        }
        .map(Vec::from))
    }

    pub fn get_with<R>(&self, tree: &Tree, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        match self {
            Source::Latest(_) => tree.get_with(key, read),
            Source::Snapshot(snapshot) => snapshot.get_with(tree, key, read),
            Source::Transaction(tx) => tx.get_with(tree, key, read),
        }
    }

    /// Returns the value and its expiry time; `None` for a time too far to be one.
    pub fn get_with_expiry(&self, tree: &Tree, key: &[u8]) -> Result<Option<(Vec<u8>, Option<SystemTime>)>> {
        let found = match self {
            Source::Latest(_) => tree.get_with_expiry(key)?,
            Source::Snapshot(snapshot) => snapshot.get_with_expiry(tree, key)?,
            Source::Transaction(tx) => tx.get_with_expiry(tree, key)?,
        };
        Ok(found.map(|(value, expires)| (Vec::from(value), expires.filter(|time| !is_never(*time)))))
    }

    pub fn contains(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        match self {
            Source::Latest(_) => tree.contains(key),
            Source::Snapshot(snapshot) => snapshot.contains(tree, key),
            Source::Transaction(tx) => tx.contains(tree, key),
        }
    }

    pub fn multi_get(&self, tree: &Tree, keys: &[Vec<u8>]) -> Result<Vec<Option<Value>>> {
        match self {
            Source::Latest(_) => tree.multi_get(keys),
            Source::Snapshot(snapshot) => snapshot.multi_get(tree, keys),
            Source::Transaction(tx) => tx.multi_get(tree, keys),
        }
    }

    pub fn count(&self, tree: &Tree, bounds: Bounds) -> Result<u64> {
        match self {
            Source::Latest(_) => tree.count(bounds),
            Source::Snapshot(snapshot) => snapshot.count(tree, bounds),
            Source::Transaction(tx) => tx.count(tree, bounds),
        }
    }

    pub fn range(&self, tree: &Tree, bounds: Bounds) -> Pairs<'a> {
        match self {
            Source::Latest(_) => Box::new(tree.range(bounds).map(copied)),
            Source::Snapshot(snapshot) => Box::new(snapshot.range(tree, bounds).map(copied)),
            Source::Transaction(tx) => Box::new(tx.range(tree, bounds).map(copied)),
        }
    }
}

fn copied<K: Into<Vec<u8>>, V: Into<Vec<u8>>>(pair: Result<(K, V)>) -> Result<Pair> {
    pair.map(|(key, value)| (key.into(), value.into()))
}

/// A time to live that never ends, in a tree whose values expire by default.
pub const NEVER: Duration = Duration::MAX;

/// Later times, in microseconds since 1970, count as never: the year 146,000.
const NEVER_US: u64 = 1 << 62;

fn is_never(time: SystemTime) -> bool {
    time.duration_since(UNIX_EPOCH).is_ok_and(|after| after.as_micros() >= u128::from(NEVER_US))
}
