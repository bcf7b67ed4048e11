//! Operands that a merge function cannot apply: refused on write, skipped on scans.
//!
//! Regression: `add` accepted "1", although it adds numbers of 8 bytes. Each scan, export and dump
//! then ended there.

use crate::{
    base::{Error, Result},
    codec::{MergeFunction, encode_set},
    db::{
        Db, Durability, MergeFunctionHandle, Settings, Tree,
        tests_common::{mem, open, small},
    },
    platform::Vfs,
};
use std::{ops::ControlFlow, sync::Arc};

/// Takes operands of one byte, fails on "f" and panics on "p".
#[derive(Debug)]
struct Picky;

impl MergeFunction for Picky {
    fn apply(&self, _: &[u8], _: Option<&[u8]>, operand: &[u8]) -> std::result::Result<Vec<u8>, String> {
        match operand {
            b"p" => panic!("on purpose"),
            b"f" => Err("on purpose".to_owned()),
            _ => Ok(operand.to_vec()),
        }
    }

    fn check_operand(&self, operand: &[u8]) -> std::result::Result<(), String> {
        assert!(operand != b"panic", "as asked");
        if operand.len() == 1 { Ok(()) } else { Err("it must be one byte".to_owned()) }
    }
}

fn settings(vfs: &Arc<dyn Vfs>) -> Settings {
    Settings { merge_functions: vec![("picky".to_owned(), Arc::new(Picky))], ..small(vfs) }
}

fn refused<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result {
        Err(Error::InvalidArgument(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

/// Merges by call, batch and transaction; all must refuse for the same reason.
fn all_refuse(db: &Db, tree: &Tree, function: &MergeFunctionHandle, operand: &[u8]) -> String {
    let reason = refused(tree.merge(b"k", function, operand));
    let mut batch = db.batch();
    batch.put(tree, b"beside", b"").merge(tree, b"k", function, operand);
    assert_eq!(refused(batch.commit_with(Durability::Buffered)), reason);
    let tx = db.begin().unwrap();
    assert_eq!(refused(tx.merge(tree, b"k", function, operand)), reason);
    tx.put(tree, b"k", b"").unwrap();
    assert_eq!(refused(tx.merge(tree, b"k", function, operand)), reason);
    reason
}

#[test]
fn merge_of_an_operand_that_no_value_can_take_is_refused_with_a_reason() {
    let db = open(settings(&mem())).unwrap();
    let tree = db.tree("t").unwrap();
    let function = |name: &str| db.merge_function(name).unwrap();
    let says = |name: &str, operand: &[u8], what: &str| {
        let reason = all_refuse(&db, &tree, &function(name), operand);
        assert!(reason.contains(name) && reason.contains(what), "{reason}");
    };
    for operand in [&b"1"[..], b"", b"123456789"] {
        says("add", operand, "8 bytes, little-endian");
    }
    says("union", b"\x05a", "encode_set");
    says("json_merge_patch", b"{", "it must be JSON");
    says("picky", b"two", "it must be one byte");
    says("picky", b"panic", "it panicked: as asked");
    assert_eq!(tree.iter().count(), 0, "nothing was written");
    for (name, operand) in [("add", vec![1; 8]), ("union", encode_set([b"a"])), ("json_merge_patch", b"{}".to_vec())] {
        tree.merge(name, &function(name), operand).unwrap();
    }
    for name in ["max", "min", "append"] {
        tree.merge(name, &function(name), b"").unwrap();
    }
    tree.merge(b"picky", &function("picky"), b"x").unwrap();
    assert_eq!(tree.iter().filter(Result::is_ok).count(), 7);
}

/// Writes ten good records and four that fail. Returns the keys of the latter.
fn fill(db: &Db, tree: &Tree) -> [&'static [u8]; 4] {
    for number in 0..10_u8 {
        tree.put([b'0' + number], [number; 20]).unwrap();
    }
    let (add, picky) = (db.merge_function("add").unwrap(), db.merge_function("picky").unwrap());
    tree.merge_unchecked(b"3 bad operand", 1, b"1");
    tree.put(b"5 bad value", b"no number").unwrap();
    tree.merge(b"5 bad value", &add, [1; 8]).unwrap();
    tree.merge(b"7 fails", &picky, b"f").unwrap();
    tree.merge(b"9 panics", &picky, b"p").unwrap();
    [b"3 bad operand", b"5 bad value", b"7 fails", b"9 panics"]
}

/// Calls `check` with the data in a memtable, a run and a merged run.
fn in_each_place(check: impl Fn(&Db, &Tree, &[&[u8]])) {
    let places: [&dyn Fn(&Db); 3] = [&|_| {}, &|db| db.flush().unwrap(), &|db| db.compact().unwrap()];
    for place in places {
        let db = open(settings(&mem())).unwrap();
        let tree = db.tree("t").unwrap();
        let failing = fill(&db, &tree);
        place(&db);
        check(&db, &tree, &failing);
    }
}

fn shown(rows: impl Iterator<Item = Result<(crate::db::Key, crate::db::Value)>>) -> Vec<String> {
    rows.map(|row| match row {
        Ok((key, _)) => key.escape_ascii().to_string(),
        Err(Error::MergeFailed { tree, key, .. }) => {
            assert_eq!(tree, "t");
            format!("<{key}>")
        }
        Err(e) => panic!("{e}"),
    })
    .collect()
}

#[test]
fn iterators_return_the_error_of_a_record_and_go_on_behind_it() {
    in_each_place(|db, tree, failing| {
        let mut expected: Vec<String> = (0..10).map(|n| n.to_string()).collect();
        expected.extend(failing.iter().map(|key| format!("<{}>", key.escape_ascii())));
        let order = |text: &String| text.trim_matches(['<', '>']).to_owned();
        expected.sort_by_key(order);
        let back: Vec<String> = expected.iter().rev().cloned().collect();
        assert_eq!(shown(tree.iter()), expected);
        assert_eq!(shown(tree.iter().rev()), back);
        assert_eq!(shown(db.snapshot().iter(tree)), expected);
        let tx = db.begin().unwrap();
        assert_eq!(shown(tx.iter(tree)), expected);
        assert_eq!(shown(tx.iter(tree).rev()), back);
        tx.put(tree, b"5 bad value", b"still no number").unwrap();
        tx.merge(tree, b"5 bad value", &db.merge_function("add").unwrap(), [1; 8]).unwrap();
        tx.merge(tree, b"9 panics", &db.merge_function("picky").unwrap(), b"f").unwrap();
        assert_eq!(shown(tx.iter(tree)), expected);
        assert_eq!(shown(tx.iter(tree).rev()), back);
        let mut both = tree.iter();
        let mut seen = Vec::new();
        while let Some(row) = both.next() {
            seen.extend(shown(std::iter::once(row)));
            seen.extend(shown(both.next_back().into_iter()));
        }
        seen.sort_by_key(order);
        assert_eq!(seen, expected);
        assert!(both.next().is_none() && both.next_back().is_none());
    });
}

#[test]
fn cursors_name_a_record_that_fails_and_go_on_behind_it() {
    in_each_place(|_, tree, failing| {
        let (mut cursor, mut failed, mut good) = (tree.cursor(), Vec::new(), 0);
        while cursor.next().unwrap() {
            match cursor.row() {
                Ok(_) => good += 1,
                Err(e) => {
                    assert!(e.is_merge_failed() && e.to_string().contains("of the tree \"t\""), "{e}");
                    failed.push(cursor.key().to_vec());
                }
            }
        }
        assert_eq!((good, failed.as_slice()), (10, &failing.iter().map(|key| key.to_vec()).collect::<Vec<_>>()[..]));
        let (mut cursor, mut good, mut errors) = (tree.cursor(), 0, 0);
        loop {
            let visited = cursor.try_for_each(|_, _| {
                good += 1;
                ControlFlow::<()>::Continue(())
            });
            match visited {
                Ok(_) => break,
                Err(e) => {
                    assert!(e.is_merge_failed(), "{e}");
                    errors += 1;
                    if !cursor.next().unwrap() {
                        break;
                    }
                }
            }
        }
        assert_eq!((good, errors), (10, 4));
    });
}

#[test]
fn check_merges_names_each_record_that_fails_and_a_put_mends_it() {
    in_each_place(|db, tree, failing| {
        tree.merge(b"good", &db.merge_function("append").unwrap(), b"x").unwrap();
        let found = || {
            let mut keys = Vec::new();
            let merged = db.check_merges(|e| match e {
                Error::MergeFailed { key, .. } => keys.push(key.clone()),
                other => panic!("{other}"),
            });
            (merged.unwrap(), keys)
        };
        let (merged, keys) = found();
        assert_eq!(keys, failing.iter().map(|key| key.escape_ascii().to_string()).collect::<Vec<_>>());
        assert!(merged >= 4);
        for key in failing {
            tree.put(key, b"mended").unwrap();
        }
        assert_eq!(found().1, Vec::<String>::new());
        assert_eq!(tree.iter().filter(Result::is_ok).count(), 15);
    });
}

/// Regression: an unreadable large value ended an iterator.
#[test]
fn iterator_after_a_damaged_large_value_goes_on_behind_it() {
    let vfs = mem();
    let db = open(settings(&vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    for number in 0..5_u8 {
        tree.put([number], vec![number; 600]).unwrap();
    }
    db.flush().unwrap();
    drop(tree);
    db.close().unwrap();
    let dir = std::path::Path::new(crate::db::tests_common::DIR);
    let blobs = vfs.list(dir).unwrap().into_iter().find(|entry| entry.name.ends_with(".blob")).unwrap();
    let file = vfs.open(&dir.join(blobs.name), crate::platform::OpenMode::ReadWrite).unwrap();
    let len = file.len().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, len / 2).unwrap();
    file.write_at(&[byte[0] ^ 1], len / 2).unwrap();
    let db = open(settings(&vfs)).unwrap();
    let tree = db.open_tree("t").unwrap();
    let (good, bad): (Vec<_>, Vec<_>) = tree.iter().partition(Result::is_ok);
    assert!(good.len() >= 3 && !bad.is_empty() && good.len() + bad.len() == 5, "{bad:?}");
    assert!(bad.iter().all(|row| row.as_ref().is_err_and(Error::is_corruption)));
}
