//! Throttled flushes and merges.

use crate::{
    base::Result,
    codec::Compression,
    db::{
        Db, Durability, Settings,
        handles::tests::cursor::Random,
        maintenance::io_throttle,
        tests_common::{bounded, mem, small},
    },
    platform::{MemVfs, RateLimiter, Runtime, SystemRuntime, Vfs},
};
use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

const RATE: u64 = 1 << 20;

/// A clock that only advances by waits.
#[derive(Debug, Default)]
struct Clock(AtomicU64);

impl Runtime for Clock {
    fn unix_time_us(&self) -> u64 {
        1_700_000_000_000_000 + self.monotonic_ns() / 1000
    }
    fn monotonic_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    fn random_u64(&self) -> u64 {
        self.0.load(Ordering::Relaxed) | 1
    }
    fn spawn(&self, _name: &str, _body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn sleep_us(&self, micros: u64) {
        self.0.fetch_add(micros * 1000, Ordering::Relaxed);
    }
    fn process_name(&self) -> String {
        "a test".to_owned()
    }
}

fn settings(vfs: &Arc<dyn Vfs>, runtime: Arc<dyn Runtime>, limiter: &Arc<RateLimiter>) -> Settings {
    Settings { rate_limiter: Some(Arc::clone(limiter)), runtime, compression: Compression::None, ..small(vfs) }
}

fn fill(db: &Db, rows: u32) {
    let tree = db.tree("t").unwrap();
    let mut random = Random(3, |n| n.to_be_bytes().to_vec());
    for _ in 0..rows {
        tree.put(random.key(), [random.below(256) as u8; 200]).unwrap();
    }
}

/// All time that passes is spent waiting, so bytes per time must equal the limit.
#[test]
fn flushes_and_merges_write_as_much_as_they_may() {
    let (vfs, clock, limiter) = (mem(), Arc::new(Clock::default()), Arc::new(RateLimiter::new(RATE)));
    let db = Db::open_with(settings(&vfs, Arc::clone(&clock) as _, &limiter), Path::new("/limited")).unwrap();
    let (before, began_ns) = (db.stats(), clock.monotonic_ns());
    fill(&db, 20_000);
    db.flush().unwrap();
    db.compact().unwrap();
    let stats = db.stats();
    let seconds = (clock.monotonic_ns() - began_ns) as f64 / 1e9;
    let bytes =
        stats.run_bytes_written + stats.view_bytes_written - before.run_bytes_written - before.view_bytes_written;
    assert!(bytes > 10 * RATE, "{bytes} are too few");
    let share = bytes as f64 / seconds / RATE as f64;
    assert!((0.9..1.1).contains(&share), "{share} of the limit: {bytes} bytes in {seconds} s");
    let reported = stats.rate_limiter;
    assert_eq!(reported, limiter.stats());
    assert!(reported.flush_bytes > RATE && reported.merge_bytes > RATE, "{reported:?}");
    assert!((reported.flush_bytes + reported.merge_bytes).abs_diff(bytes) < bytes / 20, "{reported:?}, {bytes}");
    assert!(reported.waited_ns.abs_diff(clock.monotonic_ns() - began_ns) < 1_000_000_000);
    assert!(db.verify().unwrap().problems.is_empty());
}

#[test]
fn databases_share_a_limit() {
    let (clock, limiter) = (Arc::new(Clock::default()), Arc::new(RateLimiter::new(RATE)));
    let open = |name: &str| {
        let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
        Db::open_with(settings(&vfs, Arc::clone(&clock) as _, &limiter), Path::new(name)).unwrap()
    };
    let both = [open("/a"), open("/b")];
    let began_ns = clock.monotonic_ns();
    both.iter().for_each(|db| fill(db, 5_000));
    both.iter().for_each(|db| db.flush().unwrap());
    let bytes: u64 = both.iter().map(|db| db.stats().run_bytes_written + db.stats().view_bytes_written).sum();
    let share = bytes as f64 / ((clock.monotonic_ns() - began_ns) as f64 / 1e9) / RATE as f64;
    assert!((0.9..1.1).contains(&share), "{share}");
}

/// Otherwise it would wait for minutes.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test of threads")]
fn closing_does_not_wait_for_the_limit() {
    bounded("closing", || {
        let (vfs, limiter) = (mem(), Arc::new(RateLimiter::new(1)));
        let with = |background_threads| Settings {
            background_threads,
            memtable_bytes: Some(1 << 20),
            durability: Durability::Buffered,
            ..settings(&vfs, Arc::new(SystemRuntime::new()), &limiter)
        };
        let db = Db::open_with(with(2), Path::new("/limited")).unwrap();
        let tree = db.tree("t").unwrap();
        // One memtable, which would take 16 s.
        for row in 0..6_000_u32 {
            tree.put(row.to_be_bytes(), [row as u8; 200]).unwrap();
        }
        let waits = || limiter.stats().waited_ns > 0 || limiter.stats().flush_bytes > 0;
        let began = Instant::now();
        while !waits() && began.elapsed() < Duration::from_secs(10) {
            thread::yield_now();
        }
        assert!(waits());
        let began = Instant::now();
        db.close().unwrap();
        assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
        let db = Db::open_with(Settings { rate_limiter: None, ..with(0) }, Path::new("/limited")).unwrap();
        assert_eq!(db.tree("t").unwrap().iter().collect::<Result<Vec<_>>>().unwrap().len(), 6_000);
        assert!(db.verify().unwrap().problems.is_empty());
    });
}

/// A runtime with a given number of processors that records the sleep of merge threads and of
/// unnamed threads.
#[derive(Debug)]
struct Processors {
    system: SystemRuntime,
    count: Option<usize>,
    mergers_slept_us: AtomicU64,
    nameless_slept_us: AtomicU64,
}

impl Processors {
    fn new(count: Option<usize>) -> Arc<Processors> {
        let slept = || AtomicU64::new(0);
        let system = SystemRuntime::new();
        Arc::new(Processors { system, count, mergers_slept_us: slept(), nameless_slept_us: slept() })
    }
}

impl Runtime for Processors {
    fn unix_time_us(&self) -> u64 {
        self.system.unix_time_us()
    }
    fn monotonic_ns(&self) -> u64 {
        self.system.monotonic_ns()
    }
    fn random_u64(&self) -> u64 {
        self.system.random_u64()
    }
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        self.system.spawn(name, body)
    }
    fn shared_processors(&self) -> Option<usize> {
        self.count
    }
    fn sleep_us(&self, micros: u64) {
        match thread::current().name() {
            Some(name) if name.starts_with("braiddb-merge") => {
                self.mergers_slept_us.fetch_add(micros, Ordering::Relaxed)
            }
            None => self.nameless_slept_us.fetch_add(micros, Ordering::Relaxed),
            Some(_) => 0,
        };
        self.system.sleep_us(micros);
    }
    fn process_name(&self) -> String {
        self.system.process_name()
    }
}

/// Merges pause only on few processors, and not while a caller waits for them.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test of threads")]
fn merges_pause_where_processors_are_few() {
    for (count, has_few) in [(Some(3), true), (Some(4), false), (None, false)] {
        bounded("merging", move || {
            let runtime = Processors::new(count);
            let (memtable_bytes, partition_bytes) = (Some(64 << 10), Some(8 << 20));
            let threaded = Settings { background_threads: 2, runtime: Arc::clone(&runtime) as _, ..small(&mem()) };
            let with = Settings { memtable_bytes, partition_bytes, compression: Compression::None, ..threaded };
            let db = Db::open_with(with, Path::new("/paced")).unwrap();
            let began = Instant::now();
            while runtime.mergers_slept_us.load(Ordering::Relaxed) == 0 && began.elapsed() < Duration::from_secs(1) {
                fill(&db, 500);
            }
            assert_eq!(runtime.mergers_slept_us.load(Ordering::Relaxed) > 0, has_few, "{count:?} processors");
            // Commit continuously, so that the database is not idle.
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                let writer = thread::Builder::new().name("writer".to_owned());
                let commit_all_the_while = || {
                    let tree = db.tree("other").unwrap();
                    while !stop.load(Ordering::Relaxed) {
                        tree.put(b"key", b"value").unwrap();
                        thread::yield_now();
                    }
                };
                writer.spawn_scoped(scope, commit_all_the_while).unwrap();
                // All due work is done by then, except the full merge.
                while db.stats().partitions.iter().any(|partition| partition.loose.len() > 4) {
                    thread::yield_now();
                }
                let before = runtime.nameless_slept_us.load(Ordering::Relaxed);
                db.compact().unwrap();
                let slept_us = runtime.nameless_slept_us.load(Ordering::Relaxed) - before;
                stop.store(true, Ordering::Relaxed);
                assert_eq!(slept_us, 0, "who asks for a merge waits for all of it");
            });
            db.close().unwrap();
        });
    }
}

/// Merges pause only under load, and not beside a byte limit.
#[test]
fn merges_take_all_of_the_time_when_nothing_is_committed() {
    bounded("being idle", || {
        let with = || Settings { background_threads: 2, runtime: Processors::new(Some(2)), ..small(&mem()) };
        let db = Db::open_with(with(), Path::new("/paced")).unwrap();
        let is_leisurely = || !io_throttle::may_begin_merge(db.engine(), 1);
        while !is_leisurely() {
            fill(&db, 20);
        }
        while is_leisurely() {
            thread::yield_now();
        }
        assert!(db.engine().maintenance.work.lock().idle);
        while !is_leisurely() {
            fill(&db, 20);
        }
        io_throttle::release(db.engine());
        assert!(!is_leisurely(), "it is to be closed");
        db.close().unwrap();

        let limiter = Arc::new(RateLimiter::new(1 << 30));
        let db = Db::open_with(Settings { rate_limiter: Some(limiter), ..with() }, Path::new("/limited")).unwrap();
        db.engine().storage.set_pace(1);
        assert!(io_throttle::may_begin_merge(db.engine(), 1));
    });
}
