//! TidesDB through its Rust crate. Buffered commits reach the operating system
//! (`SyncMode::Interval`, with a sync each second; under `SyncMode::None` they would stay in the
//! process), durable ones wait for `fsync` (`SyncMode::Full`). `Locked` asks for a retry.

use super::engine::{Access, Engine, Op, Reader, Rows, Setup, Visit, append_in_batches};
use anyhow::Result;
use std::{mem, rc::Rc, thread};
use tidesdb::{ColumnFamily, ColumnFamilyConfig, Config, Error, ErrorCode, LogLevel, SyncMode, TidesDB, Transaction};

const FAMILY: &str = "rows";
const LOAD_BATCH_LEN: usize = 1000;

pub struct Tides {
    db: TidesDB,
}

impl Tides {
    pub fn open(setup: Setup<'_>) -> Result<Tides> {
        // As for the other trees of sorted files: for writes, half of the budget is memtables, one
        // filled while the other is flushed; for reads nearly all is block cache.
        let memtable = match setup.access {
            Access::Write => setup.budget / 4,
            Access::Read | Access::Half | Access::Cold => setup.budget / 16,
        };
        let memtable = memtable.clamp(1 << 20, 64 << 20);
        let config = Config::new(setup.folder.join("db"))
            .log_level(LogLevel::Error)
            .block_cache_size(setup.budget.saturating_sub(2 * memtable).max(1 << 20))
            .memtable_write_buffer_size(memtable)
            .memtable_sync_mode(if setup.durable { SyncMode::Full } else { SyncMode::Interval });
        let db = TidesDB::open(config)?;
        if !db.list_column_families()?.iter().any(|name| name == FAMILY) {
            // The crate compresses nothing unless asked.
            db.create_column_family(FAMILY, ColumnFamilyConfig::default())?;
        }
        Ok(Tides { db })
    }
}

/// Repeats a call refused by contention: "treat it as retry" (db.h).
fn retried<T>(mut call: impl FnMut() -> tidesdb::Result<T>) -> tidesdb::Result<T> {
    loop {
        match call() {
            Err(error) if error.code() == Some(ErrorCode::Locked) => thread::yield_now(),
            result => return result,
        }
    }
}

impl Engine for Tides {
    fn write(&self, ops: &[Op<'_>]) -> Result<()> {
        let family = self.db.get_column_family(FAMILY)?;
        Ok(retried(|| {
            let mut txn = self.db.begin_transaction()?;
            for op in ops {
                match op.value {
                    Some(value) => txn.put(&family, op.key, value)?,
                    None => txn.delete(&family, op.key)?,
                }
            }
            txn.commit()
        })?)
    }

    fn load_sorted(&self, rows: &mut dyn Rows) -> Result<()> {
        append_in_batches(self, rows, LOAD_BATCH_LEN)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        let family = self.db.get_column_family(FAMILY)?;
        Ok(Box::new(TidesReader { kept: None, txn: Rc::new(self.db.begin_transaction()?), family }))
    }

    fn flush(&self) -> Result<()> {
        Ok(retried(|| self.db.checkpoint())?)
    }
}

/// Reads committed data, the default: each get and each new iterator sees the latest commit.
struct TidesReader<'a> {
    /// An iterator of `txn`, which is dropped after it. A new one for each range would be slower.
    kept: Option<tidesdb::Iterator<'static>>,
    txn: Rc<Transaction<'a>>,
    family: ColumnFamily<'a>,
}

impl TidesReader<'_> {
    fn rows(&mut self) -> Result<&mut tidesdb::Iterator<'static>> {
        let rows = match self.kept.take() {
            Some(rows) => rows,
            None => {
                let rows = retried(|| self.txn.new_iterator(&self.family))?;
                // SAFETY: the transaction has its own allocation and is dropped after the iterator.
                unsafe { mem::transmute::<tidesdb::Iterator<'_>, tidesdb::Iterator<'static>>(rows) }
            }
        };
        Ok(self.kept.insert(rows))
    }
}

impl Reader for TidesReader<'_> {
    fn refresh(&mut self) -> Result<()> {
        self.kept = None;
        Ok(())
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match retried(|| self.txn.get_notrack(&self.family, key)) {
            Ok(value) => found(&value),
            Err(error) if error.is_not_found() => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    fn scan(&mut self, from: &[u8], visit: Visit<'_>) -> Result<()> {
        let rows = self.rows()?;
        if from.is_empty() {
            retried(|| rows.seek_to_first())?;
        } else {
            retried(|| rows.seek(from))?;
        }
        Ok(show(rows, tidesdb::Iterator::next, visit)?)
    }

    fn scan_back(&mut self, visit: Visit<'_>) -> Result<()> {
        let rows = self.rows()?;
        retried(|| rows.seek_to_last())?;
        Ok(show(rows, tidesdb::Iterator::prev, visit)?)
    }
}

fn show<'t>(
    rows: &mut tidesdb::Iterator<'t>,
    step: impl Fn(&mut tidesdb::Iterator<'t>) -> Result<(), Error>,
    visit: Visit<'_>,
) -> Result<(), Error> {
    while rows.is_valid() {
        let (key, value) = retried(|| rows.key_value())?;
        if !visit(&key, &value) {
            break;
        }
        retried(|| step(rows))?;
    }
    Ok(())
}
