//! A latency histogram whose buckets are at most 1/32 of their value wide.

/// Buckets for each doubling.
const PER_DOUBLING: u64 = 32;
const BITS: u32 = PER_DOUBLING.ilog2();

#[derive(Clone, Copy, Debug)]
pub struct Summary {
    pub count: u64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; (65 - BITS as usize) * PER_DOUBLING as usize], total: 0, max: 0 }
    }
}

impl Histogram {
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

    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.total, self.max) = (0, 0);
    }

    pub fn summary(&self) -> Summary {
        Summary {
            count: self.total,
            p50_us: self.quantile_us(0.5),
            p99_us: self.quantile_us(0.99),
            p999_us: self.quantile_us(0.999),
            max_us: self.max_us(),
        }
    }

    pub fn max_us(&self) -> f64 {
        self.max as f64 / 1e3
    }

    /// The latency that this share of all does not exceed, in microseconds.
    pub fn quantile_us(&self, share: f64) -> f64 {
        let wanted = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_end(index).min(self.max) as f64 / 1e3;
            }
        }
        self.max_us()
    }
}

fn bucket(ns: u64) -> usize {
    if ns < PER_DOUBLING {
        return ns as usize;
    }
    let shift = ns.ilog2() - BITS;
    (u64::from(shift + 1) * PER_DOUBLING + (ns >> shift) - PER_DOUBLING) as usize
}

fn upper_end(index: usize) -> u64 {
    let index = index as u64;
    if index < PER_DOUBLING {
        return index;
    }
    let shift = index / PER_DOUBLING - 1;
    let next = u128::from(PER_DOUBLING + index % PER_DOUBLING + 1) << shift;
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}
