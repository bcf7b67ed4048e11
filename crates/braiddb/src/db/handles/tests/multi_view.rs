//! A helper over `ReadMulti` sees the latest state, a snapshot or a transaction.

use crate::{
    base::Result,
    db::{
        Db, Key, MultiTree, ReadMulti, Value,
        tests_common::{mem, open, small},
    },
};
use std::ops::Bound;

/// All that a view shows, by each method.
fn shown(view: &impl ReadMulti) -> String {
    let text = |pair: Result<(Key, Value)>| pair.map(|(key, value)| format!("{key}{value}")).unwrap();
    let pairs: Vec<(Key, Value)> = view.iter().collect::<Result<_>>().unwrap();
    let mut back: Vec<(Key, Value)> = view.range(..).rev().collect::<Result<_>>().unwrap();
    back.reverse();
    assert_eq!(back, pairs);
    assert_eq!((view.count(..).unwrap(), view.len().unwrap()), (pairs.len() as u64, pairs.len() as u64));
    assert_eq!(view.is_empty().unwrap(), pairs.is_empty());
    assert_eq!(view.first().unwrap().as_ref(), pairs.first());
    assert_eq!(view.last().unwrap().as_ref(), pairs.last());
    for (key, value) in &pairs {
        let values: Vec<Value> = pairs.iter().filter(|(of, _)| of == key).map(|(_, value)| value.clone()).collect();
        assert_eq!(view.values(key).collect::<Result<Vec<_>>>().unwrap(), values);
        assert!(view.values(key).rev().map(Result::unwrap).eq(values.iter().rev().cloned()));
        let after = values.partition_point(|other| other <= value);
        let range = (Bound::Excluded(value), Bound::Unbounded);
        assert_eq!(view.values_range(key, range).collect::<Result<Vec<_>>>().unwrap(), values[after..]);
        assert_eq!(view.first_value(key).unwrap().as_ref(), values.first());
        assert_eq!(view.last_value(key).unwrap().as_ref(), values.last());
        assert_eq!(view.count_values(key).unwrap(), values.len() as u64);
        assert!(view.contains(key).unwrap() && view.contains_pair(key, value).unwrap());
        assert!(!view.contains_pair(key, [value, &b"?"[..]].concat()).unwrap());
        let with_prefix = pairs.iter().filter(|(of, _)| of.starts_with(key)).count();
        assert_eq!(view.prefix(key).count(), with_prefix);
        assert_eq!(view.count(key..=key).unwrap(), values.len() as u64);
    }
    assert!(!view.contains("absent").unwrap() && view.count_values("absent").unwrap() == 0);
    assert_eq!(view.first_value("absent").unwrap(), None);
    pairs.into_iter().map(|pair| text(Ok(pair))).collect::<Vec<_>>().join(" ")
}

fn filled() -> (Db, MultiTree) {
    let db = open(small(&mem())).unwrap();
    let tree = db.multi_tree("t").unwrap();
    tree.extend([("a", "1"), ("a", "2"), ("a\0", "3"), ("b", "3")]).unwrap();
    (db, tree)
}

#[test]
fn each_view_of_multi_tree_shows_its_own_state() {
    let (db, tree) = filled();
    let before = db.snapshot();
    db.update(|tx| {
        let view = tx.multi_tree(&tree);
        view.add("c", "4")?;
        view.delete_pair("a", "1")?;
        assert_eq!(shown(&view), r"a2 a\x003 b3 c4");
        view.delete_range("a\0"..="b")?;
        assert_eq!(shown(&view), "a2 c4");
        view.delete("c")?;
        view.add("c", "5")?;
        assert_eq!(shown(&view), "a2 c5");
        assert_eq!(view.into_iter().count(), 2);
        assert_eq!(shown(&tree), r"a1 a2 a\x003 b3");
        Ok(())
    })
    .unwrap();
    assert_eq!(shown(&tree), "a2 c5");
    assert_eq!(shown(&before.multi_tree(&tree)), r"a1 a2 a\x003 b3");
    let mut cursor = before.multi_tree(&tree).cursor();
    assert!(cursor.seek_last().unwrap());
    assert_eq!(cursor.pair(), (&b"b"[..], &b"3"[..]));
    tree.clear().unwrap();
    assert_eq!(shown(&tree), "");
}

#[test]
fn delete_of_key_deletes_its_values_only() {
    let (db, tree) = filled();
    tree.delete("a").unwrap();
    assert_eq!(shown(&tree), r"a\x003 b3");
    let mut batch = db.batch();
    batch.add(&tree, "b", "gone").delete(&tree, "b").add(&tree, "b", "5").delete_range(&tree, "a\0"..="a\0");
    batch.commit_with(crate::db::Durability::Buffered).unwrap();
    assert_eq!(shown(&tree), "b5");
    tree.delete_range(.."b").unwrap();
    assert_eq!(shown(&tree), "b5");
}

#[test]
fn pops_remove_pairs_from_both_ends() {
    let (_db, tree) = filled();
    assert_eq!(tree.pop_first().unwrap().unwrap(), ("a".into(), "1".into()));
    assert_eq!(tree.pop_last().unwrap().unwrap(), ("b".into(), "3".into()));
    assert_eq!(shown(&tree), r"a2 a\x003");
    tree.clear().unwrap();
    assert_eq!((tree.pop_first().unwrap(), tree.pop_last().unwrap()), (None, None));
}

/// A key that a view did not find counts as read.
#[test]
fn add_to_key_without_values_conflicts_with_its_reader() {
    let (db, tree) = filled();
    let tx = db.begin().unwrap();
    assert!(!tx.multi_tree(&tree).contains("z").unwrap());
    tx.multi_tree(&tree).add("y", "1").unwrap();
    tree.add("z", "1").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
    let tx = db.begin().unwrap();
    assert!(tx.multi_tree(&tree).contains("z").unwrap());
    tx.multi_tree(&tree).add("y", "1").unwrap();
    tree.add("zz", "1").unwrap();
    tx.commit().unwrap();
}

#[test]
fn long_keys_are_refused_in_ranges_of_multi_tree() {
    let (db, tree) = filled();
    let long = vec![b'k'; crate::base::limits::MAX_KEY_LEN + 1];
    assert!(tree.delete_range(..&long).is_err());
    assert!(tree.delete(&long).is_err());
    let tx = db.begin().unwrap();
    assert!(tx.multi_tree(&tree).delete_range(..&long).is_err());
    assert!(tx.multi_tree(&tree).delete(&long).is_err());
    assert_eq!(tree.len().unwrap(), 4);
}
