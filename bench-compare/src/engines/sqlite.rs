//! SQLite: one table WITHOUT ROWID, WAL mode. As its documentation advises, `synchronous` is
//! `NORMAL` if commits need only survive the end of the process, and `FULL` for power failures.

use super::engine::{Access, Engine, Op, Reader, Rows, Setup, Visit, append_in_batches};
use anyhow::Result;
use rusqlite::{Connection, OptionalExtension, params};
use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

/// Its FAQ advises one transaction for many inserts.
const LOAD_BATCH_LEN: usize = 100_000;
const STATEMENTS: usize = 16;

pub struct Sqlite {
    path: PathBuf,
    budget: usize,
    map_bytes: u64,
    writer: Mutex<Connection>,
}

impl Sqlite {
    pub fn open(setup: Setup<'_>) -> Result<Sqlite> {
        let path = setup.folder.join("rows.sqlite");
        // Mapping saves a copy of each page (mmap.html).
        let map_bytes = if setup.access == Access::Cold { 0 } else { 4 * setup.data_bytes + (64 << 20) };
        let writer = connect(&path, setup.budget, map_bytes)?;
        writer.pragma_update(None, "journal_mode", "WAL")?;
        writer.pragma_update(None, "synchronous", if setup.durable { "FULL" } else { "NORMAL" })?;
        writer.execute_batch("CREATE TABLE IF NOT EXISTS rows (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")?;
        Ok(Sqlite { path, budget: setup.budget, map_bytes, writer: Mutex::new(writer) })
    }
}

fn connect(path: &PathBuf, budget: usize, map_bytes: u64) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "cache_size", -((budget >> 10) as i64))?;
    connection.pragma_update(None, "mmap_size", map_bytes as i64)?;
    connection.busy_timeout(std::time::Duration::from_secs(30))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

fn run(writer: &Connection, ops: &[Op<'_>]) -> Result<()> {
    let mut put = writer.prepare_cached("INSERT OR REPLACE INTO rows VALUES (?1, ?2)")?;
    let mut delete = writer.prepare_cached("DELETE FROM rows WHERE key = ?1")?;
    for op in ops {
        match op.value {
            Some(value) => put.execute(params![op.key, value])?,
            None => delete.execute(params![op.key])?,
        };
    }
    Ok(())
}

impl Engine for Sqlite {
    fn write(&self, ops: &[Op<'_>]) -> Result<()> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if ops.len() == 1 {
            return run(&writer, ops);
        }
        writer.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let done = run(&writer, ops);
        writer.prepare_cached(if done.is_ok() { "COMMIT" } else { "ROLLBACK" })?.execute([])?;
        done
    }

    fn load_sorted(&self, rows: &mut dyn Rows) -> Result<()> {
        append_in_batches(self, rows, LOAD_BATCH_LEN)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        let connection = connect(&self.path, self.budget, self.map_bytes)?;
        connection.prepare_cached("BEGIN")?.execute([])?;
        Ok(Box::new(SqliteReader { connection, begun: true }))
    }

    fn flush(&self) -> Result<()> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
    }
}

/// Reads in one transaction until the first refresh, which saves a lock and a log check per
/// statement. Afterwards each statement is a transaction, or the log could never restart
/// ("checkpoint starvation", wal.html).
struct SqliteReader {
    connection: Connection,
    begun: bool,
}

impl SqliteReader {
    fn show(&mut self, statement: &str, from: &[u8], visit: Visit<'_>) -> Result<()> {
        let mut statement = self.connection.prepare_cached(statement)?;
        let mut rows = statement.query(params![from])?;
        while let Some(row) = rows.next()? {
            if !visit(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?) {
                break;
            }
        }
        Ok(())
    }
}

impl Reader for SqliteReader {
    fn refresh(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.begun, false) {
            self.connection.prepare_cached("COMMIT")?.execute([])?;
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut statement = self.connection.prepare_cached("SELECT value FROM rows WHERE key = ?1")?;
        let there = statement.query_row(params![key], |row| {
            found(row.get_ref(0)?.as_blob()?);
            Ok(())
        });
        Ok(there.optional()?.is_some())
    }

    fn scan(&mut self, from: &[u8], visit: Visit<'_>) -> Result<()> {
        self.show("SELECT key, value FROM rows WHERE key >= ?1 ORDER BY key", from, visit)
    }

    fn scan_back(&mut self, visit: Visit<'_>) -> Result<()> {
        self.show("SELECT key, value FROM rows WHERE key >= ?1 ORDER BY key DESC", b"", visit)
    }
}
