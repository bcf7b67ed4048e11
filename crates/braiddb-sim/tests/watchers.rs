//! Watchers killed and resumed beside writers and across reopenings: each sees each change exactly
//! once, in order. A slow watcher delays no writer.
//!
//! A watcher stores its token with its results from time to time. A kill loses the changes seen
//! since; they are shown again.

mod common;

use braiddb::{
    Builder, Db, Durability, Error,
    platform::{Runtime, SystemRuntime},
    watch::{Change, ResumeToken, WatchOptions, WatchStopper, Watcher},
};
use braiddb_sim::Random;
use common::{in_parallel, volume};
use std::{
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

const CHANGES: u64 = 5_000_000;
const KILLS: u64 = 1_000;
const WATCHERS: usize = 3;
const WRITERS: u64 = 2;

const PHASES: u64 = 10;

/// The stored token, and the next number of each writer.
#[derive(Clone, Debug)]
struct Stored {
    token: ResumeToken,
    next: [u64; WRITERS as usize],
}

fn builder() -> Builder {
    Db::builder().create_parents(true).memory(32 << 20).log_retention(1 << 40)
}

fn write(db: &Db, writer: u64, numbers: std::ops::Range<u64>) {
    let tree = db.tree(&format!("t{writer}")).expect("a tree");
    let mut random = Random::new(numbers.start ^ writer << 40);
    let mut number = numbers.start;
    while number < numbers.end {
        let mut batch = db.batch();
        for _ in 0..(1 + random.below(60)).min(numbers.end - number) {
            batch.put(&tree, number.to_be_bytes(), number.to_le_bytes());
            number += 1;
        }
        let durability = if random.chance(1, 3000) { Durability::Sync } else { Durability::Buffered };
        batch.commit_with(durability).expect("a commit");
    }
}

fn take_in(stored: &mut Stored, changes: &[Change]) {
    for change in changes {
        match change {
            Change::Put { tree, key, value, .. } => {
                let name = tree.name.as_deref().expect("a name");
                let writer: usize = name.strip_prefix('t').and_then(|digit| digit.parse().ok()).expect("a writer");
                let number = u64::from_be_bytes(key.as_slice().try_into().expect("a number"));
                assert_eq!(value, &number.to_le_bytes());
                assert_eq!(number, stored.next[writer], "the next change of writer {writer}");
                stored.next[writer] += 1;
            }
            Change::CreateTree { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Watches until all numbers below `ends` were seen, with kills.
fn watch(db: &Db, stored: &mut Stored, ends: u64, kills: u64, random: &mut Random, killed: &AtomicU64) {
    let total: u64 = (ends * WRITERS) - stored.next.iter().sum::<u64>();
    let every = (total / kills.max(1)).max(1);
    while stored.next.iter().any(|next| *next < ends) {
        let mut watcher = db.watch(WatchOptions::new().resume(stored.token)).expect("resumed");
        let mut at = stored.clone();
        let (mut until_store, mut until_kill) = (random.below(every) + 1, random.below(2 * every) + 1);
        while at.next.iter().any(|next| *next < ends) && until_kill > 0 {
            let set = watcher.next_timeout(Duration::from_secs(60)).expect("a commit").expect("there are more");
            take_in(&mut at, &set.changes);
            at.token = set.token;
            let count = set.changes.len() as u64;
            (until_store, until_kill) = (until_store.saturating_sub(count), until_kill.saturating_sub(count));
            if until_store == 0 || random.chance(1, 1000) {
                *stored = at.clone();
                until_store = random.below(every) + 1;
            }
        }
        if until_kill > 0 {
            *stored = at;
        } else {
            killed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn watchers_killed_and_resumed_see_each_change_once_in_order() {
    let seed = common::seed();
    let place = tempfile::tempdir().expect("a directory");
    let dir = place.path().join("db");
    let (of_writer, kills) = (volume(CHANGES) / WRITERS, volume(KILLS));
    let killed = AtomicU64::new(0);
    let start = {
        let db = builder().open(&dir).expect("open");
        db.watch(WatchOptions::new()).expect("a watcher").token()
    };
    let watchers: Vec<Mutex<Stored>> =
        (0..WATCHERS).map(|_| Mutex::new(Stored { token: start, next: [0; WRITERS as usize] })).collect();
    for phase in 0..PHASES {
        let (from, to) = (of_writer * phase / PHASES, of_writer * (phase + 1) / PHASES);
        let db = builder().open(&dir).expect("open");
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let db = &db;
                scope.spawn(move || write(db, writer, from..to));
            }
            for (index, stored) in watchers.iter().enumerate() {
                let (db, killed) = (&db, &killed);
                let ends = if index == WATCHERS - 1 && phase + 1 < PHASES { from } else { to };
                scope.spawn(move || {
                    let random = &mut Random::new(seed + phase * 10 + index as u64);
                    let kills = kills.div_ceil(PHASES * WATCHERS as u64) * 2;
                    watch(db, &mut stored.lock().expect("alone"), ends, kills, random, killed);
                });
            }
        });
        db.close().expect("close");
    }
    for stored in &watchers {
        assert_eq!(stored.lock().expect("alone").next, [of_writer; WRITERS as usize]);
    }
    println!("{} changes to each of {WATCHERS} watchers, {killed:?} kills", of_writer * WRITERS);
    assert!(killed.into_inner() >= kills, "too few kills");
}

/// A watcher that cannot keep up gets the retained changes, or an error for older ones.
#[test]
fn writers_beside_slow_watcher_never_wait() {
    let place = tempfile::tempdir().expect("a directory");
    for kept in [0, 2 << 20] {
        let dir = place.path().join(kept.to_string());
        let db = Db::builder().create_parents(true).memory(8 << 20).log_retention(kept).open(&dir).expect("open");
        let mut slow = db.watch(WatchOptions::new()).expect("a watcher");
        let mut idle = db.watch(WatchOptions::new()).expect("a watcher");
        let done = AtomicBool::new(false);
        let of_writer = volume(600_000).max(100_000);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| read_slowly(&mut slow, &done));
            in_parallel(WRITERS as usize, |writer| write(&db, writer as u64, 0..of_writer));
            done.store(true, Ordering::Release);
            let seen = reader.join().expect("the reader");
            assert!(seen < of_writer / 100, "the slow watcher saw {seen} commits");
        });
        db.flush().expect("a flush");
        let error = loop {
            match idle.try_next() {
                Ok(set) => assert!(set.is_some(), "the log still had all changes: no error came"),
                Err(e) => break e,
            }
        };
        assert!(error.is_watch_too_old(), "{error}");
        let stats = db.stats();
        // Writers sometimes wait for flushes, but never for a watcher.
        assert!(stats.stall_us_max < 2_000_000, "a writer was stalled for {} us", stats.stall_us_max);
        let log = std::fs::read_dir(&dir).expect("the directory").filter_map(|entry| {
            let entry = entry.ok()?;
            Path::new(&entry.file_name())
                .extension()?
                .eq("wal")
                .then(|| entry.metadata().ok().map(|meta| meta.len()))?
        });
        assert!(log.sum::<u64>() < kept + (32 << 20));
    }
}

fn read_slowly(watcher: &mut Watcher, done: &AtomicBool) -> u64 {
    let mut seen = 0;
    while !done.load(Ordering::Acquire) {
        match watcher.next_timeout(Duration::from_millis(5)) {
            Ok(set) => seen += u64::from(set.is_some()),
            Err(Error::WatchTooOld { .. }) => break,
            Err(e) => panic!("{e}"),
        }
        SystemRuntime::new().sleep_us(2000);
    }
    seen
}

#[test]
fn watcher_stopped_while_waiting_returns_none() {
    let db = Db::in_memory().expect("open");
    let mut watcher = db.watch(WatchOptions::new()).expect("a watcher");
    let stopper: WatchStopper = watcher.stopper();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| watcher.next());
        stopper.stop();
        assert!(waits.join().expect("the watcher").expect("no error").is_none());
    });
}
