//! Unindexed runs that readers search often are folded sooner.

use crate::{
    db::{
        Db, Durability, Settings,
        tests_common::{DIR, fault, mem, open, small},
    },
    platform::{Vfs, fault_vfs::FaultVfs},
};
use std::{path::Path, sync::Arc};

const ROWS: u32 = 500;

fn key(row: u32) -> Vec<u8> {
    format!("row{row:07}").into_bytes()
}

fn with_a_new_run(files: &Arc<dyn Vfs>) -> Db {
    let db = open(small(files)).unwrap();
    let tree = db.tree("rows").unwrap();
    for row in 0..ROWS {
        tree.put(key(row), [7; 20]).unwrap();
    }
    db.compact().unwrap();
    for row in (0..ROWS).step_by(3) {
        tree.put(key(row), [8; 20]).unwrap();
    }
    db.flush().unwrap();
    db
}

#[test]
fn loose_runs_are_folded_once_reading_them_has_cost_as_much() {
    for (gets, seeks, is_folded) in [(0, 0, false), (4000, 500, false), (60_000, 0, true), (0, 15_000, true)] {
        let db = with_a_new_run(&mem());
        let tree = db.tree("rows").unwrap();
        let loose = || db.stats().partitions.iter().map(|p| p.loose.len()).sum::<usize>();
        assert_eq!(loose(), 2);
        for row in 0..gets {
            tree.get(key(row % ROWS)).unwrap().unwrap();
        }
        let mut cursor = tree.cursor();
        for row in 0..seeks {
            assert!(cursor.seek(key(row * 7 % ROWS)).unwrap());
        }
        drop(cursor);
        tree.put("another", "value").unwrap();
        assert_eq!(loose() == 0, is_folded, "after {gets} gets and {seeks} seeks");
        assert_eq!(tree.get(key(3)).unwrap().as_deref(), Some(&[8; 20][..]));
        assert_eq!(tree.get(key(4)).unwrap().as_deref(), Some(&[7; 20][..]));
    }
}

#[test]
fn gets_of_keys_that_a_loose_run_lacks_do_not_ask_it_in_the_process_that_wrote_it() {
    let files = mem();
    let mut db = with_a_new_run(&files);
    for is_reopened in [false, true] {
        if is_reopened {
            drop(db);
            db = open(small(&files)).unwrap();
        }
        let tree = db.tree("rows").unwrap();
        for row in (0..5000).filter(|row| !(row % ROWS).is_multiple_of(3)) {
            assert_eq!(tree.get(key(row % ROWS)).unwrap().as_deref(), Some(&[7; 20][..]));
        }
        assert_eq!(tree.get(key(3)).unwrap().as_deref(), Some(&[8; 20][..]));
        let state = db.engine().cell.state.load();
        let [newest, oldest] = &state.version.partitions[0].apart[..] else { panic!("two runs") };
        assert!(newest.reads() > 0 || !is_reopened, "a run that was there before has no filter");
        assert!(newest.reads() * 20 < oldest.reads() || is_reopened, "{} reads", newest.reads());
    }
}

/// Returns the number of unindexed runs at the first fold, for runs of eight rows; `place` maps run
/// and row to a key.
fn loose_when_folded(loaded: u32, place: impl Fn(u32, u32) -> u32) -> usize {
    let db = open(Settings { partition_bytes: Some(1 << 20), ..small(&mem()) }).unwrap();
    let tree = db.tree("rows").unwrap();
    let put = |row: u32| {
        tree.put(key(row), [8; 20]).unwrap();
    };
    (0..loaded).for_each(put);
    db.compact().unwrap();
    let folds = db.stats().folds;
    for run in 0..40 {
        let before = db.stats().partitions[0].loose.len();
        (0..8).for_each(|row| put(place(run, row)));
        db.flush().unwrap();
        if db.stats().folds > folds {
            assert_eq!(db.stats().partitions[0].loose.len(), 0);
            let rows = (0..=run).flat_map(|run| (0..8).map(move |row| (run, row)));
            let rows: std::collections::BTreeSet<u32> =
                rows.map(|(run, row)| place(run, row)).chain(0..loaded).collect();
            assert_eq!(tree.iter().count(), rows.len());
            return before + 1;
        }
    }
    panic!("never folded: {:?}", db.stats().partitions);
}

#[test]
fn runs_that_only_add_keys_at_an_end_are_folded_later() {
    // The limit of `small` is four. The loaded run also counts until the first fold.
    assert_eq!(loose_when_folded(0, |run, row| 8 * run + row), 10, "ascending");
    assert_eq!(loose_when_folded(64, |run, row| 64 + 8 * run + row), 10, "after what was loaded");
    assert_eq!(loose_when_folded(0, |run, row| 40 * row + run), 4, "each over all others");
    assert_eq!(loose_when_folded(640, |run, row| 8 * run + row), 4, "in order, over what was loaded");
}

/// A lost view would be rebuilt unnoticed; a crash must not cost that.
#[test]
fn views_survive_a_crash_as_they_were_noted() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let settings = Settings { loose_runs: 2, durability: Durability::Sync, ..small(&fault(&vfs)) };
    let db = open(settings.clone()).unwrap();
    let tree = db.tree("rows").unwrap();
    for turn in 0..6 {
        for row in (turn..ROWS).step_by(2 + turn as usize) {
            tree.put(key(row), [turn as u8; 60]).unwrap();
        }
        db.flush().unwrap();
    }
    let is_view = |path: &Path| path.extension().is_some_and(|extension| extension == "view");
    assert!(vfs.files().keys().any(|path| is_view(path)), "several runs have one");
    let rows = |db: &Db| {
        let tree = db.tree("rows").unwrap();
        (0..ROWS).map(|row| tree.get(key(row)).unwrap().map(|value| value.to_vec())).collect::<Vec<_>>()
    };
    let view_bytes = |db: &Db| db.stats().partitions.iter().map(|partition| partition.view_bytes).collect::<Vec<_>>();
    let (expected, views, mut flips) = (rows(&db), view_bytes(&db), 7_u32);
    assert!(views.iter().all(|&bytes| bytes > 0));
    for worst in [true, false, false, false] {
        // Drop some or all of the unsynced data.
        let crashed = vfs.crashed(|| {
            flips = flips.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            !worst && flips >> 31 == 1
        });
        let db = open(Settings { vfs: fault(&crashed), ..settings.clone() }).unwrap();
        assert_eq!(view_bytes(&db), views, "one that cannot be opened is left out");
        assert_eq!(rows(&db), expected);
        let mut cursor = db.tree("rows").unwrap().cursor();
        let mut count = usize::from(cursor.seek_first().unwrap());
        while cursor.next().unwrap() {
            count += 1;
        }
        assert_eq!((count, db.stats().views_healed), (expected.iter().flatten().count(), 0));
    }
}
