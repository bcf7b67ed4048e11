//! The database as a whole, in memory, with inline background work.

use crate::{
    base::{DatabaseFile, Error},
    codec::Compression,
    db::{
        Db, Durability, Settings, TreeOptions,
        tests_common::{DIR, mem, open, small},
    },
    table::KeyBlocks,
};
use std::path::Path;

fn key(i: u64) -> Vec<u8> {
    format!("key{:06}", i.wrapping_mul(0x9e37_79b9) % 1_000_000).into_bytes()
}

fn value(i: u64, len: usize) -> Vec<u8> {
    format!("value-{i}-").into_bytes().into_iter().cycle().take(len).collect()
}

#[test]
fn what_was_put_is_there_through_flushes_folds_merges_splits_and_reopening() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    let mut model = std::collections::BTreeMap::new();
    for i in 0..8_000u64 {
        let (k, v) = (key(i % 3_000), value(i, 20 + (i % 50) as usize));
        if i % 7 == 3 {
            tree.delete(&k).unwrap();
            model.remove(&k);
        } else {
            tree.put(&k, &v).unwrap();
            model.insert(k, v);
        }
    }
    check(&db, &model);
    assert!(db.stats().partitions.len() > 1, "{:?}", db.stats());
    db.flush().unwrap();
    check(&db, &model);
    db.compact().unwrap();
    check(&db, &model);
    let report = db.verify().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    drop(tree);
    db.close().unwrap();
    let db = open(small(&vfs)).unwrap();
    check(&db, &model);
}

/// Regression: each split rewrote partitions of ascending keys.
#[test]
fn partitions_of_growing_keys_are_cut_and_not_rewritten() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    let mut model = std::collections::BTreeMap::new();
    for i in 0..6_000u64 {
        let (k, v) = (i.to_be_bytes().to_vec(), value(i, 60));
        tree.put(&k, &v).unwrap();
        model.insert(k, v);
    }
    db.flush().unwrap();
    let stats = db.stats();
    assert!(stats.partitions.len() > 3 && stats.merges == 0, "{stats:?}");
    assert!(stats.run_bytes_written < 2 * stats.user_bytes_written, "{stats:?}");
    check(&db, &model);
    for i in (0..6_000u64).step_by(3) {
        let k = i.to_be_bytes().to_vec();
        tree.delete(&k).unwrap();
        model.remove(&k);
    }
    tree.delete_range(1_000u64.to_be_bytes().as_slice()..1_500u64.to_be_bytes().as_slice()).unwrap();
    model.retain(|k, _| k < &1_000u64.to_be_bytes().to_vec() || k >= &1_500u64.to_be_bytes().to_vec());
    check(&db, &model);
    drop((tree, db));
    let db = open(small(&vfs)).unwrap();
    check(&db, &model);
    db.compact().unwrap();
    check(&db, &model);
    assert!(db.verify().unwrap().problems.is_empty());
}

fn check(db: &Db, model: &std::collections::BTreeMap<Vec<u8>, Vec<u8>>) {
    let tree = db.tree("t").unwrap();
    for i in 0..3_000 {
        assert_eq!(tree.get(key(i)).unwrap().map(Vec::from), model.get(&key(i)).cloned(), "key {i}");
    }
    let forward: Vec<(Vec<u8>, Vec<u8>)> =
        tree.iter().map(|pair| pair.map(|(k, v)| (k.into(), v.into())).unwrap()).collect();
    assert!(forward.iter().map(|(k, v)| (k, v)).eq(model));
    let mut backward: Vec<(Vec<u8>, Vec<u8>)> =
        tree.iter().rev().map(|pair| pair.map(|(k, v)| (k.into(), v.into())).unwrap()).collect();
    backward.reverse();
    assert_eq!(forward, backward);
}

#[test]
fn a_snapshot_sees_what_it_saw_however_much_changes() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    for i in 0..1_000 {
        tree.put(key(i), b"old").unwrap();
    }
    let before = db.snapshot();
    for round in 0..5 {
        for i in 0..1_000 {
            tree.put(key(i), format!("new {round}")).unwrap();
        }
        db.flush().unwrap();
    }
    tree.delete_range(..).unwrap();
    db.compact().unwrap();
    assert_eq!(tree.iter().count(), 0);
    assert_eq!(before.iter(&tree).map(|p| p.unwrap()).filter(|(_, v)| v == b"old").count(), 1_000);
    assert_eq!(before.get(&tree, key(5)).unwrap().as_deref(), Some(&b"old"[..]));
    drop(before);
    db.compact().unwrap();
    assert_eq!(
        db.stats().partitions.iter().flat_map(|p| p.runs.iter().chain(&p.loose)).map(|r| r.entries).sum::<u64>(),
        2
    );
}

#[test]
fn a_range_delete_hides_what_was_before_it_and_nothing_after() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    for i in 0..100u8 {
        tree.put([i], b"1").unwrap();
    }
    for flushed in [false, true] {
        if flushed {
            db.flush().unwrap();
        }
        tree.delete_range([20u8]..[80u8]).unwrap();
        tree.put([50u8], b"2").unwrap();
        let keys: Vec<u8> = tree.iter().map(|p| p.unwrap().0[0]).collect();
        let expected: Vec<u8> = (0..20).chain([50]).chain(80..100).collect();
        assert_eq!(keys, expected);
        let keys: Vec<u8> = tree.iter().rev().map(|p| p.unwrap().0[0]).collect();
        assert!(keys.iter().eq(expected.iter().rev()));
        assert_eq!(tree.get([30u8]).unwrap(), None);
        assert_eq!(tree.get([50u8]).unwrap().as_deref(), Some(&b"2"[..]));
    }
}

#[test]
fn large_values_are_written_once_and_their_space_comes_back() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    for round in 0..10 {
        for i in 0..50 {
            tree.put(key(i), value(i + round, 1_000)).unwrap();
        }
    }
    let written = db.stats();
    assert!(written.blob_bytes_written > 0);
    assert!(written.log_bytes_written < 100 * 500 + (64 << 10), "{written:?}");
    for i in 0..50 {
        assert_eq!(tree.get(key(i)).unwrap().map(Vec::from), Some(value(i + 9, 1_000)));
    }
    db.compact().unwrap();
    for i in 0..50 {
        tree.delete(key(i)).unwrap();
    }
    db.compact().unwrap();
    let blobs = vfs.list(Path::new(DIR)).unwrap().into_iter().filter(|e| e.name.ends_with(".blob"));
    assert!(blobs.count() <= 1, "only the open blob file may be left: {:?}", vfs.list(Path::new(DIR)));
}

#[test]
fn trees_are_created_renamed_dropped_and_never_mixed() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let a = db.tree("a").unwrap();
    let b = db.tree_with("b", TreeOptions { compression: Some(Compression::Zstd), ..Default::default() }).unwrap();
    a.put(b"k", b"a").unwrap();
    b.put(b"k", b"b").unwrap();
    assert!(db.multi_tree("a").is_err());
    db.rename_tree("a", "c").unwrap();
    assert!(db.open_tree("a").unwrap_err().is_not_found());
    db.drop_tree("b").unwrap();
    assert!(b.get(b"k").unwrap_err().is_not_found());
    assert_eq!(a.get(b"k").unwrap().as_deref(), Some(&b"a"[..]));
    let b = db.tree("b").unwrap();
    assert_eq!(b.get(b"k").unwrap(), None);
    drop((a, b));
    db.close().unwrap();
    let db = open(small(&vfs)).unwrap();
    let names: Vec<_> = db.trees().unwrap().into_iter().map(|t| (t.name, t.id)).collect();
    assert_eq!(names, [("b".to_owned(), 3), ("c".to_owned(), 1)]);
}

#[test]
fn a_batch_is_atomic_and_a_bad_one_changes_nothing() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let (a, b) = (db.tree("a").unwrap(), db.tree("b").unwrap());
    let mut batch = db.batch();
    batch.put(&a, b"1", b"x").put(&b, b"1", b"y").set_application_cursor(b"here");
    let sequence = batch.commit_with(Durability::Sync).unwrap();
    assert_eq!(db.snapshot().sequence(), sequence);
    assert_eq!(db.application_cursor().unwrap().as_deref(), Some(&b"here"[..]));
    let mut batch = db.batch();
    batch.put(&a, b"2", b"x").put(&a, vec![0; 65_537], b"x");
    assert!(batch.commit_with(Durability::Sync).is_err());
    assert_eq!(a.get(b"2").unwrap(), None);
    assert_eq!(db.snapshot().sequence(), sequence);
}

#[test]
fn a_multi_tree_keeps_many_values_to_a_key_in_order() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let tree = db.multi_tree("m").unwrap();
    let pairs: [(&[u8], &[u8]); 7] =
        [(b"", b"9"), (b"a", b""), (b"a", b"1"), (b"a", b"2"), (b"a\0", b"0"), (b"a\0\0", b"\0"), (b"b", b"1")];
    for (k, v) in pairs.iter().rev() {
        tree.add(k, v).unwrap();
    }
    let all: Vec<(Vec<u8>, Vec<u8>)> = tree.iter().map(|p| p.map(|(k, v)| (k.into(), v.into())).unwrap()).collect();
    assert!(all.iter().map(|(k, v)| (k.as_slice(), v.as_slice())).eq(pairs));
    assert_eq!(tree.values(b"a").count(), 3);
    assert_eq!(tree.range(&b"a"[..]..&b"b"[..]).count(), 5);
    assert_eq!(tree.prefix(b"a\0").count(), 2);
    assert!(tree.contains_pair(b"a", b"2").unwrap());
    tree.delete_pair(b"a", b"2").unwrap();
    assert!(!tree.contains_pair(b"a", b"2").unwrap());
    tree.delete(b"a").unwrap();
    assert_eq!(tree.iter().count(), 4);
}

#[test]
fn iterators_turn_round_anywhere_and_meet_once() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    for i in 0..500u32 {
        tree.put(i.to_be_bytes(), b"").unwrap();
        if i % 100 == 0 {
            db.flush().unwrap();
        }
    }
    let mut iter = tree.iter();
    let mut seen = Vec::new();
    for i in 0.. {
        let pair = if i % 3 == 0 { iter.next_back() } else { iter.next() };
        let Some(pair) = pair else { break };
        seen.push(u32::from_be_bytes(pair.unwrap().0[..].try_into().unwrap()));
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..500));
}

#[test]
fn an_open_database_tells_who_holds_it_and_a_dropped_one_lets_go() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    tree.put(b"k", b"v").unwrap();
    let error = open(small(&vfs)).unwrap_err().to_string();
    assert!(error.contains(&std::process::id().to_string()), "{error}");
    let mut iter = tree.iter();
    drop((db, tree));
    assert!(iter.next().unwrap().is_ok(), "an iterator keeps the database open");
    drop(iter);
    open(small(&vfs)).unwrap();
}

#[test]
fn files_without_current_are_never_taken_for_a_new_database() {
    let vfs = mem();
    open(small(&vfs)).unwrap().close().unwrap();
    vfs.remove(&Path::new(DIR).join("CURRENT")).unwrap();
    assert!(open(small(&vfs)).unwrap_err().is_corruption());
}

#[test]
fn reading_only_writes_nothing() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    db.tree("t").unwrap().put(b"k", b"v").unwrap();
    db.close().unwrap();
    let before = vfs.list(Path::new(DIR)).unwrap().len();
    let db = open(Settings { read_only: true, ..small(&vfs) }).unwrap();
    let tree = db.tree("t").unwrap();
    assert_eq!(tree.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    assert!(tree.put(b"k", b"w").is_err());
    drop(tree);
    db.close().unwrap();
    assert_eq!(vfs.list(Path::new(DIR)).unwrap().len(), before);
}

#[test]
fn a_damaged_view_heals_and_reads_go_on() {
    let vfs = mem();
    let db = open(Settings { partition_bytes: Some(1 << 30), ..small(&vfs) }).unwrap();
    let tree = db.tree("t").unwrap();
    for i in 0..4_000 {
        tree.put(key(i), value(i, 40)).unwrap();
    }
    let views = || -> Vec<_> {
        let files = vfs.list(Path::new(DIR)).unwrap();
        files.into_iter().filter(|e| e.name.ends_with(".view")).collect()
    };
    assert_eq!(views().len(), 1);
    drop(tree);
    db.close().unwrap();
    let name = views()[0].name.clone();
    let file = vfs.open(&Path::new(DIR).join(&name), crate::platform::OpenMode::ReadWrite).unwrap();
    let len = file.len().unwrap();
    for offset in (0..len).step_by(64) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_at(&[byte[0] ^ 1], offset).unwrap();
    }
    let db = open(Settings { partition_bytes: Some(1 << 30), ..small(&vfs) }).unwrap();
    let tree = db.tree("t").unwrap();
    for i in 0..4_000 {
        assert_eq!(tree.get(key(i)).unwrap().map(Vec::from), Some(value(i, 40)));
    }
    tree.put(b"x", b"y").unwrap();
    assert_eq!(views().len(), 1);
    assert_ne!(views()[0].name, name);
    assert!(db.verify().unwrap().problems.is_empty());
}

#[test]
fn damage_of_a_run_names_file_and_tree() {
    let vfs = mem();
    let settings = || Settings { partition_bytes: Some(1 << 30), compression: Compression::None, ..small(&vfs) };
    let db = open(settings()).unwrap();
    let tree = db.tree("t").unwrap();
    for i in 0..1_000 {
        tree.put(key(i), value(i, 40)).unwrap();
    }
    drop(tree);
    db.close().unwrap();
    let db = open(settings()).unwrap();
    let tree = db.tree("t").unwrap();
    for name in vfs.list(Path::new(DIR)).unwrap().into_iter().map(|entry| entry.name) {
        if name.ends_with(".run") {
            let file = vfs.open(&Path::new(DIR).join(&name), crate::platform::OpenMode::ReadWrite).unwrap();
            for offset in (300..file.len().unwrap()).step_by(64) {
                file.write_at(&[0x55; 3], offset).unwrap();
            }
        }
    }
    let errors = |errors: Vec<Option<Error>>| {
        for error in errors {
            let Some(Error::Corruption(damage)) = error else { panic!("{error:?}") };
            assert_eq!((damage.file_kind(), damage.tree()), (DatabaseFile::Run, Some("t")), "{damage}");
            let number = damage.file_number().expect("a run has a number");
            assert!(damage.path().to_string_lossy().contains(&number.to_string()) && damage.offset() > 0);
        }
    };
    let keys: Vec<_> = (0..1_000).map(key).collect();
    errors(vec![
        keys.iter().find_map(|key| tree.get(key).err()),
        tree.multi_get(&keys).err(),
        tree.iter().find_map(std::result::Result::err),
        tree.range(..).rev().find_map(std::result::Result::err),
        keys.iter().find_map(|key| db.snapshot().get(&tree, key).err()),
        keys.iter().find_map(|key| tree.contains(key).err()),
    ]);
}

/// Key comparisons and cache reads over eight runs.
#[test]
fn over_eight_runs_a_get_compares_once_and_a_step_never() {
    use crate::view::{key_comparisons, segments_read};
    for key_blocks in [KeyBlocks::Always, KeyBlocks::Never] {
        let vfs = mem();
        let settings = Settings {
            partition_bytes: Some(1 << 30),
            memtable_bytes: Some(8 << 20),
            memory: 64 << 20,
            block_bytes: 4096,
            key_blocks,
            ..small(&vfs)
        };
        let db = open(settings).unwrap();
        let tree = db.tree("t").unwrap();
        let count = 16_000;
        for i in 0..count {
            tree.put(key(i), value(i, 100)).unwrap();
            if i % (count / 8) == count / 8 - 1 {
                db.flush().unwrap();
            }
        }
        let stats = db.stats();
        assert_eq!((stats.partitions[0].runs.len(), stats.partitions[0].loose.len()), (8, 0), "{stats:?}");

        let units = || {
            let stats = db.stats();
            stats.cache_hits + stats.cache_misses
        };
        let (compared, segments, touched) = (key_comparisons(), segments_read(), units());
        for i in 0..count {
            assert!(tree.get(key(i)).unwrap().is_some());
        }
        let per_get = |total: u64| total as f64 / count as f64;
        let hits = per_get(key_comparisons() - compared);
        let index_units = segments_read() - segments;
        let blocks = per_get(units() - touched - index_units);
        assert!(hits <= 1.2, "{hits} comparisons a get");
        assert!((0.99..=1.05).contains(&blocks), "{blocks} data blocks a get");

        let compared = key_comparisons();
        for i in 0..count {
            let mut absent = key(i);
            absent.push(b'x');
            assert!(tree.get(absent).unwrap().is_none());
        }
        let misses = per_get(key_comparisons() - compared);
        assert!(misses <= 0.2, "{misses} comparisons a miss");

        let mut rows = tree.iter();
        rows.next().unwrap().unwrap();
        let compared = key_comparisons();
        assert_eq!(rows.count() as u64, count - 1);
        assert_eq!(key_comparisons(), compared, "a step compares no keys");
    }
}

#[test]
fn runs_with_and_without_key_blocks_work_together() {
    let vfs = mem();
    let mut model = std::collections::BTreeMap::new();
    for round in 0..6u64 {
        let key_blocks = if round % 2 == 0 { KeyBlocks::Always } else { KeyBlocks::Never };
        let db = open(Settings { key_blocks, ..small(&vfs) }).unwrap();
        let tree = db.tree("t").unwrap();
        for i in 0..500 {
            let (k, v) = (key((i * 7 + round) % 3_000), value(i + round, 30));
            tree.put(&k, &v).unwrap();
            model.insert(k, v);
        }
        db.flush().unwrap();
        check(&db, &model);
        drop(tree);
        db.close().unwrap();
    }
}

#[test]
fn opening_and_closing_again_and_again_leaves_the_log_short() {
    let vfs = mem();
    for i in 0..12 {
        let db = open(small(&vfs)).unwrap();
        let tree = db.tree("t").unwrap();
        tree.put(key(i), b"v").unwrap();
        drop(tree);
        db.close().unwrap();
    }
    let files = vfs.list(Path::new(DIR)).unwrap();
    let segments = files.iter().filter(|f| f.name.ends_with(".wal")).count();
    assert!(segments <= 5, "{segments} log segments after twelve small sessions");
    assert_eq!(open(small(&vfs)).unwrap().tree("t").unwrap().iter().count(), 12);
}

#[test]
fn a_little_that_is_new_is_merged_among_itself_before_it_goes_into_the_view() {
    let vfs = mem();
    let db = open(Settings { memtable_bytes: Some(1 << 20), partition_bytes: Some(8 << 20), ..small(&vfs) }).unwrap();
    let tree = db.tree("t").unwrap();
    for i in 0..20_000 {
        tree.put(key(i), scattered(7, i)).unwrap();
    }
    db.compact().unwrap();
    let base = db.stats();
    let mut rounds = 0;
    while db.stats().folds == base.folds {
        let first = rounds * 60;
        for i in first..first + 30 {
            tree.put(key(i), scattered(8, i)).unwrap();
            tree.delete(key(i + 30)).unwrap();
        }
        db.flush().unwrap();
        rounds += 1;
        assert!(rounds < 100, "never folded: {:?}", db.stats().partitions);
    }
    let stats = db.stats();
    assert!(stats.merges - base.merges >= 2, "{stats:?}");
    assert_eq!(stats.partitions[0].runs[0], base.partitions[0].loose[0], "the base is still there");
    assert!(rounds > 4, "folded after {rounds} rounds");
    for i in 0..20_000 {
        let expected = match i {
            i if i >= rounds * 60 => Some(scattered(7, i)),
            i if i % 60 < 30 => Some(scattered(8, i)),
            _ => None,
        };
        assert_eq!(tree.get(key(i)).unwrap().as_deref(), expected.as_ref().map(|v| &v[..]), "{i}");
    }
    assert_eq!(tree.iter().count() as u64, 20_000 - rounds * 30);
}

#[test]
fn a_shared_run_that_one_partition_has_let_go_of_is_left_by_the_others() {
    let vfs = mem();
    let db = open(Settings { memtable_bytes: Some(4 << 20), partition_bytes: Some(1 << 20), ..small(&vfs) }).unwrap();
    let tree = db.tree("t").unwrap();
    let key = |i: u64| format!("{i:08}");
    let fill = |range: std::ops::Range<u64>, step: usize, seed: u64| {
        for i in range.step_by(step) {
            tree.put(key(i), scattered(seed, i)).unwrap();
        }
        db.flush().unwrap();
    };
    fill(0..20_000, 1, 1);
    db.compact().unwrap();
    let count = db.stats().partitions.len();
    assert!((2..20).contains(&count), "{count} partitions");
    fill(0..20_000, 8, 2);
    let readers = |number: u64| {
        let stats = db.stats();
        let reads = |p: &&crate::db::PartitionStats| p.runs.iter().chain(&p.loose).any(|r| r.number == number);
        stats.partitions.iter().filter(reads).count()
    };
    let shared = db.stats().partitions[0].loose.last().unwrap().number;
    assert_eq!(readers(shared), count);
    let first_key = db.stats().partitions[count - 1].first_key[4..].to_vec();
    let last: u64 = String::from_utf8(first_key).unwrap().parse().unwrap();
    for round in 3..6 {
        fill(0..last, 1, round);
    }
    assert_eq!(readers(shared), 0, "{:?}", db.stats().partitions);
    assert_eq!(tree.iter().count(), 20_000);
    assert_eq!(tree.get(key(19_992)).unwrap().as_deref(), Some(&scattered(2, 19_992)[..]));
}

/// Incompressible bytes.
fn scattered(seed: u64, i: u64) -> [u8; 60] {
    std::array::from_fn(|n| crate::codec::hash64(format!("{seed} {i} {n}").as_bytes()) as u8)
}

#[test]
fn the_log_adds_little_to_what_is_put() {
    let vfs = mem();
    let settings = Settings { memtable_bytes: Some(4 << 20), log_segment_bytes: 1 << 20, ..small(&vfs) };
    let db = open(Settings { compression: Compression::None, ..settings }).unwrap();
    let tree = db.tree("t").unwrap();
    let before = db.stats().log_bytes_written;
    tree.put([1; 16], [2; 100]).unwrap();
    let one = db.stats().log_bytes_written - before;
    assert!(one <= 160, "{one} bytes");
    // Without a sync, records encode a growing distance to the durable position.
    let count = 20_000u64;
    for i in 1..count {
        tree.put([&i.to_be_bytes()[..], &[1; 8]].concat(), [2; 100]).unwrap();
    }
    let all = db.stats().log_bytes_written - before;
    assert!(all * 100 <= count * 116 * 136, "{} bytes each", all as f64 / count as f64);
}

#[test]
fn a_directory_without_a_database_is_left_as_it_is() {
    let vfs = mem();
    vfs.create_dir_all(Path::new(DIR)).unwrap();
    vfs.open(&Path::new(DIR).join("notes.txt"), crate::platform::OpenMode::CreateNew).unwrap();
    let error = open(Settings { create: false, ..small(&vfs) }).unwrap_err();
    assert!(matches!(error, crate::base::Error::NotFound(_)), "{error}");
    assert_eq!(vfs.list(Path::new(DIR)).unwrap().len(), 1);
}

#[test]
fn tree_info_is_the_line_of_the_list() {
    let db = open(small(&mem())).unwrap();
    db.tree("t").unwrap();
    db.multi_tree("m").unwrap();
    for info in db.trees().unwrap() {
        assert_eq!(db.tree_info(&info.name).unwrap(), Some(info));
    }
    assert_eq!(db.tree_info("absent").unwrap(), None);
    db.rename_tree("t", "u").unwrap();
    assert_eq!(db.tree_info("t").unwrap(), None);
    assert_eq!(db.tree_info("u").unwrap().map(|info| (info.name, info.multi)), Some(("u".to_owned(), false)));
}
