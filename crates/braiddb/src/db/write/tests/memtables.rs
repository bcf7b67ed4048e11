//! Scans of memtables with alternating rows, against a model.

use crate::{
    base::{Cursor, EntryKind, SequenceNumber, TreeId},
    cache::BlockCache,
    memtable::{Memtable, MemtableOptions},
    platform::MemVfs,
    read::{Garbage, ReadState, ScanCursor},
    table::TableContext,
    version::{Change, Edit, FileSet, Layout, Version},
};
use std::{collections::BTreeMap, path::Path, sync::Arc};

type Versions = BTreeMap<Vec<u8>, BTreeMap<SequenceNumber, (EntryKind, Vec<u8>)>>;

struct Chance(u64);

impl Chance {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// Keys with distinct prefixes, with a common one, and keys that are prefixes.
fn key(shape: u64, number: u64) -> Vec<u8> {
    match shape {
        0 => number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec(),
        1 => format!("{:03}/the same in all of them/{}", number / 7, number % 7).into_bytes(),
        _ => vec![[0, 0xff][(number % 2) as usize]; (number / 2) as usize],
    }
}

fn in_tree(tree: TreeId, key: &[u8]) -> Vec<u8> {
    [&tree.first_key(), key].concat()
}

fn empty_version() -> Arc<Version> {
    let mut layout = Layout::default();
    layout.apply(&Edit::new(vec![Change::NewPartition { id: 0, start: vec![], end: None }])).unwrap();
    let context = TableContext::new(Arc::new(MemVfs::new()), BlockCache::new(1 << 20));
    Arc::new(FileSet::new(Path::new("/db"), &context).version(&layout, None).unwrap())
}

/// Newest first. Sequence numbers are mixed unless `in_turn`.
fn memtables(chance: &mut Chance, shape: u64, in_turn: bool) -> (Vec<Arc<Memtable>>, Versions, SequenceNumber) {
    let count = 1 + chance.below(4);
    let make = || Memtable::new(MemtableOptions { arena_chunk_bytes: 4096, filter_bytes: 1024, chunk_pool: None });
    let memtables: Vec<_> = (0..count).map(|_| Arc::new(make())).collect();
    let mut versions = Versions::new();
    let (entries, keys) = (chance.below(900), 1 + chance.below(400));
    let kinds = [EntryKind::Value, EntryKind::Tombstone, EntryKind::BlobRef];
    let specials = chance.below(2);
    for sequence in 1..=entries {
        let at = if in_turn { count - 1 - sequence * count / (entries + 1) } else { chance.below(count) };
        let kind = kinds[match chance.below(20) {
            0..10 => 0,
            10..19 => 1,
            _ => 2 * specials as usize,
        }];
        let tree = [1, 2, 2, 2, 2, 2, 2, 3][chance.below(8) as usize];
        let key = in_tree(TreeId(tree), &key(shape, chance.below(keys)));
        let value = if kind == EntryKind::Tombstone { vec![] } else { sequence.to_be_bytes().to_vec() };
        memtables[at as usize].writer().insert(&key, sequence, kind, &value);
        versions.entry(key).or_default().insert(sequence, (kind, value));
    }
    (memtables, versions, entries)
}

fn rows(versions: &Versions, snapshot: SequenceNumber) -> Vec<(Vec<u8>, EntryKind, Vec<u8>)> {
    let newest = versions.iter().filter_map(|(key, versions)| {
        let (_, (kind, value)) = versions.range(..=snapshot).next_back()?;
        Some((key.clone(), *kind, value.clone()))
    });
    newest.filter(|(_, kind, _)| *kind != EntryKind::Tombstone).collect()
}

fn check(cursor: &ScanCursor, rows: &[(Vec<u8>, EntryKind, Vec<u8>)], at: Option<usize>) {
    assert_eq!(cursor.valid(), at.is_some());
    if let Some(at) = at {
        let entry = cursor.entry();
        let (key, kind, value) = &rows[at];
        assert_eq!((entry.key, entry.kind, entry.value), (&key[..], *kind, &value[..]));
        if let Some(row) = cursor.row_ahead() {
            assert_eq!((row, *kind), ((&key[..], &value[..]), EntryKind::Value));
        }
    }
}

fn walk(cursor: &mut ScanCursor, rows: &[(Vec<u8>, EntryKind, Vec<u8>)], chance: &mut Chance, shape: u64) -> usize {
    let mut at: Option<usize> = None;
    let mut ahead = 0;
    for _ in 0..30 {
        let key = in_tree(TreeId(1 + chance.below(3) as u32), &key(shape, chance.below(400)));
        let from = rows.partition_point(|(k, ..)| *k < key);
        match (chance.below(8), at) {
            (0, _) => {
                cursor.seek(&key).unwrap();
                at = Some(from).filter(|&i| i < rows.len());
            }
            (1, _) => {
                cursor.seek_before(&key).unwrap();
                at = from.checked_sub(1);
            }
            (2, _) => {
                cursor.seek_first().unwrap();
                at = (!rows.is_empty()).then_some(0);
            }
            (3, _) => {
                cursor.seek_last().unwrap();
                at = rows.len().checked_sub(1);
            }
            (way, Some(_)) => {
                for _ in 0..[1, 5, 40, 400][chance.below(4) as usize] {
                    let Some(here) = at else { break };
                    if way % 2 == 0 {
                        cursor.next().unwrap()
                    } else {
                        cursor.prev().unwrap()
                    }
                    let next = if way % 2 == 0 { Some(here + 1) } else { here.checked_sub(1) };
                    at = next.filter(|&i| i < rows.len());
                    ahead += usize::from(cursor.is_ahead());
                    check(cursor, rows, at);
                }
            }
            (_, None) => {}
        }
        check(cursor, rows, at);
    }
    ahead
}

#[test]
fn memtables_that_take_turns_are_shown_as_one() {
    let version = empty_version();
    let mut ahead = [0; 6];
    for seed in 0..600 {
        let chance = &mut Chance(seed);
        let (shape, in_turn) = (seed % 3, seed / 3 % 2 == 0);
        let (mut memtables, versions, last) = memtables(chance, shape, in_turn);
        let active = memtables.remove(0);
        let state = ReadState {
            active,
            frozen: memtables,
            version: Arc::clone(&version),
            garbage: Arc::new(Garbage::default()),
        };
        for _ in 0..3 {
            let snapshot = if chance.below(2) == 0 { last } else { chance.below(last + 1) };
            let rows = rows(&versions, snapshot);
            let mut cursor = ScanCursor::new(&state, snapshot, TreeId(2));
            ahead[(seed % 6) as usize] += walk(&mut cursor, &rows, chance, shape);
        }
    }
    assert!(ahead.iter().all(|&rows| rows > 5_000), "{ahead:?}");
}
