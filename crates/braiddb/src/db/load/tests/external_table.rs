//! Tables built without the database and ingested.

use super::bulk::{check_after_kill, each_failure};
use crate::{
    base::{Error, Result},
    db::{
        Db, Settings, TableBuilder, TableInfo, TableSpec, Tree,
        tests_common::{DIR, fault, mem, open, small},
    },
    platform::{OpenMode, SystemRuntime, Vfs, fault_vfs::FaultVfs},
};
use std::{
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

fn key(number: u32) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

fn value(number: u32, tag: u8) -> Vec<u8> {
    vec![number as u8 ^ tag; 10 + number as usize % 90]
}

fn build(vfs: &Arc<dyn Vfs>, name: &str, spec: &TableSpec, numbers: Range<u32>, tag: u8) -> Result<TableInfo> {
    let path = PathBuf::from(DIR).join(name);
    let runtime = Arc::new(SystemRuntime::new());
    let mut builder = TableBuilder::create_in(Arc::clone(vfs), runtime, &path, spec)?;
    for number in numbers {
        builder.add(key(number), value(number, tag))?;
    }
    builder.finish()
}

fn contents(tree: &Tree) -> BTreeMap<Vec<u8>, Vec<u8>> {
    tree.iter().map(|pair| pair.unwrap()).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn expected(parts: &[(Range<u32>, u8)]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    parts.iter().flat_map(|(numbers, tag)| numbers.clone().map(|n| (key(n), value(n, *tag)))).collect()
}

fn check(db: &Db, parts: &[(Range<u32>, u8)]) {
    assert!(contents(&db.tree("t").unwrap()) == expected(parts));
    let report = db.verify().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn ingest_of_many_tables_outlives_their_files() {
    for background_threads in [0, 2] {
        let vfs = mem();
        let settings = || Settings { background_threads, ..small(&vfs) };
        let db = open(settings()).unwrap();
        let tree = db.tree("t").unwrap();
        let spec: TableSpec = tree.table_spec().unwrap().to_string().parse().unwrap();
        tree.put(key(5), b"old").unwrap();
        tree.put(key(9_000), value(9_000, 3)).unwrap();
        db.flush().unwrap();
        tree.put(key(2_100), b"old").unwrap();
        let before = db.snapshot();
        let infos: Vec<TableInfo> = (0..10)
            .rev()
            .map(|n| build(&vfs, &format!("{n}.table"), &spec, n * 400..(n + 1) * 400, 1).unwrap())
            .collect();
        assert_eq!((&infos[9].first_key, &infos[9].last_key), (&key(0), &key(399)));
        let loaded = tree.ingest(infos.iter().map(|info| &info.path)).unwrap();
        assert_eq!((loaded.records, loaded.sequence), (4000, db.snapshot().sequence()));
        for info in &infos {
            vfs.remove(&info.path).unwrap();
        }
        let parts = [(0..4000, 1), (9_000..9_001, 3)];
        check(&db, &parts);
        assert_eq!(before.iter(&tree).count(), 3);
        assert_eq!(before.get(&tree, key(5)).unwrap().as_deref(), Some(&b"old"[..]));
        drop(before);
        let spec = tree.table_spec().unwrap();
        let again = build(&vfs, "again.table", &spec, 100..900, 2).unwrap();
        tree.ingest([&again.path]).unwrap();
        let parts = [(0..4000, 1), (9_000..9_001, 3), (100..900, 2)];
        check(&db, &parts);
        drop(tree);
        db.close().unwrap();
        let db = open(settings()).unwrap();
        check(&db, &parts);
        db.compact().unwrap();
        check(&db, &parts);
        let tree = db.tree("t").unwrap();
        tree.delete_range(key(0)..key(5000)).unwrap();
        tree.ingest([&again.path]).unwrap();
        tree.ingest([&again.path]).unwrap();
        check(&db, &[(100..900, 2), (9_000..9_001, 3)]);
        db.compact().unwrap();
        check(&db, &[(100..900, 2), (9_000..9_001, 3)]);
    }
}

#[test]
fn ingest_of_invalid_table_fails_and_leaves_nothing() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let (tree, other) = (db.tree("t").unwrap(), db.tree("other").unwrap());
    let spec = tree.table_spec().unwrap();
    let (a, b) = (build(&vfs, "a", &spec, 0..300, 1).unwrap(), build(&vfs, "b", &spec, 299..600, 1).unwrap());
    let foreign = build(&vfs, "c", &other.table_spec().unwrap(), 700..800, 1).unwrap();
    tree.put(b"x", b"y").unwrap();
    db.flush().unwrap();
    let names = || {
        let mut names: Vec<String> =
            vfs.list(Path::new(DIR)).unwrap().into_iter().map(|e| e.name).filter(|n| n.ends_with(".run")).collect();
        names.sort();
        names
    };
    let before = names();
    let own_run = PathBuf::from(DIR).join(&before[0]);
    let reported = |paths: &[&Path], words: &str| {
        let error = tree.ingest(paths).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(names(), before, "{words}");
        error
    };
    reported(&[&a.path, &b.path], "overlap");
    reported(&[&a.path, &a.path], "overlap");
    reported(&[&a.path, &foreign.path], "another tree");
    reported(&[&own_run], "a run of a database");
    reported(&[&a.path, Path::new("/db/none")], "none");
    assert!(build(&vfs, "d", &spec, 5..5, 1).is_err());
    assert!(build(&vfs, "a", &spec, 0..1, 1).is_err(), "it exists");
    let mut builder =
        TableBuilder::create_in(Arc::clone(&vfs), Arc::new(SystemRuntime::new()), Path::new("/db/e"), &spec).unwrap();
    builder.add(b"b", b"").unwrap();
    assert!(builder.add(b"b", b"").unwrap_err().to_string().contains("record 2"));
    assert!(builder.add(b"c", b"").is_err() && builder.finish().is_err());
    assert!(vfs.open(Path::new("/db/e"), OpenMode::Read).is_err(), "what was not finished is removed");
    for text in ["", "braid-table-1:1:1", "braid-table-2:1:1:4096", "braid-table-1:x:1:4096", "braid-table-1:1:9:4096"]
    {
        assert!(text.parse::<TableSpec>().is_err(), "{text}");
    }
    // Damage in parts read during the ingest: each bit of header and footer, and each length.
    let file = vfs.open(&a.path, OpenMode::ReadWrite).unwrap();
    let len = file.len().unwrap();
    for at in (0..64).chain(len - 144..len) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_at(&[byte[0] ^ 4], at).unwrap();
        let error = tree.ingest([&a.path]).unwrap_err();
        assert!(error.is_corruption() || matches!(error, Error::Unsupported { .. }), "byte {at}: {error}");
        file.write_at(&byte, at).unwrap();
    }
    file.set_len(len - 1).unwrap();
    assert!(tree.ingest([&a.path]).unwrap_err().is_corruption());
    file.set_len(0).unwrap();
    assert!(tree.ingest([&a.path]).unwrap_err().is_corruption());
    assert_eq!(names(), before);
    assert_eq!(contents(&tree).len(), 1);
    tree.ingest([&b.path]).unwrap();
    assert_eq!(contents(&tree).len(), 302);
}

#[test]
fn failed_ingest_leaves_nothing_or_unknown_outcome() {
    each_failure(|operation, kind, after| {
        let faults = FaultVfs::new(Path::new(DIR));
        let vfs = fault(&faults);
        let db = open(small(&vfs)).unwrap();
        let tree = db.tree("t").unwrap();
        let spec = tree.table_spec().unwrap();
        let tables = [0..200, 300..500].map(|n| build(&vfs, &format!("{}.t", n.start), &spec, n, 1).unwrap().path);
        tree.put(key(7), b"old").unwrap();
        let calls = || faults.journal().iter().filter(|(call, _)| *call == operation).count() as u32;
        let calls_before = calls();
        faults.fail(operation, after, 1, kind);
        let done = tree.ingest(&tables);
        let is_over = done.is_ok() && calls() - calls_before <= after;
        faults.heal();
        let len = contents(&tree).len();
        let is_unknown = matches!(done, Err(Error::CommitUnknown { .. } | Error::ReadOnly { .. }));
        assert!(is_unknown || len == if done.is_ok() { 400 } else { 1 }, "{operation:?} {kind:?} {after}: {len}");
        if done.is_err() && db.stats().failure.is_none() {
            tree.ingest(&tables).unwrap();
            assert_eq!(contents(&tree).len(), 400);
        }
        drop((tree, db));
        check_after_kill(&faults, 400, done.is_ok(), &format!("{operation:?} {kind:?} {after}"));
        is_over
    });
}

#[test]
fn ranges_can_be_estimated_divided_and_exported() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let (tree, other) = (db.tree("t").unwrap(), db.tree("other").unwrap());
    other.bulk_load((0..500).map(|n| (key(n), value(n, 9)))).unwrap();
    tree.bulk_load((0..4000).map(|n| (key(n), value(n, 1)))).unwrap();
    for n in 4000..6000 {
        tree.put(key(n), value(n, 1)).unwrap();
    }
    db.flush().unwrap();
    for n in 6000..6100 {
        tree.put(key(n), value(n, 1)).unwrap();
    }
    for (from, to) in [(0, 6100), (100, 3100), (3000, 5000), (5900, 6050), (6050, 9000), (7000, 8000), (50, 40)] {
        let found = tree.approximate(key(from)..key(to)).unwrap();
        let wanted = u64::from(to.min(6100).saturating_sub(from.min(6100)));
        assert!(found.keys.abs_diff(wanted) <= wanted / 20 + 70, "{from}..{to}: {found:?}");
        assert!((found.bytes > 0) == (found.keys > 0) && found.bytes < 400 * (wanted + 70), "{from}..{to}: {found:?}");
    }
    let whole = tree.approximate(..).unwrap();
    assert!(whole.keys.abs_diff(6100) < 100, "{whole:?}");
    for parts in [1, 2, 7, 30] {
        let points = tree.split_points(.., parts).unwrap();
        assert!(points.is_sorted() && points.len() == parts - 1, "{} of {parts}", points.len());
        let starts = [vec![Vec::new()], points.clone()].concat();
        let ends = points.iter().cloned().chain([b"z".to_vec()]);
        for (start, end) in starts.iter().zip(ends) {
            let len = tree.range(start.clone()..end).count();
            // Memtables and compressed runs differ in bytes per record.
            assert!(len * parts > 600 && len * parts < 20_000, "{len} of {parts} parts");
        }
    }
    let within = tree.split_points(key(1000)..=key(1100), 4).unwrap();
    assert!(within.iter().all(|point| key(1000) < *point && *point <= key(1100)), "{within:?}");
    assert!(tree.split_points(.., 0).is_err() && tree.split_points(key(5)..key(5), 3).unwrap().is_empty());

    tree.put(key(2000), b"newest").unwrap();
    let infos = tree.export_tables(key(1500)..key(4500), DIR).unwrap();
    assert_eq!(infos.iter().map(|info| info.records).sum::<u64>(), 3000);
    assert!(tree.export_tables(key(1500)..key(4500), DIR).is_err(), "the files exist");
    assert!(tree.export_tables(key(8000)..key(9000), DIR).unwrap().is_empty());
    let others = contents(&other);
    tree.clip(key(1400)..key(1500)).unwrap();
    assert!(contents(&tree) == expected(&[(1400..1500, 1)]));
    tree.ingest(infos.iter().map(|info| &info.path)).unwrap();
    let mut all = expected(&[(1400..4500, 1)]);
    all.insert(key(2000), b"newest".to_vec());
    assert!(contents(&tree) == all);
    tree.clip((std::ops::Bound::Excluded(key(1400)), std::ops::Bound::Included(key(1600)))).unwrap();
    assert!(contents(&tree) == expected(&[(1401..1601, 1)]));
    tree.clip(..).unwrap();
    assert_eq!(contents(&tree).len(), 200);
    tree.clip(key(9)..key(9)).unwrap();
    assert_eq!(contents(&tree).len(), 0);
    assert!(contents(&other) == others);
    db.compact().unwrap();
    assert!(tree.approximate(..).unwrap().bytes < 10_000);
    assert!(db.verify().unwrap().problems.is_empty());
}
