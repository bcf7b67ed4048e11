//! Flushes at their limits: concurrent ones, failed syncs, more versions than a run holds.

#![expect(clippy::disallowed_methods, reason = "tests of threads")]

use crate::{
    codec::Compression,
    db::{
        Settings,
        files::names::SYNC_FAILED_NAME,
        tests_common::{DIR, fault, killed, mem, noise, open, small},
    },
    platform::fault_vfs::{FaultVfs, Operation},
};
use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

#[test]
fn concurrent_flushes_report_no_full_disk() {
    let db = open(Settings { memtable_bytes: Some(2 << 10), ..small(&mem()) }).unwrap();
    let tree = db.tree("t").unwrap();
    let write = |thread: u32| {
        let tree = tree.clone();
        move || {
            (0..1_000u32).for_each(|i| {
                tree.put([thread, i].map(u32::to_be_bytes).concat(), [7; 100]).unwrap();
            })
        }
    };
    let threads: Vec<_> = (0..4).map(|thread| std::thread::spawn(write(thread))).collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(tree.iter().count(), 4_000);
}

/// One key had more versions, pinned by snapshots, than a run has blocks. The flush failed.
#[test]
fn flush_of_more_versions_than_a_run_holds_writes_several() {
    let settings = Settings {
        memory: 256 << 20,
        memtable_bytes: Some(64 << 20),
        partition_bytes: Some(1 << 30),
        log_segment_bytes: 1 << 20,
        block_bytes: 64,
        compression: Compression::None,
        ..small(&mem())
    };
    let db = open(settings).unwrap();
    let tree = db.tree("t").unwrap();
    for key in [b"a", b"z"] {
        tree.put(key, b"once").unwrap();
    }
    let count = 61_000u32;
    let value = |i: u32| [i.to_be_bytes().as_slice(), &[7; 80]].concat();
    let mut snapshots = Vec::new();
    for i in 0..count {
        tree.put(b"k", value(i)).unwrap();
        snapshots.push(db.snapshot());
    }
    let check = || {
        for i in (0..count).step_by(4_999) {
            let found = snapshots[i as usize].get(&tree, b"k").unwrap();
            assert_eq!(found.map(Vec::from), Some(value(i)), "version {i}");
        }
        let keys: Vec<u8> = snapshots[900].iter(&tree).rev().map(|p| p.unwrap().0[0]).collect();
        assert_eq!(keys, b"zka");
    };
    db.flush().unwrap();
    let stats = db.stats();
    assert_eq!((stats.partitions[0].loose.len(), stats.merges), (2, 1), "{stats:?}");
    check();
    assert!(db.verify().unwrap().problems.is_empty());
    snapshots.drain(1..);
    tree.put(b"k", b"last").unwrap();
    db.compact().unwrap();
    assert_eq!(snapshots[0].get(&tree, b"k").unwrap().map(Vec::from), Some(value(0)));
    assert_eq!(tree.get(b"k").unwrap().as_deref(), Some(&b"last"[..]));
    let stats = db.stats();
    let entries: u64 = stats.partitions[0].runs.iter().chain(&stats.partitions[0].loose).map(|r| r.entries).sum();
    assert!(stats.failure.is_none() && entries < 10, "{stats:?}");
}

/// A sync of blobs failed without a marker. After the next open the pages were clean, so a sync did
/// nothing, and all counted as durable.
#[test]
fn flush_with_failed_blob_sync_leaves_marker() {
    let value = noise(7).repeat(3);
    let begin = |vfs: &FaultVfs| open(Settings { blob_threshold: 1000, ..small(&fault(vfs)) }).unwrap();
    let put = |vfs: &FaultVfs| {
        let db = begin(vfs);
        db.tree("t").unwrap().put(b"key", &value).unwrap();
        (db, vfs.journal().len())
    };
    let vfs = FaultVfs::new(Path::new(DIR));
    let (db, before) = put(&vfs);
    db.flush().unwrap();
    let is_sync = |(operation, _): &&(Operation, PathBuf)| *operation == Operation::Sync;
    let is_blob = |(_, path): &(Operation, PathBuf)| path.extension().is_some_and(|extension| extension == "blob");
    let after = vfs.journal()[before..].iter().filter(is_sync).position(is_blob).expect("a flush syncs blobs");

    let vfs = FaultVfs::new(Path::new(DIR));
    let (db, _) = put(&vfs);
    vfs.fail(Operation::Sync, after as u32, 1, ErrorKind::Other);
    assert!(db.flush().is_err());
    assert_eq!(vfs.failures_to_come(), 0);
    let marker = Path::new(DIR).join(SYNC_FAILED_NAME);
    assert!(vfs.files().contains_key(&marker), "no word of it");
    let vfs = killed(&vfs);
    let db = begin(&vfs);
    assert!(db.tree("t").unwrap().get(b"key").unwrap().as_deref() == Some(&value[..]));
    let is_written = |entry: &(Operation, PathBuf)| entry.0 == Operation::Write && is_blob(entry);
    assert!(vfs.journal().iter().any(is_written), "what the system takes for clean is written once more");
    assert!(!vfs.files().contains_key(&marker));
}
