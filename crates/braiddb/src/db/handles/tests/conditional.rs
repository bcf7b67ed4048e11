//! Versions and atomic updates of one key.

use crate::{
    base::Error,
    db::{
        Db, Settings, Update, Version,
        tests_common::{bounded, mem, open, small},
    },
};
use std::collections::BTreeSet;

/// A version changes only with a write.
#[test]
fn a_version_lasts_as_long_as_the_record_is_not_written() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    let written = tree.put(b"k", b"1").unwrap();
    tree.put(b"large", vec![7; 3000]).unwrap();
    let first = tree.get_versioned(b"k").unwrap().unwrap();
    assert_eq!((&*first.0, first.1.sequence()), (&b"1"[..], written));
    assert_eq!(db.version_of(written), first.1);
    let large = tree.get_versioned(b"large").unwrap().unwrap();
    assert_eq!(large.0.len(), 3000, "a value in a blob");
    let before = db.snapshot();
    db.flush().unwrap();
    assert_eq!(tree.get_versioned(b"k").unwrap().unwrap(), first);
    db.compact().unwrap();
    assert_eq!(tree.get_versioned(b"k").unwrap().unwrap(), first);
    let second = tree.put_if_version(b"k", b"2", first.1).unwrap().unwrap();
    assert!(second > first.1);
    assert_eq!(before.get_versioned(&tree, b"k").unwrap().unwrap(), first);
    let tx = db.begin().unwrap();
    assert_eq!(tx.get_versioned(&tree, b"k").unwrap().unwrap().1, Some(second));
    tx.put(&tree, b"k", b"own").unwrap();
    assert_eq!(tx.get_versioned(&tree, b"k").unwrap().unwrap().1, None);
    drop((tx, before, tree));
    db.close().unwrap();
    for read_only in [true, false] {
        let db = open(Settings { read_only, ..small(&vfs) }).unwrap();
        let tree = db.tree("t").unwrap();
        assert_eq!(
            tree.get_versioned(b"k").unwrap().unwrap(),
            (crate::db::record::bytes::Value::new(b"2".to_vec()), second)
        );
        assert_eq!(tree.get_versioned(b"large").unwrap().unwrap(), large);
    }
    let other = open(small(&mem())).unwrap();
    other.tree("t").unwrap().put(b"k", b"1").unwrap();
    assert_ne!(other.version_of(written), first.1);
}

#[test]
fn conditions_are_kept() {
    let db = open(small(&mem())).unwrap();
    let tree = db.tree("t").unwrap();
    let get = || tree.get(b"k").unwrap().map(|value| value.to_vec());
    let version = || tree.get_versioned(b"k").unwrap().unwrap().1;
    let first = tree.put_if_absent(b"k", b"1").unwrap().unwrap();
    assert_eq!(first, version());
    assert_eq!(tree.put_if_absent(b"k", b"2").unwrap(), None);
    assert_eq!(get(), Some(b"1".to_vec()));
    let commits = db.stats().commits;
    tree.put(b"k", b"3").unwrap();
    assert_eq!(tree.put_if_version(b"k", b"4", first).unwrap(), None);
    assert_eq!(tree.delete_if_version(b"k", first).unwrap(), None);
    assert_eq!(tree.compare_exchange(b"k", Some(b"1"), Some(b"5")).unwrap(), None);
    assert_eq!(tree.compare_exchange(b"k", None, Some(b"5")).unwrap(), None);
    assert_eq!((get(), db.stats().commits), (Some(b"3".to_vec()), commits + 1), "what is not done commits nothing");
    assert_eq!(tree.compare_exchange(b"k", Some(b"3"), Some(b"5")).unwrap(), Some(version()));
    assert!(tree.delete_if_version(b"k", version()).unwrap().is_some());
    assert_eq!(get(), None);
    assert_eq!(tree.put_if_version(b"k", b"6", first).unwrap(), None, "it is not there");
    assert!(tree.compare_exchange(b"k", None, Some(b"7")).unwrap().is_some());
    assert!(tree.compare_exchange(b"k", Some(b"7"), None).unwrap().is_some());
    assert_eq!(get(), None);
    assert_eq!(tree.fetch_update(b"k", |_| Update::Put(vec![8; 2000])).unwrap(), None);
    let appended = tree.fetch_update(b"k", |value| Update::Put([value.unwrap(), b"9"].concat())).unwrap();
    assert_eq!((appended.unwrap().len(), get().unwrap().len()), (2000, 2001));
    assert!(tree.fetch_update(b"k", |_| Update::Keep).unwrap().is_some());
    assert!(tree.fetch_update(b"k", |_| Update::Delete).unwrap().is_some());
    assert_eq!(get(), None);
    assert!(matches!(tree.put_if_absent(vec![0; 70_000], b""), Err(Error::InvalidArgument(_))));
    let again = tree.put_if_absent(b"k", b"1").unwrap().unwrap();
    assert!(again > first && tree.put_if_version(b"k", b"", first).unwrap().is_none());
}

/// Exactly one competing thread wins, and no update is lost.
#[test]
fn conditions_hold_between_threads() {
    const THREADS: u64 = 4;
    let db = open(Settings { background_threads: 1, ..small(&mem()) }).unwrap();
    let tree = db.tree("t").unwrap();
    bounded("threads on one key", move || {
        let run = |db: &Db, id: u64| {
            let (db, mut mine) = (db.clone(), BTreeSet::<Version>::new());
            #[expect(clippy::disallowed_methods, reason = "a test of threads")]
            std::thread::spawn(move || {
                let tree = db.tree("t").unwrap();
                let mut taken = 0;
                for number in 0..400_u64 {
                    let count = |value: Option<&[u8]>| value.map_or(0, |v| u64::from_le_bytes(v.try_into().unwrap()));
                    tree.fetch_update(b"n", |value| Update::Put((count(value) + 1).to_le_bytes().to_vec())).unwrap();
                    let slot = number.to_be_bytes();
                    if let Some(version) = tree.put_if_absent(slot, id.to_le_bytes()).unwrap() {
                        taken += 1;
                        mine.insert(version);
                        assert_eq!(tree.get(slot).unwrap().as_deref(), Some(&id.to_le_bytes()[..]));
                    }
                    let known = tree.get_versioned(b"v").unwrap();
                    let done = match known {
                        Some((_, version)) => tree.put_if_version(b"v", number.to_le_bytes(), version).unwrap(),
                        None => tree.put_if_absent(b"v", number.to_le_bytes()).unwrap(),
                    };
                    mine.extend(done);
                    if number % 50 == 0 {
                        db.flush().unwrap();
                    }
                }
                (taken, mine)
            })
        };
        let threads: Vec<_> = (0..THREADS).map(|id| run(&db, id)).collect();
        let (mut taken, mut versions, mut all) = (0, BTreeSet::new(), 0);
        for thread in threads {
            let (mine, own) = thread.join().unwrap();
            taken += mine;
            all += own.len();
            versions.extend(own);
        }
        assert_eq!(taken, 400, "each is taken once");
        assert_eq!(versions.len(), all, "each version is one write's");
        assert_eq!(tree.get(b"n").unwrap().as_deref(), Some(&(THREADS * 400).to_le_bytes()[..]));
    });
}

#[test]
fn an_update_that_is_in_its_own_way_ends() {
    let db = open(small(&mem())).unwrap();
    let tree = db.tree("t").unwrap();
    let mut calls = 0;
    let refused = tree.fetch_update(b"k", |_| {
        calls += 1;
        tree.put(b"k", b"inner").unwrap();
        Update::Put(b"outer".to_vec())
    });
    assert!(refused.unwrap_err().is_conflict());
    assert_eq!(calls, 1001);
    assert_eq!(tree.get(b"k").unwrap().as_deref(), Some(&b"inner"[..]));
}
