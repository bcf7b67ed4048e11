//! Commands with two paths, one inside the other; and backup directories without backups.

use crate::common;

use common::Workplace;
use std::fs;

fn filled() -> Workplace {
    let place = Workplace::with_database();
    place.ok("put db t k v");
    place
}

fn names(place: &Workplace, dir: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut folders = vec![place.path(dir)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            names.push(entry.display().to_string());
            if entry.is_dir() {
                folders.push(entry);
            }
        }
    }
    names.sort();
    names
}

#[test]
fn backup_commands_on_directory_without_backups_exit_1() {
    let place = filled();
    fs::create_dir(place.path("empty")).unwrap();
    for command in ["backup list", "backup list --json", "backup verify", "backup prune --keep 1", "backup delete"] {
        let more = if command == "backup delete" { " 1" } else { "" };
        for dir in ["none", "empty", "db", "none/none"] {
            let outcome = place.run(&format!("{command} {dir}{more}"));
            assert_eq!(outcome.code, 1, "{command} {dir}: {outcome:?}");
            assert!(outcome.stderr.contains(dir) && outcome.stdout.is_empty(), "{outcome:?}");
        }
        assert!(place.fails(1, &format!("{command} empty{more}")).contains("braid backup create"));
    }
    assert!(names(&place, "empty").is_empty());
    place.fails(1, "restore empty new");
    assert!(!place.path("new").exists());
    place.write("file", "");
    place.fails(2, "backup list file");
}

#[test]
fn output_inside_or_around_database_is_refused_and_creates_nothing() {
    let place = filled();
    fs::create_dir(place.path("db/inner")).unwrap();
    let before = names(&place, "");
    for target in ["db", "./db/../db", "db/inner", "db/new", "db/inner/new", "."] {
        for command in ["archive db TO", "backup create db TO", "checkpoint db TO", "checkpoint db TO --copy"] {
            let said = place.fails(2, &command.replace("TO", target));
            assert!(said.contains("name another place"), "{command} {target}: {said}");
        }
    }
    assert_eq!(names(&place, ""), before);
    place.ok("put db t k w");
    assert!(place.ok("verify db").ends_with("sound\n"));
}

#[cfg(unix)]
#[test]
fn output_inside_database_by_symbolic_link_is_refused() {
    let place = filled();
    std::os::unix::fs::symlink("db", place.path("link")).unwrap();
    std::os::unix::fs::symlink("db/new", place.path("dangling")).unwrap();
    for target in ["link", "link/new", "dangling"] {
        place.fails(2, &format!("archive db {target}"));
        place.fails(2, &format!("archive link {target}"));
        place.fails(2, &format!("backup create db {target}"));
    }
    place.fails(2, "dump db dangling");
    assert!(!place.path("db/new").exists());
}

/// Swapped arguments filled another database with files of a backup.
#[test]
fn other_database_as_target_is_refused() {
    let place = filled();
    place.ok("create other");
    let before = names(&place, "other");
    for command in ["archive db other", "backup create db other", "archive db other/new", "checkpoint db other/new"] {
        place.fails(2, command);
    }
    assert_eq!(names(&place, "other"), before);
}

#[test]
fn output_file_inside_database_is_refused() {
    let place = filled();
    place.write("in.jsonl", "{\"id\":\"k\"}\n");
    place.ok("create other");
    let current = fs::read(place.path("db/CURRENT")).unwrap();
    for file in ["db/CURRENT", "db/out", "other/out"] {
        for command in ["export db -o", "export db t --values -o", "dump db --force", "import db in.jsonl --to-jsonl"] {
            let said = place.fails(2, &format!("{command} {file}"));
            assert!(said.contains("is inside"), "{command} {file}: {said}");
        }
    }
    assert_eq!(fs::read(place.path("db/CURRENT")).unwrap(), current);
}

#[test]
fn new_database_inside_database_or_its_source_is_refused() {
    let place = filled();
    place.ok("backup create db backups");
    place.ok("archive db archive");
    place.ok("dump db some.dump");
    for command in [
        "restore backups backups",
        "restore backups backups/new",
        "restore backups archive/new --archive archive --to 1",
        "restore backups db/new",
        "load some.dump db/new",
        "load some.dump backups",
        "load some.dump backups/new",
        "load some.dump archive",
        "load some.dump archive/new",
        "checkpoint db backups/new",
        "checkpoint db backups/new --copy",
        "salvage db backups/new",
        "salvage db db",
        "salvage db db/new",
        "salvage backups db/new",
        "create db/new",
        "put db/new t k v --create",
    ] {
        place.fails(2, command);
    }
    assert!(!place.path("db/new").exists() && !place.path("backups/new").exists());
    assert!(place.ok("backup verify backups").ends_with("backup 1 is whole\n"));
}

/// For a path two levels below a file, the message reported a missing directory.
#[test]
fn new_directory_below_file_or_missing_parent_names_obstacle() {
    let place = filled();
    place.ok("dump db some.dump");
    for command in ["archive db", "backup create db", "checkpoint db", "checkpoint --copy db", "load some.dump"] {
        for path in ["some.dump/new", "some.dump/a/b/new"] {
            let said = place.fails(2, &format!("{command} {path}"));
            assert!(said.contains("some.dump is a file, not a directory"), "{command} {path}: {said}");
        }
        let said = place.fails(4, &format!("{command} none/new"));
        assert!(said.contains("there is no directory none; create it first"), "{command}: {said}");
    }
    assert!(!place.path("none").exists());
}
