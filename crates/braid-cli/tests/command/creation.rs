//! Databases and trees that a command creates: only on request, or with a message.

use crate::common;

use common::Workplace;
use std::fs;

/// A mistyped path created a database, with all directories above it.
#[test]
fn write_to_missing_database_names_both_ways_and_creates_nothing() {
    let place = Workplace::new();
    place.write("in.jsonl", "{\"id\":\"k\"}\n");
    place.write("some.export", "{\"braid_export\":1,\"trees\":[]}\n{\"end\":{\"records\":0,\"left_out\":0}}\n");
    fs::create_dir(place.path("empty")).unwrap();
    for db in ["none", "none/none", "empty", "in.jsonl/db"] {
        for command in [
            "put DB t k v",
            "import DB in.jsonl --tree t --key id",
            "import DB in.jsonl --tree t --resume",
            "import DB some.export",
        ] {
            let said = place.fails(1, &command.replace("DB", db));
            let ways = [format!("there is no database in {db}"), format!("`braid create {db}`"), "--create".to_owned()];
            assert!(ways.iter().all(|way| said.contains(way)), "{command} {db}: {said}");
        }
    }
    assert!(!place.path("none").exists());
    assert_eq!(fs::read_dir(place.path("empty")).unwrap().count(), 0);
}

#[test]
fn create_option_creates_database_in_existing_directory() {
    let place = Workplace::new();
    place.write("in.jsonl", "{\"id\":\"k\"}\n");
    place.ok("put one t k v --create");
    assert_eq!(place.ok("get one t k"), "v\n");
    place.ok("import two in.jsonl --tree t --key id --create");
    assert_eq!(place.ok("count two t"), "1\n");
    place.ok("put one t l w --create");
    assert_eq!(place.ok("count one t"), "2\n");
}

#[test]
fn missing_parent_of_new_directory_is_named_and_not_created() {
    let place = Workplace::with_database();
    place.ok("put db t k v");
    place.ok("dump db some.dump");
    place.ok("backup create db backups");
    for command in [
        "create none/new",
        "put none/new t k v --create",
        "load some.dump none/new",
        "restore backups none/new",
        "salvage db none/new",
        "checkpoint db none/new",
        "checkpoint db none/new --copy",
        "backup create db none/new",
        "archive db none/new",
    ] {
        let said = place.fails(4, command);
        assert!(said.contains("there is no directory none"), "{command}: {said}");
        assert!(!place.path("none").exists(), "{command}");
    }
}

/// A mistyped tree name silently created another tree.
#[test]
fn created_tree_is_named_on_standard_error() {
    let place = Workplace::with_database();
    place.write("in.jsonl", "{\"id\":\"k\",\"n\":\"x\"}\n");
    let said = |command: &str| {
        let outcome = place.run(command);
        assert_eq!(outcome.code, 0, "{command}: {outcome:?}");
        outcome.stderr
    };
    assert_eq!(said("put db t k v"), "braid: created tree t\n");
    assert_eq!(said("put db t k w"), "");
    assert_eq!(said("put db n 01 v --keys hex"), "braid: created tree n\n");
    assert_eq!(said("import db in.jsonl --tree loaded --key id"), "braid: created tree loaded\n");
    assert_eq!(said("import db in.jsonl --tree loaded --key id"), "");
    let indexed = "import db in.jsonl --tree indexed --key id --index by_n=n";
    assert_eq!(said(indexed), "braid: created trees by_n, indexed\n");
    assert_eq!(said(indexed), "");
    place.ok("create new");
    place.ok("export db t loaded -o some.export");
    assert_eq!(said("import new some.export"), "braid: created trees loaded, t\n");
    assert_eq!(said("import new some.export"), "");
    assert_eq!(said("import db in.jsonl --tree other --key id --dry-run"), "");
}
