//! What every engine must be able to do.

use anyhow::Result;
use std::path::Path;

/// What a workload mostly does; engines whose guides advise on it set themselves up for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Writes, or writes among reads.
    Write,
    /// Point reads and seeks of data that fits the budget.
    Read,
    /// Reads of data that does not fit the budget.
    Cold,
}

/// How a database is to be opened.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// An empty folder, or one that the same engine has filled.
    pub folder: &'a Path,
    /// Bytes for caches and buffers together. Engines that leave caching to the system take none.
    pub budget: usize,
    /// Bytes of keys and values that will be in it: sizes the memory maps.
    pub data_bytes: u64,
    /// What it is for.
    pub access: Access,
    /// Whether each commit must survive a power failure. If not, it must survive the end of the process.
    pub durable: bool,
    /// Whether nothing need outlive the process. The folder is in memory too, for engines that have no other way.
    pub in_memory: bool,
    /// How many bytes of the keys are prefixes that will be asked for, if the workload does that.
    pub prefix_len: Option<usize>,
}

/// A put, or a delete if there is no value.
#[derive(Clone, Copy, Debug)]
pub struct Op<'a> {
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

/// Gets a row, and says whether it wants more.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> bool;

/// An open database, shared by threads.
pub trait Engine: Send + Sync {
    /// Commits these operations as one.
    fn write(&self, ops: &[Op<'_>]) -> Result<()>;

    /// Commits puts of keys that follow all others, in order.
    fn append(&self, ops: &[Op<'_>]) -> Result<()> {
        self.write(ops)
    }

    /// Loads rows, in order, into an empty database, in the way made for that.
    fn load_sorted(&self, rows: &mut dyn Rows) -> Result<()>;

    /// For one thread to read with.
    fn reader(&self) -> Result<Box<dyn Reader + '_>>;

    /// Writes out what is in memory only, as far as the engine has a call for that.
    fn flush(&self) -> Result<()>;

    /// How many records of the log were replayed when it was opened, if there is a log.
    fn replayed(&self) -> Option<u64> {
        None
    }
}

/// Reads. What it sees is at least as new as its creation or its last refresh.
pub trait Reader {
    /// From here on it sees everything that has been committed.
    fn refresh(&mut self) -> Result<()>;

    /// Shows the value of a key; whether there is one.
    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Shows the values of those keys that have one, in any order, with the indices of their keys.
    fn multi_get(&mut self, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        for (index, key) in keys.iter().enumerate() {
            self.get(key, &mut |value| found(index, value))?;
        }
        Ok(())
    }

    /// Shows the rows from the first key at or above `from` on.
    fn scan(&mut self, from: &[u8], visit: Visit<'_>) -> Result<()>;

    /// Shows all rows from the last one back.
    fn scan_back(&mut self, visit: Visit<'_>) -> Result<()>;

    /// Shows the rows whose keys begin with `prefix`.
    fn scan_prefix(&mut self, prefix: &[u8], visit: Visit<'_>) -> Result<()> {
        self.scan(prefix, &mut |key, value| key.starts_with(prefix) && visit(key, value))
    }
}

/// Rows in key order.
pub trait Rows {
    /// The next one.
    fn next(&mut self) -> Option<(&[u8], &[u8])>;
}

/// Loads rows as commits of `len` appended operations.
pub fn append_in_batches(engine: &dyn Engine, rows: &mut dyn Rows, len: usize) -> Result<()> {
    let mut batch: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    loop {
        let mut used = 0;
        while used < len
            && let Some((key, value)) = rows.next()
        {
            if used == batch.len() {
                batch.push(Default::default());
            }
            let (to_key, to_value) = &mut batch[used];
            to_key.clear();
            to_key.extend_from_slice(key);
            to_value.clear();
            to_value.extend_from_slice(value);
            used += 1;
        }
        if used == 0 {
            return Ok(());
        }
        let ops: Vec<Op<'_>> = batch[..used].iter().map(|(key, value)| Op { key, value: Some(value) }).collect();
        engine.append(&ops)?;
    }
}
