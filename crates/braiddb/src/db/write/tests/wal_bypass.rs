//! Tests of commits without WAL: a crash leaves the state after one commit, which the cursor names.

use crate::{
    base::Error,
    codec::MergeFunction,
    db::{
        Change, Db, Durability, Gap, Settings, WatchOptions,
        tests_common::{DIR, fault, killed, mem, open, small},
    },
    platform::{Vfs, fault_vfs::FaultVfs},
};
use parking_lot::Mutex;
use std::{
    path::Path,
    sync::{Arc, mpsc},
    time::Duration,
};

fn commit(db: &Db, number: u64, durability: Durability) -> u64 {
    let (a, b) = (db.tree("a").unwrap(), db.tree("b").unwrap());
    let mut batch = db.batch();
    let value = vec![number as u8; if number.is_multiple_of(7) { 600 } else { 60 }];
    batch.put(&a, (number % 50).to_be_bytes(), &value).put(&b, b"number", number.to_le_bytes());
    batch.put(&b, (number % 30).to_be_bytes(), number.to_le_bytes()).set_application_cursor(number.to_le_bytes());
    batch.commit_with(durability).unwrap()
}

fn cursor(db: &Db) -> u64 {
    db.application_cursor().unwrap().map_or(0, |cursor| u64::from_le_bytes(cursor.try_into().unwrap()))
}

/// Returns the cursor, after checking that both trees match it.
fn check(db: &Db) -> u64 {
    let last = cursor(db);
    if last == 0 {
        return 0;
    }
    let (a, b) = (db.tree("a").unwrap(), db.tree("b").unwrap());
    assert_eq!(b.get(b"number").unwrap().as_deref(), Some(&last.to_le_bytes()[..]));
    for number in last.saturating_sub(49).max(1)..=last {
        let value = a.get((number % 50).to_be_bytes()).unwrap().unwrap();
        assert!(value.iter().all(|byte| *byte == number as u8), "{number} of {last}");
    }
    for number in last.saturating_sub(29).max(1)..=last {
        assert_eq!(b.get((number % 30).to_be_bytes()).unwrap().as_deref(), Some(&number.to_le_bytes()[..]));
    }
    last
}

fn unlogged(vfs: &Arc<dyn Vfs>) -> Settings {
    Settings { durability: Durability::None, ..small(vfs) }
}

#[test]
fn a_killed_process_leaves_what_was_flushed_and_that_is_whole() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(unlogged(&fault(&vfs))).unwrap();
    let mut last = 0;
    let mut highest = 0;
    for number in 1..=2000 {
        highest = commit(&db, number, Durability::None);
        if number.is_multiple_of(100) {
            let after = open(small(&fault(&killed(&vfs)))).unwrap();
            let survived = check(&after);
            assert!(survived >= last && survived <= number);
            assert!(commit(&after, survived + 1, Durability::Buffered) > highest);
            assert_eq!(check(&after), survived + 1);
            last = survived;
        }
    }
    assert!(last > 500, "{last}");
    assert!(db.stats().log_bytes_written < 1000, "nothing went to the log");
    // Flushed commits and a clean close survive; later commits may be lost.
    db.flush_to(1990_u64.to_le_bytes()).unwrap();
    assert!(check(&open(small(&fault(&killed(&vfs)))).unwrap()) >= 1990);
    commit(&db, 2001, Durability::None);
    db.flush_through(highest).unwrap();
    commit(&db, 2002, Durability::None);
    assert!(matches!(db.flush_to(b"never"), Err(Error::NotFound(_))));
    db.sync().unwrap();
    assert_eq!(check(&open(small(&fault(&killed(&vfs)))).unwrap()), 2002);
    commit(&db, 2003, Durability::None);
    db.close().unwrap();
    assert_eq!(check(&open(small(&fault(&vfs))).unwrap()), 2003);
}

#[test]
fn a_commit_in_the_log_never_survives_without_those_before_it() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(small(&fault(&vfs))).unwrap();
    let mut logged = 0;
    for number in 1..=400 {
        let durability = match number % 13 {
            0 => Durability::Sync,
            1 | 2 => Durability::Buffered,
            _ => Durability::None,
        };
        commit(&db, number, durability);
        if durability != Durability::None {
            logged = number;
        }
        let survived = check(&open(small(&fault(&killed(&vfs)))).unwrap());
        assert!((logged..=number).contains(&survived), "{survived} of {logged} to {number}");
    }
}

#[test]
fn watchers_are_told_of_what_the_log_lacks() {
    let vfs = mem();
    let db = open(Settings { log_retention_bytes: Some(1 << 30), ..small(&vfs) }).unwrap();
    ["a", "b"].iter().for_each(|name| assert!(db.tree(name).is_ok()));
    let start = db.watch(WatchOptions::new()).unwrap().token();
    let mut live = db.watch(WatchOptions::new()).unwrap();
    let next = |watcher: &mut crate::db::Watcher| {
        let set = watcher.try_next().unwrap()?;
        let is_gap = matches!(&set.changes[..], [Change::Gap(Gap::Commits { up_to })] if *up_to <= set.sequence);
        assert!(is_gap || set.changes.len() == 4);
        Some((is_gap, set.sequence))
    };
    let first = commit(&db, 1, Durability::Buffered);
    let unlogged = commit(&db, 2, Durability::None);
    assert_eq!(next(&mut live), Some((false, first)));
    assert_eq!(next(&mut live), None, "it is not durable");
    db.flush().unwrap();
    assert_eq!(next(&mut live), Some((true, unlogged)));
    assert_eq!(next(&mut live), None);
    let after_gap = live.token();
    let third = commit(&db, 3, Durability::Buffered);
    assert_eq!(next(&mut live), Some((false, third)), "the gap was told");
    let fourth = commit(&db, 4, Durability::None);
    db.close().unwrap();
    let db = open(small(&vfs)).unwrap();
    let fifth = commit(&db, 5, Durability::Buffered);
    for (token, gaps) in [(start, vec![unlogged + 1, fourth]), (after_gap, vec![fourth])] {
        let mut watcher = db.watch(WatchOptions::new().resume(token)).unwrap();
        let shown: Vec<_> = std::iter::from_fn(|| next(&mut watcher)).collect();
        let expected: Vec<u64> =
            [first, third, fifth].into_iter().filter(|commit| *commit > token.sequence()).collect();
        assert_eq!(shown.iter().filter(|s| !s.0).map(|s| s.1).collect::<Vec<_>>(), expected);
        assert_eq!(shown.iter().filter(|s| s.0).map(|s| s.1).collect::<Vec<_>>(), gaps);
    }
}

#[test]
fn an_application_cursor_may_have_64_kib_and_goes_with_a_transaction() {
    let db = open(small(&mem())).unwrap();
    let longest = vec![b'c'; 64 << 10];
    let mut batch = db.batch();
    batch.set_application_cursor(&longest);
    batch.commit_with(Durability::None).unwrap();
    assert_eq!(db.application_cursor().unwrap().as_deref(), Some(&longest[..]));
    db.flush_to(&longest).unwrap();
    let mut batch = db.batch();
    batch.set_application_cursor([longest.as_slice(), b"c"].concat());
    assert!(matches!(batch.commit_with(Durability::None), Err(Error::InvalidArgument(_))));
    let transaction = db.begin_exclusive().unwrap();
    transaction.set_application_cursor(b"t").unwrap();
    assert!(transaction.set_application_cursor(vec![0; (64 << 10) + 1]).is_err());
    transaction.commit_with(Durability::None).unwrap();
    assert_eq!(db.application_cursor().unwrap().as_deref(), Some(&b"t"[..]));
}

#[derive(Debug)]
struct Slow(Mutex<mpsc::Sender<()>>);

impl MergeFunction for Slow {
    #[expect(clippy::disallowed_methods, reason = "a test of threads")]
    fn apply(&self, _: &[u8], _: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
        self.0.lock().send(()).map_err(|e| e.to_string())?;
        std::thread::sleep(Duration::from_millis(300));
        Ok(operand.to_vec())
    }
}

/// The cursor was found before its commit's other entries were inserted. The engine did not know
/// yet that the log lacks the commit, and synced only the log. A kill lost data reported as
/// durable.
#[test]
fn a_cursor_that_is_found_while_its_commit_is_being_inserted_is_made_durable() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(small(&fault(&vfs))).unwrap();
    let (sender, is_applied) = mpsc::channel();
    db.engine().functions.add_eager(100, "slow", Arc::new(Slow(Mutex::new(sender))));
    let (tree, slow) = (db.tree("a").unwrap(), db.merge_function("slow").unwrap());
    tree.put(b"key", b"before").unwrap();
    let survived = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut batch = db.batch();
            batch.merge(&tree, b"key", &slow, b"after").set_application_cursor(b"one");
            batch.commit_with(Durability::None).unwrap();
        });
        is_applied.recv().unwrap();
        assert_eq!(db.application_cursor().unwrap(), None, "it is not committed yet");
        db.flush_to(b"one").unwrap();
        killed(&vfs)
    });
    let after = open(small(&fault(&survived))).unwrap();
    assert_eq!(after.application_cursor().unwrap().as_deref(), Some(&b"one"[..]));
    assert_eq!(after.tree("a").unwrap().get(b"key").unwrap().as_deref(), Some(&b"after"[..]));
}

/// The log had no space for a marker, and logged a no-op with its number later. A watcher read past
/// the missing commits without notice.
#[test]
fn a_marker_that_finds_no_room_hides_no_gap() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(Settings { log_retention_bytes: Some(1 << 30), ..small(&fault(&vfs)) }).unwrap();
    commit(&db, 1, Durability::Buffered);
    let token = db.watch(WatchOptions::new()).unwrap().token();
    let unlogged = commit(&db, 2, Durability::None);
    db.flush().unwrap();
    let tree = db.tree("a").unwrap();
    let put = || {
        let mut batch = db.batch();
        batch.put(&tree, b"k", b"v");
        batch.commit_with(Durability::Buffered)
    };
    vfs.fail(crate::platform::fault_vfs::Operation::Write, 0, 1, std::io::ErrorKind::StorageFull);
    assert!(put().is_err_and(|e| e.is_disk_full()));
    vfs.heal();
    put().unwrap();
    let mut watcher = db.watch(WatchOptions::new().resume(token)).unwrap();
    let mut gaps = Vec::new();
    while let Some(set) = watcher.try_next().unwrap() {
        gaps.extend(set.changes.iter().filter_map(|change| match change {
            Change::Gap(Gap::Commits { up_to }) => Some(*up_to),
            _ => None,
        }));
    }
    assert_eq!(gaps, [unlogged]);
}
