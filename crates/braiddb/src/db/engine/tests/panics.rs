//! A panic ends only writes: no thread waits forever, reads continue, the close returns, and
//! acknowledged commits remain.

#![expect(clippy::disallowed_methods, reason = "tests of threads")]

use crate::{
    base::Error,
    codec::Compression,
    db::{
        Db, Durability, Settings,
        tests_common::{self, DIR, bounded, fault, small},
    },
    platform::fault_vfs::{FaultVfs, Operation},
};
use std::{path::Path, time::Duration};

fn open(vfs: &FaultVfs, background_threads: usize) -> Db {
    let settings = Settings {
        durability: Durability::Sync,
        compression: Compression::None,
        background_threads,
        log_segment_bytes: 64 << 10,
        blob_threshold: 4 << 10,
        ..small(&fault(vfs))
    };
    tests_common::open(settings).unwrap()
}

fn key(thread: u32, i: u32) -> Vec<u8> {
    [thread, i].map(u32::to_be_bytes).concat()
}

fn put_until_refused(db: &Db, thread: u32) -> (u32, Error) {
    let tree = db.tree("t").unwrap();
    for i in 0..1_000_000 {
        if let Err(e) = tree.put(key(thread, i), [7; 100]) {
            return (i, e);
        }
    }
    unreachable!("the panic comes before")
}

fn check_contained(vfs: &FaultVfs, db: Db, acknowledged: &[u32]) {
    let tree = db.tree("t").unwrap();
    for (thread, &count) in acknowledged.iter().enumerate() {
        for i in 0..count {
            assert!(tree.get(key(thread as u32, i)).unwrap().is_some(), "{i} of thread {thread}");
        }
    }
    let refusals = [tree.put(b"a", b"b").map(|_| ()), db.flush(), db.compact(), db.sync(), db.drop_tree("t")];
    for refusal in refusals {
        let Err(Error::ReadOnly { reason }) = refusal else { panic!("{refusal:?}") };
        assert!(reason.contains("panicked"), "{reason}");
    }
    assert!(db.stats().failure.is_some());
    drop(tree);
    bounded("close", move || db.close()).unwrap();
    // Unsynced writes remain: the power did not fail.
    let vfs = FaultVfs::of_files(Path::new(DIR), &vfs.files());
    let db = open(&vfs, 0);
    let tree = db.tree("t").unwrap();
    for (thread, &count) in acknowledged.iter().enumerate() {
        for i in 0..count {
            assert!(tree.get(key(thread as u32, i)).unwrap().is_some(), "{i} of thread {thread}, opened again");
        }
    }
    assert!(db.verify().unwrap().problems.is_empty());
    tree.put(b"a", b"b").unwrap();
}

fn panic_while_writing(operation: Operation, name_part: &'static str, background_threads: usize) {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(&vfs, background_threads);
    let tree = db.tree("t").unwrap();
    for i in 0..300 {
        tree.put(key(99, i), [7; 100]).unwrap();
    }
    drop(tree);
    vfs.panic_at(operation, name_part);
    let writers: Vec<_> = (0..3)
        .map(|thread| {
            let db = db.clone();
            move || put_until_refused(&db, thread)
        })
        .collect();
    let ends = bounded("writing", move || {
        let threads: Vec<_> = writers.into_iter().map(std::thread::spawn).collect();
        threads.into_iter().map(|t| t.join().expect("no caller panics")).collect::<Vec<_>>()
    });
    assert!(!vfs.will_panic());
    for (_, error) in &ends {
        assert!(matches!(error, Error::CommitUnknown { .. } | Error::ReadOnly { .. }), "{error:?}");
        assert!(error.to_string().contains("panicked"), "{error}");
    }
    let acknowledged: Vec<u32> = ends.into_iter().map(|(count, _)| count).collect();
    check_contained(&vfs, db, &acknowledged);
}

#[test]
fn a_panic_of_a_commit_is_contained() {
    panic_while_writing(Operation::Write, ".wal", 2);
    panic_while_writing(Operation::Write, ".wal", 0);
    panic_while_writing(Operation::Sync, ".wal", 2);
}

#[test]
fn a_panic_of_a_flush_is_contained() {
    panic_while_writing(Operation::Create, ".run", 2);
    panic_while_writing(Operation::Create, ".run", 0);
    panic_while_writing(Operation::Sync, ".run", 1);
}

#[test]
fn a_panic_of_a_merge_is_contained() {
    panic_while_writing(Operation::Create, ".view", 2);
    panic_while_writing(Operation::Create, ".view", 0);
}

#[test]
fn a_panic_while_an_edit_is_put_into_force_is_contained() {
    panic_while_writing(Operation::Write, "MANIFEST", 2);
    panic_while_writing(Operation::Sync, "MANIFEST", 0);
}

#[test]
fn a_panic_of_a_compaction_asked_for_is_contained() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(&vfs, 1);
    let tree = db.tree("t").unwrap();
    for i in 0..50 {
        tree.put(key(0, i), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    for i in 0..50 {
        tree.put(key(0, i), [8; 100]).unwrap();
    }
    db.flush().unwrap();
    drop(tree);
    vfs.panic_at(Operation::Write, ".run");
    let error = bounded("compact", {
        let db = db.clone();
        move || db.compact().unwrap_err()
    });
    assert!(matches!(error, Error::ReadOnly { .. }), "{error:?}");
    check_contained(&vfs, db, &[50]);
}

#[test]
fn members_of_a_group_whose_commit_panics_are_told_that_its_outcome_is_unknown() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(&vfs, 0);
    db.tree("t").unwrap();
    let write = db.engine().commits.write.lock();
    let threads: Vec<_> = (0..6)
        .map(|thread| {
            let db = db.clone();
            std::thread::spawn(move || put_until_refused(&db, thread))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    vfs.panic_at(Operation::Write, ".wal");
    drop(write);
    let ends = bounded("a group", || threads.into_iter().map(|t| t.join().unwrap()).collect::<Vec<_>>());
    assert!(ends.iter().all(|(count, _)| *count == 0), "{ends:?}");
    assert!(matches!(
        ends.iter().find(|(_, e)| !matches!(e, Error::ReadOnly { .. })),
        Some((_, Error::CommitUnknown { .. }))
    ));
    check_contained(&vfs, db, &[0; 6]);
}

/// Work that a close ended with `Closed` left that as the reason. A later real failure was neither
/// kept nor logged, and the close succeeded.
#[test]
fn close_with_failure_behind_ended_work_returns_the_failure() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(&vfs, 0);
    db.tree("t").unwrap().put(b"a", b"b").unwrap();
    let engine = std::sync::Arc::clone(db.engine());
    let inside = engine.health.enter().unwrap();
    let closing = std::thread::spawn(move || db.close());
    bounded("the refusal of calls", {
        let engine = std::sync::Arc::clone(&engine);
        move || {
            while engine.health.check_open().is_ok() {
                std::thread::yield_now();
            }
        }
    });
    engine.poison(&Error::Closed);
    assert_eq!(engine.health.failure(), None);
    engine.poison(&Error::corruption("run", 7, "a damaged block"));
    drop(inside);
    let closed = bounded("close", move || closing.join().unwrap());
    let Err(Error::ReadOnly { reason }) = closed else { panic!("{closed:?}") };
    assert!(reason.contains("a damaged block"), "{reason}");
    assert!(engine.health.failure().is_some_and(|failure| failure == reason));
}
