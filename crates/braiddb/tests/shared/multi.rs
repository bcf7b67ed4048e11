//! Multi-trees of shared databases.

use super::handles::open;
use braiddb::{Error, Key, Value};

fn text(pair: (Key, Value)) -> String {
    format!("{}={}", pair.0.to_str().unwrap(), pair.1.to_str().unwrap())
}

#[test]
fn multi_tree_of_member_is_that_of_owner() {
    let dir = tempfile::tempdir().unwrap();
    let handles = [open(dir.path()), open(dir.path())];
    assert!(handles[1].open_multi_tree("m").unwrap_err().is_not_found());
    for (at, db) in handles.iter().enumerate() {
        let (tree, plain) = (db.multi_tree("m").unwrap(), db.tree("t").unwrap());
        assert_eq!(tree.name(), "m");
        let of_other = handles[1 - at].open_multi_tree("m").unwrap();
        tree.add("a", "1").unwrap();
        tree.add("a", "2").unwrap();
        let mut batch = db.batch();
        batch.add(&tree, "b", "3").add(&tree, "b\0c", "4").add(&tree, "d", "5").delete_pair(&tree, "a", "1");
        batch.put(&plain, "k", "v").delete(&tree, "d").delete_range(&plain, "x"..);
        batch.commit().unwrap();
        handles.iter().for_each(|db| db.refresh().unwrap());
        for tree in [&tree, &of_other] {
            let pairs: Vec<_> = tree.iter().unwrap().map(|pair| text(pair.unwrap())).collect();
            assert_eq!(pairs, ["a=2", "b=3", "b\0c=4"]);
            assert_eq!(tree.range("b"..).unwrap().count(), 2);
            assert_eq!(tree.values("b").unwrap().map(Result::unwrap).collect::<Vec<_>>(), ["3"]);
            assert!(tree.contains("a").unwrap() && !tree.contains("d").unwrap());
            assert!(tree.contains_pair("a", "2").unwrap() && !tree.contains_pair("a", "1").unwrap());
            assert_eq!((tree.count_values("b").unwrap(), tree.count(..).unwrap()), (1, 3));
        }
        let snapshot = db.snapshot().unwrap();
        let added = db.update(|tx| {
            let of_tx = tree.in_transaction(tx)?;
            let of_tx = tx.multi_tree(&of_tx);
            of_tx.add("b", "0")?;
            of_tx.delete_pair("b", "3")?;
            braiddb::views::ReadMulti::first_value(&of_tx, "b")
        });
        assert_eq!(added.unwrap().unwrap(), "0");
        let before = tree.in_snapshot(&snapshot).unwrap();
        assert_eq!(braiddb::views::ReadMulti::first_value(&before, "b").unwrap().unwrap(), "3");
        assert_eq!(text(of_other.pop_first().unwrap().unwrap()), "a=2");
        assert_eq!(text(tree.pop_last().unwrap().unwrap()), "b\0c=4");
        tree.delete_pair("b", "0").unwrap();
        assert_eq!(tree.pop_first().unwrap(), None);
        tree.add("z", "1").unwrap();
        tree.delete("z").unwrap();
        tree.add("z", "1").unwrap();
        tree.delete_range(..).unwrap();
        assert_eq!(tree.count(..).unwrap(), 0);
        handles.iter().for_each(|db| db.refresh().unwrap());
    }
}

#[test]
fn trees_of_two_kinds_and_databases_are_refused() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let _owner = open(dirs[0].path());
    let (db, other) = (open(dirs[0].path()), open(dirs[1].path()));
    db.tree("t").unwrap();
    let tree = db.multi_tree("m").unwrap();
    assert!(matches!(db.multi_tree("t"), Err(Error::InvalidArgument(_))));
    assert!(matches!(db.tree("m"), Err(Error::InvalidArgument(_))));
    let long = vec![0; 70_000];
    assert!(matches!(tree.add(&long, "v"), Err(Error::InvalidArgument(_))));
    assert!(matches!(tree.add("k", &long), Err(Error::InvalidArgument(_))));
    let mut batch = other.batch();
    batch.add(&tree, "k", "v");
    assert!(matches!(batch.commit(), Err(Error::InvalidArgument(_))));
    assert_eq!(tree.count(..).unwrap(), 0);
}
