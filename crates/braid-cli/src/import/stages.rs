//! How fast each stage of an import is, by itself: its time at work, without its waiting for the others.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use serde::{Deserialize, Serialize};

/// The counters of one stage; several threads may share them.
#[derive(Debug, Default)]
pub struct Stage {
    busy_ns: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
}

impl Stage {
    /// Counts work done since `began`.
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

/// The counters of all stages.
#[derive(Debug, Default)]
pub struct Stages {
    /// Reading, decompressing and cutting.
    pub read: Stage,
    /// Parsing, by all parsers together.
    pub parse: Stage,
    /// Writing.
    pub write: Stage,
    /// Bytes read before decompression.
    pub raw_bytes: Arc<AtomicU64>,
}

impl Stages {
    /// Where they stand.
    pub fn report(&self) -> StagesReport {
        StagesReport { read: self.read.report(), parse: self.parse.report(), write: self.write.report() }
    }
}

/// What one stage did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageReport {
    /// Its time at work.
    pub busy_ns: u64,
    /// Records.
    pub records: u64,
    /// Bytes of records, decompressed.
    pub bytes: u64,
}

impl StageReport {
    /// Records a second of its own time.
    pub fn records_per_second(&self) -> f64 {
        self.records as f64 / (self.busy_ns.max(1) as f64 / 1e9)
    }

    /// Bytes a second of its own time.
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

/// What all stages did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagesReport {
    /// Reading, decompressing and cutting.
    pub read: StageReport,
    /// Parsing, by all parsers together.
    pub parse: StageReport,
    /// Writing.
    pub write: StageReport,
}

impl StagesReport {
    /// Both together: of an import and of the one that went on with it.
    pub fn plus(self, other: StagesReport) -> StagesReport {
        StagesReport {
            read: self.read.plus(other.read),
            parse: self.parse.plus(other.parse),
            write: self.write.plus(other.write),
        }
    }

    /// The stages with their names.
    pub fn named(&self) -> [(&'static str, StageReport); 3] {
        [("read", self.read), ("parse", self.parse), ("write", self.write)]
    }
}
