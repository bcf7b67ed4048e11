//! The fast path of gets agrees with the general path and covers gets of warm data.

use crate::{
    base::Error,
    codec::Compression,
    db::{
        Db, Settings, Tree,
        handles::tests::cursor::{Random, change, plain},
        tests_common::{Clock, DIR, SECOND_NS, fault, open, small},
    },
    platform::fault_vfs::FaultVfs,
    read::fast_get,
    view::FastGet,
};
use std::{
    cell::Cell,
    collections::BTreeMap,
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

pub(in crate::db) const ROWS: u64 = 4000;

pub(in crate::db) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

thread_local! {
    static ANSWERED: Cell<u64> = const { Cell::new(0) };
}

pub(in crate::db) fn note(answer: &FastGet<'_>) {
    ANSWERED.set(ANSWERED.get() + u64::from(*answer != FastGet::Unknown));
}

/// Returns keys of all lengths that are hashed by words, and others.
pub(in crate::db) fn key(row: u64) -> Vec<u8> {
    let mut key = row.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec();
    key.extend((0..row % 24).map(|i| (row + i) as u8));
    key
}

pub(in crate::db) fn settings() -> Settings {
    let vfs = fault(&FaultVfs::new(Path::new(DIR)));
    Settings {
        compression: Compression::None,
        block_bytes: 4096,
        memory: 64 << 20,
        partition_bytes: Some(8 << 20),
        memtable_bytes: Some(4 << 20),
        ..small(&vfs)
    }
}

fn quickly(db: &Db, tree: &Tree, key: &[u8]) -> Option<Option<Vec<u8>>> {
    let engine = db.engine();
    let parts = (tree.state().id.first_key(), key);
    let whole = |prefix: [u8; 4], key: &[u8]| [&prefix, key].concat();
    let state = engine.cell.fast_state.borrow().unwrap();
    match fast_get(&state, parts, whole, || engine.readers.snapshots.visible(), || engine.storage.table.moment()) {
        FastGet::Value(value) => Some(Some(value.to_vec())),
        FastGet::Absent => Some(None),
        FastGet::Unknown => None,
    }
}

/// Looks up all rows and absent ones on both paths. Returns the number of fast answers.
fn check(db: &Db, tree: &Tree, model: &Model) -> u64 {
    let (snapshot, mut at_once) = (db.snapshot(), 0);
    for row in 0..ROWS + ROWS / 2 {
        let key = key(row);
        let expected = model.get(&key).map(Vec::as_slice);
        let before = ANSWERED.get();
        assert_eq!(tree.get(&key).unwrap().as_deref(), expected, "row {row}");
        let was_at_once = ANSWERED.get() > before;
        assert_eq!(tree.get_with(&key, |value| value.to_vec()).unwrap().as_deref(), expected, "row {row}");
        assert_eq!(snapshot.get(tree, &key).unwrap().as_deref(), expected, "row {row}");
        if let Some(answer) = quickly(db, tree, &key) {
            // The general path may have had a block checked.
            at_once += u64::from(was_at_once);
            assert_eq!(answer.as_deref(), expected, "row {row}");
        }
    }
    at_once
}

pub(in crate::db) fn loaded() -> (Db, Tree, Model) {
    loaded_with(settings())
}

pub(in crate::db) fn loaded_with(settings: Settings) -> (Db, Tree, Model) {
    loaded_of(settings, |row| vec![row as u8; 20 + row as usize % 180])
}

fn loaded_of(settings: Settings, value: impl Fn(u64) -> Vec<u8>) -> (Db, Tree, Model) {
    let db = open(settings).unwrap();
    let tree = db.tree("rows").unwrap();
    let mut model = Model::new();
    for row in 0..ROWS {
        let value = value(row);
        tree.put(key(row), &value).unwrap();
        model.insert(key(row), value);
    }
    db.compact().unwrap();
    // Gets request indexes.
    for _ in 0..2 {
        check(&db, &tree, &model);
        db.flush().unwrap();
    }
    assert!(db.stats().hash_indexes > 0);
    (db, tree, model)
}

#[expect(clippy::disallowed_methods, reason = "a test of threads")]
pub(in crate::db) fn compact_until_indexed(db: &Db) {
    db.compact().unwrap();
    for _ in 0..5000 {
        if db.stats().hash_index_bytes > 0 {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn nearly_all_gets_of_a_warm_database_are_answered_at_once() {
    let (db, tree, model) = loaded();
    let at_once = check(&db, &tree, &model);
    // Some keys overflow their buckets, and some blocks exceed a page.
    assert!(at_once > (ROWS + ROWS / 2) * 9 / 10, "{at_once}");
}

#[test]
fn none_is_answered_once_the_database_is_closed() {
    let (db, tree, _) = loaded();
    assert!(tree.get(key(1)).unwrap().is_some());
    db.close().unwrap();
    for row in 0..2 * ROWS {
        assert!(matches!(tree.get(key(row)), Err(Error::Closed)), "row {row}");
    }
}

#[test]
fn gets_of_rows_that_do_not_fill_pages_are_answered_at_once_too() {
    let long = Settings { blob_threshold: 64 << 10, memory: 128 << 20, memtable_bytes: Some(32 << 20), ..settings() };
    // Some have their own block, longer than a page.
    let value = |row: u64| vec![row as u8; if row.is_multiple_of(50) { 6000 } else { 700 + row as usize % 700 }];
    for compression in [Compression::None, Compression::Lz4] {
        let (db, tree, model) = loaded_of(Settings { compression, ..long.clone() }, value);
        let at_once = check(&db, &tree, &model);
        match compression {
            Compression::None => assert!(at_once > (ROWS + ROWS / 2) * 9 / 10, "{at_once}"),
            _ => assert_eq!(at_once, 0, "blocks that are compressed are not read in place"),
        }
    }
}

/// Opens a database whose partitions have indexed views of several runs and no unindexed runs.
fn loaded_with_views() -> (Db, Tree, Model) {
    let db = open(settings()).unwrap();
    let tree = db.tree("rows").unwrap();
    let mut model = Model::new();
    let has_views = || {
        let state = db.engine().cell.state.load_full();
        state.version.partitions.iter().all(|partition| partition.view.is_some() && partition.apart.is_empty())
    };
    let parts = (0..8u64).cycle().enumerate().take(100);
    for (number, part) in parts {
        if number >= 8 && has_views() {
            break;
        }
        for row in (0..ROWS).filter(|row| row % 8 == part) {
            let value = vec![row as u8; 20 + row as usize % 180];
            tree.put(key(row), &value).unwrap();
            model.insert(key(row), value);
        }
        db.flush().unwrap();
    }
    assert!(has_views());
    for _ in 0..2 {
        check(&db, &tree, &model);
        db.flush().unwrap();
    }
    (db, tree, model)
}

#[test]
fn runs_that_stand_apart_are_passed_over_if_their_filters_say_so() {
    // Rows are first in the only run of a partition, then in a view of several runs.
    for has_view in [false, true] {
        let (db, tree, mut model) = if has_view { loaded_with_views() } else { loaded() };
        let is_apart =
            || {
                let state = db.engine().cell.state.load_full();
                state.version.partitions.iter().all(|partition| {
                    partition.view.is_some() == has_view && partition.apart.len() > usize::from(!has_view)
                })
            };
        for round in 1..=2u8 {
            let is_touched = |row: &u64| row % 16 == u64::from(round) || row.is_multiple_of(32);
            for row in (0..ROWS).filter(is_touched) {
                if row % 3 == 0 {
                    tree.delete(key(row)).unwrap();
                    model.remove(&key(row));
                } else {
                    tree.put(key(row), [round; 30]).unwrap();
                    model.insert(key(row), vec![round; 30]);
                }
            }
            db.flush().unwrap();
            assert!(is_apart());
            let at_once = check(&db, &tree, &model);
            // Includes the runs beside used indexes; excludes false positives of their filters.
            assert!(at_once > (ROWS + ROWS / 2) * 9 / 10, "{at_once}");
            let touched = (0..ROWS).filter(is_touched);
            let reported = touched.clone().filter(|&row| quickly(&db, &tree, &key(row)).is_some()).count() as u64;
            assert!(reported > touched.count() as u64 * 9 / 10, "{reported} of the newest run");
        }
        // A range tombstone may cover any key; filters do not exclude it.
        let few: Vec<Vec<u8>> = model.keys().skip(1000).take(10).cloned().collect();
        tree.delete_range(few[0].clone()..few[9].clone()).unwrap();
        few[..9].iter().for_each(|key| drop(model.remove(key)));
        db.flush().unwrap();
        let partitions = &db.engine().cell.state.load_full().version.partitions;
        assert!(partitions.iter().all(|partition| partition.tombstones.is_some()));
        assert_eq!(check(&db, &tree, &model), 0);
    }
}

#[test]
fn memtables_are_asked_first() {
    let (db, tree, mut model) = loaded();
    for row in (0..ROWS).step_by(3) {
        tree.put(key(row), b"newer").unwrap();
        model.insert(key(row), b"newer".to_vec());
    }
    for row in (1..ROWS).step_by(3) {
        tree.delete(key(row)).unwrap();
        model.remove(&key(row));
    }
    check(&db, &tree, &model);
    db.engine().freeze();
    assert!(db.engine().cell.state.load().active.is_empty() && !db.engine().cell.state.load().frozen.is_empty());
    assert_eq!(quickly(&db, &tree, &key(3)), Some(Some(b"newer".to_vec())));
    assert_eq!(quickly(&db, &tree, &key(4)), Some(None));
    let newer = db.tree("newer").unwrap();
    newer.put(key(2), b"of another tree").unwrap();
    check(&db, &tree, &model);
    // The view still answers keys without a version in a memtable.
    db.compact().unwrap();
    for _ in 0..2 {
        check(&db, &tree, &model);
        db.flush().unwrap();
    }
    tree.put(key(2), b"newest").unwrap();
    model.insert(key(2), b"newest".to_vec());
    tree.delete(key(5)).unwrap();
    model.remove(&key(5));
    assert!(check(&db, &tree, &model) > ROWS);
    assert_eq!(quickly(&db, &tree, &key(2)), Some(Some(b"newest".to_vec())));
    assert_eq!(quickly(&db, &tree, &key(5)), Some(None));
    // The general path handles range tombstones in memtables.
    tree.delete_range(key(8)..=key(8)).unwrap();
    model.remove(&key(8));
    assert_eq!(check(&db, &tree, &model), 0);
}

#[test]
fn what_is_more_than_a_plain_value_is_left_to_the_other_way() {
    let (db, tree, mut model) = loaded();
    let add = db.merge_function("append").unwrap();
    let long = vec![7; 9000];
    tree.put_with_ttl(key(1), b"for an hour", Duration::from_secs(3600)).unwrap();
    tree.put(key(2), &long).unwrap();
    tree.merge(key(3), &add, b"and more").unwrap();
    model.insert(key(1), b"for an hour".to_vec());
    model.insert(key(2), long);
    model.get_mut(&key(3)).unwrap().extend(b"and more");
    for _ in 0..3 {
        check(&db, &tree, &model);
        assert!((1..4).all(|row| quickly(&db, &tree, &key(row)).is_none()));
        db.compact().unwrap();
        check(&db, &tree, &model);
        db.flush().unwrap();
        model.insert(key(9), b"so that there is something to compact".to_vec());
        tree.put(key(9), b"so that there is something to compact").unwrap();
        tree.put_with_ttl(key(1), b"for an hour", Duration::from_secs(3600)).unwrap();
        let more = model.get(&key(3)).unwrap().clone();
        tree.merge(key(3), &add, b"!").unwrap();
        model.insert(key(3), [more, b"!".to_vec()].concat());
    }
}

#[test]
fn what_is_to_be_checked_again_is_left_to_the_other_way() {
    let clock = Clock::new();
    let (db, tree, model) = loaded_with(Settings { runtime: clock.clone(), ..settings() });
    check(&db, &tree, &model);
    clock.advance(33 * SECOND_NS);
    let known = (0..ROWS).filter_map(|row| quickly(&db, &tree, &key(row))).count();
    assert_eq!(known, 0, "no block was checked in this time");
    check(&db, &tree, &model);
    assert!(check(&db, &tree, &model) > (ROWS + ROWS / 2) * 9 / 10);
}

/// A get sees at least the commits before it, despite concurrent flushes, merges and index builds.
#[test]
fn gets_beside_flushes_and_merges_never_see_what_is_past() {
    const KEYS: usize = 600;
    let settings = Settings { memtable_bytes: Some(32 << 10), background_threads: 2, ..settings() };
    let db = open(settings).unwrap();
    let tree = db.tree("rows").unwrap();
    let committed: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let is_over = AtomicBool::new(false);
    let answered = thread::scope(|scope| {
        let read = |seed: u64| {
            let (mut random, tree) = (seed, &tree);
            while !is_over.load(Ordering::Relaxed) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (random >> 33) as usize % KEYS;
                let least = committed[at].load(Ordering::Acquire);
                let seen = tree.get_with(key(at as u64), |value| u64::from_le_bytes(*value.first_chunk().unwrap()));
                assert!(seen.unwrap().unwrap_or(0) >= least, "key {at} of {least}");
            }
            ANSWERED.get()
        };
        let readers = [1, 2].map(|seed| scope.spawn(move || read(seed)));
        for version in 1..=60_u64 {
            for (at, committed) in (0..).zip(&committed) {
                if version == 1 || (at * 7 + version).is_multiple_of(5) {
                    tree.put(key(at), [version.to_le_bytes().as_slice(), &[7; 90]].concat()).unwrap();
                    committed.store(version, Ordering::Release);
                }
            }
            if version % 20 == 0 {
                compact_until_indexed(&db);
            }
        }
        is_over.store(true, Ordering::Relaxed);
        readers.map(|reader| reader.join().unwrap())
    });
    assert!(answered.iter().sum::<u64>() > 0, "not one get was answered at once");
}

/// Callbacks may read and write; their value stays.
#[test]
fn a_get_within_a_get_sees_what_is_there() {
    let (db, tree, model) = loaded();
    let expected = &model[&key(7)];
    let shown = tree.get_with(key(7), |value| {
        tree.put(key(7), b"another").unwrap();
        assert_eq!(tree.get(key(7)).unwrap().as_deref(), Some(&b"another"[..]));
        assert_eq!(tree.get(key(8)).unwrap().as_deref(), Some(&model[&key(8)][..]));
        db.compact().unwrap();
        assert_eq!(value, expected);
        value.len()
    });
    assert_eq!(shown.unwrap(), Some(expected.len()));
    // A panicking reader releases its value.
    let panics = AssertUnwindSafe(|| tree.get_with(key(8), |_| panic!("as a test does")));
    let panicked = catch_unwind(panics);
    assert!(panicked.is_err());
    assert!(db.engine().cell.fast_state.borrow().is_some());
}

/// A seek reads an entry for the position and returns it if it is the row or its successor.
#[test]
fn what_seeks_have_read_is_the_row_they_stand_on() {
    let db = open(settings()).unwrap();
    let tree = db.tree("rows").unwrap();
    let (mut model, mut random) = (Model::new(), Random(5, plain));
    for round in 0..9 {
        change(&db, &tree, &mut model, &mut random, round % 2 == 1);
        db.flush().unwrap();
        if round % 3 == 2 {
            db.compact().unwrap();
        }
        let mut cursor = tree.cursor();
        for _ in 0..600 {
            let mut key = random.key();
            if random.below(2) == 0 {
                key.push(b'x');
            }
            let mut expected = model.range(key.clone()..).next();
            assert_eq!(cursor.seek(&key).unwrap(), expected.is_some());
            let (steps, forward) = (random.below(3), random.below(2) == 0);
            for step in 0..=steps {
                let Some((row, value)) = expected else { break };
                assert_eq!(cursor.row().unwrap(), (&row[..], &value[..]), "{step} from {key:?}");
                if step < steps {
                    expected = match forward {
                        true => model.range((Bound::Excluded(row.clone()), Bound::Unbounded)).next(),
                        false => model.range(..row.clone()).next_back(),
                    };
                    let moved = if forward { cursor.next() } else { cursor.prev() };
                    assert_eq!(moved.unwrap(), expected.is_some());
                }
            }
        }
    }
}
