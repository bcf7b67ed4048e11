//! The interface of all engines.

use anyhow::{Result, bail};
use std::path::Path;

/// A workload's access pattern, for the engines' configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Write,
    /// Data fits the budget.
    Read,
    /// Data is twice the budget; the page cache may hold all of it.
    Half,
    /// Data does not fit the budget.
    Cold,
}

#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Empty, or filled by the same engine.
    pub folder: &'a Path,
    /// Bytes for caches and buffers.
    pub budget: usize,
    /// Expected bytes of keys and values.
    pub data_bytes: u64,
    pub access: Access,
    /// Commits must survive a power failure, otherwise only the end of the process.
    pub durable: bool,
    /// Data need not outlive the process; the folder is on tmpfs.
    pub in_memory: bool,
    /// Bytes of the key prefixes in queries.
    pub prefix_len: Option<usize>,
}

/// A put, or a delete without a value.
#[derive(Clone, Copy, Debug)]
pub struct Op<'a> {
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

/// Receives a row; returns true to continue.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> bool;

pub trait Engine: Send + Sync {
    fn write(&self, ops: &[Op<'_>]) -> Result<()>;

    /// Commits puts of ascending keys after all existing ones.
    fn append(&self, ops: &[Op<'_>]) -> Result<()> {
        self.write(ops)
    }

    /// Loads sorted rows into an empty database by the engine's bulk load.
    fn load_sorted(&self, rows: &mut dyn Rows) -> Result<()>;

    fn reader(&self) -> Result<Box<dyn Reader + '_>>;

    /// Removes the first row, passes it on and returns true; returns false if there is none.
    /// Buffered and atomic, like a commit.
    fn pop_first(&self, _: &mut dyn FnMut(&[u8], &[u8])) -> Result<bool> {
        bail!("the engine is not set up to pop rows")
    }

    /// Flushes buffered writes, if the engine can.
    fn flush(&self) -> Result<()>;

    /// The most sorted runs of a part of the keys that no index over all runs includes.
    fn unindexed_runs_max(&self) -> Option<usize> {
        None
    }

    /// Log records replayed at the open.
    fn replayed(&self) -> Option<u64> {
        None
    }
}

/// Reads a state at least as new as its creation or last refresh.
pub trait Reader {
    fn refresh(&mut self) -> Result<()>;

    /// Passes the value to `found`; returns false if there is none.
    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Passes each value found, in any order, with the index of its key.
    fn multi_get(&mut self, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        for (index, key) in keys.iter().enumerate() {
            self.get(key, &mut |value| found(index, value))?;
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], visit: Visit<'_>) -> Result<()>;

    fn scan_back(&mut self, visit: Visit<'_>) -> Result<()>;

    fn scan_prefix(&mut self, prefix: &[u8], visit: Visit<'_>) -> Result<()> {
        self.scan(prefix, &mut |key, value| key.starts_with(prefix) && visit(key, value))
    }
}

pub trait Rows {
    fn next(&mut self) -> Option<(&[u8], &[u8])>;
}

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
