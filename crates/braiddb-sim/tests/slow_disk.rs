//! On a disk of 10 MB/s with 20 ms per sync, no commit waits for runs to be written.
//!
//! The disk accepts 300 MB of unsynced bytes: a longer wait than the log write needs is the
//! engine's. Time and threads are real.

mod common;

use braiddb::{
    Db, Durability,
    options::Tuning,
    platform::{Runtime, Vfs},
};
use braiddb_sim::{DiskSpeed, Random, SimDisk, SimRuntime};
use common::{PATH, value};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Maximum milliseconds of a buffered commit.
const BUFFERED_MS_MAX: u64 = 100;

/// Maximum milliseconds of a durable commit: its own sync, the one before, and the log's share of
/// the device. A table's sync takes longer: 4 MB need 400 ms.
const DURABLE_MS_MAX: u64 = 300;

/// Rate of the writer: log, flushes and merges together stay below the disk's speed.
const BYTES_PER_SECOND: u64 = 1_500_000;

const VALUE_LEN: usize = 1000;

#[derive(Debug, Default)]
struct Latencies {
    nanos: Vec<u64>,
}

impl Latencies {
    fn measure<R>(&mut self, runtime: &dyn Runtime, body: impl FnOnce() -> R) -> R {
        let before = runtime.monotonic_ns();
        let result = body();
        self.nanos.push(runtime.monotonic_ns() - before);
        result
    }

    fn at(&self, per_mille: usize) -> f64 {
        let mut sorted = self.nanos.clone();
        sorted.sort_unstable();
        let index = (sorted.len() * per_mille / 1000).min(sorted.len().saturating_sub(1));
        sorted.get(index).map_or(0.0, |nanos| *nanos as f64 / 1e6)
    }

    fn print(&self, what: &str) {
        println!(
            "{what}: {} commits, median {:.3} ms, 99 % {:.3} ms, 99.9 % {:.3} ms, longest {:.3} ms",
            self.nanos.len(),
            self.at(500),
            self.at(990),
            self.at(999),
            self.at(1000)
        );
    }
}

#[test]
fn commits_on_slow_disk_do_not_wait_for_runs() {
    let seed = common::seed();
    let seconds = if cfg!(debug_assertions) { 4 } else { 10 };
    let runtime = SimRuntime::in_real_time(seed);
    let disk = SimDisk::without_journal(seed);
    disk.create_dir_all(Path::new("/data")).expect("a directory");
    let vfs: Arc<dyn Vfs> = disk.clone();
    let builder =
        Db::builder().create_parents(true).vfs(vfs).runtime(runtime.clone()).background_threads(2).memory(64 << 20);
    let db = builder.tuning(Tuning::new().memtable_bytes(1 << 20).log_segment_bytes(1 << 20)).open(PATH).expect("open");
    let (bulk, small) = (db.tree("bulk").expect("tree"), db.tree("small").expect("tree"));
    let speed = DiskSpeed { bytes_per_second: 10_000_000, sync_us: 20_000, unsynced_bytes_max: 300_000_000 };
    disk.set_speed(Some(speed), runtime.clone());

    let done = AtomicBool::new(false);
    let (mut buffered, mut durable) = (Latencies::default(), Latencies::default());
    let started = runtime.monotonic_ns();
    let written = std::thread::scope(|scope| {
        let syncing = scope.spawn(|| {
            let mut number = 0_u64;
            while !done.load(Ordering::Relaxed) {
                let mut batch = db.batch();
                batch.put(&small, number.to_be_bytes(), b"durable");
                durable.measure(&*runtime, || batch.commit_with(Durability::Sync).expect("a durable commit"));
                number += 1;
                runtime.sleep_us(5_000);
            }
        });
        let mut random = Random::new(seed);
        let mut written = 0;
        while runtime.monotonic_ns() - started < seconds * 1_000_000_000 {
            let mut batch = db.batch();
            batch.put(&bulk, random.next_u64().to_be_bytes(), value(VALUE_LEN, random.next_u64()));
            buffered.measure(&*runtime, || batch.commit_with(Durability::Buffered).expect("a buffered commit"));
            written += VALUE_LEN as u64;
            let due_ns = written * 1_000_000_000 / BYTES_PER_SECOND;
            let now_ns = runtime.monotonic_ns() - started;
            if due_ns > now_ns + 2_000_000 {
                runtime.sleep_us((due_ns - now_ns) / 1000);
            }
        }
        done.store(true, Ordering::Relaxed);
        syncing.join().expect("the durable writer");
        written
    });
    let stats = db.stats();
    println!(
        "{written} bytes written, {} flushes, {} merges, longest stall {} us",
        stats.flushes, stats.merges, stats.stall_us_max
    );
    buffered.print("buffered");
    durable.print("durable");
    disk.set_speed(None, runtime.clone());
    assert!(stats.flushes >= 2, "too few flushes during the test");
    assert!(buffered.at(1000) <= BUFFERED_MS_MAX as f64, "a buffered commit took {} ms", buffered.at(1000));
    assert!(durable.at(1000) <= DURABLE_MS_MAX as f64, "a durable commit took {} ms", durable.at(1000));
    assert_eq!(bulk.iter().count() as u64, written / VALUE_LEN as u64);
}
