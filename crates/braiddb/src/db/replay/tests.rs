//! What a thread beside inserts is what would have been inserted here.

use crate::{
    base::Result,
    db::{
        Db, Settings,
        tests_common::{bounded, fault, killed, open, small},
    },
    platform::{Runtime, SystemRuntime, Vfs, fault_vfs::FaultVfs},
};
use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
};

const DIR: &str = "/db";

/// The system's, which counts threads that replay, and may refuse to start them.
#[derive(Debug)]
struct Counting {
    system: SystemRuntime,
    has_threads: bool,
    started: AtomicUsize,
    running: Arc<AtomicUsize>,
}

impl Runtime for Counting {
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
        if name != "braiddb-replay" {
            return self.system.spawn(name, body);
        }
        if !self.has_threads {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.started.fetch_add(1, Ordering::SeqCst);
        self.running.fetch_add(1, Ordering::SeqCst);
        let running = Arc::clone(&self.running);
        self.system.spawn(
            name,
            Box::new(move || {
                body();
                running.fetch_sub(1, Ordering::SeqCst);
            }),
        )
    }
    fn sleep_us(&self, micros: u64) {
        self.system.sleep_us(micros);
    }
    fn process_name(&self) -> String {
        self.system.process_name()
    }
}

fn counting(has_threads: bool) -> Arc<Counting> {
    Arc::new(Counting { system: SystemRuntime::new(), has_threads, started: 0.into(), running: Arc::default() })
}

/// What a killed process leaves that has written so many groups and flushed none.
fn written(groups: u32) -> FaultVfs {
    let vfs = FaultVfs::new(Path::new(DIR));
    let large = Some(64 << 20);
    let db = open(Settings { memtable_bytes: large, log_segment_bytes: 1 << 20, ..small(&fault(&vfs)) }).unwrap();
    let (tree, other) = (db.tree("t").unwrap(), db.tree("other").unwrap());
    for i in 0..groups {
        let key = i.wrapping_mul(2_654_435_761).to_be_bytes();
        // Some values go to blob files.
        tree.put(key, vec![i as u8; if i.is_multiple_of(97) { 400 } else { 120 }]).unwrap();
        match i % 50 {
            7 => other.put(i.to_be_bytes(), b"to be deleted").map(drop).unwrap(),
            8 => tree.delete(key).map(drop).unwrap(),
            9 => other.delete_range((i - 2).to_be_bytes()..i.to_be_bytes()).map(drop).unwrap(),
            _ => {}
        }
    }
    assert_eq!(db.stats().flushes, 0);
    killed(&vfs)
}

fn opened(vfs: &FaultVfs, background_threads: usize, runtime: &Arc<Counting>) -> Result<Db> {
    let vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let runtime = Arc::clone(runtime) as Arc<dyn Runtime>;
    open(Settings { background_threads, runtime, memtable_bytes: Some(256 << 10), ..small(&vfs) })
}

fn contents(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    let rows = ["t", "other"].into_iter().flat_map(|name| {
        let rows = db.tree(name).unwrap().iter().map(|row| row.unwrap());
        rows.map(|(key, value)| (key.to_vec(), value.to_vec())).collect::<Vec<_>>()
    });
    rows.collect()
}

#[test]
fn with_a_thread_and_without_one_the_same_is_there() {
    let left = written(8000);
    let without = counting(true);
    let db = opened(&left, 0, &without).unwrap();
    let expected = contents(&db);
    assert_eq!(expected.len(), 8000 - 160, "those put and not deleted");
    assert_eq!(without.started.load(Ordering::SeqCst), 0);
    drop(db);
    for has_threads in [true, false] {
        let (left, expected) = (left.clone(), expected.clone());
        bounded("replaying", move || {
            let runtime = counting(has_threads);
            let left = killed(&left);
            let db = opened(&left, 2, &runtime).unwrap();
            assert_eq!(runtime.started.load(Ordering::SeqCst), usize::from(has_threads));
            assert_eq!(runtime.running.load(Ordering::SeqCst), 0);
            assert!(contents(&db) == expected);
            db.flush().unwrap();
            assert!(contents(&db) == expected);
            assert!(db.verify().unwrap().problems.is_empty());
        });
    }
}

#[test]
fn a_short_log_needs_no_thread() {
    let runtime = counting(true);
    let db = opened(&written(100), 2, &runtime).unwrap();
    assert_eq!(contents(&db).len(), 98);
    assert_eq!(runtime.started.load(Ordering::SeqCst), 0);
}

/// The log's second segment is cut, so that some has been handed over when that is found.
#[test]
fn a_replay_that_fails_leaves_no_thread() {
    let mut files = written(12_000).files();
    let segments = files.iter_mut().filter(|(path, _)| path.extension().is_some_and(|e| e == "wal"));
    let (_, second) = segments.take(2).last().unwrap();
    second.truncate(second.len() / 2);
    let damaged = FaultVfs::of_files(Path::new(DIR), &files);
    bounded("replaying", move || {
        let runtime = counting(true);
        let error = opened(&damaged, 2, &runtime).err().unwrap();
        assert!(error.is_corruption(), "{error}");
        assert_eq!(runtime.started.load(Ordering::SeqCst), 1);
        assert_eq!(runtime.running.load(Ordering::SeqCst), 0);
    });
}
