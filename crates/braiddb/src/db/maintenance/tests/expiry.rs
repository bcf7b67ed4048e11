//! Everything that moves records keeps their exact expiry times, and no record returns.
//!
//! Regression: records of a table that was exported and ingested lost their expiry times.

use crate::{
    base::Error,
    db::{
        Change, Db, Durability, Follower, Settings, TableBuilder, TableSpec, Tree, TreeOptions, WatchOptions,
        tests_common::{Clock, DIR, SECOND_NS, mem, open, small},
    },
    platform::{Runtime, SystemTime, UNIX_EPOCH, Vfs},
};
use std::{path::Path, sync::Arc, time::Duration};

fn settings(clock: &Arc<Clock>, vfs: &Arc<dyn Vfs>) -> Settings {
    Settings { runtime: Arc::clone(clock) as Arc<dyn Runtime>, ..small(vfs) }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn at(second: u64) -> SystemTime {
    UNIX_EPOCH + seconds(second)
}

type Ends = Vec<(Vec<u8>, usize, Option<u128>)>;

/// Returns the rows of a tree with expiry times. All ways to read must agree.
fn ends(db: &Db, tree: &Tree) -> Ends {
    let us = |time: Option<SystemTime>| time.map(|time| time.duration_since(UNIX_EPOCH).unwrap().as_micros());
    let (snapshot, tx, mut cursor) = (db.snapshot(), db.begin().unwrap(), tree.cursor());
    let mut rows = Vec::new();
    while cursor.next().unwrap() {
        let (key, value) = cursor.row().unwrap();
        let end = us(cursor.expires().unwrap());
        for found in [
            tree.get_with_expiry(key).unwrap(),
            snapshot.get_with_expiry(tree, key).unwrap(),
            tx.get_with_expiry(tree, key).unwrap(),
        ] {
            let (found_value, found_end) = found.unwrap();
            assert_eq!((&*found_value, us(found_end)), (value, end));
        }
        rows.push((key.to_vec(), value.len(), end));
    }
    rows
}

fn fill(tree: &Tree) {
    tree.put(b"for ever", b"1").unwrap();
    tree.put_until(b"odd", b"22", at(1010) + Duration::from_micros(7)).unwrap();
    tree.put_until(b"long", [7; 3000], at(1020) + Duration::from_micros(1)).unwrap();
    tree.put_until(b"past", b"gone", at(999)).unwrap();
    tree.put_with_ttl(b"soon past", b"gone", seconds(1)).unwrap();
    tree.put_until(b"very late", b"4", UNIX_EPOCH + Duration::from_micros(u64::MAX >> 12)).unwrap();
}

fn filled(tree: &Tree, clock: &Clock) -> Ends {
    fill(tree);
    clock.advance(SECOND_NS);
    vec![
        (b"for ever".to_vec(), 1, None),
        (b"long".to_vec(), 3000, Some(1_020_000_001)),
        (b"odd".to_vec(), 2, Some(1_010_000_007)),
        (b"very late".to_vec(), 1, Some(u128::from(u64::MAX >> 12))),
    ]
}

fn paths(tables: &[crate::db::TableInfo]) -> impl Iterator<Item = &Path> {
    tables.iter().map(|table| table.path.as_path())
}

#[test]
fn export_and_ingest_keep_the_ends_of_records() {
    for place in [false, true] {
        let (clock, vfs) = (Clock::new(), mem());
        let db = open(settings(&clock, &vfs)).unwrap();
        let tree = db.tree("t").unwrap();
        let expected = filled(&tree, &clock);
        if place {
            db.compact().unwrap();
        }
        assert_eq!(ends(&db, &tree), expected);
        let tables = tree.export_tables(.., DIR).unwrap();
        assert_eq!(tables.iter().map(|table| table.records).sum::<u64>(), 4, "what has expired is left out");
        tree.delete_range(..).unwrap();
        assert_eq!(ends(&db, &tree), []);
        tree.ingest(paths(&tables)).unwrap();
        assert_eq!(ends(&db, &tree), expected);
        db.compact().unwrap();
        assert_eq!(ends(&db, &tree), expected);
        drop(tree);
        db.close().unwrap();
        let db = open(settings(&clock, &vfs)).unwrap();
        let tree = db.open_tree("t").unwrap();
        assert_eq!(ends(&db, &tree), expected);
        clock.advance(9 * SECOND_NS + 7000);
        assert_eq!(ends(&db, &tree).len(), 3, "\"odd\" is gone");
        assert!(db.verify().unwrap().problems.is_empty());
    }
}

#[test]
fn ingest_after_the_end_of_a_record_does_not_bring_it_back() {
    let (clock, vfs) = (Clock::new(), mem());
    let db = open(settings(&clock, &vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    filled(&tree, &clock);
    let tables = tree.export_tables(.., DIR).unwrap();
    tree.put(b"odd", b"newer, but put before the ingest").unwrap();
    clock.advance(3600 * SECOND_NS);
    tree.ingest(paths(&tables)).unwrap();
    let keys: Vec<Vec<u8>> = ends(&db, &tree).into_iter().map(|(key, ..)| key).collect();
    assert_eq!(keys, [&b"for ever"[..], b"very late"]);
    db.compact().unwrap();
    assert_eq!(ends(&db, &tree).len(), 2);
}

#[test]
fn export_where_the_wall_clock_was_set_back_keeps_lifetimes() {
    let (clock, vfs) = (Clock::new(), mem());
    let db = open(settings(&clock, &vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    filled(&tree, &clock);
    clock.set_wall(-500_000_000);
    let before = ends(&db, &tree);
    let tables = tree.export_tables(.., DIR).unwrap();
    tree.clip(b"x".as_slice()..b"x".as_slice()).unwrap();
    tree.ingest(paths(&tables)).unwrap();
    assert_eq!(ends(&db, &tree), before);
    clock.advance(10 * SECOND_NS);
    assert!(!tree.contains(b"odd").unwrap() && tree.contains(b"long").unwrap());
}

#[test]
fn tables_of_a_tree_with_a_ttl_keep_each_records_own_end() {
    let (clock, vfs) = (Clock::new(), mem());
    let db = open(settings(&clock, &vfs)).unwrap();
    let tree = db.tree_with("t", TreeOptions { ttl: Some(seconds(100)), ..TreeOptions::default() }).unwrap();
    tree.put(b"by the tree", b"1").unwrap();
    tree.put_with_ttl(b"own", b"1", seconds(5)).unwrap();
    let before = ends(&db, &tree);
    let tables = tree.export_tables(.., DIR).unwrap();
    clock.advance(2 * SECOND_NS);
    tree.ingest(paths(&tables)).unwrap();
    assert_eq!(ends(&db, &tree), before, "the load does not begin the time to live again");
    // A table built for this tree gets the tree's ttl.
    let spec: TableSpec = tree.table_spec().unwrap().to_string().parse().unwrap();
    assert_eq!(spec, tree.table_spec().unwrap());
    let path = Path::new(DIR).join("built.table");
    let mut table =
        TableBuilder::create_in(Arc::clone(&vfs), Arc::clone(&clock) as Arc<dyn Runtime>, &path, &spec).unwrap();
    clock.advance(SECOND_NS);
    table.add(b"a", b"1").unwrap();
    table.add_with_ttl(b"b", b"1", seconds(7)).unwrap();
    table.add_until(b"c", b"1", at(2000)).unwrap();
    table.finish().unwrap();
    clock.advance(SECOND_NS);
    tree.ingest([&path]).unwrap();
    let us = |second: u128| Some(second * 1_000_000);
    let built = [(b"a".to_vec(), 1, us(1102)), (b"b".to_vec(), 1, us(1010)), (b"c".to_vec(), 1, us(2000))];
    let mut expected = [before, built.to_vec()].concat();
    expected.sort();
    assert_eq!(ends(&db, &tree), expected);
    assert!("braid-table-2:1:1:512".parse::<TableSpec>().is_err());
    assert!("braid-table-1:1:1:512:5".parse::<TableSpec>().is_err());
}

#[test]
fn export_of_operands_above_a_value_that_expires_is_refused_by_name() {
    let (clock, vfs) = (Clock::new(), mem());
    let db = open(settings(&clock, &vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    let add = db.merge_function("add").unwrap();
    tree.put_until(b"n", 40_u64.to_le_bytes(), at(1010)).unwrap();
    tree.merge(b"n", &add, 2_u64.to_le_bytes()).unwrap();
    tree.merge(b"on nothing", &add, 2_u64.to_le_bytes()).unwrap();
    let end = tree.get_with_expiry(b"n").unwrap().map(|(value, end)| (value.to_vec(), end));
    assert_eq!(end, Some((42_u64.to_le_bytes().to_vec(), Some(at(1010)))));
    let Err(Error::InvalidArgument(reason)) = tree.export_tables(.., DIR) else { panic!("it is refused") };
    assert!(reason.contains("b\"n\"") && reason.contains("expires"), "{reason}");
    assert!(!vfs.list(Path::new(DIR)).unwrap().iter().any(|entry| entry.name.ends_with(".table")));
    clock.advance(10 * SECOND_NS);
    assert_eq!(tree.get_with_expiry(b"n").unwrap().map(|(_, end)| end), Some(None));
    let tables = tree.export_tables(.., DIR).unwrap();
    assert_eq!(tables.iter().map(|table| table.records).sum::<u64>(), 2);
}

/// Regression: an append to operands on an expiring value lost the expiry time.
#[test]
fn append_above_operands_on_a_value_that_expires_keeps_the_end() {
    let clock = Clock::new();
    let db = open(settings(&clock, &mem())).unwrap();
    let tree = db.tree("t").unwrap();
    let append = db.merge_function("append").unwrap();
    for key in [b"a", b"b", b"c"] {
        tree.put_until(key, b"session", at(1010)).unwrap();
    }
    tree.merge(b"a", &append, b"+").unwrap();
    tree.merge(b"b", &append, b"+").unwrap();
    tree.append_stream(b"a", &b"more"[..]).unwrap();
    let tx = db.begin().unwrap();
    tx.append_stream(&tree, b"b", &b"more"[..]).unwrap();
    tx.merge(&tree, b"c", &append, b"+").unwrap();
    assert_eq!(tx.get_with_expiry(&tree, b"c").unwrap().unwrap().1, Some(at(1010)));
    tx.append_stream(&tree, b"c", &b"more"[..]).unwrap();
    assert_eq!(tx.get_with_expiry(&tree, b"c").unwrap().unwrap().1, Some(at(1010)));
    tx.commit().unwrap();
    let expected = [b"a", b"b", b"c"].map(|key| (key.to_vec(), 12, Some(1_010_000_000)));
    assert_eq!(ends(&db, &tree), expected);
    clock.advance(10 * SECOND_NS);
    assert_eq!(ends(&db, &tree), []);
}

#[test]
fn bulk_load_keeps_the_ends_that_records_are_given() {
    for background_threads in [0, 2] {
        let (clock, vfs) = (Clock::new(), mem());
        let db = open(Settings { background_threads, ..settings(&clock, &vfs) }).unwrap();
        let (tree, copy) = (db.tree("t").unwrap(), db.tree("copy").unwrap());
        let expected = filled(&tree, &clock);
        let mut loader = copy.bulk_loader().unwrap();
        let mut cursor = tree.cursor();
        while cursor.next().unwrap() {
            let (key, value) = cursor.row().unwrap();
            match cursor.expires().unwrap() {
                Some(time) => loader.add_until(key, value, time).unwrap(),
                None => loader.add(key, value).unwrap(),
            }
        }
        loader.add_with_ttl(b"z", b"", seconds(3)).unwrap();
        loader.finish().unwrap();
        let last = (b"z".to_vec(), 0, Some(1_004_000_000));
        assert_eq!(ends(&db, &copy), [expected, vec![last]].concat());
    }
}

#[test]
fn clip_rename_and_merges_keep_the_ends_of_records() {
    let clock = Clock::new();
    let db = open(settings(&clock, &mem())).unwrap();
    let tree = db.tree("t").unwrap();
    let expected = filled(&tree, &clock);
    tree.put(b"zzz", b"clipped").unwrap();
    tree.clip(b"a".as_slice()..b"z".as_slice()).unwrap();
    db.flush().unwrap();
    db.rename_tree("t", "u").unwrap();
    db.compact().unwrap();
    assert_eq!(ends(&db, &tree), expected);
}

#[test]
fn checkpoints_and_followers_have_the_ends_of_records() {
    let (clock, vfs) = (Clock::new(), mem());
    let db = open(settings(&clock, &vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    let expected = filled(&tree, &clock);
    let follower = Follower::open_with(settings(&clock, &vfs), Path::new(DIR), None).unwrap();
    let state = follower.db();
    assert_eq!(ends_of_state(&state), expected);
    db.checkpoint("/copy").unwrap();
    let copy = Db::open_with(Settings { create: false, ..settings(&clock, &vfs) }, Path::new("/copy")).unwrap();
    assert_eq!(ends(&copy, &copy.open_tree("t").unwrap()), expected);
}

fn ends_of_state(db: &Db) -> Ends {
    let tree = db.open_tree("t").unwrap();
    let mut cursor = tree.cursor();
    let mut rows = Vec::new();
    while cursor.next().unwrap() {
        let (key, value) = cursor.row().unwrap();
        let end = cursor.expires().unwrap();
        assert_eq!(tree.get_with_expiry(key).unwrap().unwrap().1, end);
        let us = end.map(|time| time.duration_since(UNIX_EPOCH).unwrap().as_micros());
        rows.push((key.to_vec(), value.len(), us));
    }
    rows
}

#[test]
fn watch_shows_the_ends_of_records() {
    let clock = Clock::new();
    let settings = Settings { log_retention_bytes: Some(1 << 20), ..settings(&clock, &mem()) };
    let db = open(settings).unwrap();
    let tree = db.tree("t").unwrap();
    let mut watcher = db.watch(WatchOptions::new().unsynced(true)).unwrap();
    let mut batch = db.batch();
    batch.put_until(&tree, b"odd", b"22", at(1010) + Duration::from_micros(7)).put(&tree, b"plain", b"");
    batch.commit_with(Durability::Buffered).unwrap();
    let set = watcher.try_next().unwrap().expect("it was committed");
    let shown: Vec<_> = set
        .changes
        .iter()
        .map(|change| match change {
            Change::Put { key, expires, .. } => (key.clone(), *expires),
            other => panic!("{other:?}"),
        })
        .collect();
    let odd = at(1010) + Duration::from_micros(7);
    assert_eq!(shown, [(b"odd".to_vec(), Some(odd)), (b"plain".to_vec(), None)]);
}
