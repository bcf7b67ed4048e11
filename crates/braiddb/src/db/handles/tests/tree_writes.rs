//! Writes that return values, and updates with errors of their own.

use crate::{
    base::Error,
    db::{
        Db, Durability, Tree,
        tests_common::{mem, open, small},
    },
};
use std::{collections::BTreeSet, thread};

fn numbered(rows: u32) -> (Db, Tree) {
    let db = open(small(&mem())).unwrap();
    let tree = db.tree("jobs").unwrap();
    tree.extend((0..rows).map(|i| (i.to_be_bytes(), i.to_le_bytes()))).unwrap();
    (db, tree)
}

#[test]
fn insert_and_remove_return_the_value_before() {
    let (_db, tree) = numbered(0);
    assert_eq!(tree.insert("a", "1").unwrap(), None);
    assert_eq!(tree.insert("a", "2").unwrap().unwrap(), "1");
    assert_eq!(tree.remove("a").unwrap().unwrap(), "2");
    assert_eq!(tree.remove("a").unwrap(), None);
    assert_eq!(tree.get("a").unwrap(), None);
}

#[test]
fn remove_of_an_absent_key_commits_nothing() {
    let (db, tree) = numbered(1);
    let before = db.snapshot().sequence();
    tree.remove("absent").unwrap();
    assert_eq!(db.snapshot().sequence(), before);
}

#[test]
fn pop_first_and_pop_last_take_from_both_ends_until_the_tree_is_empty() {
    let (_db, tree) = numbered(3);
    let key = |row: Option<(crate::db::Key, _)>| row.map(|(key, _)| u32::from_be_bytes(key.try_into().unwrap()));
    assert_eq!(key(tree.pop_first().unwrap()), Some(0));
    assert_eq!(key(tree.pop_last().unwrap()), Some(2));
    assert_eq!(key(tree.pop_last().unwrap()), Some(1));
    assert_eq!(key(tree.pop_first().unwrap()), None);
    assert_eq!(key(tree.pop_last().unwrap()), None);
}

#[test]
fn threads_that_pop_take_each_row_once() {
    let (_db, tree) = numbered(200);
    let popped: Vec<u32> = thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut own = Vec::new();
                    while let Some((key, _)) = tree.pop_first().unwrap() {
                        own.push(u32::from_be_bytes(key.try_into().unwrap()));
                    }
                    own
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert_eq!(popped.len(), 200);
    assert_eq!(popped.into_iter().collect::<BTreeSet<_>>(), (0..200).collect());
}

#[test]
fn extend_writes_more_rows_than_a_batch_holds_and_clear_deletes_them() {
    let (_db, tree) = numbered(2500);
    assert_eq!(tree.len().unwrap(), 2500);
    tree.clear().unwrap();
    assert!(tree.is_empty().unwrap());
}

#[test]
fn put_with_uses_its_own_durability() {
    let (db, tree) = numbered(0);
    let syncs = || db.stats().syncs;
    let before = syncs();
    tree.put_with("a", "1", Durability::Buffered).unwrap();
    assert_eq!(syncs(), before);
    tree.put_with("a", "1", Durability::Sync).unwrap();
    assert!(syncs() > before);
}

#[test]
fn delete_with_and_merge_with_use_their_own_durability() {
    let (db, tree) = numbered(1);
    let append = db.merge_function("append").unwrap();
    for (durability, is_synced) in [(Durability::Buffered, false), (Durability::Sync, true)] {
        let before = db.stats().syncs;
        tree.delete_with(0_u32.to_be_bytes(), durability).unwrap();
        assert_eq!(db.stats().syncs > before, is_synced);
        let before = db.stats().syncs;
        tree.merge_with("log", &append, "line ", durability).unwrap();
        assert_eq!(db.stats().syncs > before, is_synced);
    }
    assert_eq!(tree.first().unwrap().unwrap(), ("log".into(), "line line ".into()));
    let add = db.merge_function("add").unwrap();
    assert!(tree.merge_with("n", &add, "no number", Durability::Sync).unwrap_err().is_invalid_argument());
}

#[test]
fn compare_and_set_changes_only_the_expected_value() {
    let (_db, tree) = numbered(0);
    assert!(tree.compare_and_set("a", "1", "2").unwrap().is_none(), "the key is absent");
    tree.put("a", "1").unwrap();
    assert!(tree.compare_and_set("a", "1", String::from("2")).unwrap().is_some());
    assert!(tree.compare_and_set("a", "1", [3]).unwrap().is_none());
    assert_eq!(tree.get("a").unwrap().unwrap(), "2");
}

#[test]
fn compare_and_delete_deletes_only_the_expected_value() {
    let (_db, tree) = numbered(0);
    assert!(tree.compare_and_delete("a", "").unwrap().is_none(), "the key is absent");
    let written = tree.put("a", "1").unwrap();
    assert!(tree.compare_and_delete("a", String::from("2")).unwrap().is_none());
    assert!(tree.contains("a").unwrap());
    assert!(tree.compare_and_delete("a", "1").unwrap().is_some_and(|version| version.sequence() > written));
    assert!(!tree.contains("a").unwrap());
}

#[test]
fn pops_of_a_transaction_see_its_own_writes_and_conflict_with_earlier_rows() {
    let (db, tree) = numbered(3);
    let tx = db.begin().unwrap();
    let key = |number: u32| Some(crate::db::Key::from(number.to_be_bytes()));
    let taken = |row: crate::base::Result<Option<(crate::db::Key, crate::db::Value)>>| row.unwrap().map(|(key, _)| key);
    assert_eq!(taken(tx.pop_first(&tree)), key(0));
    tx.put(&tree, 9_u32.to_be_bytes(), "own").unwrap();
    assert_eq!(taken(tx.pop_last(&tree)), key(9));
    assert_eq!(taken(tx.pop_last(&tree)), key(2));
    tx.commit().unwrap();
    assert_eq!(tree.iter().map(|row| row.unwrap().0).collect::<Vec<_>>(), [key(1).unwrap()]);
    let tx = db.begin().unwrap();
    assert_eq!(taken(tx.pop_first(&tree)), key(1));
    assert_eq!(taken(tx.pop_first(&tree)), None);
    tree.put(0_u32.to_be_bytes(), "earlier").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
}

#[derive(Debug)]
enum Failure {
    Store(Error),
    Own,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

#[test]
fn an_own_error_of_an_update_aborts_it() {
    let (db, tree) = numbered(0);
    let mut runs = 0;
    let failed = db.try_update(|tx| -> Result<(), Failure> {
        runs += 1;
        tx.put(&tree, "a", "1")?;
        Err(Failure::Own)
    });
    assert!(matches!(failed, Err(Failure::Own)));
    assert_eq!((runs, tree.get("a").unwrap()), (1, None));
}

#[test]
fn a_conflict_repeats_an_update_with_an_own_error() {
    let (db, tree) = numbered(1);
    let mut runs = 0;
    let done = db.try_update(|tx| -> Result<u32, Failure> {
        runs += 1;
        tx.get(&tree, 0_u32.to_be_bytes())?;
        if runs == 1 {
            thread::scope(|scope| scope.spawn(|| tree.put(0_u32.to_be_bytes(), "other").unwrap()).join().unwrap());
        }
        tx.put(&tree, "a", "1")?;
        Ok(runs)
    });
    assert!(matches!(done, Ok(2)), "{done:?}");
}

#[test]
fn an_error_of_the_store_comes_out_as_the_own_one() {
    let (db, tree) = numbered(0);
    let failed = db.try_update(|tx| -> Result<(), Failure> { Ok(tx.put(&tree, vec![0; 70_000], "1")?) });
    assert!(matches!(failed, Err(Failure::Store(Error::InvalidArgument(_)))), "{failed:?}");
}

/// The pop would take effect at once, and once more with each retry of the update.
#[test]
fn a_pop_inside_an_update_is_refused() {
    let (db, tree) = numbered(3);
    for pop in [Tree::pop_first, Tree::pop_last] {
        let refused = db.update(|_| pop(&tree));
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
    }
    assert_eq!(tree.len().unwrap(), 3);
}
