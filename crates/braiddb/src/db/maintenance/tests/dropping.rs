//! Dropping several trees at once.

use crate::{
    base::Error,
    db::{
        Db, Durability, Settings,
        tests_common::{DIR, fault, killed, open, small},
    },
    platform::fault_vfs::{FaultVfs, Operation},
};
use std::{io, path::Path};

fn names(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| format!("tree {number:03}")).collect()
}

fn database(vfs: &FaultVfs, trees: u32) -> Db {
    let roomy = Settings { memtable_bytes: Some(1 << 20), log_segment_bytes: 256 << 10, ..small(&fault(vfs)) };
    let db = open(Settings { durability: Durability::Sync, ..roomy }).unwrap();
    let mut batch = db.batch();
    for name in names(0..trees) {
        let tree = db.tree(&name).unwrap();
        (0..3_u8).for_each(|key| _ = batch.put(&tree, [key], &name));
    }
    batch.commit_with(Durability::Sync).unwrap();
    db
}

/// Regression: each tree took its own sync; ten thousand took 23 seconds.
#[test]
fn drop_trees_of_many_names_takes_one_commit_and_one_sync() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = database(&vfs, 200);
    let handle = db.open_tree("tree 007").unwrap();
    let before = db.stats();
    let syncs = vfs.journal().iter().filter(|(operation, _)| *operation == Operation::Sync).count();
    let mut dropped = names(0..190);
    dropped.push("tree 003".to_owned());
    db.drop_trees(&dropped).unwrap();
    let synced = vfs.journal().iter().filter(|(operation, _)| *operation == Operation::Sync).count() - syncs;
    assert_eq!(db.stats().commits - before.commits, 1);
    assert!(synced <= 2, "{synced} syncs");
    assert!(matches!(handle.get([0]), Err(Error::NotFound(_))));
    let left: Vec<String> = db.trees().unwrap().into_iter().map(|tree| tree.name).collect();
    assert_eq!(left, names(190..200));
    // The drop survives a kill, and a tree with an old name is a new tree.
    for reopened in [open(small(&fault(&killed(&vfs)))).unwrap(), db] {
        let left: Vec<String> = reopened.trees().unwrap().into_iter().map(|tree| tree.name).collect();
        assert_eq!(left, names(190..200));
        assert!(reopened.tree("tree 003").unwrap().first().unwrap().is_none());
        reopened.compact().unwrap();
        assert_eq!(reopened.open_tree("tree 195").unwrap().iter().count(), 3);
    }
}

#[test]
fn drop_trees_with_a_name_that_is_missing_drops_none() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = database(&vfs, 3);
    let handle = db.open_tree("tree 000").unwrap();
    assert!(
        matches!(db.drop_trees(&["tree 000", "tree 777"]), Err(Error::NotFound(name)) if name.contains("tree 777"))
    );
    assert_eq!((handle.iter().count(), db.trees().unwrap().len()), (3, 3));
    db.drop_trees::<&str>(&[]).unwrap();
    assert_eq!(db.trees().unwrap().len(), 3);
}

#[test]
fn drop_trees_that_the_log_has_no_room_for_drops_none() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = database(&vfs, 100);
    let handles: Vec<_> = names(0..100).iter().map(|name| db.open_tree(name).unwrap()).collect();
    vfs.fail(Operation::Create, 0, u32::MAX, io::ErrorKind::StorageFull);
    let tree = &handles[0];
    let filled = (0..20_000_u32).find_map(|key| tree.put(key.to_be_bytes(), key.to_be_bytes().repeat(16)).err());
    assert!(filled.is_some_and(|e| e.is_disk_full()));
    let refused = db.drop_trees(&names(0..100));
    vfs.heal();
    assert!(refused.unwrap_err().is_disk_full());
    assert_eq!(db.trees().unwrap().len(), 100);
    handles.iter().for_each(|handle| assert!(handle.put(b"again", b"").is_ok()));
    db.drop_trees(&names(0..100)).unwrap();
    assert!(db.trees().unwrap().is_empty());
}
