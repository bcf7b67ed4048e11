//! redb. Buffered commits stay in memory until the next durable one, so they do not survive the end
//! of the process (`open_after_kill`).

use super::engine::{Engine, Op, Reader, Rows, Setup, Visit, append_in_batches};
use anyhow::Result;
use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition};
use std::sync::atomic::{AtomicU64, Ordering};

const TABLE: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("rows");
/// Commits between durable ones; only a durable commit frees pages.
const COMMITS_PER_DURABLE: u64 = 1000;
/// redb's documentation advises one transaction for many inserts.
const LOAD_BATCH_LEN: usize = 100_000;

pub struct Redb {
    db: Database,
    durable: bool,
    commits: AtomicU64,
}

impl Redb {
    pub fn open(setup: Setup<'_>) -> Result<Redb> {
        let db = Database::builder().set_cache_size(setup.budget).create(setup.folder.join("rows.redb"))?;
        let txn = db.begin_write()?;
        txn.open_table(TABLE)?;
        txn.commit()?;
        Ok(Redb { db, durable: setup.durable, commits: AtomicU64::new(0) })
    }

    fn durability(&self) -> Durability {
        let number = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        let is_durable = self.durable || number.is_multiple_of(COMMITS_PER_DURABLE);
        if is_durable { Durability::Immediate } else { Durability::None }
    }

    fn commit(&self, ops: &[Op<'_>], durability: Durability) -> Result<()> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(durability)?;
        {
            let mut table = txn.open_table(TABLE)?;
            for op in ops {
                match op.value {
                    Some(value) => drop(table.insert(op.key, value)?),
                    None => drop(table.remove(op.key)?),
                }
            }
        }
        Ok(txn.commit()?)
    }
}

impl Engine for Redb {
    fn write(&self, ops: &[Op<'_>]) -> Result<()> {
        self.commit(ops, self.durability())
    }

    fn load_sorted(&self, rows: &mut dyn Rows) -> Result<()> {
        append_in_batches(self, rows, LOAD_BATCH_LEN)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(RedbReader { db: &self.db, table: self.db.begin_read()?.open_table(TABLE)? }))
    }

    fn pop_first(&self, found: &mut dyn FnMut(&[u8], &[u8])) -> Result<bool> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(self.durability())?;
        let is_there = {
            let mut table = txn.open_table(TABLE)?;
            let row = table.pop_first()?;
            row.iter().for_each(|(key, value)| found(key.value(), value.value()));
            row.is_some()
        };
        txn.commit()?;
        Ok(is_there)
    }

    fn flush(&self) -> Result<()> {
        self.commit(&[], Durability::Immediate)
    }
}

struct RedbReader<'a> {
    db: &'a Database,
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
}

impl Reader for RedbReader<'_> {
    fn refresh(&mut self) -> Result<()> {
        self.table = self.db.begin_read()?.open_table(TABLE)?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = ReadableTable::get(&self.table, key)?;
        if let Some(value) = &value {
            found(value.value());
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], visit: Visit<'_>) -> Result<()> {
        for row in self.table.range(from..)? {
            let (key, value) = row?;
            if !visit(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }

    fn scan_back(&mut self, visit: Visit<'_>) -> Result<()> {
        for row in self.table.range::<&[u8]>(..)?.rev() {
            let (key, value) = row?;
            if !visit(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }
}
