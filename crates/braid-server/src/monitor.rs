//! Reads the statistics of the database for all clients, and keeps their recent history.
//!
//! A reading walks all partitions and lists the database's directory: 0.1 ms for a small database,
//! tens of milliseconds for 10,000 files. So clients share one that is up to [`AGE_MAX`] old, and
//! the history's pace falls when readings are slow.

use crate::{
    load::{Kind, Load},
    place::in_pool,
    problem::Problem,
    service::Service,
};
use braiddb::stats::{PartitionStats, Stats};
use serde::Serialize;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex as SyncMutex, PoisonError, Weak},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::{sync::Mutex, time::sleep};

/// Maximum age of a reading that is returned again.
const AGE_MAX: Duration = Duration::from_millis(500);
/// Pause between samples.
const PERIOD: Duration = Duration::from_secs(2);
/// Samples kept: ten minutes.
const SAMPLES_MAX: usize = 300;
/// Part of the time that readings for the history may take.
const SHARE: u32 = 100;

/// The statistics at one time.
#[derive(Debug)]
pub struct Reading {
    pub at: Instant,
    pub time_us: u64,
    pub took: Duration,
    pub stats: Stats,
    pub sums: Sums,
}

/// Sums over all partitions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    pub partitions: u64,
    pub runs: u64,
    pub unindexed_runs: u64,
    /// Bytes of run files.
    pub run_bytes: u64,
    /// Bytes of keys and values in runs, before compression, garbage included.
    pub raw_bytes: u64,
    pub entries: u64,
    pub view_bytes: u64,
    /// Garbage entries that views know of. There may be more.
    pub garbage: u64,
}

impl Sums {
    fn of(partitions: &[PartitionStats]) -> Sums {
        let mut sums = Sums { partitions: partitions.len() as u64, ..Sums::default() };
        for partition in partitions {
            sums.runs += partition.runs.len() as u64;
            sums.unindexed_runs += partition.loose.len() as u64;
            sums.view_bytes += partition.view_bytes;
            sums.garbage += partition.view_stale;
            for run in partition.runs.iter().chain(&partition.loose) {
                sums.run_bytes += run.bytes;
                sums.raw_bytes += run.raw_bytes;
                sums.entries += run.entries;
            }
        }
        sums
    }
}

/// A name and its value in a reading.
type Column = (&'static str, fn(&Reading, &Load) -> u64);

/// The columns of a sample; the time is the first.
pub const COLUMNS: [Column; 26] = [
    ("time_us", |reading, _| reading.time_us),
    ("last_sequence", |reading, _| reading.stats.last_sequence),
    ("commits", |reading, _| reading.stats.commits),
    ("reads", |_, load| load.count(&[Kind::Get, Kind::Scan])),
    ("writes", |_, load| load.count(&[Kind::Put, Kind::Delete, Kind::Batch])),
    ("user_bytes", |reading, _| reading.stats.user_bytes_written),
    ("log_bytes", |reading, _| reading.stats.log_bytes_written),
    ("run_bytes", |reading, _| reading.stats.run_bytes_written),
    ("view_bytes", |reading, _| reading.stats.view_bytes_written),
    ("blob_bytes", |reading, _| reading.stats.blob_bytes_written),
    ("manifest_bytes", |reading, _| reading.stats.manifest_bytes_written),
    ("syncs", |reading, _| reading.stats.syncs),
    ("flushes", |reading, _| reading.stats.flushes),
    ("merges", |reading, _| reading.stats.merges + reading.stats.loose_merges + reading.stats.folds),
    ("cache_hits", |reading, _| reading.stats.cache_hits),
    ("cache_misses", |reading, _| reading.stats.cache_misses),
    ("throttled_us", |reading, _| reading.stats.slowed_us),
    ("stalls", |reading, _| reading.stats.stalls),
    ("conflicts", |reading, _| reading.stats.transaction_conflicts),
    ("pressure_per_mille", |reading, _| reading.stats.pressure_per_mille),
    ("disk_bytes", |reading, _| reading.stats.disk_bytes),
    ("memtable_bytes", |reading, _| reading.stats.memtable_bytes),
    ("cache_bytes", |reading, _| reading.stats.cache_bytes),
    ("memory_bytes", |reading, _| reading.stats.memory_bytes),
    ("oldest_reader_us", |reading, _| reading.stats.oldest_snapshot_age_us.unwrap_or(0)),
    ("unindexed_runs", |reading, _| reading.sums.unindexed_runs),
];

/// The values of [`COLUMNS`] at one time.
pub type Sample = [u64; COLUMNS.len()];

/// The latest reading and the history.
#[derive(Debug)]
pub struct Monitor {
    pub began: Instant,
    /// Held during a reading, so clients wait for it instead of making their own.
    latest: Mutex<Option<Arc<Reading>>>,
    readings: SyncMutex<u64>,
    history: SyncMutex<VecDeque<Sample>>,
    last_failure: SyncMutex<Option<Failure>>,
}

/// A request that the server could not answer because of a failure of its own.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    time_us: u64,
    status: u16,
    title: &'static str,
    detail: String,
}

impl Default for Monitor {
    fn default() -> Monitor {
        Monitor {
            began: Instant::now(),
            latest: Mutex::default(),
            readings: SyncMutex::default(),
            history: SyncMutex::default(),
            last_failure: SyncMutex::default(),
        }
    }
}

impl Monitor {
    /// Returns a reading that is at most [`AGE_MAX`] old.
    pub async fn read(&self, service: &Service) -> Result<Arc<Reading>, Problem> {
        let mut latest = self.latest.lock().await;
        if let Some(reading) = latest.as_ref().filter(|reading| reading.at.elapsed() < AGE_MAX) {
            return Ok(Arc::clone(reading));
        }
        let db = service.db();
        let reading = in_pool(move || {
            let at = Instant::now();
            let stats = db.stats();
            let sums = Sums::of(&stats.partitions);
            Reading { at, time_us: now_us(), took: at.elapsed(), stats, sums }
        });
        let reading = Arc::new(reading.await?);
        *self.readings.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        *latest = Some(Arc::clone(&reading));
        Ok(reading)
    }

    /// Returns the number of readings so far.
    pub fn readings(&self) -> u64 {
        *self.readings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a problem, if it is a failure.
    pub fn note(&self, problem: &Problem) {
        if let Some((status, title, detail)) = problem.failure() {
            let failure = Failure { time_us: now_us(), status: status.as_u16(), title, detail: detail.to_owned() };
            *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
        }
    }

    pub fn last_failure(&self) -> Option<Failure> {
        self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the samples after a time.
    pub fn samples(&self, since_us: u64) -> Vec<Sample> {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.iter().filter(|sample| sample[0] > since_us).copied().collect()
    }

    fn add(&self, sample: Sample) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if history.len() == SAMPLES_MAX {
            history.pop_front();
        }
        history.push_back(sample);
    }
}

/// Takes samples until the service is dropped.
pub async fn sample(service: Weak<Service>) {
    loop {
        let pause = match service.upgrade() {
            None => return,
            Some(service) => match service.monitor().read(&service).await {
                Ok(reading) => {
                    service.monitor().add(COLUMNS.map(|(_, value)| value(&reading, service.load())));
                    PERIOD.max(reading.took * SHARE)
                }
                Err(_) => PERIOD,
            },
        };
        sleep(pause).await;
    }
}

pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
