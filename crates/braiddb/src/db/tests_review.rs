//! Tests of defects found by a review.

#![expect(clippy::disallowed_methods, reason = "tests of threads and of how long things take")]

use super::{
    Batch, Durability, Settings, WatchOptions,
    files::names::SYNC_FAILED_NAME,
    tests_common::{DIR, fault, killed, mem, open, small},
    write::pipeline::CommitCondition,
};
use crate::{
    base::Error,
    codec::Compression,
    platform::{
        OpenMode, Runtime, SystemRuntime, Vfs,
        fault_vfs::{FaultVfs, Operation},
    },
    table::KeyBlocks,
};
use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
};

#[test]
fn a_range_delete_up_to_an_overlong_key_does_no_harm() {
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

/// A merge of a run shared by partitions begins at the partition's first entry, even if that is
/// stale.
#[test]
fn a_merge_of_a_shared_run_keeps_what_a_snapshot_sees_before_a_range_delete() {
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
fn replayed_blobs_are_synced_before_the_log_says_that_they_are_durable() {
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
fn an_empty_blob_file_that_a_crash_left_is_removed() {
    let vfs = mem();
    open(small(&vfs)).unwrap().close().unwrap();
    vfs.open(&Path::new(DIR).join("000900.blob"), OpenMode::CreateNew).unwrap();
    open(small(&vfs)).unwrap().close().unwrap();
    let left = vfs.list(Path::new(DIR)).unwrap();
    assert!(left.iter().all(|e| !e.name.ends_with(".blob")), "{left:?}");
}

#[test]
fn closing_waits_for_no_worker_that_sleeps() {
    let start = std::time::Instant::now();
    for _ in 0..40 {
        let db = open(Settings { background_threads: 2, ..small(&mem()) }).unwrap();
        db.tree("t").unwrap().put(b"k", b"v").unwrap();
        db.close().unwrap();
    }
    let took = start.elapsed();
    assert!(took.as_millis() < 900, "{took:?}");
}

#[test]
fn enormous_and_tiny_sizes_are_taken() {
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

#[test]
fn a_manifest_that_finds_no_space_to_be_rewritten_can_be_tried_again() {
    use crate::version::{Change, Edit, Layout, Manifest};
    let fault = FaultVfs::new(Path::new(DIR));
    let vfs: Arc<dyn Vfs> = Arc::new(fault.clone());
    let runtime: Arc<dyn Runtime> = Arc::new(SystemRuntime::new());
    let mut layout = Layout { next_file: 1, ..Layout::default() };
    layout.apply(&Edit::new(vec![Change::NewPartition { id: 0, start: Vec::new(), end: None }])).unwrap();
    let mut manifest = Manifest::create(&vfs, &runtime, Path::new(DIR), layout).unwrap();
    let edit = Edit::new((0..20_000).map(Change::LastSequence).collect());
    while manifest.len() <= 256 << 10 {
        manifest.commit(&edit).unwrap();
    }
    fault.fail(Operation::Write, 0, 1, std::io::ErrorKind::StorageFull);
    assert!(manifest.commit(&edit).unwrap_err().is_disk_full());
    manifest.commit(&edit).unwrap();
    drop(manifest);
    let manifest = Manifest::open(&vfs, &runtime, Path::new(DIR), false).unwrap().unwrap();
    assert_eq!(manifest.layout().last_sequence, 19_999);
}

#[test]
fn compacting_merges_what_is_left_after_covered_runs_have_gone() {
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

fn noise(seed: u32) -> Vec<u8> {
    let mut state = u64::from(seed) + 1;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    };
    (0..1_000).map(|_| next()).collect()
}

#[test]
fn a_damaged_value_does_not_keep_its_partition_from_being_merged() {
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

#[test]
fn what_was_acknowledged_before_a_close_in_another_thread_is_there_afterwards() {
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

#[test]
fn threads_that_flush_for_each_other_never_take_a_busy_flush_for_a_full_disk() {
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

/// A put checked its tree before the drop, got a number above the range delete, and remained
/// forever.
#[test]
fn a_commit_into_a_tree_that_is_dropped_by_its_turn_is_refused_as_a_whole() {
    let db = open(small(&mem())).unwrap();
    let (tree, other) = (db.tree("t").unwrap(), db.tree("u").unwrap());
    let before = db.stats();
    let mut batch = crate::commit::RawBatch::default();
    for state in [tree.state(), other.state()] {
        batch.push(crate::base::EntryKind::Value, &[&state.id.first_key(), b"k"], b"v");
    }
    let prepared = batch.prepare().unwrap();
    let looks = std::cell::Cell::new(0);
    let drop_after_look = || {
        tree.state().check()?;
        looks.set(looks.get() + 1);
        db.drop_tree("t")
    };
    let error =
        db.engine().commit_checked(prepared, Durability::Buffered, CommitCondition::None, drop_after_look).unwrap_err();
    assert_eq!(error.to_string(), tree.get(b"k").unwrap_err().to_string());
    assert!(error.is_not_found() && looks.get() == 1, "{error}");
    assert_eq!(other.get(b"k").unwrap(), None, "nothing of the batch is applied");
    assert_eq!(db.stats().last_sequence, before.last_sequence + 1, "only the drop");
    let mut batch = crate::commit::RawBatch::default();
    batch.push(crate::base::EntryKind::Value, &[&other.state().id.first_key(), b"k"], b"v");
    let prepared = batch.prepare().unwrap();
    let looks = std::cell::Cell::new(0);
    let drop_another = || {
        db.tree("x")?;
        looks.set(looks.get() + 1);
        if looks.get() == 1 { db.drop_tree("x") } else { other.state().check() }
    };
    db.engine().commit_checked(prepared, Durability::Buffered, CommitCondition::None, drop_another).unwrap();
    assert_eq!(looks.get(), 2);
    assert_eq!(other.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

/// One key had more versions, pinned by snapshots, than a run has blocks. The flush failed.
#[test]
fn more_versions_of_a_key_than_a_run_holds_are_kept_in_several() {
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
fn a_flush_whose_sync_of_blobs_fails_leaves_word_of_it() {
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

/// Only the last directory that an open made was durable.
#[test]
fn each_directory_that_an_open_makes_is_synced() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let dir = Path::new(DIR).join("one/two/three");
    drop(super::handles::database::Db::open_with(small(&fault(&vfs)), &dir).unwrap());
    let synced: Vec<_> =
        vfs.journal().into_iter().filter(|(op, _)| *op == Operation::SyncDir).map(|(_, path)| path).collect();
    for made in dir.ancestors().take_while(|made| *made != Path::new(DIR)) {
        assert!(synced.iter().any(|path| Some(path.as_path()) == made.parent()), "{} in {synced:?}", made.display());
    }
}

/// A partition with one huge key could not be split, but was rewritten at each flush.
#[test]
fn a_partition_that_cannot_be_split_is_not_rewritten_at_each_flush() {
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

/// The unindexed runs of a damaged partition throttled all writers forever.
#[test]
fn a_damaged_partition_slows_nobody_and_is_told_of() {
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

/// Each read after a range delete rebuilt the memtable's set of them.
#[test]
fn range_deletes_between_reads_take_no_quadratic_time() {
    let settings =
        Settings { memory: 256 << 20, memtable_bytes: Some(64 << 20), log_segment_bytes: 1 << 20, ..small(&mem()) };
    let db = open(settings).unwrap();
    let tree = db.tree("t").unwrap();
    let start = std::time::Instant::now();
    for i in 0..30_000u32 {
        let key = i.wrapping_mul(0x9e37_79b9);
        tree.put(key.to_be_bytes(), b"v").unwrap();
        tree.delete_range(key.to_be_bytes()..=key.to_be_bytes()).unwrap();
        assert!(tree.get(key.to_be_bytes()).unwrap().is_none());
    }
    let took = start.elapsed();
    assert!(took.as_secs() < 8, "30,000 range deletes and reads took {took:?}");
}

/// A split cuts by the bytes of the open run. These began at 0 again when a run had its maximum
/// blocks.
#[test]
fn a_partition_whose_runs_are_cut_by_blocks_is_split() {
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
        db.write(batch, Durability::Buffered).unwrap();
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
fn data_that_packs_well_does_not_latch_the_database() {
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
        db.write(batch, Durability::Buffered).unwrap();
    }
    db.compact().unwrap();
    assert_eq!(db.stats().failure, None);
}

/// Trees of different databases have the same ids: calls with a foreign tree used the wrong tree.
#[test]
fn a_tree_of_another_database_is_refused() {
    let (one, two) = (open(small(&mem())).unwrap(), open(small(&mem())).unwrap());
    let (mine, other) = (one.tree("mine").unwrap(), two.tree("theirs").unwrap());
    let (_, other_many) = (one.multi_tree("many").unwrap(), two.multi_tree("many").unwrap());
    mine.put(b"k", b"1").unwrap();
    let is_refused = |error: Option<Error>| assert!(matches!(error, Some(Error::InvalidArgument(_))), "{error:?}");
    let write = |fill: &dyn Fn(&mut Batch)| {
        let mut batch = one.batch();
        batch.put(&mine, b"k", b"2");
        fill(&mut batch);
        is_refused(one.write(batch, Durability::Buffered).err());
    };
    write(&|batch| assert!(!batch.put(&other, b"k", b"2").is_empty()));
    write(&|batch| assert!(!batch.delete(&other, b"k").is_empty()));
    write(&|batch| assert!(!batch.delete_range::<&[u8]>(&other, ..).is_empty()));
    write(&|batch| assert!(!batch.add(&other_many, b"k", b"v").is_empty()));
    write(&|batch| assert!(!batch.remove_all(&other_many, b"k").is_empty()));
    let snapshot = one.snapshot();
    is_refused(snapshot.get(&other, b"k").err());
    is_refused(snapshot.get_versioned(&other, b"k").err());
    is_refused(snapshot.get_with_expiry(&other, b"k").err());
    is_refused(snapshot.contains(&other, b"k").err());
    is_refused(snapshot.multi_get(&other, &[b"k"]).err());
    is_refused(snapshot.stream(&other, b"k").err());
    is_refused(snapshot.contains_value(&other_many, b"k", b"v").err());
    is_refused(snapshot.count(&other_many, b"k").err());
    is_refused(snapshot.iter(&other).next().and_then(std::result::Result::err));
    is_refused(snapshot.range::<&[u8]>(&other, ..).next_back().and_then(std::result::Result::err));
    is_refused(snapshot.values(&other_many, b"k").next().and_then(std::result::Result::err));
    is_refused(snapshot.pairs::<&[u8]>(&other_many, ..).next().and_then(std::result::Result::err));
    is_refused(snapshot.cursor(&other).seek_first().err());
    is_refused(snapshot.pair_cursor(&other_many).seek_first().err());
    is_refused(one.watch(WatchOptions::new().tree(&other)).err());
    is_refused(one.watch(WatchOptions::new().multi_tree(&other_many)).err());
    assert_eq!(mine.get(b"k").unwrap().as_deref(), Some(b"1".as_slice()));
    assert_eq!(snapshot.get(&mine, b"k").unwrap().as_deref(), Some(b"1".as_slice()));
}
