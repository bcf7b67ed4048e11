//! Exclusive transactions across processes. Several handles in one process act as several processes.

use super::handles::{builder, number, open};
use braiddb::{
    Error, Result,
    shared::{SharedDb, SharedTree},
};
use std::{
    path::Path,
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

/// Time in which a call that need not wait returns, and none that waits.
const SHORT: Duration = Duration::from_millis(200);

fn impatient(dir: &Path) -> SharedDb {
    builder().shared_timeout(Duration::from_secs(1)).open_shared(dir).unwrap()
}

/// Adds one to a counter in an exclusive transaction.
fn increment(db: &SharedDb, tree: &SharedTree) -> Result<()> {
    let tx = db.begin_exclusive()?;
    let tree = tree.in_transaction(&tx)?;
    let value = tx.get(&tree, "n")?.map_or(0, |value| number(&value));
    tx.put(&tree, "n", (value + 1).to_le_bytes())?;
    tx.commit().map(drop)
}

#[test]
fn commits_of_all_processes_wait_for_exclusive_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let handles = [open(dir.path()), open(dir.path()), open(dir.path())];
    let trees = handles.each_ref().map(|db| db.tree("t").unwrap());
    for at in 0..3 {
        let tx = handles[at].begin_exclusive().unwrap();
        let own = trees[at].in_transaction(&tx).unwrap();
        assert_eq!(tx.get(&own, "k").unwrap(), None);
        let (done, is_done) = channel();
        thread::scope(|scope| {
            for other in 0..3 {
                let (done, db, tree) = (done.clone(), &handles[other], &trees[other]);
                let finish = done.clone();
                scope.spawn(move || {
                    let value = format!("{other}");
                    tree.put("k", &value).unwrap();
                    done.send(other).unwrap();
                });
                scope.spawn(move || {
                    increment(db, tree).unwrap();
                    finish.send(other).unwrap();
                });
            }
            assert_eq!(is_done.recv_timeout(SHORT), Err(RecvTimeoutError::Timeout), "a commit did not wait");
            // Others may read meanwhile, and see nothing of it.
            tx.put(&own, "k", "exclusive").unwrap();
            assert_eq!(tx.get(&own, "k").unwrap().unwrap(), "exclusive");
            trees.iter().for_each(|tree| assert_eq!(tree.get("k").unwrap(), None));
            tx.commit().unwrap();
        });
        handles[at].refresh().unwrap();
        assert_eq!(number(&trees[at].get("n").unwrap().unwrap()), 3 * (at as u64 + 1));
        assert_ne!(trees[at].get("k").unwrap().unwrap(), "exclusive", "the puts came later");
        trees[at].delete("k").unwrap();
        handles.iter().for_each(|db| db.refresh().unwrap());
    }
}

/// The member's commit was one of unknown outcome: the owner replied at the deadline, or later.
#[test]
fn waits_for_exclusive_transaction_end_at_the_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let patient = [open(dir.path()), open(dir.path())];
    let impatient = impatient(dir.path());
    let tree = impatient.tree("t").unwrap();
    for db in &patient {
        let tx = db.begin_exclusive().unwrap();
        let calls: [&dyn Fn() -> Result<()>; 4] = [
            &|| tree.put("k", "v").map(drop),
            &|| increment(&impatient, &tree),
            &|| impatient.update(|tx| tx.put(&tree.in_transaction(tx)?, "k", "v")),
            &|| impatient.begin_exclusive_within(Duration::from_millis(300)).map(drop),
        ];
        for (at, call) in calls.iter().enumerate() {
            let least = Duration::from_millis(if at == 3 { 150 } else { 500 });
            let has_reason = (0..3).any(|_| {
                let began = Instant::now();
                let refused = call().unwrap_err();
                assert!((least..Duration::from_secs(8)).contains(&began.elapsed()), "call {at}: {:?}", began.elapsed());
                // On a busy machine the owner's reply may be late.
                let is_late = matches!(refused, Error::NoOwner { .. }) || refused.is_outcome_unknown();
                assert!(is_late || matches!(refused, Error::ExclusiveOpen { .. }), "call {at}: {refused}");
                !is_late
            });
            assert!(has_reason, "call {at}: the owner never replied in time");
        }
        let began = Instant::now();
        impatient.tree(if db.is_owner() { "another" } else { "a third" }).unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
        drop(tx);
        tree.put("k", "v").unwrap();
        tree.delete("k").unwrap();
    }
}

#[test]
fn dropped_exclusive_transaction_writes_nothing_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let handles = [open(dir.path()), open(dir.path())];
    for (at, db) in handles.iter().enumerate() {
        let tree = db.tree("t").unwrap();
        let tx = db.begin_exclusive().unwrap();
        tx.put(&tree.in_transaction(&tx).unwrap(), "never", "x").unwrap();
        drop(tx);
        // An empty one ends, too.
        db.begin_exclusive().unwrap().commit().unwrap();
        let began = Instant::now();
        handles[1 - at].tree("t").unwrap().put("k", "v").unwrap();
        assert!(began.elapsed() < Duration::from_secs(10));
        assert_eq!(tree.get("never").unwrap(), None);
    }
}

/// Its right ends with the owner, so another process may have written since.
#[test]
fn commit_after_end_of_owner_is_a_conflict() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, member) = (open(dir.path()), open(dir.path()));
    let tree = member.tree("t").unwrap();
    tree.put("k", "before").unwrap();
    // With another member, either of them takes over.
    let other = open(dir.path());
    let tx = member.begin_exclusive().unwrap();
    tx.put(&tree.in_transaction(&tx).unwrap(), "k", "exclusive").unwrap();
    owner.close().unwrap();
    other.tree("t").unwrap().put("k", "other").unwrap();
    let refused = tx.commit().unwrap_err();
    assert!(refused.is_conflict(), "{refused}");
    member.refresh().unwrap();
    assert_eq!(tree.get("k").unwrap().unwrap(), "other");
    increment(&member, &tree).unwrap();
}

/// A worker that ends in order made the transactions of others conflicts.
#[test]
fn close_of_owner_lets_exclusive_transaction_of_member_end() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, member) = (open(dir.path()), open(dir.path()));
    let tree = member.tree("t").unwrap();
    let tx = member.begin_exclusive().unwrap();
    tx.put(&tree.in_transaction(&tx).unwrap(), "k", "exclusive").unwrap();
    thread::scope(|scope| {
        let close = scope.spawn(|| owner.clone().close());
        thread::sleep(SHORT);
        tx.commit().unwrap();
        close.join().unwrap().unwrap();
    });
    assert_eq!(tree.get("k").unwrap().unwrap(), "exclusive");
}

/// A close of the owner waited for the timeouts of commits that wait for its own exclusive transaction.
#[test]
fn owner_closes_despite_its_exclusive_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, member) = (open(dir.path()), open(dir.path()));
    let tree = member.tree("t").unwrap();
    let tx = owner.begin_exclusive().unwrap();
    thread::scope(|scope| {
        let put = scope.spawn(|| tree.put("k", "v"));
        thread::sleep(SHORT);
        let began = Instant::now();
        owner.clone().close().unwrap();
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        put.join().unwrap().unwrap();
    });
    drop(tx);
    assert_eq!(tree.get("k").unwrap().unwrap(), "v");
}

/// Each thread of each handle increments a counter; none conflicts.
#[test]
fn concurrent_exclusive_transactions_never_conflict() {
    const EACH: u64 = 40;
    let dir = tempfile::tempdir().unwrap();
    let handles = [open(dir.path()), open(dir.path()), open(dir.path())];
    thread::scope(|scope| {
        for db in handles.iter().chain(&handles) {
            scope.spawn(|| {
                let tree = db.tree("counters").unwrap();
                (0..EACH).for_each(|_| increment(db, &tree).unwrap());
            });
        }
    });
    for db in &handles {
        db.refresh().unwrap();
        assert_eq!(number(&db.tree("counters").unwrap().get("n").unwrap().unwrap()), 6 * EACH);
    }
}
