//! Loose runs that readers ask often are folded sooner than others.

use super::{
    Db,
    tests_common::{mem, open, small},
};
use crate::platform::Vfs;
use std::sync::Arc;

const ROWS: u32 = 500;

fn key(row: u32) -> Vec<u8> {
    format!("row{row:07}").into_bytes()
}

/// All rows in one run, and every third written anew in another.
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
        // What the compaction left, and what is new.
        assert_eq!(loose(), 2);
        for row in 0..gets {
            tree.get(key(row % ROWS)).unwrap().unwrap();
        }
        let mut cursor = tree.cursor();
        for row in 0..seeks {
            assert!(cursor.seek(key(row * 7 % ROWS)).unwrap());
        }
        drop(cursor);
        // Work that is due is done by whoever writes.
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
        let state = db.core().state.load();
        let [newest, oldest] = &state.version.partitions[0].apart[..] else { panic!("two runs") };
        assert!(newest.reads() > 0 || !is_reopened, "a run that was there before has no filter");
        assert!(newest.reads() * 20 < oldest.reads() || is_reopened, "{} reads", newest.reads());
    }
}
