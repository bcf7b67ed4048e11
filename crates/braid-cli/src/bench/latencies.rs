//! How long calls took, by kind.

use hdrhistogram::Histogram;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Gets.
    Read,
    /// Commits of puts.
    Write,
    /// Commits of deletes.
    Delete,
    /// Puts of rows that are there.
    Update,
    /// Puts of new rows.
    Insert,
    /// A seek and the rows that follow, or one row of a pass over all.
    Scan,
    /// A get and a put of the same row.
    ReadModifyWrite,
}

/// All kinds, in the order in which they are shown.
const KINDS: [(Kind, &str); 7] = [
    (Kind::Read, "read"),
    (Kind::Write, "write"),
    (Kind::Delete, "delete"),
    (Kind::Update, "update"),
    (Kind::Insert, "insert"),
    (Kind::Scan, "scan"),
    (Kind::ReadModifyWrite, "read+write"),
];

/// A histogram keeps so many digits: percentiles are right to within one in a hundred, and it fits into the cache.
const DIGITS: u8 = 2;
/// An hour; whatever takes longer counts as that.
const NS_MAX: u64 = 3_600_000_000_000;

/// A histogram for each kind, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latencies {
    histograms: [Option<Histogram<u64>>; KINDS.len()],
}

impl Latencies {
    /// Of no call yet.
    pub fn new() -> Latencies {
        Latencies { histograms: [const { None }; KINDS.len()] }
    }

    /// Counts a call.
    #[inline]
    pub fn record(&mut self, kind: Kind, ns: u64) {
        self.histograms[kind as usize].get_or_insert_with(empty).saturating_record(ns.max(1));
    }

    /// Adds those of another thread.
    pub fn merge(&mut self, other: &Latencies) {
        for (mine, theirs) in self.histograms.iter_mut().zip(&other.histograms) {
            let Some(theirs) = theirs else { continue };
            // Both have the same bounds, so it cannot fail.
            let _ = mine.get_or_insert_with(empty).add(theirs);
        }
    }

    /// The kinds that there were.
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

/// One kind's latencies, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// The kind.
    pub name: &'static str,
    /// Calls.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// That half of them did not exceed; and so on.
    pub p50: u64,
    pub p95: u64,
    pub p99: u64,
    pub p999: u64,
    pub p9999: u64,
    /// The longest.
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
