//! Databases of earlier format versions, written by their builds: they open, hold the same data,
//! and are rewritten.
//!
//! `fixtures/formats/format-N.tar.zst` has a database (`db`) and its contents (`expected`): for
//! each pair, tree, key and value in hexadecimal, at most 120 characters, and the value's length.
//! Version 1 is of commit dc364c7, version 2 of 1f8cefb.

use crate::common;

use common::Workplace;
use std::{fs, path::Path};

const VERSIONS: [u32; 2] = [1, 2];

fn workplace(version: u32) -> (Workplace, String) {
    let place = Workplace::new();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/formats/format-{version}.tar.zst"));
    let unpacked = zstd::decode_all(fs::File::open(path).unwrap()).unwrap();
    tar::Archive::new(unpacked.as_slice()).unpack(place.path("")).unwrap();
    let expected = fs::read_to_string(place.path("expected")).unwrap();
    assert!(expected.lines().count() > 500);
    (place, expected)
}

fn contents(place: &Workplace, db: &str) -> String {
    let mut all = String::new();
    for tree in place.ok(&format!("trees {db} --read-only")).lines() {
        let tree = tree.split('\t').next().unwrap();
        let outcome = place.run_with(&["scan", db, tree, "--read-only", "--format", "hex", "--keys", "hex"], b"");
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        for line in outcome.stdout.lines() {
            let line = format!("{tree}\t{line}");
            all += &format!("{} {}\n", &line[..line.len().min(120)], line.len());
        }
    }
    all
}

fn versions(place: &Workplace) -> Vec<u32> {
    let mut versions = Vec::new();
    for entry in fs::read_dir(place.path("db")).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        for at in [0, 4096] {
            let header = bytes.get(at..at + 12).unwrap_or_default();
            if header.starts_with(b"BRAID") && (at == 0 || header.starts_with(b"BRAIDCUR")) {
                versions.push(u32::from_le_bytes(header[8..12].try_into().unwrap()));
            }
        }
    }
    versions.sort_unstable();
    versions
}

#[test]
fn older_database_opens_with_same_contents() {
    for version in VERSIONS {
        let (place, expected) = workplace(version);
        let before = versions(&place);
        assert!(before.iter().all(|found| *found == version), "{before:?}");
        assert_eq!(contents(&place, "db"), expected, "version {version}");
        assert_eq!(versions(&place), before);
        place.ok("put db records new value");
        assert_eq!(place.ok("get db records new"), "value\n");
        place.ok("del db records new");
        assert_eq!(contents(&place, "db"), expected, "version {version}");
        assert!(place.ok("verify db").contains("sound"));
        assert!(versions(&place).contains(&version), "an open writes nothing anew that it need not");
    }
}

#[test]
fn upgrade_leaves_no_older_file() {
    for version in VERSIONS {
        let (place, expected) = workplace(version);
        assert!(place.ok("upgrade db --check").contains(&format!("version {version}")));
        assert!(versions(&place).contains(&version), "--check changes nothing");
        place.ok("upgrade db");
        let after = versions(&place);
        assert!(after.len() > 3 && after.iter().all(|found| *found == 3), "{after:?}");
        assert_eq!(contents(&place, "db"), expected, "version {version}");
        assert!(place.ok("verify db").contains("sound"));
        assert_eq!(place.ok("upgrade db"), "0 files of earlier versions rewritten\n");
    }
}

#[test]
fn older_database_dumps_and_loads() {
    for version in VERSIONS {
        let (place, expected) = workplace(version);
        place.ok("dump db moved.dump --read-only");
        place.ok("load moved.dump new");
        assert_eq!(contents(&place, "new"), expected, "version {version}");
        assert!(versions(&place).iter().all(|found| *found == version), "the old one is as it was");
    }
}

#[test]
fn idle_open_database_is_rewritten() {
    for version in VERSIONS {
        let (place, expected) = workplace(version);
        let db = braiddb::Db::open(place.path("db")).unwrap();
        assert!(db.stats().older_runs > 0);
        let is_log = |name: &str| name.ends_with(".wal");
        for _ in 0..600 {
            if db.older_files().unwrap().iter().all(|file| is_log(&file.name) || file.name == "CURRENT") {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert_eq!(db.stats().older_runs, 0);
        let left = db.older_files().unwrap();
        assert!(left.iter().all(|file| is_log(&file.name) || file.name == "CURRENT"), "{left:?}");
        db.close().unwrap();
        assert_eq!(contents(&place, "db"), expected, "version {version}");
    }
}
