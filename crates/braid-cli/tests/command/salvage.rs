//! Salvage by the command.

use crate::common::Workplace;
use std::{fs, path::PathBuf};

fn workplace() -> Workplace {
    let place = Workplace::with_database();
    for number in 0..9 {
        place.ok(&format!("put db albums key{number} value{number}"));
    }
    place
}

fn file_of(place: &Workplace, part: &str) -> PathBuf {
    let entries = fs::read_dir(place.path("db")).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.to_string_lossy().contains(part)).collect();
    found.sort();
    found.pop().unwrap()
}

#[test]
fn salvage_of_intact_database_loses_nothing_and_exits_0() {
    let place = workplace();
    let report = place.ok("salvage db new");
    assert!(report.contains("albums\t9 records") && report.contains("nothing was lost"), "{report}");
    assert_eq!(place.ok("scan new albums"), place.ok("scan db albums"));
    assert!(place.ok("verify new").contains("sound"));
    assert!(place.fails(2, "salvage db new").contains("not empty"));
    assert!(place.fails(1, "salvage nowhere other").contains("nowhere"));
}

#[test]
fn salvage_without_manifest_reports_it_and_exits_1() {
    let place = workplace();
    fs::remove_file(file_of(&place, "MANIFEST")).unwrap();
    fs::remove_file(file_of(&place, "CURRENT")).unwrap();
    place.fails(3, "scan db albums");
    let ran = place.run("salvage db new --json");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.contains("\"manifest\":\"missing\"") && ran.stdout.contains("\"uncertain\""), "{}", ran.stdout);
    assert!(ran.stdout.contains("\"complete\":false") && ran.stdout.contains("\"records\":9"), "{}", ran.stdout);
    assert!(place.ok("scan new albums").contains("value8"));
}

#[test]
fn dump_with_skip_damaged_exits_1_only_if_records_are_missing() {
    let place = workplace();
    assert!(place.ok("dump db whole.dump --skip-damaged").starts_with("dumped 9 records"));
    place.ok("compact db");
    let run = file_of(&place, ".run");
    let mut bytes = fs::read(&run).unwrap();
    bytes[100] ^= 1;
    fs::write(&run, bytes).unwrap();
    // The list of trees is in the damaged block.
    place.fails(3, "dump db part.dump --skip-damaged");
    assert_eq!(place.run("salvage db new").code, 1);
}
