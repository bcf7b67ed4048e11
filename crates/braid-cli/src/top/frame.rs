//! Two readings and the rates between them.

use super::reading::{Counters, Reading, Requests};

#[derive(Debug)]
pub struct Frame {
    pub title: String,
    pub now: Reading,
    pub seconds: f64,
    pub commits_per_second: f64,
    /// Absent if the counters are not known, or began again.
    pub change: Option<Counters>,
    pub latencies: Vec<Latency>,
}

/// Requests of one kind between the readings.
#[derive(Debug, PartialEq)]
pub struct Latency {
    pub kind: String,
    pub per_second: f64,
    /// Upper bounds of the buckets that have the percentiles. `None` without requests.
    pub p50_us: Option<u64>,
    pub p99_us: Option<u64>,
}

impl Frame {
    pub fn new(title: &str, before: &Reading, now: Reading) -> Frame {
        let seconds = (now.time_us.saturating_sub(before.time_us) as f64 / 1e6).max(1e-3);
        let commits = now.sizes.last_commit.saturating_sub(before.sizes.last_commit);
        let change = match (&before.inside, &now.inside) {
            (Some(before), Some(now)) => now.counters.since(&before.counters),
            _ => None,
        };
        let latencies = match (&before.inside, &now.inside) {
            (Some(before), Some(now)) => {
                let latency = |requests: &Requests| {
                    let earlier = before.requests.iter().find(|earlier| earlier.kind == requests.kind)?;
                    Latency::between(earlier, requests, &now.bounds_us, seconds)
                };
                now.requests.iter().filter_map(latency).collect()
            }
            _ => Vec::new(),
        };
        let commits_per_second = commits as f64 / seconds;
        Frame { title: title.to_owned(), now, seconds, commits_per_second, change, latencies }
    }

    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.seconds
    }
}

impl Counters {
    /// Returns the difference; `None` if a counter fell, since the process began again.
    fn since(&self, before: &Counters) -> Option<Counters> {
        Some(Counters {
            commits: self.commits.checked_sub(before.commits)?,
            user_bytes_written: self.user_bytes_written.checked_sub(before.user_bytes_written)?,
            log_bytes_written: self.log_bytes_written.checked_sub(before.log_bytes_written)?,
            file_bytes_written: self.file_bytes_written.checked_sub(before.file_bytes_written)?,
            syncs: self.syncs.checked_sub(before.syncs)?,
            flushes: self.flushes.checked_sub(before.flushes)?,
            merges: self.merges.checked_sub(before.merges)?,
            folds: self.folds.checked_sub(before.folds)?,
            stalls: self.stalls.checked_sub(before.stalls)?,
            slowed_us: self.slowed_us.checked_sub(before.slowed_us)?,
            conflicts: self.conflicts.checked_sub(before.conflicts)?,
            background_errors: self.background_errors.checked_sub(before.background_errors)?,
            cache_hits: self.cache_hits.checked_sub(before.cache_hits)?,
            cache_misses: self.cache_misses.checked_sub(before.cache_misses)?,
        })
    }
}

impl Latency {
    fn between(before: &Requests, now: &Requests, bounds_us: &[u64], seconds: f64) -> Option<Latency> {
        let count = now.count.checked_sub(before.count)?;
        let earlier = before.buckets.iter().copied().chain(std::iter::repeat(0));
        let buckets: Vec<u64> =
            now.buckets.iter().zip(earlier).map(|(now, before)| now.saturating_sub(before)).collect();
        let percentile = |per_cent| percentile(&buckets, bounds_us, per_cent);
        Some(Latency {
            kind: now.kind.clone(),
            per_second: count as f64 / seconds,
            p50_us: percentile(50),
            p99_us: percentile(99),
        })
    }
}

fn percentile(buckets: &[u64], bounds_us: &[u64], per_cent: u64) -> Option<u64> {
    let count: u64 = buckets.iter().sum();
    let rank = (count * per_cent).div_ceil(100).max(1);
    let mut passed = 0;
    let place = buckets.iter().position(|bucket| {
        passed += bucket;
        passed >= rank
    })?;
    bounds_us.get(place).copied()
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn percentile_is_the_bound_of_its_bucket() {
        let bounds = [10, 20, 40, 80];
        assert_eq!(percentile(&[0, 0, 0, 0], &bounds, 50), None);
        assert_eq!(percentile(&[0, 1, 0, 0], &bounds, 50), Some(20));
        assert_eq!(percentile(&[50, 49, 1, 0], &bounds, 50), Some(10));
        assert_eq!(percentile(&[49, 50, 1, 0], &bounds, 50), Some(20));
        assert_eq!(percentile(&[98, 0, 0, 2], &bounds, 99), Some(80));
        assert_eq!(percentile(&[99, 0, 0, 1], &bounds, 99), Some(10));
    }
}
