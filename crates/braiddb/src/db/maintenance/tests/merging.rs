//! Merges: which runs and partitions they take, and that damage does not stop them.

use crate::{
    codec::Compression,
    db::{
        Durability, Settings,
        tests_common::{DIR, mem, noise, open, small},
    },
    platform::OpenMode,
    table::KeyBlocks,
};
use std::{path::Path, sync::Arc};

/// A merge of a run shared by partitions begins at the partition's first entry, even if that is
/// stale.
#[test]
fn merge_of_shared_run_keeps_snapshot_before_delete_range() {
    let db = open(small(&mem())).unwrap();
    let tree = db.tree("t").unwrap();
    let key = |i: u32| format!("{i:06}").into_bytes();
    for i in 0..6_000 {
        tree.put(key(i), format!("{i:050}")).unwrap();
    }
    db.flush().unwrap();
    db.compact().unwrap();
    let partitions = db.stats().partitions;
    assert!(partitions.len() > 2, "{}", partitions.len());
    let first: u32 = std::str::from_utf8(&partitions[1].first_key[4..]).unwrap().parse().unwrap_or_else(|_| {
        let text = std::str::from_utf8(&partitions[1].first_key[4..]).unwrap();
        format!("{text:0<6}").parse().unwrap()
    });
    // A segment of the shared run's own view begins where the partition does.
    for i in first - 32..first {
        tree.put(key(i), b"other").unwrap();
    }
    for i in first..first + 40 {
        tree.put(key(i), b"seen").unwrap();
    }
    let before = db.snapshot();
    tree.delete_range(key(first - 10)..key(first + 40)).unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    for i in first..first + 40 {
        assert_eq!(before.get(&tree, key(i)).unwrap().as_deref(), Some(&b"seen"[..]), "key {i} of {first}");
    }
    assert!(tree.get(key(first)).unwrap().is_none());
}

#[test]
fn compact_after_dropping_covered_runs_merges_the_others() {
    let db = open(Settings { partition_bytes: Some(1 << 30), ..small(&mem()) }).unwrap();
    let tree = db.tree("t").unwrap();
    db.flush().unwrap();
    for (from, to) in [(0, 100u32), (200, 300), (300, 400)] {
        for i in from..to {
            tree.put(i.to_be_bytes(), b"v").unwrap();
        }
        db.flush().unwrap();
    }
    tree.delete_range(0u32.to_be_bytes()..150u32.to_be_bytes()).unwrap();
    db.compact().unwrap();
    let stats = db.stats();
    let runs: Vec<_> = stats.partitions.iter().flat_map(|p| p.runs.iter().chain(&p.loose)).collect();
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert_eq!(tree.iter().count(), 200);
}

#[test]
fn merge_of_partition_with_damaged_value_succeeds() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    for i in 0..100u32 {
        tree.put(i.to_be_bytes(), noise(i)).unwrap();
    }
    db.flush().unwrap();
    let name =
        vfs.list(Path::new(DIR)).unwrap().into_iter().filter(|e| e.name.ends_with(".blob")).map(|e| e.name).min();
    let file = vfs.open(&Path::new(DIR).join(name.unwrap()), OpenMode::ReadWrite).unwrap();
    for at in (64..file.len().unwrap()).step_by(16) {
        file.write_at(&[0xa5; 4], at).unwrap();
    }
    let is_damaged = |i: u32| tree.get(i.to_be_bytes()).is_err();
    let damaged: Vec<u32> = (0..100).filter(|&i| is_damaged(i)).collect();
    assert!(damaged.len() > 2 && damaged.len() < 90, "{damaged:?}");
    for &i in &damaged[1..] {
        tree.delete(i.to_be_bytes()).unwrap();
    }
    for round in 0..20u32 {
        tree.put((1_000 + round).to_be_bytes(), b"new").unwrap();
        db.compact().unwrap();
    }
    let stats = db.stats();
    let loose = stats.partitions.iter().map(|p| p.loose.len()).max().unwrap();
    assert!(loose <= 4, "{stats:?}");
}

/// The unindexed runs of a damaged partition throttled all writers forever.
#[test]
fn damaged_partition_is_reported_and_throttles_no_writer() {
    let vfs = mem();
    let settings = |vfs| Settings {
        partition_bytes: Some(4 << 20),
        blob_threshold: 1 << 20,
        key_blocks: KeyBlocks::Never,
        ..small(&vfs)
    };
    let db = open(settings(Arc::clone(&vfs))).unwrap();
    let tree = db.tree("t").unwrap();
    for i in 0..2_000u32 {
        tree.put(i.to_be_bytes(), noise(i)).unwrap();
    }
    db.compact().unwrap();
    drop(tree);
    db.close().unwrap();
    let run = vfs.list(Path::new(DIR)).unwrap().into_iter().find(|e| e.name.ends_with(".run")).unwrap();
    let file = vfs.open(&Path::new(DIR).join(run.name), OpenMode::ReadWrite).unwrap();
    for at in (run.len / 8..run.len / 4).step_by(128) {
        file.write_at(&[0xa5; 4], at).unwrap();
    }
    let db = open(settings(vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    let overwrite_some = |i: u32| {
        for j in 0..50 {
            tree.put((j * 40 + i % 40).to_be_bytes(), noise(i)).unwrap();
        }
        db.flush().unwrap();
    };
    let mut rounds = 0..500u32;
    rounds.by_ref().take_while(|_| db.stats().damaged_partitions.is_empty()).for_each(overwrite_some);
    rounds.take(40).for_each(overwrite_some);
    let stats = db.stats();
    assert!(stats.partitions[0].loose.len() > 32, "{stats:?}");
    assert_eq!(stats.damaged_partitions.len(), 1);
    assert!(stats.pressure_per_mille < 500 && stats.slowed_us < 100_000, "{stats:?}");
    let notes = db.verify().unwrap().notes;
    assert!(notes.iter().any(|note| note.contains("not merged any more")), "{notes:?}");
}

/// A partition with one huge key could not be split, but was rewritten at each flush.
#[test]
fn flush_into_unsplittable_partition_does_not_rewrite_it() {
    let settings = Settings {
        memtable_bytes: Some(2 << 20),
        blob_threshold: 1 << 20,
        compression: Compression::None,
        ..small(&mem())
    };
    let db = open(settings).unwrap();
    let tree = db.tree("t").unwrap();
    tree.put(b"z", [7; 256 << 10]).unwrap();
    for i in 0..24u8 {
        tree.put([b'a', i], [i; 100]).unwrap();
        db.flush().unwrap();
    }
    let written = db.stats().run_bytes_written;
    assert!(written < 5 * (256 << 10), "{written} bytes written in 24 small flushes");
    assert_eq!(db.stats().partitions.len(), 1);
    tree.put(b"b", [7; 256 << 10]).unwrap();
    db.flush().unwrap();
    tree.put(b"c", b"").unwrap();
    db.flush().unwrap();
    assert!(db.stats().partitions.len() > 1, "{:?}", db.stats());
    assert_eq!(tree.iter().count(), 27);
}

/// A split cuts by the bytes of the open run. These began at 0 again when a run had its maximum
/// blocks.
#[test]
fn partition_with_runs_cut_by_blocks_is_split() {
    let settings = Settings {
        memory: 256 << 20,
        memtable_bytes: Some(8 << 20),
        partition_bytes: Some(8 << 20),
        log_segment_bytes: 1 << 20,
        block_bytes: 64,
        compression: Compression::None,
        ..small(&mem())
    };
    let db = open(settings).unwrap();
    let tree = db.tree("t").unwrap();
    for from in (0..300_000u32).step_by(1_000) {
        let mut batch = db.batch();
        for i in from..from + 1_000 {
            batch.put(&tree, i.to_be_bytes(), [7; 40]);
        }
        batch.commit_with(Durability::Buffered).unwrap();
    }
    db.compact().unwrap();
    let stats = db.stats();
    let bytes: u64 = stats.partitions.iter().flat_map(|p| p.runs.iter().chain(&p.loose)).map(|r| r.bytes).sum();
    assert!(bytes > 16 << 20, "{bytes}");
    assert!(stats.partitions.len() > 1, "{bytes} bytes in one partition of at most {} bytes", 8 << 20);
}

/// File bytes decide when to split a partition, but uncompressed blocks decide when to cut a run.
/// So compressible data made more runs than a view can have, and each merge failed.
#[test]
fn compact_of_compressible_data_keeps_database_writable() {
    let settings = Settings {
        memory: 256 << 20,
        memtable_bytes: Some(32 << 20),
        partition_bytes: Some(128 << 20),
        log_segment_bytes: 16 << 20,
        block_bytes: 64,
        loose_runs: 8,
        ..small(&mem())
    };
    let db = open(settings).unwrap();
    let tree = db.tree("t").unwrap();
    for from in (0..1_800_000u32).step_by(1_000) {
        let mut batch = db.batch();
        for i in from..from + 1_000 {
            batch.put(&tree, i.to_be_bytes(), [7; 60]);
        }
        batch.commit_with(Durability::Buffered).unwrap();
    }
    db.compact().unwrap();
    assert_eq!(db.stats().failure, None);
}
