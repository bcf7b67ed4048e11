//! Measures of a workload.

use crate::{data::Checksum, histogram::Histogram, meter};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// One read of this many is timed: two clock readings cost much beside the fastest reads.
pub const READS_PER_SAMPLE: u64 = 8;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measure {
    pub name: String,
    /// `rate` in operations per second, latencies in microseconds.
    pub figures: BTreeMap<String, f64>,
    pub count: u64,
    pub checksum: String,
    pub correct: bool,
}

impl Measure {
    pub fn with(mut self, name: &str, value: f64) -> Measure {
        self.figures.insert(name.to_owned(), value);
        self
    }

    pub fn checked(mut self, seen: Checksum, expected: Checksum) -> Measure {
        self.count = seen.count;
        self.checksum = format!("{:016x}", seen.sum);
        self.correct = seen == expected;
        self
    }
}

#[derive(Debug)]
pub struct Phase {
    started: Instant,
    last: Instant,
    cpu: Duration,
    limit: Duration,
    histogram: Histogram,
}

impl Phase {
    pub fn begin(limit: Duration) -> Phase {
        let cpu = meter::cpu_time();
        let started = Instant::now();
        Phase { started, last: started, cpu, limit, histogram: Histogram::new() }
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    #[inline]
    pub fn is_over(&self, ops: u64) -> bool {
        ops.is_multiple_of(256) && self.started.elapsed() >= self.limit
    }

    #[inline]
    pub fn lap(&mut self) {
        let now = Instant::now();
        self.histogram.record((now - self.last).as_nanos() as u64);
        self.last = now;
    }

    #[inline]
    pub fn sampled<R>(&mut self, number: u64, operation: impl FnOnce() -> R) -> R {
        if !number.is_multiple_of(READS_PER_SAMPLE) {
            return operation();
        }
        let start = Instant::now();
        let result = operation();
        self.histogram.record(start.elapsed().as_nanos() as u64);
        result
    }

    /// Runs `work` with the clocks stopped.
    pub fn pause<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let (cpu, start) = (meter::cpu_time(), Instant::now());
        let result = work();
        self.cpu += meter::cpu_time() - cpu;
        let taken = start.elapsed();
        self.started += taken;
        self.last += taken;
        result
    }

    pub fn merge(&mut self, latencies: &Histogram) {
        self.histogram.merge(latencies);
    }

    pub fn into_latencies(self) -> Histogram {
        self.histogram
    }

    pub fn end(self, name: &str, ops: u64) -> Measure {
        let seconds = self.started.elapsed().as_secs_f64();
        let cpu = meter::cpu_time() - self.cpu;
        let us = |ns: u64| ns as f64 / 1e3;
        let latency = &self.histogram;
        let mut figures = BTreeMap::from([
            ("ops", ops as f64),
            ("seconds", seconds),
            ("rate", ops as f64 / seconds),
            ("cpu_us", cpu.as_secs_f64() * 1e6 / ops.max(1) as f64),
        ]);
        if latency.total() > 0 {
            figures.extend([
                ("p50_us", us(latency.quantile(0.5))),
                ("p99_us", us(latency.quantile(0.99))),
                ("p999_us", us(latency.quantile(0.999))),
                ("max_us", us(latency.max())),
            ]);
        }
        Measure {
            name: name.to_owned(),
            figures: figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            count: 0,
            checksum: String::new(),
            correct: true,
        }
    }
}
