//! Exact counts, and estimates within their bounds, against a model.
//!
//! Regression: estimates counted old versions, tombstones and expired values.

use crate::{
    db::{
        Db, Durability, RangeEstimate, Settings, Tree,
        tests_common::{Clock, SECOND_NS, mem, open, small},
    },
    platform::Runtime,
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn check(db: &Db, tree: &Tree, keys: &BTreeSet<u32>) {
    let ranges = [(0, u32::MAX), (0, 10), (500, 1500), (900, 901), (1500, 9000), (40_000, 50_000)];
    let (snapshot, tx) = (db.snapshot(), db.begin().unwrap());
    for (from, to) in ranges {
        let expected = keys.range(from..to).count() as u64;
        let range = key(from)..key(to);
        assert_eq!(tree.count(range.clone()).unwrap(), expected, "{from}..{to}");
        assert_eq!(snapshot.count(tree, range.clone()).unwrap(), expected);
        assert_eq!(tx.count(tree, range.clone()).unwrap(), expected);
        let found = tree.approximate(range).unwrap();
        assert!((found.keys_min..=found.keys_max).contains(&expected), "{found:?} for {expected}");
        assert!((found.keys_min..=found.keys_max).contains(&found.keys), "{found:?}");
    }
    let all = keys.len() as u64;
    assert_eq!((tree.len().unwrap(), tree.is_empty().unwrap()), (all, all == 0));
    assert_eq!((snapshot.len(tree).unwrap(), snapshot.is_empty(tree).unwrap()), (all, all == 0));
    assert_eq!(tree.iter().count() as u64, all);
}

fn error_percent(tree: &Tree, keys: &BTreeSet<u32>) -> u64 {
    100 * tree.len_estimate().unwrap().abs_diff(keys.len() as u64) / (keys.len() as u64).max(1)
}

#[test]
fn a_hundred_puts_of_one_key_are_one_key() {
    let db = open(small(&mem())).unwrap();
    let tree = db.tree("t").unwrap();
    assert_eq!((tree.len_estimate().unwrap(), tree.is_empty().unwrap()), (0, true));
    let mut snapshots = Vec::new();
    for _ in 0..100 {
        tree.put(b"k", b"v").unwrap();
        snapshots.push(db.snapshot());
    }
    assert_eq!((tree.len_estimate().unwrap(), tree.len().unwrap()), (1, 1));
    let estimate = tree.approximate(..).unwrap();
    assert_eq!((estimate.keys, estimate.keys_min, estimate.keys_max), (1, 1, 1));
    db.flush().unwrap();
    assert_eq!((tree.len_estimate().unwrap(), tree.len().unwrap()), (1, 1));
    tree.delete(b"k").unwrap();
    assert_eq!((tree.len_estimate().unwrap(), tree.len().unwrap(), tree.is_empty().unwrap()), (0, 0, true));
    assert_eq!(snapshots[50].count(&tree, ..).unwrap(), 1);
    assert!(!snapshots[50].is_empty(&tree).unwrap());
}

#[test]
fn counts_are_exact_and_estimates_within_their_bounds() {
    let clock = Clock::new();
    let vfs = mem();
    let db = open(Settings { runtime: Arc::clone(&clock) as Arc<dyn Runtime>, ..small(&vfs) }).unwrap();
    let (before, tree, after) = (db.tree("a").unwrap(), db.tree("t").unwrap(), db.tree("z").unwrap());
    before.put(b"k", b"v").unwrap();
    after.put(b"k", b"v").unwrap();
    let mut keys = BTreeSet::new();
    check(&db, &tree, &keys);
    for number in 0..3000 {
        tree.put(key(number), b"value").unwrap();
        keys.insert(number);
    }
    check(&db, &tree, &keys);
    db.compact().unwrap();
    check(&db, &tree, &keys);
    for round in 0..2 {
        for number in (round..3000).step_by(7) {
            tree.put(key(number), b"newer").unwrap();
            keys.insert(number);
        }
        for number in (round..3000).step_by(5) {
            tree.delete(key(number)).unwrap();
            keys.remove(&number);
        }
        tree.put(key(5000 + round), b"new").unwrap();
        keys.insert(5000 + round);
        check(&db, &tree, &keys);
        if round == 0 {
            db.flush().unwrap();
        }
    }
    tree.delete_range(key(600)..key(700)).unwrap();
    keys.retain(|number| !(600..700).contains(number));
    check(&db, &tree, &keys);
    let append = db.merge_function("append").unwrap();
    for number in 6000..6100 {
        tree.put_with_ttl(key(number), b"v", Duration::from_secs(10 + u64::from(number) % 2 * 10)).unwrap();
        tree.put(key(1000 + number), vec![7; 500]).unwrap();
        tree.merge(key(2000 + number), &append, b"x").unwrap();
        keys.extend([number, 1000 + number, 2000 + number]);
    }
    check(&db, &tree, &keys);
    let places: [&dyn Fn(); 2] = [&|| {}, &|| db.flush().unwrap()];
    for place in places {
        place();
        check(&db, &tree, &keys);
    }
    clock.advance(10 * SECOND_NS);
    keys.retain(|number| !(6000..6100).contains(number) || number % 2 == 1);
    check(&db, &tree, &keys);
    db.compact().unwrap();
    check(&db, &tree, &keys);
    assert_eq!((before.len().unwrap(), after.len().unwrap()), (1, 1));
}

/// Trees in one segment of a run had all of its bytes or none: a rank is exact to a segment.
#[test]
fn small_trees_of_one_run_share_its_bytes() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let trees: Vec<Tree> = (0..40).map(|number| db.tree(&format!("t{number}")).unwrap()).collect();
    for tree in &trees {
        for number in 0..3 {
            tree.put(key(number), [7; 100]).unwrap();
        }
    }
    let sizes = |trees: &[Tree]| trees.iter().map(|tree| tree.approximate(..).unwrap().bytes).collect::<Vec<u64>>();
    assert!(sizes(&trees).iter().all(|bytes| (100..1000).contains(bytes)), "{:?}", sizes(&trees));
    db.flush().unwrap();
    assert!(sizes(&trees).iter().all(|bytes| (100..1000).contains(bytes)), "{:?}", sizes(&trees));
    trees[20].put(key(9), [7; 100]).unwrap();
    assert!((200..1100).contains(&sizes(&trees)[20]), "{:?}", sizes(&trees));
    assert_eq!(db.tree("empty").unwrap().approximate(..).unwrap(), RangeEstimate::default());
}

#[test]
fn estimates_of_many_entries_are_near_where_most_of_them_are_dead() {
    let clock = Clock::new();
    let vfs = mem();
    let db = open(Settings {
        runtime: Arc::clone(&clock) as Arc<dyn Runtime>,
        partition_bytes: Some(8 << 20),
        memtable_bytes: Some(1 << 20),
        ..small(&vfs)
    })
    .unwrap();
    let tree = db.tree("t").unwrap();
    let mut keys: BTreeSet<u32> = (0..20_000).collect();
    tree.bulk_load((0..20_000).map(|number| (key(number), b"v"))).unwrap();
    assert_eq!(tree.len_estimate().unwrap(), 20_000, "it is settled");
    let keeps = db.snapshot();
    let mut batch = db.batch();
    for number in 0..20_000 {
        match number % 10 {
            0..5 => {
                batch.delete(&tree, key(number));
                keys.remove(&number);
            }
            5..8 => _ = batch.put(&tree, key(number), b"newer"),
            _ => {}
        }
    }
    batch.commit_with(Durability::Buffered).unwrap();
    assert!(error_percent(&tree, &keys) <= 10, "{:?}", tree.approximate(..));
    check(&db, &tree, &keys);
    db.flush().unwrap();
    assert!(error_percent(&tree, &keys) <= 10, "{:?}", tree.approximate(..));
    // A consumed queue: contiguous garbage.
    let mut batch = db.batch();
    for number in 0..12_000 {
        batch.delete(&tree, key(number));
        keys.remove(&number);
    }
    batch.commit_with(Durability::Buffered).unwrap();
    let all = 20_000 / 32 + 1000;
    assert!(tree.len_estimate().unwrap().abs_diff(keys.len() as u64) <= all, "{:?}", tree.approximate(..));
    check(&db, &tree, &keys);
    drop(keeps);
    let other = db.tree("sessions").unwrap();
    let mut batch = db.batch();
    for number in 0..12_000_u32 {
        batch.put_with_ttl(&other, key(number), b"v", Duration::from_secs(if number % 4 == 0 { 1000 } else { 1 }));
    }
    batch.commit_with(Durability::Buffered).unwrap();
    clock.advance(2 * SECOND_NS);
    let keys: BTreeSet<u32> = (0..12_000).filter(|number| number % 4 == 0).collect();
    assert!(error_percent(&other, &keys) <= 10, "{:?}", other.approximate(..));
    assert_eq!(other.len().unwrap(), 3000);
}

#[test]
fn a_transaction_counts_its_own_writes() {
    // The clock does not move: zero time to live expires at once.
    let runtime = Clock::new() as Arc<dyn Runtime>;
    let db = open(Settings { runtime, ..small(&mem()) }).unwrap();
    let (tree, pairs) = (db.tree("t").unwrap(), db.multi_tree("m").unwrap());
    for number in 0..10 {
        tree.put(key(number), b"v").unwrap();
        pairs.add(key(number % 2), key(number)).unwrap();
    }
    assert_eq!((pairs.len().unwrap(), pairs.is_empty().unwrap()), (10, false));
    assert_eq!(pairs.count(key(1)..).unwrap(), 5);
    let tx = db.begin().unwrap();
    tx.put(&tree, key(3), b"again").unwrap();
    tx.put(&tree, key(20), b"new").unwrap();
    tx.put_with_ttl(&tree, key(21), b"past", Duration::ZERO).unwrap();
    tx.put_with_ttl(&tree, key(4), b"past", Duration::ZERO).unwrap();
    tx.delete(&tree, key(5)).unwrap();
    tx.delete_range(&tree, key(7)..key(9)).unwrap();
    assert_eq!(tx.count(&tree, ..).unwrap(), 7);
    assert_eq!(tx.count(&tree, key(5)..key(4)).unwrap(), 0);
    tx.multi_tree(&pairs).add(key(1), key(99)).unwrap();
    assert_eq!(tx.multi_tree(&pairs).count(..).unwrap(), 11);
    assert_eq!(tx.snapshot().multi_tree(&pairs).count(..).unwrap(), 10);
    tree.put(key(6), b"by another").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
}

/// A page that showed sizes of trees counted its own lookups, and called an idle database busy.
#[test]
fn estimate_of_unsettled_tree_counts_no_cache_lookups() {
    let db = open(small(&mem())).unwrap();
    let tree = db.tree("t").unwrap();
    for round in 0..3 {
        for number in 0..3000 {
            tree.put(key(number * 3 + round), [7; 20]).unwrap();
        }
        db.flush().unwrap();
    }
    let lookups = || {
        let stats = db.stats();
        (stats.cache_hits, stats.cache_misses)
    };
    let before = lookups();
    for _ in 0..5 {
        let estimate = tree.approximate(..).unwrap();
        assert!(estimate.keys > 8192 && estimate.keys_min > 0, "{estimate:?}");
    }
    assert_eq!(lookups(), before);
    tree.get(key(4001)).unwrap().unwrap();
    assert_ne!(lookups(), before, "later reads count");
}
