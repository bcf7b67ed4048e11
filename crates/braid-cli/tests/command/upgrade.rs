//! Databases of earlier format versions, as the builds of then have left them: they open, hold what they held, and are written anew.
//!
//! `fixtures/formats/format-N.tar.zst` has a database (`db`) and what the build that wrote it found in it (`expected`): for each pair, tree, key and
//! value in hexadecimal, no more than 120 characters of that, and its length. Version 1 is of commit dc364c7, version 2 of 1f8cefb. Each database was
//! made by `every_kind` (in lives that end with a kill), an import with an index, long values, a compaction, and commits after it that are in the log alone. Version 3
//! is read by the engine's own `tests/golden.rs`.

use crate::common;

use common::Workplace;
use std::{fs, path::Path};

const VERSIONS: [u32; 2] = [1, 2];

/// A workplace with the database of a version, and what is in it.
fn workplace(version: u32) -> (Workplace, String) {
    let place = Workplace::new();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/formats/format-{version}.tar.zst"));
    let unpacked = zstd::decode_all(fs::File::open(path).unwrap()).unwrap();
    tar::Archive::new(unpacked.as_slice()).unpack(place.path("")).unwrap();
    let expected = fs::read_to_string(place.path("expected")).unwrap();
    assert!(expected.lines().count() > 500);
    (place, expected)
}

/// What is in a database now.
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

/// The versions that the headers of a database's files tell, without that the command is asked.
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
fn older_databases_open_and_hold_what_they_held() {
    for version in VERSIONS {
        let (place, expected) = workplace(version);
        let before = versions(&place);
        assert!(before.iter().all(|found| *found == version), "{before:?}");
        assert_eq!(contents(&place, "db"), expected, "version {version}");
        // Read only: nothing was written.
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
fn an_upgrade_leaves_nothing_of_an_older_version() {
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
fn older_databases_move_house() {
    for version in VERSIONS {
        let (place, expected) = workplace(version);
        place.ok("dump db moved.dump --read-only");
        place.ok("load moved.dump new");
        assert_eq!(contents(&place, "new"), expected, "version {version}");
        assert!(versions(&place).iter().all(|found| *found == version), "the old one is as it was");
    }
}

#[test]
fn an_open_database_is_written_anew_while_nothing_is_committed() {
    for version in VERSIONS {
        let (place, expected) = workplace(version);
        let db = braiddb::Db::open(place.path("db")).unwrap();
        assert!(db.stats().older_runs > 0);
        let is_log = |name: &str| name.ends_with(".wal");
        // Half a second of idleness, and then a merge or two.
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
