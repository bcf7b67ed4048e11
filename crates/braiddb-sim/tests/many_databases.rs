//! Databases that share memory, cache and threads: a busy one does not starve the other ones, and a
//! crash leaves each at one of its own commits.

#![expect(clippy::disallowed_methods, reason = "a test of time and threads")]

mod common;

use braiddb::{Builder, Db, Durability, SharedRuntime, options::Tuning, platform::Vfs};
use braiddb_sim::{CrashPolicy, Random, SimDisk, SimRuntime, mix};
use common::{empty_disk, volume};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const OTHERS: u64 = 8;

/// Maximum duration of a commit beside the busy database.
const LONGEST: Duration = Duration::from_secs(3);

fn commit(db: &Db, tree: &str, number: u64, value: &[u8], durability: Durability) {
    let mut batch = db.batch();
    batch.put(&db.tree(tree).expect("a tree"), mix(number, 7).to_be_bytes(), value);
    batch.commit_with(durability).expect("a commit");
}

#[test]
fn commits_beside_busy_database_are_not_starved() {
    let place = tempfile::tempdir().expect("a directory");
    let shared = SharedRuntime::builder().memory(24 << 20).background_threads(1).build().expect("threads");
    let open = |index: u64| {
        Db::builder().create_parents(true).shared_runtime(&shared).open(place.path().join(index.to_string()))
    };
    let busy = open(OTHERS).expect("open");
    let others: Vec<Db> = (0..OTHERS).map(|index| open(index).expect("open")).collect();
    let is_over = AtomicBool::new(false);
    let longest_us = AtomicU64::new(0);
    let each = volume(40_000).max(4_000);
    thread::scope(|scope| {
        let writers: Vec<_> = others
            .iter()
            .map(|db| {
                let longest_us = &longest_us;
                scope.spawn(move || {
                    for number in 0..each {
                        let began = Instant::now();
                        commit(db, "t", number, &[3; 200], Durability::Buffered);
                        let took = began.elapsed().as_micros() as u64;
                        longest_us.fetch_max(took, Ordering::Relaxed);
                        if number % 20 == 0 {
                            thread::sleep(Duration::from_millis(1));
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut number = 0;
            while !is_over.load(Ordering::Relaxed) {
                commit(&busy, "t", number, &[4; 300], Durability::Buffered);
                number += 1;
            }
        });
        for writer in writers {
            writer.join().expect("a writer");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let longest = Duration::from_micros(longest_us.into_inner());
    println!("the longest commit of the others took {longest:?}; {:?}", shared.stats());
    assert!(longest < LONGEST, "a commit took {longest:?}");
    assert!(busy.stats().flushes > 0, "the busy database never flushed");
    let flushed = others.iter().filter(|db| db.stats().flushes > 0).count();
    assert!(flushed > 0, "no other database was flushed");
    assert!(shared.stats().memtable_bytes < 24 << 20);
    for db in &others {
        assert_eq!(db.tree("t").expect("a tree").iter().count() as u64, each);
    }
}

const TOGETHER: usize = 4;

struct Together {
    dbs: [Db; TOGETHER],
}

fn path(index: usize) -> String {
    format!("/data/{index}.db")
}

impl Together {
    fn open(disk: &Arc<SimDisk>, seed: u64) -> Together {
        // Least memory: 1 MiB for each memtable, 2 MiB for all active ones.
        let shared = SharedRuntime::builder().memory(64 << 10).background_threads(0).build().expect("no threads");
        let vfs: Arc<dyn Vfs> = disk.clone();
        let builder = || {
            let runtime = SimRuntime::new(mix(seed, disk.next_session()));
            Builder::new()
                .create_parents(true)
                .vfs(Arc::clone(&vfs))
                .runtime(runtime)
                .shared_runtime(&shared)
                .tuning(Tuning::new().log_segment_bytes(64 << 10))
        };
        Together { dbs: [0, 1, 2, 3].map(|index| builder().open(Path::new(&path(index))).expect("open")) }
    }

    /// The number of commits found; they must be the first ones.
    fn stands(&self, index: usize) -> u64 {
        let tree = self.dbs[index].tree("t").expect("a tree");
        let count = tree.iter().inspect(|row| assert!(row.is_ok(), "{row:?}")).count() as u64;
        for number in 0..count {
            let value = tree.get(mix(number, 7).to_be_bytes()).expect("a value");
            assert_eq!(value.as_deref(), Some(&[number as u8; 3000][..]), "{number} of {count} in {index}");
        }
        count
    }
}

#[test]
fn databases_sharing_memory_after_crash_are_prefixes_of_their_commits() {
    let seed = common::seed();
    let mut flushed_for_others = 0;
    for round in 0..volume(20).max(4) {
        let mut random = Random::new(mix(seed, round));
        let disk = empty_disk(mix(seed, round));
        let together = Together::open(&disk, seed);
        let (mut written, mut synced) = ([0_u64; TOGETHER], [0_u64; TOGETHER]);
        for _ in 0..900 {
            let index = random.index(TOGETHER);
            let durability = if random.chance(1, 50) { Durability::Sync } else { Durability::Buffered };
            commit(&together.dbs[index], "t", written[index], &[written[index] as u8; 3000], durability);
            written[index] += 1;
            if durability == Durability::Sync {
                synced[index] = written[index];
            }
            if random.chance(1, 45) {
                let policies = CrashPolicy::some(12, random.next_u64());
                let image = disk.crash_image(disk.operations(), policies[random.index(policies.len())]);
                let crashed = Together::open(&image, random.next_u64());
                for index in 0..TOGETHER {
                    let stands = crashed.stands(index);
                    assert!(
                        (synced[index]..=written[index]).contains(&stands),
                        "database {index} has {stands} commits"
                    );
                    commit(&crashed.dbs[index], "t", stands, &[stands as u8; 3000], Durability::Sync);
                    assert_eq!(crashed.stands(index), stands + 1);
                }
            }
        }
        assert!(written.iter().all(|written| *written < 300), "a memtable may have filled up by itself");
        flushed_for_others += together.dbs.iter().map(|db| db.stats().flushes).sum::<u64>();
    }
    assert!(flushed_for_others > 0);
}
