//! Exit codes, and commands for whole databases.

use crate::common;

use std::{fs, path::Path};

use common::Workplace;

#[test]
fn help_and_version_exit_0() {
    let place = Workplace::new();
    let help = place.ok("--help");
    for command in
        ["create", "get", "put", "del", "scan", "trees", "import", "find", "export", "stats", "verify", "compact"]
    {
        assert!(help.contains(command), "{command}: {help}");
    }
    assert!(
        help.contains("inspect") && help.contains("bench") && help.contains("demo") && help.contains("Exit codes:")
    );
    assert!(place.ok("--version").starts_with("braid "));
}

#[test]
fn invalid_command_line_exits_2() {
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
fn missing_database_tree_or_key_exits_1() {
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
fn system_error_exits_4() {
    let place = Workplace::new();
    place.fails(4, "import db no.jsonl --tree t");
    let missing = std::fs::File::open(place.path("no")).unwrap_err();
    assert!(place.fails(4, "import db no").starts_with(&format!("braid: cannot open no: {missing}")));
    assert!(!place.path("db").exists());
    place.fails(4, "inspect no");
    place.ok("create db");
    place.write("file", "");
    place.fails(4, "dump db file/dump");
    place.fails(2, "put file/db t k v --create");
}

/// The message repeated "Not a directory (os error 20)".
#[test]
fn system_error_is_printed_once() {
    let place = Workplace::new();
    place.ok("create db");
    place.write("file", "");
    let message = place.fails(4, "dump db file/dump");
    assert_eq!(message.matches("os error").count(), 1, "{message}");
}

/// A foreign file was called damaged, with advice to restore a backup.
#[test]
fn foreign_file_is_not_called_damaged() {
    let place = Workplace::new();
    for name in ["passwd", "notes.run", "LOCK"] {
        place.write(name, "root:x:0:0\n");
        let message = place.fails(2, &format!("inspect {name}"));
        assert!(message.contains("no file of BraidDB") && !message.contains("backup"), "{message}");
    }
    for name in ["CURRENT", "000012.run", "MANIFEST-000001"] {
        place.write(name, "root:x:0:0\n");
        assert!(place.fails(3, &format!("inspect {name}")).contains("corruption"));
    }
}

#[cfg(unix)]
#[test]
fn argument_that_is_not_utf_8_is_refused_with_alternatives() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt, process::Command};
    let place = Workplace::with_database();
    for arguments in [["t", "k\u{e9}", "v"], ["t", "k", "v\u{e9}"]] {
        let latin1 = arguments.map(|it| it.chars().map(|c| c as u8).collect::<Vec<u8>>());
        let arguments = latin1.iter().map(|it| OsStr::from_bytes(it));
        let output =
            Command::new(common::BRAID).args(["put", "db"]).args(arguments).current_dir(place.path("")).output();
        let output = output.unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("\\xNN") && message.contains("--keys hex") && message.contains("`-`"), "{message}");
    }
    let outcome = place.run_with(&["put", "db", "t", "6be9", "-", "--keys", "hex"], b"v\xe9");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert_eq!(place.ok("scan db t"), "k\\xe9\tv\\xe9\n");
}

#[test]
fn tree_of_other_kind_is_refused_with_clear_message() {
    let place = Workplace::with_database();
    place.write("in.jsonl", "{\"id\":\"1\",\"tag\":\"red\"}\n");
    place.ok("import db in.jsonl --tree t --key id --index i=tag");
    let message = place.fails(2, "find db i --by t --eq red");
    assert!(message.contains("keeps many values to a key, but one value was asked for"), "{message}");
    let message = place.fails(2, "find db t --by t --eq red");
    assert!(message.contains("keeps one value to a key, but many values were asked for"), "{message}");
}

#[test]
fn verify_compact_and_stats_of_sound_database_exit_0() {
    let place = Workplace::with_database();
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
fn inspect_of_every_file_succeeds() {
    let place = Workplace::with_database();
    place.ok("put db t k v");
    place.ok("compact db");
    fs::write(place.path("db").join("000099.wal"), vec![0; 8192]).unwrap();
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
fn write_to_open_database_exits_4() {
    let place = Workplace::with_database();
    place.ok("put db t k v");
    let mut command = std::process::Command::new(common::BRAID);
    command.args([
        "import",
        place.path("db").to_str().unwrap(),
        "-",
        "--tree",
        "numbers",
        "--format",
        "jsonl",
        "--acknowledge",
    ]);
    let mut holder = common::spawn(command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null()));
    let mut input = holder.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, format!("{{\"x\":\"{}\"}}\n", "x".repeat(1000)).repeat(3000).as_bytes())
        .unwrap();
    let message = place.fails(4, "put db t k w");
    assert!(message.contains("in use by"), "{message}");
    assert_eq!(place.ok("get db t k"), "v\n");
    drop(input);
    assert!(holder.wait().unwrap().success());
    assert_eq!(place.ok("get db t k"), "v\n");
    assert_eq!(place.ok("get db t k --read-only"), "v\n");
}

#[test]
fn file_in_place_of_database_exits_2() {
    let place = Workplace::new();
    place.write("file", "root:x:0:0\n");
    for command in ["stats file", "get file t k", "get file t k --read-only", "compact file", "put file t k v"] {
        assert_eq!(
            place.fails(2, command),
            "braid: file is a file, not a database: a database is a directory\n",
            "{command}"
        );
    }
    place.fails(1, "stats file/db");
}

/// A newcomer read "invalid digit found in string", and "No such file or directory" without a name.
#[test]
fn errors_of_newcomers_say_what_to_do() {
    let place = Workplace::with_database();
    place.ok("put db t k v");
    fs::create_dir(place.path("folder")).unwrap();
    fs::write(place.path("notes.txt"), "a line").unwrap();
    for (code, line, part) in [
        (2, "scan db t --limit ten", "'--limit <N>': give a whole number"),
        (2, "scan db t --limit 99999999999999999999", "the number is too large"),
        (1, "trees db --set absent --ttl 5", "`braid trees` lists them"),
        (1, "index drop db t absent", "`braid index list` lists them"),
        (2, "import db notes.txt --tree u", "--format jsonl, csv, tsv"),
        (5, "import db folder --tree u --format jsonl", "give a file, or - for standard input"),
        (4, "dump db absent/db.dump", "there is no directory absent; create it first"),
        (4, "export db -o absent/t.jsonl", "there is no directory absent; create it first"),
        (2, "watch db --from 7", "`--after 7` begins after commit 7"),
        (1, "get absent t k", "the directory does not exist"),
    ] {
        let why = place.fails(code, line);
        assert!(why.contains(part), "{line}: {why}");
    }
    let wrong: serde_json::Value = serde_json::from_str(&place.fails(2, "count db t --json --memory 5X")).unwrap();
    assert!(wrong["error"].as_str().unwrap().contains("64M"), "{wrong}");
}
