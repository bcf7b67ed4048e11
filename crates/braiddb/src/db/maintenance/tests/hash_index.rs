//! Hash indexes: built for searched views, counted, and never stale.

use crate::{
    codec::Compression,
    db::{
        Db, Settings, Tree,
        maintenance::hash_indexes,
        tests_common::{Clock, DIR, SECOND_NS, bounded, fault, mem, open, small},
    },
    platform::fault_vfs::FaultVfs,
    version::Partition,
};
use std::{path::Path, sync::Arc};

const ROWS: u32 = 3000;

fn key(row: u32) -> Vec<u8> {
    format!("row{:07}", row.wrapping_mul(7919) % 10_000_000).into_bytes()
}

fn load(tree: &Tree, step: usize, text: &str) {
    for row in (0..ROWS).step_by(step) {
        tree.put(key(row), format!("{text}{row}")).unwrap();
    }
}

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

fn in_place() -> Settings {
    Settings { compression: Compression::None, memory: 64 << 20, ..small(&fault(&FaultVfs::new(Path::new(DIR)))) }
}

#[test]
fn gets_make_indexes_and_those_that_are_used_have_heirs() {
    let (db, tree) = searched(in_place());
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
    let is_indexed =
        |partition: &Arc<Partition>| partition.main_view().is_some_and(|(view, _)| view.hash_index_bytes() > 0);
    let are_indexed = || db.engine().cell.state.load_full().version.partitions.iter().all(is_indexed);
    assert!(are_indexed(), "views came in place of others whose indexes were used");
    check(&tree, now);
    for row in (0..ROWS).step_by(5) {
        let value = old.get(&tree, key(row)).unwrap();
        assert_eq!(value.as_deref(), Some(format!("first{row}").as_bytes()));
    }
    tree.delete_range(key(0)..).unwrap();
    assert_eq!(tree.get(key(2)).unwrap(), None);
}

#[test]
fn runs_that_come_beside_indexes_that_are_used_have_one() {
    let (db, tree) = searched(in_place());
    check(&tree, |row| format!("first{row}"));
    let indexed = || {
        let views = |partition: &Arc<Partition>| {
            partition.apart.iter().filter_map(|handle| handle.opened_view().cloned()).collect::<Vec<_>>()
        };
        let views: Vec<_> = db.engine().cell.state.load_full().version.partitions.iter().flat_map(views).collect();
        views.iter().filter(|view| view.hash_index_bytes() > 0).count()
    };
    let before = (indexed(), db.stats().hash_indexes);
    (0..ROWS).step_by(500).for_each(|row| assert!(tree.put(key(row), "second").unwrap() > 0));
    db.flush().unwrap();
    assert!(indexed() > before.0 && db.stats().hash_indexes > before.1, "without a get: {before:?}, {}", indexed());
    let now = |row: u32| if row.is_multiple_of(500) { "second".to_owned() } else { format!("first{row}") };
    check(&tree, now);
}

#[test]
fn an_index_that_nobody_used_has_no_heir() {
    let (db, tree) = searched(in_place());
    check(&tree, |row| format!("first{row}"));
    for (turn, is_used) in [(0, true), (1, false), (2, false)] {
        load(&tree, 1, &format!("turn {turn}, "));
        db.compact().unwrap();
        assert_eq!(db.stats().hash_index_bytes > 0, is_used, "turn {turn}");
    }
    for _ in 0..2 {
        check(&tree, |row| format!("turn 2, {row}"));
        db.flush().unwrap();
    }
    assert!(db.stats().hash_index_bytes > 0);
}

#[test]
fn there_are_none_where_they_are_not_wanted() {
    let (db, _tree) = searched(Settings { hash_index_after: u64::MAX, ..small(&mem()) });
    assert_eq!((db.stats().hash_indexes, db.stats().hash_index_bytes), (0, 0));
}

#[test]
fn all_of_them_take_a_quarter_of_the_memory_at_most() {
    // The cache holds all rows, but their indexes would exceed a quarter of the memory.
    let memory = 104 << 10;
    let db = open(Settings { memory, memtable_bytes: Some(4 << 10), ..small(&mem()) }).unwrap();
    let tree = db.tree("rows").unwrap();
    for row in 0..ROWS {
        tree.put((row as u16).to_be_bytes(), []).unwrap();
    }
    db.compact().unwrap();
    for _ in 0..4 {
        for row in 0..ROWS {
            assert!(tree.get((row as u16).to_be_bytes()).unwrap().is_some());
        }
        db.flush().unwrap();
    }
    let (bytes, bytes_max) = (db.stats().hash_index_bytes, memory as u64 / 4);
    assert!(bytes > 0 && bytes <= bytes_max, "{bytes} bytes of {bytes_max}");
}

#[test]
fn there_are_none_where_the_cache_does_not_hold_the_data() {
    // The indexes would fit, but the rows take twice the cache.
    let db = open(Settings { memory: 300 << 10, ..small(&mem()) }).unwrap();
    let tree = db.tree("rows").unwrap();
    for row in 0..ROWS {
        tree.put(key(row), [row as u8; 200]).unwrap();
    }
    db.compact().unwrap();
    for _ in 0..2 {
        for row in 0..ROWS {
            assert_eq!(tree.get(key(row)).unwrap().as_deref(), Some(&[row as u8; 200][..]));
        }
        db.flush().unwrap();
    }
    assert_eq!(db.stats().hash_indexes, 0);
}

#[test]
fn what_the_system_has_in_memory_need_not_have_been_read() {
    for (compression, is_indexed) in [(Compression::None, true), (Compression::Lz4, false)] {
        let vfs = fault(&FaultVfs::new(Path::new(DIR)));
        let settings = Settings { compression, memory: 64 << 20, ..small(&vfs) };
        let db = open(settings.clone()).unwrap();
        load(&db.tree("rows").unwrap(), 1, "first");
        db.compact().unwrap();
        drop(db);
        // Without recent writes, read one row repeatedly.
        let db = open(settings).unwrap();
        let tree = db.tree("rows").unwrap();
        for _ in 0..ROWS {
            assert_eq!(tree.get(key(1)).unwrap().as_deref(), Some(&b"first1"[..]));
        }
        db.flush().unwrap();
        assert_eq!(db.stats().hash_indexes > 0, is_indexed, "{compression:?}");
        check(&tree, |row| format!("first{row}"));
    }
}

#[test]
fn who_was_refused_one_waits_longer_each_time() {
    // Rows take twice the cache, which prevents an index.
    let db = open(Settings { memory: 300 << 10, partition_bytes: Some(4 << 20), ..small(&mem()) }).unwrap();
    let tree = db.tree("rows").unwrap();
    for row in 0..ROWS {
        tree.put(key(row), [row as u8; 200]).unwrap();
    }
    db.compact().unwrap();
    let partition = &db.engine().cell.state.load_full().version.partitions[0];
    let (view, _) = partition.main_view().unwrap();
    let waits: Vec<u64> = (0..8)
        .map(|_| {
            let mut gets = 0;
            while !view.wants_hash_index() {
                tree.get(key(gets as u32 % ROWS)).unwrap();
                gets += 1;
            }
            hash_indexes::build_searched(db.engine());
            assert_eq!(db.stats().hash_indexes, 0);
            gets
        })
        .collect();
    assert!((1..6).all(|i| waits[i] == 2 * waits[i - 1]) && waits[7] == waits[5], "{waits:?}");
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

fn rest(db: &Db) -> usize {
    db.engine().maintenance.work.lock().idle = true;
    let made =
        std::iter::repeat_with(|| hash_indexes::build_at_rest(db.engine())).take_while(|&is_made| is_made).count();
    db.engine().maintenance.work.lock().idle = false;
    assert!(!hash_indexes::build_at_rest(db.engine()), "only at rest");
    made
}

fn unread(settings: Settings) -> (Db, Tree) {
    let db = open(Settings { partition_bytes: Some(4 << 20), hash_index_after: 1 << 40, ..settings }).unwrap();
    let tree = db.tree("rows").unwrap();
    load(&tree, 1, "first");
    db.compact().unwrap();
    (db, tree)
}

#[test]
fn at_rest_views_have_indexes_that_nobody_asked_for_once() {
    let (db, tree) = unread(in_place());
    assert_eq!((rest(&db), rest(&db)), (1, 0));
    assert!(db.stats().hash_index_bytes >= u64::from(ROWS) * 5);
    // The index is unused, so the next view gets none at idle time.
    load(&tree, 1, "second");
    db.flush().unwrap();
    assert_eq!((rest(&db), db.stats().hash_index_bytes), (0, 0));
    // With twice as many rows, the partition gets another.
    for row in 0..2 * ROWS {
        tree.put(format!("more{row}"), "more").unwrap();
    }
    db.compact().unwrap();
    assert_eq!(rest(&db), 1);
    check(&tree, |row| format!("second{row}"));
    // A used index is inherited at once.
    load(&tree, 1000, "third");
    db.compact().unwrap();
    assert!(db.stats().hash_index_bytes > 0);
    check(&tree, |row| if row.is_multiple_of(1000) { format!("third{row}") } else { format!("second{row}") });
}

#[test]
fn at_rest_there_are_none_where_they_cost_too_much() {
    let none = [
        ("not wanted", Settings { hash_index_after: u64::MAX, ..in_place() }),
        ("blocks are in the cache", Settings { compression: Compression::Lz4, ..in_place() }),
        ("not enough memory", Settings { memory: 136 << 10, memtable_bytes: Some(4 << 10), ..in_place() }),
    ];
    for (why, settings) in none {
        let hash_index_after = settings.hash_index_after.max(1 << 40);
        let db = open(Settings { partition_bytes: Some(4 << 20), hash_index_after, ..settings }).unwrap();
        let tree = db.tree("rows").unwrap();
        load(&tree, 1, "first");
        db.compact().unwrap();
        assert_eq!((rest(&db), db.stats().hash_index_bytes), (0, 0), "{why}");
        check(&tree, |row| format!("first{row}"));
    }
    // The index fits only from some memory size on.
    let made: Vec<_> = [72, 96, 136, 192, 256, 512]
        .map(|kilobytes| {
            let (db, _tree) = unread(Settings { memory: kilobytes << 10, memtable_bytes: Some(4 << 10), ..in_place() });
            let (made, bytes) = (rest(&db), db.stats().hash_index_bytes);
            assert!(bytes <= kilobytes as u64 * 1024 / 8, "{bytes} of {kilobytes} KiB");
            assert_eq!(made > 0, bytes > 0);
            made
        })
        .to_vec();
    assert!(made.is_sorted() && made.first() == Some(&0) && made.last() == Some(&1), "{made:?}");
}

#[test]
fn at_rest_there_are_none_beside_merges_but_after_those_that_a_user_asks_for() {
    let (db, _tree) = unread(in_place());
    db.engine().maintenance.work.lock().busy.insert(17);
    assert_eq!(rest(&db), 0, "its view may be about to go");
    db.engine().maintenance.work.lock().busy.clear();
    assert_eq!(rest(&db), 1);
    load(&db.tree("rows").unwrap(), 1, "second");
    db.compact().unwrap();
    assert_eq!((db.stats().hash_index_bytes, rest(&db)), (0, 1));
}

#[test]
fn at_rest_it_is_tried_again_after_pauses_that_grow() {
    let clock = Clock::new();
    let (db, _tree) = unread(Settings { runtime: clock.clone(), ..in_place() });
    // No memory is available for a while.
    let taken = db.engine().settings.memory;
    db.engine().reserve(taken, 0);
    assert_eq!(rest(&db), 0);
    clock.advance(10 * SECOND_NS);
    assert_eq!(rest(&db), 0);
    db.engine().reserve(0, taken);
    for (seconds, made) in [(0, 0), (19, 0), (1, 1)] {
        clock.advance(seconds * SECOND_NS);
        assert_eq!(rest(&db), made, "{seconds} s later");
    }
}

#[test]
fn at_rest_the_background_makes_them() {
    bounded("a hash index", || {
        let (db, tree) = unread(Settings { background_threads: 2, ..in_place() });
        while db.stats().hash_index_bytes == 0 {
            std::thread::yield_now();
        }
        check(&tree, |row| format!("first{row}"));
    });
}
