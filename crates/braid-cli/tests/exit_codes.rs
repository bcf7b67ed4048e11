//! The codes that scripts go by, and commands on the database as a whole.

mod common;

use std::{fs, path::Path};

use common::Workplace;

#[test]
fn the_command_tells_about_itself() {
    let place = Workplace::new();
    let help = place.ok("--help");
    for command in
        ["create", "get", "put", "del", "scan", "trees", "import", "find", "export", "stats", "verify", "compact"]
    {
        assert!(help.contains(command), "{command}: {help}");
    }
    assert!(help.contains("inspect") && help.contains("demo") && help.contains("Exit codes:"));
    assert!(place.ok("--version").starts_with("braid "));
}

#[test]
fn what_makes_no_sense_is_2() {
    let place = Workplace::new();
    place.fails(2, "frobnicate");
    place.fails(2, "get db");
    place.ok("create db");
    place.fails(2, "create db");
    place.write("in", "");
    place.fails(2, "import db in --tree t");
    place.fails(2, "import db in --format jsonl");
    place.fails(2, "import db in --format jsonl --tree t --index nonsense");
    place.fails(2, "find db t --by i");
    place.fails(2, "put db t k v --memory lots");
    place.fails(2, "inspect db");
}

#[test]
fn what_is_not_there_is_1() {
    let place = Workplace::new();
    for command in ["get no t k", "scan no t", "trees no", "stats no", "verify no", "compact no", "export no t"] {
        place.fails(1, command);
        assert!(!place.path("no").exists(), "{command}");
    }
    place.ok("create db");
    place.fails(1, "get db t k");
    place.fails(1, "scan db t");
    place.fails(1, "del db t k");
    place.fails(1, "find db t --by i --eq x");
}

#[test]
fn what_the_system_refuses_is_4() {
    let place = Workplace::new();
    place.fails(4, "import db no.jsonl --tree t");
    place.fails(4, "inspect no");
    place.write("file", "");
    place.fails(4, "put file/db t k v");
}

#[test]
fn a_sound_database_is_verified_compacted_and_shown() {
    let place = Workplace::new();
    let lines: String = (0..2000).map(|number| format!("{{\"id\":\"{number}\"}}\n")).collect();
    place.write("in.jsonl", lines);
    place.ok("import db in.jsonl --tree t --key id");
    assert!(place.ok("verify db").ends_with("sound\n"));
    assert!(place.ok("compact db").contains(" after"));
    assert!(place.ok("stats db").contains("on disk"));
    let json: serde_json::Value = serde_json::from_str(&place.ok("stats db --json")).unwrap();
    assert!(json["disk_bytes"].as_u64().unwrap() > 0);
    assert!(json["partitions"].is_array());
    assert_eq!(place.ok("scan db t").lines().count(), 2000);
}

#[test]
fn every_file_can_be_inspected() {
    let place = Workplace::new();
    place.ok("put db t k v");
    place.ok("compact db");
    let mut inspected = 0;
    for entry in fs::read_dir(place.path("db")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() && !is_lock(&path) && fs::metadata(&path).unwrap().len() > 0 {
            assert!(!place.ok(&format!("inspect {}", path.display())).is_empty(), "{}", path.display());
            inspected += 1;
        }
    }
    assert!(inspected > 0);
}

fn is_lock(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().to_uppercase().contains("LOCK"))
}

#[test]
fn a_database_that_is_open_elsewhere_is_4() {
    let place = Workplace::new();
    place.ok("put db t k v");
    // An import that waits for its input holds the database.
    let mut holder = std::process::Command::new(common::BRAID)
        .args(["import", place.path("db").to_str().unwrap(), "-", "--tree", "t", "--format", "jsonl", "--acknowledge"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut input = holder.stdin.take().unwrap();
    // More than the reader takes before it opens the database.
    std::io::Write::write_all(&mut input, format!("{{\"x\":\"{}\"}}\n", "x".repeat(1000)).repeat(3000).as_bytes())
        .unwrap();
    let message = place.fails(4, "get db t k");
    assert!(message.contains("open"), "{message}");
    drop(input);
    assert!(holder.wait().unwrap().success());
    assert_eq!(place.ok("get db t k --keys text"), "v\n");
    assert_eq!(place.ok("get db t k --keys text --read-only"), "v\n");
}
