//! Tables that bypass the page cache, on the real file system.

use crate::{
    codec::Compression,
    db::{
        Db, Durability, Settings, Tree,
        handles::tests::cursor::{Model, Random},
        tests_common::small,
    },
    platform::{BatchReads, OpenMode, SystemVfs, Vfs},
};
use std::{path::Path, sync::Arc};

#[cfg(target_os = "linux")]
const PAGE_BYTES: usize = 4096;

fn settings(io_uring: bool, compression: Compression) -> Settings {
    #[cfg(target_os = "linux")]
    let vfs: Arc<dyn Vfs> = Arc::new(SystemVfs::new().io_uring(io_uring));
    #[cfg(windows)]
    let vfs: Arc<dyn Vfs> = Arc::new((SystemVfs::new(), io_uring).0);
    Settings { direct_io: true, compression, block_bytes: 4096, ..small(&vfs) }
}

fn is_direct(db: &Db) -> bool {
    let stats = db.stats();
    assert_eq!(stats.direct_io, stats.direct_io_refused.is_none());
    if let Some(because) = &stats.direct_io_refused {
        eprintln!("not past the cache: {because}");
    }
    stats.direct_io
}

#[cfg(target_os = "linux")]
fn cached(dir: &Path, extensions: &[&str]) -> Vec<(String, usize)> {
    let vfs = SystemVfs::new();
    let is_meant = |name: &str| extensions.iter().any(|extension| name.ends_with(extension));
    let files = vfs.list(dir).unwrap().into_iter().filter(|file| is_meant(&file.name) && file.len > 0);
    files
        .map(|entry| (pages_of(&*vfs.open(&dir.join(&entry.name), OpenMode::Read).unwrap()), entry.name))
        .map(|(n, name)| (name, n))
        .collect()
}

#[cfg(target_os = "linux")]
fn pages_of(file: &dyn crate::platform::File) -> usize {
    let len = file.len().unwrap();
    let map = file.map_for_reading(len).unwrap().expect("a file system whose files are mapped");
    (0..usize::try_from(len).unwrap()).step_by(PAGE_BYTES).filter(|&at| map.is_in_memory(at..at + 1)).count()
}

fn check(tree: &Tree, model: &Model, random: &mut Random) {
    let mut rows = model.iter();
    for row in tree.iter() {
        let (key, value) = row.unwrap();
        let expected = rows.next().expect("no row too many");
        assert!(*key == expected.0[..] && *value == expected.1[..]);
    }
    assert!(rows.next().is_none());
    assert!(tree.iter().rev().map(|row| row.unwrap().0.to_vec()).eq(model.keys().rev().cloned()));
    for _ in 0..30 {
        let keys: Vec<_> = (0..1 + random.below(40)).map(|_| random.key()).collect();
        let found = tree.multi_get(&keys).unwrap();
        for (key, value) in keys.iter().zip(found) {
            assert_eq!(value.as_deref(), model.get(key).map(Vec::as_slice));
            assert_eq!(tree.get(key).unwrap().as_deref(), model.get(key).map(Vec::as_slice));
        }
    }
}

fn change(db: &Db, tree: &Tree, model: &mut Model, random: &mut Random) {
    for _ in 0..random.below(600) {
        let key = random.key();
        if random.below(6) == 0 {
            tree.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = random.value(true);
            tree.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
    match random.below(4) {
        0 => db.flush().unwrap(),
        1 => db.compact().unwrap(),
        _ => {}
    }
}

#[test]
fn all_is_as_in_a_model_however_blocks_are_packed_and_reads_are_made() {
    for (round, compression) in [Compression::None, Compression::Lz4].into_iter().enumerate() {
        for io_uring in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let mut random = Random(7 + round as u64, |n| format!("key{n:05}").into_bytes());
            let mut model = Model::new();
            for _ in 0..12 {
                let db = Db::open_with(settings(io_uring, compression), dir.path()).unwrap();
                let tree = db.tree("t").unwrap();
                check(&tree, &model, &mut random);
                change(&db, &tree, &mut model, &mut random);
                check(&tree, &model, &mut random);
                let is_ring = db.stats().batch_reads == BatchReads::IoUring;
                assert!(!is_ring || io_uring);
                assert!(is_direct(&db) || cfg!(target_os = "linux"));
                db.close().unwrap();
            }
        }
    }
}

fn key(n: u32) -> Vec<u8> {
    format!("key{n:06}").into_bytes()
}

/// Writes incompressible rows, some of them blobs.
fn fill(db: &Db, rows: u32) -> Tree {
    let tree = db.tree("t").unwrap();
    let mut random = Random(3, |n| n.to_be_bytes().to_vec());
    for n in 0..rows {
        tree.put(key(n), random.value(true)).unwrap();
    }
    db.flush().unwrap();
    tree
}

#[cfg(target_os = "linux")]
#[test]
fn tables_leave_no_page_in_the_systems_cache_and_the_rest_does() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Db::open_with(settings(true, Compression::None), dir.path()).unwrap();
    let db = open();
    let tree = fill(&db, 20_000);
    db.compact().unwrap();
    if !is_direct(&db) {
        return;
    }
    assert_eq!(tree.iter().count(), 20_000);
    let keys: Vec<_> = (0..20_000).step_by(7).map(key).collect();
    assert!(tree.multi_get(&keys).unwrap().iter().all(Option::is_some));
    assert_eq!(db.stats().blocks_in_place, 0, "nothing is mapped");
    let tables = cached(dir.path(), &[".run", ".view", ".blob"]);
    let total = tables.iter().map(|(_, pages)| pages).sum::<usize>();
    assert!(tables.len() > 3);
    let blobs = tables.iter().filter(|(name, _)| name.ends_with(".blob")).count();
    assert!(blobs > 0 && total <= blobs, "but for the page at the end of a blob file that grows: {tables:?}");
    db.close().unwrap();
    let db = open();
    assert_eq!(db.tree("t").unwrap().iter().count(), 20_000);
    let tables = cached(dir.path(), &[".run", ".view", ".blob"]);
    assert!(tables.iter().all(|(_, pages)| *pages == 0), "{tables:?}");
    assert!(cached(dir.path(), &["CURRENT"]).iter().any(|(_, pages)| *pages > 0), "that goes the usual way");
    // Control: tables read through the page cache show up there.
    db.close().unwrap();
    let db = Db::open_with(Settings { direct_io: false, ..settings(true, Compression::None) }, dir.path()).unwrap();
    assert_eq!(db.tree("t").unwrap().iter().count(), 20_000);
    let stats = db.stats();
    assert!(!stats.direct_io && stats.direct_io_refused.is_none(), "it was not asked for");
    assert!(cached(dir.path(), &[".run"]).iter().any(|(_, pages)| *pages > 0));
}

#[test]
fn a_scan_reads_ahead_and_reads_at_once_are_taken_in_once() {
    let dir = tempfile::tempdir().unwrap();
    let settings = || Settings { memory: 64 << 20, ..settings(true, Compression::None) };
    let db = Db::open_with(settings(), dir.path()).unwrap();
    fill(&db, 20_000);
    db.compact().unwrap();
    db.close().unwrap();
    let db = Db::open_with(settings(), dir.path()).unwrap();
    let tree = db.tree("t").unwrap();
    let before = db.stats().cache_misses;
    let keys: Vec<_> = (0..16).map(|n| key(n * 1_000)).collect();
    assert!(tree.multi_get(&keys).unwrap().iter().all(Option::is_some));
    let after = db.stats().cache_misses;
    assert!((2..=40).contains(&(after - before)), "{} blocks and pages for 16 keys", after - before);
    assert!(tree.multi_get(&keys).unwrap().iter().all(Option::is_some));
    assert_eq!(db.stats().cache_misses, after, "they are there now");
    assert_eq!(tree.iter().count(), 20_000);
    let all = db.stats().cache_misses;
    assert_eq!(tree.iter().count(), 20_000);
    assert_eq!(db.stats().cache_misses, all, "each block was read once, whoever read it");
}

/// Blocks of a batched read are checked like single ones.
#[test]
fn a_damaged_block_is_told_of_by_whoever_needs_it_alone() {
    let dir = tempfile::tempdir().unwrap();
    for direct_io in [true, false] {
        let path = dir.path().join(direct_io.to_string());
        let settings = || Settings { direct_io, durability: Durability::Sync, ..settings(true, Compression::Lz4) };
        let db = Db::open_with(Settings { partition_bytes: Some(1 << 30), ..settings() }, &path).unwrap();
        fill(&db, 4_000);
        db.compact().unwrap();
        db.close().unwrap();
        let runs: Vec<_> = SystemVfs::new().list(&path).unwrap();
        let largest = runs.iter().filter(|file| file.name.ends_with(".run")).max_by_key(|file| file.len).unwrap();
        let file = SystemVfs::new().open(&path.join(&largest.name), OpenMode::ReadWrite).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 3 * 4096 + 2000).unwrap();
        file.write_at(&[byte[0] ^ 1], 3 * 4096 + 2000).unwrap();
        let db = Db::open_with(settings(), &path).unwrap();
        let tree = db.tree("t").unwrap();
        let (mut right, mut damaged) = (0, 0);
        for n in 0..4_000 {
            let keys: Vec<_> = (0..8).map(|k| key((n + k * 487) % 4_000)).collect();
            match tree.multi_get(&keys) {
                Ok(values) => right += u32::from(values.iter().all(Option::is_some)),
                Err(error) => {
                    assert!(error.is_corruption(), "{error}");
                    damaged += 1;
                }
            }
        }
        assert!(damaged > 0 && right > 2_000, "{right} right, {damaged} damaged");
        assert_eq!(right + damaged, 4_000);
    }
}

#[test]
fn a_file_system_without_it_is_told_of() {
    let vfs: Arc<dyn Vfs> = Arc::new(crate::platform::MemVfs::new());
    let db = Db::open_with(Settings { direct_io: true, ..small(&vfs) }, Path::new("/memory")).unwrap();
    fill(&db, 2_000);
    let stats = db.stats();
    assert!(!stats.direct_io);
    assert!(stats.direct_io_refused.unwrap().contains("no way around"));
    assert_eq!(stats.batch_reads, BatchReads::OneByOne);
    assert_eq!(db.tree("t").unwrap().iter().count(), 2_000);
}
