//! Cursors and multi-gets against a model, over all kinds of files.

use crate::{
    base::MAX_SEQUENCE,
    db::{
        Cursor, Db, Settings, Tree,
        engine::key::KeyBuf,
        tests_common::{DIR, mem, open, small},
    },
    platform::OpenMode,
    read::{self, GROUP_KEYS, Lookup, LookupKey, ReadState},
    version::FileSet,
};
use std::{collections::BTreeMap, path::Path};

pub(in crate::db) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

pub(in crate::db) struct Random(pub(in crate::db) u64, pub(in crate::db) fn(u64) -> Vec<u8>);

pub(in crate::db) fn plain(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

impl Random {
    pub(in crate::db) fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    pub(in crate::db) fn key(&mut self) -> Vec<u8> {
        let number = self.below(2_500);
        (self.1)(number)
    }

    pub(in crate::db) fn value(&mut self, blobs: bool) -> Vec<u8> {
        let len = if blobs && self.below(40) == 0 { 9_000 } else { 5 + self.below(60) };
        (0..len).map(|i| (self.0 >> (i % 8)) as u8).collect()
    }
}

/// Leaves rows in all kinds of files.
pub(in crate::db) fn change(db: &Db, tree: &Tree, model: &mut Model, random: &mut Random, blobs: bool) {
    for _ in 0..1 + random.below(400) {
        match random.below(20) {
            0..=13 => {
                let (key, value) = (random.key(), random.value(blobs));
                tree.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            14..=18 => {
                let key = random.key();
                tree.delete(&key).unwrap();
                model.remove(&key);
            }
            _ if random.below(10) == 0 => {
                let (a, b) = (random.key(), random.key());
                let (start, end) = (a.clone().min(b.clone()), a.max(b));
                tree.delete_range(start.as_slice()..end.as_slice()).unwrap();
                model.retain(|key, _| *key < start || *key >= end);
            }
            _ => {}
        }
    }
    match random.below(8) {
        0 | 1 => db.flush().unwrap(),
        2 => db.compact().unwrap(),
        _ => {}
    }
}

pub(in crate::db) fn walk(cursor: &mut Cursor, model: &Model, random: &mut Random) {
    let rows: Vec<_> = model.iter().collect();
    // 0 before the first row, `rows.len() + 1` after the last.
    let mut at: Option<usize> = None;
    for _ in 0..30 {
        let key = random.key();
        let from = rows.partition_point(|(k, _)| **k < key);
        let there = match random.below(4) {
            0 => (cursor.seek(&key).unwrap(), from + 1),
            1 => (cursor.seek_before(&key).unwrap(), from),
            2 if random.below(4) == 0 => (cursor.seek_first().unwrap(), 1),
            2 if random.below(4) == 0 => (cursor.seek_last().unwrap(), rows.len()),
            _ if at.is_none() => continue,
            _ => {
                let forward = random.below(2) == 0;
                let mut there = (false, at.unwrap());
                let most = [3, 20, 120][random.below(3) as usize];
                for _ in 0..1 + random.below(most) {
                    let next = if forward { there.1 + 1 } else { there.1.saturating_sub(1) }.min(rows.len() + 1);
                    there = (if forward { cursor.next().unwrap() } else { cursor.prev().unwrap() }, next);
                    check_row(cursor, there, &rows);
                }
                there
            }
        };
        check_row(cursor, there, &rows);
        at = Some(there.1);
    }
}

pub(in crate::db) fn check_row(cursor: &Cursor, (is_there, at): (bool, usize), rows: &[(&Vec<u8>, &Vec<u8>)]) {
    let expected = at.checked_sub(1).and_then(|index| rows.get(index));
    assert_eq!(is_there, expected.is_some());
    assert_eq!(cursor.is_on_row(), is_there);
    if let Some((key, value)) = expected {
        assert_eq!(cursor.key(), key.as_slice());
        assert_eq!(cursor.row().unwrap(), (key.as_slice(), value.as_slice()));
    }
}

fn check_gets(tree: &Tree, model: &Model, random: &mut Random) {
    let keys: Vec<_> = (0..random.below(50)).map(|_| random.key()).collect();
    let expected: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
    let values: Vec<_> = tree.multi_get(&keys).unwrap().into_iter().map(|v| v.map(Vec::from)).collect();
    assert_eq!(values, expected);
    let mut shown = vec![None; keys.len()];
    tree.multi_get_with(&keys, |index, value| shown[index] = Some(value.map(<[u8]>::to_vec))).unwrap();
    assert_eq!(shown, expected.iter().cloned().map(Some).collect::<Vec<_>>());
    for (key, value) in keys.iter().zip(&expected) {
        assert_eq!(tree.get_with(key, <[u8]>::to_vec).unwrap(), *value);
    }
}

#[test]
fn cursors_and_lookups_of_many_keys_agree_with_a_model() {
    for seed in 0..6 {
        let random = &mut Random(seed, plain);
        let vfs = mem();
        let db = open(small(&vfs)).unwrap();
        let (before, tree, after) = (db.tree("a").unwrap(), db.tree("b").unwrap(), db.tree("c").unwrap());
        for i in 0..50 {
            before.put(format!("key{i}"), b"before").unwrap();
            after.put(format!("key{i}"), b"after").unwrap();
        }
        let mut model = Model::new();
        let mut kept: Option<(Cursor, Model)> = None;
        let mut refreshed = tree.cursor();
        for round in 0..60 {
            change(&db, &tree, &mut model, random, seed % 2 == 1);
            walk(&mut tree.cursor(), &model, random);
            refreshed.refresh();
            walk(&mut refreshed, &model, random);
            check_gets(&tree, &model, random);
            if let Some((cursor, model)) = &mut kept {
                walk(cursor, model, random);
            }
            if round % 7 == 0 {
                kept = Some((tree.cursor(), model.clone()));
            }
        }
    }
}

#[test]
fn a_fresh_cursor_goes_to_either_end_and_stays_past_it() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    assert!(!tree.cursor().next().unwrap());
    for i in 0..100u8 {
        tree.put([i], [i]).unwrap();
    }
    let mut cursor = tree.cursor();
    let mut seen = Vec::new();
    while cursor.next().unwrap() {
        seen.push(cursor.key()[0]);
    }
    assert_eq!(seen, (0..100).collect::<Vec<_>>());
    assert!(!cursor.next().unwrap() && !cursor.is_on_row());
    assert!(cursor.prev().unwrap());
    assert_eq!(cursor.key(), [99]);
    assert!(cursor.seek_first().unwrap() && !cursor.prev().unwrap() && !cursor.prev().unwrap());
    assert!(cursor.next().unwrap());
    assert_eq!(cursor.key(), [0]);
    tree.put([200], b"late").unwrap();
    assert!(!cursor.seek([150]).unwrap());
    cursor.refresh();
    assert!(!cursor.is_on_row() && cursor.seek([150]).unwrap());
    db.close().unwrap();
    assert!(cursor.prev().is_err() && cursor.seek([1]).is_err());
}

#[test]
fn a_refreshed_cursor_sees_new_versions_of_the_keys_it_has_read() {
    let db = open(small(&mem())).unwrap();
    let tree = db.tree("t").unwrap();
    for key in [b"1", b"2", b"3"] {
        tree.put(key, b"old").unwrap();
    }
    let rows = |cursor: &mut Cursor| {
        let mut rows = Vec::new();
        let mut is_there = cursor.seek(b"1").unwrap();
        while is_there {
            rows.push((cursor.key().to_vec(), cursor.value().unwrap().to_vec()));
            is_there = cursor.next().unwrap();
        }
        rows
    };
    let mut cursor = tree.cursor();
    let pair = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
    let old = [pair(b"1", b"old"), pair(b"2", b"old"), pair(b"3", b"old")];
    assert_eq!(rows(&mut cursor), old);
    // No new keys, so the files' key ranges stay the same.
    tree.put(b"2", b"new").unwrap();
    tree.delete(b"3").unwrap();
    assert_eq!(rows(&mut cursor), old);
    cursor.refresh();
    assert_eq!(rows(&mut cursor), [pair(b"1", b"old"), pair(b"2", b"new")]);
}

#[test]
fn a_cursor_reads_a_tree_that_is_dropped_later_until_it_is_refreshed() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    for i in 0..100u8 {
        tree.put([i], [i]).unwrap();
    }
    let (mut cursor, mut iter) = (tree.cursor(), tree.iter());
    db.drop_tree("t").unwrap();
    let mut rows = 0;
    while cursor.next().unwrap() {
        rows += 1;
    }
    assert_eq!(rows, 100);
    assert_eq!(iter.by_ref().map(Result::unwrap).count(), 100);
    cursor.refresh();
    assert!(cursor.next().is_err() && tree.cursor().seek([1]).is_err());
}

/// Decoded rows survive eviction.
#[test]
fn rows_decoded_ahead_stay_while_all_else_is_evicted() {
    let vfs = mem();
    let settings = Settings { memory: 1 << 20, block_bytes: 2048, partition_bytes: Some(1 << 30), ..small(&vfs) };
    let db = open(settings).unwrap();
    let tree = db.tree("t").unwrap();
    let row = |i: u64| (format!("key{i:06}").into_bytes(), vec![i as u8; 100 + (i % 50) as usize]);
    for round in 0..3 {
        for i in (round..12_000).step_by(3) {
            let (key, value) = row(i);
            tree.put(&key, &value).unwrap();
        }
        db.flush().unwrap();
    }
    db.compact().unwrap();
    let random = &mut Random(5, plain);
    for forward in [true, false] {
        let mut cursor = tree.cursor();
        let mut at = if forward { 0 } else { 11_999 };
        let mut there = if forward { cursor.seek_first().unwrap() } else { cursor.seek_last().unwrap() };
        let misses = db.stats().cache_misses;
        while there {
            if at % 13 == 0 {
                for _ in 0..40 {
                    let (key, value) = row(random.below(12_000));
                    assert_eq!(tree.get(&key).unwrap().as_deref(), Some(&value[..]));
                }
            }
            let (key, value) = row(at);
            assert_eq!(cursor.row().unwrap(), (&key[..], &value[..]));
            there = if forward { cursor.next().unwrap() } else { cursor.prev().unwrap() };
            at = if forward { at + 1 } else { at.wrapping_sub(1) };
        }
        assert_eq!(at, if forward { 12_000 } else { u64::MAX });
        assert!(db.stats().cache_misses > misses + 1_000, "the cache was too large for the test");
    }
}

/// The cursor reopens and continues.
#[test]
fn a_cursor_goes_on_where_it_was_when_a_view_is_damaged_further_on() {
    let row = |i: u64| (format!("key{i:06}").into_bytes(), vec![i as u8; 40]);
    for forward in [true, false] {
        let vfs = mem();
        let settings = || Settings { partition_bytes: Some(1 << 30), ..small(&vfs) };
        let db = open(settings()).unwrap();
        let tree = db.tree("t").unwrap();
        for i in 0..4_000 {
            let (key, value) = row(i * 7 % 4_000);
            tree.put(&key, &value).unwrap();
        }
        drop(tree);
        db.close().unwrap();
        let is_view = |name: &str| name.ends_with(".view");
        let files = vfs.list(Path::new(DIR)).unwrap();
        let view = files.iter().find(|file| is_view(&file.name)).expect("rows of many memtables are in a view");
        let file = vfs.open(&Path::new(DIR).join(&view.name), OpenMode::ReadWrite).unwrap();
        let damaged_at = 4096 + 4096 * ((file.len().unwrap() / 4096) / 2 - 1) + 100;
        let mut byte = [0];
        file.read_exact_at(&mut byte, damaged_at).unwrap();
        file.write_at(&[byte[0] ^ 1], damaged_at).unwrap();

        let db = open(settings()).unwrap();
        let tree = db.tree("t").unwrap();
        let mut cursor = tree.cursor();
        let mut there = if forward { cursor.seek_first().unwrap() } else { cursor.seek_last().unwrap() };
        let mut passed = 0;
        while there {
            let (key, value) = row(if forward { passed } else { 3_999 - passed });
            assert_eq!(cursor.row().unwrap(), (&key[..], &value[..]), "after {passed} rows");
            passed += 1;
            there = if forward { cursor.next().unwrap() } else { cursor.prev().unwrap() };
        }
        assert_eq!(passed, 4_000);
        // The file is removed once it is unused and rebuilt.
        drop(cursor);
        tree.put(b"x", b"y").unwrap();
        let healed = vfs.list(Path::new(DIR)).unwrap().iter().all(|file| file.name != view.name);
        assert!(healed, "the damaged view was never met");
    }
}

/// Opens the view of its run when read.
struct OpensView<'a> {
    key: KeyBuf,
    open: &'a dyn Fn(),
}

impl std::ops::Deref for OpensView<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        (self.open)();
        &self.key
    }
}

/// Regression: another thread opened a new run's view just after a multi-get had passed the step
/// that finds positions in it. Later steps then used position 0 and missed existing keys.
#[test]
fn many_keys_are_found_where_a_view_is_opened_meanwhile() {
    let db = open(Settings { hash_index_after: u64::MAX, ..small(&mem()) }).unwrap();
    let tree = db.tree("t").unwrap();
    let number = |i: u32| i.to_be_bytes();
    for i in 0..1000 {
        tree.put(number(i), b"v").unwrap();
    }
    db.compact().unwrap();
    let (engine, looks) = (db.engine(), std::cell::Cell::new(0));
    for opened_at in 0..80 {
        let version = FileSet::new(&engine.dir, &engine.storage.table)
            .version(engine.storage.disk.lock().manifest.layout(), None)
            .unwrap();
        assert!(version.partitions.iter().all(|p| p.main_view().is_none()));
        let state = ReadState { version: std::sync::Arc::new(version), ..ReadState::empty() };
        looks.set(0);
        let open = || {
            looks.set(looks.get() + 1);
            if looks.get() == opened_at {
                let runs = state.version.partitions.iter().flat_map(|p| &p.apart);
                assert!(runs.map(|run| run.view().unwrap().meta().entries).sum::<u64>() > 900);
            }
        };
        let key = |i: u32| OpensView { key: KeyBuf::new(tree.state().id, &number(900 + i)), open: &open };
        let keys: Vec<_> = (0..GROUP_KEYS as u32).map(key).collect();
        let mut lookups = std::array::from_fn(|at| Lookup::of(LookupKey::of(&keys[at].key)));
        let guard = crossbeam_epoch::pin();
        read::prepare(&state, &keys, &mut lookups, &guard, |_| {});
        for (key, lookup) in keys.iter().zip(&lookups) {
            let found = read::get_prepared(&state, &key.key, lookup, MAX_SEQUENCE, &guard).unwrap();
            assert!(found.is_some(), "opened at look {opened_at}");
        }
    }
    assert!(looks.get() >= GROUP_KEYS, "{} looks: there were none in between", looks.get());
}

/// A cursor took an idle scan, and dropped it: the next cursor or iterator opened all again.
#[test]
fn dropped_cursor_returns_its_scan_to_the_pool() {
    let db = open(small(&mem())).unwrap();
    let tree = db.tree("t").unwrap();
    tree.put("a", "1").unwrap();
    let take = || db.engine().cell.resting.take(db.snapshot().sequence(), tree.state().id);
    while take().is_some() {}
    let mut cursor = tree.cursor();
    assert!(cursor.next().unwrap());
    assert!(take().is_none());
    drop(cursor);
    assert!(take().is_some());

    let tx = db.begin().unwrap();
    assert!(tx.first(&tree).unwrap().is_some());
    assert!(take().is_some(), "also that of a transaction");

    // A scan whose state was replaced meanwhile does not rest: INVARIANT S1.
    let cursor = tree.cursor();
    db.flush().unwrap();
    while take().is_some() {}
    drop(cursor);
    assert!(take().is_none());
}
