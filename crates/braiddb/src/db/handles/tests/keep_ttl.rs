//! Which writes over an expiring record keep its expiry time.
//!
//! Regression: `fetch_update` silently removed a session's expiry time.

use crate::{
    db::{
        Db, Settings, Tree, TreeOptions, Update,
        tests_common::{Clock, SECOND_NS, mem, open, small},
    },
    platform::{Runtime, SystemTime, UNIX_EPOCH},
};
use std::{sync::Arc, time::Duration};

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn at(second: u64) -> Option<SystemTime> {
    Some(UNIX_EPOCH + seconds(second))
}

fn world(ttl: Option<Duration>) -> (Arc<Clock>, Db, Tree) {
    let clock = Clock::new();
    let db = open(Settings { runtime: Arc::clone(&clock) as Arc<dyn Runtime>, ..small(&mem()) }).unwrap();
    let tree = db.tree_with("t", TreeOptions { ttl, ..TreeOptions::default() }).unwrap();
    (clock, db, tree)
}

fn found(tree: &Tree, key: &[u8]) -> (Vec<u8>, Option<SystemTime>) {
    let (value, expires) = tree.get_with_expiry(key).unwrap().unwrap();
    (value.to_vec(), expires)
}

#[test]
fn put_keep_ttl_keeps_the_end_of_the_value_before() {
    for (ttl, by_tree) in [(None, None), (Some(seconds(100)), at(1100))] {
        let (clock, db, tree) = world(ttl);
        let short = vec![7; 5000];
        tree.put_with_ttl(b"own", &short, seconds(10)).unwrap();
        tree.put_with_ttl(b"past", b"1", seconds(1)).unwrap();
        tree.put(b"plain", b"1").unwrap();
        clock.advance(SECOND_NS);
        let later = if ttl.is_some() { at(1101) } else { None };
        for key in [&b"own"[..], b"past", b"plain", b"new"] {
            tree.put_keep_ttl(key, b"2").unwrap();
        }
        let all = |place: &str| {
            assert_eq!(found(&tree, b"own"), (b"2".to_vec(), at(1010)), "{place}");
            assert_eq!(found(&tree, b"plain"), (b"2".to_vec(), by_tree), "{place}");
            assert_eq!(found(&tree, b"past"), (b"2".to_vec(), later), "{place}");
            assert_eq!(found(&tree, b"new"), (b"2".to_vec(), later), "{place}");
        };
        all("by calls");
        db.compact().unwrap();
        all("merged");
        db.update(|tx| {
            for key in [&b"own"[..], b"past", b"plain", b"new"] {
                tx.put_keep_ttl(&tree, key, b"3")?;
                tx.put_keep_ttl(&tree, key, b"2")?;
            }
            tx.delete(&tree, b"new")?;
            tx.put_keep_ttl(&tree, b"new", b"2")
        })
        .unwrap();
        all("by a transaction");
        // The tree's default, not the previous expiry time.
        tree.put(b"own", b"2").unwrap();
        assert_eq!(found(&tree, b"own").1, later);
    }
}

#[test]
fn fetch_update_can_keep_the_end_and_see_it() {
    let (clock, _db, tree) = world(None);
    tree.put_with_ttl(b"a", b"1", seconds(10)).unwrap();
    tree.put(b"b", b"1").unwrap();
    let more = |value: Option<&[u8]>| [value.unwrap_or_default(), b"+"].concat();
    tree.fetch_update(b"a", |value| Update::PutKeepTtl(more(value))).unwrap();
    assert_eq!(found(&tree, b"a"), (b"1+".to_vec(), at(1010)));
    let mut seen = Vec::new();
    for key in [b"a", b"b", b"c"] {
        let before = tree
            .fetch_update_with_expiry(key, |found| {
                seen.push(found.map(|(value, expires)| (value.to_vec(), expires)));
                Update::PutKeepTtl(more(found.map(|(value, _)| value)))
            })
            .unwrap();
        assert_eq!(before.map(|(value, expires)| (value.to_vec(), expires)), seen.last().unwrap().clone());
    }
    assert_eq!(seen, [Some((b"1+".to_vec(), at(1010))), Some((b"1".to_vec(), None)), None]);
    assert_eq!(found(&tree, b"a"), (b"1++".to_vec(), at(1010)));
    assert_eq!((found(&tree, b"b").1, found(&tree, b"c").1), (None, None));
    tree.fetch_update(b"a", |value| Update::Put(more(value))).unwrap();
    assert_eq!(found(&tree, b"a").1, None);
    clock.advance(100 * SECOND_NS);
    assert!(tree.contains(b"a").unwrap());
}

#[test]
fn put_keep_ttl_over_operands_has_the_end_of_the_value_beneath() {
    let (clock, db, tree) = world(None);
    let append = db.merge_function("append").unwrap();
    tree.put_with_ttl(b"k", b"1", seconds(10)).unwrap();
    tree.merge(b"k", &append, b"+").unwrap();
    tree.put_keep_ttl(b"k", b"2").unwrap();
    assert_eq!(found(&tree, b"k"), (b"2".to_vec(), at(1010)));
    clock.advance(10 * SECOND_NS);
    assert!(!tree.contains(b"k").unwrap());
}

#[test]
fn put_keep_ttl_of_many_threads_keeps_the_end_of_whichever_value_it_follows() {
    let (_clock, _db, tree) = world(None);
    tree.put_with_ttl(b"k", b"1", seconds(10)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let tree = &tree;
            scope.spawn(move || {
                for _ in 0..50 {
                    tree.put_keep_ttl(b"k", [thread]).unwrap();
                }
            });
        }
    });
    assert_eq!(found(&tree, b"k").1, at(1010));
}

#[test]
fn put_expiring_with_takes_the_end_of_the_other_value() {
    for ttl in [None, Some(seconds(100))] {
        let (clock, db, tree) = world(ttl);
        tree.put_with_ttl(b"short", b"1", seconds(10)).unwrap();
        tree.put_until(b"never", b"1", UNIX_EPOCH + seconds(1 << 39)).unwrap();
        let is_put: Vec<bool> = db
            .update(|tx| {
                tx.put_with_ttl(&tree, b"own", b"1", seconds(20))?;
                tx.put_keep_ttl(&tree, b"never", b"2")?;
                tx.put_until(&tree, b"past", b"1", UNIX_EPOCH)?;
                let others: [&[u8]; 5] = [b"short", b"own", b"never", b"past", b"absent"];
                others.iter().map(|other| tx.put_expiring_with(&tree, [b"of ", *other].concat(), b"x", other)).collect()
            })
            .unwrap();
        assert_eq!(is_put, [true, true, true, false, false]);
        assert_eq!(found(&tree, b"of short"), (b"x".to_vec(), at(1010)));
        assert_eq!(found(&tree, b"of own"), (b"x".to_vec(), at(1020)));
        assert_eq!(found(&tree, b"of never").1, found(&tree, b"never").1);
        assert!(!tree.contains(b"of past").unwrap() && !tree.contains(b"of absent").unwrap());
        clock.advance(15 * SECOND_NS);
        assert!(!tree.contains(b"of short").unwrap() && tree.contains(b"of own").unwrap());
    }
    // The value that is read decides, not the tree's default.
    let (_clock, db, tree) = world(None);
    tree.put(b"plain", b"1").unwrap();
    tree.set_options(TreeOptions { ttl: Some(seconds(100)), ..tree.options() }).unwrap();
    db.update(|tx| tx.put_expiring_with(&tree, b"entry", b"x", b"plain")).unwrap();
    assert_eq!(found(&tree, b"entry"), (b"x".to_vec(), None));
    // Another commit that changes the other value conflicts.
    let tx = db.begin().unwrap();
    tx.put_expiring_with(&tree, b"entry", b"y", b"plain").unwrap();
    tree.put_with_ttl(b"plain", b"2", seconds(5)).unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
}
