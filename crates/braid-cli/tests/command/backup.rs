//! `backup`, `restore`, `archive` and `checkpoint`.

use crate::common;

use common::Workplace;
use std::fs;

fn workplace() -> Workplace {
    let place = Workplace::with_database();
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
fn backup_create_list_verify_restore_and_delete_work() {
    let place = workplace();
    let first: serde_json::Value = serde_json::from_str(&place.ok("backup create db backups --json")).unwrap();
    assert_eq!((&first["id"], &first["bytes"]), (&1.into(), &first["bytes_copied"]));
    place.ok("put db t second two");
    let second: serde_json::Value = serde_json::from_str(&place.ok("backup create db backups --json")).unwrap();
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
fn backup_prune_deletes_old_backups() {
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
fn damaged_backup_is_reported_and_not_restored() {
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
    assert!(!place.path("restored").exists());
    place.ok("backup create db backups --full");
    place.ok("restore backups restored");
    assert_eq!(place.ok("get restored t first"), "one\n");
}

#[test]
fn missing_directory_or_backup_exits_1() {
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
fn checkpoint_is_an_independent_database() {
    let place = workplace();
    assert!(place.ok("checkpoint db copy").starts_with("checkpoint at commit "));
    place.ok("put db t first changed");
    place.ok("put copy t second two");
    assert_eq!(place.ok("get copy t first"), "one\n");
    place.fails(1, "get db t second");
    assert!(place.fails(2, "checkpoint db copy").contains("is a database"));
}

#[test]
fn restore_to_commit_returns_its_state() {
    let place = workplace();
    place.ok("backup create db backups");
    let commit = |output: &str| -> u64 { output.trim().rsplit(' ').next().unwrap().parse().unwrap() };
    place.ok("put db t key one");
    let first = commit(&place.ok("archive db archive"));
    let reported = place.ok(&format!("restore backups restored --archive archive --to {first}"));
    assert!(reported.contains(&format!("at commit {first}:")), "{reported}");
    assert_eq!(place.ok("get restored t key"), "one\n");
    assert_eq!(place.ok("get restored t long").len(), 10_001);
    let before = place.ok(&format!("restore backups before --archive archive --to {}", first - 1));
    assert!(before.contains(&format!("at commit {}:", first - 1)), "{before}");
    place.fails(1, "get before t key");
    let late = place.fails(2, &format!("restore backups late --archive archive --to {}", first + 9));
    assert!(late.contains("is not in the archive"), "{late}");
    assert!(place.fails(1, "restore backups early --archive archive --to 2001-01-01T00:00:00Z").contains("no backup"));
    place.fails(2, "restore backups later --archive archive --to 2999-01-01T00:00:00Z");
    assert!(place.fails(2, "restore backups x --archive archive --to yesterday").contains("is not a restore point"));
    place.fails(2, "restore backups x --to 7");
    place.fails(2, "restore backups x --archive archive --to 7 --backup 1");
}

/// A commit number past the archive's end was reported as a damaged backup, with code 3.
#[test]
fn restore_past_archive_end_names_last_commit() {
    let place = Workplace::with_database();
    place.ok("put db t a 1");
    place.ok("backup create db backups");
    place.ok("put db t b 2");
    place.ok("archive db log");
    let restore = "restore backups new --archive log --to";
    let text = place.fails(2, &format!("{restore} 1234567"));
    assert!(text.contains("commit 1234567 is not in the archive; the last is"), "{text}");
    assert!(!text.contains("damaged"), "{text}");
    let text = place.fails(2, &format!("{restore} 2999-01-01T00:00:00Z"));
    assert!(text.contains("no commit in the archive was made later"), "{text}");
    assert!(place.fails(2, &format!("{restore} yesterday")).contains("`latest`"));
    let text = place.fails(1, "restore backups new --archive nowhere --to 1234567");
    assert!(text.contains("there is no log archive"), "{text}");
    assert!(place.ok(&format!("{restore} latest")).contains("from the log archive"));
    assert_eq!(place.ok("get new t b"), place.ok("get db t b"));
}

/// The directory of a killed load was called an unfinished restore, and the next load refused it.
#[test]
fn load_and_restore_with_force_replace_unfinished_load() {
    let place = Workplace::with_database();
    place.ok("put db t a 1");
    place.ok("dump db all.dump");
    place.ok("backup create db backups");
    for command in ["load all.dump new", "restore backups new"] {
        place.ok("load all.dump new");
        place.write("new/RESTORING", "load\n");
        let text = place.fails(1, "stats new");
        assert!(text.contains("a load into it is not finished") && text.contains("--force"), "{text}");
        let text = place.fails(2, command);
        assert!(text.contains("a load into it is not finished"), "{text}");
        place.write("new/notes.txt", "mine");
        assert!(place.fails(2, &format!("{command} --force")).contains("notes.txt"));
        assert!(place.path("new/CURRENT").exists());
        std::fs::remove_file(place.path("new/notes.txt")).unwrap();
        place.ok(&format!("{command} --force"));
        assert_eq!(place.ok("get new t a"), place.ok("get db t a"));
        assert!(place.fails(2, &format!("{command} --force")).contains("is not empty"));
        std::fs::remove_dir_all(place.path("new")).unwrap();
    }
}

#[cfg(not(feature = "s3"))]
#[test]
fn url_of_s3_names_the_missing_feature() {
    let place = workplace();
    for line in ["backup create db s3://bucket/a", "backup list s3://bucket/a", "restore s3://bucket/a new"] {
        assert!(place.fails(2, line).contains("feature s3"), "{line}");
    }
    assert!(!place.path("s3:").exists() && !place.path("new").exists());
}

#[cfg(feature = "s3")]
#[test]
fn url_of_s3_is_checked() {
    let place = workplace();
    for line in ["backup create db s3://", "backup list s3://bucket//a", "restore s3://bucket/../a new"] {
        assert!(place.fails(2, line).contains("s3://BUCKET/PREFIX"), "{line}");
    }
    assert!(!place.path("s3:").exists() && !place.path("new").exists());
}
