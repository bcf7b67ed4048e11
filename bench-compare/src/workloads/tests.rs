//! The workloads on a map in memory: correct answers pass, each planted fault is detected.

use super::Context;
use crate::{
    data::{KEY_LEN, mix},
    engines::{Engine, EngineKind, Op, Reader, Rows, Setup},
    meter::MemorySampler,
};
use anyhow::Result;
use std::{
    cell::Cell,
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// Few rows, but many groups and batches.
const ROWS: u64 = 3200;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    LosesPuts,
    KeepsDeleted,
    /// Ignores overwrites of some keys.
    KeepsOldVersions,
    /// Gets miss some existing keys.
    MissesGets,
    /// Gets find missing keys.
    InventsRows,
    /// Scans skip some rows.
    SkipsInScans,
}

struct Fake {
    map: Arc<RwLock<Map>>,
    fault: Fault,
}

static MAPS: Mutex<BTreeMap<PathBuf, Arc<RwLock<Map>>>> = Mutex::new(BTreeMap::new());

impl Fake {
    fn open(setup: Setup<'_>, fault: Fault) -> Box<dyn Engine> {
        let mut maps = MAPS.lock().unwrap_or_else(PoisonError::into_inner);
        let map = Arc::clone(maps.entry(setup.folder.to_owned()).or_default());
        Box::new(Fake { map, fault })
    }

    fn read(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn written(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_struck(key: &[u8]) -> bool {
    mix(key.iter().fold(0, |sum: u64, byte| sum.rotate_left(8) ^ u64::from(*byte))).is_multiple_of(40)
}

impl Engine for Fake {
    fn write(&self, ops: &[Op<'_>]) -> Result<()> {
        let mut map = self.written();
        for op in ops {
            let struck_by = |fault| self.fault == fault && is_struck(op.key);
            match op.value {
                Some(_) if struck_by(Fault::LosesPuts) => {}
                Some(_) if struck_by(Fault::KeepsOldVersions) && map.contains_key(op.key) => {}
                Some(value) => drop(map.insert(op.key.to_vec(), value.to_vec())),
                None if struck_by(Fault::KeepsDeleted) => {}
                None => drop(map.remove(op.key)),
            }
        }
        Ok(())
    }

    fn load_sorted(&self, rows: &mut dyn Rows) -> Result<()> {
        while let Some((key, value)) = rows.next() {
            self.write(&[Op { key, value: Some(value) }])?;
        }
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(FakeReader(self)))
    }

    fn pop_first(&self, found: &mut dyn FnMut(&[u8], &[u8])) -> Result<bool> {
        let mut map = self.written();
        let Some(first) = map.first_entry() else { return Ok(false) };
        found(first.key(), first.get());
        if !(self.fault == Fault::KeepsDeleted && is_struck(first.key())) {
            first.remove();
        }
        Ok(true)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

struct FakeReader<'a>(&'a Fake);

impl Reader for FakeReader<'_> {
    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let map = self.0.read();
        let value = match map.get(key) {
            Some(_) if self.0.fault == Fault::MissesGets && is_struck(key) => None,
            None if self.0.fault == Fault::InventsRows => Some(key),
            value => value.map(Vec::as_slice),
        };
        value.into_iter().for_each(found);
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.show(self.0.read().range(from.to_vec()..), visit)
    }

    fn scan_back(&mut self, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.show(self.0.read().iter().rev(), visit)
    }
}

impl FakeReader<'_> {
    fn show<'m>(
        &self,
        rows: impl Iterator<Item = (&'m Vec<u8>, &'m Vec<u8>)>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        assert_eq!(KEY_LEN, 16);
        for (key, value) in rows {
            let is_left_out = self.0.fault == Fault::SkipsInScans && is_struck(key);
            if !is_left_out && !visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}

fn is_correct(workload: &str, open: fn(Setup<'_>) -> Result<Box<dyn Engine>>) -> Result<bool> {
    is_correct_on(workload, &EngineKind { name: "fake", package: "fake", open }, None)
}

fn is_correct_on(workload: &str, kind: &EngineKind, loads: Option<&Path>) -> Result<bool> {
    let folder = new_folder()?;
    let context = Context {
        kind,
        folder: &folder,
        loads,
        n: ROWS,
        limit: Duration::from_secs(60),
        sampler: MemorySampler::start(),
        budget: Cell::default(),
        anonymous_peak: Cell::default(),
        resident_peak: Cell::default(),
    };
    let measures = (super::by_name(workload)?.run)(&context)?;
    std::fs::remove_dir_all(&folder)?;
    assert!(!measures.is_empty(), "{workload} measured nothing");
    Ok(measures.iter().all(|measure| measure.correct))
}

fn new_folder() -> Result<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("bench-compare-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

#[test]
fn workloads_with_kept_loads_read_same_rows() -> Result<()> {
    let workloads =
        ["readrandom", "scan_all", "prefix_scan", "overwrite", "deleterandom", "cold_read", "ycsb_a", "ycsb_c"];
    for kind in crate::engines::all() {
        let loads = new_folder()?;
        for workload in workloads {
            assert!(is_correct_on(workload, &kind, Some(&loads))?, "{workload} of {}", kind.name);
        }
        let kept: Vec<PathBuf> = std::fs::read_dir(&loads)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        assert_eq!(kept.len(), 5, "gets, prefixes, writes, ycsb_a, ycsb_c: {kept:?}");
        for folder in kept {
            std::fs::remove_dir_all(&folder)?;
            std::fs::create_dir(&folder)?;
        }
        for workload in workloads {
            assert!(!is_correct_on(workload, &kind, Some(&loads)).unwrap_or(false), "{workload} of {}", kind.name);
        }
        std::fs::remove_dir_all(&loads)?;
    }
    Ok(())
}

#[test]
fn workloads_without_fault_are_correct() -> Result<()> {
    for workload in super::all().iter().filter(|workload| workload.name != "open_after_kill") {
        assert!(is_correct(workload.name, |setup| Ok(Fake::open(setup, Fault::None)))?, "{}", workload.name);
    }
    Ok(())
}

#[test]
fn workloads_with_planted_fault_are_incorrect() -> Result<()> {
    type Open = fn(Setup<'_>) -> Result<Box<dyn Engine>>;
    let faults: [(Open, &[&str]); 6] = [
        (
            |setup| Ok(Fake::open(setup, Fault::LosesPuts)),
            &[
                "fillseq_b100",
                "fillrandom_b1",
                "bulk_sorted",
                "queue",
                "at_scale",
                "commit_sync_4",
                "large_values",
                "db1k",
                "cold_read",
                "memory_small",
                "ycsb_d",
            ],
        ),
        (|setup| Ok(Fake::open(setup, Fault::KeepsDeleted)), &["deleterandom", "queue"]),
        (
            |setup| Ok(Fake::open(setup, Fault::KeepsOldVersions)),
            &["at_scale", "overwrite", "overwrite_16n", "latency_load", "sync_cpu", "ycsb_a", "ycsb_f"],
        ),
        (
            |setup| Ok(Fake::open(setup, Fault::MissesGets)),
            &[
                "at_scale",
                "at_scale_sorted",
                "readrandom",
                "readrandom_t2",
                "multi_get16",
                "open_warm",
                "readwhilewriting_free",
                "memory_large",
                "ycsb_c",
            ],
        ),
        (|setup| Ok(Fake::open(setup, Fault::InventsRows)), &["readmissing"]),
        (
            |setup| Ok(Fake::open(setup, Fault::SkipsInScans)),
            &[
                "at_scale",
                "at_scale_sorted",
                "seek_next1",
                "seek_next50",
                "prefix_scan",
                "scan_all",
                "scan_reverse",
                "memory_small",
                "ycsb_e",
            ],
        ),
    ];
    for (open, workloads) in faults {
        for workload in workloads {
            assert!(!is_correct(workload, open)?, "{workload} did not notice");
        }
    }
    Ok(())
}
