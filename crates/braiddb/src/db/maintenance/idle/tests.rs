//! Detection of idleness, and what the flusher then does with the log.

use super::{
    super::{background::RETRY_NS, log_trim::LOG_SEGMENTS_MAX},
    *,
};
use crate::{
    base::Error,
    codec::Compression,
    db::{
        Db, Settings,
        maintenance::{background, flush, idle, log_trim},
        tests_common::{bounded, fault, killed, open, small},
    },
    platform::{
        Runtime, SystemRuntime, Vfs,
        fault_vfs::{FaultVfs, Operation},
    },
};
use std::{
    io,
    path::Path,
    sync::{Arc, atomic::AtomicU64},
    thread::JoinHandle,
};

const SECOND_NS: u64 = 1_000_000_000;

#[derive(Debug)]
struct Stopped {
    now_ns: AtomicU64,
    system: SystemRuntime,
}

impl Stopped {
    fn new() -> Arc<Stopped> {
        Arc::new(Stopped { now_ns: AtomicU64::new(SECOND_NS), system: SystemRuntime::new() })
    }

    fn advance(&self, ns: u64) {
        self.now_ns.fetch_add(ns, Ordering::Relaxed);
    }
}

impl Runtime for Stopped {
    fn unix_time_us(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed) / 1000
    }
    fn monotonic_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }
    fn random_u64(&self) -> u64 {
        self.system.random_u64()
    }
    fn spawn(&self, _name: &str, _body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn sleep_us(&self, micros: u64) {
        self.advance(micros * 1000);
    }
    fn process_name(&self) -> String {
        self.system.process_name()
    }
}

fn world() -> (FaultVfs, Arc<Stopped>, Db) {
    let vfs = FaultVfs::new(Path::new("/db"));
    let clock = Stopped::new();
    let db = open_on(&vfs, &clock);
    (vfs, clock, db)
}

fn open_on(vfs: &FaultVfs, clock: &Arc<Stopped>) -> Db {
    let settings = Settings {
        memtable_bytes: Some(1 << 20),
        log_segment_bytes: 4 << 10,
        runtime: Arc::clone(clock) as Arc<dyn Runtime>,
        ..small(&fault(vfs))
    };
    open(settings).unwrap()
}

/// Puts until the log has `segments` segments. Returns the number of keys.
fn fill(db: &Db, segments: usize) -> u32 {
    let tree = db.tree("t").unwrap();
    let mut count = 0u32;
    while db.engine().log.wal.as_ref().unwrap().segments().len() < segments {
        tree.put(count.to_be_bytes(), [7; 100]).unwrap();
        count += 1;
    }
    count
}

fn segments(db: &Db) -> usize {
    db.engine().log.wal.as_ref().unwrap().segments().len()
}

fn frozen(db: &Db) -> usize {
    db.engine().cell.state.load().frozen.len()
}

fn freeze(db: &Db) {
    let _write = db.engine().commits.write.lock();
    db.engine().freeze();
}

struct Flush<'a>(&'a Engine);

impl<'a> Flush<'a> {
    fn begin(db: &'a Db) -> Flush<'a> {
        db.engine().maintenance.work.lock().flushing = true;
        Flush(db.engine())
    }
}

impl Drop for Flush<'_> {
    fn drop(&mut self) {
        self.0.maintenance.work.lock().flushing = false;
    }
}

/// Returns whether the database just became idle, and whether it is idle.
fn probe(db: &Db) -> (bool, bool) {
    let mut work = db.engine().maintenance.work.lock();
    let has_become = idle::detect_idle(db.engine(), &mut work);
    (has_become, work.idle)
}

#[test]
fn a_database_is_idle_once_nothing_was_committed_for_a_while() {
    let (_, clock, db) = world();
    let tree = db.tree("t").unwrap();
    assert_eq!(probe(&db), (false, false));
    clock.advance(IDLE_NS - 1);
    assert_eq!(probe(&db), (false, false));
    clock.advance(1);
    assert_eq!(probe(&db), (true, true));
    assert_eq!(probe(&db), (false, true), "it has become so once");
    tree.put(b"k", b"v").unwrap();
    assert_eq!(probe(&db), (false, false));
    clock.advance(IDLE_NS);
    assert_eq!(probe(&db), (true, true));
    db.flush().unwrap();
    assert_eq!(probe(&db), (false, false), "what a flush leaves behind is looked at as well");
}

#[test]
fn memory_is_kept_for_the_next_memtables_until_none_was_needed_for_long() {
    let (vfs, clock) = (FaultVfs::new(Path::new("/db")), Stopped::new());
    let settings = Settings {
        memory: 64 << 20,
        memtable_bytes: Some(8 << 20),
        log_segment_bytes: 1 << 20,
        runtime: Arc::clone(&clock) as Arc<dyn Runtime>,
        ..small(&fault(&vfs))
    };
    let db = open(settings).unwrap();
    let tree = db.tree("t").unwrap();
    let kept = || db.engine().tenant.common.chunk_pool.bytes();
    let fill = || {
        for row in 0..40_000u32 {
            tree.put(row.to_be_bytes(), [row as u8; 100]).unwrap();
        }
        db.flush().unwrap();
        crossbeam_epoch::pin().flush();
    };
    fill();
    assert!(kept() > 0, "nothing is kept");
    let look_after = |ns: u64| {
        clock.advance(ns);
        if probe(&db).0 {
            idle::settle(db.engine());
        }
        log_trim::maintain_log(db.engine());
    };
    look_after(0);
    look_after(MEMORY_KEPT_NS - 1);
    assert!(kept() > 0 && probe(&db).1, "it is idle, but not for long");
    fill();
    look_after(0);
    look_after(MEMORY_KEPT_NS - 1);
    assert!(kept() > 0, "there was something to be done meanwhile");
    look_after(1);
    assert_eq!(kept(), 0);
}

#[test]
fn a_database_is_not_idle_while_a_memtable_waits_for_its_flush() {
    let (_, clock, db) = world();
    let tree = db.tree("t").unwrap();
    probe(&db);
    freeze(&db);
    clock.advance(100 * SECOND_NS);
    assert_eq!(probe(&db), (false, false));
    flush::up_to(db.engine(), u64::MAX).unwrap();
    assert_eq!(probe(&db), (false, false));
    clock.advance(IDLE_NS);
    assert_eq!(probe(&db), (true, true));
    // An idle database stops being idle on a commit.
    tree.put(b"k", b"v").unwrap();
    probe(&db);
    clock.advance(IDLE_NS);
    assert_eq!(probe(&db), (true, true));
    freeze(&db);
    assert_eq!(probe(&db), (false, false));
}

#[test]
fn the_flusher_has_a_long_log_flushed_and_lets_go_of_it() {
    let (vfs, clock, db) = world();
    let mut count = fill(&db, LOG_SEGMENTS_MAX);
    log_trim::trim_log_as_flusher(db.engine()).unwrap();
    assert_eq!((segments(&db), db.stats().flushes), (LOG_SEGMENTS_MAX, 0), "that is not long");
    count = count.max(fill(&db, LOG_SEGMENTS_MAX + 3));
    log_trim::trim_log_as_flusher(db.engine()).unwrap();
    assert_eq!((segments(&db), frozen(&db), db.stats().flushes), (1, 0, 1));
    let again = open_on(&killed(&vfs), &clock);
    assert_eq!(again.stats().recovered_records, 0);
    assert_eq!(again.tree("t").unwrap().iter().count(), count as usize);
}

#[test]
fn the_flusher_lets_go_of_segments_with_nothing_left_to_flush() {
    let (mut vfs, clock, db) = world();
    db.tree("t").unwrap().put(b"k", b"v").unwrap();
    db.flush().unwrap();
    let opened: Vec<Db> = (0..LOG_SEGMENTS_MAX)
        .map(|_| {
            vfs = killed(&vfs);
            open_on(&vfs, &clock)
        })
        .collect();
    let db = opened.last().unwrap();
    assert_eq!(segments(db), LOG_SEGMENTS_MAX + 1);
    log_trim::trim_log_as_flusher(db.engine()).unwrap();
    assert_eq!((segments(db), db.stats().flushes), (1, 0));
    let again = open_on(&killed(&vfs), &clock);
    assert_eq!(again.tree("t").unwrap().get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

#[test]
fn a_log_of_which_all_is_flushed_is_short_while_nothing_is_committed() {
    let vfs = FaultVfs::new(Path::new("/db"));
    let settings = Settings {
        memtable_bytes: Some(64 << 20),
        log_segment_bytes: 64 << 20,
        blob_threshold: 1 << 20,
        compression: Compression::None,
        ..small(&fault(&vfs))
    };
    let db = open(settings.clone()).unwrap();
    let log_bytes = || {
        let files = vfs.list(Path::new("/db")).unwrap();
        files.iter().filter(|file| file.name.ends_with(".wal")).map(|file| file.len).sum::<u64>()
    };
    assert_eq!(log_bytes(), 1 << 20);
    let tree = db.tree("t").unwrap();
    let put = |rows: std::ops::Range<u32>| {
        rows.for_each(|row| assert!(tree.put(row.to_be_bytes(), vec![7; 200 << 10]).is_ok()));
    };
    put(0..4);
    idle::settle(db.engine());
    assert_eq!(log_bytes(), 1 << 20, "it is short, whatever is in it");
    put(4..30);
    idle::settle(db.engine());
    assert_eq!(log_bytes(), 7 << 20, "each segment has twice the length of the one before; nothing is flushed");
    db.flush().unwrap();
    idle::settle(db.engine());
    assert_eq!(log_bytes(), 1 << 20);
    put(30..32);
    let again = open(Settings { vfs: fault(&killed(&vfs)), ..settings }).unwrap();
    assert_eq!((again.stats().recovered_records, again.tree("t").unwrap().iter().count()), (2, 32));
}

#[test]
fn the_flusher_waits_for_no_writer() {
    let (_, _, db) = world();
    fill(&db, LOG_SEGMENTS_MAX + 1);
    let write = db.engine().commits.write.lock();
    let engine = Arc::clone(db.engine());
    bounded("trimming the log", move || log_trim::trim_log_as_flusher(&engine)).unwrap();
    drop(write);
    assert_eq!((segments(&db), frozen(&db), db.stats().flushes), (LOG_SEGMENTS_MAX + 1, 0, 0));
}

#[test]
fn the_flusher_waits_for_no_flush_and_freezes_no_more_meanwhile() {
    let (_, _, db) = world();
    fill(&db, LOG_SEGMENTS_MAX + 1);
    freeze(&db);
    let flush = Flush::begin(&db);
    db.tree("t").unwrap().put(b"k", b"v").unwrap();
    let engine = Arc::clone(db.engine());
    bounded("trimming the log", move || log_trim::trim_log_as_flusher(&engine)).unwrap();
    assert_eq!((segments(&db), frozen(&db), db.stats().flushes), (LOG_SEGMENTS_MAX + 1, 1, 0));
    drop(flush);
    log_trim::trim_log_as_flusher(db.engine()).unwrap();
    assert_eq!((frozen(&db), db.stats().flushes), (0, 1));
}

#[test]
fn the_flusher_tries_again_after_a_full_disk_and_not_after_a_failed_sync() {
    let (vfs, clock, db) = world();
    fill(&db, LOG_SEGMENTS_MAX + 1);
    // Twice: a job is retried after spare log segments are freed.
    vfs.fail(Operation::Create, 0, 2, io::ErrorKind::StorageFull);
    log_trim::trim_log_as_flusher(db.engine()).unwrap();
    assert_eq!((segments(&db), frozen(&db)), (LOG_SEGMENTS_MAX + 1, 1));
    log_trim::trim_log_as_flusher(db.engine()).unwrap();
    assert_eq!((frozen(&db), db.stats().flushes), (1, 0));
    clock.advance(RETRY_NS);
    log_trim::trim_log_as_flusher(db.engine()).unwrap();
    assert_eq!((segments(&db), frozen(&db)), (1, 0));
    fill(&db, LOG_SEGMENTS_MAX + 1);
    vfs.fail(Operation::Sync, 0, 1, io::ErrorKind::Other);
    let error = log_trim::trim_log_as_flusher(db.engine()).unwrap_err();
    assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
}

#[test]
fn a_merge_that_finds_no_space_does_not_keep_a_flush_waiting() {
    let (vfs, clock, db) = world();
    let tree = db.tree("t").unwrap();
    for part in 0..4 {
        for row in 0..200 {
            tree.put(format!("{:05}", 4 * row + part), [7; 50]).unwrap();
        }
        db.flush().unwrap();
    }
    let runs = || db.stats().partitions.iter().map(|p| p.runs.len() + p.loose.len()).sum::<usize>();
    clock.advance(IDLE_NS);
    probe(&db);
    clock.advance(IDLE_NS);
    assert_eq!(probe(&db), (true, true));
    vfs.fail(Operation::Create, 0, 2, io::ErrorKind::StorageFull);
    background::run_inline(db.engine(), &mut |_, _| ());
    assert_eq!((runs(), db.stats().background_errors), (4, 1), "the merge was refused");
    tree.put(b"k", b"v").unwrap();
    freeze(&db);
    let flushes = db.stats().flushes;
    // The flush has its file; its success does not end the delay of the merge.
    vfs.fail(Operation::Create, 1, u32::MAX, io::ErrorKind::StorageFull);
    background::run_inline(db.engine(), &mut |_, _| ());
    assert_eq!((frozen(&db), db.stats().flushes, db.stats().background_errors), (0, flushes + 1, 1));
}

#[test]
fn what_lies_in_pieces_is_merged_into_one_run_once_idle() {
    let (_, clock, db) = world();
    let tree = db.tree("t").unwrap();
    let put = |row: u32, end: &str| {
        tree.put(format!("{row:05}{end}"), [7; 50]).unwrap();
    };
    for part in 0..4 {
        (0..200).for_each(|row| put(4 * row + part, ""));
        db.flush().unwrap();
    }
    let runs = || db.stats().partitions.iter().map(|p| p.runs.len() + p.loose.len()).collect::<Vec<_>>();
    assert_eq!(runs(), [4]);
    background::run_inline(db.engine(), &mut |_, _| ());
    assert_eq!(runs(), [4], "it is not idle yet");
    assert_eq!(probe(&db), (false, false));
    clock.advance(IDLE_NS);
    assert_eq!(probe(&db), (true, true));
    background::run_inline(db.engine(), &mut |_, _| ());
    assert_eq!(runs(), [1]);
    assert_eq!(tree.range(..).count(), 800);

    // New data is smaller than the partition: it is folded, not merged.
    (0..200).for_each(|row| put(4 * row, "a"));
    db.flush().unwrap();
    assert_eq!(probe(&db), (false, false));
    clock.advance(IDLE_NS);
    assert_eq!(probe(&db), (true, true));
    background::run_inline(db.engine(), &mut |_, _| ());
    assert_eq!(runs(), [2]);
}
