//! Cursors of transactions against a model, and the conflicts of their moves.

use super::cursor::Random;
use crate::{
    base::Result,
    db::{
        Db, Read, ReadCursor, Transaction, TransactionCursor, Tree,
        tests_common::{mem, open, small},
    },
};
use std::collections::BTreeMap;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn filled(random: &mut Random) -> (Db, Tree, Rows) {
    let db = open(small(&mem())).unwrap();
    // Rows of the trees beside it must not appear.
    for name in ["before", "after"] {
        db.tree(name).unwrap().put("k", name).unwrap();
    }
    let tree = db.tree("t").unwrap();
    let mut rows = Rows::new();
    for _ in 0..random.below(40) {
        let (key, value) = (vec![random.below(30) as u8], vec![random.below(250) as u8]);
        tree.put(&key, &value).unwrap();
        rows.insert(key, value);
        if random.below(8) == 0 {
            db.flush().unwrap();
        }
    }
    (db, tree, rows)
}

fn change(tx: &Transaction, tree: &Tree, rows: &mut Rows, random: &mut Random) {
    let (key, value) = (vec![random.below(30) as u8], vec![random.below(250) as u8]);
    match random.below(6) {
        0 => {
            let end = vec![key[0] + random.below(4) as u8];
            tx.delete_range(tree, &key..&end).unwrap();
            rows.retain(|other, _| *other < key || *other >= end);
        }
        1 | 2 => {
            tx.delete(tree, &key).unwrap();
            rows.remove(&key);
        }
        _ => {
            tx.put(tree, &key, &value).unwrap();
            rows.insert(key, value);
        }
    }
}

fn row<'r>(is_there: Result<bool>, cursor: &'r TransactionCursor<'_>) -> Option<(&'r [u8], &'r [u8])> {
    let is_there = is_there.unwrap();
    assert_eq!(is_there, cursor.is_on_row());
    is_there.then(|| cursor.row().unwrap())
}

#[test]
fn cursor_of_transaction_moves_over_own_and_stored_rows() {
    let (mut turns, mut steps) = (0, 0);
    for seed in 0..300 {
        let random = &mut Random(seed, |_| Vec::new());
        let (db, tree, mut rows) = filled(random);
        let tx = if seed % 3 == 0 { db.begin_exclusive().unwrap() } else { db.begin().unwrap() };
        for _ in 0..random.below(12) {
            change(&tx, &tree, &mut rows, random);
        }
        let mut cursor = tx.cursor(&tree);
        let pair = |(key, value): (&'_ Vec<u8>, &'_ Vec<u8>)| (key.clone(), value.clone());
        let mut was_forward = true;
        for _ in 0..40 {
            if random.below(4) == 0 {
                change(&tx, &tree, &mut rows, random);
            }
            let key = vec![random.below(31) as u8];
            let at = cursor.is_on_row().then(|| cursor.key().to_vec());
            let (found, expected) = match (random.below(10), at) {
                (0, _) => (cursor.seek(&key), rows.range(key..).next().map(pair)),
                (1, _) => (cursor.seek_before(&key), rows.range(..key).next_back().map(pair)),
                (2, _) => (cursor.seek_first(), rows.iter().next().map(pair)),
                (3, _) => (cursor.seek_last(), rows.iter().next_back().map(pair)),
                (4..7, Some(at)) => {
                    (turns, steps, was_forward) = (turns + u32::from(!was_forward), steps + 1, true);
                    let after = (std::ops::Bound::Excluded(at), std::ops::Bound::Unbounded);
                    (cursor.next(), rows.range(after).next().map(pair))
                }
                (_, Some(at)) => {
                    (turns, steps, was_forward) = (turns + u32::from(was_forward), steps + 1, false);
                    (cursor.prev(), rows.range(..at).next_back().map(pair))
                }
                _ => continue,
            };
            let expected = expected.as_ref().map(|(key, value)| (key.as_slice(), value.as_slice()));
            assert_eq!(row(found, &cursor), expected, "seed {seed}");
        }
    }
    assert!(turns > 300 && steps > 2000, "{turns} turns of {steps} steps");
}

#[test]
fn cursor_stays_at_the_ends_and_returns() {
    let db = open(small(&mem())).unwrap();
    let tree = db.tree("t").unwrap();
    tree.extend([("a", "1"), ("b", "2")]).unwrap();
    let tx = db.begin().unwrap();
    let mut cursor = tx.cursor(&tree);
    assert!(!cursor.is_on_row());
    assert_eq!(row(cursor.prev(), &cursor), Some((&b"b"[..], &b"2"[..])));
    for _ in 0..2 {
        assert_eq!(row(cursor.next(), &cursor), None);
    }
    assert_eq!(row(cursor.prev(), &cursor), Some((&b"b"[..], &b"2"[..])));
    assert_eq!(row(cursor.prev(), &cursor), Some((&b"a"[..], &b"1"[..])));
    for _ in 0..2 {
        assert_eq!(row(cursor.prev(), &cursor), None);
    }
    assert_eq!(row(cursor.next(), &cursor), Some((&b"a"[..], &b"1"[..])));
    // A later write of the current row does not change it.
    tx.delete(&tree, "a").unwrap();
    assert_eq!(cursor.value().unwrap(), b"1");
    assert_eq!(row(cursor.prev(), &cursor), None);
    assert_eq!(row(cursor.next(), &cursor), Some((&b"b"[..], &b"2"[..])));
}

#[test]
fn cursor_reads_the_keys_that_it_passes() {
    for (changed, is_conflict) in [("a", false), ("bb", true), ("c", true), ("cc", true), ("d", true), ("e", false)] {
        let db = open(small(&mem())).unwrap();
        let tree = db.tree("t").unwrap();
        tree.extend([("a", "1"), ("c", "2"), ("d", "3"), ("e", "4")]).unwrap();
        let tx = db.begin().unwrap();
        let mut cursor = tx.cursor(&tree);
        assert!(cursor.seek("b").unwrap() && cursor.next().unwrap());
        assert_eq!(cursor.key(), b"d");
        drop(cursor);
        tx.put(&tree, "z", "").unwrap();
        tree.put(changed, "new").unwrap();
        assert_eq!(tx.commit().is_err_and(|e| e.is_conflict()), is_conflict, "{changed}");
    }
}

#[test]
fn helper_moves_cursor_of_any_view() {
    fn every_second(view: &impl Read) -> Vec<String> {
        let (mut cursor, mut found) = (view.cursor(), Vec::new());
        let mut is_there = cursor.seek_first().unwrap();
        while is_there {
            found.push(String::from_utf8_lossy(cursor.key()).into_owned());
            is_there = cursor.next().unwrap() && cursor.next().unwrap();
        }
        found
    }
    let db = open(small(&mem())).unwrap();
    let tree = db.tree("t").unwrap();
    tree.extend([("a", ""), ("b", ""), ("c", "")]).unwrap();
    let before = db.snapshot();
    let tx = db.begin().unwrap();
    tx.delete(&tree, "a").unwrap();
    tree.put("0", "").unwrap();
    assert_eq!(every_second(&before.tree(&tree)), ["a", "c"]);
    assert_eq!(every_second(&tx.tree(&tree)), ["b"]);
    assert_eq!(every_second(&tree), ["0", "b"]);
}
