//! Long-lived readers are reported, expire on time, release their versions, and never return wrong
//! data.

use crate::{
    base::{Error, ReaderKind, Result, SequenceNumber},
    db::{
        Cursor, Db, Durability, Settings, Snapshot, Tree, Value,
        engine::slow_commits::timer::CommitTimer,
        read::reader_registry,
        tests_common::{Clock, DIR, SECOND_NS, bounded, mem, open, small},
        write::conflict_window,
    },
    platform::{OpenMode, Runtime, Vfs},
    read::GROUP_KEYS,
    txn::{Check, ReadSet, Validation},
};
use std::{
    fmt::{Debug, Write},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

const WARN_NS: u64 = 10 * SECOND_NS;
const MAX_NS: u64 = 60 * SECOND_NS;

fn settings(clock: &Arc<Clock>) -> Settings {
    let runtime = Arc::clone(clock) as Arc<dyn Runtime>;
    Settings { reader_age_warn_ns: WARN_NS, reader_age_max_ns: MAX_NS, runtime, ..small(&mem()) }
}

fn world() -> (Arc<Clock>, Db, Tree) {
    let clock = Clock::new();
    let db = open(settings(&clock)).unwrap();
    let tree = db.tree("t").unwrap();
    (clock, db, tree)
}

fn key(number: u64) -> [u8; 4] {
    (number as u32).to_be_bytes()
}

fn write_all(db: &Db, tree: &Tree, count: u64, value: &[u8]) {
    let mut batch = db.batch();
    for number in 0..count {
        batch.put(tree, key(number), value);
    }
    batch.commit_with(Durability::Buffered).unwrap();
}

#[track_caller]
fn expired<R: Debug>(result: Result<R>) -> (ReaderKind, SequenceNumber) {
    let error = result.unwrap_err();
    assert!(error.is_reader_expired() && error.is_retryable() && !error.is_conflict(), "{error}");
    match error {
        Error::ReaderExpired { kind, sequence, .. } => (kind, sequence),
        error => panic!("{error}"),
    }
}

fn entries(db: &Db) -> u64 {
    db.stats().partitions.iter().flat_map(|p| p.runs.iter().chain(&p.loose)).map(|run| run.entries).sum()
}

#[test]
fn every_kind_of_reader_expires_past_the_limit_and_not_at_it() {
    let (clock, db, tree) = world();
    write_all(&db, &tree, 200, b"old");
    let sequence = db.stats().last_sequence;
    let snapshot = db.snapshot();
    let copy = snapshot.clone();
    let (mut own, mut of_snapshot) = (tree.cursor(), snapshot.cursor(&tree));
    let (mut begun, mut fresh, mut derived) = (tree.iter(), tree.iter(), snapshot.iter(&tree));
    let tx = db.begin().unwrap();
    tx.put(&tree, key(999), b"own").unwrap();
    let (mut tx_rows, of_tx) = (tx.iter(&tree), tx.snapshot());
    write_all(&db, &tree, 200, b"new");

    clock.advance(MAX_NS);
    db.compact().unwrap();
    let old = |value: Option<Value>| assert_eq!(value.as_deref(), Some(&b"old"[..]));
    for snapshot in [&snapshot, &copy, &of_tx] {
        old(snapshot.get(&tree, key(7)).unwrap());
    }
    assert!(own.seek(key(7)).unwrap() && of_snapshot.seek_last().unwrap());
    assert_eq!((own.value().unwrap(), of_snapshot.value().unwrap()), (&b"old"[..], &b"old"[..]));
    old(begun.next().map(|row| row.unwrap().1));
    old(derived.next_back().map(|row| row.unwrap().1));
    old(tx_rows.next().map(|row| row.unwrap().1));
    old(tx.get(&tree, key(7)).unwrap());
    assert_eq!((db.stats().readers_expired, db.stats().snapshots), (0, 5));

    clock.advance(1);
    db.compact().unwrap();
    assert_eq!((db.stats().readers_expired, db.stats().snapshots), (5, 0));
    let of = |kind| (kind, sequence);
    for snapshot in [&snapshot, &copy] {
        assert_eq!(expired(snapshot.get(&tree, key(7))), of(ReaderKind::Snapshot));
        assert_eq!(expired(snapshot.get_with(&tree, key(7), |_| ())), of(ReaderKind::Snapshot));
        assert_eq!(expired(snapshot.get_versioned(&tree, key(7))), of(ReaderKind::Snapshot));
        assert_eq!(expired(snapshot.contains(&tree, key(7))), of(ReaderKind::Snapshot));
        assert_eq!(expired(snapshot.multi_get(&tree, &[key(7)])), of(ReaderKind::Snapshot));
        assert_eq!(expired(snapshot.iter(&tree).next().unwrap()), of(ReaderKind::Snapshot));
        assert_eq!(expired(snapshot.cursor(&tree).seek_first()), of(ReaderKind::Snapshot));
    }
    assert_eq!(own.value().unwrap(), b"old", "the row that it stands on is shown");
    assert_eq!(expired(own.seek(key(7))), of(ReaderKind::Cursor));
    assert_eq!(expired(own.next()), of(ReaderKind::Cursor));
    assert_eq!(expired(of_snapshot.seek_first()), of(ReaderKind::Snapshot));
    assert_eq!(expired(fresh.next().unwrap()), of(ReaderKind::Iterator));
    assert!(fresh.next().is_none());
    assert_eq!(expired(of_tx.get(&tree, key(7))), of(ReaderKind::Transaction));
    assert_eq!(expired(tx_rows.next().unwrap()), of(ReaderKind::Transaction));
    drop(tx_rows);
    for number in [7, 999] {
        assert_eq!(expired(tx.get(&tree, key(number))), of(ReaderKind::Transaction));
        assert_eq!(expired(tx.contains(&tree, key(number))), of(ReaderKind::Transaction));
    }
    assert_eq!(expired(tx.commit()), of(ReaderKind::Transaction));
    assert_eq!(tree.get(key(999)).unwrap(), None);
    // Rows decoded before the expiry may still be returned.
    let rest: Vec<_> = begun.collect();
    let (last, before) = rest.split_last().unwrap();
    assert!(before.len() < 70 && before.iter().all(|row| &*row.as_ref().unwrap().1 == b"old"), "{}", before.len());
    assert!(last.as_ref().unwrap_err().is_reader_expired());
    own.refresh();
    assert!(own.seek(key(7)).unwrap());
    assert_eq!(own.value().unwrap(), b"new");
    assert_eq!(db.snapshot().get(&tree, key(7)).unwrap().as_deref(), Some(&b"new"[..]));
}

#[test]
fn without_a_limit_nothing_expires_and_the_message_of_the_error_says_what_to_do() {
    let clock = Clock::new();
    let db = open(Settings { reader_age_max_ns: u64::MAX, ..settings(&clock) }).unwrap();
    let tree = db.tree("t").unwrap();
    tree.put(b"k", b"v").unwrap();
    let snapshot = db.snapshot();
    tree.delete(b"k").unwrap();
    clock.advance(1 << 60);
    db.compact().unwrap();
    assert_eq!(snapshot.get(&tree, b"k").unwrap().as_deref(), Some(&b"v"[..]));
    let (clock, db, tree) = world();
    let snapshot = db.snapshot();
    clock.advance(MAX_NS + 1_500_000_000);
    db.flush().unwrap();
    assert_eq!(
        snapshot.get(&tree, b"k").unwrap_err().to_string(),
        "a snapshot at commit 1 was in use for 61.5s, longer than `reader_age_max` allows: take a new one, and read in \
         smaller pieces or raise the limit"
    );
}

/// A refreshed cursor is young, even without commits and with the same number.
#[test]
fn a_cursor_that_is_refreshed_does_not_grow_old_where_nothing_is_committed() {
    let (clock, db, tree) = world();
    write_all(&db, &tree, 10, b"v");
    let mut cursor = tree.cursor();
    for _ in 0..5 {
        clock.advance(MAX_NS / 2);
        cursor.refresh();
        db.flush().unwrap();
        assert!(cursor.seek_first().unwrap());
    }
    assert_eq!(db.stats().readers_expired, 0);
}

#[test]
fn what_an_expired_reader_held_is_merged_away() {
    let (clock, db, tree) = world();
    write_all(&db, &tree, 300, &[1; 40]);
    let snapshot = db.snapshot();
    write_all(&db, &tree, 300, &[2; 40]);
    db.compact().unwrap();
    assert_eq!((entries(&db), db.stats().dead_entries_held), (600 + 2, 300), "and the catalog's");
    clock.advance(MAX_NS + 1);
    // A flush checks readers; the merge then ignores the snapshot.
    write_all(&db, &tree, 1, &[3; 40]);
    db.compact().unwrap();
    assert_eq!((entries(&db), db.stats().dead_entries_held), (300 + 2, 0));
    expired(snapshot.get(&tree, key(1)));
    assert_eq!(tree.get(key(1)).unwrap().as_deref(), Some(&[2; 40][..]));
}

/// An expired cursor keeps its files while it may be on a row, until its next call.
#[test]
fn an_expired_cursor_lets_go_of_its_files_when_it_is_told() {
    let (clock, db, tree) = world();
    write_all(&db, &tree, 300, &[1; 40]);
    db.compact().unwrap();
    let (mut cursor, mut rows) = (tree.cursor(), tree.iter());
    assert!(cursor.seek(key(5)).unwrap());
    assert!(rows.next().is_some() && rows.next_back().is_some());
    write_all(&db, &tree, 300, &[2; 40]);
    clock.advance(MAX_NS + 1);
    let after_merge = || {
        tree.put(key(1), [3; 40]).unwrap();
        db.compact().unwrap();
        db.stats().disk_bytes
    };
    let held = after_merge();
    let stats = db.stats();
    assert!(stats.overstaying.len() == 2 && stats.overstaying.iter().all(|reader| reader.is_expired), "{stats:?}");
    assert_eq!(cursor.row().unwrap(), (&key(5)[..], &[1; 40][..]));
    expired(cursor.seek(key(5)));
    assert!(!cursor.is_on_row());
    assert!(rows.any(|row| row.is_err()));
    let free = after_merge();
    assert!(free + 1000 < held, "{free} of {held} bytes are left");
    drop((cursor, rows));
    assert!(after_merge() + 1000 > free, "nothing more was kept by them");
    assert_eq!(db.stats().overstaying, []);
}

/// A cursor that loads a newer state must check for expiry.
#[test]
fn a_cursor_that_looks_for_a_newer_state_finds_that_it_has_expired() {
    for forward in [true, false] {
        let (clock, db, tree) = world();
        write_all(&db, &tree, 3000, b"old");
        db.compact().unwrap();
        let mut cursor = tree.cursor();
        let step = |cursor: &mut Cursor| if forward { cursor.next() } else { cursor.prev() };
        for _ in 0..1025 {
            assert!(step(&mut cursor).unwrap());
        }
        write_all(&db, &tree, 3000, b"new");
        clock.advance(MAX_NS + 1);
        db.compact().unwrap();
        let mut at = 1024;
        let ended = loop {
            assert_eq!(cursor.row().unwrap(), (&key(if forward { at } else { 2999 - at })[..], &b"old"[..]));
            at += 1;
            match step(&mut cursor) {
                Ok(is_there) => assert!(is_there && at < 1100, "row {at}"),
                error => break error,
            }
        };
        expired(ended);
        expired(step(&mut cursor));
    }
}

/// The same for a cursor that restarts after damage to a view.
#[test]
fn a_cursor_that_heals_finds_that_it_has_expired() {
    let vfs = mem();
    let clock = Clock::new();
    let of_vfs = || Settings { partition_bytes: Some(1 << 30), vfs: Arc::clone(&vfs), ..settings(&clock) };
    let db = open(of_vfs()).unwrap();
    let tree = db.tree("t").unwrap();
    for number in 0..4_000 {
        tree.put(key(number * 7 % 4_000), [7; 40]).unwrap();
    }
    drop(tree);
    db.close().unwrap();
    damage_view(&vfs);
    let db = open(of_vfs()).unwrap();
    let tree = db.tree("t").unwrap();
    let mut cursor = tree.cursor();
    let (engine, has_expired) = (Arc::clone(db.engine()), Arc::new(AtomicBool::new(false)));
    let expire = {
        let has_expired = Arc::clone(&has_expired);
        move |event: &str| {
            if event.contains("a view is damaged") {
                clock.advance(MAX_NS + 1);
                engine.readers.snapshots.check_ages(clock.monotonic_ns(), WARN_NS, MAX_NS);
                has_expired.store(true, Ordering::Relaxed);
            }
        }
    };
    tracing::subscriber::with_default(Listener::new(expire), || {
        for passed in 0.. {
            let moved = cursor.next();
            if has_expired.load(Ordering::Relaxed) {
                expired(moved);
                return;
            }
            assert!(moved.unwrap(), "the damage was never met");
            assert_eq!(cursor.key(), key(passed));
        }
    });
}

fn damage_view(vfs: &Arc<dyn Vfs>) {
    let files = vfs.list(Path::new(DIR)).unwrap();
    let view = files.iter().find(|file| file.name.ends_with(".view")).expect("rows of many memtables are in a view");
    let file = vfs.open(&Path::new(DIR).join(&view.name), OpenMode::ReadWrite).unwrap();
    let damaged_at = 4096 + 4096 * ((file.len().unwrap() / 4096) / 2 - 1) + 100;
    let mut byte = [0];
    file.read_exact_at(&mut byte, damaged_at).unwrap();
    file.write_at(&[byte[0] ^ 1], damaged_at).unwrap();
}

/// Each group of keys uses the state at its lookup.
#[test]
fn a_lookup_of_many_keys_expires_between_its_groups() {
    let (clock, db, tree) = world();
    let count = 3 * GROUP_KEYS as u64;
    let keys: Vec<_> = (0..count).map(key).collect();
    for kind in [ReaderKind::Snapshot, ReaderKind::MultiGet] {
        write_all(&db, &tree, count, b"old");
        db.compact().unwrap();
        let snapshot = db.snapshot();
        let mut shown = 0;
        let show = |index: usize, value: Option<&[u8]>| {
            assert_eq!(value, Some(&b"old"[..]), "{kind}, key {index}");
            shown += 1;
            if index == 3 {
                write_all(&db, &tree, count, b"new");
                clock.advance(MAX_NS + 1);
                db.compact().unwrap();
            }
        };
        let done = match kind {
            ReaderKind::Snapshot => snapshot.multi_get_with(&tree, &keys, show),
            _ => tree.multi_get_with(&keys, show),
        };
        assert_eq!(expired(done).0, kind);
        assert_eq!(shown, GROUP_KEYS, "those of the group that had been begun are shown");
    }
}

#[test]
fn a_transaction_that_has_expired_is_not_committed_unless_it_writes_nothing() {
    let (clock, db, tree) = world();
    write_all(&db, &tree, 10, b"old");
    let (reads, blind, writes) = (db.begin().unwrap(), db.begin().unwrap(), db.begin().unwrap());
    for tx in [&reads, &writes] {
        assert_eq!(tx.get(&tree, key(1)).unwrap().as_deref(), Some(&b"old"[..]));
    }
    for tx in [&blind, &writes] {
        tx.put(&tree, key(2), b"mine").unwrap();
    }
    clock.advance(MAX_NS + 1);
    db.flush().unwrap();
    reads.commit().expect("all that it has read was so at one moment");
    expired(blind.commit());
    expired(writes.commit());
    assert_eq!(tree.get(key(2)).unwrap().as_deref(), Some(&b"old"[..]));
    let alone = db.begin_exclusive().unwrap();
    alone.put(&tree, key(2), b"mine").unwrap();
    clock.advance(MAX_NS + 1);
    reader_registry::check(db.engine());
    expired(alone.commit());
    tree.put(key(2), b"later").unwrap();
}

/// Merges keep the tombstone of a deleted key only for older readers. An expired reader must not
/// conclude that the key is unchanged.
#[test]
fn a_check_of_what_is_stored_asks_whether_it_is_still_held() {
    let (clock, db, tree) = world();
    write_all(&db, &tree, 10, b"v");
    let tx = db.begin().unwrap();
    let mut reads = ReadSet::default();
    reads.add_key(&[&tree.state().id.first_key()[..], b"k"].concat());
    let mut check = Check::new(reads, tx.sequence(), Some(*tx.hold().held()));
    tree.put(b"k", b"v").unwrap();
    tree.delete(b"k").unwrap();
    let bytes = db.engine().settings.window_bytes();
    for number in 0..2 * bytes / 20_000 {
        tree.put([&[7; 20_000][..], &key(number as u64)].concat(), b"").unwrap();
    }
    assert_eq!(check.precheck(&db.engine().commits.window), Validation::TooOld);
    clock.advance(MAX_NS + 1);
    db.compact().unwrap();
    expired(conflict_window::precheck(db.engine(), &mut CommitTimer::begin(db.engine()), &mut check));
}

#[test]
fn an_update_begins_anew_after_it_has_expired_but_not_for_ever() {
    let (clock, db, tree) = world();
    tree.put(b"k", [0]).unwrap();
    let mut runs = 0;
    let update = |slow_runs: u32, runs: &mut u32| {
        db.update(|tx| {
            *runs += 1;
            let value = tx.get(&tree, b"k")?.map_or(0, |v| v[0]);
            if *runs <= slow_runs {
                clock.advance(MAX_NS + 1);
                db.flush()?;
            }
            tx.put(&tree, b"k", [value + 1])
        })
    };
    update(2, &mut runs).unwrap();
    assert_eq!((runs, tree.get(b"k").unwrap().as_deref()), (3, Some(&[1][..])));
    runs = 0;
    expired(update(u32::MAX, &mut runs));
    assert_eq!((runs, tree.get(b"k").unwrap().as_deref()), (4, Some(&[1][..])));
    assert_eq!(db.stats().snapshots, 0);
}

#[test]
fn the_statistics_name_the_oldest_readers() {
    let (clock, db, tree) = world();
    write_all(&db, &tree, 100, b"1");
    let first = db.stats().last_sequence;
    let snapshot = db.snapshot();
    let _of_snapshot = (snapshot.clone(), snapshot.cursor(&tree), snapshot.iter(&tree));
    clock.advance(SECOND_NS);
    write_all(&db, &tree, 100, b"2");
    let cursor = tree.cursor();
    write_all(&db, &tree, 100, b"3");
    db.compact().unwrap();
    clock.advance(WARN_NS - SECOND_NS - 1);
    let stats = db.stats();
    assert_eq!((stats.snapshots, stats.oldest_snapshot, stats.overstaying.len()), (2, Some(first), 0));
    assert_eq!(stats.oldest_snapshot_age_us, Some((WARN_NS - 1) / 1000));
    assert_eq!(stats.dead_entries_held, 200);
    clock.advance(1);
    let reported = |db: &Db| -> Vec<_> {
        let readers = db.stats().overstaying;
        let reported = |r: &crate::db::ReaderStats| {
            (r.kind, r.sequence - first, r.age_us / 1_000_000, r.commits_behind, r.dead_entries_held, r.is_expired)
        };
        readers.iter().map(reported).collect()
    };
    assert_eq!(reported(&db), [(ReaderKind::Snapshot, 0, 10, 2, 200, false)]);
    clock.advance(SECOND_NS);
    let of_cursor = (ReaderKind::Cursor, 1, 10, 1, 200, false);
    assert_eq!(reported(&db), [(ReaderKind::Snapshot, 0, 11, 2, 200, false), of_cursor]);
    // The snapshot expires; the cursor still pins the number above.
    clock.advance(MAX_NS - 11 * SECOND_NS + 1);
    db.flush().unwrap();
    let of_cursor = (ReaderKind::Cursor, 1, 59, 1, 100, false);
    assert_eq!(reported(&db), [of_cursor, (ReaderKind::Snapshot, 0, 60, 2, 0, true)]);
    assert_eq!((db.stats().oldest_snapshot, db.stats().readers_expired), (Some(first + 1), 1));
    drop(cursor);
    let many: Vec<Snapshot> = (0..50).map(|_| db.snapshot()).collect();
    clock.advance(WARN_NS);
    assert_eq!((reported(&db).len(), db.stats().snapshots), (9, 50));
    drop((many, snapshot, _of_snapshot));
    let stats = db.stats();
    assert_eq!((stats.snapshots, stats.oldest_snapshot_age_us, stats.overstaying.len()), (0, None, 0));
}

struct Listener<F>(F);

impl<F: Fn(&str) + Send + Sync + 'static> Listener<F> {
    fn new(listen: F) -> Listener<F> {
        Listener(listen)
    }
}

struct Text(String);

impl tracing::field::Visit for Text {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl<F: Fn(&str) + Send + Sync + 'static> tracing::Subscriber for Listener<F> {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        (self.0)(&text.0);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn each_reader_is_told_of_once_when_it_is_old_and_once_when_it_expires() {
    let (clock, db, tree) = world();
    let reported = Arc::new(Mutex::new(Vec::new()));
    let of_readers = {
        let reported = Arc::clone(&reported);
        move |event: &str| {
            if event.contains("a reader has") {
                reported.lock().unwrap().push(event.trim_end().to_owned());
            }
        }
    };
    tracing::subscriber::with_default(Listener::new(of_readers), || {
        let take = || std::mem::take(&mut *reported.lock().unwrap());
        let _snapshot = db.snapshot();
        clock.advance(WARN_NS - 1);
        tree.put(b"k", b"v").unwrap();
        assert_eq!(take(), [""; 0]);
        // Commits check readers at most once a second.
        clock.advance(1);
        tree.put(b"k", b"v").unwrap();
        assert_eq!(take(), [""; 0]);
        clock.advance(SECOND_NS);
        tree.put(b"k", b"v").unwrap();
        let long = "message=a reader has been in use for long; what was overwritten since it began cannot be removed";
        assert_eq!(take(), [format!("{long} kind=snapshot sequence=1 age_s=11 commits_behind=3 dead_entries=0")]);
        let _cursor = tree.cursor();
        for _ in 0..4 {
            clock.advance(WARN_NS);
            tree.put(b"k", b"v").unwrap();
            db.compact().unwrap();
        }
        let once = take();
        assert_eq!(once, [format!("{long} kind=cursor sequence=4 age_s=10 commits_behind=1 dead_entries=0")]);
        clock.advance(WARN_NS);
        for _ in 0..3 {
            tree.put(b"k", b"v").unwrap();
        }
        let gone = "message=a reader has expired; its next read fails";
        assert_eq!(take(), [format!("{gone} kind=snapshot sequence=1 age_s=61 commits_behind=8")]);
    });
}

/// With background threads, one checks readers without any calls.
#[test]
fn a_thread_looks_at_readers_where_there_are_threads() {
    bounded("the look", || {
        let clock = Clock::new();
        let db = open(Settings { background_threads: 1, ..settings(&clock) }).unwrap();
        let tree = db.tree("t").unwrap();
        tree.put(b"k", b"v").unwrap();
        let snapshot = db.snapshot();
        clock.advance(MAX_NS + 1);
        while db.stats().readers_expired == 0 {
            clock.advance(SECOND_NS);
            std::thread::yield_now();
        }
        expired(snapshot.get(&tree, b"k"));
    });
}

const KEYS: u64 = 1400;
/// Each commit writes every 50th key, from an offset given by its number.
const STRIDE: u64 = 50;

/// Returns a key's value after commit `number`: short, in a blob, or none.
fn left(number: u64, of_key: u64) -> Option<Vec<u8>> {
    let wrote = number - (number + STRIDE - of_key % STRIDE) % STRIDE;
    let value = [wrote.to_be_bytes(), of_key.to_be_bytes()].concat();
    (!(wrote + of_key).is_multiple_of(3)).then(|| value.repeat(if of_key.is_multiple_of(7) { 20 } else { 2 }))
}

struct Race {
    clock: Arc<Clock>,
    db: Db,
    tree: Tree,
    first: u64,
    is_over: AtomicBool,
    answers: AtomicU64,
    refusals: AtomicU64,
}

impl Race {
    fn new() -> Race {
        let clock = Clock::new();
        let db = open(Settings { reader_age_max_ns: SECOND_NS, ..settings(&clock) }).unwrap();
        let tree = db.tree("t").unwrap();
        let mut batch = db.batch();
        for of_key in 0..KEYS {
            if let Some(value) = left(STRIDE, of_key) {
                batch.put(&tree, key(of_key), value);
            }
        }
        let first = STRIDE - batch.commit_with(Durability::Buffered).unwrap();
        let (is_over, answers, refusals) = Default::default();
        Race { clock, db, tree, first, is_over, answers, refusals }
    }

    fn write(&self, commits: u64) {
        for number in STRIDE + 1..=STRIDE + commits {
            let mut batch = self.db.batch();
            for of_key in (number % STRIDE..KEYS).step_by(STRIDE as usize) {
                match left(number, of_key) {
                    Some(value) => batch.put(&self.tree, key(of_key), value),
                    None => batch.delete(&self.tree, key(of_key)),
                };
            }
            let sequence = batch.commit_with(Durability::Buffered).unwrap();
            assert_eq!(sequence + self.first, number);
            if number.is_multiple_of(3) {
                // All readers expire, and their versions are dropped at once.
                self.clock.advance(SECOND_NS + 1);
                self.db.compact().unwrap();
            }
        }
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn expire(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            self.clock.advance(SECOND_NS * 2 / 3);
            reader_registry::check(self.db.engine());
            std::thread::yield_now();
        }
    }

    /// Returns whether a reader may continue: an answer must be right, or that it expired.
    #[track_caller]
    fn check<T: Debug + PartialEq>(&self, answer: Result<T>, expected: T) -> bool {
        match answer {
            Ok(answer) => {
                assert_eq!(answer, expected);
                self.answers.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(error) => {
                assert!(error.is_reader_expired(), "{error}");
                self.refusals.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    fn read(&self, mut seed: u64) {
        while !self.is_over.load(Ordering::Relaxed) {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            match seed >> 61 {
                0 | 1 => self.read_points(seed >> 20),
                2 | 3 => self.read_rows(seed & 1 == 0),
                4 => self.read_pairs(seed & 1 == 0),
                5 => self.read_in_transaction(seed >> 20),
                _ => self.read_groups(),
            }
        }
    }

    fn read_points(&self, from: u64) {
        let snapshot = self.db.snapshot();
        let number = snapshot.sequence() + self.first;
        for of_key in (from..from + 5000).map(|n| n * 37 % KEYS) {
            let value = snapshot.get(&self.tree, key(of_key)).map(|value| value.map(Vec::from));
            let is_there = snapshot.contains(&self.tree, key(of_key));
            let expected = left(number, of_key);
            if !self.check(is_there, expected.is_some()) || !self.check(value, expected) {
                break;
            }
        }
    }

    fn read_rows(&self, forward: bool) {
        let mut cursor = self.tree.cursor();
        let number = cursor.snapshot_sequence() + self.first;
        let keys = (0..KEYS).map(|k| if forward { k } else { KEYS - 1 - k });
        let rows = keys.filter_map(|of_key| left(number, of_key).map(|value| (key(of_key).to_vec(), value)));
        for row in rows.map(Some).chain([None]) {
            let moved = if forward { cursor.next() } else { cursor.prev() };
            let found = moved.and_then(|is_there| match is_there {
                true => cursor.row().map(|(key, value)| Some((key.to_vec(), value.to_vec()))),
                false => Ok(None),
            });
            if !self.check(found, row) {
                break;
            }
        }
    }

    fn read_pairs(&self, forward: bool) {
        let snapshot = self.db.snapshot();
        let mut pairs = snapshot.iter(&self.tree);
        let number = snapshot.sequence() + self.first;
        let keys = (0..KEYS).map(|k| if forward { k } else { KEYS - 1 - k });
        for (of_key, value) in keys.filter_map(|of_key| left(number, of_key).map(|value| (of_key, value))) {
            let pair = if forward { pairs.next() } else { pairs.next_back() };
            let pair = pair.expect("there are more").map(|(key, value)| (key.to_vec(), value.to_vec()));
            if !self.check(pair, (key(of_key).to_vec(), value)) {
                break;
            }
        }
    }

    fn read_in_transaction(&self, from: u64) {
        let tx = self.db.begin().unwrap();
        let number = tx.sequence() + self.first;
        for of_key in (from..from + 2000).map(|n| n * 37 % KEYS) {
            let value = tx.get(&self.tree, key(of_key)).map(|value| value.map(Vec::from));
            let pair = tx.range(&self.tree, key(of_key)..=key(of_key)).next().transpose();
            let expected = left(number, of_key);
            let pair = pair.map(|pair| pair.map(|(_, value)| value.to_vec()));
            if !self.check(value, expected.clone()) || !self.check(pair, expected) {
                break;
            }
        }
    }

    fn read_groups(&self) {
        let keys: Vec<_> = (0..KEYS).map(key).collect();
        let snapshot = self.db.snapshot();
        let number = snapshot.sequence() + self.first;
        let mut of_key = 0;
        let done = snapshot.multi_get_with(&self.tree, &keys, |index, value| {
            assert_eq!((index as u64, value.map(<[u8]>::to_vec)), (of_key, left(number, of_key)));
            of_key += 1;
        });
        self.check(done, ());
    }
}

/// Readers race their expiry, commits and merges: each answer matches its snapshot, or reports the
/// expiry.
#[test]
fn no_reader_that_races_its_expiry_ever_shows_what_is_not_so() {
    let commits = if cfg!(debug_assertions) { 400 } else { 2000 };
    bounded("the race", move || {
        let race = Race::new();
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let race = &race;
                scope.spawn(move || race.read(seed));
            }
            scope.spawn(|| race.expire());
            race.write(commits);
        });
        let (answers, refusals) = (race.answers.into_inner(), race.refusals.into_inner());
        println!("{answers} answers, {refusals} refusals");
        assert!(answers > 1000 && refusals > 10, "{answers} answers, {refusals} refusals");
        assert_eq!(race.db.stats().snapshots, 0);
        assert!(race.db.verify().unwrap().problems.is_empty());
    });
}
