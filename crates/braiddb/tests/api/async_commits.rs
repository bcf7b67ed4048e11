//! Asynchronous commits: order, shared syncs, failures, and the close.

#![expect(clippy::disallowed_methods, reason = "tests of threads")]

use crate::held_syncs::{CountingWaker, DIR, HeldSyncs, bounded, poll};
use braiddb::{
    Commit, Db, Durability, Error, SharedRuntime, Tree,
    platform::{Runtime, SystemRuntime},
};
use std::{
    io,
    sync::{Arc, Mutex},
    task::{Poll, Wake},
    thread::{self, JoinHandle},
};

/// Without the log's other syncs: a database is idle for a second before one.
fn open_held(background_threads: usize) -> (HeldSyncs, Db, Tree) {
    let vfs = HeldSyncs::new();
    let db = vfs.open(background_threads);
    let tree = db.tree("t").unwrap();
    db.sync().unwrap();
    vfs.hold();
    (vfs, db, tree)
}

fn key(number: usize) -> [u8; 8] {
    (number as u64).to_be_bytes()
}

fn is_ready(commit: &mut Commit) -> bool {
    poll(commit, &Arc::new(CountingWaker::default())).is_ready()
}

fn unknown(result: Poll<braiddb::Result<u64>>) -> String {
    match result {
        Poll::Ready(Err(error)) => {
            assert!(error.is_commit_unknown(), "{error}");
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn put_async_is_visible_at_call_and_ready_after_sync() {
    let (vfs, db, tree) = open_held(1);
    let waker = Arc::new(CountingWaker::default());
    let mut commit = tree.put_async(b"k", b"v");
    let sequence = commit.sequence().unwrap();
    assert_eq!(tree.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(db.stats().last_sequence, sequence);
    assert!(poll(&mut commit, &waker).is_pending() && waker.calls() == 0);
    vfs.release();
    waker.await_calls(1);
    for _ in 0..2 {
        assert!(matches!(poll(&mut commit, &waker), Poll::Ready(Ok(found)) if found == sequence));
    }
    assert_eq!(waker.calls(), 1);
    let mut deleted = tree.delete_async(b"k");
    assert_eq!((tree.get(b"k").unwrap(), deleted.sequence()), (None, Some(sequence + 1)));
    assert!(is_ready(&mut deleted) || deleted.wait().unwrap() == sequence + 1);
}

#[test]
fn futures_of_many_commits_share_syncs() {
    let (vfs, db, tree) = open_held(1);
    let (waker, before) = (Arc::new(CountingWaker::default()), vfs.syncs());
    let mut commits: Vec<Commit> = (0..1000).map(|n| tree.put_async(key(n), b"v")).collect();
    assert!(commits.iter_mut().all(|commit| poll(commit, &waker).is_pending()));
    vfs.await_syncs(before + 1);
    vfs.release();
    waker.await_calls(1000);
    let sequences: Vec<u64> = commits.into_iter().map(|commit| commit.wait().unwrap()).collect();
    assert!(sequences.is_sorted() && sequences.len() == 1000);
    // One for the first commit, one for the others; perhaps one of the idle log.
    assert!((1..=3).contains(&(vfs.syncs() - before)), "{} syncs", vfs.syncs() - before);
    assert_eq!(db.stats().commits, 1001, "the tree and the puts");
}

#[test]
fn failed_sync_fails_all_futures_as_a_blocking_commit() {
    let (vfs, db, tree) = open_held(1);
    let waker = Arc::new(CountingWaker::default());
    let mut durable = tree.put_async(b"before", b"v");
    vfs.release();
    waker_of_first(&mut durable);
    vfs.hold();
    vfs.fail();
    let mut commits: Vec<Commit> = (0..100).map(|n| tree.put_async(key(n), b"v")).collect();
    assert!(commits.iter_mut().all(|commit| poll(commit, &waker).is_pending()));
    vfs.release();
    waker.await_calls(100);
    let errors: Vec<String> = commits.iter_mut().map(|commit| unknown(poll(commit, &waker))).collect();
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    assert!(commits.iter().all(|commit| commit.sequence().is_none()));
    assert!(matches!(poll(&mut durable, &waker), Poll::Ready(Ok(_))));

    let (other, db_of_other, tree_of_other) = open_held(1);
    other.release();
    other.fail();
    let mut batch = db_of_other.batch();
    batch.put(&tree_of_other, b"k", b"v");
    let blocking = batch.commit_with(Durability::Sync).unwrap_err();
    assert_eq!(blocking.to_string(), errors[0]);

    let mut refused = tree.put_async(b"later", b"v");
    assert!(matches!(poll(&mut refused, &waker), Poll::Ready(Err(Error::ReadOnly { .. }))));
    assert_eq!((refused.sequence(), tree.get(b"later").unwrap()), (None, None));
    drop(db);
}

fn waker_of_first(commit: &mut Commit) {
    let waker = Arc::new(CountingWaker::default());
    if poll(commit, &waker).is_pending() {
        waker.await_calls(1);
    }
}

#[test]
fn close_completes_pending_futures() {
    for background_threads in [0, 1] {
        for fails in [false, true] {
            let (vfs, db, tree) = open_held(background_threads);
            let waker = Arc::new(CountingWaker::default());
            let mut commits: Vec<Commit> = (0..100).map(|n| tree.put_async(key(n), b"v")).collect();
            if background_threads > 0 {
                assert!(commits.iter_mut().all(|commit| poll(commit, &waker).is_pending()));
            }
            let last = tree.put_async(b"dropped", b"v");
            drop(last);
            if fails {
                vfs.fail();
            }
            let closing = thread::spawn(move || db.close());
            let reader = tree.clone();
            bounded(move || while reader.get(b"k").is_ok() {});
            vfs.release();
            assert_eq!(bounded(move || closing.join().unwrap()).is_err(), fails);
            waker.await_calls(100 * background_threads);
            for commit in &mut commits {
                match poll(commit, &waker) {
                    Poll::Ready(Ok(_)) => assert!(!fails),
                    ready => drop(unknown(ready)),
                }
            }
            let mut late = tree.put_async(b"late", b"v");
            assert!(matches!(poll(&mut late, &waker), Poll::Ready(Err(Error::Closed))));
        }
    }
}

#[test]
fn future_of_dropped_database_is_ready() {
    let (vfs, db, tree) = open_held(1);
    let commit = tree.put_async(b"k", b"v");
    vfs.release();
    drop((tree, db));
    let sequence = bounded(|| commit.wait()).unwrap();
    let db = vfs.open(1);
    assert_eq!(db.stats().last_sequence, sequence, "the future does not keep the database open");
    assert_eq!(db.tree("t").unwrap().get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

#[test]
fn dropped_future_releases_its_waker_and_keeps_the_commit() {
    let (vfs, db, tree) = open_held(1);
    let (dropped, other) = (Arc::new(CountingWaker::default()), Arc::new(CountingWaker::default()));
    let mut commit = tree.put_async(b"k", b"v");
    let mut later = tree.put_async(b"l", b"v");
    assert!(poll(&mut commit, &dropped).is_pending() && poll(&mut later, &other).is_pending());
    drop(commit);
    assert_eq!(Arc::strong_count(&dropped), 1);
    vfs.release();
    other.await_calls(1);
    assert_eq!(dropped.calls(), 0);
    assert_eq!(tree.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    drop(db);
}

#[test]
fn last_waker_of_a_future_is_called() {
    let (vfs, _db, tree) = open_held(1);
    let (first, second) = (Arc::new(CountingWaker::default()), Arc::new(CountingWaker::default()));
    let mut commit = tree.put_async(b"k", b"v");
    assert!(poll(&mut commit, &first).is_pending() && poll(&mut commit, &second).is_pending());
    assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 2));
    vfs.release();
    second.await_calls(1);
    assert_eq!(first.calls(), 0);
}

#[test]
fn conflicting_transaction_is_ready_with_the_conflict() {
    let (vfs, db, tree) = open_held(1);
    let (first, second, reader) = (db.begin().unwrap(), db.begin().unwrap(), db.begin().unwrap());
    for tx in [&first, &second] {
        assert_eq!(tx.get(&tree, b"k").unwrap(), None);
        tx.put(&tree, b"k", b"v").unwrap();
    }
    let sequence = reader.sequence();
    let mut commit = first.commit_async();
    assert!(!is_ready(&mut commit));
    let mut conflict = second.commit_async();
    let waker = Arc::new(CountingWaker::default());
    assert!(matches!(poll(&mut conflict, &waker), Poll::Ready(Err(error)) if error.is_conflict()));
    assert_eq!((conflict.sequence(), db.stats().transaction_conflicts), (None, 1));
    let mut read_only = reader.commit_async();
    assert!(matches!(poll(&mut read_only, &waker), Poll::Ready(Ok(found)) if found == sequence));
    let exclusive = db.begin_exclusive().unwrap();
    exclusive.put(&tree, b"k", b"w").unwrap();
    let mut exclusive = exclusive.commit_async();
    assert!(!is_ready(&mut exclusive));
    tree.put_async(b"l", b"the exclusive right has ended").sequence().unwrap();
    vfs.release();
    assert!(commit.wait().unwrap() < exclusive.wait().unwrap());
}

#[test]
fn invalid_arguments_and_empty_batches_are_ready() {
    let (vfs, db, tree) = open_held(1);
    let mut unsynced = tree.put_async(b"k", b"v");
    assert!(!is_ready(&mut unsynced));
    let (other_db, waker) = (Db::in_memory().unwrap(), Arc::new(CountingWaker::default()));
    let mut overlong = tree.put_async(vec![0; 1 << 20], b"v");
    assert!(matches!(poll(&mut overlong, &waker), Poll::Ready(Err(Error::InvalidArgument(_)))));
    let mut foreign = other_db.batch();
    foreign.put(&tree, b"k", b"v");
    assert!(matches!(poll(&mut foreign.commit_async(), &waker), Poll::Ready(Err(Error::InvalidArgument(_)))));
    let mut empty = db.batch().commit_async();
    assert!(matches!(poll(&mut empty, &waker), Poll::Ready(Ok(_))));
    vfs.release();
}

struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panic!("planned panic of the test");
    }
}

#[test]
fn panic_of_a_waker_harms_no_other() {
    let (vfs, db, tree) = open_held(1);
    let waker = Arc::new(CountingWaker::default());
    let (mut bad, mut good) = (tree.put_async(b"k", b"v"), tree.put_async(b"l", b"v"));
    assert!(poll(&mut bad, &Arc::new(PanickingWaker)).is_pending() && poll(&mut good, &waker).is_pending());
    vfs.release();
    waker.await_calls(1);
    assert!(is_ready(&mut bad) && is_ready(&mut good));
    bounded(move || tree.put_async(b"m", b"v").wait()).unwrap();
    db.close().unwrap();
}

/// Panics again when its panic is dropped.
struct DoublyPanickingWaker;

struct PanickingDrop;

impl Drop for PanickingDrop {
    fn drop(&mut self) {
        panic!("planned second panic of the test");
    }
}

impl Wake for DoublyPanickingWaker {
    fn wake(self: Arc<Self>) {
        std::panic::panic_any(PanickingDrop);
    }
}

/// The second panic ended the thread, and the other futures were never ready.
#[test]
fn waker_whose_panic_panics_at_its_drop_harms_no_other() {
    let (vfs, db, tree) = open_held(1);
    let waker = Arc::new(CountingWaker::default());
    let (mut bad, mut good) = (tree.put_async(b"k", b"v"), tree.put_async(b"l", b"v"));
    assert!(poll(&mut bad, &Arc::new(DoublyPanickingWaker)).is_pending() && poll(&mut good, &waker).is_pending());
    vfs.release();
    waker.await_calls(1);
    assert!(is_ready(&mut bad) && is_ready(&mut good));
    bounded(move || tree.put_async(b"m", b"v").wait()).unwrap();
    db.close().unwrap();
}

/// Drops the last handle of a database.
struct ClosingWaker(Mutex<Option<(Db, Tree)>>, Arc<CountingWaker>);

impl Wake for ClosingWaker {
    fn wake(self: Arc<Self>) {
        let handles = self.0.lock().unwrap().take();
        drop(handles);
        self.1.wake_by_ref();
    }
}

/// The close waited for the thread that syncs, and this thread ran the close.
#[test]
fn waker_that_drops_last_handle_closes_the_database() {
    let shared = SharedRuntime::builder().background_threads(1).build().unwrap();
    for shared in [None, Some(shared)] {
        let vfs = HeldSyncs::new();
        let builder = shared.iter().fold(vfs.builder(1), |builder, shared| builder.shared_runtime(shared));
        let db = builder.open(DIR).unwrap();
        let tree = db.tree("t").unwrap();
        vfs.hold();
        let closed = Arc::new(CountingWaker::default());
        let mut commits = [tree.put_async(b"k", b"v"), tree.put_async(b"l", b"v")];
        let waker = Arc::new(ClosingWaker(Mutex::new(Some((db, tree))), Arc::clone(&closed)));
        assert!(commits.iter_mut().all(|commit| poll(commit, &waker).is_pending()));
        drop(waker);
        vfs.release();
        closed.await_calls(2);
        assert!(commits.iter_mut().all(is_ready));
        let again = vfs.builder(1).open(DIR).unwrap();
        assert_eq!(again.tree("t").unwrap().iter().count(), 2);
    }
}

#[test]
fn poll_without_background_threads_syncs_for_all() {
    let (vfs, db, tree) = open_held(0);
    vfs.release();
    let before = vfs.syncs();
    let mut commits: Vec<Commit> = (0..100).map(|n| tree.put_async(key(n), b"v")).collect();
    assert_eq!(vfs.syncs(), before, "the call does not sync");
    assert!(commits.iter_mut().all(is_ready));
    assert_eq!(vfs.syncs(), before + 1);
    let unpolled = tree.put_async(b"k", b"v");
    db.close().unwrap();
    assert!(unpolled.wait().is_ok());
}

/// Has no threads for syncs.
#[derive(Debug)]
struct NoSyncThreads(SystemRuntime);

impl Runtime for NoSyncThreads {
    fn unix_time_us(&self) -> u64 {
        self.0.unix_time_us()
    }
    fn monotonic_ns(&self) -> u64 {
        self.0.monotonic_ns()
    }
    fn random_u64(&self) -> u64 {
        self.0.random_u64()
    }
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        if name.starts_with("braiddb-sync") {
            return Err(io::Error::other("planned fault of the test"));
        }
        self.0.spawn(name, body)
    }
    fn sleep_us(&self, micros: u64) {
        self.0.sleep_us(micros);
    }
    fn process_name(&self) -> String {
        self.0.process_name()
    }
}

#[test]
fn call_syncs_if_no_thread_starts() {
    let vfs = HeldSyncs::new();
    let runtime = Arc::new(NoSyncThreads(SystemRuntime::new()));
    let db = vfs.builder(1).runtime(runtime).open(DIR).unwrap();
    let tree = db.tree("t").unwrap();
    for n in 0..3 {
        let before = vfs.syncs();
        let mut commit = tree.put_async(key(n), b"v");
        assert!(is_ready(&mut commit) && vfs.syncs() > before);
    }
    db.close().unwrap();
}

#[test]
fn databases_with_shared_threads_sync_beside_each_other() {
    let shared = SharedRuntime::builder().memory(64 << 20).background_threads(1).build().unwrap();
    let threads = shared.stats().threads;
    let disks: Vec<HeldSyncs> = (0..6).map(|_| HeldSyncs::new()).collect();
    let dbs: Vec<Db> = disks.iter().map(|vfs| vfs.builder(1).shared_runtime(&shared).open(DIR).unwrap()).collect();
    let trees: Vec<Tree> = dbs.iter().map(|db| db.tree("t").unwrap()).collect();
    assert_eq!(shared.stats().threads, threads, "the first asynchronous commit starts the first one");
    let before: Vec<usize> = disks.iter().map(HeldSyncs::syncs).collect();
    disks.iter().for_each(HeldSyncs::hold);
    let commits: Vec<Commit> = trees.iter().map(|tree| tree.put_async(b"k", b"v")).collect();
    // Four threads sync at once, in the order of the calls.
    for (vfs, before) in disks.iter().zip(&before).take(4) {
        vfs.await_syncs(before + 1);
    }
    assert_eq!(shared.stats().threads, threads + 4);
    disks.iter().for_each(HeldSyncs::release);
    bounded(|| commits.into_iter().try_for_each(|commit| commit.wait().map(|_| ()))).unwrap();
    drop((trees, dbs));
}

#[test]
fn commits_of_threads_and_tasks_keep_one_order() {
    let vfs = HeldSyncs::new();
    let db = vfs.open(1);
    let tree = db.tree("t").unwrap();
    let writers: Vec<_> = (0..3_usize)
        .map(|writer| {
            let tree = tree.clone();
            thread::spawn(move || {
                let mut last = 0;
                for n in 0..300 {
                    let sequence = match (writer + n) % 3 {
                        0 => tree.put(key(writer), key(n)).unwrap(),
                        _ => tree.put_async(key(writer), key(n)).wait().unwrap(),
                    };
                    assert!(sequence > last);
                    last = sequence;
                }
            })
        })
        .collect();
    bounded(|| writers.into_iter().for_each(|writer| writer.join().unwrap()));
    let rows: Vec<_> = tree.iter().map(|row| row.unwrap().1.to_vec()).collect();
    assert_eq!(rows, vec![key(299).to_vec(); 3]);
}
