//! Values that expire: reads agree, space is reclaimed, and the clock may jump.

use crate::{
    base::{Error, Result},
    db::{
        Db, Durability, Settings, Tree, TreeOptions, Update,
        tests_common::{Clock, DIR, SECOND_NS, bounded, mem, open, small},
    },
    platform::{Runtime, Vfs},
};
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

const DAY_NS: u64 = 24 * 3600 * SECOND_NS;

fn settings(clock: &Arc<Clock>, vfs: &Arc<dyn Vfs>) -> Settings {
    Settings { runtime: Arc::clone(clock) as Arc<dyn Runtime>, ..small(vfs) }
}

fn world() -> (Arc<Clock>, Db, Tree) {
    let clock = Clock::new();
    let db = open(settings(&clock, &mem())).unwrap();
    let tree = db.tree("t").unwrap();
    (clock, db, tree)
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn contents(db: &Db, tree: &Tree) -> Vec<(Vec<u8>, Vec<u8>)> {
    let rows: Vec<_> = tree.iter().map(|row| row.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
    let mut back: Vec<_> = tree.iter().rev().map(|row| row.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
    back.reverse();
    assert_eq!(rows, back);
    let tx = db.begin().unwrap();
    let of_tx: Vec<_> = tx.iter(tree).map(|row| row.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
    assert_eq!(rows, of_tx);
    let mut cursor = tree.cursor();
    let mut at = 0;
    while cursor.next().unwrap() {
        let (key, value) = cursor.row().unwrap();
        assert_eq!((key, value), (rows[at].0.as_slice(), rows[at].1.as_slice()));
        at += 1;
    }
    assert_eq!(at, rows.len());
    rows
}

fn is_there(db: &Db, tree: &Tree, key: &[u8]) -> bool {
    let there = tree.contains(key).unwrap();
    let snapshot = db.snapshot();
    assert_eq!(tree.get(key).unwrap().is_some(), there);
    assert_eq!(tree.multi_get(&[key]).unwrap()[0].is_some(), there);
    assert_eq!(tree.get_versioned(key).unwrap().is_some(), there);
    assert_eq!(tree.get_with_expiry(key).unwrap().is_some(), there);
    assert_eq!(snapshot.get(tree, key).unwrap().is_some(), there);
    assert_eq!(snapshot.contains(tree, key).unwrap(), there);
    assert_eq!(snapshot.multi_get(tree, &[key]).unwrap()[0].is_some(), there);
    let mut cursor = tree.cursor();
    assert_eq!(cursor.seek(key).unwrap() && cursor.key() == key, there);
    assert_eq!(contents(db, tree).iter().any(|(k, _)| k == key), there);
    there
}

/// In a memtable, a run and a merged run.
fn in_each_place(check: impl Fn(&Arc<Clock>, &Db, &Tree, &dyn Fn(&Db))) {
    let places: [&dyn Fn(&Db); 3] = [&|_| {}, &|db| db.flush().unwrap(), &|db| db.compact().unwrap()];
    for place in places {
        let (clock, db, tree) = world();
        check(&clock, &db, &tree, place);
    }
}

#[test]
fn a_value_is_there_until_it_expires() {
    in_each_place(|clock, db, tree, place| {
        for key in [b"a", b"c", b"e"] {
            tree.put(key, b"plain").unwrap();
        }
        tree.put_with_ttl(b"b", b"ten", seconds(10)).unwrap();
        tree.put_with_ttl(b"d", b"twenty", seconds(20)).unwrap();
        tree.put_until(b"f", b"past", UNIX_EPOCH).unwrap();
        place(db);
        assert!(is_there(db, tree, b"b") && is_there(db, tree, b"d") && !is_there(db, tree, b"f"));
        clock.advance(10 * SECOND_NS - 1000);
        assert!(is_there(db, tree, b"b"));
        assert_eq!(contents(db, tree).len(), 5);
        clock.advance(1000);
        assert!(!is_there(db, tree, b"b") && is_there(db, tree, b"d") && is_there(db, tree, b"c"));
        place(db);
        assert!(!is_there(db, tree, b"b") && is_there(db, tree, b"d") && is_there(db, tree, b"c"));
        clock.advance(DAY_NS);
        assert_eq!(contents(db, tree).len(), 3);
    });
}

#[test]
fn a_cursor_goes_past_what_has_expired_in_both_directions() {
    in_each_place(|clock, db, tree, place| {
        for number in 0..100_u8 {
            let ttl = seconds(if number % 7 == 3 { 1000 } else { 1 });
            tree.put_with_ttl([number], [number], ttl).unwrap();
        }
        db.tree("after").unwrap().put_with_ttl(b"", b"", seconds(1)).unwrap();
        place(db);
        clock.advance(SECOND_NS);
        let stay: Vec<u8> = (0..100).filter(|number| number % 7 == 3).collect();
        let mut cursor = tree.cursor();
        for &number in &stay {
            assert!(cursor.next().unwrap());
            assert_eq!(cursor.row().unwrap(), (&[number][..], &[number][..]));
        }
        assert!(!cursor.next().unwrap() && cursor.prev().unwrap());
        assert_eq!(cursor.key(), [94]);
        assert!(cursor.seek([45]).unwrap() && cursor.key() == [45]);
        assert!(cursor.prev().unwrap() && cursor.key() == [38]);
        assert!(cursor.seek_before([45]).unwrap() && cursor.key() == [38]);
        assert!(cursor.next().unwrap() && cursor.key() == [45]);
        assert!(!cursor.seek([95]).unwrap() && !cursor.seek_before([3]).unwrap());
        assert!(cursor.seek_last().unwrap() && cursor.key() == [94]);
        assert!(cursor.seek_first().unwrap() && cursor.key() == [3]);
    });
}

#[test]
fn a_reader_goes_by_the_time_when_it_was_taken() {
    in_each_place(|clock, db, tree, place| {
        tree.put_with_ttl(b"k", b"v", seconds(10)).unwrap();
        let (snapshot, tx, mut cursor) = (db.snapshot(), db.begin().unwrap(), tree.cursor());
        let expires = UNIX_EPOCH + seconds(1010);
        clock.advance(DAY_NS);
        place(db);
        assert!(!is_there(db, tree, b"k"));
        assert_eq!(snapshot.get(tree, b"k").unwrap().as_deref(), Some(&b"v"[..]));
        assert_eq!(snapshot.get_with_expiry(tree, b"k").unwrap().map(|found| found.1), Some(Some(expires)));
        assert_eq!(tx.get(tree, b"k").unwrap().as_deref(), Some(&b"v"[..]));
        assert!(cursor.seek(b"k").unwrap() && cursor.value().unwrap() == b"v");
        cursor.refresh();
        assert!(!cursor.seek(b"k").unwrap());
        drop((snapshot, tx));
        db.compact().unwrap();
        assert!(!is_there(db, tree, b"k"));
        assert_eq!(entries(db), 2, "only the tree's name and the next one's number are left");
    });
}

fn entries(db: &Db) -> u64 {
    db.stats().partitions.iter().flat_map(|p| p.runs.iter().chain(&p.loose)).map(|run| run.entries).sum()
}

#[test]
fn what_was_beneath_stays_hidden() {
    in_each_place(|clock, db, tree, place| {
        tree.put(b"k", b"old").unwrap();
        let before = db.snapshot();
        db.flush().unwrap();
        tree.put_with_ttl(b"k", b"new", seconds(10)).unwrap();
        tree.put_with_ttl(b"l", b"new", seconds(10)).unwrap();
        place(db);
        clock.advance(10 * SECOND_NS);
        place(db);
        assert!(!is_there(db, tree, b"k"));
        assert_eq!(before.get(tree, b"k").unwrap().as_deref(), Some(&b"old"[..]));
        drop(before);
        db.compact().unwrap();
        assert!(!is_there(db, tree, b"k") && entries(db) == 2);
        tree.put(b"k", b"newest").unwrap();
        assert!(is_there(db, tree, b"k"));
    });
}

#[test]
fn a_tree_may_have_all_its_values_expire() {
    let (clock, vfs) = (Clock::new(), mem());
    let db = open(settings(&clock, &vfs)).unwrap();
    let options = TreeOptions { ttl: Some(seconds(10)), ..TreeOptions::default() };
    let tree = db.tree_with("t", options).unwrap();
    let expires = |tree: &Tree, key: &[u8]| tree.get_with_expiry(key).unwrap().unwrap().1;
    let at = |second| Some(UNIX_EPOCH + seconds(second));
    let at_once = TreeOptions { ttl: Some(Duration::from_nanos(999)), ..TreeOptions::default() };
    assert!(matches!(db.tree_with("u", at_once), Err(Error::InvalidArgument(_))));
    tree.put(b"put", b"v").unwrap();
    let mut batch = db.batch();
    batch.put(&tree, b"batch", b"v").put_with_ttl(&tree, b"own", b"v", seconds(5));
    batch.put_until(&tree, b"until", b"v", UNIX_EPOCH + seconds(2000));
    batch.commit_with(Durability::Buffered).unwrap();
    db.update(|tx| tx.put(&tree, b"tx", b"v")).unwrap();
    tree.put_if_absent(b"absent", b"v").unwrap().unwrap();
    tree.fetch_update(b"update", |_| Update::Put(b"v".to_vec())).unwrap();
    tree.fetch_update(b"for", |_| Update::PutWithTtl(b"v".to_vec(), seconds(3))).unwrap();
    for key in [&b"put"[..], b"batch", b"tx", b"absent", b"update"] {
        assert_eq!(expires(&tree, key), at(1010));
    }
    assert_eq!([b"own", b"for"].map(|key| expires(&tree, key)), [at(1005), at(1003)]);
    assert_eq!(expires(&tree, b"until"), at(2000));
    db.rename_tree("t", "u").unwrap();
    db.close().unwrap();
    let db = open(settings(&clock, &vfs)).unwrap();
    let tree = db.open_tree("u").unwrap();
    clock.advance(SECOND_NS);
    tree.put(b"put", b"v").unwrap();
    assert_eq!(expires(&tree, b"put"), at(1011));
    db.tree("plain").unwrap().put(b"k", b"v").unwrap();
    assert_eq!(expires(&db.tree("plain").unwrap(), b"k"), None);
    clock.advance(10 * SECOND_NS);
    assert_eq!(contents(&db, &tree).len(), 1);
    let add = db.merge_function("add").unwrap();
    let refused = |result: Result<()>| assert!(matches!(result, Err(Error::InvalidArgument(_))));
    refused(tree.merge(b"k", &add, [1; 8]).map(|_| ()));
    let mut batch = db.batch();
    batch.merge(&tree, b"k", &add, [1; 8]);
    refused(batch.commit_with(Durability::Buffered).map(|_| ()));
    refused(db.begin().unwrap().merge(&tree, b"k", &add, [1; 8]));
}

#[test]
fn a_transaction_sees_its_own_writes_until_they_expire() {
    let (clock, db, tree) = world();
    for key in [b"a", b"b", b"c", b"d"] {
        tree.put(key, b"stored").unwrap();
    }
    let tx = db.begin().unwrap();
    tx.put_with_ttl(&tree, b"b", b"own", seconds(10)).unwrap();
    tx.put_until(&tree, b"c", b"past", UNIX_EPOCH + seconds(1)).unwrap();
    tx.put_until(&tree, b"e", b"past", UNIX_EPOCH).unwrap();
    let savepoint = tx.savepoint();
    tx.put_with_ttl(&tree, b"d", b"own", Duration::ZERO).unwrap();
    assert!(!tx.contains(&tree, b"d").unwrap());
    tx.rollback_to(savepoint).unwrap();
    let keys = |rows: Vec<Vec<u8>>| rows.concat();
    let ahead = keys(tx.iter(&tree).map(|row| row.unwrap().0.to_vec()).collect());
    let back = keys(tx.iter(&tree).rev().map(|row| row.unwrap().0.to_vec()).collect());
    assert_eq!((&ahead[..], &back[..]), (&b"abd"[..], &b"dba"[..]));
    assert_eq!(tx.get(&tree, b"b").unwrap().as_deref(), Some(&b"own"[..]));
    assert_eq!(tx.get(&tree, b"c").unwrap(), None);
    let add = db.merge_function("add").unwrap();
    assert!(matches!(tx.merge(&tree, b"b", &add, [1; 8]), Err(Error::InvalidArgument(_))));
    tx.commit().unwrap();
    assert_eq!(contents(&db, &tree).len(), 3);
    clock.advance(10 * SECOND_NS);
    assert_eq!(contents(&db, &tree).len(), 2);
}

/// The transaction compared with the time of its begin, so what had expired since was there.
#[test]
fn value_that_expires_at_once_is_absent_in_its_transaction() {
    let (clock, db, tree) = world();
    let tx = db.begin().unwrap();
    clock.advance(10 * SECOND_NS);
    let past = UNIX_EPOCH + seconds(1005);
    tx.put_with_ttl(&tree, b"a", b"own", Duration::ZERO).unwrap();
    tx.put_until(&tree, b"b", b"own", past).unwrap();
    tx.put_with_ttl(&tree, b"c", b"own", seconds(10)).unwrap();
    assert_eq!(tx.get(&tree, b"a").unwrap(), None);
    assert!(!tx.contains(&tree, b"b").unwrap());
    assert!(tx.get_with_expiry(&tree, b"a").unwrap().is_none());
    assert_eq!(tx.iter(&tree).map(|row| row.unwrap().0.to_vec()).collect::<Vec<_>>(), [b"c".to_vec()]);
    assert_eq!(tx.get(&tree, b"c").unwrap().unwrap(), "own");
    tx.commit().unwrap();
    assert_eq!(contents(&db, &tree), [(b"c".to_vec(), b"own".to_vec())]);
}

#[test]
fn what_has_expired_counts_as_absent_to_conditions() {
    let (clock, db, tree) = world();
    tree.put_with_ttl(b"k", b"1", seconds(10)).unwrap();
    let version = tree.get_versioned(b"k").unwrap().unwrap().1;
    assert!(tree.put_if_absent(b"k", b"2").unwrap().is_none());
    clock.advance(10 * SECOND_NS);
    assert!(tree.put_if_version(b"k", b"2", version).unwrap().is_none());
    assert!(tree.compare_exchange(b"k", Some(b"1"), Some(b"2")).unwrap().is_none());
    assert!(tree.compare_exchange(b"k", None, Some(b"2")).unwrap().is_some());
    assert_eq!(tree.get(b"k").unwrap().as_deref(), Some(&b"2"[..]));
    tree.put_with_ttl(b"k", b"3", seconds(10)).unwrap();
    clock.advance(10 * SECOND_NS);
    assert!(tree.put_if_absent(b"k", b"4").unwrap().is_some());
    assert!(is_there(&db, &tree, b"k"));
}

#[test]
fn merge_functions_find_nothing_where_a_value_has_expired() {
    in_each_place(|clock, db, tree, place| {
        let add = db.merge_function("add").unwrap();
        let append = db.merge_function("append").unwrap();
        tree.put_with_ttl(b"n", 40_u64.to_le_bytes(), seconds(10)).unwrap();
        tree.put_with_ttl(b"s", b"old", seconds(10)).unwrap();
        place(db);
        tree.merge(b"n", &add, 2_u64.to_le_bytes()).unwrap();
        tree.merge(b"s", &append, b"+").unwrap();
        place(db);
        assert_eq!(tree.get(b"n").unwrap().as_deref(), Some(&42_u64.to_le_bytes()[..]));
        assert_eq!(tree.get(b"s").unwrap().as_deref(), Some(&b"old+"[..]));
        let before = db.snapshot();
        clock.advance(10 * SECOND_NS);
        place(db);
        assert_eq!(tree.get(b"n").unwrap().as_deref(), Some(&2_u64.to_le_bytes()[..]));
        assert_eq!(tree.get(b"s").unwrap().as_deref(), Some(&b"+"[..]));
        assert_eq!(before.get(tree, b"s").unwrap().as_deref(), Some(&b"old+"[..]));
        drop(before);
        db.compact().unwrap();
        assert_eq!(tree.get(b"n").unwrap().as_deref(), Some(&2_u64.to_le_bytes()[..]));
        // The batch would lose the expiry time.
        let mut batch = db.batch();
        batch.put_with_ttl(tree, b"m", b"x", seconds(10)).merge(tree, b"m", &append, b"y");
        assert!(matches!(batch.commit_with(Durability::Buffered), Err(Error::InvalidArgument(_))));
        let mut batch = db.batch();
        batch.merge(tree, b"m", &append, b"y").put_with_ttl(tree, b"m", b"x", seconds(10));
        batch.commit_with(Durability::Buffered).unwrap();
        assert_eq!(tree.get(b"m").unwrap().as_deref(), Some(&b"x"[..]));
    });
}

#[test]
fn space_comes_back_by_itself() {
    let (clock, db, tree) = world();
    for number in 0..2000_u32 {
        tree.put_with_ttl(number.to_be_bytes(), [7; 50], seconds(1000)).unwrap();
    }
    db.flush().unwrap();
    assert!(entries(&db) >= 2000);
    clock.advance(1000 * SECOND_NS);
    // Any commit runs the pending work inline.
    tree.put(b"k", b"v").unwrap();
    assert!(entries(&db) < 10, "{} entries are left", entries(&db));
    assert_eq!(contents(&db, &tree).len(), 1);
}

#[test]
fn space_comes_back_where_nothing_is_committed() {
    let clock = Clock::new();
    let db = open(Settings { background_threads: 1, ..settings(&clock, &mem()) }).unwrap();
    let tree = db.tree("t").unwrap();
    for number in 0..2000_u32 {
        tree.put_with_ttl(number.to_be_bytes(), [7; 50], seconds(1000)).unwrap();
    }
    db.flush().unwrap();
    clock.advance(1000 * SECOND_NS);
    bounded("the space of what has expired", move || {
        while entries(&db) > 10 {
            // The thread may have checked just before.
            clock.advance(SECOND_NS);
            std::thread::yield_now();
        }
    });
}

#[test]
fn what_little_has_expired_goes_in_time() {
    let (clock, db, tree) = world();
    // 100 entries with the catalog's two; one expires.
    for number in 0..97_u32 {
        tree.put(number.to_be_bytes(), [7; 50]).unwrap();
    }
    tree.put_with_ttl(b"session", [7; 50], seconds(10)).unwrap();
    db.compact().unwrap();
    assert!(db.verify().unwrap().problems.is_empty());
    let before = db.stats().expired;
    clock.advance(10 * SECOND_NS + DAY_NS - 1000);
    tree.put(b"k", b"v").unwrap();
    assert_eq!((db.stats().expired, entries(&db)), (before, 100));
    clock.advance(1000);
    tree.put(b"k", b"v").unwrap();
    assert_eq!((db.stats().expired, entries(&db)), (before + 1, 99));
    let merges = db.stats().merges;
    clock.advance(200 * DAY_NS);
    tree.put(b"k", b"v").unwrap();
    assert_eq!(db.stats().merges, merges);
}

#[test]
fn one_session_has_not_everything_merged() {
    let (clock, db, tree) = world();
    for number in 0..20_000_u32 {
        tree.put(number.to_be_bytes(), [7; 50]).unwrap();
    }
    db.compact().unwrap();
    for number in (0..20_000_u32).step_by(500) {
        tree.put(number.to_be_bytes(), [8; 20]).unwrap();
    }
    db.tree("sessions").unwrap().put_with_ttl(b"s", b"v", seconds(10)).unwrap();
    db.flush().unwrap();
    assert!(db.stats().partitions.len() > 10);
    let merges = db.stats().merges;
    clock.advance(10 * SECOND_NS + DAY_NS);
    tree.put(b"k", b"v").unwrap();
    assert!(db.stats().merges - merges <= 1, "{} merges", db.stats().merges - merges);
}

#[test]
fn what_was_never_flushed_goes_too() {
    let clock = Clock::new();
    let db = open(Settings { background_threads: 1, ..settings(&clock, &mem()) }).unwrap();
    let tree = db.tree("t").unwrap();
    tree.put_with_ttl(b"k", b"v", seconds(10)).unwrap();
    clock.advance(10 * SECOND_NS + DAY_NS);
    bounded("the flush of what has expired", move || {
        while db.stats().flushes == 0 {
            clock.advance(SECOND_NS);
            std::thread::yield_now();
        }
        assert_eq!(db.stats().expired, 1);
    });
}

#[test]
fn large_values_that_expire_stand_in_blob_files() {
    in_each_place(|clock, db, tree, place| {
        let value = vec![7; 5000];
        tree.put_with_ttl(b"k", &value, seconds(10)).unwrap();
        db.update(|tx| tx.put_with_ttl(tree, b"l", &value, seconds(20))).unwrap();
        let (written, before) = (db.stats().blob_bytes_written, db.snapshot());
        assert!(written > 0);
        place(db);
        assert_eq!(tree.get(b"k").unwrap().as_deref(), Some(&value[..]));
        assert_eq!(tree.multi_get(&[b"k", b"l"]).unwrap().len(), 2);
        assert_eq!(tree.iter().map(|row| row.unwrap().1.len()).sum::<usize>(), 10_000);
        assert_eq!(tree.read_range(b"l", 4990..6000).unwrap().as_deref(), Some(&value[..10]));
        assert!(db.verify().unwrap().problems.is_empty());
        clock.advance(10 * SECOND_NS);
        assert!(!is_there(db, tree, b"k") && is_there(db, tree, b"l"));
        assert!(tree.stream(b"k").unwrap().is_none() && before.stream(tree, b"k").unwrap().is_some());
        tree.append_stream(b"k", &b"more"[..]).unwrap();
        tree.append_stream(b"l", &b"more"[..]).unwrap();
        assert_eq!(tree.get_with_expiry(b"l").unwrap().map(|found| found.1), Some(Some(UNIX_EPOCH + seconds(1020))));
        assert_eq!(tree.get_with_expiry(b"k").unwrap().unwrap().1, None);
        clock.advance(10 * SECOND_NS);
        place(db);
        assert!(is_there(db, tree, b"k") && !is_there(db, tree, b"l"));
        assert_eq!(before.get(tree, b"l").unwrap().as_deref(), Some(&value[..]));
    });
}

#[test]
fn runs_that_have_expired_wholly_are_not_read() {
    let (clock, db, tree) = world();
    db.flush().unwrap();
    tree.put(b"a", b"old").unwrap();
    db.flush().unwrap();
    for number in 0..200_u32 {
        tree.put_with_ttl(number.to_be_bytes(), [7; 50], seconds(10)).unwrap();
    }
    db.flush().unwrap();
    clock.advance(10 * SECOND_NS);
    db.compact().unwrap();
    assert_eq!((db.stats().expired, entries(&db)), (0, 3));
    tree.put_with_ttl(b"a", b"new", seconds(10)).unwrap();
    db.flush().unwrap();
    clock.advance(10 * SECOND_NS);
    db.compact().unwrap();
    assert!(!is_there(&db, &tree, b"a"));
    assert_eq!((db.stats().expired, entries(&db)), (1, 2));
}

#[test]
fn snapshots_hold_back_what_they_see() {
    let (clock, db, tree) = world();
    for number in 0..200_u32 {
        tree.put_with_ttl(number.to_be_bytes(), [7; 50], seconds(10)).unwrap();
    }
    let early = db.snapshot();
    clock.advance(10 * SECOND_NS);
    let late = db.snapshot();
    db.compact().unwrap();
    assert_eq!((early.iter(&tree).count(), late.iter(&tree).count()), (200, 0));
    drop(early);
    db.compact().unwrap();
    assert_eq!((late.iter(&tree).count(), entries(&db)), (0, 2));
}

#[test]
fn a_cursor_among_expired_rows_keeps_its_place_when_they_go() {
    let (clock, db, tree) = world();
    for number in 0..9000_u32 {
        let ttl = seconds(if number % 3 == 0 { 1000 } else { 1 });
        tree.put_with_ttl(number.to_be_bytes(), [7; 50], ttl).unwrap();
    }
    clock.advance(SECOND_NS);
    let (mut ahead, mut back) = (tree.cursor(), tree.cursor());
    for number in 0..3000_u32 {
        assert!(ahead.next().unwrap() && back.prev().unwrap());
        assert_eq!(ahead.key(), (3 * number).to_be_bytes());
        assert_eq!(back.key(), (8997 - 3 * number).to_be_bytes());
        if number == 500 {
            // The cursors switch states within 1024 steps.
            db.compact().unwrap();
        }
    }
    assert!(!ahead.next().unwrap() && !back.prev().unwrap());
}

#[test]
fn a_cursor_that_begins_anew_counts_the_rows_that_are_there() {
    let (clock, db, tree) = world();
    for number in 0..600_u32 {
        let ttl = seconds(if number % 3 == 0 { 1000 } else { 1 });
        tree.put_with_ttl(number.to_be_bytes(), [7; 50], ttl).unwrap();
    }
    clock.advance(SECOND_NS);
    let mut cursor = tree.cursor();
    assert!(cursor.seek([]).unwrap());
    for _ in 0..100 {
        assert!(cursor.next().unwrap());
    }
    cursor.restart().unwrap();
    assert_eq!(cursor.key(), 300_u32.to_be_bytes());
    db.compact().unwrap();
    cursor.restart().unwrap();
    assert_eq!(cursor.key(), 300_u32.to_be_bytes());
}

#[test]
fn clocks_that_jump() {
    let (clock, vfs) = (Clock::new(), mem());
    let db = open(settings(&clock, &vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    tree.put_with_ttl(b"k", b"v", seconds(100)).unwrap();
    tree.put_with_ttl(b"l", b"v", seconds(9000)).unwrap();
    clock.set_wall(3600 * 1_000_000);
    clock.advance(1);
    assert!(!is_there(&db, &tree, b"k") && is_there(&db, &tree, b"l"));
    // Expired values do not return when the clock is corrected.
    clock.set_wall(0);
    clock.advance(1);
    assert!(!is_there(&db, &tree, b"k"));
    tree.put_with_ttl(b"m", b"v", seconds(10)).unwrap();
    tree.put_until(b"n", b"v", UNIX_EPOCH + seconds(1010)).unwrap();
    for key in [b"m", b"n"] {
        assert_eq!(tree.get_with_expiry(key).unwrap().and_then(|found| found.1), Some(UNIX_EPOCH + seconds(1010)));
    }
    clock.advance(10 * SECOND_NS - 2000);
    assert!(is_there(&db, &tree, b"m") && is_there(&db, &tree, b"n"));
    clock.advance(2000);
    assert!(!is_there(&db, &tree, b"m") && !is_there(&db, &tree, b"n"));
    tree.put_with_ttl(b"o", b"v", seconds(100)).unwrap();
    drop((db, tree));
    let db = open(settings(&clock, &vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    assert!(!is_there(&db, &tree, b"k") && is_there(&db, &tree, b"l") && is_there(&db, &tree, b"o"));
    clock.advance(100 * SECOND_NS);
    assert!(!is_there(&db, &tree, b"o"));
}

/// The machine starts with its clock at 1970.
#[test]
fn an_open_does_not_begin_before_what_the_database_knows() {
    for is_flushed in [false, true] {
        let (clock, vfs) = (Clock::new(), mem());
        clock.set_wall(1_700_000_000_000_000);
        let db = open(settings(&clock, &vfs)).unwrap();
        let tree = db.tree("t").unwrap();
        tree.put_with_ttl(b"k", b"v", seconds(10)).unwrap();
        clock.advance(20 * SECOND_NS);
        tree.put_with_ttl(b"l", b"v", seconds(100)).unwrap();
        assert!(!is_there(&db, &tree, b"k") && is_there(&db, &tree, b"l"));
        if is_flushed {
            db.flush().unwrap();
        }
        db.close().unwrap();
        clock.set_wall(0);
        let db = open(settings(&clock, &vfs)).unwrap();
        let tree = db.tree("t").unwrap();
        assert!(!is_there(&db, &tree, b"k") && is_there(&db, &tree, b"l"));
        tree.put_with_ttl(b"m", b"v", seconds(10)).unwrap();
        clock.set_wall(1_700_000_000_000_000);
        clock.advance(1);
        assert!(is_there(&db, &tree, b"m"), "the right time is no jump");
        clock.advance(10 * SECOND_NS);
        assert!(!is_there(&db, &tree, b"m"));
    }
}

#[test]
fn moments_beyond_all_reckoning() {
    let (clock, db, tree) = world();
    tree.put_with_ttl(b"k", b"v", Duration::MAX).unwrap();
    // Windows supports no times after the year 30827.
    let far = [41, 39].iter().find_map(|bits| UNIX_EPOCH.checked_add(Duration::from_secs(1 << bits))).unwrap();
    tree.put_until(b"l", b"v", far).unwrap();
    tree.put_until(b"m", b"v", UNIX_EPOCH - seconds(1)).unwrap();
    clock.advance(u64::MAX / 2);
    assert!(is_there(&db, &tree, b"k") && is_there(&db, &tree, b"l") && !is_there(&db, &tree, b"m"));
    db.compact().unwrap();
    assert!(is_there(&db, &tree, b"k") && is_there(&db, &tree, b"l"));
}

#[test]
fn they_are_replayed() {
    let (clock, vfs) = (Clock::new(), mem());
    let db = open(settings(&clock, &vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    tree.put_with_ttl(b"k", b"v", seconds(100)).unwrap();
    tree.put_with_ttl(b"l", b"v", seconds(10)).unwrap();
    db.close().unwrap();
    clock.advance(10 * SECOND_NS);
    let db = Db::open_with(Settings { read_only: true, ..settings(&clock, &vfs) }, Path::new(DIR)).unwrap();
    let tree = db.open_tree("t").unwrap();
    assert!(is_there(&db, &tree, b"k") && !is_there(&db, &tree, b"l"));
    clock.advance(90 * SECOND_NS);
    assert!(!is_there(&db, &tree, b"k"));
}
