//! Files that an open syncs or removes, and sizes that it accepts.

use crate::{
    db::{
        Db, Settings,
        tests_common::{DIR, fault, killed, mem, open, small},
    },
    platform::{
        OpenMode,
        fault_vfs::{FaultVfs, Operation},
    },
};
use std::path::Path;

#[test]
fn replay_of_blobs_syncs_them_before_the_new_log() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(small(&fault(&vfs))).unwrap();
    let tree = db.tree("t").unwrap();
    tree.put(b"k", vec![7; 1_000]).unwrap();
    let vfs = killed(&vfs);
    drop((tree, db));
    let db = open(small(&fault(&vfs))).unwrap();
    let journal = vfs.journal();
    let of = |extension: &str, operation: Operation| {
        journal.iter().position(|(o, p)| *o == operation && p.extension().is_some_and(|e| e == extension))
    };
    let blob = of("blob", Operation::Sync).expect("the blob file is synced");
    let epoch = of("wal", Operation::Create).unwrap();
    assert!(blob < epoch, "{journal:?}");
    assert_eq!(db.tree("t").unwrap().get(b"k").unwrap().map(Vec::from), Some(vec![7; 1_000]));
}

#[test]
fn open_with_empty_blob_file_removes_it() {
    let vfs = mem();
    open(small(&vfs)).unwrap().close().unwrap();
    vfs.open(&Path::new(DIR).join("000900.blob"), OpenMode::CreateNew).unwrap();
    open(small(&vfs)).unwrap().close().unwrap();
    let left = vfs.list(Path::new(DIR)).unwrap();
    assert!(left.iter().all(|e| !e.name.ends_with(".blob")), "{left:?}");
}

/// Only the last directory that an open made was durable.
#[test]
fn open_of_nested_directory_syncs_each_new_parent() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let dir = Path::new(DIR).join("one/two/three");
    drop(Db::open_with(small(&fault(&vfs)), &dir).unwrap());
    let synced: Vec<_> =
        vfs.journal().into_iter().filter(|(op, _)| *op == Operation::SyncDir).map(|(_, path)| path).collect();
    for made in dir.ancestors().take_while(|made| *made != Path::new(DIR)) {
        assert!(synced.iter().any(|path| Some(path.as_path()) == made.parent()), "{} in {synced:?}", made.display());
    }
}

#[test]
fn open_with_extreme_sizes_succeeds() {
    let (memory_min, memory_max) = (64 << 10, usize::MAX >> 8);
    for (partition_bytes, memory) in [(u64::MAX, memory_min), (4096, memory_min), (4096, memory_max)] {
        let db = open(Settings { partition_bytes: Some(partition_bytes), memory, ..small(&mem()) }).unwrap();
        let tree = db.tree("t").unwrap();
        for i in 0..200u32 {
            tree.put(i.to_be_bytes(), b"v").unwrap();
        }
        db.flush().unwrap();
        assert_eq!(tree.iter().count(), 200);
    }
}
