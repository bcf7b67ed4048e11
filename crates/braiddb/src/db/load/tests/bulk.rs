//! Bulk loads: their visibility, and the cleanup of failed ones.

use crate::{
    base::Error,
    db::{
        BulkOptions, BulkProgress, Change, Db, Durability, Follower, Gap, Loaded, Settings, TreeOptions, WatchOptions,
        tests_common::{Clock, DIR, SECOND_NS, bounded, fault, killed, mem, open, small},
    },
    platform::{
        Vfs,
        fault_vfs::{FaultVfs, Operation},
    },
};
use std::{collections::BTreeMap, io, path::Path, sync::Arc, time::Duration};

fn key(number: u32) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

fn value(number: u32, tag: u8) -> Vec<u8> {
    let len = if number.is_multiple_of(50) { 900 } else { 20 + number as usize % 60 };
    (0..len).map(|at| (number as usize + at) as u8 ^ tag).collect()
}

fn records(numbers: impl Iterator<Item = u32>, tag: u8) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    numbers.map(move |number| (key(number), value(number, tag)))
}

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn contents(tree: &crate::db::Tree) -> Contents {
    tree.iter().map(|pair| pair.unwrap()).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn check(db: &Db, expected: &Contents) {
    let tree = db.tree("t").unwrap();
    let found = contents(&tree);
    assert_eq!(found.len(), expected.len());
    assert!(found == *expected);
    let backward: Vec<Vec<u8>> = tree.iter().rev().map(|pair| pair.unwrap().0.to_vec()).collect();
    assert!(backward.iter().rev().eq(expected.keys()));
    for number in (0..4000).step_by(37) {
        let key = key(number);
        assert_eq!(tree.get(&key).unwrap().as_deref(), expected.get(&key).map(Vec::as_slice), "{number}");
    }
    let report = db.verify().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

fn files(vfs: &Arc<dyn Vfs>, extension: &str) -> usize {
    vfs.list(Path::new(DIR)).unwrap().iter().filter(|entry| entry.name.ends_with(extension)).count()
}

#[test]
fn bulk_load_is_visible_whole_and_after_reopen() {
    for background_threads in [0, 2] {
        let vfs = mem();
        let settings = || Settings { background_threads, ..small(&vfs) };
        let db = open(settings()).unwrap();
        let tree = db.tree("t").unwrap();
        let before = db.stats();
        let loaded = tree.bulk_load(records(0..4000, 1)).unwrap();
        let expected: Contents = records(0..4000, 1).collect();
        let bytes: usize = expected.iter().map(|(key, value)| key.len() + 4 + value.len()).sum();
        assert_eq!((loaded.records, loaded.bytes), (4000, bytes as u64));
        assert_eq!(loaded.sequence, db.snapshot().sequence());
        let stats = db.stats();
        assert!(stats.log_bytes_written - before.log_bytes_written < 200, "a load is not logged");
        assert!(stats.partitions.len() >= 4, "{} partitions", stats.partitions.len());
        assert!(stats.partitions.iter().skip(1).all(|p| p.loose.len() <= 1), "{:?}", stats.partitions);
        check(&db, &expected);
        drop(tree);
        db.close().unwrap();
        let db = open(settings()).unwrap();
        check(&db, &expected);
        assert_eq!(db.stats().run_bytes_written, 0);
        db.compact().unwrap();
        check(&db, &expected);
    }
}

#[test]
fn bulk_load_supersedes_earlier_commits_only() {
    for background_threads in [0, 2] {
        for flush_before in [false, true] {
            let vfs = mem();
            let settings = || Settings { background_threads, ..small(&vfs) };
            let db = open(settings()).unwrap();
            let (tree, other) = (db.tree("t").unwrap(), db.tree("other").unwrap());
            let mut expected = Contents::new();
            for (key, value) in records((0..3000).step_by(3), 7) {
                tree.put(&key, &value).unwrap();
                expected.insert(key, value);
            }
            other.put(b"x", b"y").unwrap();
            if flush_before {
                db.compact().unwrap();
            }
            tree.delete_range(key(100)..key(400)).unwrap();
            tree.put(key(200), b"back").unwrap();
            tree.delete(key(3)).unwrap();
            expected.retain(|k, _| !(key(100) <= *k && *k < key(400)) && *k != key(3));
            expected.insert(key(200), b"back".to_vec());
            let (snapshot, then) = (db.snapshot(), expected.clone());
            let mut cursor = tree.cursor();
            cursor.seek_first().unwrap();
            tree.bulk_load(records((50..2000).step_by(2), 9)).unwrap();
            expected.extend(records((50..2000).step_by(2), 9));
            check(&db, &expected);
            let mut seen = Contents::new();
            while cursor.is_on_row() {
                seen.insert(cursor.key().to_vec(), cursor.value().unwrap().to_vec());
                cursor.next().unwrap();
            }
            assert!(seen == then, "a cursor goes on in the state before the load");
            tree.put(key(60), b"later").unwrap();
            tree.delete(key(62)).unwrap();
            expected.insert(key(60), b"later".to_vec());
            expected.remove(&key(62));
            check(&db, &expected);
            for number in (0..3000).step_by(7) {
                let key = key(number);
                assert_eq!(snapshot.get(&tree, &key).unwrap().as_deref(), then.get(&key).map(Vec::as_slice));
            }
            let read: Contents =
                snapshot.iter(&tree).map(|p| p.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
            assert!(read == then);
            db.flush().unwrap();
            check(&db, &expected);
            db.compact().unwrap();
            check(&db, &expected);
            let read: Contents =
                snapshot.iter(&tree).map(|p| p.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
            assert!(read == then);
            drop((snapshot, tree, other, cursor));
            db.close().unwrap();
            let db = open(settings()).unwrap();
            check(&db, &expected);
            assert_eq!(db.tree("other").unwrap().get(b"x").unwrap().as_deref(), Some(&b"y"[..]));
            db.compact().unwrap();
            check(&db, &expected);
        }
    }
}

#[test]
fn bulk_load_out_of_order_fails_and_leaves_nothing() {
    for background_threads in [0, 2] {
        let vfs = mem();
        let db = open(Settings { background_threads, ..small(&vfs) }).unwrap();
        let tree = db.tree("t").unwrap();
        let (runs, blobs) = (files(&vfs, ".run"), files(&vfs, ".blob"));
        for (last, word) in [(2999, "comes twice"), (17, "after a greater one")] {
            let bad = records((0..3000).chain([last]), 1);
            let error = tree.bulk_load(bad).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, Error::InvalidArgument(_)) && text.contains("record 3001"), "{text}");
            assert!(text.contains(word) && text.contains(&format!("key {last:06}")), "{text}");
            assert_eq!((files(&vfs, ".run"), files(&vfs, ".blob")), (runs, blobs), "{word}");
        }
        let mut loader = tree.bulk_loader().unwrap();
        loader.add(b"b", b"").unwrap();
        assert!(loader.add(b"a", b"").is_err());
        assert!(loader.add(b"c", b"").is_err(), "after an error the load is over");
        assert!(loader.finish().is_err());
        let mut loader = tree.bulk_loader().unwrap();
        records(0..3000, 1).for_each(|(key, value)| loader.add(key, value).unwrap());
        drop(loader);
        assert_eq!((files(&vfs, ".run"), files(&vfs, ".blob")), (runs, blobs), "a load that was given up");
        assert!(tree.bulk_loader().unwrap().add(vec![0; 70_000], b"").is_err());
        let none: [(&str, &str); 0] = [];
        assert_eq!(tree.bulk_load(none).unwrap().records, 0);
        check(&db, &Contents::new());
    }
}

#[test]
fn transaction_that_read_a_loaded_range_conflicts() {
    let vfs = mem();
    let db = open(Settings { exclusive_wait_ns: 1_000_000, ..small(&vfs) }).unwrap();
    let tree = db.tree("t").unwrap();
    tree.put(key(5), b"five").unwrap();
    let begin = |read: u32| {
        let transaction = db.begin().unwrap();
        transaction.get(&tree, key(read)).unwrap();
        transaction.put(&tree, key(5000 + read), b"written").unwrap();
        transaction
    };
    let (inside, between, outside) = (begin(10), begin(11), begin(900));
    tree.bulk_load(records((0..800).step_by(2), 3)).unwrap();
    assert!(inside.commit().unwrap_err().is_conflict());
    // All keys of the range count as written.
    assert!(between.commit().unwrap_err().is_conflict());
    outside.commit().unwrap();
    let after = begin(10);
    after.commit().unwrap();
    let old = db.begin().unwrap();
    old.get(&tree, key(10)).unwrap();
    old.put(&tree, key(9000), b"").unwrap();
    tree.bulk_load(records(0..20, 4)).unwrap();
    let filler = db.tree("filler").unwrap();
    for number in 0..40_000u32 {
        filler.put(number.to_be_bytes(), [1; 40]).unwrap();
    }
    assert!(old.commit().unwrap_err().is_conflict());
    let exclusive = db.begin_exclusive().unwrap();
    assert!(matches!(tree.bulk_load([("a", "b")]), Err(Error::ExclusiveOpen { .. })));
    drop(exclusive);
    tree.bulk_load([("a", "b")]).unwrap();
}

#[test]
fn bulk_load_values_expire_and_pairs_are_pairs() {
    let vfs = mem();
    let clock = Clock::new();
    let settings = || Settings { runtime: Arc::<Clock>::clone(&clock), ..small(&vfs) };
    let db = open(settings()).unwrap();
    let options = TreeOptions { ttl: Some(Duration::from_secs(60)), ..TreeOptions::default() };
    let tree = db.tree_with("sessions", options).unwrap();
    tree.bulk_load(records(0..500, 1)).unwrap();
    assert_eq!(contents(&tree), records(0..500, 1).collect());
    clock.advance(59 * SECOND_NS);
    assert_eq!(contents(&tree).len(), 500);
    clock.advance(2 * SECOND_NS);
    assert_eq!(contents(&tree).len(), 0);
    db.compact().unwrap();
    assert!(db.verify().unwrap().problems.is_empty());
    let pairs = db.multi_tree("pairs").unwrap();
    let all: Vec<(Vec<u8>, Vec<u8>)> =
        (0..300u32).map(|n| (vec![0, (n / 100) as u8, 0], n.to_be_bytes().to_vec())).collect();
    pairs.bulk_load(all.iter().map(|(key, value)| (key, value))).unwrap();
    assert_eq!(pairs.count_values([0, 1, 0]).unwrap(), 100);
    let again = pairs.bulk_load([(b"a", b"1"), (b"a", b"1")]);
    assert!(again.unwrap_err().to_string().contains("comes twice"));
    assert_eq!(pairs.count_values(b"a").unwrap(), 0);
    pairs.bulk_load([(b"a", b"1"), (b"a", b"2"), (b"b", b"1")]).unwrap();
    assert_eq!(pairs.count_values(b"a").unwrap(), 2);
}

#[test]
fn bulk_load_into_dropped_tree_or_closed_database_fails() {
    for background_threads in [0, 2] {
        let vfs = mem();
        let settings = || Settings { background_threads, ..small(&vfs) };
        let db = open(settings()).unwrap();
        let tree = db.tree("t").unwrap();
        let mut loader = tree.bulk_loader().unwrap();
        records(0..100, 1).for_each(|(key, value)| loader.add(key, value).unwrap());
        db.drop_tree("t").unwrap();
        assert!(loader.finish().unwrap_err().is_not_found());
        assert!(tree.bulk_loader().is_err());
        let tree = db.tree("t").unwrap();
        tree.bulk_load(records(0..100, 1)).unwrap();
        db.drop_tree("t").unwrap();
        let tree = db.tree("t").unwrap();
        assert_eq!(contents(&tree).len(), 0);
        let mut loader = tree.bulk_loader().unwrap();
        records(0..2000, 1).for_each(|(key, value)| loader.add(key, value).unwrap());
        db.clone().close().unwrap();
        assert!(matches!(loader.finish(), Err(Error::Closed)));
        drop((tree, db));
        let db = open(settings()).unwrap();
        db.compact().unwrap();
        check(&db, &Contents::new());
        db.close().unwrap();
        let db = open(Settings { read_only: true, ..settings() }).unwrap();
        let tree = db.open_tree("t").unwrap();
        assert!(matches!(tree.bulk_load(records(0..3, 1)), Err(Error::ReadOnly { .. })));
    }
}

/// A crash used to lose the log's tail with commits before a load, but not the load.
#[test]
fn crash_after_bulk_load_keeps_all_earlier_commits() {
    for threads in [0, 2] {
        check_a_crash_after_a_load(threads);
    }
}

fn check_a_crash_after_a_load(threads: usize) {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(with_threads(&vfs, threads)).unwrap();
    let tree = db.tree("t").unwrap();
    tree.put(b"before", b"1").unwrap();
    let calls_before = vfs.journal().len();
    tree.bulk_load(records(0..50, 1)).unwrap();
    let calls = vfs.journal().split_off(calls_before);
    let first = |operation, part: &str| {
        let is_it = |(call, path): &(Operation, std::path::PathBuf)| {
            *call == operation && path.to_string_lossy().contains(part)
        };
        calls.iter().position(is_it).unwrap()
    };
    // Sync precedes the edit; the later flush of memtables would hide an error.
    assert!(first(Operation::Sync, ".wal") < first(Operation::Write, "MANIFEST"), "{calls:?}");
    // A run and its name are durable before the manifest names it.
    let last = |operation, part: &str, before: usize| {
        let is_it = |(call, path): &(Operation, std::path::PathBuf)| {
            *call == operation && path.to_string_lossy().contains(part)
        };
        calls[..before].iter().rposition(is_it).unwrap()
    };
    let named = last(Operation::Write, "MANIFEST", calls.len());
    // Threads may write other runs at any time.
    let run = calls[first(Operation::Create, ".run")].1.to_string_lossy();
    let synced = last(Operation::Sync, &run, named);
    assert!(last(Operation::Write, &run, calls.len()) < synced, "{calls:?}");
    assert!(synced < last(Operation::SyncDir, DIR, named), "{calls:?}");
    let after = vfs.crashed(|| false);
    tree.put(b"after", b"1").unwrap();
    let killed = killed(&vfs);
    drop((tree, db));
    for (image, has_after) in [(after, false), (killed, true)] {
        let db = open(small(&fault(&image))).unwrap();
        let tree = db.tree("t").unwrap();
        assert_eq!(contents(&tree).len(), 51 + usize::from(has_after));
        assert!(tree.contains(b"before").unwrap());
        // Later commits have higher numbers than the load.
        tree.put(key(3), b"newer").unwrap();
        assert_eq!(tree.get(key(3)).unwrap().as_deref(), Some(&b"newer"[..]));
        db.flush().unwrap();
        assert_eq!(tree.get(key(3)).unwrap().as_deref(), Some(&b"newer"[..]));
    }
}

/// Fails calls of each kind with each error, the first, the second, and so on, until `body` returns
/// true.
pub fn each_failure(mut body: impl FnMut(Operation, io::ErrorKind, u32) -> bool) {
    for operation in [Operation::Create, Operation::Write, Operation::Sync, Operation::SyncDir] {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::Other] {
            assert!((0..1000).any(|after| body(operation, kind, after)), "{operation:?} goes on for ever");
        }
    }
}

/// After a kill the load is there whole or, unless it returned success, only the one earlier
/// record.
pub fn check_after_kill(vfs: &FaultVfs, all: usize, is_done: bool, reported: &str) {
    let db = open(small(&fault(&killed(vfs)))).unwrap();
    let len = contents(&db.tree("t").unwrap()).len();
    assert!(len == all || (len == 1 && !is_done), "{reported}: {len}");
    assert!(db.verify().unwrap().problems.is_empty());
}

fn with_threads(vfs: &FaultVfs, background_threads: usize) -> Settings {
    Settings { background_threads, ..small(&fault(vfs)) }
}

#[test]
fn failed_bulk_load_leaves_nothing_or_unknown_outcome() {
    for threads in [0, 2] {
        check_each_failure(threads);
    }
}

fn check_each_failure(threads: usize) {
    each_failure(|operation, kind, after| {
        let vfs = FaultVfs::new(Path::new(DIR));
        let db = open(with_threads(&vfs, threads)).unwrap();
        let tree = db.tree("t").unwrap();
        tree.put(key(7), b"old").unwrap();
        let before = db.stats().disk_bytes;
        let calls = || vfs.journal().iter().filter(|(call, _)| *call == operation).count() as u32;
        let calls_before = calls();
        vfs.fail(operation, after, 1, kind);
        let loaded = tree.bulk_load(records(0..600, 1));
        let is_over = loaded.is_ok() && calls() - calls_before <= after;
        vfs.heal();
        match &loaded {
            Ok(Loaded { records, .. }) => {
                assert_eq!(*records, 600);
                assert_eq!(contents(&tree).len(), 600, "{operation:?} {kind:?} {after}");
            }
            Err(Error::CommitUnknown { .. } | Error::ReadOnly { .. }) => {}
            Err(e) => {
                let reported = format!("{operation:?} {kind:?} {after}: {e}");
                assert_eq!(contents(&tree).len(), 1, "{reported}");
                if db.stats().failure.is_none() {
                    assert!(db.stats().disk_bytes < before + 20_000, "{reported}");
                    tree.bulk_load(records(0..600, 1)).unwrap();
                    assert_eq!(contents(&tree).len(), 600, "{reported}");
                }
            }
        }
        drop((tree, db));
        check_after_kill(&vfs, 600, loaded.is_ok(), &format!("{operation:?} {kind:?} {after}"));
        is_over
    });
}

#[test]
fn bulk_loads_beside_writers_of_their_range_succeed() {
    let vfs = mem();
    let db = open(Settings { background_threads: 2, ..small(&vfs) }).unwrap();
    let tree = db.tree("t").unwrap();
    bounded("loads among writers", move || {
        std::thread::scope(|scope| {
            let (tree, db) = (&tree, &db);
            for thread in 0..2u32 {
                scope.spawn(move || {
                    for round in 0..1500u32 {
                        tree.put(key((round * 7 + thread) % 400), format!("{round}")).unwrap();
                        tree.put(key(10_000 + thread), format!("{round}")).unwrap();
                    }
                });
            }
            scope.spawn(move || {
                for tag in 0..12u8 {
                    let loaded = tree.bulk_load(records(0..400, tag)).unwrap();
                    assert!(db.snapshot().sequence() >= loaded.sequence);
                }
            });
            scope.spawn(move || {
                for _ in 0..60 {
                    let snapshot = db.snapshot();
                    let read = || snapshot.iter(tree).map(|pair| pair.unwrap()).collect::<Vec<_>>();
                    let first = read();
                    assert!(first == read());
                    let keys: Vec<Vec<u8>> = first.iter().map(|(key, _)| key.to_vec()).collect();
                    let got = snapshot.multi_get(tree, &keys).unwrap();
                    assert!(got.iter().zip(&first).all(|(got, (_, value))| got.as_ref() == Some(value)));
                }
            });
        });
        tree.bulk_load(records(0..400, 99)).unwrap();
        assert_eq!(contents(&tree).into_iter().take(400).collect::<Contents>(), records(0..400, 99).collect());
        assert!(db.verify().unwrap().problems.is_empty());
        db.compact().unwrap();
        assert_eq!(contents(&tree).len(), 402);
    });
}

/// Each number once, in pseudorandom order.
fn shuffled(count: u32) -> impl Iterator<Item = u32> {
    (0..count.next_power_of_two())
        .map(move |i| i.wrapping_mul(2_654_435_761) % count.next_power_of_two())
        .filter(move |n| *n < count)
}

#[test]
fn unsorted_load_in_little_memory_keeps_last_record_of_each_key() {
    for (background_threads, memory) in [(0, Some(4 << 20)), (0, Some(64 << 10)), (2, None)] {
        let vfs = mem();
        let db = open(Settings { background_threads, ..small(&vfs) }).unwrap();
        let tree = db.tree("t").unwrap();
        tree.put(key(1), b"old").unwrap();
        // With little memory, more spills than the fan-in.
        let all = || records(shuffled(12_000), 1).chain(records((0..12_000).step_by(5), 2)).chain(records(3..4, 3));
        let mut reported: Vec<BulkProgress> = Vec::new();
        let mut progress = |progress| reported.push(progress);
        let options = BulkOptions { memory, progress: Some(&mut progress) };
        let loaded = tree.bulk_load_unsorted(all(), options).unwrap();
        assert_eq!(loaded.records, 12_000);
        let last = *reported.last().unwrap();
        assert_eq!((last.records_read, last.records_written), (14_401, 12_000));
        assert_eq!(last.spilled_bytes > 0, memory != Some(4 << 20));
        assert!(reported.is_sorted_by_key(|p| (p.records_read, p.records_written, p.spilled_bytes)));
        check(&db, &all().collect());
        let listed: usize = db.stats().partitions.iter().map(|p| p.loose.len() + p.runs.len()).sum();
        assert!(files(&vfs, ".run") <= listed, "spills are gone");
        let runs = files(&vfs, ".run");
        let bad = all().chain([(vec![0; 70_000], Vec::new())]);
        assert!(tree.bulk_load_unsorted(bad, BulkOptions { memory, progress: None }).is_err());
        assert_eq!(files(&vfs, ".run"), runs);
        check(&db, &all().collect());
    }
}

/// A reader with an older read state and a newer sequence number saw commits after the load, but
/// not the load.
#[test]
fn read_state_before_bulk_load_has_no_later_commit() {
    for is_empty in [false, true] {
        let vfs = mem();
        let db = open(small(&vfs)).unwrap();
        let tree = db.tree("t").unwrap();
        db.flush().unwrap();
        if !is_empty {
            tree.put(b"x", b"before").unwrap();
        }
        let state = db.engine().cell.state.load_full();
        let loaded = tree.bulk_load(records(0..50, 1)).unwrap();
        tree.put(b"x", b"after").unwrap();
        assert!(state.memtables().all(|memtable| memtable.is_empty() || memtable.max_sequence() < loaded.sequence));
        assert_eq!(tree.get(b"x").unwrap().as_deref(), Some(&b"after"[..]));
    }
}

#[test]
fn bulk_load_is_a_gap_for_watchers_and_visible_to_followers() {
    let vfs = mem();
    let db = open(Settings { log_retention_bytes: Some(1 << 20), ..small(&vfs) }).unwrap();
    let tree = db.tree("t").unwrap();
    tree.put(key(1), b"before").unwrap();
    let watcher = db.watch(WatchOptions::new().unsynced(true)).unwrap();
    let follower = Follower::open_with(small(&vfs), Path::new(DIR), None).unwrap();
    let start = watcher.token();
    let number = tree.bulk_load(records(5..900, 0)).unwrap().sequence;
    assert!(follower.refresh().unwrap().sequence >= number);
    assert_eq!(contents(&follower.db().open_tree("t").unwrap()), contents(&tree));
    assert_eq!(contents(&tree).len(), 896);
    tree.put(key(7), b"after").unwrap();
    follower.refresh().unwrap();
    assert_eq!(contents(&follower.db().open_tree("t").unwrap()), contents(&tree));
    for mut watcher in [watcher, db.watch(WatchOptions::new().resume(start)).unwrap()] {
        let reported = watcher.next().unwrap().unwrap();
        let is_gap = |change: &Change| match change {
            Change::Gap(Gap::Range { start, end, .. }) => {
                *start <= key(5) && end.as_ref().is_none_or(|end| *end > key(899))
            }
            _ => false,
        };
        assert!(reported.changes.iter().any(is_gap), "{reported:?}");
        let after = watcher.next().unwrap().unwrap();
        assert!(after.sequence > number && matches!(after.changes[..], [Change::Put { .. }]), "{after:?}");
    }
}

/// The gap in a multi-tree had encoded pairs instead of keys.
#[test]
fn bulk_load_of_pairs_is_a_gap_of_user_keys() {
    let db = open(small(&mem())).unwrap();
    let pairs = db.multi_tree("pairs").unwrap();
    let all = db.watch(WatchOptions::new().multi_tree(&pairs)).unwrap();
    let with_prefix = |prefix: &[u8]| db.watch(WatchOptions::new().multi_tree(&pairs).prefix(prefix)).unwrap();
    let (some, none) = (with_prefix(b"a\0b"), with_prefix(b"a\0c"));
    let mut loader = pairs.bulk_loader().unwrap();
    loader.add(b"a\0b", b"1").unwrap();
    loader.add(b"a\0b", b"2").unwrap();
    loader.finish().unwrap();
    for (mut watcher, is_expected) in [(all, true), (some, true), (none, false)] {
        let gap = watcher.try_next().unwrap().map(|set| match &set.changes[..] {
            [Change::Gap(Gap::Range { start, end, .. })] => (start.clone(), end.clone()),
            other => panic!("{other:?}"),
        });
        assert_eq!(gap, is_expected.then(|| (b"a\0b".to_vec(), Some(b"a\0b\0".to_vec()))));
    }
}

/// Otherwise a crash would keep the load and lose earlier commits.
#[test]
fn bulk_load_after_commits_without_wal_flushes_them() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(Settings { durability: Durability::None, ..small(&fault(&vfs)) }).unwrap();
    let tree = db.tree("t").unwrap();
    tree.put(key(4000), b"before").unwrap();
    tree.bulk_load(records(0..100, 0)).unwrap();
    tree.put(key(4001), b"after").unwrap();
    let again = open(small(&fault(&killed(&vfs)))).unwrap();
    let found = contents(&again.tree("t").unwrap());
    assert!(found.contains_key(&key(4000)) && found.contains_key(&key(99)), "{}", found.len());
    assert!(!found.contains_key(&key(4001)));
}
