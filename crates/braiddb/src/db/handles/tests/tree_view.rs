//! A helper over `Read` sees the latest state, a snapshot or a transaction.

use crate::{
    base::Result,
    db::{
        Db, Key, KeyRange, Read, Tree, Value,
        tests_common::{mem, open, small},
    },
};
use std::ops::Bound;

/// All that a view shows, by each method.
fn shown(view: &impl Read) -> String {
    let text = |row: Result<(Key, Value)>| row.map(|(key, value)| format!("{key}{value}")).unwrap();
    let rows: Vec<String> = view.iter().map(text).collect();
    let back: Vec<String> = view.range(..).rev().map(text).collect();
    assert!(rows.iter().eq(back.iter().rev()));
    assert_eq!(view.count(..).unwrap(), rows.len() as u64);
    assert_eq!(view.is_empty().unwrap(), rows.is_empty());
    assert_eq!(view.first().unwrap().map(|row| text(Ok(row))), rows.first().cloned());
    assert_eq!(view.last().unwrap().map(|row| text(Ok(row))), rows.last().cloned());
    let keys: Vec<Key> = view.iter().map(|row| row.unwrap().0).collect();
    for ((key, row), value) in keys.iter().zip(&rows).zip(view.multi_get(&keys).unwrap()) {
        assert_eq!(view.get(key).unwrap(), value);
        assert_eq!(view.get_with(key, |value| value.to_vec()).unwrap(), value.clone().map(Vec::from));
        assert!(view.contains(key).unwrap());
        assert_eq!(&format!("{key}{}", value.unwrap()), row);
        assert_eq!(view.prefix(key).map(text).next().as_ref(), Some(row));
    }
    assert_eq!(view.multi_get(&["absent"]).unwrap(), [None]);
    rows.join(" ")
}

fn filled() -> (Db, Tree) {
    let db = open(small(&mem())).unwrap();
    let tree = db.tree("t").unwrap();
    tree.extend([("a", "1"), ("b", "2"), ("c", "3")]).unwrap();
    (db, tree)
}

#[test]
fn each_view_shows_its_own_state() {
    let (db, tree) = filled();
    let before = db.snapshot();
    db.update(|tx| {
        let view = tx.tree(&tree);
        assert_eq!(view.insert("b", "4")?.unwrap(), "2");
        assert_eq!(view.remove("a")?.unwrap(), "1");
        assert_eq!(view.remove("a")?, None);
        view.put("d", "5")?;
        view.delete("c")?;
        assert_eq!(shown(&view), "b4 d5");
        view.delete_range("d"..)?;
        assert_eq!(shown(&view), "b4");
        assert_eq!(shown(&tree), "a1 b2 c3");
        Ok(())
    })
    .unwrap();
    assert_eq!(shown(&tree), "b4");
    assert_eq!(shown(&before.tree(&tree)), "a1 b2 c3");
    let rows = (&before.tree(&tree)).into_iter().count();
    assert_eq!((rows, (&tree).into_iter().count()), (3, 1));
}

#[test]
fn multi_get_of_a_transaction_counts_as_a_read() {
    for writes in [false, true] {
        let (db, tree) = filled();
        let tx = db.begin().unwrap();
        if writes {
            tx.put(&tree, "z", "1").unwrap();
        }
        assert_eq!(tx.multi_get(&tree, &["a", "x"]).unwrap(), [Some(Value::from("1")), None]);
        tree.put("x", "now there").unwrap();
        tx.put(&tree, "y", "1").unwrap();
        assert!(tx.commit().unwrap_err().is_conflict());
    }
}

#[test]
fn ranges_of_all_forms_need_no_type() {
    let (_db, tree) = filled();
    let keys =
        |range: Vec<Result<(Key, Value)>>| range.into_iter().map(|row| row.unwrap().0.to_string()).collect::<String>();
    fn all(tree: &Tree, range: impl KeyRange) -> Vec<Result<(Key, Value)>> {
        tree.range(range).collect()
    }
    assert_eq!(keys(all(&tree, ..)), "abc");
    assert_eq!(keys(all(&tree, "b"..)), "bc");
    assert_eq!(keys(all(&tree, .."b")), "a");
    assert_eq!(keys(all(&tree, ..="b")), "ab");
    assert_eq!(keys(all(&tree, b"a"..b"c")), "ab");
    assert_eq!(keys(all(&tree, String::from("a")..=String::from("b"))), "ab");
    assert_eq!(keys(all(&tree, (Bound::Excluded("a"), Bound::Unbounded))), "bc");
    assert_eq!(keys(all(&tree, &(&b"b"[..]..&b"bb"[..]))), "b");
    assert_eq!(keys(all(&tree, "c".."a")), "");
}
