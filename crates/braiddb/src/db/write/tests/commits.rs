//! Commits that race with a close, a drop of their tree, or have keys beyond the limits.

#![expect(clippy::disallowed_methods, reason = "tests of threads and of how long things take")]

use crate::{
    base::EntryKind,
    commit::RawBatch,
    db::{
        Durability, Settings,
        tests_common::{mem, open, small},
        write::pipeline::{self, CommitCondition},
    },
};

#[test]
fn delete_range_with_overlong_bound_keeps_other_keys() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    tree.put(b"a", b"1").unwrap();
    tree.put(b"c", b"1").unwrap();
    let end = vec![b'b'; 300_000];
    let _ = tree.delete_range(b"a".to_vec()..end.clone());
    let _ = tree.delete_range(end..b"bz".to_vec());
    db.flush().unwrap();
    drop(tree);
    db.close().unwrap();
    let db = open(small(&vfs)).unwrap();
    assert_eq!(db.tree("t").unwrap().get(b"c").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn close_during_writes_keeps_acknowledged_commits() {
    for _ in 0..30 {
        let vfs = mem();
        let db = open(Settings { memtable_bytes: Some(1 << 20), log_segment_bytes: 1 << 20, ..small(&vfs) }).unwrap();
        let tree = db.tree("t").unwrap();
        let writers: Vec<_> = (0..3u32)
            .map(|thread| {
                let tree = tree.clone();
                std::thread::spawn(move || {
                    (0u32..).take_while(|i| tree.put([thread, *i].map(u32::to_be_bytes).concat(), b"v").is_ok()).count()
                })
            })
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(3));
        drop(tree);
        db.close().unwrap();
        let again = open(small(&vfs)).unwrap();
        let acknowledged: usize = writers.into_iter().map(|w| w.join().unwrap()).sum();
        assert_eq!(again.tree("t").unwrap().iter().count(), acknowledged);
    }
}

/// A put checked its tree before the drop, got a number above the range delete, and remained
/// forever.
#[test]
fn commit_into_tree_dropped_meanwhile_is_refused_whole() {
    let db = open(small(&mem())).unwrap();
    let (tree, other) = (db.tree("t").unwrap(), db.tree("u").unwrap());
    let before = db.stats();
    let mut batch = RawBatch::default();
    for state in [tree.state(), other.state()] {
        batch.push(EntryKind::Value, &[&state.id.first_key(), b"k"], b"v");
    }
    let prepared = batch.prepare().unwrap();
    let looks = std::cell::Cell::new(0);
    let drop_after_look = || {
        tree.state().check()?;
        looks.set(looks.get() + 1);
        db.drop_tree("t")
    };
    let error =
        pipeline::commit_checked(db.engine(), prepared, Durability::Buffered, CommitCondition::None, drop_after_look)
            .unwrap_err();
    assert_eq!(error.to_string(), tree.get(b"k").unwrap_err().to_string());
    assert!(error.is_not_found() && looks.get() == 1, "{error}");
    assert_eq!(other.get(b"k").unwrap(), None, "nothing of the batch is applied");
    assert_eq!(db.stats().last_sequence, before.last_sequence + 1, "only the drop");
    let mut batch = RawBatch::default();
    batch.push(EntryKind::Value, &[&other.state().id.first_key(), b"k"], b"v");
    let prepared = batch.prepare().unwrap();
    let looks = std::cell::Cell::new(0);
    let drop_another = || {
        db.tree("x")?;
        looks.set(looks.get() + 1);
        if looks.get() == 1 { db.drop_tree("x") } else { other.state().check() }
    };
    pipeline::commit_checked(db.engine(), prepared, Durability::Buffered, CommitCondition::None, drop_another).unwrap();
    assert_eq!(looks.get(), 2);
    assert_eq!(other.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
}
