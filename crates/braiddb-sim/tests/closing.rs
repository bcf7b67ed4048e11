//! Databases that are closed, dropped and reopened while threads use them.

mod common;

use braiddb::{Db, Durability, Error, Tree};
use braiddb_sim::{Random, model::Bytes, numbered};
use common::{
    Counter, full_text,
    threads::{Place, bounded, compare, ok, scaled},
};
use std::sync::atomic::{AtomicU64, Ordering};

fn is_closed<T>(result: &braiddb::Result<T>) -> bool {
    matches!(result, Err(Error::Closed))
}

fn is_locked<T>(result: &braiddb::Result<T>) -> bool {
    matches!(result, Err(Error::Locked { .. }))
}

fn fill(db: &Db, tree: &Tree) -> Vec<(Bytes, Bytes)> {
    let rows: Vec<(Bytes, Bytes)> = (0..3000_u64)
        .map(|n| (n.to_be_bytes().to_vec(), common::value(if n.is_multiple_of(50) { 1500 } else { 20 }, n)))
        .collect();
    for part in rows.chunks(100) {
        let mut batch = db.batch();
        for (key, value) in part {
            batch.put(tree, key, value);
        }
        ok(batch.commit_with(Durability::Buffered));
    }
    rows
}

#[test]
fn iterator_and_snapshot_outlive_dropped_handles() {
    for place in [Place::memory(0), Place::disk(2)] {
        bounded(move || {
            let db = place.open();
            let tree = ok(db.tree("left"));
            let rows = fill(&db, &tree);
            let (snapshot, mut iter) = (db.snapshot(), tree.iter());
            compare(iter.by_ref().take(10), &rows[..10], || "the first rows".to_owned());
            ok(tree.delete_range(rows[0].0.clone()..));
            ok(db.compact());
            drop((tree, db));
            assert!(is_locked(&place.try_open()));
            compare(iter, &rows[10..], || "an iterator after the close".to_owned());
            assert!(is_locked(&place.try_open()));
            drop(snapshot);
            let db = place.open();
            let tree = ok(db.open_tree("left"));
            assert!(ok(tree.first()).is_none());
            let report = ok(db.verify());
            assert!(report.problems.is_empty(), "{:?}", report.problems);
        });
    }
}

#[test]
fn database_already_open_is_locked() {
    for place in [Place::memory(0), Place::disk(2)] {
        bounded(move || {
            let db = place.open();
            assert!(is_locked(&place.try_open()));
            let clone = db.clone();
            drop(db);
            assert!(is_locked(&place.try_open()));
            ok(clone.close());
            let winners = Counter::default();
            let everybody = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..20 {
                            everybody.wait();
                            let db = place.try_open();
                            assert!(db.is_ok() || is_locked(&db), "{db:?}");
                            winners.add(u64::from(db.is_ok()));
                            everybody.wait();
                        }
                    });
                }
            });
            assert_eq!(winners.get(), 20);
        });
    }
}

/// Uses the database until `Error::Closed`, the only legal error. The writer returns its last
/// acknowledged commit.
fn use_until_closed(user: usize, db: &Db, tree: &Tree, rounds: &AtomicU64) -> u64 {
    let mut random = Random::new(user as u64);
    let (mut acknowledged, mut rows) = (0_u64, tree.iter());
    loop {
        rounds.fetch_add(1, Ordering::Relaxed);
        let done = match user {
            0 => {
                let mut batch = db.batch();
                let number: u64 = acknowledged + 1;
                batch.put(tree, b"!last", number.to_be_bytes());
                batch.put(tree, random.below(3000).to_be_bytes(), common::value([20, 1500][random.index(2)], number));
                let durability = [Durability::Sync, Durability::Buffered][random.index(2)];
                batch.commit_with(durability).map(|_| acknowledged = number)
            }
            1 => tree.get(random.below(3000).to_be_bytes()).map(|_| ()),
            2 => match rows.next() {
                Some(row) => row.map(|_| ()),
                None => {
                    rows = tree.iter();
                    Ok(())
                }
            },
            3 => match random.below(3) {
                0 => db.flush(),
                1 => db.compact(),
                _ => db.sync(),
            },
            4 => match random.below(3) {
                0 => db.tree(&format!("tree-{}", random.below(100))).map(|_| ()),
                1 => match db.drop_tree(&format!("tree-{}", random.below(100))) {
                    Err(e) if e.is_not_found() => Ok(()),
                    other => other,
                },
                _ => db.verify().map(|report| assert!(report.problems.is_empty(), "{:?}", report.problems)),
            },
            _ => tree.multi_get(&[random.below(3000).to_be_bytes()]).map(|_| drop(db.stats())),
        };
        match done {
            Ok(()) => {}
            Err(Error::Closed) => return acknowledged,
            Err(e) => panic!("user {user}: {}", full_text(&e)),
        }
    }
}

fn close_while_in_use(place: &Place, seed: u64, times: u64) {
    let mut random = Random::new(seed);
    let mut number = 0;
    for time in 0..times {
        let db = place.open();
        let tree = ok(db.tree("left"));
        if time == 0 {
            fill(&db, &tree);
        }
        let rounds = AtomicU64::new(0);
        let (acknowledged, reopened) = std::thread::scope(|scope| {
            let (tree, rounds) = (&tree, &rounds);
            let users: Vec<_> = (0..6)
                .map(|user| {
                    let db = db.clone();
                    scope.spawn(move || use_until_closed(user, &db, tree, rounds))
                })
                .collect();
            let enough = random.below(3000);
            while rounds.load(Ordering::Relaxed) < enough {
                std::thread::yield_now();
            }
            ok(db.clone().close());
            let reopened = place.open();
            let acknowledged = users.into_iter().map(|u| u.join().expect("a user")).max();
            (acknowledged.unwrap_or(0), reopened)
        });
        assert!(is_closed(&tree.put(b"a", b"b")) && is_closed(&tree.get(b"a")) && is_closed(&db.flush()));
        ok(db.close());
        drop(tree);
        let tree = ok(reopened.open_tree("left"));
        let found = ok(tree.get(b"!last")).map_or(0, |value| numbered::number_of(&value));
        number = if acknowledged > 0 { acknowledged } else { number };
        // The log may have the last write although its caller got an error.
        assert!(found == number || found == acknowledged + 1, "{found} found, {number} acknowledged, time {time}");
        number = found;
        let report = ok(reopened.verify());
        assert!(report.problems.is_empty(), "verify after time {time}: {:?}", report.problems);
        ok(reopened.compact());
        assert!(tree.iter().map(ok).count() >= 3000, "rows are missing");
        let report = ok(reopened.verify());
        assert!(report.problems.is_empty(), "verify after time {time}: {:?}", report.problems);
    }
}

#[test]
fn close_while_in_use_in_memory_keeps_acknowledged_commits() {
    let seed = common::seed();
    bounded(move || close_while_in_use(&Place::memory(seed), seed, scaled(100)));
}

#[test]
fn close_while_in_use_on_disk_keeps_acknowledged_commits() {
    let seed = common::seed();
    bounded(move || close_while_in_use(&Place::disk(seed + 2), seed, scaled(100) / 5));
}
