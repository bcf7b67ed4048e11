//! Readers check themselves while a writer inserts.
//!
//! Sequence number `s`, modulo a period, determines the key: a reader knows what it must see.

use super::{
    super::{Memtable, MemtableCursor, MemtableOptions},
    Chance, Shape, ascending, groups, hashed, trees, user,
};
use crate::base::{Cursor, EntryKind, SequenceNumber};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

fn number_of(sequence: SequenceNumber, period: u64) -> u64 {
    sequence % period * 7919 % period
}

fn check(memtable: &Arc<Memtable>, shape: Shape, snapshot: SequenceNumber, period: u64) {
    let expected: BTreeMap<Vec<u8>, SequenceNumber> =
        (1..=snapshot).map(|sequence| (shape(number_of(sequence, period)), sequence)).collect();
    let mut cursor = MemtableCursor::new(Arc::clone(memtable), snapshot);
    cursor.seek_first().unwrap();
    for (key, &sequence) in &expected {
        assert!(cursor.valid(), "too few at {snapshot}");
        let entry = cursor.entry();
        assert_eq!((entry.key, entry.sequence, entry.value), (&key[..], sequence, &sequence.to_le_bytes()[..]));
        cursor.next().unwrap();
    }
    assert!(!cursor.valid(), "too many at {snapshot}");
    cursor.seek_last().unwrap();
    for (key, &sequence) in expected.iter().rev() {
        assert!(cursor.valid(), "too few backwards at {snapshot}");
        assert_eq!((cursor.key(), cursor.sequence()), (&key[..], sequence));
        cursor.prev().unwrap();
    }
    assert!(!cursor.valid(), "too many backwards at {snapshot}");
}

fn probe(memtable: &Arc<Memtable>, shape: Shape, snapshot: SequenceNumber, period: u64, chance: &mut Chance) {
    let mut cursor = MemtableCursor::new(Arc::clone(memtable), snapshot);
    for _ in 0..if cfg!(miri) { 2 } else { 20 } {
        let number = number_of(1 + chance.below(period), period);
        let key = shape(number);
        let newest =
            (snapshot.saturating_sub(period - 1).max(1)..=snapshot).rev().find(|&s| number_of(s, period) == number);
        assert_eq!(memtable.get(&key, snapshot).map(|e| e.sequence), newest, "{key:?} at {snapshot}");
        cursor.seek(&key).unwrap();
        let found = cursor.valid() && cursor.key() == key;
        assert_eq!(found.then(|| cursor.sequence()), newest, "{key:?} at {snapshot}");
        if !cursor.valid() {
            continue;
        }
        let here = cursor.key().to_vec();
        cursor.prev().unwrap();
        if cursor.valid() {
            assert!(cursor.key() < here.as_slice() && cursor.sequence() <= snapshot);
            cursor.next().unwrap();
            assert_eq!(cursor.key(), here);
        }
    }
}

fn run(shape: Shape, inserts: u64, period: u64, readers: u64) {
    let options = MemtableOptions { arena_chunk_bytes: 16 << 10, filter_bytes: 4 << 10, chunk_pool: None };
    let memtable = Arc::new(Memtable::new(options));
    let published = AtomicU64::new(0);
    thread::scope(|scope| {
        for reader in 0..readers {
            let (memtable, published) = (&memtable, &published);
            scope.spawn(move || {
                let mut chance = Chance(reader);
                let mut held = MemtableCursor::new(Arc::clone(memtable), 0);
                let mut held_last: Option<Vec<u8>> = None;
                loop {
                    let snapshot = published.load(Ordering::Acquire);
                    match chance.below(8) {
                        0 if reader % 2 == 0 => check(memtable, shape, snapshot, period),
                        1 => {
                            held = MemtableCursor::new(Arc::clone(memtable), snapshot);
                            held.seek(&shape(chance.below(period))).unwrap();
                            held_last = held.valid().then(|| held.key().to_vec());
                        }
                        2.. if held.valid() => {
                            held.next().unwrap();
                            let key = held.valid().then(|| held.key().to_vec());
                            assert!(key.is_none() || key > held_last, "{key:?} after {held_last:?}");
                            held_last = key;
                            probe(memtable, shape, snapshot, period, &mut chance);
                        }
                        _ => probe(memtable, shape, snapshot, period, &mut chance),
                    }
                    if snapshot == inserts {
                        return;
                    }
                }
            });
        }
        let mut sequence = 0;
        while sequence < inserts {
            let mut writer = memtable.writer();
            for _ in 0..3.min(inserts - sequence) {
                sequence += 1;
                let key = shape(number_of(sequence, period));
                writer.insert(&key, sequence, EntryKind::Value, &sequence.to_le_bytes());
            }
            published.store(sequence, Ordering::Release);
        }
    });
    check(&memtable, shape, inserts, period);
    for snapshot in (0..inserts).step_by(inserts as usize / 7 + 1) {
        check(&memtable, shape, snapshot, period);
    }
}

#[test]
fn readers_see_their_snapshot_during_inserts_of_keys() {
    for shape in [hashed, user, ascending, trees, groups] {
        run(shape, 6000, 5003, 3);
    }
}

#[test]
fn readers_see_their_snapshot_during_inserts_of_versions() {
    for shape in [hashed, user] {
        run(shape, 6000, 211, 3);
    }
}

/// Small enough for Miri, with splits of leaves.
#[test]
fn small_memtable_is_shared_by_two_threads() {
    run(hashed, if cfg!(miri) { 75 } else { 300 }, 67, 1);
    run(user, if cfg!(miri) { 75 } else { 300 }, 97, 1);
}
