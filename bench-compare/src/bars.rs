//! Bars: figures that BraidDB must reach, relative to other engines or absolute.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versus {
    Best,
    Engine(&'static str),
    /// The figure itself is bounded.
    Nobody,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    pub fn is_met(self, value: f64) -> bool {
        match self {
            Bound::AtLeast(bound) => value >= bound,
            Bound::AtMost(bound) => value <= bound,
        }
    }

    pub fn value(self) -> f64 {
        match self {
            Bound::AtLeast(bound) | Bound::AtMost(bound) => bound,
        }
    }

    pub fn is_better(self, one: f64, other: f64) -> bool {
        match self {
            Bound::AtLeast(_) => one > other,
            Bound::AtMost(_) => one < other,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Bar {
    pub measure: &'static str,
    pub figure: &'static str,
    pub versus: Versus,
    pub bound: Bound,
}

/// Prefixes of measures whose commits must survive a power failure.
const DURABLE: [&str; 2] = ["commit_sync", "sync_cpu"];
/// Peers without durable commits: sled's `flush` calls `sync_file_range`, which by its manual page
/// "does not flush disk write caches and thus does not provide any data integrity".
const WITHOUT_DURABLE: [&str; 1] = ["sled"];
/// Measures of mostly commits, some of them of several rows.
const COMMITS: [&str; 8] = [
    "fillseq_b100",
    "fillrandom_b100",
    "fillrandom_b1",
    "overwrite",
    "deleterandom",
    "readwhilewriting_free_writes",
    "ycsb_a",
    "ycsb_f",
];
/// Peers that neither log a write nor group writes.
const WITHOUT_COMMITS: [&str; 1] = ["bf-tree"];

impl Bar {
    /// Returns true if the peer does the measured work, so that it can be the best.
    pub fn counts(&self, peer: &str) -> bool {
        let is_durable = DURABLE.iter().any(|prefix| self.measure.starts_with(prefix));
        let lacks_durable = is_durable && WITHOUT_DURABLE.contains(&peer);
        let lacks_commits = COMMITS.contains(&self.measure) && WITHOUT_COMMITS.contains(&peer);
        !lacks_durable && !lacks_commits
    }
}

const fn at_least(measure: &'static str, bound: f64) -> Bar {
    Bar { measure, figure: "rate", versus: Versus::Best, bound: Bound::AtLeast(bound) }
}

const fn at_most(measure: &'static str, figure: &'static str, versus: Versus, bound: f64) -> Bar {
    Bar { measure, figure, versus, bound: Bound::AtMost(bound) }
}

const ROCKSDB: Versus = Versus::Engine("rocksdb");

pub const BARS: &[Bar] = &[
    at_least("fillseq_b100", 1.2),
    at_least("fillrandom_b100", 2.5),
    at_least("fillrandom_b1", 3.5),
    at_least("overwrite", 2.5),
    at_most("overwrite", "write_amp", ROCKSDB, 0.85),
    at_most("overwrite", "space_amp", Versus::Nobody, 1.3),
    at_most("overwrite_16n", "write_amp", ROCKSDB, 0.65),
    at_most("overwrite_16n", "space_amp", Versus::Nobody, 1.3),
    at_least("deleterandom", 2.0),
    at_least("deleterandom_scan", 1.2),
    at_least("readrandom", 2.5),
    at_least("readrandom_t2", 2.5),
    at_least("multi_get16", 5.0),
    at_least("readmissing", 1.6),
    at_least("seek_next1", 2.0),
    at_least("seek_next50", 2.0),
    at_least("prefix_scan", 2.0),
    at_least("scan_all", 3.0),
    at_least("scan_reverse", 3.0),
    at_least("readwhilewriting_10k_reads", 1.5),
    at_least("readwhilewriting_free_reads", 1.5),
    at_least("readwhilewriting_free_writes", 2.0),
    at_least("commit_sync_1", 1.1),
    at_most("commit_sync_1", "over_bare", Versus::Nobody, 1.1),
    at_least("commit_sync_4", 1.3),
    at_least("commit_sync_16", 1.5),
    at_most("sync_cpu_1", "cpu_us", Versus::Best, 0.7),
    at_most("sync_cpu_100", "cpu_us", Versus::Best, 0.7),
    at_least("bulk_sorted", 1.2),
    at_least("queue_pop_1", 5.0),
    at_most("queue_pop_1", "slowdown", Versus::Nobody, 1.25),
    at_least("queue_pop_4", 5.0),
    at_most("cold_read", "p50_us", Versus::Best, 1.1),
    at_most("cold_read", "bytes_per_get", Versus::Best, 1.5),
    at_most("open_after_kill", "ns_per_record", ROCKSDB, 0.35),
    at_most("open_after_kill", "open_ms", Versus::Nobody, 150.0),
    at_most("open_after_kill", "lost", Versus::Nobody, 0.0),
    at_least("open_warm_gets", 1.5),
    at_least("open_warm_seeks", 1.5),
    at_least("large_put", 0.8),
    at_least("large_get", 0.8),
    at_most("large_put", "write_amp", Versus::Nobody, 1.1),
    at_most("db1k", "space_amp", Versus::Nobody, 1.05),
    at_least("ycsb_a", 2.0),
    at_least("ycsb_b", 1.5),
    at_least("ycsb_c", 1.5),
    at_least("ycsb_d", 1.5),
    at_least("ycsb_e", 2.0),
    at_least("ycsb_f", 2.0),
];
