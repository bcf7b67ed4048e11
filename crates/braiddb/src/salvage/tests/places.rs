use super::{
    damage::Files,
    sample::{DIR, Random},
};
use crate::{
    base::Error,
    cache::BlockCache,
    db::{Db, Settings, tests_common::small},
    platform::{
        SystemRuntime, Vfs,
        fault_vfs::{FaultVfs, Operation},
    },
    salvage::{LossKind, ManifestCondition, SalvageOptions, SalvageReport, salvage},
    table::{Run, TableContext},
    version::Manifest,
    wal,
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

const TO: &str = "/new";

fn settings(vfs: &FaultVfs) -> Settings {
    let vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    Settings { memtable_bytes: Some(1 << 20), log_segment_bytes: 1 << 20, ..small(&vfs) }
}

fn make(fill: impl FnOnce(&Db)) -> Files {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = Db::open_with(settings(&vfs), Path::new(DIR)).unwrap();
    fill(&db);
    vfs.files()
}

fn salvaged_with(files: &Files, options: SalvageOptions<'_>) -> (SalvageReport, Db) {
    let vfs = FaultVfs::of_files(Path::new(DIR), files);
    let report = salvage(settings(&vfs), Path::new(DIR), Path::new(TO), options).unwrap();
    let db = Db::open_with(Settings { create: false, ..settings(&vfs) }, Path::new(TO)).unwrap();
    assert!(db.verify().unwrap().problems.is_empty());
    (report, db)
}

fn salvaged(files: &Files) -> (SalvageReport, Db) {
    salvaged_with(files, SalvageOptions::default())
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

fn fill(db: &Db, keys: impl Iterator<Item = u64>, value: &str) {
    let tree = db.tree("t").unwrap();
    for number in keys {
        tree.put(key(number), value).unwrap();
    }
}

fn numbers(db: &Db, value: &str) -> Vec<u64> {
    let is_it = |value_found: &[u8]| value_found == value.as_bytes();
    let pairs = db.open_tree("t").unwrap().iter().map(|pair| pair.unwrap()).collect::<Vec<_>>();
    let found = pairs.iter().filter(|(_, found)| is_it(found));
    found.map(|(key, _)| String::from_utf8(key[4..].to_vec()).unwrap().parse().unwrap()).collect()
}

fn block_of_newest_run(files: &Files, block: u16) -> (PathBuf, std::ops::Range<usize>) {
    let vfs: Arc<dyn Vfs> = Arc::new(FaultVfs::of_files(Path::new(DIR), files));
    let runtime: Arc<dyn crate::platform::Runtime> = Arc::new(SystemRuntime::new());
    let manifest = Manifest::open(&vfs, &runtime, Path::new(DIR), true).unwrap().unwrap();
    let meta = manifest.layout().runs.values().next_back().unwrap();
    let path = Path::new(DIR).join(format!("{:06}.run", meta.number));
    let run = Run::open(&TableContext::new(vfs, BlockCache::new(1 << 20)), &path, meta).unwrap();
    let unit = run.unit_of(block);
    (path, unit.start as usize..unit.end as usize)
}

fn records(files: &Files) -> Vec<(PathBuf, usize, usize)> {
    let vfs = FaultVfs::of_files(Path::new(DIR), files);
    let mut found = Vec::new();
    for path in files.keys().filter(|path| path.extension().is_some_and(|e| e == "wal")) {
        let _ = wal::inspect_segment(&vfs, path, &mut |offset, record| {
            if record.header.flags.is_group() {
                found.push((path.clone(), offset as usize, record.file_len() as usize));
            }
            Ok(())
        });
    }
    found
}

fn flip(files: &mut Files, path: &Path, at: usize) {
    files.get_mut(path).unwrap()[at] ^= 0x10;
}

#[test]
fn salvage_of_damaged_block_loses_only_that_block() {
    let mut files = make(|db| {
        fill(db, 0..500, "value");
        db.flush().unwrap();
    });
    let (path, block) = block_of_newest_run(&files, 3);
    flip(&mut files, &path, block.start + 20);
    let (report, db) = salvaged(&files);
    let found = numbers(&db, "value");
    let [loss] = report.losses.as_slice() else { panic!("{report:#?}") };
    let gone: Vec<u64> = (0..500).filter(|number| !found.contains(number)).collect();
    assert_eq!(
        (loss.kind, loss.offset, loss.records),
        (LossKind::Records, Some(block.start as u64), Some(gone.len() as u64))
    );
    let (from, to) = (loss.from.clone().unwrap(), loss.to.clone().unwrap());
    assert_eq!((from.key, to.key), (key(gone[0] - 1), key(gone.last().unwrap() + 1)));
    assert_eq!((from.name.as_deref(), report.manifest), (Some("t"), ManifestCondition::Whole));
    assert!(!gone.is_empty() && gone.len() < 100 && loss.path == path && !report.is_complete());
}

#[test]
fn salvage_of_lost_newer_version_withholds_older_one() {
    let mut files = make(|db| {
        fill(db, 0..300, "old");
        db.flush().unwrap();
        let tree = db.tree("t").unwrap();
        for number in (0..300).step_by(3) {
            tree.delete(key(number)).unwrap();
        }
        db.flush().unwrap();
    });
    let (path, block) = block_of_newest_run(&files, 1);
    flip(&mut files, &path, block.start + 20);
    let (report, db) = salvaged(&files);
    let found = numbers(&db, "old");
    assert!(found.iter().all(|number| number % 3 != 0), "{found:?}");
    let withheld: u64 =
        report.losses.iter().filter(|loss| loss.kind == LossKind::Withheld).filter_map(|loss| loss.records).sum();
    // More keys with the same hash byte may be missing.
    let missing = 200 - found.len() as u64;
    assert!(withheld > 10 && missing < 5, "{withheld} withheld, {missing} too many");
    let (report, db) = salvaged_with(&files, SalvageOptions { keep_stale: true, ..Default::default() });
    let stale: u64 =
        report.losses.iter().filter(|loss| loss.kind == LossKind::Stale).filter_map(|loss| loss.records).sum();
    assert_eq!((stale, numbers(&db, "old").len() as u64), (withheld, found.len() as u64 + withheld));
}

#[test]
fn salvage_of_damaged_log_record_returns_all_other_commits() {
    let mut files = make(|db| fill(db, 0..50, "value"));
    let groups = records(&files);
    let (path, at, len) = groups[groups.len() - 20].clone();
    flip(&mut files, &path, at + len - 1);
    let (report, db) = salvaged(&files);
    let found = numbers(&db, "value");
    let [loss] = report.losses.as_slice() else { panic!("{report:#?}") };
    assert_eq!((loss.kind, loss.offset, &loss.path), (LossKind::Commits, Some(at as u64), &path));
    assert_eq!(found, (0..50).filter(|number| *number != 30).collect::<Vec<_>>());
    assert!(loss.commits.is_some_and(|(first, last)| first == last));
    let (report, db) = salvaged_with(&files, SalvageOptions { stop_at_gap: true, ..Default::default() });
    assert_eq!(numbers(&db, "value"), (0..30).collect::<Vec<_>>());
    assert!(!report.is_complete());
}

#[test]
fn salvage_of_damaged_log_header_byte_loses_nothing() {
    let intact = make(|db| fill(db, 0..50, "value"));
    let (path, ..) = records(&intact)[0].clone();
    for at in [3, 40, 70, 110, 130] {
        let mut files = intact.clone();
        flip(&mut files, &path, at);
        let vfs: Arc<dyn Vfs> = Arc::new(FaultVfs::of_files(Path::new(DIR), &files));
        let refused = Db::open_with(Settings { vfs, ..settings(&FaultVfs::new(Path::new(DIR))) }, Path::new(DIR));
        assert!(refused.unwrap_err().is_corruption());
        let (report, db) = salvaged(&files);
        assert!(report.is_complete() && report.notes.iter().any(|note| note.contains("put right")), "{report:#?}");
        assert_eq!(numbers(&db, "value").len(), 50);
    }
}

#[test]
fn salvage_without_manifest_returns_all_records_and_reports_it() {
    let mut files = make(|db| {
        fill(db, 0..300, "old");
        db.flush().unwrap();
        fill(db, 100..200, "new");
        db.flush().unwrap();
        fill(db, 150..160, "newest");
    });
    files.retain(|path, _| !path.to_string_lossy().contains("MANIFEST") && !path.ends_with("CURRENT"));
    let (report, db) = salvaged(&files);
    assert_eq!(report.manifest, ManifestCondition::Missing);
    assert!(report.losses.iter().any(|loss| loss.kind == LossKind::Uncertain));
    let counts = ["old", "new", "newest"].map(|value| numbers(&db, value).len());
    assert_eq!(counts, [200, 90, 10]);
}

/// The highest commit number came from the tails of runs. Without manifest, log and the newest
/// run's tail, the new database was refused.
#[test]
fn salvage_of_run_without_tail_and_manifest_returns_its_records() {
    let mut files = make(|db| {
        fill(db, 0..50, "old");
        db.flush().unwrap();
        fill(db, 50..100, "new");
        db.flush().unwrap();
    });
    files.retain(|path, _| path.extension().is_some_and(|e| e == "run"));
    let newest = files.keys().max().unwrap().clone();
    let bytes = files.get_mut(&newest).unwrap();
    bytes.truncate(bytes.len() - 10);
    let (report, db) = salvaged(&files);
    assert_eq!(report.manifest, ManifestCondition::Missing);
    assert_eq!(numbers(&db, "new"), (50..100).collect::<Vec<_>>());
    assert!(report.sequence >= 100, "{report:?}");
}

#[test]
fn salvage_of_lost_value_names_the_record() {
    let mut files = make(|db| {
        fill(db, 0..10, "small");
        db.tree("t").unwrap().put(key(20), Random(1).bytes(5000)).unwrap();
        db.flush().unwrap();
        fill(db, 20..21, "older than the blob, were it not flushed");
    });
    files.retain(|path, _| path.extension().is_none_or(|extension| extension != "blob"));
    let (report, db) = salvaged(&files);
    assert_eq!(numbers(&db, "small").len(), 10);
    assert!(report.is_complete(), "{report:#?}");
    let mut files = make(|db| {
        fill(db, 20..21, "older");
        db.tree("t").unwrap().put(key(20), Random(1).bytes(5000)).unwrap();
        db.flush().unwrap();
    });
    files.retain(|path, _| path.extension().is_none_or(|extension| extension != "blob"));
    let (report, db) = salvaged(&files);
    let [loss] = report.losses.as_slice() else { panic!("{report:#?}") };
    let from = loss.from.clone().unwrap();
    assert_eq!((loss.kind, from.key, from.name.as_deref()), (LossKind::Value, key(20), Some("t")));
    assert!(loss.detail.contains("missing") && numbers(&db, "older").is_empty());
}

#[test]
fn salvage_of_trees_with_lost_names_generates_names() {
    let mut files = make(|db| {
        fill(db, 0..10, "value");
        let pairs = db.multi_tree("pairs").unwrap();
        for value in 0..10_u8 {
            pairs.add(b"a\0b", [value]).unwrap();
        }
    });
    let groups = records(&files);
    for (path, at, len) in [&groups[0], &groups[11]] {
        flip(&mut files, path, at + len - 1);
    }
    let (report, db) = salvaged(&files);
    let names: Vec<&str> = report.trees.iter().map(|tree| tree.name.as_str()).collect();
    assert_eq!(names, ["lost-tree-1", "lost-tree-2"], "{report:#?}");
    assert!(report.trees.iter().all(|tree| tree.is_name_lost && tree.records == 10));
    assert_eq!(db.open_tree("lost-tree-1").unwrap().get(key(3)).unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(db.open_multi_tree("lost-tree-2").unwrap().count_values(b"a\0b").unwrap(), 10);
}

#[test]
fn salvage_of_open_database_is_refused() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = Db::open_with(settings(&vfs), Path::new(DIR)).unwrap();
    let run = |to: &str| salvage(settings(&vfs), Path::new(DIR), Path::new(to), SalvageOptions::default());
    assert!(matches!(run(TO), Err(Error::Locked { .. })));
    db.close().unwrap();
    run(TO).unwrap();
    assert!(matches!(run(TO), Err(Error::AlreadyExists(_))));
    assert!(matches!(run("/db/new"), Err(Error::InvalidArgument(_))));
    let empty = salvage(settings(&vfs), Path::new("/nowhere"), Path::new("/other"), SalvageOptions::default());
    assert!(empty.unwrap_err().is_not_found());
}

#[test]
fn failed_salvage_leaves_nothing_or_a_directory_that_does_not_open() {
    let files = make(|db| {
        fill(db, 0..300, "value");
        db.flush().unwrap();
    });
    for after in 0..200 {
        let vfs = FaultVfs::of_files(Path::new(DIR), &files);
        let is_killed = after % 2 == 1;
        vfs.fail(Operation::Write, after, u32::MAX, io::ErrorKind::Other);
        if is_killed {
            vfs.fail(Operation::Remove, 0, u32::MAX, io::ErrorKind::Other);
        }
        let done = salvage(settings(&vfs), Path::new(DIR), Path::new(TO), SalvageOptions::default());
        vfs.heal();
        if done.is_ok() {
            assert!(after > 10);
            return;
        }
        let left: Vec<PathBuf> = vfs.files().into_keys().filter(|path| path.starts_with(TO)).collect();
        let opened = Db::open_with(Settings { create: false, ..settings(&vfs) }, Path::new(TO));
        assert!(opened.is_err() && (is_killed || left.is_empty()), "after {after} writes: {left:?}");
    }
    panic!("it never succeeds");
}
