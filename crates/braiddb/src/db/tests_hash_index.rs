//! Hash indexes come to views that gets search, are counted, and never tell anything out of date.

use super::{
    Db, Settings, Tree,
    tests_common::{bounded, mem, open, small},
};

const ROWS: u32 = 3000;

fn key(row: u32) -> Vec<u8> {
    format!("row{:07}", row.wrapping_mul(7919) % 10_000_000).into_bytes()
}

fn load(tree: &Tree, step: usize, text: &str) {
    for row in (0..ROWS).step_by(step) {
        tree.put(key(row), format!("{text}{row}")).unwrap();
    }
}

/// Gets each row once, alone and with others, and as many that are not there.
fn check(tree: &Tree, expected: impl Fn(u32) -> String) {
    for row in 0..ROWS {
        assert_eq!(tree.get(key(row)).unwrap().as_deref(), Some(expected(row).as_bytes()), "row {row}");
        assert_eq!(tree.get(key(row + ROWS)).unwrap(), None);
    }
    let rows: Vec<u32> = (0..2 * ROWS).step_by(7).collect();
    let keys: Vec<Vec<u8>> = rows.iter().map(|&row| key(row)).collect();
    let check = |at: usize, value: Option<&[u8]>| {
        let wanted = (rows[at] < ROWS).then(|| expected(rows[at]));
        assert_eq!(value, wanted.as_deref().map(str::as_bytes), "row {}", rows[at]);
    };
    tree.multi_get_with(&keys, check).unwrap();
}

/// A database that has come to rest, and gets have made to want indexes.
fn searched(settings: Settings) -> (Db, Tree) {
    let db = open(settings).unwrap();
    let tree = db.tree("rows").unwrap();
    load(&tree, 1, "first");
    db.compact().unwrap();
    for _ in 0..2 {
        check(&tree, |row| format!("first{row}"));
        db.flush().unwrap();
    }
    (db, tree)
}

#[test]
fn gets_make_indexes_that_new_views_do_not_have() {
    let (db, tree) = searched(small(&mem()));
    let stats = db.stats();
    assert!(stats.hash_indexes > 0);
    assert!(
        stats.hash_index_bytes >= u64::from(ROWS) * 5 && stats.hash_index_bytes <= u64::from(ROWS) * 8,
        "{stats:?}"
    );
    assert!(stats.memory_bytes >= stats.hash_index_bytes + stats.cache_bytes);
    check(&tree, |row| format!("first{row}"));
    let old = db.snapshot();
    load(&tree, 2, "second");
    tree.delete(key(1)).unwrap();
    tree.put(key(1), "third").unwrap();
    let now = |row: u32| match row {
        1 => "third".to_owned(),
        row if row % 2 == 0 => format!("second{row}"),
        row => format!("first{row}"),
    };
    check(&tree, now);
    db.flush().unwrap();
    check(&tree, now);
    db.compact().unwrap();
    assert_eq!(db.stats().hash_index_bytes, 0, "all views are new");
    for _ in 0..3 {
        check(&tree, now);
        db.flush().unwrap();
    }
    assert!(db.stats().hash_index_bytes > 0);
    for row in (0..ROWS).step_by(5) {
        let value = old.get(&tree, key(row)).unwrap();
        assert_eq!(value.as_deref(), Some(format!("first{row}").as_bytes()));
    }
    tree.delete_range(key(0)..).unwrap();
    assert_eq!(tree.get(key(2)).unwrap(), None);
}

#[test]
fn there_are_none_where_they_are_not_wanted_or_have_no_room() {
    for settings in [
        Settings { hash_index_after: u64::MAX, ..small(&mem()) },
        // An eighth of this is less than any index of a partition.
        Settings { memory: 40 << 10, ..small(&mem()) },
    ] {
        let (db, _tree) = searched(settings);
        assert_eq!((db.stats().hash_indexes, db.stats().hash_index_bytes), (0, 0));
    }
}

#[test]
fn threads_of_the_background_are_woken_for_them() {
    bounded("a hash index", || {
        let settings = Settings { background_threads: 2, hash_index_after: 100, ..small(&mem()) };
        let db = open(settings).unwrap();
        let tree = db.tree("rows").unwrap();
        load(&tree, 1, "first");
        db.compact().unwrap();
        while db.stats().hash_indexes == 0 {
            check(&tree, |row| format!("first{row}"));
        }
        check(&tree, |row| format!("first{row}"));
    });
}
