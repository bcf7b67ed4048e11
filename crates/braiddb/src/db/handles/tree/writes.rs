//! Writes of a tree that read first, or write many keys.

use super::super::{batch::Batch, database::Db, tree::Tree};
use crate::{
    base::{Result, SequenceNumber, TreeId},
    db::{
        engine::{settings::Durability, slow_commits::timer::CommitTimer},
        handles::{conditional::Update, transaction::handle::Transaction},
        record::bytes::{Key, Value},
        write::{async_commit::sync_now, update_scope::check_outside},
    },
    txn::Side,
};
use std::time::Duration;

/// Rows and bytes of a batch of [`Tree::extend`].
const EXTEND_ROWS: usize = 1000;
const EXTEND_BYTES: usize = 1 << 20;

/// Maximum wait for another pop of the tree. After it, both may conflict.
const TURN_WAIT: Duration = Duration::from_millis(100);

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

    /// Deletes `key` with the given durability: see [`Tree::delete`].
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<SequenceNumber> {
        let mut batch = self.db().batch();
        batch.delete(self, key);
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
    /// A pop takes constant time, whatever the number of pairs popped before: see
    /// [`Transaction::first`](crate::Transaction::first). Threads that pop from one tree take turns,
    /// and share log syncs.
    pub fn pop_first(&self) -> Result<Option<(Key, Value)>> {
        self.pop(Side::First)
    }

    /// Removes and returns the last pair: see [`Tree::pop_first`].
    pub fn pop_last(&self) -> Result<Option<(Key, Value)>> {
        self.pop(Side::Last)
    }

    fn pop(&self, side: Side) -> Result<Option<(Key, Value)>> {
        pop(self.db(), self.state().id, |tx| tx.pop(self, side))
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

/// Removes and returns an end of a tree of either kind: `take` does it in a transaction.
pub(in crate::db) fn pop<R>(
    db: &Db,
    tree: TreeId,
    take: impl Fn(&Transaction) -> Result<Option<R>>,
) -> Result<Option<R>> {
    let engine = db.engine();
    check_outside(engine)?;
    let durability = engine.settings.durability;
    let turns = engine.commits.tree_ends.turn(tree);
    let turn = turns.try_lock_for(TURN_WAIT);
    let (popped, sequence) = db.update_at(durability.of_catalog(), take)?;
    if popped.is_none() {
        return Ok(None);
    }
    // Let other pops proceed during the sync.
    drop(turn);
    if let Some(wal) = engine.log.wal.as_ref().filter(|_| durability == Durability::Sync) {
        let mut timer = CommitTimer::begin(engine);
        timer.begin_wait(engine);
        timer.records = 1;
        sync_now(engine, sequence, wal.end_lsn(), &timer)?;
    }
    Ok(popped)
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
