//! A latency histogram. A bucket is at most 1/64 of its value wide; percentiles are upper ends of
//! buckets.

const PER_DOUBLING: u64 = 64;
const BITS: u32 = PER_DOUBLING.ilog2();

#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Histogram {
    pub fn new() -> Histogram {
        Histogram { counts: vec![0; ((64 - BITS as usize) + 1) * PER_DOUBLING as usize], total: 0, max: 0 }
    }

    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.max = self.max.max(ns);
    }

    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns 0 without recordings.
    pub fn quantile(&self, fraction: f64) -> u64 {
        let wanted = ((self.total as f64 * fraction).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_end(index).min(self.max);
            }
        }
        self.max
    }
}

#[inline]
fn bucket(ns: u64) -> usize {
    if ns < PER_DOUBLING {
        return ns as usize;
    }
    let shift = ns.ilog2() - BITS;
    (u64::from(shift) * PER_DOUBLING + (ns >> shift)) as usize
}

fn upper_end(index: usize) -> u64 {
    let index = index as u64;
    if index < 2 * PER_DOUBLING {
        return index;
    }
    let shift = index / PER_DOUBLING - 1;
    let top = index - shift * PER_DOUBLING;
    (((top as u128 + 1) << shift) - 1).min(u128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_of_value_ends_within_one_64th() {
        for ns in (0..5000).chain([1 << 20, (1 << 20) + 12_345, u64::MAX / 3, u64::MAX]) {
            let end = upper_end(bucket(ns));
            assert!(end >= ns && end - ns <= ns / 64, "{ns}: {end}");
        }
    }

    #[test]
    fn quantile_of_merged_histograms_is_exact_to_one_bucket() {
        let mut histogram = Histogram::new();
        (1..=1000).for_each(|ns| histogram.record(ns));
        let mut other = Histogram::new();
        other.record(1_000_000);
        histogram.merge(&other);
        assert!((500..=508).contains(&histogram.quantile(0.5)), "{}", histogram.quantile(0.5));
        assert!((990..=1008).contains(&histogram.quantile(0.99)));
        assert_eq!((histogram.max(), histogram.total()), (1_000_000, 1001));
        assert_eq!(histogram.quantile(1.0), 1_000_000);
    }
}
