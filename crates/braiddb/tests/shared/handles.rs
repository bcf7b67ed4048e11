//! Owners, members and takeovers. Several handles in one process act as several processes.

use braiddb::{Builder, Durability, Error, TreeOptions, Update, shared::SharedDb};
use std::{
    path::Path,
    sync::{
        Barrier,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

pub fn builder() -> Builder {
    Builder::new().memory(8 << 20).background_threads(1).durability(Durability::Buffered)
}

pub fn open(dir: &Path) -> SharedDb {
    builder().shared_timeout(Duration::from_secs(20)).open_shared(dir).unwrap()
}

pub fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

#[test]
fn member_reads_its_own_and_the_owners_writes() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, member) = (open(dir.path()), open(dir.path()));
    assert!(owner.is_owner() && !member.is_owner());
    let (of_owner, of_member) = (owner.tree("albums").unwrap(), member.tree("albums").unwrap());
    for n in 0..300_u32 {
        let key = n.to_be_bytes();
        of_member.put(key, b"by the member").unwrap();
        assert_eq!(of_member.get(key).unwrap().unwrap(), b"by the member");
        assert_eq!(of_owner.get(key).unwrap().unwrap(), b"by the member");
        of_owner.put(key, b"by the owner").unwrap();
        member.refresh().unwrap();
        assert_eq!(of_member.get(key).unwrap().unwrap(), b"by the owner");
    }
    assert_eq!(of_member.count(..).unwrap(), 300);
    assert_eq!(member.trees().unwrap().len(), 1);
}

/// Without `refresh`, a member sees the owner's writes within some milliseconds.
#[test]
fn member_sees_the_owners_writes_soon() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, member) = (open(dir.path()), open(dir.path()));
    let (of_owner, of_member) = (owner.tree("albums").unwrap(), member.tree("albums").unwrap());
    of_owner.put("1", "Ten").unwrap();
    let found = (0..1000).find(|_| {
        thread::sleep(Duration::from_millis(2));
        of_member.get("1").unwrap().is_some()
    });
    assert!(found.is_some());
}

#[test]
fn calls_of_member_act_as_those_of_owner() {
    let dir = tempfile::tempdir().unwrap();
    let handles = [open(dir.path()), open(dir.path())];
    for db in &handles {
        let name = if db.is_owner() { "owner" } else { "member" };
        let tree = db.tree(name).unwrap();
        let mut batch = db.batch();
        batch.put(&tree, "a", "1").put(&tree, "b", "2").put(&tree, "c", "3").delete(&tree, "b");
        assert_eq!(batch.len(), 4);
        batch.commit_with(Durability::Sync).unwrap();
        assert!(db.batch().commit().is_ok());
        assert_eq!(tree.iter().unwrap().count(), 2);
        assert_eq!(tree.range("b"..).unwrap().count(), 1);
        assert_eq!(tree.prefix("a").unwrap().count(), 1);
        assert!(tree.compare_and_set("a", "1", "one").unwrap());
        assert!(!tree.compare_and_set("a", "1", "uno").unwrap());
        assert!(!tree.put_if_absent("a", "x").unwrap());
        assert!(tree.put_if_absent("d", "4").unwrap());
        assert_eq!(tree.insert("d", "four").unwrap().unwrap(), "4");
        assert_eq!(tree.remove("d").unwrap().unwrap(), "four");
        assert_eq!(tree.remove("d").unwrap(), None);
        tree.put("d", "4").unwrap();
        assert!(!tree.compare_and_delete("d", "four").unwrap());
        assert!(tree.compare_and_delete("d", "4").unwrap());
        let before = tree.fetch_update("n", |_| Update::PutWithTtl(b"5".to_vec(), Duration::from_secs(3600)));
        assert_eq!(before.unwrap(), None);
        tree.merge("sum", "add", 5_u64.to_le_bytes()).unwrap();
        tree.merge("sum", "add", 6_u64.to_le_bytes()).unwrap();
        assert_eq!(number(&tree.get("sum").unwrap().unwrap()), 11);
        assert_eq!(tree.multi_get(&["a", "zz"]).unwrap()[1], None);
        assert_eq!(tree.pop_first().unwrap().unwrap().0, "a");
        assert_eq!(tree.pop_last().unwrap().unwrap().0, "sum");
        tree.put_with_ttl("gone", "x", Duration::ZERO).unwrap();
        assert!(!tree.contains("gone").unwrap());
        let large = vec![7; 100_000];
        tree.put_with("large", &large, Durability::None).unwrap();
        assert_eq!(tree.get("large").unwrap().unwrap(), large);
        let snapshot = db.snapshot().unwrap();
        tree.delete_range(..).unwrap();
        assert_eq!(tree.first().unwrap(), None);
        assert!(tree.in_snapshot(&snapshot).unwrap().contains("large").unwrap());
        db.sync().unwrap();
    }
}

#[test]
fn errors_of_member_are_those_of_owner() {
    let dir = tempfile::tempdir().unwrap();
    for db in [open(dir.path()), open(dir.path())] {
        let tree = db.tree("albums").unwrap();
        let long = vec![0; 70_000];
        assert!(matches!(tree.put(&long, "x"), Err(Error::InvalidArgument(_))));
        assert!(matches!(db.tree(""), Err(Error::InvalidArgument(_))));
        assert!(db.open_tree("absent").unwrap_err().is_not_found());
        let other = TreeOptions::new().ttl(Duration::from_secs(1));
        assert!(matches!(db.tree_with("albums", other), Err(Error::InvalidArgument(_))));
        assert!(matches!(tree.merge("k", "no such function", "x"), Err(Error::NotFound(_))));
        assert!(matches!(tree.merge("k", "add", "not 8 bytes"), Err(Error::InvalidArgument(_))));
        let aborted = db.update(|tx| {
            tx.put(&tree.in_transaction(tx)?, "never", "x")?;
            Err::<(), _>(Error::abort("enough"))
        });
        assert!(aborted.unwrap_err().is_aborted());
        let bypass = db.update(|_| tree.put("never", "x"));
        assert!(matches!(bypass, Err(Error::InvalidArgument(_))), "{bypass:?}");
        let nested = db.update(|_| db.update(|_| Ok(())));
        assert!(nested.as_ref().is_err_and(Error::is_invalid_argument), "{nested:?}");
        let pop = db.update(|_| tree.pop_first());
        assert!(pop.as_ref().is_err_and(Error::is_invalid_argument), "{pop:?}");
        assert_eq!(tree.get("never").unwrap(), None);
    }
}

/// Each thread of each handle increments a counter in transactions; none is lost.
#[test]
fn concurrent_transactions_of_members_are_serializable() {
    const HANDLES: usize = 3;
    const EACH: u64 = 60;
    let dir = tempfile::tempdir().unwrap();
    let handles: Vec<_> = (0..HANDLES).map(|_| open(dir.path())).collect();
    let retries = AtomicU32::new(0);
    thread::scope(|scope| {
        for db in &handles {
            scope.spawn(|| {
                let tree = db.tree("counters").unwrap();
                for _ in 0..EACH {
                    let mut runs = 0;
                    db.update(|tx| {
                        runs += 1;
                        let tree = tree.in_transaction(tx)?;
                        let value = tx.get(&tree, "n")?.map_or(0, |value| number(&value));
                        tx.put(&tree, "n", (value + 1).to_le_bytes())
                    })
                    .unwrap();
                    retries.fetch_add(runs - 1, Ordering::Relaxed);
                }
            });
        }
    });
    for db in &handles {
        db.refresh().unwrap();
        let value = db.tree("counters").unwrap().get("n").unwrap().unwrap();
        assert_eq!(number(&value), HANDLES as u64 * EACH);
    }
}

/// A transaction joins the deletions of neighbouring trees, and the owner refused the joined one.
#[test]
fn transaction_of_member_clears_neighbouring_trees() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, member) = (open(dir.path()), open(dir.path()));
    let multi = member.multi_tree("0").unwrap();
    let trees = ["1", "2", "3", "kept"].map(|name| member.tree(name).unwrap());
    for _ in 0..2 {
        trees.iter().for_each(|tree| _ = tree.put("k", "v").unwrap());
        multi.add("k", "v").unwrap();
        member
            .update(|tx| {
                tx.multi_tree(&multi.in_transaction(tx)?).delete_range(..)?;
                trees[..3].iter().try_for_each(|tree| tx.delete_range(&tree.in_transaction(tx)?, ..))
            })
            .unwrap();
        owner.refresh().unwrap();
        assert_eq!(trees.each_ref().map(|tree| tree.count(..).unwrap()), [0, 0, 0, 1]);
        assert_eq!(multi.count(..).unwrap(), 0);
    }
}

/// `begin` and `commit` act as the closure of `update` does, and report a conflict.
#[test]
fn begun_transaction_commits_or_conflicts() {
    let dir = tempfile::tempdir().unwrap();
    let handles = [open(dir.path()), open(dir.path())];
    let other = handles[0].tree("t").unwrap();
    for db in &handles {
        let tree = db.tree("t").unwrap();
        let tx = db.begin().unwrap();
        let own = tree.in_transaction(&tx).unwrap();
        tx.put(&own, "a", "1").unwrap();
        let add = tx.merge_function("add").unwrap();
        tx.merge(&own, "sum", &add, 5_u64.to_le_bytes()).unwrap();
        assert_eq!(tx.get(&own, "a").unwrap().unwrap(), "1");
        assert_eq!(other.get("a").unwrap(), None);
        let committed = tx.commit_with(Durability::Sync).unwrap();
        assert!(committed > 0);
        assert_eq!(other.get("a").unwrap().unwrap(), "1");
        assert_eq!(number(&other.get("sum").unwrap().unwrap()), 5);

        let tx = db.begin().unwrap();
        let own = tree.in_transaction(&tx).unwrap();
        assert_eq!(tx.get(&own, "a").unwrap().unwrap(), "1");
        other.put("a", "2").unwrap();
        tx.put(&own, "b", "never").unwrap();
        assert!(tx.commit().unwrap_err().is_conflict());
        assert_eq!(other.get("b").unwrap(), None);

        let read_only = db.begin().unwrap();
        assert_eq!(read_only.get(&tree.in_transaction(&read_only).unwrap(), "a").unwrap().unwrap(), "2");
        read_only.commit().unwrap();
        drop(db.begin().unwrap());
        other.delete_range(..).unwrap();
    }
}

/// A transaction that began in a member commits in the owner that its process became.
#[test]
fn transaction_outlives_the_owner() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, member) = (open(dir.path()), open(dir.path()));
    let tree = member.tree("t").unwrap();
    tree.put("a", "1").unwrap();
    let (kept, conflicting) = (member.begin().unwrap(), member.begin().unwrap());
    for tx in [&kept, &conflicting] {
        let own = tree.in_transaction(tx).unwrap();
        assert_eq!(tx.get(&own, "a").unwrap().unwrap(), "1");
        tx.put(&own, "a", "2").unwrap();
    }
    owner.close().unwrap();
    tree.put("other", "x").unwrap();
    assert!(member.is_owner());
    // The new owner may not know what changed before it took over.
    if let Err(e) = kept.commit() {
        assert!(e.is_conflict(), "{e}");
        tree.put("a", "2").unwrap();
    }
    assert!(conflicting.commit().unwrap_err().is_conflict());
    assert_eq!(tree.get("a").unwrap().unwrap(), "2");
}

/// A range that was read as empty is a read too.
#[test]
fn insert_into_range_read_by_member_is_a_conflict() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, member) = (open(dir.path()), open(dir.path()));
    let (of_owner, of_member) = (owner.tree("t").unwrap(), member.tree("t").unwrap());
    let mut runs = 0;
    let seen = member
        .update(|tx| {
            runs += 1;
            let tree = of_member.in_transaction(tx)?;
            let seen = tx.range(&tree, "a".."b").count();
            if runs == 1 {
                thread::scope(|scope| scope.spawn(|| of_owner.put("a1", "x")).join().unwrap())?;
            }
            tx.put(&tree, "seen", [seen as u8])?;
            Ok(seen)
        })
        .unwrap();
    assert_eq!((runs, seen), (2, 1));
}

#[test]
fn writes_continue_after_the_owner_closes() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, member) = (open(dir.path()), open(dir.path()));
    let tree = member.tree("t").unwrap();
    tree.put("before", "1").unwrap();
    let snapshot = member.snapshot().unwrap();
    owner.close().unwrap();
    tree.put("after", "2").unwrap();
    assert!(member.is_owner());
    assert_eq!(tree.iter().unwrap().count(), 2);
    assert!(!tree.in_snapshot(&snapshot).unwrap().contains("after").unwrap());
    let next = open(dir.path());
    assert!(!next.is_owner());
    next.tree("t").unwrap().put("third", "3").unwrap();
    assert_eq!(tree.get("third").unwrap().unwrap(), "3");
}

#[test]
fn database_open_in_another_way_is_no_owner_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder().open(dir.path()).unwrap();
    let refused = builder().shared_timeout(Duration::from_millis(200)).open_shared(dir.path()).unwrap_err();
    assert!(matches!(refused, Error::NoOwner { .. }), "{refused}");
    assert!(refused.is_retryable());
    db.close().unwrap();
    open(dir.path());
    assert!(matches!(builder().shared_timeout(Duration::ZERO).open_shared(dir.path()), Err(Error::InvalidArgument(_))));
    let absent = builder().create(false).open_shared(dir.path().join("absent")).unwrap_err();
    assert!(absent.is_not_found(), "{absent}");
}

/// The owner's handle of `state` is the shared database itself. Its close left an owner that
/// refused all calls, and that no process could replace.
#[test]
fn close_of_state_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let handles = [open(dir.path()), open(dir.path())];
    for db in &handles {
        let tree = db.tree("t").unwrap();
        tree.put("a", "1").unwrap();
        let refused = db.state().unwrap().close();
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
        tree.put("b", "2").unwrap();
        db.refresh().unwrap();
        assert!(matches!(db.state().unwrap().close(), Err(Error::InvalidArgument(_))));
        assert_eq!(tree.iter().unwrap().count(), 2);
    }
    let [owner, member] = handles;
    owner.close().unwrap();
    member.tree("t").unwrap().put("c", "3").unwrap();
}

/// The second of two closes returned at once, while the first still held the lock.
#[test]
fn second_close_waits_for_the_first() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        let tree = db.tree("t").unwrap();
        (0..2000_u32).for_each(|n| _ = tree.put(n.to_be_bytes(), [7; 500]).unwrap());
        drop(tree);
        let other = db.clone();
        let both = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                db.close().unwrap();
            });
            scope.spawn(|| {
                both.wait();
                thread::sleep(Duration::from_micros(100));
                other.close().unwrap();
                // Fails with `Locked` while the first close goes on.
                builder().open(dir.path()).unwrap();
            });
        });
    }
}

/// A closure of one database may write to another one.
#[test]
fn update_of_member_permits_writes_to_another_database() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let _owners = dirs.each_ref().map(|dir| open(dir.path()));
    let [one, other] = dirs.each_ref().map(|dir| open(dir.path()));
    assert!(!one.is_owner() && !other.is_owner());
    let (tree, of_other) = (one.tree("t").unwrap(), other.tree("t").unwrap());
    one.update(|tx| {
        of_other.put("k", "v")?;
        let bypass = tree.put("k", "v");
        assert!(matches!(bypass, Err(Error::InvalidArgument(_))), "{bypass:?}");
        tx.put(&tree.in_transaction(tx)?, "k", "v")
    })
    .unwrap();
    assert_eq!(of_other.get("k").unwrap().unwrap(), "v");
    assert_eq!(tree.get("k").unwrap().unwrap(), "v");
}

/// Conflicts of the owner were repeated a thousand times, whatever the timeout.
#[test]
fn update_with_endless_conflicts_ends_at_the_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let short = || builder().shared_timeout(Duration::from_secs(1)).open_shared(dir.path()).unwrap();
    let handles = [short(), short()];
    let writer = open(dir.path());
    let written = writer.tree("t").unwrap();
    for db in &handles {
        let tree = db.tree("t").unwrap();
        let began = Instant::now();
        let conflict = db.update(|tx| {
            let tree = tree.in_transaction(tx)?;
            tx.get(&tree, "k")?;
            thread::sleep(Duration::from_millis(20));
            thread::scope(|scope| scope.spawn(|| written.put("k", "v")).join().unwrap())?;
            tx.put(&tree, "k", "mine")
        });
        // The time of a member may also end before its next commit.
        let is_refused = |e: &Error| e.is_conflict() || matches!(e, Error::NoOwner { .. });
        assert!(conflict.as_ref().is_err_and(is_refused), "{conflict:?}");
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    }
}
