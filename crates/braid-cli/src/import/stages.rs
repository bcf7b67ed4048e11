//! Speed of each import stage: busy time without waiting for other stages.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use serde::{Deserialize, Serialize};

#[derive(Debug, Default)]
pub struct Stage {
    busy_ns: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
}

impl Stage {
    pub fn worked(&self, began: Instant, records: u64, bytes: u64) {
        self.busy_ns.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.records.fetch_add(records, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn report(&self) -> StageReport {
        StageReport {
            busy_ns: self.busy_ns.load(Ordering::Relaxed),
            records: self.records.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

#[derive(Debug, Default)]
pub struct Stages {
    pub read: Stage,
    pub parse: Stage,
    pub write: Stage,
    /// Compressed bytes read.
    pub raw_bytes: Arc<AtomicU64>,
}

impl Stages {
    pub fn report(&self) -> StagesReport {
        StagesReport { read: self.read.report(), parse: self.parse.report(), write: self.write.report() }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageReport {
    pub busy_ns: u64,
    pub records: u64,
    pub bytes: u64,
}

impl StageReport {
    pub fn records_per_second(&self) -> f64 {
        self.records as f64 / (self.busy_ns.max(1) as f64 / 1e9)
    }

    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / (self.busy_ns.max(1) as f64 / 1e9)
    }

    fn plus(self, other: StageReport) -> StageReport {
        StageReport {
            busy_ns: self.busy_ns + other.busy_ns,
            records: self.records + other.records,
            bytes: self.bytes + other.bytes,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagesReport {
    pub read: StageReport,
    pub parse: StageReport,
    pub write: StageReport,
}

impl StagesReport {
    pub fn plus(self, other: StagesReport) -> StagesReport {
        StagesReport {
            read: self.read.plus(other.read),
            parse: self.parse.plus(other.parse),
            write: self.write.plus(other.write),
        }
    }

    pub fn named(&self) -> [(&'static str, StageReport); 3] {
        [("read", self.read), ("parse", self.parse), ("write", self.write)]
    }
}
