//! Writes inside `Db::update` that bypass its transaction.

use crate::{
    base::{Error, Result},
    db::{
        Db, Durability, Tree, Update,
        tests_common::{bounded, mem, open, small},
    },
};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn database() -> (Db, Tree) {
    let db = open(small(&mem())).unwrap();
    let tree = db.tree("t").unwrap();
    (db, tree)
}

/// A put meant for the transaction took effect at once, and again at each retry.
#[test]
fn write_past_the_transaction_inside_an_update_is_refused() {
    let (db, tree) = database();
    let add = db.merge_function("add").unwrap();
    let before = db.stats().commits;
    let bypass: [&dyn Fn() -> Result<()>; 8] = [
        &|| tree.put(b"k", b"past").map(drop),
        &|| tree.delete(b"k").map(drop),
        &|| tree.delete_range(..).map(drop),
        &|| tree.merge(b"k", &add, 1_i64.to_le_bytes()).map(drop),
        &|| tree.fetch_update(b"k", |_| Update::Put(vec![1])).map(drop),
        &|| {
            let mut batch = db.batch();
            batch.put(&tree, b"k", b"past");
            batch.commit_with(Durability::Buffered).map(drop)
        },
        &|| tree.bulk_load([("a", "b")]).map(drop),
        &|| db.drop_trees(&["t"]),
    ];
    for (which, bypass) in bypass.iter().enumerate() {
        let error = db.update(|tx| tx.put(&tree, b"k", b"through").and_then(|()| bypass())).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::InvalidArgument(_)) && text.contains("Db::update"), "{which}: {text}");
    }
    assert!(tree.first().unwrap().is_none(), "nothing was written");
    assert_eq!(db.stats().commits, before);
    tree.put(b"k", b"v").unwrap();
    db.update(|tx| tx.put(&tree, b"l", b"w")).unwrap();
    assert_eq!(tree.iter().count(), 2);
}

#[test]
fn separate_transactions_and_new_trees_inside_an_update_are_allowed() {
    let (db, tree) = database();
    let (other_db, other_tree) = database();
    db.update(|tx| {
        let new = db.tree("new")?;
        tx.put(&new, b"k", b"")?;
        let own = db.begin()?;
        own.put(&tree, b"own", b"")?;
        own.commit()?;
        other_tree.put(b"k", b"")?;
        other_db.update(|inner| {
            assert!(tree.put(b"k", b"").is_err());
            inner.put(&other_tree, b"l", b"")
        })?;
        assert!(tree.put(b"k", b"").is_err());
        tx.put(&tree, b"outer", b"")
    })
    .unwrap();
    assert_eq!((tree.iter().count(), other_tree.iter().count(), db.trees().unwrap().len()), (2, 2, 2));
}

/// A nested update committed at once, and again with each retry of the outer one. Writes of typed
/// trees, and pops, are nested updates.
#[test]
fn nested_update_and_pops_inside_an_update_are_refused() {
    let (db, tree) = database();
    let multi = db.multi_tree("m").unwrap();
    tree.put(b"k", b"v").unwrap();
    multi.add(b"k", b"v").unwrap();
    let before = db.stats().commits;
    let nested: [&dyn Fn() -> Result<()>; 6] = [
        &|| db.update(|inner| inner.put(&tree, b"inner", b"")),
        &|| db.update_with(Durability::Buffered, |_| Ok(())),
        &|| db.clone().try_update(|inner| -> Result<()> { inner.delete(&tree, b"k") }),
        &|| tree.pop_first().map(drop),
        &|| multi.pop_first().map(drop),
        &|| multi.pop_last().map(drop),
    ];
    for (which, nested) in nested.iter().enumerate() {
        let error = db.update(|_| nested()).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::InvalidArgument(_)) && text.contains("Db::update"), "{which}: {text}");
        nested().unwrap_or_else(|e| panic!("{which} outside: {e}"));
        tree.put(b"k", b"v").unwrap();
        multi.add(b"k", b"v").unwrap();
    }
    let (after, tried) = (db.stats().commits, nested.len() as u64);
    // Outside: one each but for the empty update, and two puts after it.
    assert_eq!(after - before, 3 * tried - 1, "a refused update committed");
    let refused = db.update(|tx| {
        let refused = db.update(|inner| inner.put(&tree, b"inner", b"")).unwrap_err();
        tx.put(&tree, b"outer", b"")?;
        Ok(refused)
    });
    assert!(refused.unwrap().is_invalid_argument());
    assert!(tree.contains(b"outer").unwrap());
}

#[test]
fn put_after_an_update_that_panicked_is_accepted() {
    let (db, tree) = database();
    let panicked = catch_unwind(AssertUnwindSafe(|| db.update(|_| -> Result<()> { panic!("on purpose") })));
    assert!(panicked.is_err());
    tree.put(b"k", b"v").unwrap();
}

#[test]
fn put_of_another_thread_during_an_update_is_accepted() {
    let (db, tree) = database();
    bounded("a put beside an update", move || {
        db.update(|tx| {
            let writer = tree.clone();
            #[expect(clippy::disallowed_methods, reason = "a test of threads")]
            std::thread::spawn(move || writer.put(b"k", b"v").map(drop)).join().unwrap()?;
            tx.put(&tree, b"l", b"w")
        })
        .unwrap();
        assert_eq!(tree.iter().count(), 2);
    });
}
