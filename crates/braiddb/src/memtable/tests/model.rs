//! A memtable equals an ordered map of (key, newest sequence first).

use super::{
    super::{Memtable, MemtableCursor},
    Chance, Model, SHAPES, filled, in_tree, mix, small,
};
use crate::base::{Cursor, EntryKind, EntryRef, RangeTombstone, SequenceNumber, limits};
use std::{cmp::Reverse, sync::Arc};

fn shown(model: &Model, snapshot: SequenceNumber) -> Vec<EntryRef<'_>> {
    let mut entries: Vec<EntryRef<'_>> = Vec::new();
    for ((key, Reverse(sequence)), (kind, value)) in model {
        if *sequence <= snapshot && entries.last().is_none_or(|last| last.key != key) {
            entries.push(EntryRef { key, sequence: *sequence, kind: *kind, value });
        }
    }
    entries
}

#[test]
fn scan_returns_all_versions_in_order() {
    for (name, shape) in SHAPES {
        for seed in 0..4 {
            let (memtable, model, last) = filled(*shape, seed, 3000, 1500);
            let mut scan = memtable.scan();
            for ((key, Reverse(sequence)), (kind, value)) in &model {
                assert!(scan.advance(), "{name} {seed}");
                let expected = EntryRef { key, sequence: *sequence, kind: *kind, value };
                assert_eq!(scan.entry(), expected, "{name} {seed}");
            }
            assert!(!scan.advance() && !scan.advance(), "{name} {seed}");
            assert_eq!(memtable.entry_count(), model.len());
            assert_eq!(memtable.raw_bytes(), model.iter().map(|(k, v)| k.0.len() + v.1.len()).sum::<usize>());
            assert!(memtable.bytes() > memtable.raw_bytes());
            assert_eq!(memtable.min_sequence(), model.keys().map(|k| k.1.0).min().unwrap());
            assert_eq!(memtable.max_sequence(), last);
        }
    }
}

#[test]
fn scan_from_starts_at_the_key() {
    for (name, shape) in SHAPES {
        let (memtable, model, _) = filled(*shape, 5, 1000, 700);
        for number in 0..100 {
            let start = shape(number * 9);
            let mut scan = memtable.scan_from(&start);
            for ((key, Reverse(sequence)), _) in model.range((start, Reverse(u64::MAX))..).take(40) {
                assert!(scan.advance(), "{name} {number}");
                assert_eq!((scan.entry().key, scan.entry().sequence), (key.as_slice(), *sequence), "{name} {number}");
            }
        }
    }
}

#[test]
fn get_returns_the_newest_version_at_the_snapshot() {
    for (name, shape) in SHAPES {
        for seed in 0..3 {
            let (memtable, model, last) = filled(*shape, seed, 3000, 1500);
            let mut chance = Chance(seed);
            for _ in 0..3000 {
                let key = shape(chance.below(1600));
                let snapshot = chance.below(last + 2);
                let expected = model.range((key.clone(), Reverse(snapshot))..).next().filter(|(k, _)| k.0 == key);
                let got = memtable.get(&key, snapshot).map(|e| (e.key, e.sequence, e.kind, e.value));
                let expected = expected.map(|((k, Reverse(s)), (kind, v))| (k.as_slice(), *s, *kind, v.as_slice()));
                assert_eq!(got, expected, "{name} {seed} {key:?} at {snapshot}");
            }
        }
    }
}

fn walk(memtable: &Arc<Memtable>, expected: &[EntryRef<'_>], snapshot: SequenceNumber, seed: u64, shape: super::Shape) {
    let mut chance = Chance(seed);
    let mut cursor = MemtableCursor::new(Arc::clone(memtable), snapshot);
    assert!(!cursor.valid());
    let mut at: Option<usize> = None;
    for _ in 0..1500 {
        let key = shape(chance.below(1600));
        let (found, choice) = (expected.partition_point(|e| e.key < key.as_slice()), chance.below(20));
        at = match (choice, at) {
            (0, _) => {
                cursor.seek_first().unwrap();
                Some(0)
            }
            (1, _) => {
                cursor.seek_last().unwrap();
                expected.len().checked_sub(1)
            }
            (2, _) | (_, None) if choice % 2 == 0 => {
                cursor.seek(&key).unwrap();
                Some(found)
            }
            (3, _) | (_, None) => {
                cursor.seek_before(&key).unwrap();
                found.checked_sub(1)
            }
            (4..12, Some(index)) => {
                cursor.next().unwrap();
                Some(index + 1)
            }
            (_, Some(index)) => {
                cursor.prev().unwrap();
                index.checked_sub(1)
            }
        }
        .filter(|&index| index < expected.len());
        assert_eq!(cursor.valid(), at.is_some());
        if let Some(index) = at {
            assert_eq!(cursor.entry(), expected[index]);
            assert_eq!((cursor.key(), cursor.sequence()), (expected[index].key, expected[index].sequence));
        }
    }
}

#[test]
fn cursor_moves_both_ways_at_a_snapshot() {
    for (name, shape) in SHAPES {
        for seed in 0..3 {
            let (memtable, model, last) = filled(*shape, seed, 2500, 1500);
            for snapshot in [0, 1, last / 3, last - 1, last] {
                let expected = shown(&model, snapshot);
                walk(&memtable, &expected, snapshot, seed, *shape);
                let mut cursor = MemtableCursor::new(Arc::clone(&memtable), snapshot);
                cursor.seek_first().unwrap();
                for entry in &expected {
                    assert!(cursor.valid() && cursor.entry() == *entry, "{name} {seed} at {snapshot}");
                    cursor.next().unwrap();
                }
                assert!(!cursor.valid());
                cursor.seek_last().unwrap();
                for entry in expected.iter().rev() {
                    assert!(cursor.valid() && cursor.entry() == *entry, "{name} {seed} at {snapshot}");
                    cursor.prev().unwrap();
                }
                assert!(!cursor.valid());
            }
        }
    }
}

#[test]
fn inserts_descending_and_alternating_keep_order() {
    let memtable = Arc::new(small());
    for i in 0..4000u64 {
        let number = if i % 2 == 0 { 1_000_000 - i } else { 1_000_000 + i };
        memtable.writer().insert(&super::user(number), i + 1, EntryKind::Value, b"v");
    }
    let mut scan = memtable.scan();
    let mut keys = Vec::new();
    while scan.advance() {
        keys.push(scan.entry().key.to_vec());
    }
    assert_eq!(keys.len(), 4000);
    assert!(keys.is_sorted());
}

#[test]
fn inserts_ascending_fill_their_leaves() {
    let memtable = small();
    let empty = memtable.bytes();
    for i in 0..10_000 {
        memtable.writer().insert(&super::user(i), i + 1, EntryKind::Value, b"");
    }
    let bytes_per_entry = (memtable.bytes() - empty) / 10_000;
    assert!(bytes_per_entry < 64, "{bytes_per_entry}");
}

#[test]
fn get_of_a_hot_key_finds_each_version() {
    let memtable = small();
    let key = in_tree(1, b"counter");
    for sequence in 1..=5000u64 {
        memtable.writer().insert(&key, 2 * sequence, EntryKind::Value, &sequence.to_le_bytes());
    }
    assert_eq!(memtable.get(&key, 1), None);
    for snapshot in 2..10_001u64 {
        let entry = memtable.get(&key, snapshot).unwrap();
        assert_eq!((entry.sequence, entry.value), (snapshot & !1, &(snapshot / 2).to_le_bytes()[..]));
    }
}

#[test]
fn insert_of_the_same_version_replaces_it() {
    let memtable = Arc::new(small());
    let key = in_tree(1, b"k");
    memtable.writer().insert(&key, 1, EntryKind::Value, b"a");
    memtable.writer().insert(&key, 2, EntryKind::Value, b"b");
    memtable.writer().insert(&key, 2, EntryKind::Tombstone, b"");
    assert_eq!(memtable.get(&key, 9).unwrap().kind, EntryKind::Tombstone);
    assert_eq!(memtable.get(&key, 1).unwrap().value, b"a");
    let mut scan = memtable.scan();
    let mut sequences = Vec::new();
    while scan.advance() {
        sequences.push(scan.entry().sequence);
    }
    assert_eq!((sequences, memtable.entry_count()), (vec![2, 1], 2));
}

#[test]
fn insert_of_the_longest_key_and_large_value_fits() {
    let memtable = small();
    let key = vec![7; limits::MAX_INTERNAL_KEY_LEN];
    let value: Vec<u8> = (0..(1 << 20) + 3).map(|i| i as u8).collect();
    memtable.writer().insert(&key, 1, EntryKind::Value, &value);
    memtable.writer().insert(&key[1..], 2, EntryKind::Value, b"shorter");
    assert_eq!(memtable.get(&key, 1).unwrap().value, value);
    assert_eq!(memtable.get(&key[1..], 2).unwrap().value, b"shorter");
    assert!(memtable.bytes() > value.len() + 2 * key.len());
}

#[test]
fn empty_memtable_returns_nothing() {
    let memtable = Arc::new(small());
    assert!(memtable.is_empty() && memtable.entry_count() == 0 && memtable.raw_bytes() == 0);
    assert_eq!((memtable.min_sequence(), memtable.max_sequence()), (crate::base::MAX_SEQUENCE, 0));
    assert_eq!(memtable.get(b"\0\0\0\x01a", 9), None);
    let mut cursor = MemtableCursor::new(Arc::clone(&memtable), 9);
    for seek in [Cursor::seek_first, Cursor::seek_last] {
        seek(&mut cursor).unwrap();
        assert!(!cursor.valid());
    }
    cursor.seek(b"").unwrap();
    assert!(!cursor.valid());
    cursor.seek_before(b"z").unwrap();
    assert!(!cursor.valid());
    assert!(!memtable.scan().advance());
}

#[test]
fn range_tombstones_are_visible_after_insert() {
    let memtable = small();
    assert!(memtable.range_tombstones().is_none());
    for i in 0..3000u32 {
        let (start, end) = (in_tree(i, b"a"), in_tree(i, b"m"));
        memtable.writer().insert_range_tombstone(RangeTombstone { start, end, sequence: u64::from(i) + 10 });
    }
    let set = memtable.range_tombstones().unwrap();
    assert_eq!(set.len(), 3000);
    assert_eq!(set.newest_covering(&in_tree(77, b"b"), u64::MAX), 87);
    assert_eq!(set.newest_covering(&in_tree(77, b"m"), u64::MAX), 0);
    assert!(Arc::ptr_eq(&set, &memtable.range_tombstones().unwrap()), "made once");
    assert_eq!((memtable.min_sequence(), memtable.max_sequence()), (10, 3009));
    assert!(!memtable.is_empty() && memtable.entry_count() == 0);
}

#[test]
fn newest_covering_between_inserts_sees_the_newest_tombstone() {
    let mut chance = Chance(77);
    let memtable = Memtable::new(crate::memtable::MemtableOptions::default());
    let mut all = Vec::new();
    assert_eq!(memtable.newest_covering(b"a", 99), 0);
    for sequence in 1..400u64 {
        let bound = |chance: &mut Chance| vec![chance.below(60) as u8];
        let (start, end) = (bound(&mut chance), bound(&mut chance));
        let tombstone = RangeTombstone { start, end, sequence };
        memtable.writer().insert_range_tombstone(tombstone.clone());
        all.push(tombstone);
        for _ in 0..chance.below(3) {
            let (key, snapshot) = (bound(&mut chance), chance.below(sequence + 2));
            let covers = |t: &&RangeTombstone| t.start <= key && key < t.end && t.sequence <= snapshot;
            let expected = all.iter().filter(covers).map(|t| t.sequence).max().unwrap_or(0);
            assert_eq!(memtable.newest_covering(&key, snapshot), expected, "{key:?} at {snapshot}");
        }
    }
}

#[test]
fn count_keys_counts_by_range() {
    let memtable = Arc::new(small());
    let keys: Vec<Vec<u8>> = (0..3000u32).map(|i| in_tree(1, &mix(u64::from(i)).to_be_bytes()[..3])).collect();
    for (sequence, key) in keys.iter().enumerate() {
        memtable.writer().insert(key, sequence as u64 + 1, EntryKind::Value, b"v");
    }
    let distinct: std::collections::BTreeSet<&Vec<u8>> = keys.iter().collect();
    let mut chance = Chance(5);
    for bounds in 0..40 {
        let mut ends: Vec<&[u8]> = (0..bounds).map(|_| keys[chance.below(3000) as usize].as_slice()).collect();
        ends.sort_unstable();
        ends.dedup();
        let ends: Vec<Option<&[u8]>> = ends.into_iter().map(Some).chain([None]).collect();
        let before =
            |end: Option<&[u8]>| distinct.iter().filter(|key| end.is_none_or(|end| key.as_slice() < end)).count();
        let mut expected: Vec<usize> = ends.iter().map(|end| before(*end)).collect();
        for at in (1..expected.len()).rev() {
            expected[at] -= expected[at - 1];
        }
        assert_eq!(memtable.count_keys(&ends), expected);
    }
}

#[test]
fn count_and_samples_of_a_range_match_its_keys() {
    let memtable = Arc::new(small());
    assert_eq!(memtable.count_between(b"", None), 0);
    assert!(memtable.sample_between(b"", None, 10).is_empty());
    let keys: Vec<Vec<u8>> = (0..4000u32).map(|i| in_tree(1, &mix(u64::from(i)).to_be_bytes()[..3])).collect();
    for (sequence, key) in keys.iter().chain(&keys[..500]).enumerate() {
        memtable.writer().insert(key, sequence as u64 + 1, EntryKind::Value, b"v");
    }
    let distinct: std::collections::BTreeSet<&Vec<u8>> = keys.iter().collect();
    assert_eq!((memtable.key_count(), memtable.entry_count()), (distinct.len(), 4500));
    let mut chance = Chance(6);
    for round in 0..200 {
        let mut key = |cut: u64| keys[chance.below(4000) as usize][..7 - chance.below(cut) as usize].to_vec();
        let (start, end) = (if round % 5 == 0 { Vec::new() } else { key(3) }, (round % 3 > 0).then(|| key(3)));
        let in_range: Vec<&Vec<u8>> = distinct
            .iter()
            .copied()
            .filter(|key| **key >= start && end.as_ref().is_none_or(|end| *key < end))
            .collect();
        assert_eq!(memtable.count_between(&start, end.as_deref()), in_range.len());
        let max = 1 + chance.below(60) as usize;
        let samples = memtable.sample_between(&start, end.as_deref(), max);
        assert_eq!(samples.first().map(|(key, _)| key), in_range.first().copied());
        assert!(samples.len() <= max + 1, "{} of {max}", samples.len());
        let mut at = 0;
        for (key, count) in samples {
            assert_eq!(&key, in_range[at]);
            at += count;
        }
        assert_eq!(at, in_range.len());
    }
}
