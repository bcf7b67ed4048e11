//! Iterators that read ahead return the rows of a model, from both ends.

use super::*;
use crate::{
    codec::Compression,
    db::{
        Tree,
        handles::tests::cursor::{Random, plain},
        tests_common::{DIR, mem, open, small},
    },
    platform::OpenMode,
};
use std::{collections::BTreeMap, path::Path};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Rows of lengths around each limit, and many usual ones.
fn value(i: u64) -> Vec<u8> {
    let len = match i % 40 {
        0 => BIG_ROW,
        1 => BIG_ROW - 20,
        2 => 5 * BIG_ROW,
        3 => 0,
        4 => INLINE_MAX,
        5 => INLINE_MAX + 1,
        at => at as usize * 13 % 300,
    };
    vec![i as u8; len]
}

fn filled(in_runs: bool) -> (Db, Tree, Rows) {
    let db = open(small(&mem())).unwrap();
    let (before, tree, after) = (db.tree("a").unwrap(), db.tree("b").unwrap(), db.tree("c").unwrap());
    before.put("z", "before").unwrap();
    after.put("", "after").unwrap();
    let mut rows = Rows::new();
    for i in 0..1200_u64 {
        let key =
            if i % 7 == 0 { format!("key with more bytes than fit {:05}", i) } else { format!("k{:05}", i * 7 % 1200) };
        tree.put(&key, value(i)).unwrap();
        rows.insert(key.into_bytes(), value(i));
        if in_runs && i == 900 {
            db.compact().unwrap();
        }
    }
    (db, tree, rows)
}

fn check(row: Option<Result<(Key, Value)>>, expected: Option<(&Vec<u8>, &Vec<u8>)>) {
    match (row.transpose().unwrap(), expected) {
        (None, None) => {}
        (Some((key, value)), Some((expected_key, expected_value))) => {
            assert_eq!(key, *expected_key);
            assert_eq!(value, *expected_value, "value of {key}");
        }
        (row, expected) => panic!("{row:?} instead of {expected:?}"),
    }
}

#[test]
fn iterators_from_both_ends_return_the_rows_of_the_model() {
    for in_runs in [false, true] {
        let (_db, tree, model) = filled(in_runs);
        for seed in 0..400 {
            let mut random = Random(seed, plain);
            let bound = |random: &mut Random| match random.below(4) {
                0 => Bound::Unbounded,
                1 => Bound::Included(format!("k{:05}", random.below(1300)).into_bytes()),
                _ => Bound::Excluded(format!("k{:05}", random.below(1300)).into_bytes()),
            };
            let (start, end) = (bound(&mut random), bound(&mut random));
            let is_empty = match (&start, &end) {
                (Bound::Included(a), Bound::Excluded(b))
                | (Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => b <= a,
                (Bound::Included(a), Bound::Included(b)) => b < a,
                _ => false,
            };
            let mut expected =
                if is_empty { model.range(vec![0xff]..) } else { model.range((start.clone(), end.clone())) };
            let mut iter = tree.range((start, end));
            let back_in_ten = [0, 1, 5, 10][random.below(4) as usize];
            let most = [3, 30, 3000][random.below(3) as usize];
            for _ in 0..most {
                let is_back = random.below(10) < back_in_ten;
                let row = if is_back { iter.next_back() } else { iter.next() };
                let model_row = if is_back { expected.next_back() } else { expected.next() };
                let is_end = model_row.is_none();
                check(row, model_row);
                if is_end {
                    assert!(iter.next().is_none() && iter.next_back().is_none());
                    break;
                }
            }
        }
    }
}

/// The state is replaced while iterators rest and run, and commits come between.
#[test]
fn an_iterator_after_writes_and_flushes_sees_them() {
    let (db, tree, mut model) = filled(true);
    for round in 0..60_u64 {
        let key = format!("k{:05}", round * 31 % 1200).into_bytes();
        let running = tree.iter();
        tree.put(&key, round.to_le_bytes()).unwrap();
        let before = model.insert(key.clone(), round.to_le_bytes().to_vec());
        match round % 5 {
            0 => db.flush().unwrap(),
            1 => db.compact().unwrap(),
            2 => {
                tree.delete_range(b"k00500".as_slice()..b"k00510".as_slice()).unwrap();
                model.retain(|key, _| !(b"k00500".as_slice()..b"k00510".as_slice()).contains(&key.as_slice()));
            }
            _ => {}
        }
        let found: Rows = tree.iter().map(|row| row.map(|(key, value)| (key.into(), value.into())).unwrap()).collect();
        assert!(found == model, "round {round}");
        let first = running.map(Result::unwrap).find(|(found, _)| *found == key);
        assert_eq!(first.map(|(_, value)| Vec::from(value)), before, "the older snapshot, round {round}");
    }
}

#[test]
fn threads_iterate_and_write_at_the_same_time() {
    let (db, tree, _) = filled(true);
    tree.put("z-counter", 0_u64.to_be_bytes()).unwrap();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut last = 0;
                    while last < 300 {
                        let (_, value) = tree.range("z-counter"..).next().unwrap().unwrap();
                        let count = u64::from_be_bytes(value.try_into().unwrap());
                        assert!(count >= last, "{count} after {last}: a commit was seen and is lost");
                        last = count;
                    }
                })
            })
            .collect();
        for count in 1..=300_u64 {
            tree.put("z-counter", count.to_be_bytes()).unwrap();
            // What this thread committed, its next iterator sees.
            let (_, value) = tree.range("z-counter"..).next().unwrap().unwrap();
            assert_eq!(value, count.to_be_bytes());
            if count % 20 == 0 {
                db.flush().unwrap();
            }
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

/// `Key` and `Value` document this bound.
#[test]
fn a_kept_row_pins_at_most_sixteen_kibibytes_or_itself() {
    let (_db, tree, _) = filled(true);
    let mut kept_most = 0;
    for row in tree.iter() {
        let (key, value) = row.unwrap();
        for (bytes, pinned) in [(&*key, key.pinned_bytes()), (&*value, value.pinned_bytes())] {
            assert!(pinned <= (16 << 10) + 64 || pinned == bytes.len(), "{} bytes pin {pinned}", bytes.len());
            kept_most = kept_most.max(pinned);
        }
    }
    assert!(kept_most > 10 << 10, "rows share no allocation: {kept_most}");
    let value = tree.get("k00007").unwrap().unwrap();
    assert!(value.pinned_bytes() <= value.len());
}

/// The next iterator over the same state reads ahead what this one returned.
#[test]
fn iterators_that_take_as_many_rows_each_read_no_more() {
    let db = open(small(&mem())).unwrap();
    let tree = db.tree("rows").unwrap();
    for i in 0..500_u32 {
        tree.put(i.to_be_bytes(), [7; 50]).unwrap();
    }
    for _ in 0..3 {
        assert_eq!(tree.range(9_u32.to_be_bytes()..).take(50).map(Result::unwrap).count(), 50);
    }
    let mut iter = tree.range(9_u32.to_be_bytes()..);
    (0..2).for_each(|_| drop(iter.next().unwrap().unwrap()));
    let front = iter.front.as_ref().unwrap();
    assert_eq!(front.rows.len(), 49);
}

#[test]
fn compressed_rows_come_back_too() {
    let mut settings = small(&mem());
    settings.compression = Compression::Lz4;
    let db = open(settings).unwrap();
    let tree = db.tree("rows").unwrap();
    for i in 0..2000_u32 {
        tree.put(i.to_be_bytes(), i.to_le_bytes().repeat(10)).unwrap();
    }
    db.compact().unwrap();
    for (i, row) in tree.iter().rev().enumerate() {
        let i = 1999 - i as u32;
        assert_eq!(row.unwrap(), (i.to_be_bytes().into(), i.to_le_bytes().repeat(10).into()));
    }
}

/// A damaged run block: nothing after the error, since the cursor has lost its place. The first
/// version of reading ahead began again at the first row of the tree.
#[test]
fn an_iterator_ends_with_the_error_of_a_damaged_block() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let tree = db.tree("rows").unwrap();
    let rows = 20_000_u32;
    tree.extend((0..rows).map(|i| (i.to_be_bytes(), i.to_le_bytes().repeat(10)))).unwrap();
    db.compact().unwrap();
    db.close().unwrap();
    let runs: Vec<_> = vfs.list(Path::new(DIR)).unwrap();
    for run in runs.iter().filter(|file| file.name.ends_with(".run")) {
        let file = vfs.open(&Path::new(DIR).join(&run.name), OpenMode::ReadWrite).unwrap();
        let at = file.len().unwrap() / 2;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_at(&[byte[0] ^ 1], at).unwrap();
    }
    let db = open(small(&vfs)).unwrap();
    let tree = db.tree("rows").unwrap();
    let from = (rows / 10).to_be_bytes();
    for is_back in [false, true] {
        let mut iter = tree.range(from..);
        let mut step = || if is_back { iter.next_back() } else { iter.next() };
        let mut last = None;
        let error = loop {
            match step() {
                Some(Ok((key, _))) => {
                    let is_next = last.as_ref().is_none_or(|last| (key > *last) != is_back);
                    assert!(is_next && *key >= from[..], "{key:?} after {last:?}");
                    last = Some(key);
                }
                Some(Err(e)) => break e,
                None => panic!("the damaged block was not read"),
            }
        };
        assert!(error.is_corruption(), "{error}");
        assert!(last.is_some(), "rows before the damage");
        assert!(step().is_none());
        assert!(iter.next().is_none() && iter.next_back().is_none());
    }
    let mut begins_damaged = 0;
    for start in (0..rows).step_by(97) {
        let mut iter = tree.range(start.to_be_bytes()..);
        if iter.next().unwrap().is_err() {
            begins_damaged += 1;
            assert!(iter.next().is_none());
        }
    }
    assert!(begins_damaged > 0, "no range began in the damaged block");
}

/// A long value is read only when its row is returned.
#[test]
fn rows_read_ahead_end_before_a_large_value() {
    let mut settings = small(&mem());
    settings.blob_threshold = 1000;
    let db = open(settings).unwrap();
    let tree = db.tree("rows").unwrap();
    tree.extend([("a", vec![1; 10]), ("b", vec![2; 10]), ("c", vec![3; 50_000]), ("d", vec![4; 10])]).unwrap();
    db.flush().unwrap();
    let mut iter = tree.iter();
    iter.next().unwrap().unwrap();
    iter.next().unwrap().unwrap();
    let front = iter.front.as_ref().unwrap();
    assert!(front.rows.len() == 1 && front.is_row_unread);
    assert_eq!(iter.next().unwrap().unwrap().1.len(), 50_000);
    assert_eq!(iter.next().unwrap().unwrap().0, "d");
    assert!(iter.next().is_none());
}
