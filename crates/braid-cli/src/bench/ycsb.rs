//! The six core workloads of YCSB (Cooper et al., "Benchmarking cloud serving systems with YCSB",
//! SoCC 2010).

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    distribution::{Distribution, THETA},
    latencies::Kind,
};

pub const SCAN_ROWS_MAX: u64 = 100;

#[derive(Clone, Copy, Debug, Default)]
pub struct Mix {
    updates: u64,
    inserts: u64,
    scans: u64,
    read_modify_writes: u64,
    is_latest: bool,
}

impl Mix {
    pub const A: Mix = Mix { updates: 50, ..Mix::C };
    pub const B: Mix = Mix { updates: 5, ..Mix::C };
    pub const C: Mix = Mix { updates: 0, inserts: 0, scans: 0, read_modify_writes: 0, is_latest: false };
    pub const D: Mix = Mix { inserts: 5, is_latest: true, ..Mix::C };
    pub const E: Mix = Mix { scans: 95, inserts: 5, ..Mix::C };
    pub const F: Mix = Mix { read_modify_writes: 50, ..Mix::C };

    #[inline]
    pub fn pick(&self, percent: u64) -> Kind {
        let mut end = 0;
        for (share, kind) in [
            (self.updates, Kind::Update),
            (self.inserts, Kind::Insert),
            (self.scans, Kind::Scan),
            (self.read_modify_writes, Kind::ReadModifyWrite),
        ] {
            end += share;
            if percent < end {
                return kind;
            }
        }
        Kind::Read
    }

    pub fn rows_per_operation(&self) -> u64 {
        if self.scans > 0 { SCAN_ROWS_MAX / 2 } else { 1 }
    }

    pub fn distribution(&self) -> Distribution {
        if self.is_latest { Distribution::Latest(THETA) } else { Distribution::Zipfian(THETA) }
    }
}

/// Assigns rows to inserting threads, and tracks the number below which all rows exist.
#[derive(Debug)]
pub struct Inserts {
    next: AtomicU64,
    done: AtomicU64,
    ahead: Mutex<BinaryHeap<Reverse<u64>>>,
}

impl Inserts {
    pub fn new(first: u64) -> Inserts {
        Inserts { next: AtomicU64::new(first), done: AtomicU64::new(first), ahead: Mutex::default() }
    }

    pub fn begin(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub fn finish(&self, row: u64) {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.push(Reverse(row));
        let mut done = self.done.load(Ordering::Relaxed);
        while ahead.peek() == Some(&Reverse(done)) {
            ahead.pop();
            done += 1;
        }
        self.done.store(done, Ordering::Release);
    }

    #[inline]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }
}
