//! Counts the requests of each kind, with a histogram of their latencies.

use crate::route::Route;
use serde::Serialize;
use std::{
    array,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Buckets of a histogram: two for each power of two, from two microseconds to 34 seconds.
const BUCKETS: usize = 48;

/// The kinds of requests that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Get,
    Scan,
    Put,
    Delete,
    Batch,
}

impl Kind {
    const ALL: [(Kind, &'static str); 5] = [
        (Kind::Get, "get"),
        (Kind::Scan, "scan"),
        (Kind::Put, "put"),
        (Kind::Delete, "delete"),
        (Kind::Batch, "batch"),
    ];

    /// Returns `None` for requests about the server and its trees.
    pub fn of(route: Option<Route<'_>>, method: &str) -> Option<Kind> {
        match (route?, method) {
            (Route::Record(..), "GET" | "HEAD") => Some(Kind::Get),
            (Route::Record(..), "PUT") => Some(Kind::Put),
            (Route::Record(..), "DELETE") => Some(Kind::Delete),
            (Route::Scan(_), "GET" | "HEAD") => Some(Kind::Scan),
            (Route::Batch, "POST") => Some(Kind::Batch),
            _ => None,
        }
    }
}

/// Requests since the start. The counters are independent of each other.
#[derive(Debug)]
pub struct Load {
    kinds: [[AtomicU64; BUCKETS]; Kind::ALL.len()],
}

impl Default for Load {
    fn default() -> Load {
        let kinds = array::from_fn(|_| array::from_fn(|_| AtomicU64::new(0)));
        Load { kinds }
    }
}

/// The requests of a kind, for `GET /stats`.
#[derive(Debug, Serialize)]
pub struct Counted {
    kind: &'static str,
    count: u64,
    /// Requests below each bound of [`bounds_us`], and not below the one before.
    buckets: Vec<u64>,
}

impl Load {
    /// Counts a request by the time until the head of its response.
    pub fn note(&self, kind: Kind, took: Duration) {
        self.kinds[kind as usize][bucket_of(took)].fetch_add(1, Ordering::Relaxed);
    }

    pub fn counted(&self) -> Vec<Counted> {
        let of = |(kind, name): (Kind, &'static str)| {
            let buckets: Vec<u64> =
                self.kinds[kind as usize].iter().map(|count| count.load(Ordering::Relaxed)).collect();
            Counted { kind: name, count: buckets.iter().sum(), buckets }
        };
        Kind::ALL.into_iter().map(of).collect()
    }

    /// Returns the requests of these kinds.
    pub fn count(&self, kinds: &[Kind]) -> u64 {
        let counts = kinds.iter().flat_map(|kind| &self.kinds[*kind as usize]);
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// Returns the upper bound of each bucket, in microseconds. The last one has no upper bound.
pub fn bounds_us() -> [u64; BUCKETS] {
    array::from_fn(|bucket| (3 + (bucket as u64 & 1)) << (bucket / 2))
}

fn bucket_of(took: Duration) -> usize {
    let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(2);
    let power = us.ilog2() as usize;
    let upper_half = (us >> (power - 1) & 1) as usize;
    (2 * (power - 1) + upper_half).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_counted_below_the_first_bound_above_it() {
        let bounds = bounds_us();
        for us in (0..5000).chain([10_000, 99_999, 1 << 20, (1 << 24) + 1]) {
            let expected = bounds.iter().position(|bound| us < *bound).unwrap();
            assert_eq!(bucket_of(Duration::from_micros(us)), expected, "{us}");
        }
        assert_eq!(bucket_of(Duration::MAX), BUCKETS - 1);
        assert_eq!(bounds[BUCKETS - 1], 1 << 25);
    }

    #[test]
    fn requests_are_counted_by_kind() {
        let load = Load::default();
        for (path, method, kind) in [
            ("/trees/t/k", "HEAD", Some(Kind::Get)),
            ("/trees/t/k", "PUT", Some(Kind::Put)),
            ("/trees/t/", "GET", Some(Kind::Scan)),
            ("/trees/t", "PUT", None),
            ("/stats", "GET", None),
        ] {
            assert_eq!(Kind::of(Route::of(path), method), kind, "{method} {path}");
            kind.into_iter().for_each(|kind| load.note(kind, Duration::from_micros(5)));
        }
        assert_eq!(load.count(&[Kind::Get, Kind::Scan]), 2);
        let counted = load.counted();
        assert_eq!(counted.iter().map(|counted| counted.count).collect::<Vec<_>>(), [1, 1, 1, 0, 0]);
        assert_eq!(counted[2].kind, "put");
    }
}
