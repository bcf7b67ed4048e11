//! Atomic writes by any way to commit.

use super::append_of;
use braiddb::{Batch, Db, Durability, MultiTree, Result, Transaction, Tree};
use braiddb_sim::model::{Bounds, Change, moment};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Batch,
    Transaction,
    Exclusive,
}

pub enum Writer {
    Batch(Db, Batch),
    Transaction(Db, Box<Transaction>),
}

impl Writer {
    pub fn new(db: &Db, trees: &[Tree], way: Way) -> Result<Writer> {
        let transaction = match way {
            Way::Batch => return Ok(Writer::Batch(db.clone(), db.batch())),
            Way::Transaction => db.begin()?,
            Way::Exclusive => db.begin_exclusive()?,
        };
        if let Some(tree) = trees.first() {
            let savepoint = transaction.savepoint();
            transaction.put(tree, b"taken back", b"never there")?;
            transaction.delete_range(tree, ..)?;
            transaction.rollback_to(savepoint)?;
        }
        Ok(Writer::Transaction(db.clone(), Box::new(transaction)))
    }

    pub fn put(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Writer::Batch(_, batch) => _ = batch.put(tree, key, value),
            Writer::Transaction(_, transaction) => transaction.put(tree, key, value)?,
        }
        Ok(())
    }

    pub fn delete(&mut self, tree: &Tree, key: &[u8]) -> Result<()> {
        match self {
            Writer::Batch(_, batch) => _ = batch.delete(tree, key),
            Writer::Transaction(_, transaction) => transaction.delete(tree, key)?,
        }
        Ok(())
    }

    pub fn delete_range(&mut self, tree: &Tree, bounds: Bounds) -> Result<()> {
        match self {
            Writer::Batch(_, batch) => _ = batch.delete_range(tree, bounds),
            Writer::Transaction(_, transaction) => transaction.delete_range(tree, bounds)?,
        }
        Ok(())
    }

    pub fn append(&mut self, tree: &Tree, key: &[u8], more: &[u8]) -> Result<()> {
        match self {
            Writer::Batch(db, batch) => _ = batch.merge(tree, key, &append_of(db), more),
            Writer::Transaction(db, transaction) => transaction.merge(tree, key, &append_of(db), more)?,
        }
        Ok(())
    }

    pub fn put_until(&mut self, tree: &Tree, key: &[u8], value: &[u8], expires_us: u64) -> Result<()> {
        match self {
            Writer::Batch(_, batch) => _ = batch.put_until(tree, key, value, moment(expires_us)),
            Writer::Transaction(_, transaction) => transaction.put_until(tree, key, value, moment(expires_us))?,
        }
        Ok(())
    }

    pub fn put_stream(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Writer::Batch(_, batch) => _ = batch.put_stream(tree.write_stream(key, value)?),
            Writer::Transaction(_, transaction) => transaction.put_stream(tree, key, value)?,
        }
        Ok(())
    }

    /// A batch uses the merge function, because an append to a stream reads.
    pub fn append_stream(&mut self, tree: &Tree, key: &[u8], more: &[u8]) -> Result<()> {
        match self {
            Writer::Batch(..) => self.append(tree, key, more),
            Writer::Transaction(_, transaction) => transaction.append_stream(tree, key, more),
        }
    }

    pub fn add(&mut self, tree: &MultiTree, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Writer::Batch(_, batch) => _ = batch.add(tree, key, value),
            Writer::Transaction(_, transaction) => transaction.multi_tree(tree).add(key, value)?,
        }
        Ok(())
    }

    pub fn remove(&mut self, tree: &MultiTree, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Writer::Batch(_, batch) => _ = batch.delete_pair(tree, key, value),
            Writer::Transaction(_, transaction) => transaction.multi_tree(tree).delete_pair(key, value)?,
        }
        Ok(())
    }

    pub fn change(&mut self, trees: &[Tree], change: &Change) -> Result<()> {
        match change {
            Change::Put(tree, key, value) => self.put(&trees[*tree as usize], key, value),
            Change::Delete(tree, key) => self.delete(&trees[*tree as usize], key),
            Change::DeleteRange(tree, bounds) => self.delete_range(&trees[*tree as usize], bounds.clone()),
            Change::Append(tree, key, more) => self.append(&trees[*tree as usize], key, more),
            Change::Extend(tree, key, more) => self.append_stream(&trees[*tree as usize], key, more),
            Change::PutUntil(tree, key, value, expires_us) => {
                self.put_until(&trees[*tree as usize], key, value, *expires_us)
            }
        }
    }

    /// Every third durable commit is asynchronous.
    pub fn commit_by(self, durability: Durability, at: u64) -> Result<u64> {
        match self {
            writer if durability != Durability::Sync || !at.is_multiple_of(3) => writer.commit(durability),
            Writer::Batch(_, batch) => batch.commit_async().wait(),
            Writer::Transaction(_, transaction) => transaction.commit_async().wait(),
        }
    }

    pub fn commit(self, durability: Durability) -> Result<u64> {
        match self {
            Writer::Batch(_, batch) => batch.commit_with(durability),
            Writer::Transaction(_, transaction) => transaction.commit_with(durability),
        }
    }
}
