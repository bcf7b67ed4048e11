//! Index look-ups and their maintenance by single writes, batches and transactions.

use crate::common::{User, Users, in_memory, keys, message, user, users, verified};
use braiddb_typed::{Error, IndexProblemKind, TypedTree};

fn filled() -> (braiddb::Db, Users) {
    let db = in_memory();
    let users = users(&db).unwrap();
    users.put(&3, &user("Ann", "ann@x", &["b", "a"])).unwrap();
    users.put(&1, &user("Bob", "bob@x", &["a"])).unwrap();
    users.put(&2, &user("Ann", "", &[])).unwrap();
    (db, users)
}

#[test]
fn index_lookups_return_records_in_index_order() {
    let (_db, users) = filled();
    assert_eq!(keys(users.by_index("name", &"Ann")), [2, 3]);
    assert!(keys(users.by_index("name", &"An")).is_empty());
    assert_eq!(keys(users.index_iter("name")), [2, 3, 1]);
    assert_eq!(keys(users.index_iter("name").rev()), [1, 3, 2]);
    assert_eq!(keys(users.index_range("name", "Ann".."Bob")), [2, 3]);
    assert_eq!(keys(users.index_range("name", "Ann"..="Bob")), [2, 3, 1]);
    let after = (std::ops::Bound::Excluded("Ann"), std::ops::Bound::<&str>::Unbounded);
    assert_eq!(keys(users.index_range::<&str>("name", after)), [1]);
    assert_eq!(keys(users.by_index("tags", &"a")), [1, 3]);
    assert_eq!(keys(users.index_iter("email")), [3, 1]);
    assert_eq!(users.get_by("email", &"bob@x").unwrap().unwrap().0, 1);
    assert!(users.get_by("email", &"eve@x").unwrap().is_none());
    assert_eq!(keys(users.iter()), [1, 2, 3]);
    assert_eq!(keys(users.iter().rev()), [3, 2, 1]);
    assert_eq!(users.len().unwrap(), 3);
    assert_eq!((users.first().unwrap().unwrap().0, users.last().unwrap().unwrap().0), (1, 3));
    message(users.by_index("age", &1).next().unwrap(), &["users", "age", "builder"]);
    assert_eq!(verified(&users), 3 + 2 + 3);
}

#[test]
fn index_of_tuples_is_read_by_prefix() {
    let db = in_memory();
    let build =
        || TypedTree::<u32, (String, i64)>::builder(&db, "t").index("both", |value: &(String, i64)| value.clone());
    let tree = build().open().unwrap();
    for (key, name, number) in [(1, "a", 2), (2, "a\0", 1), (3, "a", -1), (4, "b", 0), (5, "", 0)] {
        tree.put(&key, &(name.to_owned(), number)).unwrap();
    }
    assert_eq!(keys(tree.index_prefix("both", &("a",))), [3, 1]);
    assert_eq!(keys(tree.index_iter("both")), [5, 3, 1, 2, 4]);
    assert_eq!(keys(tree.index_range("both", ("a", 0)..=("a\0", 1))), [1, 2]);
    assert_eq!(keys(tree.by_index("both", &("a", 2))), [1]);
    assert_eq!(keys(tree.index_prefix("both", &())), [5, 3, 1, 2, 4]);
}

#[test]
fn overwrite_and_remove_update_the_indexes() {
    let (_db, users) = filled();
    assert_eq!(users.insert(&3, &user("Cid", "cid@x", &["c", "c"])).unwrap().unwrap().name, "Ann");
    assert_eq!(keys(users.by_index("name", &"Ann")), [2]);
    assert_eq!(keys(users.by_index("tags", &"a")), [1]);
    assert!(users.get_by("email", &"ann@x").unwrap().is_none());
    // The value is free again.
    users.put(&9, &user("Ann", "ann@x", &[])).unwrap();
    assert_eq!(users.remove(&9).unwrap().unwrap().name, "Ann");
    assert_eq!(users.remove(&9).unwrap(), None);
    users.update(&2, |found| found.map(|found| User { name: "Zoe".to_owned(), ..found })).unwrap();
    assert_eq!(keys(users.index_iter("name").rev()), [2, 3, 1]);
    users.update(&2, |_| None).unwrap();
    assert!(!users.contains(&2).unwrap());
    assert_eq!(verified(&users), 2 + 2 + 2);
    users.clear().unwrap();
    assert_eq!((users.len().unwrap(), verified(&users)), (0, 0));
    // The definitions are still there.
    users.put(&1, &user("Ann", "ann@x", &["a"])).unwrap();
    assert_eq!(verified(&users), 3);
}

#[test]
fn unique_index_with_duplicate_is_refused_and_nothing_is_written() {
    let (_db, users) = filled();
    let error = users.put(&7, &user("Eve", "ann@x", &["e"])).unwrap_err();
    assert!(error.is_not_unique());
    message(Err::<(), _>(error), &["users", "email", "ann@x", "[3]"]);
    assert!(!users.contains(&7).unwrap());
    // The record itself may keep its value.
    users.put(&3, &user("Ann", "ann@x", &["z"])).unwrap();
    let mut batch = users.batch();
    batch.put(&8, &user("Fay", "fay@x", &[])).unwrap().put(&9, &user("Gus", "fay@x", &[])).unwrap();
    assert_eq!((batch.len(), batch.is_empty()), (2, false));
    assert!(batch.commit().unwrap_err().is_not_unique());
    assert!(!users.contains(&8).unwrap());
    let mut batch = users.batch();
    batch.delete(&3).unwrap().put(&8, &user("Fay", "ann@x", &[])).unwrap();
    batch.commit().unwrap();
    assert_eq!(users.get_by("email", &"ann@x").unwrap().unwrap().0, 8);
    verified(&users);
}

#[test]
fn transaction_sees_its_own_writes_and_aborts_whole() {
    let (db, users) = filled();
    let other: TypedTree<String, u32> = TypedTree::open(&db, "other").unwrap();
    let work = |is_aborted: bool| {
        db.update(|tx| {
            let (users, other) = (users.in_tx(tx), other.in_tx(tx));
            users.put(&5, &user("Dan", "dan@x", &["d"]))?;
            users.remove(&1)?;
            other.put(&"users".to_owned(), &3)?;
            assert_eq!(keys(users.index_iter("name")), [2, 3, 5]);
            assert_eq!(users.get_by("email", &"dan@x")?.unwrap().0, 5);
            assert!(users.get_by("email", &"bob@x")?.is_none());
            assert!(users.put(&6, &user("Dan", "dan@x", &[])).unwrap_err().is_not_unique());
            match is_aborted {
                true => Err(Error::Invalid("on second thoughts".to_owned()).into()),
                false => Ok(()),
            }
        })
    };
    let error = Error::from(work(true).unwrap_err());
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    assert_eq!((users.len().unwrap(), other.len().unwrap()), (3, 0));
    verified(&users);
}

#[test]
fn snapshot_reads_records_and_indexes_of_its_commit() {
    let (db, users) = filled();
    let snapshot = db.snapshot();
    users.put(&3, &user("Zoe", "zoe@x", &[])).unwrap();
    users.remove(&1).unwrap();
    let before = users.at(&snapshot);
    assert_eq!(keys(before.index_iter("name")), [2, 3, 1]);
    assert_eq!(before.get_by("email", &"ann@x").unwrap().unwrap().1.name, "Ann");
    assert_eq!((before.get(&1).unwrap().unwrap().name.as_str(), before.contains(&1).unwrap()), ("Bob", true));
    assert_eq!(keys(before.range(2..)), [2, 3]);
    assert_eq!(keys(users.index_iter("name")), [2, 3]);
}

#[test]
fn verify_and_rebuild_find_and_repair_raw_writes() {
    let (_db, users) = filled();
    users.raw().delete(braiddb_typed::tuple::pack(&1_u32)).unwrap();
    let ann = serde_json::to_vec(&user("Ann", "new@x", &["b"])).unwrap();
    users.raw().put(braiddb_typed::tuple::pack(&4_u32), ann).unwrap();
    let error = users.get_by("email", &"bob@x").unwrap_err();
    message(Err::<(), _>(error), &["email", "users", "[1]", "rebuild_index"]);
    let report = users.verify_indexes().unwrap();
    let found = |kind| report.problems.iter().filter(|problem| problem.kind == kind).count();
    assert_eq!((found(IndexProblemKind::Stale), found(IndexProblemKind::Missing)), (3, 3), "{report:?}");
    for index in ["name", "email", "tags"] {
        users.rebuild_index(index).unwrap();
    }
    assert_eq!(keys(users.by_index("name", &"Ann")), [2, 3, 4]);
    verified(&users);
    // A duplicate that a raw write made cannot be repaired.
    let ann = serde_json::to_vec(&user("Ann", "ann@x", &[])).unwrap();
    users.raw().put(braiddb_typed::tuple::pack(&5_u32), ann).unwrap();
    let report = users.verify_indexes().unwrap();
    assert!(report.problems.iter().any(|problem| problem.kind == IndexProblemKind::Duplicate && problem.key == "[5]"));
    assert!(users.rebuild_index("email").unwrap_err().is_not_unique());
    assert!(matches!(users.rebuild_index("age"), Err(Error::NoIndex { .. })));
}

#[test]
fn records_that_do_not_decode_name_tree_and_key() {
    let (db, users) = filled();
    users.raw().put(braiddb_typed::tuple::pack(&4_u32), b"{").unwrap();
    message(users.get(&4), &["users", "[4]", "serde(default)"]);
    message(users.put(&4, &user("Dan", "", &[])), &["users", "[4]"]);
    assert_eq!(users.iter().filter(Result::is_err).count(), 1);
    assert_eq!(users.iter().count(), 4);
    let report = users.verify_indexes().unwrap();
    assert_eq!(report.problems[0].kind, IndexProblemKind::Unreadable);
    let texts: TypedTree<String, serde_json::Value> = TypedTree::builder(&db, "texts").open().unwrap();
    texts.raw().put(braiddb_typed::tuple::pack(&4_u32), b"1").unwrap();
    message(texts.first(), &["texts", "[4]", "key type"]);
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Price {
    amount: f64,
    /// Not stored.
    #[serde(skip)]
    note: i64,
}

fn prices(db: &braiddb::Db) -> TypedTree<u32, Price> {
    let builder = TypedTree::<u32, Price>::builder(db, "prices").index("amount", |price: &Price| price.amount);
    builder.index("note", |price: &Price| price.note).open().unwrap()
}

#[test]
fn entries_are_those_of_the_stored_value() {
    let db = in_memory();
    let prices = prices(&db);
    for i in 0..500_u32 {
        // One in ten such doubles did not survive JSON.
        let amount = f64::from(i) * 1.1 + 100.0 / 3.0;
        prices.put(&(i % 50), &Price { amount, note: 7 }).unwrap();
        assert_eq!(prices.get(&(i % 50)).unwrap().unwrap().amount, amount);
    }
    assert!(prices.by_index("note", &7_i64).next().is_none());
    assert_eq!(prices.verify_indexes().unwrap().problems, []);
    for key in 0..50 {
        prices.remove(&key).unwrap();
    }
    assert_eq!(prices.verify_indexes().unwrap().entries, 0);
}

#[test]
fn a_value_that_could_not_be_read_again_is_refused() {
    let db = in_memory();
    let prices = prices(&db);
    // JSON has no such number, and stores null.
    assert!(prices.put(&1, &Price { amount: f64::NAN, note: 0 }).is_err());
    assert_eq!(prices.get(&1).unwrap(), None);
}

#[test]
fn rebuild_keeps_the_entries_of_a_record_that_cannot_be_decoded() {
    let db = in_memory();
    let prices = prices(&db);
    let good = Price { amount: 1.5, note: 0 };
    prices.put(&1, &good).unwrap();
    let (raw, key) = (db.tree("prices").unwrap(), db.tree("prices").unwrap().first().unwrap().unwrap().0);
    let bytes = raw.get(&key).unwrap().unwrap();
    raw.put(&key, "of another program").unwrap();
    assert!(matches!(prices.rebuild_index("amount"), Err(Error::Value { .. })));
    raw.put(&key, &bytes).unwrap();
    assert_eq!(keys(prices.by_index("amount", &1.5)), [1]);
    assert_eq!(prices.verify_indexes().unwrap().problems, []);
}

/// The story: a record with a duplicate, which a raw write had made, took the other record's entry
/// with it.
#[test]
fn writes_of_a_duplicate_keep_the_entry_of_the_other_record() {
    let (db, users) = filled();
    let raw_duplicate = |key: u32| {
        let ann = serde_json::to_vec(&user("Eve", "ann@x", &[])).unwrap();
        users.raw().put(braiddb_typed::tuple::pack(&key), ann).unwrap();
    };
    let is_kept = || {
        assert_eq!(users.get_by("email", &"ann@x").unwrap().unwrap().0, 3);
        assert!(users.put(&9, &user("Eve", "ann@x", &[])).unwrap_err().is_not_unique());
    };
    raw_duplicate(5);
    users.remove(&5).unwrap();
    is_kept();
    raw_duplicate(5);
    users.put(&5, &user("Eve", "eve@x", &[])).unwrap();
    is_kept();
    raw_duplicate(6);
    db.update(|tx| Ok(users.in_tx(tx).remove(&6)?)).unwrap();
    is_kept();
    verified(&users);
}

/// The story: a transaction that went on after a duplicate committed the refused record.
#[test]
fn refused_put_leaves_nothing_in_its_transaction() {
    let (db, users) = filled();
    db.update(|tx| {
        let users = users.in_tx(tx);
        assert!(users.put(&7, &user("Eve", "ann@x", &["e"])).unwrap_err().is_not_unique());
        let later = std::time::Duration::from_secs(60);
        assert!(users.put_with_ttl(&7, &user("Eve", "ann@x", &["e"]), later).unwrap_err().is_not_unique());
        assert!(users.put(&1, &user("Bob", "ann@x", &["e"])).unwrap_err().is_not_unique());
        users.put(&8, &user("Fay", "fay@x", &[]))?;
        Ok(())
    })
    .unwrap();
    assert_eq!(keys(users.iter()), [1, 2, 3, 8]);
    assert_eq!(users.get_by("email", &"ann@x").unwrap().unwrap().0, 3);
    assert_eq!(users.get_by("email", &"bob@x").unwrap().unwrap().0, 1);
    verified(&users);
}

/// Records of an earlier type must not stay for ever.
#[test]
fn delete_of_a_record_that_cannot_be_decoded_removes_its_entries() {
    let (db, users) = filled();
    let spoil = |key: u32| users.raw().put(braiddb_typed::tuple::pack(&key), b"{").unwrap();
    spoil(3);
    message(users.remove(&3), &["users", "[3]", "delete"]);
    assert!(users.contains(&3).unwrap());
    users.delete(&3).unwrap();
    assert_eq!(keys(users.iter()), [1, 2]);
    assert_eq!(verified(&users), 1 + 1 + 2);
    // Its unique value is free.
    users.put(&4, &user("Ann", "ann@x", &["b"])).unwrap();
    spoil(4);
    let mut batch = users.batch();
    batch.delete(&4).unwrap().delete(&2).unwrap().put(&5, &user("Eve", "ann@x", &[])).unwrap();
    batch.commit_with(braiddb::Durability::Buffered).unwrap();
    spoil(5);
    db.update(|tx| {
        let users = users.in_tx(tx);
        users.delete(&5)?;
        users.put(&6, &user("Fay", "ann@x", &[]))?;
        Ok(users.delete(&7)?)
    })
    .unwrap();
    assert_eq!(keys(users.index_iter("name")), [1, 6]);
    assert_eq!(verified(&users), 2 + 2 + 1);
    // Another writer does not conflict with the scan.
    spoil(1);
    let tx = db.begin().unwrap();
    users.in_tx(&tx).delete(&1).unwrap();
    users.put(&8, &user("Gus", "gus@x", &["g"])).unwrap();
    tx.commit().unwrap();
    assert_eq!(keys(users.iter()), [6, 8]);
    verified(&users);
}

#[test]
fn pop_and_put_with_keep_the_indexes() {
    let (_db, users) = filled();
    users.put_with(&4, &user("Dan", "dan@x", &["d"]), braiddb::Durability::Sync).unwrap();
    assert_eq!(users.pop_first().unwrap().unwrap().0, 1);
    assert_eq!(users.pop_last().unwrap().unwrap().1.name, "Dan");
    assert_eq!(keys(users.index_iter("name")), [2, 3]);
    verified(&users);
    assert!(!users.is_empty().unwrap());
    users.pop_first().unwrap();
    users.pop_last().unwrap();
    assert_eq!(users.pop_first().unwrap(), None);
    // Index entries and definitions are no records.
    assert!(users.is_empty().unwrap());
    assert_eq!(verified(&users), 0);
}

#[test]
fn delete_range_deletes_entries_also_of_records_that_cannot_be_decoded() {
    let (db, users) = filled();
    users.put(&4, &user("Dan", "dan@x", &["d"])).unwrap();
    users.raw().put(braiddb_typed::tuple::pack(&2_u32), b"{").unwrap();
    users.delete_range(2..4).unwrap();
    assert_eq!(keys(users.iter()), [1, 4]);
    assert_eq!(verified(&users), 2 + 2 + 2);
    // Its unique value is free.
    users.put(&5, &user("Ann", "ann@x", &[])).unwrap();
    let before = db.snapshot();
    db.update(|tx| {
        let users = users.in_tx(tx);
        users.delete_range(5..)?;
        assert_eq!((users.len()?, users.count(2..)?), (2, 1));
        assert_eq!(users.multi_get(&[5, 4])?.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true]);
        Ok(())
    })
    .unwrap();
    assert_eq!((users.at(&before).len().unwrap(), users.len().unwrap(), users.count(..=1).unwrap()), (3, 2, 1));
    assert_eq!(users.at(&before).multi_get(&[5]).unwrap()[0].as_ref().unwrap().name, "Ann");
    users.delete_range(..).unwrap();
    assert!(users.is_empty().unwrap());
    assert_eq!(verified(&users), 0);
    let plain: TypedTree<u32, u32> = TypedTree::open(&db, "plain").unwrap();
    (0..9).for_each(|key| plain.put(&key, &key).unwrap());
    plain.delete_range(3..).unwrap();
    assert_eq!(plain.multi_get(&[2, 3]).unwrap(), [Some(2), None]);
}

/// The story: a typed write inside an update committed at once, and again with each retry.
#[test]
fn typed_writes_inside_an_update_are_refused_without_in_tx() {
    let (db, users) = filled();
    let ann = user("Ann", "", &[]);
    let before = users.raw().len().unwrap();
    let refused = |write: &dyn Fn() -> braiddb_typed::Result<()>| {
        let error = db.update(|_| Ok(write()?)).unwrap_err();
        assert!(error.is_invalid_argument() && error.to_string().contains("in_tx"), "{error}");
    };
    refused(&|| users.put(&9, &ann));
    refused(&|| users.put_with(&9, &ann, braiddb::Durability::Buffered));
    refused(&|| users.insert(&9, &ann).map(drop));
    refused(&|| users.delete(&1));
    refused(&|| users.remove(&1).map(drop));
    refused(&|| users.update(&1, |_| None));
    refused(&|| users.pop_first().map(drop));
    refused(&|| users.clear());
    refused(&|| users.delete_range(..));
    refused(&|| {
        let mut batch = users.batch();
        batch.put(&9, &ann)?;
        batch.commit()
    });
    assert_eq!(users.raw().len().unwrap(), before);
    verified(&users);
}
