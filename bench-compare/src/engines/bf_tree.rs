//! Bf-Tree. It has no transactions, so batches are not atomic. Its open does not replay its log;
//! only a snapshot persists, which `flush` takes, and a killed process loses everything since.
//! Durable commits, scans backward and rows above 1,952 bytes are unsupported; their workloads fail.

use super::engine::{Engine, Op, Reader, Rows, Setup, Visit, append_in_batches};
use crate::data::KEY_LEN;
use anyhow::{Result, anyhow, bail, ensure};
use bf_tree::{BfTree, Config, LeafInsertResult, LeafReadResult, ScanIterError, ScanReturnField};
use std::{
    fs,
    path::{Path, PathBuf},
};

const LOAD_BATCH_LEN: usize = 1000;
/// Pages and records of the default configuration.
const RECORD_LEN_MAX: usize = 1952;
/// The tree has no empty keys.
const FIRST_KEY: [u8; 1] = [0];
const LAST_KEY: [u8; KEY_LEN] = [0xff; KEY_LEN];

pub struct Bf {
    tree: BfTree,
    /// None in memory.
    snapshot: Option<PathBuf>,
}

impl Bf {
    pub fn open(setup: Setup<'_>) -> Result<Bf> {
        ensure!(!setup.durable, "unsupported: Bf-Tree has no durable commits");
        // The crate asks for a power of two.
        let cache = 1 << setup.budget.max(1 << 20).ilog2();
        if setup.in_memory {
            return Ok(Bf { tree: check(BfTree::with_config(Config::new(":memory:", cache), None))?, snapshot: None });
        }
        let (pages, snapshot) = (setup.folder.join("rows.pages"), setup.folder.join("rows.snapshot"));
        let tree = if snapshot.exists() {
            // A recovered tree writes into the file that it was given.
            fs::copy(&snapshot, &pages)?;
            check(BfTree::new_from_cpr_snapshot(&pages, true, None, Some(cache), None))?
        } else {
            check(BfTree::with_config(new_file(&pages, cache)?, None))?
        };
        Ok(Bf { tree, snapshot: Some(snapshot) })
    }
}

fn new_file(pages: &Path, cache: usize) -> Result<Config> {
    // Pages left by a killed process belong to no snapshot.
    if pages.exists() {
        fs::remove_file(pages)?;
    }
    let mut config = Config::new(pages, cache);
    config.use_snapshot(true);
    Ok(config)
}

fn check<T>(result: Result<T, bf_tree::ConfigError>) -> Result<T> {
    result.map_err(|error| anyhow!("Bf-Tree: {error:?}"))
}

impl Engine for Bf {
    fn write(&self, ops: &[Op<'_>]) -> Result<()> {
        for op in ops {
            match op.value {
                None => self.tree.delete(op.key),
                Some(value) => match self.tree.insert(op.key, value) {
                    LeafInsertResult::Success => {}
                    LeafInsertResult::InvalidKV(reason) => bail!("unsupported: Bf-Tree: {reason}"),
                },
            }
        }
        Ok(())
    }

    fn load_sorted(&self, rows: &mut dyn Rows) -> Result<()> {
        append_in_batches(self, rows, LOAD_BATCH_LEN)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(BfReader { tree: &self.tree, row: Box::new([0; RECORD_LEN_MAX]) }))
    }

    fn flush(&self) -> Result<()> {
        if let Some(snapshot) = &self.snapshot {
            self.tree.cpr_snapshot(snapshot);
        }
        Ok(())
    }
}

/// Reads the latest state; the tree has no read views.
struct BfReader<'a> {
    tree: &'a BfTree,
    row: Box<[u8; RECORD_LEN_MAX]>,
}

impl Reader for BfReader<'_> {
    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match self.tree.read(key, &mut self.row[..]) {
            LeafReadResult::Found(len) => found(&self.row[..len as usize]),
            LeafReadResult::NotFound | LeafReadResult::Deleted => return Ok(false),
            LeafReadResult::InvalidKey => bail!("unsupported: Bf-Tree: a key of {} bytes", key.len()),
        }
        Ok(true)
    }

    fn scan(&mut self, from: &[u8], visit: Visit<'_>) -> Result<()> {
        let from = if from.is_empty() { &FIRST_KEY } else { from };
        self.show(from, &LAST_KEY, visit)
    }

    fn scan_back(&mut self, _visit: Visit<'_>) -> Result<()> {
        bail!("unsupported: Bf-Tree has no scans backward")
    }

    fn scan_prefix(&mut self, prefix: &[u8], visit: Visit<'_>) -> Result<()> {
        let mut end = LAST_KEY;
        end[..prefix.len()].copy_from_slice(prefix);
        self.show(prefix, &end, &mut |key, value| key.starts_with(prefix) && visit(key, value))
    }
}

impl BfReader<'_> {
    fn show(&mut self, from: &[u8], end: &[u8], visit: Visit<'_>) -> Result<()> {
        let rows = self.tree.scan_with_end_key(from, end, ScanReturnField::KeyAndValue);
        let mut rows = rows.map_err(|error| match error {
            ScanIterError::CacheOnlyMode => anyhow!("Bf-Tree: no scans of a cache"),
            ScanIterError::InvalidStartKey => anyhow!("Bf-Tree: a start key of {} bytes", from.len()),
            ScanIterError::InvalidEndKey => anyhow!("Bf-Tree: an end key of {} bytes", end.len()),
            ScanIterError::InvalidCount | ScanIterError::InvalidKeyRange => anyhow!("Bf-Tree: an empty range"),
        })?;
        while let Some((key_len, value_len)) = rows.next(&mut self.row[..]) {
            let (key, value) = self.row[..key_len + value_len].split_at(key_len);
            if !visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}
