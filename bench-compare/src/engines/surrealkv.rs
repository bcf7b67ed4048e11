//! SurrealKV. Buffered commits reach the operating system (`Durability::Eventual`, its default),
//! durable ones wait for a sync of the log (`Durability::Immediate`).

use super::engine::{Access, Engine, Op, Reader, Rows, Setup, Visit, append_in_batches};
use anyhow::Result;
use std::{mem, rc::Rc};
use surrealkv::{CompactRangeOptions, Durability, LSMIterator, Mode, Options, Transaction, Tree, TreeBuilder};
use tokio::runtime::{Builder, Runtime};

/// Rows of a transaction in its own benchmark of loads.
const LOAD_BATCH_LEN: usize = 1000;
/// Threads for flushes and compactions, which run as tasks.
const TASK_THREADS: usize = 2;

pub struct Surreal {
    tree: Tree,
    /// Commits are asynchronous; the committing thread runs them.
    runtime: Runtime,
    durability: Durability,
}

impl Surreal {
    pub fn open(setup: Setup<'_>) -> Result<Surreal> {
        let runtime = Builder::new_multi_thread().worker_threads(TASK_THREADS).enable_all().build()?;
        // As for the other trees of sorted files: for writes, half of the budget is memtables, one
        // filled while the other is flushed; for reads nearly all is block cache.
        let memtable = match setup.access {
            Access::Write => setup.budget / 4,
            Access::Read | Access::Half | Access::Cold => setup.budget / 16,
        };
        let memtable = memtable.clamp(1 << 20, 64 << 20);
        let cache = setup.budget.saturating_sub(2 * memtable).max(1 << 20);
        let options = Options::new()
            .with_path(setup.folder.join("db"))
            .with_max_memtable_size(memtable)
            .with_block_cache_capacity(cache as u64)
            .without_compression()
            // By its documentation, this saves most of the cost of syncing a small commit.
            .with_wal_preallocation(setup.durable);
        // The tree starts its tasks in the runtime that is entered.
        let guard = runtime.enter();
        let tree = TreeBuilder::with_options(options).build()?;
        drop(guard);
        let durability = if setup.durable { Durability::Immediate } else { Durability::Eventual };
        Ok(Surreal { tree, runtime, durability })
    }
}

impl Drop for Surreal {
    fn drop(&mut self) {
        // Dropping a tree only starts its close.
        if let Err(error) = self.runtime.block_on(self.tree.close()) {
            eprintln!("SurrealKV: close: {error}");
        }
    }
}

impl Engine for Surreal {
    fn write(&self, ops: &[Op<'_>]) -> Result<()> {
        let mut txn = self.tree.begin_with_mode(Mode::WriteOnly)?.with_durability(self.durability);
        for op in ops {
            match op.value {
                Some(value) => txn.set(op.key, value)?,
                None => txn.delete(op.key)?,
            }
        }
        Ok(self.runtime.block_on(txn.commit())?)
    }

    fn load_sorted(&self, rows: &mut dyn Rows) -> Result<()> {
        append_in_batches(self, rows, LOAD_BATCH_LEN)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        let txn = Rc::new(self.tree.begin_with_mode(Mode::ReadOnly)?);
        Ok(Box::new(SurrealReader { tree: &self.tree, kept: None, txn }))
    }

    fn flush(&self) -> Result<()> {
        // A compaction to level 0 flushes the memtables and merges nothing.
        let options = CompactRangeOptions { target_level: Some(0), ..CompactRangeOptions::default() };
        self.tree.compact_range(None, None, &options)?;
        Ok(self.tree.flush_wal(true)?)
    }

    fn replayed(&self) -> Option<u64> {
        Some(self.tree.recovery_report().records_replayed as u64)
    }
}

struct SurrealReader<'a> {
    tree: &'a Tree,
    /// An iterator of `txn`, which is dropped after it. A new one for each range would be slower.
    kept: Option<Box<dyn LSMIterator>>,
    txn: Rc<Transaction>,
}

impl SurrealReader<'_> {
    fn rows(&mut self) -> Result<&mut dyn LSMIterator> {
        let rows = match self.kept.take() {
            Some(rows) => rows,
            None => {
                let rows: Box<dyn LSMIterator + '_> = Box::new(self.txn.iter()?);
                // SAFETY: the transaction has its own allocation, is only read, and is neither
                // replaced nor dropped before the iterator.
                unsafe { mem::transmute::<Box<dyn LSMIterator + '_>, Box<dyn LSMIterator + 'static>>(rows) }
            }
        };
        Ok(self.kept.insert(rows).as_mut())
    }
}

impl Reader for SurrealReader<'_> {
    fn refresh(&mut self) -> Result<()> {
        self.kept = None;
        self.txn = Rc::new(self.tree.begin_with_mode(Mode::ReadOnly)?);
        Ok(())
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.txn.get(key)?;
        if let Some(value) = &value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], visit: Visit<'_>) -> Result<()> {
        let rows = self.rows()?;
        let mut is_row = if from.is_empty() { rows.seek_first()? } else { rows.seek(from)? };
        while is_row && visit(rows.key().user_key(), &rows.value_ref()?) {
            is_row = rows.next()?;
        }
        Ok(())
    }

    fn scan_back(&mut self, visit: Visit<'_>) -> Result<()> {
        let rows = self.rows()?;
        let mut is_row = rows.seek_last()?;
        while is_row && visit(rows.key().user_key(), &rows.value_ref()?) {
            is_row = rows.prev()?;
        }
        Ok(())
    }
}
