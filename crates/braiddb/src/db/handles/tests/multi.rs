//! Multi-trees against a model, over all kinds of files.

use super::cursor::Random;
use crate::{
    base::{Result, limits},
    db::{
        Db, Durability, MultiCursor, MultiTree, Settings, Snapshot,
        handles::multi::tree::{bounds_of, is_split_at, split, unescape},
        read::point_read,
        tests_common::{mem, open, small},
    },
    read,
    view::segments_read,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

type Pairs = BTreeSet<(Vec<u8>, Vec<u8>)>;

/// Keys that are prefixes of each other, with and without zero bytes.
const KEYS: [&[u8]; 7] = [b"", b"\0", b"a", b"a\0", b"a\0\x01", b"a\x01", b"z"];

fn value(number: u64) -> Vec<u8> {
    match number % 50 {
        0 => vec![0; number as usize % 7],
        1 => vec![0xff; 1 + number as usize % 3],
        _ => format!("{number:06}").into_bytes(),
    }
}

fn rows(pairs: impl Iterator<Item = Result<(crate::db::Key, crate::db::Value)>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    pairs.map(|pair| pair.map(|(key, value)| (key.into(), value.into())).unwrap()).collect()
}

fn all(values: impl Iterator<Item = Result<crate::db::Value>>) -> Vec<Vec<u8>> {
    values.map(|value| value.unwrap().into()).collect()
}

fn values_of(pairs: &Pairs, key: &[u8]) -> Vec<Vec<u8>> {
    pairs.iter().filter(|(of, _)| of == key).map(|(_, value)| value.clone()).collect()
}

/// Leaves pairs in all kinds of files.
fn change(db: &Db, tree: &MultiTree, pairs: &mut Pairs, random: &mut Random, values: u64) {
    for _ in 0..1 + random.below(300) {
        let key = KEYS[random.below(KEYS.len() as u64) as usize].to_vec();
        let value = value(random.below(values));
        match random.below(400) {
            0 => {
                tree.delete(&key).unwrap();
                pairs.retain(|(of, _)| *of != key);
            }
            1 => {
                let mut batch = db.batch();
                batch.add(tree, &key, b"gone").delete(tree, &key).add(tree, &key, &value);
                batch.commit_with(Durability::Buffered).unwrap();
                pairs.retain(|(of, _)| *of != key);
                pairs.insert((key, value));
            }
            2..120 => {
                tree.delete_pair(&key, &value).unwrap();
                pairs.remove(&(key, value));
            }
            _ => {
                tree.add(&key, &value).unwrap();
                pairs.insert((key, value));
            }
        }
    }
    match random.below(8) {
        0 => db.compact().unwrap(),
        1..4 => db.flush().unwrap(),
        _ => {}
    }
}

#[derive(Default)]
struct Ways {
    counted: u32,
    walked: u32,
}

fn check_counts(db: &Db, tree: &MultiTree, pairs: &Pairs, ways: &mut Ways) {
    for key in KEYS {
        let expected = values_of(pairs, key).len() as u64;
        assert_eq!(tree.count_values(key).unwrap(), expected, "values of {key:?}");
        let engine = db.engine();
        let (state, snapshot) = engine.state_for(None).unwrap();
        let (start, end) = bounds_of(tree.state().id, key);
        let counted = read::count(&state, &start, &end, snapshot, point_read::time_of(engine, None)).unwrap();
        if counted.left.is_empty() {
            assert_eq!(counted.keys, expected);
            ways.counted += 1;
        } else {
            ways.walked += 1;
        }
    }
    let all = tree.range(..).count();
    assert_eq!(all, pairs.len());
}

fn check_snapshot(snapshot: &Snapshot, tree: &MultiTree, pairs: &Pairs, random: &mut Random) {
    for key in KEYS {
        assert_eq!(snapshot.multi_tree(tree).count_values(key).unwrap(), values_of(pairs, key).len() as u64);
    }
    let key = KEYS[random.below(7) as usize];
    let value = value(random.below(500));
    assert_eq!(snapshot.multi_tree(tree).contains_pair(key, &value).unwrap(), pairs.contains(&(key.to_vec(), value)));
    assert_eq!(rows(snapshot.multi_tree(tree).iter()), pairs.iter().cloned().collect::<Vec<_>>());
}

#[test]
fn counts_are_exact_whatever_was_written_and_wherever_it_is() {
    let mut ways = Ways::default();
    for seed in 0..12 {
        let random = &mut Random(seed, |_| Vec::new());
        let vfs = mem();
        let settings = Settings { loose_runs: 2 + random.below(6) as usize, ..small(&vfs) };
        let partition_bytes = [Some(64 << 10), Some(8 << 20)][random.below(2) as usize];
        let db =
            open(Settings { partition_bytes, memtable_bytes: Some(8 << 10 << random.below(3)), ..settings }).unwrap();
        let (tree, other) = (db.multi_tree("pairs").unwrap(), db.tree("other").unwrap());
        let mut pairs = Pairs::new();
        let mut snapshots: Vec<(Snapshot, Pairs)> = Vec::new();
        let values = [300, 3_000][random.below(2) as usize];
        for round in 0..40u32 {
            change(&db, &tree, &mut pairs, random, values);
            other.put(round.to_be_bytes(), b"beside").unwrap();
            check_counts(&db, &tree, &pairs, &mut ways);
            if random.below(4) == 0 {
                snapshots.push((db.snapshot(), pairs.clone()));
            }
            if snapshots.len() > 3 {
                snapshots.swap_remove(random.below(3) as usize);
            }
            for (snapshot, pairs) in &snapshots {
                check_snapshot(snapshot, &tree, pairs, random);
            }
            check_cursor(&tree, &pairs, random, values);
            check_transaction(&db, &tree, &pairs, random, values);
        }
        db.verify().unwrap();
    }
    assert!(ways.counted > 1000 && ways.walked > 100, "{} counted, {} walked", ways.counted, ways.walked);
}

fn expect(is_there: bool, cursor: &MultiCursor, expected: Option<&(Vec<u8>, Vec<u8>)>) {
    assert_eq!(is_there.then(|| cursor.pair()), expected.map(|(key, value)| (key.as_slice(), value.as_slice())));
}

fn check_cursor(tree: &MultiTree, pairs: &Pairs, random: &mut Random, values: u64) {
    let cursor = &mut tree.cursor();
    for _ in 0..30 {
        let key = KEYS[random.below(7) as usize].to_vec();
        let pair = (key.clone(), value(random.below(values)));
        let first_of_key = (key.clone(), Vec::new());
        let within = |found: Option<&'_ (Vec<u8>, Vec<u8>)>| found.filter(|(of, _)| *of == key).cloned();
        match random.below(6) {
            0 => expect(cursor.seek(&key).unwrap(), cursor, pairs.range(first_of_key..).next()),
            1 => expect(cursor.seek_before(&key).unwrap(), cursor, pairs.range(..first_of_key).next_back()),
            2 => {
                let is_there = cursor.seek_value(&key, &pair.1).unwrap();
                expect(is_there, cursor, within(pairs.range(&pair..).next()).as_ref());
            }
            3 => {
                let is_there = cursor.seek_value_before(&key, &pair.1).unwrap();
                expect(is_there, cursor, within(pairs.range(..&pair).next_back()).as_ref());
            }
            4 => {
                let is_there = cursor.seek_first_value(&key).unwrap();
                expect(is_there, cursor, within(pairs.range(first_of_key..).next()).as_ref());
            }
            _ => {
                let is_there = cursor.seek_last_value(&key).unwrap();
                expect(is_there, cursor, pairs.iter().rfind(|(of, _)| *of == key));
            }
        }
        assert_eq!(cursor.count_values_of(&key).unwrap(), values_of(pairs, &key).len() as u64);
        if !cursor.is_on_pair() {
            let pair = if random.below(2) == 0 { pairs.iter().next() } else { pairs.iter().next_back() };
            let is_first = pair == pairs.iter().next();
            let is_there = if is_first { cursor.seek_first() } else { cursor.seek_last() };
            expect(is_there.unwrap(), cursor, pair);
            continue;
        }
        assert_eq!(cursor.count_values().unwrap(), values_of(pairs, cursor.key()).len() as u64);
        for _ in 0..random.below(12) {
            step_cursor(cursor, pairs, random.below(6));
            if !cursor.is_on_pair() {
                break;
            }
        }
    }
    let range = value(random.below(values))..=value(random.below(values));
    let key = KEYS[random.below(7) as usize];
    let expected: Vec<_> = values_of(pairs, key).into_iter().filter(|value| range.contains(value)).collect();
    let found = all(tree.values_range(key, range.clone()));
    assert_eq!(found, expected, "{range:?} of {key:?}");
    let found = all(tree.values_range(key, range).rev());
    assert!(found.iter().eq(expected.iter().rev()));
}

fn step_cursor(cursor: &mut MultiCursor, pairs: &Pairs, way: u64) {
    let at = (cursor.key().to_vec(), cursor.value().to_vec());
    let after = pairs.range((Bound::Excluded(&at), Bound::Unbounded)).next();
    let before = pairs.range(..&at).next_back();
    match way {
        0 => expect(cursor.next().unwrap(), cursor, after),
        1 => expect(cursor.prev().unwrap(), cursor, before),
        2 => {
            let expected = after.filter(|(key, _)| *key == at.0);
            expect(cursor.next_value().unwrap(), cursor, expected);
            if expected.is_none() {
                assert!(!cursor.is_on_pair() && !cursor.next_value().unwrap());
                match at.1.len() % 3 {
                    0 => expect(cursor.next().unwrap(), cursor, after),
                    1 => expect(cursor.prev_value().unwrap(), cursor, Some(&at)),
                    _ => expect(cursor.prev().unwrap(), cursor, Some(&at)),
                }
            }
        }
        3 => {
            let expected = before.filter(|(key, _)| *key == at.0);
            expect(cursor.prev_value().unwrap(), cursor, expected);
            if expected.is_none() {
                assert!(!cursor.is_on_pair() && !cursor.prev_value().unwrap());
                match at.1.len() % 3 {
                    0 => expect(cursor.prev_key().unwrap(), cursor, before),
                    1 => expect(cursor.next_value().unwrap(), cursor, Some(&at)),
                    _ => expect(cursor.next_key().unwrap(), cursor, Some(&at)),
                }
            }
        }
        4 => expect(cursor.next_key().unwrap(), cursor, pairs.iter().find(|(key, _)| *key > at.0)),
        _ => expect(cursor.prev_key().unwrap(), cursor, pairs.iter().rfind(|(key, _)| *key < at.0)),
    }
}

fn check_transaction(db: &Db, tree: &MultiTree, pairs: &Pairs, random: &mut Random, values: u64) {
    let tx = if random.below(3) == 0 { db.begin_exclusive().unwrap() } else { db.begin().unwrap() };
    let view = tx.multi_tree(tree);
    let mut seen = pairs.clone();
    for _ in 0..random.below(25) {
        let pair = (KEYS[random.below(7) as usize].to_vec(), value(random.below(values)));
        match random.below(8) {
            0 => {
                view.delete(&pair.0).unwrap();
                seen.retain(|(of, _)| *of != pair.0);
            }
            1..4 => {
                view.delete_pair(&pair.0, &pair.1).unwrap();
                seen.remove(&pair);
            }
            _ => {
                view.add(&pair.0, &pair.1).unwrap();
                seen.insert(pair.clone());
            }
        }
        assert_eq!(view.count_values(&pair.0).unwrap(), values_of(&seen, &pair.0).len() as u64);
        assert_eq!(view.contains_pair(&pair.0, &pair.1).unwrap(), seen.contains(&pair));
    }
    for key in KEYS {
        assert_eq!(view.count_values(key).unwrap(), values_of(&seen, key).len() as u64);
    }
    assert_eq!(rows(view.iter()), seen.iter().cloned().collect::<Vec<_>>());
    let from = value(random.below(values));
    let key = KEYS[random.below(7) as usize];
    let found = all(view.values_range(key, &from[..]..).rev());
    let expected = values_of(&seen, key).into_iter().rev().filter(|value| *value >= from);
    assert!(found.into_iter().eq(expected));
    tx.rollback();
}

/// Counting a long settled range reads only the segments at its ends.
#[test]
fn a_count_of_settled_data_costs_its_ends() {
    let db = open(Settings { partition_bytes: Some(1 << 30), memtable_bytes: Some(2 << 20), ..small(&mem()) }).unwrap();
    let tree = db.multi_tree("pairs").unwrap();
    for round in 0..3u32 {
        for number in (round..30_000).step_by(3) {
            let mut batch = db.batch();
            batch.add(&tree, b"much", number.wrapping_mul(0x9e37_79b9).to_be_bytes());
            batch.add(&tree, number.to_be_bytes(), b"little");
            batch.commit_with(Durability::Buffered).unwrap();
        }
        db.flush().unwrap();
    }
    for number in (0..30_000u32).step_by(10) {
        tree.delete_pair(b"much", number.wrapping_mul(0x9e37_79b9).to_be_bytes()).unwrap();
    }
    db.compact().unwrap();
    db.flush().unwrap();
    let resident = || db.engine().storage.disk.lock().files.resident_bytes();
    assert_eq!(tree.count_values(b"none").unwrap(), 0);
    let before = resident();
    for _ in 0..2 {
        assert_eq!(tree.count_values(b"much").unwrap(), 27_000);
    }
    assert!(resident() > before && resident() < before + (64 << 10), "from {before} to {} bytes", resident());
    let read = segments_read();
    assert_eq!(tree.count_values(b"much").unwrap(), 27_000);
    assert!(segments_read() - read <= 6, "{} segments", segments_read() - read);
    let read = segments_read();
    assert_eq!(tree.count_values(7u32.to_be_bytes()).unwrap(), 1);
    assert!(segments_read() - read <= 6, "{} segments", segments_read() - read);
    tree.delete_pair(b"much", 1u32.wrapping_mul(0x9e37_79b9).to_be_bytes()).unwrap();
    tree.delete_pair(b"much", b"none").unwrap();
    tree.add(b"much", 2u32.wrapping_mul(0x9e37_79b9).to_be_bytes()).unwrap();
    tree.add(b"much", b"new").unwrap();
    tree.add(b"much", 10u32.wrapping_mul(0x9e37_79b9).to_be_bytes()).unwrap();
    let read = segments_read();
    assert_eq!(tree.count_values(b"much").unwrap(), 27_001);
    assert!(segments_read() - read <= 16, "{} segments", segments_read() - read);
    tree.delete(b"much").unwrap();
    tree.add(b"much", b"again").unwrap();
    let read = segments_read();
    assert_eq!(tree.count_values(b"much").unwrap(), 1);
    assert!(segments_read() - read <= 6, "{} segments", segments_read() - read);
}

/// A cached count needs a reader of the whole view, and no newer entries.
#[test]
fn count_kept_in_view_is_not_used_for_another_snapshot() {
    let db = open(Settings { partition_bytes: Some(1 << 30), memtable_bytes: Some(2 << 20), ..small(&mem()) }).unwrap();
    let tree = db.multi_tree("pairs").unwrap();
    let add = |numbers: std::ops::Range<u32>| {
        let mut batch = db.batch();
        for number in numbers {
            batch.add(&tree, b"much", number.to_be_bytes());
        }
        batch.commit_with(Durability::Buffered).unwrap();
    };
    add(0..5000);
    let before = db.snapshot();
    add(5000..8000);
    db.compact().unwrap();
    db.flush().unwrap();
    for _ in 0..3 {
        assert_eq!(tree.count_values(b"much").unwrap(), 8000);
    }
    assert_eq!(before.multi_tree(&tree).count_values(b"much").unwrap(), 5000);
    assert_eq!(tree.count_values(b"much").unwrap(), 8000);
    let (mut values, mut is_of_view) = (8000, false);
    while !is_of_view {
        assert!(values < 16_000, "no view of several runs was made");
        add(values..values + 100);
        values += 100;
        assert_eq!(tree.count_values(b"much").unwrap(), u64::from(values), "in a memtable");
        is_of_view = layout(&db).0;
        db.flush().unwrap();
        assert_eq!(tree.count_values(b"much").unwrap(), u64::from(values), "in a run");
        assert_eq!(before.multi_tree(&tree).count_values(b"much").unwrap(), 5000);
        is_of_view &= layout(&db) == (true, 1);
    }
}

fn layout(db: &Db) -> (bool, usize) {
    let (state, _) = db.engine().state_for(None).unwrap();
    let partition = &state.version.partitions[0];
    (partition.view.is_some(), partition.apart.len())
}

#[test]
fn counts_of_transactions_are_checked() {
    let db = open(small(&mem())).unwrap();
    let (tree, other) = (db.multi_tree("pairs").unwrap(), db.tree("other").unwrap());
    for number in 0..100u8 {
        tree.add(b"k", [number]).unwrap();
    }
    type Write = fn(&MultiTree) -> Result<u64>;
    let writes: [(Write, bool); 5] = [
        (|tree| tree.add(b"k", b"new"), true),
        (|tree| tree.delete_pair(b"k", [9]), true),
        (|tree| tree.delete(b"k"), true),
        (|tree| tree.add(b"j", b"new"), false),
        (|tree| tree.add(b"k\0", b"new"), false),
    ];
    for (write, is_conflict) in writes {
        let tx = db.begin().unwrap();
        let before = tree.count_values(b"k").unwrap();
        assert_eq!(tx.multi_tree(&tree).count_values(b"k").unwrap(), before);
        tx.put(&other, b"count", before.to_be_bytes()).unwrap();
        write(&tree).unwrap();
        assert_eq!(tx.multi_tree(&tree).count_values(b"k").unwrap(), before);
        assert_eq!(tx.commit().is_err_and(|e| e.is_conflict()), is_conflict);
    }
    let tx = db.begin().unwrap();
    assert_eq!(tx.multi_tree(&tree).values_range(b"new", &b"a"[..]..&b"c"[..]).count(), 0);
    tx.put(&other, b"count", b"").unwrap();
    tree.add(b"new", b"c").unwrap();
    tree.add(b"new", b"b").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
    let tx = db.begin().unwrap();
    assert_eq!(tx.multi_tree(&tree).values_range(b"newer", &b"a"[..]..&b"c"[..]).count(), 0);
    tx.put(&other, b"count", b"").unwrap();
    tree.add(b"newer", b"c").unwrap();
    tx.commit().unwrap();
}

#[test]
fn keys_and_values_have_up_to_64_kib_each() {
    let vfs = mem();
    let mut expected = BTreeMap::new();
    {
        let db = open(small(&vfs)).unwrap();
        let (tree, plain) = (db.multi_tree("pairs").unwrap(), db.tree("plain").unwrap());
        for byte in [0, 7, 0xff] {
            let long = vec![byte; limits::MAX_KEY_LEN];
            for value in [b"short".to_vec(), long.clone(), [&long[1..], b"x"].concat()] {
                tree.add(&long, &value).unwrap();
                expected.entry(long.clone()).or_insert_with(BTreeSet::new).insert(value);
            }
            plain.put(&long, [byte]).unwrap();
            let over = vec![byte; limits::MAX_KEY_LEN + 1];
            for refused in [tree.add(&over, b""), tree.add(b"", &over), plain.put(&over, b""), tree.delete(&over)] {
                assert!(refused.is_err());
            }
            assert!(tree.count_values(&over).is_err() && tree.contains_pair(b"", &over).is_err());
        }
        assert_eq!(limits::MAX_KEY_LEN, 64 << 10);
        db.flush().unwrap();
        db.compact().unwrap();
        db.close().unwrap();
    }
    let db = open(small(&vfs)).unwrap();
    let (tree, plain) = (db.multi_tree("pairs").unwrap(), db.tree("plain").unwrap());
    for (key, values) in &expected {
        assert_eq!(tree.count_values(key).unwrap(), values.len() as u64);
        let mut cursor = tree.cursor();
        assert!(cursor.seek_last_value(key).unwrap());
        for value in values.iter().rev() {
            assert!(tree.contains_pair(key, value).unwrap());
            assert_eq!(cursor.pair(), (key.as_slice(), value.as_slice()));
            cursor.prev_value().unwrap();
        }
        assert_eq!(plain.get(key).unwrap().as_deref(), Some(&key[..1]));
    }
    assert_eq!(tree.iter().count(), 9);
    db.verify().unwrap();
}

#[test]
fn what_is_no_pair_is_told_and_what_was_escaped_comes_back() {
    for key in KEYS.iter().copied().chain([&b"\0\0\0"[..], b"\0\xff", b"\xff\0\xff"]) {
        for value in [&b""[..], b"\0", b"\0\x01", b"v\0\xff"] {
            let (start, _) = bounds_of(crate::base::TreeId(9), key);
            let bytes = [&start[4..], value].concat();
            let (at, is_escaped) = split(&bytes).unwrap();
            assert_eq!((&bytes[at..], is_escaped), (value, key.contains(&0)));
            for place in 0..bytes.len() + 2 {
                assert_eq!(is_split_at(&bytes, place), place == at && !is_escaped, "{bytes:?} at {place}");
            }
            let mut unescaped = Vec::new();
            unescape(&bytes[..at - 2], &mut unescaped);
            assert_eq!(unescaped, key);
        }
    }
    for bytes in [&b""[..], b"key", b"key\0", b"key\0\x02", b"\0\xff", b"k\0\0\x01"] {
        assert_eq!(split(bytes), None, "{bytes:?}");
        assert!((0..8).all(|place| !is_split_at(bytes, place)));
    }
    for len in 1..40 {
        for zero in 0..len {
            let mut key = vec![b'k'; len];
            key[zero] = 0;
            let bytes = [&key[..], &[0, 1], b"value"].concat();
            assert!(!is_split_at(&bytes, len + 2), "{len} {zero}");
        }
        assert!(is_split_at(&[&vec![b'k'; len][..], &[0, 1]].concat(), len + 2));
    }
}
