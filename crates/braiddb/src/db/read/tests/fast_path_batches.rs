//! Batched fast gets agree with single ones.

use super::fast_path::{Model, ROWS, compact_until_indexed, key, loaded, loaded_with, settings};
use crate::{
    base::limits,
    db::{
        Db, Settings, Tree,
        tests_common::{Clock, SECOND_NS, open},
    },
};
use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

thread_local! {
    static ANSWERED: Cell<u64> = const { Cell::new(0) };
}

pub(in crate::db) fn note(known: u32) {
    ANSWERED.set(ANSWERED.get() + u64::from(known));
}

/// Looks up keys in one call, latest and at a snapshot. Returns the number of fast answers.
fn check_keys(db: &Db, tree: &Tree, model: &Model, keys: &[Vec<u8>]) -> u64 {
    let expected = |key: &Vec<u8>| model.get(key).map(Vec::as_slice);
    let (snapshot, before) = (db.snapshot(), ANSWERED.get());
    let mut shown = 0;
    let mut show = |at: usize, value: Option<&[u8]>| {
        assert_eq!(at, shown, "they are shown in order");
        assert_eq!(value, expected(&keys[at]), "key {at} of {}: {:?}", keys.len(), keys[at]);
        shown += 1;
    };
    tree.multi_get_with(keys, &mut show).unwrap();
    assert_eq!(shown, keys.len());
    let answered = ANSWERED.get() - before;
    let at_snapshot = snapshot.multi_get(tree, keys).unwrap();
    assert!(at_snapshot.iter().map(Option::as_deref).eq(keys.iter().map(expected)), "at a snapshot");
    for key in keys {
        assert_eq!(tree.get(key).unwrap().as_deref(), expected(key), "alone");
    }
    answered
}

/// Looks up all rows and absent ones in groups. Returns the number of fast answers.
fn check_by(db: &Db, tree: &Tree, model: &Model, key: fn(u64) -> Vec<u8>, len: usize) -> u64 {
    let keys: Vec<_> = (0..ROWS + ROWS / 2).map(key).collect();
    keys.chunks(len).map(|keys| check_keys(db, tree, model, keys)).sum()
}

fn check(db: &Db, tree: &Tree, model: &Model) -> u64 {
    for len in [1, 3, 17, 100] {
        check_by(db, tree, model, key, len);
    }
    check_by(db, tree, model, key, 16)
}

fn alike(row: u64) -> Vec<u8> {
    format!("rows{:012}", row * 7919 % 1_000_000).into_bytes()
}

#[test]
fn nearly_all_of_a_warm_database_are_answered_at_once() {
    let (db, tree, model) = loaded();
    for len in [1, 2, 16, 17, 40, 100] {
        check_by(&db, &tree, &model, key, len);
        let at_once = check_by(&db, &tree, &model, key, len);
        assert!(at_once > (ROWS + ROWS / 2) * 9 / 10, "{at_once} by {len}");
    }
    check_keys(&db, &tree, &model, &[]);
}

#[test]
fn keys_are_looked_up_in_their_partitions() {
    for key in [key, alike] {
        let db = open(Settings { partition_bytes: Some(256 << 10), ..settings() }).unwrap();
        let tree = db.tree("rows").unwrap();
        let mut model = Model::new();
        for row in 0..ROWS {
            let value = vec![row as u8; 150 + row as usize % 50];
            tree.put(key(row), &value).unwrap();
            model.insert(key(row), value);
        }
        db.compact().unwrap();
        let partitions = db.stats().partitions.len();
        assert!(partitions > 2, "{partitions}");
        for _ in 0..3 {
            check_by(&db, &tree, &model, key, 16);
            db.flush().unwrap();
        }
        let at_once = check_by(&db, &tree, &model, key, 16);
        assert!(at_once > ROWS, "{at_once} in {partitions} partitions");
        tree.put(key(3), b"newer").unwrap();
        model.insert(key(3), b"newer".to_vec());
        assert!(check_by(&db, &tree, &model, key, 16) > ROWS);
        assert!(check_by(&db, &tree, &model, key, 40) > ROWS);
    }
}

#[test]
fn the_same_key_twice_is_found_twice() {
    let (db, tree, mut model) = loaded();
    for count in [2, 16, 17, 40] {
        let keys: Vec<_> = (0..count).map(|at| key([7, 7, ROWS + 1, 9][at % 4])).collect();
        assert!(check_keys(&db, &tree, &model, &keys) > 0);
    }
    tree.put(key(7), b"newer").unwrap();
    model.insert(key(7), b"newer".to_vec());
    assert_eq!(check_keys(&db, &tree, &model, &[key(7), key(7), key(7)]), 3);
}

#[test]
fn memtables_are_asked_first() {
    let (db, tree, mut model) = loaded();
    for row in (0..ROWS).step_by(3) {
        tree.put(key(row), b"newer").unwrap();
        model.insert(key(row), b"newer".to_vec());
    }
    for row in (1..ROWS).step_by(3) {
        tree.delete(key(row)).unwrap();
        model.remove(&key(row));
    }
    let old = db.snapshot();
    assert!(check(&db, &tree, &model) > ROWS);
    db.engine().freeze();
    assert!(db.engine().cell.state.load().active.is_empty() && !db.engine().cell.state.load().frozen.is_empty());
    assert!(check(&db, &tree, &model) > ROWS);
    let before = model.clone();
    for row in (0..ROWS).step_by(5) {
        tree.put(key(row), b"newest").unwrap();
        model.insert(key(row), b"newest".to_vec());
    }
    check(&db, &tree, &model);
    let keys: Vec<_> = (0..100).map(key).collect();
    let seen = old.multi_get(&tree, &keys).unwrap();
    assert!(seen.iter().map(Option::as_deref).eq(keys.iter().map(|key| before.get(key).map(Vec::as_slice))));
    db.compact().unwrap();
    let seen = old.multi_get(&tree, &keys).unwrap();
    assert!(seen.iter().map(Option::as_deref).eq(keys.iter().map(|key| before.get(key).map(Vec::as_slice))));
    check(&db, &tree, &model);
}

#[test]
fn range_tombstones_in_memtables_are_left_to_the_other_way() {
    let (db, tree, mut model) = loaded();
    tree.delete_range(key(8)..=key(8)).unwrap();
    model.remove(&key(8));
    for len in [16, 40] {
        assert_eq!(check_by(&db, &tree, &model, key, len), 0);
    }
    db.engine().freeze();
    tree.put(key(9), b"newer").unwrap();
    model.insert(key(9), b"newer".to_vec());
    check(&db, &tree, &model);
}

#[test]
fn what_is_more_than_a_plain_value_is_left_to_the_other_way() {
    let clock = Clock::new();
    let (db, tree, mut model) = loaded_with(Settings { runtime: clock.clone(), ..settings() });
    let add = db.merge_function("append").unwrap();
    for round in 0..3 {
        let long = vec![round; 9000];
        // Rows 0 to 2 put an expiring value, a large value and an operand among plain values; rows
        // 100 to 159 are only such.
        for row in (0..3).chain(100..160) {
            match row % 3 {
                0 => tree.put_with_ttl(key(row), b"for a second", Duration::from_secs(1)).unwrap(),
                1 => tree.put(key(row), &long).unwrap(),
                _ => tree.merge(key(row), &add, b"and more").unwrap(),
            };
            match row % 3 {
                0 => drop(model.insert(key(row), b"for a second".to_vec())),
                1 => drop(model.insert(key(row), long.clone())),
                _ => model.entry(key(row)).or_default().extend(b"and more"),
            }
        }
        check(&db, &tree, &model);
        if round > 0 {
            db.compact().unwrap();
            check(&db, &tree, &model);
            db.flush().unwrap();
            check(&db, &tree, &model);
        }
        clock.advance(2 * SECOND_NS);
        model.retain(|_, value| value != b"for a second");
        assert!(check(&db, &tree, &model) > ROWS / 2);
    }
}

#[test]
fn what_is_to_be_checked_again_is_left_to_the_other_way() {
    let clock = Clock::new();
    let (db, tree, model) = loaded_with(Settings { runtime: clock.clone(), ..settings() });
    check(&db, &tree, &model);
    clock.advance(33 * SECOND_NS);
    let keys: Vec<_> = (0..16).map(key).collect();
    assert_eq!(check_keys(&db, &tree, &model, &keys), 0, "no block was checked in this time");
    check(&db, &tree, &model);
    assert!(check(&db, &tree, &model) > (ROWS + ROWS / 2) * 9 / 10);
}

/// An overlong key fails before any value of its group is passed.
#[test]
fn keys_that_are_too_long_are_refused() {
    let (_db, tree, _model) = loaded();
    for (count, at, expected) in [(16, 5, 0), (40, 5, 0), (40, 20, 16), (40, 39, 32)] {
        let mut keys: Vec<_> = (0..count).map(key).collect();
        keys[at] = vec![1; limits::MAX_KEY_LEN + 1];
        let mut shown = 0;
        let refused = tree.multi_get_with(&keys, |_, _| shown += 1);
        assert!(refused.is_err());
        assert_eq!(shown, expected, "key {at} of {count}");
    }
}

/// Callbacks may read and write; their value and later ones stay.
#[test]
fn lookups_within_a_lookup_see_what_is_there() {
    let (db, tree, model) = loaded();
    for count in [1, 4, 16, 40, 100] {
        let keys: Vec<_> = (0..count).map(key).collect();
        let mut shown = 0;
        let before = ANSWERED.get();
        let show = |at: usize, value: Option<&[u8]>| {
            let expected = &model[&keys[at]];
            if at.is_multiple_of(20) {
                for key in &keys {
                    tree.put(key, b"another").unwrap();
                }
                assert_eq!(tree.get(&keys[at]).unwrap().as_deref(), Some(&b"another"[..]));
                let others = tree.multi_get(&keys).unwrap();
                assert!(others.iter().all(|value| value.as_deref() == Some(b"another")));
                db.compact().unwrap();
                let others = tree.multi_get(&keys).unwrap();
                assert!(others.iter().all(|value| value.as_deref() == Some(b"another")));
            }
            assert_eq!(value, Some(&expected[..]), "key {at} of {count}");
            shown += 1;
        };
        tree.multi_get_with(&keys, show).unwrap();
        assert_eq!(shown, keys.len());
        assert!(ANSWERED.get() > before);
        for key in &keys {
            tree.put(key, &model[key]).unwrap();
        }
        db.compact().unwrap();
        for _ in 0..2 {
            check(&db, &tree, &model);
            db.flush().unwrap();
        }
        assert!(db.engine().cell.fast_state.borrow().is_some());
    }
    let panicked =
        catch_unwind(AssertUnwindSafe(|| tree.multi_get_with(&[key(1), key(2)], |_, _| panic!("as a test does"))));
    assert!(panicked.is_err());
    assert!(db.engine().cell.fast_state.borrow().is_some());
}

/// A commit is seen whole and not before it is visible, despite state changes.
#[test]
fn what_is_written_together_is_seen_together() {
    const KEYS: u64 = 600;
    let settings = Settings { memtable_bytes: Some(32 << 10), background_threads: 2, ..settings() };
    let db = open(settings).unwrap();
    let tree = db.tree("rows").unwrap();
    let committed: Vec<AtomicU64> = (0..KEYS / 2).map(|_| AtomicU64::new(0)).collect();
    let is_over = AtomicBool::new(false);
    let answered = thread::scope(|scope| {
        let read = |seed: u64| {
            let (mut random, tree) = (seed, &tree);
            let mut of_lens = [0; 3];
            while !is_over.load(Ordering::Relaxed) {
                for (len, answered) in [2, 16, 40].into_iter().zip(&mut of_lens) {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let pairs: Vec<u64> = (0..len / 2).map(|at| ((random >> 33) + at * 7) % (KEYS / 2)).collect();
                    let keys = pairs.iter().chain(pairs.iter().rev()).zip(0..);
                    let keys: Vec<_> = keys.map(|(&pair, at)| key(2 * pair + u64::from(at >= len / 2))).collect();
                    let at = |pair: &u64| committed[*pair as usize].load(Ordering::Acquire);
                    let (least, before) = (pairs.iter().map(at).collect::<Vec<_>>(), ANSWERED.get());
                    let mut seen = vec![0; keys.len()];
                    let number = |value: &[u8]| u64::from_le_bytes(*value.first_chunk().unwrap());
                    tree.multi_get_with(&keys, |at, value| seen[at] = value.map_or(0, number)).unwrap();
                    *answered += ANSWERED.get() - before;
                    for (at, least) in least.into_iter().enumerate() {
                        assert_eq!(seen[at], seen[keys.len() - 1 - at], "a pair of {len} keys");
                        assert!(seen[at] >= least, "{} of {least}", seen[at]);
                    }
                }
            }
            of_lens
        };
        let readers = [1, 2].map(|seed| scope.spawn(move || read(seed)));
        for version in 1..=400_u64 {
            for (pair, committed) in (0..).zip(&committed) {
                if version == 1 || (pair * 7 + version).is_multiple_of(5) {
                    let mut batch = db.batch();
                    let value = [version.to_le_bytes().as_slice(), &[7; 90]].concat();
                    batch.put(&tree, key(2 * pair), &value);
                    batch.put(&tree, key(2 * pair + 1), &value);
                    batch.commit_with(crate::db::engine::settings::Durability::Buffered).unwrap();
                    committed.store(version, Ordering::Release);
                }
            }
            if version % 20 == 0 {
                compact_until_indexed(&db);
            }
        }
        is_over.store(true, Ordering::Relaxed);
        readers.map(|reader| reader.join().unwrap())
    });
    println!("{answered:?}");
    for len in 0..3 {
        assert!(answered.iter().map(|of_lens| of_lens[len]).sum::<u64>() > 0, "not one of {len} was answered at once");
    }
}

/// A superseded follower state ([`crate::db::engine::root::Engine`]'s `supersede`) may be borrowed
/// after the open check: an empty state has no partitions. Here the database stays open, so the
/// general path finds all.
#[test]
fn a_state_of_nothing_is_left_to_the_other_way() {
    let (db, tree, model) = loaded();
    for count in [1, 2, 4, 5, 16, 17] {
        let keys: Vec<_> = (0..count).map(key).collect();
        db.engine().cell.fast_state.replace(std::sync::Arc::new(crate::read::ReadState::empty()));
        let values = tree.multi_get(&keys).unwrap();
        assert!(
            values.iter().map(|value| value.as_deref()).eq(keys.iter().map(|key| model.get(key).map(Vec::as_slice)))
        );
    }
}
