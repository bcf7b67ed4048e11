//! A process limited to 64 open files uses a database of 2,000 tables (400 in debug builds), and
//! one with 160 retained and archived log segments.

#![cfg(target_os = "linux")]

use braiddb::{
    Db, Durability,
    backup::{DirectoryTarget, RestorePoint},
    options::Tuning,
    watch::WatchOptions,
};
use std::{path::Path, process::Command};

const CHILD: &str = "BRAIDDB_OPEN_FILES_CHILD";
const KEYS: u32 = if cfg!(debug_assertions) { 8_000 } else { 40_000 };
/// Twenty keys per table.
const TABLES: usize = KEYS as usize / 20;
const VALUE_BYTES: usize = 1000;

/// Keys of the long log; with 1000 bytes each they need 160 segments.
const LOG_KEYS: u32 = 10_000;
/// One more for the creation of the tree.
const LOG_CHANGES: u32 = LOG_KEYS + 1;

#[test]
fn database_with_more_tables_than_open_files_works() {
    in_a_process_of_64_files("open_files::tables_child");
}

#[test]
fn database_with_more_segments_than_open_files_works() {
    in_a_process_of_64_files("open_files::log_child");
}

fn in_a_process_of_64_files(test: &str) {
    let dir = tempfile::tempdir().unwrap();
    let me = std::env::current_exe().unwrap();
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 64 && exec \"$0\" --exact --nocapture \"$1\""])
        .args([me.as_os_str(), test.as_ref()])
        .env(CHILD, dir.path())
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{out}\n{err}");
}

#[test]
fn tables_child() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let dir = Path::new(&dir);
    let before = descriptors();
    let path = dir.join("db");
    fill(&path);
    read_all(&path);
    copies(dir, &path);
    beside(&path);
    assert_eq!(descriptors(), before, "leaked descriptors");
}

#[test]
fn log_child() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let dir = Path::new(&dir);
    let before = descriptors();
    long_log(dir, &dir.join("db"));
    assert_eq!(descriptors(), before, "leaked descriptors");
}

fn descriptors() -> usize {
    let links =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    links.filter(|target| !target.to_string_lossy().contains("io_uring")).count()
}

fn open(path: &Path) -> Db {
    builder().open(path).unwrap()
}

fn builder() -> braiddb::Builder {
    Db::builder()
        .memory(8 << 20)
        .tuning(Tuning::new().partition_bytes(40 << 10))
        .compression(braiddb::Compression::None)
}

fn value(key: u32, round: u32) -> Vec<u8> {
    let mut seed = u64::from(key) << 32 | u64::from(round) | 1;
    let next = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 56) as u8
    };
    (0..VALUE_BYTES).map(next).collect()
}

fn write(db: &Db, round: u32, step: usize, end: u32) {
    let tree = db.tree("t").unwrap();
    for first in (0..end).step_by(step * 100) {
        let mut batch = db.batch();
        for key in (first..end.min(first + step as u32 * 100)).step_by(step) {
            batch.put(&tree, key.to_be_bytes(), value(key, round));
        }
        batch.commit_with(Durability::Buffered).unwrap();
    }
}

fn fill(path: &Path) {
    let db = open(path);
    write(&db, 0, 1, KEYS);
    db.flush().unwrap();
    write(&db, 1, 10, KEYS);
    db.compact().unwrap();
    let tables = std::fs::read_dir(path).unwrap().filter(|e| {
        let name = e.as_ref().unwrap().file_name().into_string().unwrap();
        name.ends_with(".run")
    });
    let tables = tables.count();
    assert!(tables >= TABLES, "{tables} tables");
    db.close().unwrap();
}

fn check(db: &Db) {
    check_rounds(db, |key| u32::from(key.is_multiple_of(10)));
}

fn check_rounds(db: &Db, round: impl Fn(u32) -> u32) {
    let tree = db.open_tree("t").unwrap();
    let mut rows = 0;
    for row in tree.range(..) {
        let (key, found) = row.unwrap();
        let key = u32::from_be_bytes(key[..].try_into().unwrap());
        assert_eq!(found[..], value(key, round(key)));
        rows += 1;
    }
    assert_eq!(rows, KEYS);
    for key in (0..KEYS).map(|i| (i * 7919) % KEYS).take(6000) {
        assert_eq!(tree.get(key.to_be_bytes()).unwrap().as_deref(), Some(&value(key, round(key))[..]));
    }
}

fn read_all(path: &Path) {
    let db = open(path);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| check(&db));
        }
    });
    let stats = db.stats();
    assert_eq!(stats.open_files_max, 32);
    assert!(stats.open_files <= 32 + 4, "{} open", stats.open_files);
    assert!(stats.file_reopenings > TABLES as u64 / 2, "{} reopened", stats.file_reopenings);
    db.close().unwrap();
}

/// A follower's state reads tables that the owner has removed.
fn beside(path: &Path) {
    let owner = open(path);
    let follower = builder().refresh_every(None).open_follower(path).unwrap();
    let state = follower.db();
    // A hundred tables: each merge of one syncs several files.
    write(&owner, 2, 1, KEYS / 20);
    owner.compact().unwrap();
    check(&state);
    follower.refresh().unwrap();
    check_rounds(&follower.db(), |key| if key < KEYS / 20 { 2 } else { u32::from(key.is_multiple_of(10)) });
    check(&state);
    drop((state, follower));
    owner.close().unwrap();
}

fn copies(dir: &Path, path: &Path) {
    let db = open(path);
    db.checkpoint(dir.join("checkpoint")).unwrap();
    db.verify().unwrap();
    let target = DirectoryTarget::open(dir.join("backup")).unwrap();
    db.backup(&target).unwrap();
    db.close().unwrap();
    let restored = dir.join("restored");
    builder().restore(&target, None, &restored).unwrap();
    for path in [dir.join("checkpoint"), restored] {
        let db = open(&path);
        check(&db);
        db.close().unwrap();
    }
}

fn long_log(dir: &Path, path: &Path) {
    let archive = dir.join("archive");
    let builder =
        || builder().tuning(Tuning::new().log_segment_bytes(64 << 10)).log_retention(1 << 30).log_archive(&archive);
    let db = builder().open(path).unwrap();
    let tree = db.tree("t").unwrap();
    let target = DirectoryTarget::open(dir.join("backup")).unwrap();
    db.backup(&target).unwrap();
    for key in 0..LOG_KEYS {
        tree.put(key.to_be_bytes(), value(key, 0)).unwrap();
    }
    db.flush().unwrap();
    let segments = |dir: &Path| {
        let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".wal")).count()
    };
    assert!(segments(path) >= 150, "{} segments", segments(path));
    assert_eq!(changes(&db), LOG_CHANGES);
    let reader = self::builder().open_follower(path).unwrap();
    assert_eq!(reader.db().open_tree("t").unwrap().iter().count(), LOG_KEYS as usize);
    drop(reader);
    let last = db.archive_now().unwrap();
    drop(tree);
    db.close().unwrap();

    let db = builder().open(path).unwrap();
    assert_eq!(changes(&db), LOG_CHANGES);
    assert!(db.stats().file_reopenings > 100, "{} reopened", db.stats().file_reopenings);
    assert!(db.stats().open_files <= 32 + 4, "{} open", db.stats().open_files);
    db.close().unwrap();

    let restored = dir.join("restored");
    self::builder().restore_to(&target, &archive, RestorePoint::Version(last), &restored).unwrap();
    let db = open(&restored);
    assert_eq!(db.open_tree("t").unwrap().iter().count(), LOG_KEYS as usize);
    db.close().unwrap();
}

fn changes(db: &Db) -> u32 {
    let mut watcher = db.watch(WatchOptions::new().from_oldest()).unwrap();
    let mut changes = 0;
    while let Some(set) = watcher.try_next().unwrap() {
        changes += set.changes.len() as u32;
    }
    changes
}
