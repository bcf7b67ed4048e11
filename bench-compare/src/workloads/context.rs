//! Helpers of all workloads.

use super::Measure;
use crate::{
    data::{Checksum, KEY_LEN, Key, KeyOrder, Values},
    engines::{Access, Engine, EngineKind, Op, Reader, Setup},
    meter::{self, MemorySampler},
};
use anyhow::{Context as _, Result, ensure};
use std::{cell::Cell, fs, path::Path, process::Command, time::Duration};

/// Bytes per row: 128 MiB at 2 M rows.
const WRITE_BUDGET_PER_ROW: u64 = 64;
const BUDGET_MIN: u64 = 16 << 20;
/// A cold workload's budget must not hold the data.
const COLD_BUDGET_MIN: u64 = 4 << 20;
const LOAD_BATCH_LEN: usize = 1000;

pub struct Context<'a> {
    pub kind: &'a EngineKind,
    pub folder: &'a Path,
    /// Folder of kept loads.
    pub loads: Option<&'a Path>,
    pub n: u64,
    /// A phase stops at this time with the work done.
    pub limit: Duration,
    pub sampler: MemorySampler,
    pub budget: Cell<u64>,
    /// Peak of anonymous memory before verification.
    pub anonymous_peak: Cell<u64>,
    pub resident_peak: Cell<u64>,
}

/// See [`Setup`].
#[derive(Clone, Copy, Debug)]
pub struct Need {
    pub access: Access,
    /// Sizes the budget for writes.
    pub rows: u64,
    /// Instead of the one for the access.
    pub budget: Option<u64>,
    pub durable: bool,
    pub data_bytes: u64,
    pub prefix_len: Option<usize>,
    pub in_memory: bool,
}

impl Context<'_> {
    pub fn need(&self, access: Access) -> Need {
        self.need_of_rows(access, self.n)
    }

    pub fn need_of_rows(&self, access: Access, rows: u64) -> Need {
        let data_bytes = Values::small().user_bytes(rows);
        Need { access, rows, budget: None, durable: false, data_bytes, prefix_len: None, in_memory: false }
    }

    pub fn open(&self, need: Need) -> Result<Box<dyn Engine>> {
        let budget = need.budget.unwrap_or_else(|| match need.access {
            Access::Write => (need.rows * WRITE_BUDGET_PER_ROW).max(BUDGET_MIN),
            Access::Read => 2 * need.data_bytes + (32 << 20),
            Access::Half => (need.data_bytes / 2).max(BUDGET_MIN),
            Access::Cold => (need.data_bytes / 8).max(COLD_BUDGET_MIN),
        });
        self.budget.set(self.budget.get().max(budget));
        (self.kind.open)(Setup {
            folder: self.folder,
            budget: budget as usize,
            data_bytes: need.data_bytes,
            access: need.access,
            durable: need.durable,
            prefix_len: need.prefix_len,
            in_memory: need.in_memory,
        })
    }

    /// Opens an idle database with rows 0 to `rows` in version 0, put in that order.
    pub fn open_loaded(&self, need: Need, order: KeyOrder, values: &Values, rows: u64) -> Result<Box<dyn Engine>> {
        let Some(loads) = self.loads else {
            let engine = self.open(need)?;
            self.load(&*engine, order, values, rows)?;
            return Ok(engine);
        };
        let (Need { access, rows: sized_for, prefix_len, .. }, bytes) = (need, values.user_bytes(rows));
        let name = format!("{}-{order:?}-{rows}-{bytes}-{access:?}-{sized_for}-{prefix_len:?}", self.kind.name);
        let kept = loads.join(name);
        if !kept.exists() {
            let engine = self.open(need)?;
            self.load(&*engine, order, values, rows)?;
            drop(engine);
            let copy = loads.join("incomplete");
            let _ = fs::remove_dir_all(&copy);
            copy_folder(self.folder, &copy)?;
            fs::rename(copy, kept)?;
        } else {
            fs::remove_dir_all(self.folder)?;
            copy_folder(&kept, self.folder)?;
        }
        self.open(need)
    }

    /// Puts rows 0 to `rows` in version 0 and waits until idle.
    pub fn load(&self, engine: &dyn Engine, order: KeyOrder, values: &Values, rows: u64) -> Result<()> {
        let mut batch = Batch::new(LOAD_BATCH_LEN);
        let mut next = 0;
        while next < rows {
            let end = (next + LOAD_BATCH_LEN as u64).min(rows);
            batch.fill(order, values, (next..end).map(|row| (row, Some(0))));
            batch.commit(engine)?;
            next = end;
        }
        settle(engine)?;
        Ok(())
    }

    pub fn note_memory(&self) {
        self.anonymous_peak.set(self.anonymous_peak.get().max(self.sampler.peak()));
        self.resident_peak.set(self.resident_peak.get().max(meter::resident_peak()));
    }

    /// Adds bytes written until idle, and disk space.
    pub fn settled(&self, engine: &dyn Engine, measure: Measure, costs: Costs) -> Result<Measure> {
        let rest = settle(engine)?;
        self.note_memory();
        let written = meter::bytes_written() - costs.written_before;
        let space = meter::folder_bytes(self.folder);
        Ok(measure
            .with("settle_s", rest.as_secs_f64())
            .with("written_bytes", written as f64)
            .with("write_amp", written as f64 / costs.user_bytes as f64)
            .with("space_bytes", space as f64)
            .with("space_amp", space as f64 / costs.live_bytes as f64))
    }
}

/// Copies sparse files and syncs the copy, so that no later phase waits for write-back.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a folder without a parent")?)?;
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    ensure!(status.success(), "cp -a {} {}: {status}", from.display(), to.display());
    rustix::fs::syncfs(fs::File::open(to)?)?;
    Ok(())
}

#[derive(Clone, Copy, Debug)]
pub struct Costs {
    pub written_before: u64,
    pub user_bytes: u64,
    pub live_bytes: u64,
}

pub fn settle(engine: &dyn Engine) -> Result<Duration> {
    let start = std::time::Instant::now();
    engine.flush()?;
    let flushed = start.elapsed();
    Ok(flushed + meter::wait_for_rest())
}

pub fn scan_checksum(reader: &mut dyn Reader) -> Result<Checksum> {
    let mut seen = Checksum::default();
    reader.scan(b"", &mut |key, value| {
        seen.add(key, value);
        true
    })?;
    Ok(seen)
}

pub struct Batch {
    keys: Vec<Key>,
    key_len: usize,
    values: Vec<Vec<u8>>,
    is_put: Vec<bool>,
}

impl Batch {
    pub fn new(len: usize) -> Batch {
        Batch { keys: Vec::with_capacity(len), key_len: KEY_LEN, values: Vec::new(), is_put: Vec::with_capacity(len) }
    }

    pub fn fill(&mut self, order: KeyOrder, values: &Values, rows: impl Iterator<Item = (u64, Option<u32>)>) {
        self.keys.clear();
        self.key_len = order.key_len();
        self.is_put.clear();
        for (at, (row, version)) in rows.enumerate() {
            self.keys.push(order.key(row));
            self.is_put.push(version.is_some());
            if at == self.values.len() {
                self.values.push(Vec::new());
            }
            if let Some(version) = version {
                values.fill(row, version, &mut self.values[at]);
            }
        }
    }

    pub fn commit(&self, engine: &dyn Engine) -> Result<()> {
        if let ([key], [true]) = (&self.keys[..], &self.is_put[..]) {
            return engine.write(&[Op { key: &key[..self.key_len], value: Some(&self.values[0]) }]);
        }
        engine.write(&self.ops())
    }

    pub fn append(&self, engine: &dyn Engine) -> Result<()> {
        engine.append(&self.ops())
    }

    fn ops(&self) -> Vec<Op<'_>> {
        let rows = self.keys.iter().zip(&self.values).zip(&self.is_put);
        rows.map(|((key, value), is_put)| Op { key: &key[..self.key_len], value: is_put.then_some(&value[..]) })
            .collect()
    }
}
