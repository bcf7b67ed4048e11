//! Exclusive transactions that are moved, leaked, revoked or expired.

use crate::{
    base::Error,
    db::{
        Db, Settings, Transaction, Tree,
        tests_common::{Clock, SECOND_NS, bounded, mem, open, small},
    },
};
use std::{
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};

const MILLISECOND_NS: u64 = 1_000_000;

fn database(exclusive_wait_ns: u64) -> (Db, Tree) {
    let db = open(Settings { background_threads: 1, exclusive_wait_ns, ..small(&mem()) }).unwrap();
    let tree = db.tree("t").unwrap();
    (db, tree)
}

#[expect(clippy::disallowed_methods, reason = "a test of threads")]
fn spawn<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> JoinHandle<R> {
    std::thread::spawn(work)
}

/// Regression: after a move to another thread, puts of the first one were refused.
#[test]
fn exclusive_transaction_moved_to_another_thread_has_the_first_thread_wait() {
    let (db, tree) = database(u64::MAX);
    bounded("a put behind an exclusive transaction", move || {
        let (sender, receiver) = mpsc::channel::<Transaction>();
        let (began, is_waiting) = mpsc::channel();
        let owned = tree.clone();
        let owner = spawn(move || {
            let exclusive = receiver.recv().unwrap();
            is_waiting.recv().unwrap();
            exclusive.put(&owned, b"k", b"owner").unwrap();
            exclusive.commit().unwrap()
        });
        sender.send(db.begin_exclusive().unwrap()).unwrap();
        began.send(()).unwrap();
        let put = tree.put(b"k", b"first thread").unwrap();
        assert!(put > owner.join().unwrap(), "it waited, and came after");
        assert_eq!(tree.get(b"k").unwrap().as_deref(), Some(&b"first thread"[..]));
    });
}

/// Regression: after a move, a put of the owner's thread waited for itself forever.
#[test]
fn put_beside_the_own_exclusive_transaction_fails_after_the_bound() {
    let (db, tree) = database(50 * MILLISECOND_NS);
    bounded("a put beside the own exclusive transaction", move || {
        let exclusive = db.begin_exclusive().unwrap();
        let moved = spawn(move || {
            for refused in [
                tree.put(b"k", b"").map(drop),
                db.tree("new").map(drop),
                db.drop_tree("t"),
                db.rename_tree("t", "u"),
                db.begin_exclusive().map(drop),
                db.begin().and_then(|tx| tx.put(&tree, b"k", b"").and_then(|()| tx.commit()).map(drop)),
                tree.bulk_load([("a", "b")]).map(drop),
            ] {
                let error = refused.unwrap_err();
                assert!(matches!(error, Error::ExclusiveOpen { .. }) && error.is_retryable(), "{error}");
            }
            // Reads do not wait.
            assert!(db.tree("t").unwrap().get(b"k").unwrap().is_none());
            exclusive.put(&tree, b"k", b"owner").unwrap();
            exclusive.commit().unwrap();
            tree.put(b"l", b"").unwrap();
            assert_eq!(tree.iter().count(), 2);
        });
        moved.join().unwrap();
    });
}

/// Regression: a leaked exclusive transaction blocked all writers forever.
#[test]
fn leaked_exclusive_transaction_is_named_and_can_be_revoked() {
    let (db, tree) = database(50 * MILLISECOND_NS);
    bounded("writers behind a leaked exclusive transaction", move || {
        std::mem::forget(db.begin_exclusive().unwrap());
        let error = tree.put(b"k", b"").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("by this thread") && text.contains("revoke_exclusive"), "{text}");
        assert!(db.revoke_exclusive().unwrap());
        assert!(!db.revoke_exclusive().unwrap(), "there is none any more");
        tree.put(b"k", b"").unwrap();
        db.close().unwrap();
    });
}

/// If a leader waited for its group, the limits would add up.
#[test]
fn many_writers_behind_a_leaked_exclusive_transaction_fail_after_one_bound() {
    let (db, tree) = database(500 * MILLISECOND_NS);
    let (sender, receiver) = mpsc::channel();
    std::mem::forget(db.begin_exclusive().unwrap());
    for writer in 0..16_u8 {
        let (tree, sender) = (tree.clone(), sender.clone());
        spawn(move || sender.send(tree.put([writer], b"")));
    }
    for _ in 0..16 {
        let refused = receiver.recv_timeout(Duration::from_secs(6)).expect("all are refused after about one bound");
        assert!(matches!(refused, Err(Error::ExclusiveOpen { .. })), "{refused:?}");
    }
}

/// Committing a revoked transaction would undo other commits.
#[test]
fn revoked_exclusive_transaction_conflicts_and_ends_no_other() {
    let (db, tree) = database(50 * MILLISECOND_NS);
    let revoked = db.begin_exclusive().unwrap();
    revoked.put(&tree, b"k", b"revoked").unwrap();
    assert!(db.revoke_exclusive().unwrap());
    tree.put(b"k", b"another").unwrap();
    let next = db.begin_exclusive().unwrap();
    assert!(revoked.commit().unwrap_err().is_conflict());
    assert!(matches!(tree.put(b"k", b"late"), Err(Error::ExclusiveOpen { .. })));
    next.put(&tree, b"l", b"").unwrap();
    next.commit().unwrap();
    assert_eq!(tree.get(b"k").unwrap().as_deref(), Some(&b"another"[..]));
    let revoked = db.begin_exclusive().unwrap();
    db.revoke_exclusive().unwrap();
    let next = db.begin_exclusive().unwrap();
    drop(revoked);
    assert!(matches!(tree.put(b"k", b"late"), Err(Error::ExclusiveOpen { .. })));
    next.commit().unwrap();
}

/// Regression: an expired transaction still blocked all writers.
#[test]
fn expired_exclusive_transaction_holds_up_nobody() {
    let clock = Clock::new();
    let runtime = Arc::<Clock>::clone(&clock);
    let settings = Settings { exclusive_wait_ns: u64::MAX, reader_age_max_ns: SECOND_NS, runtime, ..small(&mem()) };
    let db = open(settings).unwrap();
    let tree = db.tree("t").unwrap();
    bounded("a put behind an expired transaction", move || {
        let exclusive = db.begin_exclusive().unwrap();
        exclusive.put(&tree, b"k", b"expired").unwrap();
        clock.advance(2 * SECOND_NS);
        tree.put(b"k", b"another").unwrap();
        let error = exclusive.commit().unwrap_err();
        assert!(error.is_reader_expired() || error.is_conflict(), "{error}");
        assert_eq!(tree.get(b"k").unwrap().as_deref(), Some(&b"another"[..]));
    });
}

#[test]
fn exclusive_transactions_beside_puts_lose_nothing() {
    let (db, tree) = database(u64::MAX);
    bounded("exclusive transactions beside puts", move || {
        tree.put(b"n", 0_u64.to_be_bytes()).unwrap();
        let count = |tx: &Transaction, tree: &Tree| {
            let value = tx.get(tree, b"n").unwrap().unwrap();
            let next = u64::from_be_bytes(value[..].try_into().unwrap()) + 1;
            tx.put(tree, b"n", next.to_be_bytes()).unwrap();
        };
        let threads: Vec<_> = (0..6_u64)
            .map(|thread| {
                let (db, tree) = (db.clone(), tree.clone());
                spawn(move || {
                    for round in 0..40_u64 {
                        match thread % 3 {
                            0 => {
                                let tx = db.begin_exclusive().unwrap();
                                count(&tx, &tree);
                                tx.commit().unwrap();
                            }
                            1 => db
                                .update(|tx| {
                                    count(tx, &tree);
                                    Ok(())
                                })
                                .unwrap(),
                            _ => drop(tree.put([thread.to_be_bytes(), round.to_be_bytes()].concat(), b"").unwrap()),
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(tree.get(b"n").unwrap().as_deref(), Some(&160_u64.to_be_bytes()[..]));
        assert_eq!(tree.iter().count(), 81);
    });
}
