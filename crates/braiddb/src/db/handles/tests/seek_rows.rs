//! Seeks that decode rows ahead return the same rows as single steps.

use super::cursor::{Model, Random, change, check_row, plain};
use crate::{
    codec::Compression,
    db::{
        Cursor, Db, Settings, Tree,
        read::tests::fast_path as tests_quick,
        tests_common::{mem, open, small},
    },
};
use std::{
    ops::ControlFlow,
    panic::{self, AssertUnwindSafe},
    time::Duration,
};

fn in_place() -> Settings {
    tests_quick::settings()
}

/// Reads through the cache, in many small partitions.
fn cached() -> Settings {
    small(&mem())
}

fn loaded(settings: Settings, rows: u64) -> (Db, Tree, Model) {
    let db = open(settings).unwrap();
    let (before, tree, after) = (db.tree("a").unwrap(), db.tree("b").unwrap(), db.tree("c").unwrap());
    before.put(b"key00000", b"before").unwrap();
    after.put(b"key00000", b"after").unwrap();
    let mut model = Model::new();
    for i in 0..rows {
        // Permuted, so that each run covers the whole key range.
        let (key, value) = (plain(i * 7 % rows * 2), vec![i as u8; 20 + i as usize % 90]);
        tree.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    db.compact().unwrap();
    (db, tree, model)
}

/// Returns the number of seeks that decoded rows ahead.
fn range_over(cursor: &mut Cursor, model: &Model, random: &mut Random, seeks: usize) -> usize {
    let rows: Vec<_> = model.iter().collect();
    let mut in_batch = 0;
    for _ in 0..seeks {
        let key = random.key();
        let mut at = rows.partition_point(|(k, _)| **k < key) + 1;
        let mut is_there = cursor.seek(&key).unwrap();
        in_batch += usize::from(is_there && cursor.is_in_batch());
        check_row(cursor, (is_there, at), &rows);
        let steps = [0, 1, 3, 40, 90][random.below(5) as usize];
        if random.below(2) == 0 {
            visit(cursor, true, steps, &mut at, &rows);
        } else {
            for _ in 0..steps {
                (is_there, at) = (cursor.next().unwrap(), (at + 1).min(rows.len() + 1));
                check_row(cursor, (is_there, at), &rows);
            }
        }
        let steps = if random.below(3) == 0 { random.below(60) as usize } else { 0 };
        if random.below(2) == 0 {
            visit(cursor, false, steps, &mut at, &rows);
        } else {
            for _ in 0..steps {
                (is_there, at) = (cursor.prev().unwrap(), at.saturating_sub(1));
                check_row(cursor, (is_there, at), &rows);
            }
        }
    }
    in_batch
}

/// Visits `steps` rows from `at`, in two calls.
fn visit(cursor: &mut Cursor, forward: bool, steps: usize, at: &mut usize, rows: &[(&Vec<u8>, &Vec<u8>)]) {
    for steps in [steps / 3, steps - steps / 3] {
        let is_on_row = (1..=rows.len()).contains(at);
        let first = match (is_on_row, forward) {
            (true, _) => *at,
            (false, true) => *at + 1,
            (false, false) => at.saturating_sub(1),
        };
        let all =
            if forward { rows.get(first.max(1) - 1..).unwrap_or_default() } else { &rows[..first.min(rows.len())] };
        let (mut seen, mut shown) = (0, Vec::new());
        let show = |key: &[u8], value: &[u8]| {
            shown.push((key.to_vec(), value.to_vec()));
            seen += 1;
            if seen > steps { ControlFlow::Break(seen) } else { ControlFlow::Continue(()) }
        };
        let flow = if forward { cursor.try_for_each(show) } else { cursor.try_for_each_back(show) }.unwrap();
        let expected: Vec<_> = if forward { all.iter().collect() } else { all.iter().rev().collect() };
        let is_stopped = steps < expected.len();
        assert_eq!(flow.is_break(), is_stopped);
        let expected = &expected[..expected.len().min(steps + 1)];
        assert!(shown.iter().map(|(k, v)| (k, v)).eq(expected.iter().map(|row| (row.0, row.1))));
        *at = match (is_stopped, forward) {
            (true, true) => first + steps,
            (true, false) => first - steps,
            (false, true) => rows.len() + 1,
            (false, false) => 0,
        };
        check_row(cursor, (is_stopped, *at), rows);
    }
}

#[test]
fn rows_are_shown_from_the_first_one_and_from_the_last() {
    let (_db, tree, model) = loaded(in_place(), 2_000);
    let rows: Vec<_> = model.iter().collect();
    visit(&mut tree.cursor(), true, 300, &mut 0, &rows);
    visit(&mut tree.cursor(), false, 300, &mut (rows.len() + 1), &rows);
    visit(&mut tree.cursor(), true, 3_000, &mut 0, &rows);
    let flow = tree.cursor().try_for_each(|key, _| ControlFlow::Break(key.to_vec())).unwrap();
    assert_eq!(flow, ControlFlow::Break(rows[0].0.clone()));
    let no_row = |_: &[u8], _: &[u8]| -> ControlFlow<()> { panic!("there is none") };
    let (db, empty) = (Db::in_memory().unwrap(), "empty");
    assert!(db.tree(empty).unwrap().cursor().try_for_each(no_row).unwrap().is_continue());
}

#[test]
fn a_cursor_stands_on_a_row_shown_lately_after_a_panic() {
    for settings in [in_place(), cached()] {
        let (_db, tree, model) = loaded(settings, 2_000);
        let rows: Vec<_> = model.iter().collect();
        let mut cursor = tree.cursor();
        for panics_at in (0_usize..600).step_by(7) {
            let mut shown = 0;
            let shows = || {
                cursor.seek_first().unwrap();
                cursor.try_for_each(|_, _| {
                    assert!(shown < panics_at, "on purpose");
                    shown += 1;
                    ControlFlow::<()>::Continue(())
                })
            };
            assert!(panic::catch_unwind(AssertUnwindSafe(shows)).is_err());
            let key = cursor.key().to_vec();
            let mut at = rows.partition_point(|(k, _)| **k <= key);
            assert!((panics_at.saturating_sub(32) + 1..=panics_at + 1).contains(&at), "{at} after {panics_at}");
            visit(&mut cursor, true, 50, &mut at, &rows);
            cursor.restart().unwrap();
            check_row(&cursor, (true, at), &rows);
        }
    }
}

#[test]
fn rows_that_were_shown_count_as_steps() {
    let (_db, tree, model) = loaded(in_place(), 2_000);
    let rows: Vec<_> = model.iter().collect();
    let (mut cursor, mut at) = (tree.cursor(), 501);
    assert!(cursor.seek(rows[500].0).unwrap());
    for (forward, steps) in [(true, 77), (false, 20), (true, 300), (false, 40)] {
        visit(&mut cursor, forward, steps, &mut at, &rows);
        cursor.restart().unwrap();
        check_row(&cursor, (true, at), &rows);
    }
}

fn key(number: u64) -> Vec<u8> {
    plain(number * 5)
}

#[test]
fn who_went_on_before_finds_rows_decoded_with_the_first() {
    for settings in [in_place(), cached()] {
        let (_db, tree, model) = loaded(settings, 5_000);
        let mut cursor = tree.cursor();
        let random = &mut Random(1, key);
        // Some seeks follow a short scan or a reversal, or reach the end.
        let in_batch = range_over(&mut cursor, &model, random, 600);
        assert!((300..540).contains(&in_batch), "{in_batch} of 600");
    }
}

#[test]
fn a_seek_of_one_row_decodes_no_others() {
    let (_db, tree, model) = loaded(in_place(), 2_000);
    let mut cursor = tree.cursor();
    for (key, value) in &model {
        assert!(cursor.seek(key).unwrap() && !cursor.is_in_batch());
        assert_eq!(cursor.row().unwrap(), (key.as_slice(), value.as_slice()));
    }
}

#[test]
fn rows_of_the_next_tree_end_a_range() {
    for settings in [in_place(), cached()] {
        let (_db, tree, model) = loaded(settings, 1_000);
        let (last, mut cursor) = (model.keys().next_back().unwrap(), tree.cursor());
        for _ in 0..3 {
            assert!(cursor.seek(model.keys().nth(900).unwrap()).unwrap());
            assert_eq!((1..).find(|_| !cursor.next().unwrap()), Some(100));
            assert!(cursor.seek(last).unwrap() && cursor.key() == last.as_slice());
            assert!(!cursor.next().unwrap() && !cursor.is_on_row());
            assert!(cursor.prev().unwrap() && cursor.key() == last.as_slice());
            assert!(!cursor.seek([last.as_slice(), b"x"].concat()).unwrap() && !cursor.is_on_row());
            assert!(cursor.prev().unwrap() && cursor.key() == last.as_slice());
        }
    }
}

#[test]
fn ranges_agree_with_a_model_whatever_the_rows_are() {
    for (seed, settings) in (0..).zip([in_place, cached, in_place, cached]) {
        let random = &mut Random(seed, plain);
        let db = open(settings()).unwrap();
        let tree = db.tree("t").unwrap();
        let (mut model, mut kept) = (Model::new(), tree.cursor());
        let mut refreshed = tree.cursor();
        let mut of_kept = model.clone();
        for round in 0..25 {
            change(&db, &tree, &mut model, random, seed % 2 == 1);
            for _ in 0..random.below(4) {
                let key = random.key();
                tree.put_with_ttl(&key, b"for an hour", Duration::from_secs(3600)).unwrap();
                model.insert(key, b"for an hour".to_vec());
            }
            if round % 3 == 0 {
                db.compact().unwrap();
            }
            refreshed.refresh();
            range_over(&mut refreshed, &model, random, 40);
            range_over(&mut tree.cursor(), &model, random, 10);
            range_over(&mut kept, &of_kept, random, 10);
            if round % 6 == 0 {
                (kept, of_kept) = (tree.cursor(), model.clone());
            }
        }
    }
}

#[test]
fn rows_of_memtables_have_their_places_among_those_decoded() {
    for settings in [in_place(), cached()] {
        let (db, tree, mut model) = loaded(Settings { memtable_bytes: Some(1 << 20), ..settings }, 5_000);
        for i in (0..10_000).step_by(113) {
            if i % 4 == 3 {
                tree.delete(plain(i)).unwrap();
                model.remove(&plain(i));
            } else {
                tree.put(plain(i), b"of a memtable").unwrap();
                model.insert(plain(i), b"of a memtable".to_vec());
            }
        }
        for frozen in [false, true] {
            if frozen {
                db.engine().freeze();
            }
            assert!(db.engine().cell.state.load().frozen.is_empty() != frozen);
            let in_batch = range_over(&mut tree.cursor(), &model, &mut Random(5, key), 600);
            assert!((100..540).contains(&in_batch), "{in_batch} of 600");
        }
        let (rows, mut cursor) = (model.iter().collect::<Vec<_>>(), tree.cursor());
        for (i, (key, _)) in rows.iter().enumerate() {
            let mut is_there = cursor.seek(key).unwrap();
            for at in i + 1..i + 4 {
                check_row(&cursor, (is_there, at.min(rows.len() + 1)), &rows);
                is_there = cursor.next().unwrap();
            }
        }
    }
}

/// Decoded rows stay valid past a few memtable rows; many force a full merge.
#[test]
fn rows_decoded_go_on_after_one_of_a_memtable() {
    let (db, tree, mut model) = loaded(Settings { memtable_bytes: Some(1 << 20), ..in_place() }, 5_000);
    let put = |model: &mut Model, i: u64| {
        tree.put(plain(i), b"of a memtable").unwrap();
        model.insert(plain(i), b"of a memtable".to_vec());
    };
    [1_011, 3_020].into_iter().chain(5_000..5_009).for_each(|i| put(&mut model, i));
    let rows: Vec<_> = model.iter().collect();
    // Start, last memtable row, and whether a decoded row follows.
    for (from, of_memtable, is_met) in [(1_000, 1_011, true), (3_000, 3_020, true), (4_990, 5_008, false)] {
        let mut cursor = tree.cursor();
        let mut at = rows.partition_point(|(k, _)| **k < plain(from)) + 1;
        for _ in 0..2 {
            assert!(cursor.seek(plain(from)).unwrap());
            (0..30).for_each(|_| assert!(cursor.next().unwrap()));
        }
        assert!(cursor.seek(plain(from)).unwrap());
        assert_eq!(cursor.is_in_batch(), is_met);
        while cursor.key() != plain(of_memtable).as_slice() {
            assert!(cursor.next().unwrap());
            at += 1;
        }
        check_row(&cursor, (true, at), &rows);
        assert!(!cursor.is_in_batch());
        assert!(cursor.next().unwrap());
        check_row(&cursor, (true, at + 1), &rows);
        assert_eq!(cursor.is_in_batch(), is_met);
        for back in (1..12).map(|back| at + 1 - back) {
            let is_there = cursor.prev().unwrap();
            check_row(&cursor, (is_there, back), &rows);
        }
        for forward in (1..30).map(|forward| at - 10 + forward) {
            let is_there = cursor.next().unwrap();
            check_row(&cursor, (is_there, forward), &rows);
        }
    }
    // A scan of the pool would remember that the one before met many rows of a memtable.
    let fresh_cursor = || {
        while db.engine().cell.resting.take(0, tree.state().id).is_some() {}
        tree.cursor()
    };
    let mut cursor = fresh_cursor();
    assert!(cursor.seek(plain(2_000)).unwrap());
    (0..20).for_each(|_| assert!(cursor.next().unwrap()));
    assert!(cursor.seek(plain(1_011)).unwrap() && cursor.key() == plain(1_011).as_slice() && !cursor.is_in_batch());
    assert!(cursor.next().unwrap() && cursor.key() == plain(1_012).as_slice() && cursor.is_in_batch());
    drop(cursor);
    let mut cursor = fresh_cursor();
    let mut at = rows.partition_point(|(k, _)| **k < plain(1_040));
    assert!(cursor.seek_before(plain(1_040)).unwrap());
    while cursor.key() != plain(1_011).as_slice() {
        assert!(cursor.prev().unwrap());
        at -= 1;
    }
    assert!(!cursor.is_in_batch() && cursor.prev().unwrap() && cursor.is_in_batch());
    check_row(&cursor, (true, at - 1), &rows);
}

#[test]
fn older_snapshots_see_their_own_rows() {
    for settings in [in_place(), cached()] {
        let (db, tree, model) = loaded(settings, 2_000);
        let snapshot = db.snapshot();
        for (i, key) in model.keys().enumerate() {
            if i % 3 == 0 {
                tree.delete(key).unwrap()
            } else {
                tree.put(key, b"newer").unwrap()
            };
        }
        db.compact().unwrap();
        let random = &mut Random(3, key);
        assert_eq!(range_over(&mut snapshot.cursor(&tree), &model, random, 100), 0);
        let rows = |(i, key): (usize, &Vec<u8>)| (i % 3 != 0).then(|| (key.clone(), b"newer".to_vec()));
        let model = model.keys().enumerate().filter_map(rows).collect();
        range_over(&mut tree.cursor(), &model, random, 100);
    }
}

/// A memtable with only range tombstones is no scan source.
#[test]
fn range_tombstones_in_a_memtable_delete_rows() {
    let (_db, tree, mut model) = loaded(in_place(), 2_000);
    let random = &mut Random(4, key);
    for i in 0..8 {
        let (start, end) = (plain(i * 500), plain(i * 500 + 170));
        tree.delete_range(start.as_slice()..end.as_slice()).unwrap();
        model.retain(|key, _| *key < start || *key >= end);
        range_over(&mut tree.cursor(), &model, random, 60);
    }
}

/// Seek costs trigger merges of unindexed runs.
#[test]
fn seeks_are_counted_once_whichever_way_they_go() {
    let db = open(Settings { memtable_bytes: Some(1 << 20), partition_bytes: Some(1 << 30), ..cached() }).unwrap();
    let tree = db.tree("t").unwrap();
    for i in 0..3_000 {
        tree.put(plain(i), b"there").unwrap();
    }
    db.flush().unwrap();
    let reads = || {
        let state = db.engine().cell.state.load();
        let [partition] = &state.version.partitions[..] else { panic!("there is one partition") };
        let [only] = &partition.apart[..] else { panic!("there is one run that stands apart") };
        assert!(partition.view.is_none());
        only.reads()
    };
    let mut counts = Vec::new();
    for (steps, is_backward) in [(0, false), (20, false), (0, true)] {
        let (mut cursor, before, mut in_batch) = (tree.cursor(), reads(), 0);
        for i in 1..2_900 {
            let there = if is_backward { cursor.seek_before(plain(i)) } else { cursor.seek(plain(i)) };
            assert!(there.unwrap());
            in_batch += u32::from(cursor.is_in_batch());
            (0..steps).for_each(|_| assert!(cursor.next().unwrap()));
        }
        assert_eq!(in_batch > 2_000, steps > 0, "{in_batch}");
        counts.push(reads() - before);
    }
    assert!(counts[0] > 0 && counts.iter().all(|count| *count == counts[0]), "{counts:?}");
}

#[test]
fn a_tombstone_is_not_taken_for_a_row() {
    let db = open(Settings { compression: Compression::None, ..cached() }).unwrap();
    let tree = db.tree("t").unwrap();
    for i in 0..100 {
        if i % 3 == 0 {
            tree.delete(plain(i)).unwrap()
        } else {
            tree.put(plain(i), b"there").unwrap()
        };
    }
    db.flush().unwrap();
    let mut cursor = tree.cursor();
    for i in 0..99 {
        for steps in [0, 1, 20] {
            let first = if i % 3 == 0 { i + 1 } else { i };
            assert!(cursor.seek(plain(i)).unwrap());
            assert_eq!(cursor.key(), plain(first));
            (0..steps).for_each(|_| assert!(cursor.next().is_ok()));
        }
    }
}

/// The next partition may have newer versions of rows past a partition's end.
#[test]
fn a_shared_run_is_not_read_past_the_end_of_a_partition() {
    for compression in [Compression::None, Compression::Lz4] {
        let db = open(Settings { compression, ..cached() }).unwrap();
        let tree = db.tree("t").unwrap();
        let key = |i: u32| format!("{i:06}").into_bytes();
        let internal = |i: u32| [&tree.state().id.first_key()[..], &key(i)].concat();
        for i in 0..6_000 {
            tree.put(key(i), format!("{i:050}")).unwrap();
        }
        db.compact().unwrap();
        let starts = |db: &Db| {
            let state = db.engine().cell.state.load();
            state.version.partitions.iter().map(|p| p.layout.start.clone()).collect::<Vec<_>>()
        };
        let bounds = starts(&db);
        assert!(bounds.len() > 4, "{}", bounds.len());
        let of = |partition: usize| {
            (0..6_000)
                .filter(|&i| (&bounds[partition]..&bounds[partition + 1]).contains(&&internal(i)))
                .collect::<Vec<_>>()
        };
        let (first, second) = (of(1), of(2));
        for &i in first.iter().chain(&second) {
            tree.delete(key(i)).unwrap();
        }
        db.compact().unwrap();
        assert_eq!(starts(&db), bounds, "they stay");
        for &i in first[first.len() - 3..].iter().chain(&second[..3]) {
            tree.put(key(i), b"old").unwrap();
        }
        db.flush().unwrap();
        for &i in &second[..3] {
            tree.put(key(i), b"new").unwrap();
        }
        db.flush().unwrap();
        {
            let state = db.engine().cell.state.load();
            let [alone, next] = &state.version.partitions[1..3] else { panic!("two") };
            assert!(alone.view.is_none() && alone.apart.len() == 1 && alone.tombstones.is_none());
            assert!(Some(&alone.apart[0].run().meta().largest) >= alone.layout.end.as_ref(), "it is shared");
            assert_eq!(next.apart.len(), 2);
        }
        let mut cursor = tree.cursor();
        let past = [&key(first[first.len() - 1])[..], b"x"].concat();
        for steps in [0, 0, 5, 0, 40, 40, 3, 0] {
            assert!(cursor.seek(&past).unwrap());
            assert_eq!(cursor.row().unwrap(), (&key(second[0])[..], &b"new"[..]), "past the last of its partition");
            assert!(cursor.seek(key(first[first.len() - 3])).unwrap());
            let rows =
                first[first.len() - 3..].iter().map(|i| (i, "old")).chain(second[..3].iter().map(|i| (i, "new")));
            for (at, (&i, value)) in rows.enumerate().take(steps + 1) {
                assert_eq!(cursor.row().unwrap(), (&key(i)[..], value.as_bytes()), "row {at}");
                if at < steps {
                    assert!(cursor.next().unwrap());
                }
            }
            (6..steps).for_each(|_| assert!(cursor.next().unwrap()));
        }
    }
}

/// Short seeks after one long scan must not read ahead.
#[test]
fn who_goes_no_further_any_more_has_no_rows_decoded() {
    for settings in [in_place(), cached()] {
        let (_db, tree, _model) = loaded(settings, 2_000);
        let mut cursor = tree.cursor();
        assert!(cursor.seek(plain(0)).unwrap());
        (0..20).for_each(|_| assert!(cursor.next().unwrap()));
        let in_batch: Vec<_> = (0..8)
            .map(|i| {
                assert!(cursor.seek(plain(i * 100)).unwrap());
                cursor.is_in_batch()
            })
            .collect();
        assert_eq!(in_batch, [true, false, false, false, false, false, false, false]);
    }
}

#[test]
fn going_over_to_another_state_changes_no_row() {
    for settings in [in_place(), cached()] {
        let (db, tree, model) = loaded(settings, 4_000);
        let rows: Vec<_> = model.iter().collect();
        let mut cursor = tree.cursor();
        for from in [0, 100, 1_000] {
            assert!(cursor.seek(rows[from].0).unwrap());
            let mut at = from + 1;
            for step in 0..2_900 {
                if step % 400 == 13 {
                    tree.put(rows[at].0, b"newer than the cursor").unwrap();
                    tree.delete(rows[at + 1].0).unwrap();
                    db.compact().unwrap();
                }
                check_row(&cursor, (true, at), &rows);
                let back = step % 1_100 > 1_050;
                assert!(if back { cursor.prev() } else { cursor.next() }.unwrap());
                at = if back { at - 1 } else { at + 1 };
            }
        }
    }
}
