//! Transactions: visibility, conflicts, limits and exclusivity.

use crate::{
    base::{Error, Result},
    db::{
        Db, Durability, LogArchive, RestorePoint, Settings, Transaction, Tree, Update,
        tests_common::{DIR, bounded, fault, mem, open, small},
    },
    platform::fault_vfs::{FaultVfs, Operation},
};
use std::{
    collections::BTreeMap,
    io,
    ops::Bound::{Excluded, Included},
    path::Path,
    sync::{Arc, Barrier, mpsc},
};

fn database() -> (Db, Tree) {
    let db = open(small(&mem())).unwrap();
    let tree = db.tree("t").unwrap();
    (db, tree)
}

fn threaded() -> (Db, Tree) {
    let db = open(Settings { background_threads: 1, ..small(&mem()) }).unwrap();
    let tree = db.tree("t").unwrap();
    (db, tree)
}

fn key(number: u64) -> [u8; 4] {
    (number as u32).to_be_bytes()
}

fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn rows(pairs: impl Iterator<Item = Result<(crate::db::Key, crate::db::Value)>>) -> Rows {
    pairs.map(|pair| pair.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

/// Scans in both directions equal a model.
#[test]
fn a_transaction_sees_its_own_writes_in_both_directions() {
    for seed in 0..60 {
        let mut random = (0..).map(|n| mix(seed << 32 | n));
        let mut below = |bound: u64| random.next().unwrap() % bound;
        let (db, tree) = database();
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for _ in 0..40 {
            let k = key(below(30)).to_vec();
            tree.put(&k, b"old").unwrap();
            model.insert(k, b"old".to_vec());
        }
        let tx = db.begin().unwrap();
        let mut savepoints = Vec::new();
        for step in 0..60_u32 {
            let (a, b) = (below(32), below(32));
            match below(8) {
                0..=2 => {
                    tx.put(&tree, key(a), step.to_le_bytes()).unwrap();
                    model.insert(key(a).to_vec(), step.to_le_bytes().to_vec());
                }
                3 | 4 => {
                    tx.delete(&tree, key(a)).unwrap();
                    model.remove(key(a).as_slice());
                }
                5 => {
                    tx.delete_range(&tree, key(a)..key(b)).unwrap();
                    model.retain(|k, _| !(key(a).as_slice() <= k.as_slice() && k.as_slice() < key(b).as_slice()));
                }
                6 => savepoints.push((tx.savepoint(), model.clone())),
                _ => {
                    let keep = below(savepoints.len() as u64 + 1) as usize;
                    if let Some((savepoint, then)) = savepoints.get(keep) {
                        tx.rollback_to(*savepoint).unwrap();
                        model = then.clone();
                        for (stale, _) in savepoints.drain(keep + 1..) {
                            assert!(tx.rollback_to(stale).is_err(), "a savepoint of later cannot be gone back to");
                        }
                    }
                }
            }
            let expected: Rows = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
            assert_eq!(tx.get(&tree, key(a)).unwrap().as_deref(), model.get(key(a).as_slice()).map(Vec::as_slice));
            assert_eq!(rows(tx.iter(&tree)), expected, "seed {seed} step {step}");
            let mut backward = rows(tx.iter(&tree).rev());
            backward.reverse();
            assert_eq!(backward, expected, "seed {seed} step {step}");
            if a <= b {
                let part = expected.iter().filter(|(k, _)| *k.as_slice() > key(a)[..] && *k.as_slice() <= key(b)[..]);
                assert_eq!(
                    rows(tx.range(&tree, (Excluded(key(a)), Included(key(b))))),
                    part.cloned().collect::<Rows>()
                );
            }
            let mut iter = tx.iter(&tree);
            let (mut front, mut back) = (Vec::new(), Vec::new());
            loop {
                let is_front = below(2) == 0;
                let Some(row) = (if is_front { iter.next() } else { iter.next_back() }) else { break };
                let row = row.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap();
                if is_front { front.push(row) } else { back.push(row) }
            }
            assert!(iter.next().is_none() && iter.next_back().is_none());
            back.reverse();
            assert_eq!([front, back].concat(), expected, "seed {seed} step {step}");
            assert_eq!(tx.first(&tree).unwrap().map(|(k, _)| k.to_vec()), model.keys().next().cloned());
            assert_eq!(tx.last(&tree).unwrap().map(|(k, _)| k.to_vec()), model.keys().next_back().cloned());
        }
        let sees_none = rows(tree.iter());
        assert!(sees_none.iter().all(|(_, v)| v == b"old"), "others see nothing of it");
        tx.commit().unwrap();
        assert_eq!(rows(tree.iter()), model.into_iter().collect::<Rows>(), "seed {seed}");
    }
}

#[test]
fn an_iteration_sees_writes_that_come_while_it_goes_on() {
    let (db, tree) = database();
    for number in [1, 3, 5, 7] {
        tree.put(key(number), b"old").unwrap();
    }
    let tx = db.begin().unwrap();
    let mut seen = Vec::new();
    for pair in tx.iter(&tree) {
        let (k, _) = pair.unwrap();
        let number = u64::from(u32::from_be_bytes((*k).try_into().unwrap()));
        seen.push(number);
        tx.delete(&tree, &*k).unwrap();
        if number < 20 {
            tx.put(&tree, key(number + 10), b"new").unwrap();
        }
        tx.delete(&tree, key(5)).unwrap();
    }
    assert_eq!(seen, [1, 3, 7, 11, 13, 17, 21, 23, 27]);
    assert!(tx.first(&tree).unwrap().is_none());
}

#[test]
fn a_commit_is_refused_if_what_was_read_was_written() {
    type Read = fn(&Transaction, &Tree);
    type Write = fn(&Db, &Tree);
    let reads: &[(&str, Read)] = &[
        ("a key", |tx, t| assert!(tx.get(t, key(10)).unwrap().is_some())),
        ("an absent key", |tx, t| assert!(!tx.contains(t, key(11)).unwrap())),
        ("a range", |tx, t| assert_eq!(rows(tx.range(t, key(20)..key(30))).len(), 5)),
        ("a range from its end", |tx, t| assert_eq!(rows(tx.range(t, key(20)..key(30)).rev()).len(), 5)),
        ("the first two of a range", |tx, t| assert_eq!(rows(tx.range(t, key(20)..key(30)).take(2)).len(), 2)),
        ("the last two of a range", |tx, t| assert_eq!(rows(tx.range(t, key(20)..key(30)).rev().take(2)).len(), 2)),
        ("the first", |tx, t| assert!(tx.first(t).unwrap().is_some())),
        ("the last", |tx, t| assert!(tx.last(t).unwrap().is_some())),
    ];
    // Keys 0, 2, 4 to 38 exist. Each row marks the conflicting reads.
    let writes: &[(&str, Write, [bool; 8])] = &[
        ("put 10", |_, t| _ = t.put(key(10), b"x").unwrap(), [true, false, false, false, false, false, false, false]),
        ("put 11", |_, t| _ = t.put(key(11), b"x").unwrap(), [false, true, false, false, false, false, false, false]),
        ("put 21", |_, t| _ = t.put(key(21), b"x").unwrap(), [false, false, true, true, true, false, false, false]),
        ("delete 22", |_, t| _ = t.delete(key(22)).unwrap(), [false, false, true, true, true, false, false, false]),
        ("put 23", |_, t| _ = t.put(key(23), b"x").unwrap(), [false, false, true, true, false, false, false, false]),
        ("put 27", |_, t| _ = t.put(key(27), b"x").unwrap(), [false, false, true, true, false, true, false, false]),
        ("put 30", |_, t| _ = t.put(key(30), b"x").unwrap(), [false; 8]),
        ("put 19", |_, t| _ = t.put(key(19), b"x").unwrap(), [false; 8]),
        ("put 0", |_, t| _ = t.put(key(0), b"x").unwrap(), [false, false, false, false, false, false, true, false]),
        ("put 99", |_, t| _ = t.put(key(99), b"x").unwrap(), [false, false, false, false, false, false, false, true]),
        (
            "delete 8 to 12",
            |_, t| _ = t.delete_range(key(8)..key(12)).unwrap(),
            [true, true, false, false, false, false, false, false],
        ),
        (
            "delete 29 to 33, where nothing was read but its first key",
            |_, t| _ = t.delete_range(key(29)..key(33)).unwrap(),
            [false, false, true, true, false, true, false, false],
        ),
        ("delete from 12 to 20", |_, t| _ = t.delete_range(key(12)..key(20)).unwrap(), [false; 8]),
        ("drop the tree", |db, _| db.drop_tree("t").unwrap(), [true; 8]),
    ];
    // Find the commit in the window, a memtable, a run or after a merge.
    for way in 0..5 {
        for (write_name, write, refuses) in writes {
            for ((read_name, read), refused) in reads.iter().zip(refuses) {
                let (db, tree) = database();
                let other = db.tree("other").unwrap();
                for number in (0..40).step_by(2) {
                    tree.put(key(number), b"value").unwrap();
                }
                if way > 2 {
                    db.compact().unwrap();
                }
                let tx = db.begin().unwrap();
                read(&tx, &tree);
                tx.put(&other, b"k", b"v").unwrap();
                write(&db, &tree);
                if way > 0 {
                    outlive_window(&db, &other);
                }
                match way {
                    2 | 3 => db.flush().unwrap(),
                    4 => db.compact().unwrap(),
                    _ => {}
                }
                let committed = tx.commit();
                assert_eq!(committed.is_err(), *refused, "{read_name}, then {write_name}, way {way}: {committed:?}");
                if let Err(e) = committed {
                    assert!(e.is_conflict() && e.is_retryable() && !e.is_commit_unknown(), "{e}");
                }
                assert_eq!(other.get(b"k").unwrap().is_some(), !refused, "all or nothing");
            }
        }
    }
}

fn outlive_window(db: &Db, tree: &Tree) {
    let bytes = db.engine().settings.window_bytes();
    let long = vec![7; 20_000];
    for number in 0..2 * bytes / long.len() {
        tree.put([&long[..], &key(number as u64)].concat(), b"").unwrap();
    }
    assert!(!db.engine().commits.window.reaches(db.stats().last_sequence - 2 * bytes as u64 / 20_000));
}

/// The only trace of a change may be a tombstone.
#[test]
fn a_key_that_came_and_went_is_a_change() {
    for compacts in [false, true] {
        let (db, tree) = database();
        let other = db.tree("other").unwrap();
        let (point, range) = (db.begin().unwrap(), db.begin().unwrap());
        assert!(point.get(&tree, b"k").unwrap().is_none());
        assert_eq!(range.iter(&tree).count(), 0);
        for tx in [&point, &range] {
            tx.put(&other, b"x", b"").unwrap();
        }
        tree.put(b"k", b"v").unwrap();
        db.flush().unwrap();
        tree.delete(b"k").unwrap();
        outlive_window(&db, &other);
        if compacts {
            db.compact().unwrap();
        }
        assert!(point.commit().unwrap_err().is_conflict());
        assert!(range.commit().unwrap_err().is_conflict());
    }
}

#[test]
fn blind_writes_and_own_writes_do_not_conflict() {
    let (db, tree) = database();
    let (a, b) = (db.begin().unwrap(), db.begin().unwrap());
    a.put(&tree, b"k", b"a").unwrap();
    assert_eq!(a.get(&tree, b"k").unwrap().as_deref(), Some(&b"a"[..]), "its own: not read from others");
    b.put(&tree, b"k", b"b").unwrap();
    b.delete_range(&tree, ..).unwrap();
    let (first, second) = (b.commit().unwrap(), a.commit().unwrap());
    assert!(first < second);
    assert_eq!(tree.get(b"k").unwrap().as_deref(), Some(&b"a"[..]));
    let reader = db.begin().unwrap();
    assert!(reader.get(&tree, b"k").unwrap().is_some());
    tree.put(b"k", b"c").unwrap();
    assert_eq!(reader.get(&tree, b"k").unwrap().as_deref(), Some(&b"a"[..]));
    assert_eq!(reader.sequence(), second);
    assert_eq!(reader.commit().unwrap(), second);
}

#[test]
fn a_forgotten_iterator_counts() {
    let (db, tree) = database();
    tree.put(b"a", b"1").unwrap();
    let tx = db.begin().unwrap();
    let mut iter = tx.iter(&tree);
    assert!(iter.next().is_some());
    std::mem::forget(iter);
    tx.put(&tree, b"z", b"").unwrap();
    tree.put(b"a", b"2").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
}

#[test]
fn a_transaction_has_bounds() {
    let (db, tree) = database();
    let tx = db.begin().unwrap();
    for number in 0..200_000 {
        tx.get(&tree, key(number % 100)).unwrap();
    }
    assert!(tx.reads().unwrap().borrow().size_bytes() < 200 << 10);
    tx.put(&tree, b"k", b"v").unwrap();
    tx.commit().unwrap();

    let tx = db.begin().unwrap();
    tx.put(&tree, b"never", b"v").unwrap();
    let refused = (0..1_000_000).find_map(|number| tx.get(&tree, key(number)).err());
    assert!(matches!(refused, Some(Error::TransactionTooLarge { .. })), "{refused:?}");
    assert!(matches!(tx.commit(), Err(Error::TransactionTooLarge { .. })));
    assert!(tree.get(b"never").unwrap().is_none());

    let tx = db.begin().unwrap();
    let half = vec![0; db.engine().settings.memory / 4];
    tx.put(&tree, b"1", &half).unwrap();
    let refused = tx.put(&tree, b"2", &half).unwrap_err();
    assert!(matches!(refused, Error::TransactionTooLarge { .. }) && !refused.is_retryable(), "{refused}");
    drop(tx);
    let other = open(small(&mem())).unwrap().tree("t").unwrap();
    let tx = db.begin().unwrap();
    assert!(matches!(tx.put(&other, b"k", b"v"), Err(Error::InvalidArgument(_))));
    assert!(matches!(tx.get(&other, b"k"), Err(Error::InvalidArgument(_))));
}

/// Undo records count once per key and savepoint, until the rollback.
#[test]
fn savepoints_count_and_are_bounded() {
    let (db, tree) = database();
    let tx = db.begin().unwrap();
    let size = || tx.writes().borrow().size_bytes();
    let value = vec![7; db.engine().settings.memory / 16];
    tx.put(&tree, b"k", b"before").unwrap();
    tx.delete_range(&tree, &b"m"[..]..&b"n"[..]).unwrap();
    let savepoint = tx.savepoint();
    let before = size();
    for number in 0..100_u64 {
        tx.put(&tree, b"k", &value).unwrap();
        tx.put(&tree, b"other", &value).unwrap();
        tx.delete_range(&tree, key(number)..key(number + 1)).unwrap();
    }
    let once = size();
    assert!(once > before + 2 * value.len() && once < before + 3 * value.len(), "{before} {once} {}", value.len());
    let second = tx.savepoint();
    tx.delete(&tree, b"k").unwrap();
    assert!(size() > once, "the value is kept, should it be gone back to");
    tx.rollback_to(second).unwrap();
    assert_eq!(tx.get(&tree, b"k").unwrap().as_deref(), Some(value.as_slice()));
    tx.rollback_to(savepoint).unwrap();
    assert_eq!(size(), before);
    assert_eq!(tx.get(&tree, b"k").unwrap().as_deref(), Some(b"before".as_slice()));
    tx.delete(&tree, b"k").unwrap();
    tx.rollback_to(savepoint).unwrap();
    tx.commit().unwrap();
    assert_eq!(tree.get(b"k").unwrap().as_deref(), Some(b"before".as_slice()));
    assert!(tree.get(b"other").unwrap().is_none());

    let tx = db.begin().unwrap();
    let refused = (0..100).find_map(|_| {
        tx.savepoint();
        tx.put(&tree, b"k", &value).err()
    });
    assert!(matches!(refused, Some(Error::TransactionTooLarge { .. })), "{refused:?}");
}

#[test]
fn transactions_of_one_group_are_checked_against_each_other() {
    let (db, tree) = threaded();
    for round in 0..200_u64 {
        let barrier = Arc::new(Barrier::new(4));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (db, tree, barrier) = (db.clone(), tree.clone(), Arc::clone(&barrier));
                #[expect(clippy::disallowed_methods, reason = "a test of threads")]
                std::thread::spawn(move || {
                    let tx = db.begin().unwrap();
                    let before = tx.get(&tree, key(round)).unwrap();
                    barrier.wait();
                    tx.put(&tree, key(round), before.map_or(1, |v| v[0] + 1_u8).to_le_bytes()).unwrap();
                    barrier.wait();
                    tx.commit().is_ok()
                })
            })
            .collect();
        let done = threads.into_iter().map(|thread| thread.join().unwrap()).filter(|done| *done).count();
        assert_eq!(done, 1, "of several that read the same, one commits");
        assert_eq!(tree.get(key(round)).unwrap().as_deref(), Some(&[1][..]));
    }
    assert_eq!(db.stats().transaction_conflicts, 600);
}

#[test]
fn updates_of_one_counter_lose_nothing() {
    const THREADS: u64 = 8;
    const EACH: u64 = 500;
    let (db, tree) = threaded();
    bounded("eight threads that count", move || {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (db, tree) = (db.clone(), tree.clone());
                #[expect(clippy::disallowed_methods, reason = "a test of threads")]
                std::thread::spawn(move || {
                    for _ in 0..EACH {
                        db.update(|tx| {
                            let before =
                                tx.get(&tree, b"n")?.map_or(0, |v| u64::from_le_bytes((*v).try_into().unwrap()));
                            tx.put(&tree, b"n", (before + 1).to_le_bytes())
                        })
                        .unwrap();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(tree.get(b"n").unwrap().as_deref(), Some(&(THREADS * EACH).to_le_bytes()[..]));
        // Idle commits close the window; the next update reopens it.
        for number in 0..5000 {
            tree.put(key(number), b"").unwrap();
        }
        assert!(!db.engine().commits.window.is_open());
        let tx = db.begin().unwrap();
        assert!(db.engine().commits.window.is_open());
        tx.get(&tree, b"n").unwrap();
        tx.put(&tree, b"m", b"").unwrap();
        tree.put(b"n", b"").unwrap();
        assert!(tx.commit().unwrap_err().is_conflict());
    });
}

/// Regression: a full log rejected a commit after it entered the window, and its number was reused.
/// Checks that had seen the number missed the second commit.
#[test]
fn a_commit_that_finds_no_room_leaves_no_number_behind() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(Settings { log_segment_bytes: 1 << 20, ..small(&fault(&vfs)) }).unwrap();
    let tree = db.tree("t").unwrap();
    let held_up = db.begin().unwrap();
    assert!(held_up.get(&tree, b"k").unwrap().is_none());
    held_up.put(&tree, b"mine", b"").unwrap();
    vfs.fail(Operation::Create, 0, u32::MAX, io::ErrorKind::StorageFull);
    let filled = (0..2000).find_map(|n| tree.put(key(n), vec![n as u8; 200]).err());
    assert!(filled.is_some_and(|e| e.is_disk_full()));
    for n in 0..20 {
        assert!(tree.put(vec![n; 3000], b"").unwrap_err().is_disk_full());
    }
    vfs.heal();
    tree.put(b"k", b"by another").unwrap();
    assert!(held_up.commit().unwrap_err().is_conflict());
    assert!(tree.get(b"mine").unwrap().is_none());
}

#[test]
fn an_exclusive_commit_whose_sync_fails_is_unknown() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(small(&fault(&vfs))).unwrap();
    let tree = db.tree("t").unwrap();
    let exclusive = db.begin_exclusive().unwrap();
    exclusive.put(&tree, b"k", b"v").unwrap();
    vfs.fail(Operation::Sync, 0, u32::MAX, io::ErrorKind::Other);
    let failed = exclusive.commit_with(Durability::Sync).unwrap_err();
    assert!(failed.is_commit_unknown(), "{failed}");
    assert_eq!(tree.get(b"k").unwrap().as_deref(), Some(&b"v"[..]), "it was applied");
    assert!(matches!(tree.put(b"k", b"w"), Err(Error::ReadOnly { .. })));
}

#[test]
fn an_update_ends_with_an_error_of_its_own() {
    let (db, tree) = database();
    let mut calls = 0;
    let aborted = db.update(|tx| {
        calls += 1;
        tx.put(&tree, b"k", b"v")?;
        Err::<(), _>(Error::abort("not today"))
    });
    let error = aborted.unwrap_err();
    assert!(error.is_aborted() && !error.is_retryable() && calls == 1, "{error}");
    assert_eq!(error.to_string(), "not today");
    assert!(tree.get(b"k").unwrap().is_none());
    let mut calls = 0;
    let conflict = db.update(|tx| {
        calls += 1;
        tx.get(&tree, b"k")?;
        let other = db.begin()?;
        other.put(&tree, b"k", b"by another")?;
        other.commit()?;
        tx.put(&tree, b"l", b"")
    });
    assert!(conflict.unwrap_err().is_conflict());
    assert_eq!((calls, db.stats().transaction_retries, db.stats().transaction_conflicts), (1001, 1000, 1001));
}

#[test]
fn an_exclusive_transaction_has_others_wait() {
    let (db, tree) = threaded();
    bounded("an exclusive transaction", move || {
        tree.put(b"n", b"0").unwrap();
        let exclusive = db.begin_exclusive().unwrap();
        let (sender, receiver) = mpsc::channel();
        let spawn = |what: &'static str, work: Box<dyn FnOnce() + Send>| {
            let sender = sender.clone();
            #[expect(clippy::disallowed_methods, reason = "a test of threads")]
            std::thread::spawn(move || {
                work();
                sender.send(what).unwrap();
            })
        };
        let (writer, other, maker) = (tree.clone(), db.clone(), db.clone());
        let threads = [
            spawn("put", Box::new(move || _ = writer.put(b"n", b"put").unwrap())),
            spawn("exclusive", Box::new(move || _ = other.begin_exclusive().unwrap().commit().unwrap())),
            spawn("tree", Box::new(move || drop(maker.tree("made").unwrap()))),
        ];
        assert!(receiver.recv_timeout(std::time::Duration::from_millis(50)).is_err(), "all wait");
        // Reads do not wait.
        assert_eq!(db.tree("t").unwrap().get(b"n").unwrap().as_deref(), Some(&b"0"[..]));
        assert_eq!(exclusive.get(&tree, b"n").unwrap().as_deref(), Some(&b"0"[..]));
        db.flush().unwrap();
        exclusive.put(&tree, b"n", b"exclusive").unwrap();
        let sequence = exclusive.commit().unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
        let mut done: Vec<_> = receiver.try_iter().collect();
        done.sort_unstable();
        assert_eq!(done, ["exclusive", "put", "tree"]);
        assert_eq!(tree.get(b"n").unwrap().as_deref(), Some(&b"put"[..]), "it waited, and came after");
        assert!(db.stats().last_sequence > sequence);
        tree.put(b"x", b"").unwrap();
    });
}

#[test]
fn closing_does_not_wait_for_an_exclusive_transaction() {
    let (db, tree) = threaded();
    bounded("closing beside an exclusive transaction", move || {
        let exclusive = db.begin_exclusive().unwrap();
        exclusive.put(&tree, b"k", b"v").unwrap();
        let writer = tree.clone();
        #[expect(clippy::disallowed_methods, reason = "a test of threads")]
        let waiting = std::thread::spawn(move || writer.put(b"k", b"late"));
        std::thread::yield_now();
        db.close().unwrap();
        let late = waiting.join().unwrap();
        assert!(matches!(late, Err(Error::Closed)), "{late:?}");
        assert!(matches!(exclusive.commit(), Err(Error::Closed)));
    });
}

#[test]
fn large_values_and_trees_of_many_values() {
    let (db, tree) = database();
    let many = db.multi_tree("many").unwrap();
    many.add(b"k", b"1").unwrap();
    let large = vec![5; 5000];
    let tx = db.begin().unwrap();
    tx.put(&tree, b"large", &large).unwrap();
    tx.multi_tree(&many).add(b"k", b"2").unwrap();
    tx.multi_tree(&many).add(b"l", b"3").unwrap();
    tx.multi_tree(&many).delete_pair(b"k", b"1").unwrap();
    let view = tx.multi_tree(&many);
    assert!(view.contains_pair(b"k", b"2").unwrap() && !view.contains_pair(b"k", b"1").unwrap());
    assert_eq!(view.values(b"k").collect::<crate::base::Result<Vec<_>>>().unwrap(), ["2"]);
    tx.commit_with(Durability::Sync).unwrap();
    assert_eq!(tree.get(b"large").unwrap().as_deref(), Some(large.as_slice()));
    assert_eq!(rows(many.iter()).len(), 2);
    let (a, b) = (db.begin().unwrap(), db.begin().unwrap());
    assert!(!a.multi_tree(&many).contains_pair(b"k", b"9").unwrap());
    assert_eq!(b.multi_tree(&many).values(b"l").count(), 1);
    a.put(&tree, b"a", b"").unwrap();
    b.put(&tree, b"b", b"").unwrap();
    b.multi_tree(&many).delete(b"k").unwrap();
    many.add(b"k", b"8").unwrap();
    a.commit().unwrap();
    b.commit().unwrap();
    assert_eq!(rows(many.iter()).len(), 1);
    let tx = db.begin().unwrap();
    assert_eq!(tx.multi_tree(&many).values(b"l").count(), 1);
    tx.put(&tree, b"c", b"").unwrap();
    many.add(b"l", b"0").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
}

/// Regression: retries of a commit rejected by a full log conflicted with its entry in the window.
#[test]
fn a_commit_that_the_log_finds_no_room_for_conflicts_with_nobody() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let roomy = Settings { log_segment_bytes: 8 << 10, memtable_bytes: Some(1 << 20), ..small(&fault(&vfs)) };
    let db = open(roomy).unwrap();
    let (tree, other) = (db.tree("t").unwrap(), db.tree("other").unwrap());
    let count = |tree: &Tree| {
        tree.fetch_update(b"k", |value| {
            let from = value.map_or(0, |value| value[0]);
            Update::Put((0..200_u64).map(|at| if at == 0 { from + 1 } else { mix(at) as u8 }).collect())
        })
    };
    count(&tree).unwrap();
    let held_up = db.begin().unwrap();
    assert!(held_up.get(&tree, b"another").unwrap().is_none());
    held_up.put(&other, b"mine", b"").unwrap();
    vfs.fail(Operation::Create, 0, u32::MAX, io::ErrorKind::StorageFull);
    let refused = (0..100).find_map(|_| count(&tree).err());
    assert!(refused.is_some_and(|e| e.is_disk_full()));
    assert!(count(&tree).unwrap_err().is_disk_full(), "no conflict with what was refused");
    vfs.heal();
    let before = tree.get(b"k").unwrap().unwrap()[0];
    count(&tree).unwrap();
    assert_eq!(tree.get(b"k").unwrap().unwrap()[0], before + 1);
    held_up.commit().unwrap();
}

/// Regression: numbers rejected by a full log looked like missing commits to a restore.
#[test]
fn commits_that_the_log_finds_no_room_for_are_no_gap_in_the_archive() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let archive = Path::new("/archive").to_owned();
    let settings = Settings { memtable_bytes: Some(1 << 20), ..small(&fault(&vfs)) };
    let kept = Settings { log_segment_bytes: 8 << 10, log_archive: Some(archive.clone()), ..settings.clone() };
    let db = open(kept.clone()).unwrap();
    let tree = db.tree("t").unwrap();
    let mut written = Rows::new();
    for round in 0..3 {
        vfs.fail(Operation::Create, 0, u32::MAX, io::ErrorKind::StorageFull);
        let mut refused = 0;
        for n in 0..1000 {
            if refused == 3 {
                break;
            }
            let (k, value) = (key(1000 * round + n), mix(n).to_be_bytes().repeat(30));
            match tree.put(k, &value) {
                Ok(_) => written.push((k.to_vec(), value)),
                Err(e) => refused += u32::from(e.is_disk_full()),
            }
        }
        assert_eq!(refused, 3);
        vfs.heal();
    }
    db.flush().unwrap();
    drop(tree);
    db.close().unwrap();
    let db = open(kept).unwrap();
    let tree = db.tree("t").unwrap();
    let last = tree.put(key(5000), b"last").unwrap();
    written.push((key(5000).to_vec(), b"last".to_vec()));
    db.archive_now().unwrap();
    let archived = LogArchive::new(&fault(&vfs), &archive, db.engine().log.incarnation);
    db.close().unwrap();
    let settings = Settings { vfs: mem(), ..settings };
    let back = open(settings.clone()).unwrap();
    let reached =
        archived.walk(0, RestorePoint::Version(last), &mut |first, batches| back.apply_logged(first, batches));
    assert_eq!(reached.unwrap(), last);
    back.close().unwrap();
    let back = open(settings).unwrap();
    assert_eq!(back.snapshot().sequence(), last);
    assert_eq!(rows(back.open_tree("t").unwrap().iter()), written);
}
