//! Delays commits by each cause in turn. Only tests advance the clock, so each part of a commit has
//! an exact time.

#![expect(clippy::disallowed_methods, reason = "tests of threads")]

use crate::{
    base::Result,
    codec::Compression,
    db::{
        Db, Durability, Event, Listener, MergeKind, Settings, Tree,
        engine::slow_commits::report::{BackgroundWork, SlowCause, SlowCommit},
        tests_common::{Clock, DIR, bounded, open, small},
    },
    platform::{
        Runtime, SystemRuntime,
        fault_vfs::{FaultVfs, Operation},
    },
};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::HashMap,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread::{self, JoinHandle, ThreadId},
    time::Duration,
};

const MS: u64 = 1_000_000;

const TREE_ID_BYTES: u64 = 4;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A clock that notes how often each thread has read it.
#[derive(Debug)]
struct Watch {
    clock: Arc<Clock>,
    reads: Mutex<HashMap<ThreadId, u64>>,
    read: Condvar,
}

impl Watch {
    /// Waits until a thread has read the clock `count` times.
    fn await_reads(&self, thread: ThreadId, count: u64) {
        let mut reads = self.reads.lock();
        while reads.get(&thread).copied().unwrap_or(0) < count {
            self.read.wait(&mut reads);
        }
    }
}

impl Runtime for Watch {
    fn unix_time_us(&self) -> u64 {
        self.clock.unix_time_us()
    }
    fn monotonic_ns(&self) -> u64 {
        let now_ns = self.clock.monotonic_ns();
        *self.reads.lock().entry(thread::current().id()).or_default() += 1;
        self.read.notify_all();
        now_ns
    }
    fn random_u64(&self) -> u64 {
        self.clock.random_u64()
    }
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        SystemRuntime::new().spawn(name, body)
    }
    fn sleep_us(&self, micros: u64) {
        self.clock.sleep_us(micros);
    }
    fn process_name(&self) -> String {
        self.clock.process_name()
    }
}

/// Holds threads back while it is closed.
#[derive(Debug, Default)]
struct Gate {
    /// Whether it is closed, and the threads that wait.
    state: Mutex<(bool, u64)>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock();
        state.1 += 1;
        self.changed.notify_all();
        while state.0 {
            self.changed.wait(&mut state);
        }
        state.1 -= 1;
    }

    /// Closes it until the result is dropped, also by a failed test: the close of the database waits
    /// for its threads.
    fn close(&self) -> Closed<'_> {
        self.state.lock().0 = true;
        Closed(self)
    }

    fn is_closed(&self) -> bool {
        self.state.lock().0
    }

    /// Waits for a thread, at most this real time. Returns whether one waits.
    fn await_thread_for(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if state.1 == 0 {
            self.changed.wait_for(&mut state, time);
        }
        state.1 > 0
    }

    fn await_thread(&self) {
        let mut state = self.state.lock();
        while state.1 == 0 {
            self.changed.wait(&mut state);
        }
    }
}

#[must_use]
struct Closed<'a>(&'a Gate);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.state.lock().0 = false;
        self.0.changed.notify_all();
    }
}

/// A database whose files cost time: `step` runs before each operation on a file, with its name.
struct Rig {
    db: Db,
    tree: Tree,
    clock: Arc<Clock>,
    watch: Arc<Watch>,
    vfs: FaultVfs,
    /// Milliseconds that the next operation costs that `wants` it.
    cost_ms: Arc<AtomicU64>,
    events: mpsc::Receiver<Event>,
}

impl Rig {
    fn new(settings: impl FnOnce(Settings) -> Settings, step: impl Fn(Operation, &str) + Send + Sync + 'static) -> Rig {
        Rig::costing(settings, |_, _| false, step)
    }

    /// An operation that is `dear` takes the time of [`Rig::costs`], once.
    fn dear(
        settings: impl FnOnce(Settings) -> Settings,
        dear: impl Fn(Operation, &str) -> bool + Send + Sync + 'static,
    ) -> Rig {
        Rig::costing(settings, dear, |_, _| ())
    }

    fn costing(
        settings: impl FnOnce(Settings) -> Settings,
        dear: impl Fn(Operation, &str) -> bool + Send + Sync + 'static,
        step: impl Fn(Operation, &str) + Send + Sync + 'static,
    ) -> Rig {
        let (clock, cost_ms) = (Clock::new(), Arc::new(AtomicU64::new(0)));
        let watch = Arc::new(Watch { clock: Arc::clone(&clock), reads: Mutex::default(), read: Condvar::new() });
        let (spent, time) = (Arc::clone(&cost_ms), Arc::clone(&clock));
        let vfs = FaultVfs::new(Path::new(DIR)).with_hook(move |operation, path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if dear(operation, &name) {
                time.advance(spent.swap(0, SeqCst) * MS);
            }
            step(operation, &name);
        });
        let (sender, events) = mpsc::channel();
        let listener = Listener(Arc::new(move |event: &Event| _ = sender.send(event.clone())));
        let defaults = Settings {
            slow_commit_ns: 100 * MS,
            listener: Some(listener),
            runtime: Arc::clone(&watch) as Arc<dyn Runtime>,
            ..small(&(Arc::new(vfs.clone()) as Arc<_>))
        };
        let db = open(settings(defaults)).unwrap();
        let tree = db.tree("t").unwrap();
        tree.put(b"first", b"").unwrap();
        Rig { db, tree, clock, watch, vfs, cost_ms, events }
    }

    fn costs(&self, ms: u64) {
        self.cost_ms.store(ms, SeqCst);
    }

    fn commits(&self) -> Vec<SlowCommit> {
        self.db.stats().slow_commits
    }

    /// Returns the only slow commit.
    fn only(&self) -> SlowCommit {
        let commits = self.commits();
        assert_eq!(commits.len(), 1, "{commits:?}");
        commits.into_iter().next().unwrap()
    }

    fn put_in_thread(&self, key: &'static [u8], value: Vec<u8>) -> JoinHandle<Result<u64>> {
        let tree = self.tree.clone();
        thread::spawn(move || tree.put(key, value))
    }

    /// Waits until a thread is parked in the commit queue: it has read the clock at its begin and
    /// then.
    fn await_parked(&self, thread: &JoinHandle<Result<u64>>) {
        self.watch.await_reads(thread.thread().id(), 2);
    }

    /// Waits until the flush thread has seen the last commit. Until then it may find the new
    /// database idle, and sync the log.
    fn await_seen(&self) {
        let engine = self.db.engine();
        let commits = engine.counters.commits.load(SeqCst) + engine.counters.flushes.load(SeqCst);
        engine.signal_work();
        while engine.maintenance.work.lock().seen != commits {
            thread::yield_now();
        }
    }
}

fn is_thread(purpose: &str) -> bool {
    thread::current().name().is_some_and(|name| name.starts_with(purpose))
}

fn is_log(name: &str) -> bool {
    name.ends_with(".wal")
}

fn check(commit: &SlowCommit, cause: SlowCause, took: Duration, part: Duration) {
    assert_eq!((commit.cause, commit.took, commit.parts.get(cause)), (cause, took, part), "{commit}");
}

#[test]
fn slow_sync_is_named() {
    let rig = Rig::dear(|s| s, |operation, name| operation == Operation::Sync && is_log(name));
    rig.costs(300);
    let sequence = rig.tree.put_with(b"k", b"value", Durability::Sync).unwrap();
    let commit = rig.only();
    check(&commit, SlowCause::Sync, ms(300), ms(300));
    assert_eq!((commit.sequence, commit.records, commit.behind, commit.background), (Some(sequence), 1, None, None));
    assert_eq!(commit.bytes, TREE_ID_BYTES + 1 + 5);
    assert_eq!(commit.to_string(), format!("commit {sequence} took 300.0ms: sync 300.0ms"));
}

#[test]
fn slow_sync_of_asynchronous_commit_is_named_once() {
    for background_threads in [0, 1] {
        let settings = |s| Settings { background_threads, ..s };
        // The thread for the log makes the next segment at any time.
        let rig = Rig::dear(settings, |operation, name| {
            operation == Operation::Sync && is_log(name) && !is_thread("braiddb-log")
        });
        if background_threads > 0 {
            rig.await_seen();
        }
        rig.costs(300);
        let commit = rig.tree.put_async(b"k", b"value");
        let sequence = bounded("a commit", move || commit.wait()).unwrap();
        let commit = rig.only();
        check(&commit, SlowCause::Sync, ms(300), ms(300));
        assert_eq!((commit.sequence, commit.records), (Some(sequence), 1));
    }
}

#[test]
fn slow_sync_of_exclusive_transaction_and_pop_is_named() {
    let rig = Rig::dear(
        |s| Settings { durability: Durability::Sync, ..s },
        |operation, name| operation == Operation::Sync && is_log(name),
    );
    let tx = rig.db.begin_exclusive().unwrap();
    tx.put(&rig.tree, b"k", b"value").unwrap();
    rig.costs(300);
    tx.commit().unwrap();
    check(&rig.only(), SlowCause::Sync, ms(300), ms(300));
    rig.costs(200);
    rig.tree.pop_first().unwrap().unwrap();
    check(&rig.commits()[1], SlowCause::Sync, ms(200), ms(200));
}

#[test]
fn full_memory_is_named_with_the_flush() {
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let rig = Rig::new(
        |s| Settings { background_threads: 1, ..s },
        move |operation, _| {
            if operation == Operation::Create && is_thread("braiddb-flush") {
                held.pass();
            }
        },
    );
    let closed = gate.close();
    let tree = rig.tree.clone();
    // The first memtable is full before the second may stall.
    let mut keys = 0..400u32;
    while rig.db.stats().frozen_memtables == 0 {
        tree.put(keys.next().unwrap().to_be_bytes(), [7; 200]).unwrap();
    }
    gate.await_thread();
    let writer = thread::spawn(move || keys.try_for_each(|key| tree.put(key.to_be_bytes(), [7; 200]).map(drop)));
    while !matches!(rig.events.recv_timeout(Duration::from_secs(30)).unwrap(), Event::StallBegin) {}
    rig.clock.advance(400 * MS);
    drop(closed);
    bounded("the writer", move || writer.join().unwrap()).unwrap();
    let commit = rig.only();
    assert_eq!(commit.cause, SlowCause::MemoryFull, "{commit}");
    assert!(commit.parts.get(SlowCause::MemoryFull) >= ms(400), "{commit}");
    assert_eq!(commit.background.map(|running| running.work), Some(BackgroundWork::Flush));
}

/// Piles up unindexed runs while a merge is held, and returns a commit that was throttled, with the
/// name of the file that the merge creates.
fn throttled_while_merging(fold_bytes_per_entry: u64) -> (SlowCommit, String) {
    let gate = Arc::new(Gate::default());
    let (held, time) = (Arc::clone(&gate), Arc::new(Mutex::new(None::<Arc<Clock>>)));
    let (clock, created) = (Arc::clone(&time), Arc::new(Mutex::new(None)));
    let created_now = Arc::clone(&created);
    let settings = |s| Settings { background_threads: 2, slow_commit_ns: MS, fold_bytes_per_entry, ..s };
    let rig = Rig::new(settings, move |operation, name| match operation {
        Operation::Create if is_thread("braiddb-merge") => {
            if held.is_closed() {
                created_now.lock().get_or_insert_with(|| name.to_owned());
            }
            held.pass();
        }
        // Makes the throttle noticeable: it counts in the time of a flush.
        Operation::Create if is_thread("braiddb-flush") => {
            clock.lock().iter().for_each(|clock| clock.advance(50 * MS));
        }
        _ => {}
    });
    (0..200u32).for_each(|key| _ = rig.tree.put(key.to_be_bytes(), [7; 40]).unwrap());
    rig.db.compact().unwrap();
    *time.lock() = Some(Arc::clone(&rig.clock));
    let closed = gate.close();
    let mut is_held = false;
    for _ in 0..40 {
        (0..5u32).for_each(|key| _ = rig.tree.put(key.to_be_bytes(), [8; 40]).unwrap());
        rig.db.flush().unwrap();
        // The merge that is due after some flushes begins then. After more of them, another would.
        is_held = is_held || gate.await_thread_for(Duration::from_millis(300));
    }
    assert!(is_held);
    let before = rig.commits().len();
    // Small delays add up until one is slow.
    for _ in 0..50 {
        if rig.commits().len() > before {
            break;
        }
        let mut batch = rig.db.batch();
        (0..30u32).for_each(|key| _ = batch.put(&rig.tree, key.to_be_bytes(), [9; 250]));
        batch.commit().unwrap();
    }
    let commits = rig.commits();
    assert!(commits.len() > before, "{}", rig.db.stats().pressure_per_mille);
    let (work, running) = (commits[before].background.map(|running| running.work), rig.db.stats().running);
    assert!(running.iter().any(|running| Some(running.work) == work), "{running:?}");
    let created = created.lock().take();
    drop(closed);
    (commits.into_iter().next_back().unwrap(), created.unwrap())
}

#[test]
fn long_merge_is_named_with_its_work() {
    let (commit, created) = throttled_while_merging(u64::MAX);
    assert!(created.ends_with(".run"), "{created}");
    assert_eq!(commit.cause, SlowCause::Merge, "{commit}");
    let running = commit.background.unwrap();
    assert!(matches!(running.work, BackgroundWork::Merge { kind: MergeKind::Unindexed, .. }), "{running:?}");
    assert!(running.ran_for >= ms(50), "{running:?}");
}

#[test]
fn view_build_is_named_with_its_work() {
    let (commit, created) = throttled_while_merging(0);
    assert!(created.ends_with(".view"), "{created}");
    assert_eq!(commit.cause, SlowCause::ViewBuild, "{commit}");
    let running = commit.background.unwrap();
    assert!(matches!(running.work, BackgroundWork::Merge { kind: MergeKind::Fold, .. }), "{running:?}");
}

#[test]
fn jobs_in_the_committing_thread_are_named() {
    let flushes = |operation: Operation, name: &str| operation == Operation::Create && name.ends_with(".run");
    let rig = Rig::dear(|s| s, flushes);
    rig.costs(300);
    for key in 0..100u32 {
        rig.tree.put(key.to_be_bytes(), [7; 240]).unwrap();
    }
    check(&rig.only(), SlowCause::MemoryFull, ms(300), ms(300));

    let views = |operation: Operation, name: &str| operation == Operation::Create && name.ends_with(".view");
    let rig = Rig::dear(|s| Settings { fold_bytes_per_entry: 0, ..s }, views);
    rig.costs(300);
    for key in 0..600u32 {
        rig.tree.put(key.to_be_bytes(), [7; 240]).unwrap();
    }
    check(&rig.only(), SlowCause::ViewBuild, ms(300), ms(300));
}

#[test]
fn full_disk_is_named() {
    let settings = |s| Settings { disk_reserve: Some(64 << 10), ..s };
    // The log takes space of the reserve.
    let rig = Rig::dear(settings, |operation, name| operation == Operation::Sync && !is_log(name));
    rig.vfs.fail(Operation::Write, 0, 1, io::ErrorKind::StorageFull);
    rig.costs(300);
    rig.tree.delete(b"first").unwrap();
    check(&rig.only(), SlowCause::FullDisk, ms(300), ms(300));
}

#[test]
fn commit_refused_by_a_full_disk_names_it() {
    // Without threads, commits ask for the next log segment in advance. The last one needs it.
    let rig = Rig::dear(|s| s, |operation, _| operation == Operation::Create);
    rig.vfs.fail(Operation::Create, 0, u32::MAX, io::ErrorKind::StorageFull);
    let mut refused = None;
    for key in 0..2_000u32 {
        rig.costs(200);
        if let Err(error) = rig.tree.put(key.to_be_bytes(), [7; 240]) {
            refused = Some(error);
            break;
        }
    }
    assert!(refused.unwrap().is_disk_full());
    let commits: Vec<_> = rig.commits().into_iter().filter(|commit| commit.cause != SlowCause::Rotation).collect();
    let [refused] = &commits[..] else { panic!("{commits:?}") };
    check(refused, SlowCause::FullDisk, ms(200), ms(200));
    assert_eq!(refused.sequence, None);
}

#[test]
fn new_log_segment_is_named() {
    let settings = |s| Settings { compression: Compression::None, ..s };
    let rig = Rig::dear(settings, |operation, name| operation == Operation::Create && is_log(name));
    rig.costs(300);
    let mut batch = rig.db.batch();
    (0..100u32).for_each(|key| _ = batch.put(&rig.tree, key.to_be_bytes(), [7; 240]));
    batch.commit().unwrap();
    let commit = rig.only();
    check(&commit, SlowCause::Rotation, ms(300), ms(300));
    assert_eq!((commit.records, commit.bytes), (100, 100 * (TREE_ID_BYTES + 244)));
}

#[test]
fn slow_write_of_the_log_is_named() {
    let rig = Rig::dear(|s| s, |operation, name| operation == Operation::Write && is_log(name));
    rig.costs(300);
    rig.tree.put(b"k", b"value").unwrap();
    check(&rig.only(), SlowCause::Write, ms(300), ms(300));
}

/// Holds a commit in `operation` on the log while it leads, and others behind it.
fn behind(operation: Operation, first: usize, others: &[usize], held_ms: u64, then_ms: u64) -> Vec<SlowCommit> {
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let rig = Rig::costing(
        |s| Settings { compression: Compression::None, blob_threshold: usize::MAX, ..s },
        |operation, name| operation == Operation::Create && is_log(name),
        move |at, name| {
            if at == operation && is_log(name) {
                held.pass();
            }
        },
    );
    let closed = gate.close();
    let leader = rig.put_in_thread(b"leader", vec![7; first]);
    gate.await_thread();
    let keys: [&[u8]; 2] = [b"a", b"b"];
    let mut threads = Vec::new();
    for (key, len) in keys.into_iter().zip(others) {
        let thread = rig.put_in_thread(key, vec![7; *len]);
        rig.await_parked(&thread);
        threads.push(thread);
    }
    rig.clock.advance(held_ms * MS);
    rig.costs(then_ms);
    drop(closed);
    bounded("the commits", move || {
        leader.join().unwrap().unwrap();
        threads.into_iter().for_each(|thread| _ = thread.join().unwrap().unwrap());
    });
    let mut commits = rig.commits();
    commits.sort_by_key(|commit| commit.sequence);
    commits
}

#[test]
fn queue_behind_a_slow_commit_is_named() {
    let commits = behind(Operation::Write, 10, &[10, 10], 500, 0);
    let [leader, second, third] = &commits[..] else { panic!("{commits:?}") };
    check(leader, SlowCause::Write, ms(500), ms(500));
    check(second, SlowCause::Queue, ms(500), ms(500));
    check(third, SlowCause::Queue, ms(500), ms(500));
    assert_eq!((second.behind, third.behind), (None, None));
}

#[test]
fn queue_behind_a_delayed_commit_names_its_delay() {
    let commits = behind(Operation::Create, 20 << 10, &[10], 500, 0);
    let [leader, second] = &commits[..] else { panic!("{commits:?}") };
    check(leader, SlowCause::Rotation, ms(500), ms(500));
    check(second, SlowCause::Queue, ms(500), ms(500));
    assert_eq!((leader.behind, second.behind), (None, Some(SlowCause::Rotation)));
}

#[test]
fn members_of_a_group_share_its_delay() {
    // The second one leads a group with the third, whose record needs a new segment.
    let commits = behind(Operation::Write, 10, &[10 << 10, 10 << 10], 120, 300);
    let [leader, second, third] = &commits[..] else { panic!("{commits:?}") };
    // It may return after the next group.
    assert_eq!(leader.cause, SlowCause::Write, "{leader}");
    for member in [second, third] {
        check(member, SlowCause::Rotation, ms(420), ms(300));
        assert_eq!(member.parts.get(SlowCause::Queue), ms(120), "{member}");
        assert_eq!(member.behind, None);
    }
}

#[test]
fn wait_for_an_exclusive_transaction_is_named() {
    let rig = Rig::new(|s| s, |_, _| ());
    let tx = rig.db.begin_exclusive().unwrap();
    let writer = rig.put_in_thread(b"k", vec![7]);
    // At its begin, before the wait, and in it.
    rig.watch.await_reads(writer.thread().id(), 3);
    rig.clock.advance(300 * MS);
    drop(tx);
    bounded("the writer", move || writer.join().unwrap()).unwrap();
    check(&rig.only(), SlowCause::Lock, ms(300), ms(300));
}

#[test]
fn check_of_an_old_transaction_is_named() {
    let reads = |operation: Operation, name: &str| operation == Operation::Read && name.ends_with(".run");
    let rig = Rig::dear(|s| Settings { memory: 1 << 20, read_in_place: false, ..s }, reads);
    rig.tree.put(b"read", b"v").unwrap();
    rig.db.flush().unwrap();
    let tx = rig.db.begin().unwrap();
    assert!(tx.get(&rig.tree, b"read").unwrap().is_some());
    tx.put(&rig.tree, b"written", b"v").unwrap();
    // More than the conflict window holds.
    for key in 0..15_000u32 {
        rig.tree.put(key.to_be_bytes(), [7; 100]).unwrap();
    }
    let before = rig.commits();
    assert!(before.is_empty(), "{before:?}");
    rig.costs(300);
    tx.commit().unwrap();
    check(&rig.only(), SlowCause::Conflict, ms(300), ms(300));
}

#[test]
fn commits_below_the_threshold_leave_no_trace() {
    let rig = Rig::dear(|s| s, |operation, name| operation == Operation::Write && is_log(name));
    for cost_ms in [0, 50, 99] {
        rig.costs(cost_ms);
        rig.tree.put(b"k", b"value").unwrap();
    }
    assert!(rig.commits().is_empty());
    assert!(rig.db.stats().slow_commit_totals.iter().all(|total| (total.commits, total.part_us) == (0, 0)));
    rig.costs(100);
    rig.tree.put(b"k", b"value").unwrap();
    check(&rig.only(), SlowCause::Write, ms(100), ms(100));
}

#[test]
fn last_64_are_kept_and_all_counted() {
    let rig = Rig::dear(|s| s, |operation, name| operation == Operation::Write && is_log(name));
    let mut last = 0;
    for key in 0..70u32 {
        rig.costs(200);
        last = rig.tree.put(key.to_be_bytes(), b"").unwrap();
    }
    let stats = rig.db.stats();
    let sequences: Vec<_> = stats.slow_commits.iter().map(|commit| commit.sequence.unwrap()).collect();
    assert_eq!(sequences, (last - 63..=last).collect::<Vec<_>>());
    let causes: Vec<_> = stats.slow_commit_totals.iter().map(|total| total.cause).collect();
    assert_eq!(causes, SlowCause::ALL);
    for total in stats.slow_commit_totals {
        let expected = if total.cause == SlowCause::Write { (70, 70 * 200_000) } else { (0, 0) };
        assert_eq!((total.commits, total.part_us), expected, "{total:?}");
    }
    let events: Vec<_> = rig.events.iter().filter(|e| matches!(e, Event::SlowCommit(_))).take(70).collect();
    assert_eq!(events[69], Event::SlowCommit(stats.slow_commits[63].clone()));
}

#[test]
fn failed_commit_has_its_cause_and_no_number() {
    let rig = Rig::dear(|s| s, |operation, name| operation == Operation::Sync && is_log(name));
    rig.vfs.fail(Operation::Sync, 0, 1, io::ErrorKind::Other);
    rig.costs(300);
    rig.tree.put_with(b"k", b"value", Durability::Sync).unwrap_err();
    let commit = rig.only();
    check(&commit, SlowCause::Sync, ms(300), ms(300));
    assert_eq!(commit.sequence, None);
    assert_eq!(commit.to_string(), "a failed commit took 300.0ms: sync 300.0ms");
}

#[test]
fn threshold_of_max_records_nothing_and_reads_no_clock() {
    let rig = Rig::dear(
        |s| Settings { slow_commit_ns: u64::MAX, ..s },
        |operation, name| operation == Operation::Write && is_log(name),
    );
    let reads = |rig: &Rig| {
        let writer = rig.put_in_thread(b"k", vec![7]);
        let id = writer.thread().id();
        writer.join().unwrap().unwrap();
        rig.watch.reads.lock().get(&id).copied().unwrap_or(0)
    };
    let on = Rig::new(|s| s, |_, _| ());
    assert_eq!(reads(&on) - reads(&rig), 2, "a commit reads the clock at its begin and end");
    rig.costs(5_000);
    rig.tree.put(b"k", b"value").unwrap();
    assert!(rig.commits().is_empty());
}
