//! Backups, restores and checkpoints by the command.

use crate::common;

use common::Workplace;
use std::fs;

/// A database with two trees, and values long enough for blob files.
fn workplace() -> Workplace {
    let place = Workplace::new();
    place.ok("put db t first one");
    let long = "x".repeat(10_000);
    place.ok(&format!("put db t long {long}"));
    place
}

fn names(place: &Workplace, dir: &str) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(place.path(dir)).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    names.into_iter().map(|name| name.into_string().unwrap()).collect()
}

#[test]
fn backups_are_made_listed_restored_and_deleted() {
    let place = workplace();
    let first: serde_json::Value = serde_json::from_str(&place.ok("backup create db backups --json")).unwrap();
    assert_eq!((&first["id"], &first["bytes"]), (&1.into(), &first["bytes_copied"]));
    place.ok("put db t second two");
    let second: serde_json::Value = serde_json::from_str(&place.ok("backup create db backups --json")).unwrap();
    // The long value was not copied again.
    assert!(second["bytes_copied"].as_u64().unwrap() < 10_000 && second["bytes"].as_u64().unwrap() > 10_000);
    let listed = place.ok("backup list backups");
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert_eq!(place.ok("backup list backups --json").lines().next().unwrap(), first.to_string());
    assert!(place.ok("backup verify backups").ends_with("backup 1 is whole\nbackup 2 is whole\n"));

    assert!(place.ok("restore backups one --backup 1").starts_with("restored backup 1 at commit "));
    assert_eq!(place.ok("get one t first"), "one\n");
    place.fails(1, "get one t second");
    assert!(place.ok("restore backups two").starts_with("restored backup 2 at commit "));
    assert_eq!(place.ok("get two t second"), "two\n");
    assert_eq!(place.ok("get two t long").len(), 10_001);
    assert!(place.ok("verify two").contains("sound"));
    // Nothing is written over.
    assert!(place.fails(2, "restore backups two").contains("is not empty"));
    assert!(place.fails(2, "restore backups db").contains("is not empty"));

    place.ok("backup delete backups 1");
    assert!(place.fails(1, "restore backups three --backup 1").contains("there is no backup 1"));
    assert!(!place.path("three").join("CURRENT").exists());
    place.ok("restore backups three --backup 2");
    place.ok("backup delete backups 2");
    assert_eq!(names(&place, "backups"), ["LOCK"]);
    assert!(place.fails(1, "restore backups four").contains("there is no backup"));
}

#[test]
fn old_backups_go() {
    let place = workplace();
    for round in 0..4 {
        place.ok(&format!("put db t key {round}"));
        place.ok("backup create db backups");
    }
    assert!(place.fails(2, "backup prune backups").contains("--keep"));
    place.ok("backup prune backups --keep-for 1");
    assert_eq!(place.ok("backup list backups").lines().count(), 4);
    place.ok("backup prune backups --keep 3 --keep-for 0");
    assert_eq!(place.ok("backup list backups").lines().count(), 3);
    place.ok("backup create db backups --keep 1 --full");
    assert_eq!(place.ok("backup list backups").lines().count(), 1);
    assert!(place.ok("backup verify backups").ends_with("backup 5 is whole\n"));
    place.ok("restore backups last");
    assert_eq!(place.ok("get last t key"), "3\n");
}

#[test]
fn damage_is_found_and_refused() {
    let place = workplace();
    place.ok("backup create db backups");
    let name = names(&place, "backups").into_iter().find(|name| name.ends_with(".blob")).unwrap();
    let path = place.path("backups").join(name);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let outcome = place.run("backup verify backups");
    assert_eq!(outcome.code, 1);
    assert!(outcome.stdout.contains("checksum") && outcome.stdout.contains("backup 1 is damaged"), "{outcome:?}");
    let refused = place.fails(3, "restore backups restored");
    assert!(refused.contains("the backup is damaged"), "{refused}");
    assert!(names(&place, "restored").is_empty());
    // A full one does not share what is damaged.
    place.ok("backup create db backups --full");
    place.ok("restore backups restored");
    assert_eq!(place.ok("get restored t first"), "one\n");
}

#[test]
fn what_is_not_there_is_said_so() {
    let place = workplace();
    assert!(place.fails(1, "backup list nowhere").contains("nowhere"));
    assert!(place.fails(1, "restore nowhere x").contains("nowhere"));
    assert!(!place.path("nowhere").exists() && !place.path("x").exists());
    assert!(place.fails(1, "backup create nowhere backups").contains("there is no database in nowhere"));
    place.ok("backup create db backups");
    assert!(place.fails(1, "backup verify backups --backup 7").contains("no backup 7"));
    assert!(place.fails(1, "backup delete backups 7").contains("no backup 7"));
}

#[test]
fn a_checkpoint_is_a_second_database() {
    let place = workplace();
    assert!(place.ok("checkpoint db copy").starts_with("checkpoint at commit "));
    place.ok("put db t first changed");
    place.ok("put copy t second two");
    assert_eq!(place.ok("get copy t first"), "one\n");
    place.fails(1, "get db t second");
    assert!(place.fails(2, "checkpoint db copy").contains("is not empty"));
}

#[test]
fn a_commit_is_gone_back_to() {
    let place = workplace();
    place.ok("backup create db backups");
    let commit = |output: &str| -> u64 { output.trim().rsplit(' ').next().unwrap().parse().unwrap() };
    place.ok("put db t key one");
    let first = commit(&place.ok("archive db archive"));
    let told = place.ok(&format!("restore backups restored --archive archive --to {first}"));
    assert!(told.contains(&format!("at commit {first}:")), "{told}");
    assert_eq!(place.ok("get restored t key"), "one\n");
    assert_eq!(place.ok("get restored t long").len(), 10_001);
    let before = place.ok(&format!("restore backups before --archive archive --to {}", first - 1));
    assert!(before.contains(&format!("at commit {}:", first - 1)), "{before}");
    place.fails(1, "get before t key");
    let late = place.fails(3, &format!("restore backups late --archive archive --to {}", first + 9));
    assert!(late.contains("goes no further"), "{late}");
    assert!(place.fails(1, "restore backups early --archive archive --to 2001-01-01T00:00:00Z").contains("no backup"));
    place.fails(3, "restore backups later --archive archive --to 2999-01-01T00:00:00Z");
    assert!(place.fails(2, "restore backups x --archive archive --to yesterday").contains("neither"));
    place.fails(2, "restore backups x --to 7");
    place.fails(2, "restore backups x --archive archive --to 7 --backup 1");
}
