//! Golden databases: directories written by earlier builds on a little-endian machine.
//!
//! `format-N.tar.zst` has a database (`db`) and its pairs as that build saw them (`expected`):
//! tree, key and value in hexadecimal, cut at 120 characters, and the length.
//! `tests/command/upgrade.rs` of the command documents versions 1 and 2; version 3 has an indexed
//! import and everything that `every_kind` makes.
//!
//! `zstd-blobs.tar.zst` has a database of a killed process: forty blob values in a tree with
//! Zstandard and forty in one with LZ4, in turns, in an unsynced log.

#![expect(clippy::disallowed_methods, reason = "fixtures are read")]

use braiddb::{Db, Result};
use std::{
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

const VERSIONS: [u32; 3] = [1, 2, 3];

/// Characters of a line to compare.
const LINE_LEN: usize = 120;

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

fn blob_of(key: u32) -> Vec<u8> {
    format!("{key} is told again, ").repeat(500).into_bytes()
}

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

/// Reads each database as it is, after recovery, and after a merge into new files.
#[test]
#[cfg(feature = "zstd")]
fn golden_database_is_read_and_rewritten_equally() {
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

#[test]
#[cfg(feature = "zstd")]
fn golden_database_finds_each_key() {
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

/// A build without Zstandard opens the database and names the cause of each read error. Unreadable
/// are compressed blocks, and blocks whose reader needs one of them.
#[test]
#[cfg(not(feature = "zstd"))]
fn read_without_zstandard_names_it() {
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

/// Options with Zstandard are refused; no other compression replaces it.
#[test]
#[cfg(not(feature = "zstd"))]
fn option_zstandard_without_it_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let is_refused = |error: braiddb::Error| {
        assert!(error.to_string().contains("feature `zstd`"), "{error}");
    };
    is_refused(Db::builder().compression(braiddb::Compression::Zstd).open(dir.path().join("a")).unwrap_err());
    assert!(!dir.path().join("a").join("CURRENT").exists());
    let db = Db::in_memory().unwrap();
    let options = braiddb::TreeOptions::new().compression(braiddb::Compression::Zstd);
    is_refused(db.tree_with("t", options).unwrap_err());
    assert!(db.trees().unwrap().is_empty());
}

/// Values that recovery cannot decompress do not end the log.
#[test]
#[cfg(not(feature = "zstd"))]
fn values_in_zstandard_without_it_are_kept() {
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
    // The rest of the blob file is due to be moved, which fails.
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
    // New values of that tree use another compression and are readable.
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
