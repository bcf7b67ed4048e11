//! Golden databases: directories as builds of earlier days left them on a little-endian machine, opened on whatever machine this is.
//!
//! `format-N.tar.zst` of the command's fixtures has a database (`db`) and what the build that wrote it found there (`expected`): for each pair,
//! tree, key and value in hexadecimal, no more than 120 characters of that, and its length. How versions 1 and 2 were made is told in the
//! command's `tests/command/upgrade.rs`. Version 3 has, beside an import with an index, all that `every_kind` makes: views in files and in runs,
//! loose runs, key chunks, blocks of each compression, range tombstones, blobs, streams, operands, values that expire, trees of many values,
//! runs that are given a sequence number, and a log of several epochs that no run has yet. `scripts/test-foreign.sh` runs this on a
//! big-endian machine.
//!
//! `zstd-blobs.tar.zst` has a database alone, of a process that was killed: forty values that are blobs in a tree with Zstandard, and as many in one with
//! LZ4, by turns, in a log that was not synced.

#![expect(clippy::disallowed_methods, reason = "fixtures are read")]

use braiddb::{Db, Result};
use std::{
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

const VERSIONS: [u32; 3] = [1, 2, 3];

/// How much of a line is compared.
const LINE_LEN: usize = 120;

/// A copy of the database of a version, and what is in it.
fn golden(version: u32) -> (TempDir, PathBuf, String) {
    let (dir, db) = unpacked(&format!("format-{version}"));
    let expected = fs::read_to_string(dir.path().join("expected")).unwrap();
    assert!(expected.lines().count() > 500);
    (dir, db, expected)
}

fn unpacked(name: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../braid-cli/tests/fixtures/formats");
    let packed = fs::File::open(fixtures.join(format!("{name}.tar.zst"))).unwrap();
    let unpacked = zstd::decode_all(packed).unwrap();
    tar::Archive::new(unpacked.as_slice()).unpack(dir.path()).unwrap();
    let db = dir.path().join("db");
    (dir, db)
}

/// The value of a key in `zstd-blobs`.
fn blob_of(key: u32) -> Vec<u8> {
    format!("{key} is told again, ").repeat(500).into_bytes()
}

/// The lines of a tree, or the error that reading it ends with.
fn lines_of(db: &Db, name: &str, multi: bool) -> Result<String> {
    let mut lines = String::new();
    let mut add = |key: &[u8], value: &[u8]| {
        let line = format!("{name}\t{}\t{}", hex(key), hex(value));
        let end = (0..=line.len().min(LINE_LEN)).rev().find(|&end| line.is_char_boundary(end)).unwrap();
        lines += &format!("{} {}\n", &line[..end], line.chars().count());
    };
    if multi {
        for pair in db.open_multi_tree(name)?.iter() {
            let (key, value) = pair?;
            add(&key, &value);
        }
    } else {
        for pair in db.open_tree(name)?.iter() {
            let (key, value) = pair?;
            add(&key, &value);
        }
    }
    Ok(lines)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(feature = "zstd")]
fn contents(db: &Db) -> Result<String> {
    db.trees()?.iter().map(|tree| lines_of(db, &tree.name, tree.multi)).collect()
}

/// Read as it stands, replayed, verified, merged into new files, and read once more.
#[test]
#[cfg(feature = "zstd")]
fn golden_databases_are_read_and_written_anew() {
    for version in VERSIONS {
        let (_dir, path, expected) = golden(version);
        let db = Db::open_read_only(&path).unwrap();
        assert!(contents(&db).unwrap() == expected, "version {version}, read only");
        db.close().unwrap();
        let db = Db::builder().background_threads(0).open(&path).unwrap();
        assert!(contents(&db).unwrap() == expected, "version {version}, after recovery");
        let problems = db.verify().unwrap().problems;
        assert!(problems.is_empty(), "version {version}: {problems:?}");
        db.compact().unwrap();
        assert!(contents(&db).unwrap() == expected, "version {version}, merged");
        db.close().unwrap();
        let db = Db::open_read_only(&path).unwrap();
        assert!(contents(&db).unwrap() == expected, "version {version}, of new files");
    }
}

/// Every key is found by itself, by the hash bytes of its view, and its neighbours are where the iterator saw them.
#[test]
#[cfg(feature = "zstd")]
fn golden_databases_are_searched() {
    for version in VERSIONS {
        let (_dir, path, _) = golden(version);
        let db = Db::open_read_only(&path).unwrap();
        for info in db.trees().unwrap().iter().filter(|tree| !tree.multi) {
            let tree = db.open_tree(&info.name).unwrap();
            let pairs: Vec<_> = tree.iter().collect::<Result<_>>().unwrap();
            for (at, (key, value)) in pairs.iter().enumerate() {
                assert_eq!(tree.get(key).unwrap().as_deref(), Some(&**value), "{} {key:?}", info.name);
                let mut absent = key.to_vec();
                absent.push(0);
                let next = pairs.get(at + 1).map(|(next, _)| &**next);
                if next != Some(&absent) {
                    assert!(tree.get(&absent).unwrap().is_none());
                }
                let (found, _) = tree.range(&absent[..]..).next().transpose().unwrap().unzip();
                assert_eq!(found.as_deref(), next);
            }
        }
    }
}

/// A build without Zstandard opens the database, and says what is the matter with what it cannot read: blocks that are compressed with it,
/// and those behind which a reader needs one of them (the first of a tree, that follows another tree's last).
#[test]
#[cfg(not(feature = "zstd"))]
fn zstandard_is_missing_by_name() {
    for version in VERSIONS {
        let (_dir, path, expected) = golden(version);
        let db = Db::open_read_only(&path).unwrap();
        let mut refused = Vec::new();
        for tree in db.trees().unwrap() {
            let prefix = format!("{}\t", tree.name);
            let of_tree: String = expected.split_inclusive('\n').filter(|line| line.starts_with(&prefix)).collect();
            match lines_of(&db, &tree.name, tree.multi) {
                Ok(lines) => assert!(lines == of_tree, "version {version}, {}", tree.name),
                Err(braiddb::Error::Unsupported { path, detail }) => {
                    assert!(path.extension().is_some_and(|extension| extension == "run"), "{path:?}");
                    assert!(detail.contains("Zstandard") && detail.contains("feature `zstd`"), "{detail}");
                    refused.push(tree.name);
                }
                Err(e) => panic!("version {version}, {}: {e}", tree.name),
            }
        }
        assert!(refused.len() * 2 < db.trees().unwrap().len(), "version {version}: {refused:?}");
        assert!(refused.contains(&"zstd".to_owned()), "version {version}: {refused:?}");
    }
}

/// It is refused where it is asked for; nothing is stored in another way behind one's back.
#[test]
#[cfg(not(feature = "zstd"))]
fn zstandard_is_not_promised() {
    let dir = tempfile::tempdir().unwrap();
    let is_refused = |error: braiddb::Error| {
        assert!(error.to_string().contains("feature `zstd`"), "{error}");
    };
    is_refused(Db::builder().compression(braiddb::Compression::Zstd).open(dir.path().join("a")).unwrap_err());
    assert!(!dir.path().join("a").join("CURRENT").exists());
    let db = Db::in_memory().unwrap();
    let options = braiddb::TreeOptions { compression: Some(braiddb::Compression::Zstd), ..Default::default() };
    is_refused(db.tree_with("t", options).unwrap_err());
    assert!(db.trees().unwrap().is_empty());
}

/// Values that recovery looks at and cannot unpack are no end of the log: all that was committed is there, and what can be read is read.
#[test]
#[cfg(not(feature = "zstd"))]
fn values_in_zstandard_are_kept_though_they_are_not_read() {
    let (_dir, path) = unpacked("zstd-blobs");
    let is_unreadable = |db: &Db, key: u32| match db.open_tree("zstd").unwrap().get(key.to_be_bytes()) {
        Err(braiddb::Error::Unsupported { path, detail }) => {
            assert!(path.extension().is_some_and(|extension| extension == "blob") && detail.contains("feature `zstd`"));
        }
        other => panic!("{key}: {other:?}"),
    };
    let open = || Db::builder().background_threads(0).blob_threshold(1000).open(&path).unwrap();
    let db = open();
    for key in 0..40_u32 {
        assert!(
            db.open_tree("plain").unwrap().get(key.to_be_bytes()).unwrap().as_deref() == Some(&*blob_of(key)),
            "{key}"
        );
        is_unreadable(&db, key);
    }
    // What is left of the blob file is to be moved elsewhere, and cannot be.
    for key in 0..36_u32 {
        for tree in ["plain", "zstd"] {
            db.open_tree(tree).unwrap().delete(key.to_be_bytes()).unwrap();
        }
    }
    db.compact().unwrap();
    db.close().unwrap();
    let db = open();
    (36..40).for_each(|key| is_unreadable(&db, key));
    assert_eq!(db.open_tree("plain").unwrap().iter().collect::<Result<Vec<_>>>().unwrap().len(), 4);
    // New values of that tree are written in another way, and can be read.
    let tree = db.open_tree("zstd").unwrap();
    tree.put(40_u32.to_be_bytes(), blob_of(40)).unwrap();
    db.compact().unwrap();
    assert!(tree.get(40_u32.to_be_bytes()).unwrap().as_deref() == Some(&*blob_of(40)));
}

#[test]
#[cfg(feature = "zstd")]
fn values_in_zstandard_are_read() {
    let (_dir, path) = unpacked("zstd-blobs");
    let db = Db::open(path).unwrap();
    for key in 0..40_u32 {
        for tree in ["plain", "zstd"] {
            assert!(
                db.open_tree(tree).unwrap().get(key.to_be_bytes()).unwrap().as_deref() == Some(&*blob_of(key)),
                "{key}"
            );
        }
    }
}
