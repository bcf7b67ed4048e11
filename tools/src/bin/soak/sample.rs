//! Samples each second: operations, latencies, costs.

use super::{
    Failure,
    histogram::{Histogram, Summary},
    process,
    worker::{Pace, RECORD_LEN, Shared, Tally, Worker},
};
use braiddb::{Db, Tree};
use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Sample {
    pub second: u64,
    pub seconds: f64,
    pub operations: u64,
    /// Latency of writes from the due time.
    pub writes: Summary,
    /// Latency of writes from the call.
    pub writes_called: Summary,
    pub reads: Summary,
    pub memory_bytes: u64,
    pub memory_counted_bytes: u64,
    /// All files, and the log's among them.
    pub space_bytes: u64,
    pub log_bytes: u64,
    pub live_bytes: u64,
    /// Keys and values written in this second, and bytes written to storage.
    pub user_bytes: u64,
    pub written_bytes: u64,
    /// Backpressure, from 0 to 1000.
    pub pressure_per_mille: u64,
    /// Stalls of writers since the open, and microseconds that they were throttled.
    pub stalls: u64,
    pub slowed_us: u64,
}

impl Sample {
    pub fn space_amplification(&self) -> f64 {
        self.space_bytes as f64 / self.live_bytes.max(1) as f64
    }

    pub fn one_line(&self) -> String {
        format!(
            "{:.0} ops/s, writes p50 {:.0} us, p99.9 {:.0} us, max {:.1} ms, {} MiB, space {:.2}",
            self.operations as f64 / self.seconds,
            self.writes.p50_us,
            self.writes.p999_us,
            self.writes.max_us / 1e3,
            self.memory_bytes >> 20,
            self.space_amplification()
        )
    }
}

pub struct Sampler {
    db: Db,
    dir: PathBuf,
    shared: Arc<Shared>,
    own_kib: u64,
    samples: Vec<Sample>,
    /// All latencies since the last [`Sampler::take_samples`], and those of the last second.
    totals: Tally,
    second: Tally,
    written_before: u64,
}

impl Sampler {
    pub fn new(db: &Db, dir: PathBuf, shared: &Arc<Shared>, own_kib: u64) -> Sampler {
        let written_before = process::written_bytes();
        Sampler {
            db: db.clone(),
            dir,
            shared: Arc::clone(shared),
            own_kib,
            samples: Vec::new(),
            totals: Tally::default(),
            second: Tally::default(),
            written_before,
        }
    }

    pub fn run(
        &mut self,
        workers: Vec<Worker>,
        tree: &Tree,
        pace: Pace,
        time: Option<Duration>,
        mut show: impl FnMut(&Sample),
    ) -> Result<Vec<Worker>, Failure> {
        self.shared.stop.store(false, Ordering::Relaxed);
        let count = workers.len();
        let start = Instant::now();
        let threads: Vec<_> = workers
            .into_iter()
            .map(|mut worker| {
                let (tree, shared) = (tree.clone(), Arc::clone(&self.shared));
                thread::spawn(move || worker.run(&tree, pace, &shared).map(|()| worker))
            })
            .collect();
        let mut last = start;
        while time.is_none_or(|time| start.elapsed() < time) && !threads.iter().any(|thread| thread.is_finished()) {
            thread::sleep((last + INTERVAL).saturating_duration_since(Instant::now()));
            let now = Instant::now();
            let sample = self.take(count, now - last);
            show(&sample);
            self.samples.push(sample);
            last = now;
        }
        if time.is_some() {
            self.shared.stop.store(true, Ordering::Relaxed);
        }
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).collect()
    }

    pub fn take_samples(&mut self) -> (Vec<Sample>, Tally) {
        (std::mem::take(&mut self.samples), std::mem::take(&mut self.totals))
    }

    fn take(&mut self, threads: usize, length: Duration) -> Sample {
        self.second.clear();
        for id in 0..threads {
            let mut tally = self.shared.tally(id);
            self.second.merge(&tally);
            tally.clear();
        }
        self.totals.merge(&self.second);
        let [writes, writes_called, reads] =
            [&self.second.writes, &self.second.writes_called, &self.second.reads].map(Histogram::summary);
        let stats = self.db.stats();
        let (space_bytes, log_bytes) = process::space_bytes(&self.dir);
        let written = process::written_bytes();
        Sample {
            second: self.samples.len() as u64,
            seconds: length.as_secs_f64(),
            operations: writes.count + reads.count,
            writes,
            writes_called,
            reads,
            memory_bytes: process::memory_kib().saturating_sub(self.own_kib) << 10,
            memory_counted_bytes: stats.memory_bytes,
            space_bytes,
            log_bytes,
            live_bytes: self.shared.live.load(Ordering::Relaxed) * RECORD_LEN,
            user_bytes: self.second.user_bytes,
            written_bytes: written - std::mem::replace(&mut self.written_before, written),
            pressure_per_mille: stats.pressure_per_mille,
            stalls: stats.stalls,
            slowed_us: stats.slowed_us,
        }
    }
}
