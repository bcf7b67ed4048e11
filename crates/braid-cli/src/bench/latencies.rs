//! Latencies of calls by kind.

use hdrhistogram::Histogram;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Delete,
    Update,
    Insert,
    /// A seek with its rows, or one row of a pass.
    Scan,
    ReadModifyWrite,
}

const KINDS: [(Kind, &str); 7] = [
    (Kind::Read, "read"),
    (Kind::Write, "write"),
    (Kind::Delete, "delete"),
    (Kind::Update, "update"),
    (Kind::Insert, "insert"),
    (Kind::Scan, "scan"),
    (Kind::ReadModifyWrite, "read+write"),
];

/// Significant digits: percentiles are exact within 1%, and a histogram fits into the cache.
const DIGITS: u8 = 2;
/// Maximum latency: one hour.
const NS_MAX: u64 = 3_600_000_000_000;

#[derive(Clone, Debug)]
pub struct Latencies {
    histograms: [Option<Histogram<u64>>; KINDS.len()],
}

impl Latencies {
    pub fn new() -> Latencies {
        Latencies { histograms: [const { None }; KINDS.len()] }
    }

    #[inline]
    pub fn record(&mut self, kind: Kind, ns: u64) {
        self.histograms[kind as usize].get_or_insert_with(empty).saturating_record(ns.max(1));
    }

    pub fn merge(&mut self, other: &Latencies) {
        for (mine, theirs) in self.histograms.iter_mut().zip(&other.histograms) {
            let Some(theirs) = theirs else { continue };
            let _ = mine.get_or_insert_with(empty).add(theirs);
        }
    }

    pub fn summaries(&self) -> Vec<Summary> {
        let present = KINDS.iter().zip(&self.histograms);
        present.filter_map(|((_, name), histogram)| Some(Summary::of(name, histogram.as_ref()?))).collect()
    }
}

fn empty() -> Histogram<u64> {
    match Histogram::new_with_bounds(1, NS_MAX, DIGITS) {
        Ok(histogram) => histogram,
        Err(error) => unreachable!("the bounds are constants that make sense: {error}"),
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Summary {
    pub name: &'static str,
    pub count: u64,
    pub mean: f64,
    pub p50: u64,
    pub p95: u64,
    pub p99: u64,
    pub p999: u64,
    pub p9999: u64,
    pub max: u64,
}

impl Summary {
    fn of(name: &'static str, histogram: &Histogram<u64>) -> Summary {
        Summary {
            name,
            count: histogram.len(),
            mean: histogram.mean(),
            p50: histogram.value_at_quantile(0.5),
            p95: histogram.value_at_quantile(0.95),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            p9999: histogram.value_at_quantile(0.9999),
            max: histogram.max(),
        }
    }
}
