//! Databases with shared resources stay within the budget and do not disturb each other.

#![expect(clippy::disallowed_methods, reason = "tests of threads")]

use crate::{
    base::Error,
    db::{
        Db, Follower, Settings, SharedRuntime,
        tests_common::{bounded, fault, mem, small},
    },
    platform::{
        Vfs,
        fault_vfs::{FaultVfs, Operation},
    },
};
use std::{io, path::Path, sync::Arc, time::Duration};

/// A memtable may have 1 MiB, and all active ones 2 MiB.
const MEMORY: usize = 8 << 20;

const ACTIVE_MAX: u64 = 2 << 20;

fn shared(background_threads: usize) -> SharedRuntime {
    SharedRuntime::builder().memory(MEMORY).background_threads(background_threads).build().unwrap()
}

fn open(shared: &SharedRuntime, vfs: &Arc<dyn Vfs>) -> Db {
    let settings = Settings {
        memtable_bytes: None,
        block_bytes: 4096,
        partition_bytes: None,
        shared: Some(shared.clone()),
        ..small(vfs)
    };
    Db::open_with(settings, Path::new("/db")).unwrap()
}

fn key(i: u32) -> [u8; 4] {
    i.wrapping_mul(2_654_435_761).to_be_bytes()
}

fn put(db: &Db, range: std::ops::Range<u32>) {
    let tree = db.tree("t").unwrap();
    for i in range {
        tree.put(key(i), [7; 100]).unwrap();
    }
}

fn check(db: &Db, count: u32) {
    let tree = db.tree("t").unwrap();
    assert_eq!(tree.iter().inspect(|row| assert!(row.is_ok())).count() as u32, count);
    for i in 0..count {
        assert_eq!(tree.get(key(i)).unwrap().as_deref(), Some(&[7; 100][..]), "{i}");
    }
}

/// None of the databases fills a memtable; the largest must be flushed.
fn write_to_many(background_threads: usize) {
    let shared = shared(background_threads);
    let disks: Vec<Arc<dyn Vfs>> = (0..20).map(|_| mem()).collect();
    let dbs: Vec<Db> = disks.iter().map(|vfs| open(&shared, vfs)).collect();
    let mut most = 0;
    for round in 0..60 {
        for (index, db) in (0..).zip(&dbs) {
            put(db, round * (index + 10)..(round + 1) * (index + 10));
            most = most.max(shared.0.chunk_pool.taken_bytes() as u64);
        }
    }
    // Plus frozen memtables, and the last chunks of active ones.
    let most_waiting = if background_threads > 0 { 2 * ACTIVE_MAX } else { ACTIVE_MAX / 2 };
    assert!(most < ACTIVE_MAX + ACTIVE_MAX / 8 + most_waiting, "memtables took {most} bytes");
    let flushed = dbs.iter().filter(|db| db.stats().flushes > 0).count();
    assert!(flushed >= 10, "only {flushed} were flushed");
    assert!(dbs.iter().all(|db| db.stats().memory_bytes <= MEMORY as u64));
    for (index, db) in (0..).zip(&dbs) {
        check(db, 60 * (index + 10));
    }
    let stats = shared.stats();
    assert_eq!((stats.databases, stats.memory), (20, MEMORY));
    assert!(stats.memory_bytes <= MEMORY as u64, "{stats:?}");
    assert!(stats.cache_hits > 0);
    drop(dbs);
    let stats = shared.stats();
    assert_eq!((stats.databases, stats.memtable_bytes), (0, 0), "{stats:?}");
    assert_eq!(shared.0.chunk_pool.taken_bytes(), 0);
    for (index, vfs) in (0..).zip(&disks) {
        check(&open(&shared, vfs), 60 * (index + 10));
    }
}

#[test]
fn memtables_of_many_databases_stay_within_the_budget() {
    write_to_many(0);
}

#[test]
fn memtables_of_many_databases_stay_within_the_budget_with_threads() {
    bounded("writing to many", || write_to_many(1));
}

#[test]
fn what_one_database_leaves_of_the_cache_another_has() {
    let shared = shared(0);
    let disks = [mem(), mem()];
    let [first, second] = [0, 1].map(|index: usize| open(&shared, &disks[index]));
    for db in [&first, &second] {
        put(db, 0..30_000);
        db.flush().unwrap();
        check(db, 30_000);
        check(db, 30_000);
    }
    let misses_of_second = || {
        let before = shared.stats().cache_misses;
        check(&second, 30_000);
        let after = shared.stats();
        assert!(after.memory_bytes <= MEMORY as u64, "{after:?}");
        after.cache_misses - before
    };
    assert_eq!(misses_of_second(), 0);
    check(&first, 30_000);
    assert!(misses_of_second() > 100);
    drop(first);
    misses_of_second();
    assert_eq!(misses_of_second(), 0);
    assert_eq!(shared.stats().databases, 1);
}

/// A database on a full disk keeps its memtables; the others still write.
#[test]
fn a_database_that_cannot_flush_does_not_hold_the_others_up() {
    for background_threads in [0, 1] {
        let shared = shared(background_threads);
        let disk = FaultVfs::new(Path::new("/db"));
        let (stuck, other) = (open(&shared, &fault(&disk)), open(&shared, &mem()));
        let tree = stuck.tree("t").unwrap();
        disk.fail(Operation::Create, 0, u32::MAX, io::ErrorKind::StorageFull);
        let refused = (0..1_000_000).find_map(|i| tree.put(key(i), [7; 100]).err().map(|e| (i, e)));
        let (count, error) = refused.unwrap();
        assert!(error.is_disk_full(), "{error}");
        let other = bounded("the other", move || {
            put(&other, 0..50_000);
            check(&other, 50_000);
            other
        });
        assert!(other.stats().flushes >= 3);
        disk.heal();
        bounded("the disk has space", move || {
            while tree.put(key(count), [7; 100]).is_err() {
                std::thread::sleep(Duration::from_millis(10));
            }
            check(&stuck, count + 1);
        });
    }
}

#[test]
fn a_panic_in_one_database_leaves_the_threads_to_the_others() {
    let shared = shared(1);
    let (sick, well) = (FaultVfs::new(Path::new("/db")), mem());
    let (db, other) = (open(&shared, &fault(&sick)), open(&shared, &well));
    sick.panic_at(Operation::Create, ".run");
    put(&db, 0..100);
    let db = bounded("a flush", move || {
        assert!(db.flush().is_err());
        db
    });
    assert!(db.stats().failure.is_some_and(|reason| reason.contains("panicked")));
    assert!(matches!(db.health(), Err(Error::ReadOnly { reason }) if reason.contains("panicked")));
    bounded("the other", move || {
        put(&other, 0..50_000);
        check(&other, 50_000);
        assert!(other.stats().flushes > 0);
    });
    assert_eq!(shared.stats().threads, 5);
    drop(db);
    assert_eq!(shared.stats().databases, 0);
}

#[test]
fn it_lasts_as_long_as_somebody_needs_it() {
    let (vfs, runtime) = (mem(), shared(1));
    let db = open(&runtime, &vfs);
    drop(runtime);
    let db = bounded("writing", move || {
        put(&db, 0..50_000);
        db
    });
    assert!(db.stats().flushes > 0);
    let snapshot = db.snapshot();
    let cursor = db.tree("t").unwrap().prefix(b"");
    bounded("closing", move || db.close()).unwrap();
    drop((snapshot, cursor));
    bounded("opening again", move || check(&open(&shared(1), &vfs), 50_000));
}

#[test]
fn readers_beside_the_owner_share_too() {
    let (vfs, shared) = (mem(), shared(1));
    let owner = open(&shared, &vfs);
    put(&owner, 0..20_000);
    let settings = || Settings { shared: Some(shared.clone()), ..small(&vfs) };
    let follower = Follower::open_with(settings(), Path::new("/db"), None).unwrap();
    check(&follower.db(), 20_000);
    put(&owner, 20_000..30_000);
    follower.refresh().unwrap();
    check(&follower.db(), 30_000);
    let reader = Db::open_with(Settings { read_only: true, ..settings() }, Path::new("/db")).unwrap();
    check(&reader, 30_000);
    // The owner, the follower, the reader, and perhaps an earlier state.
    assert!((3..=4).contains(&shared.stats().databases), "{:?}", shared.stats());
    assert!(shared.stats().memory_bytes <= MEMORY as u64);
    drop((reader, follower));
    assert_eq!(shared.stats().databases, 1);
    let left = shared.0.chunk_pool.taken_bytes();
    drop(owner);
    assert!(left > 0 && shared.0.chunk_pool.taken_bytes() == 0);
}

#[test]
fn the_settings_of_a_shared_runtime_count() {
    let runtime = SharedRuntime::builder().memory(64 << 20).background_threads(3).build().unwrap();
    let settings = Settings { memory: 1 << 30, background_threads: 0, shared: Some(runtime.clone()), ..small(&mem()) };
    let db = Db::open_with(settings, Path::new("/db")).unwrap();
    assert_eq!((db.engine().settings.memory, db.engine().settings.background_threads), (64 << 20, 3));
    assert_eq!(runtime.stats().threads, 7);
    drop(db);
    let refused = SharedRuntime::with_memory(usize::MAX).unwrap_err();
    assert!(matches!(&refused, Error::InvalidArgument(text) if text.starts_with("memory is ")), "{refused}");
}
