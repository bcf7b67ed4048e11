//! The table of exit codes in `docs/cli.md`: every command in each situation.

use crate::common;

use std::{
    fs,
    io::{Read, Write},
    process::{Command, Stdio},
};

use common::{BRAID, Workplace};

const READING: [&str; 10] = [
    "get DB t k",
    "explain DB t k",
    "scan DB t",
    "trees DB",
    "find DB t --by i --eq red",
    "export DB",
    "export DB t --format jsonl",
    "watch DB",
    "stats DB",
    "dump DB OUT",
];

const WRITING: [&str; 6] =
    ["del DB t k", "compact DB", "upgrade DB", "backup create DB OUT", "archive DB OUT", "checkpoint DB OUT"];

const MAKING: [&str; 3] = ["put DB t k v", "import DB in.jsonl --tree t --key id", "import DB some.export"];

fn filled() -> Workplace {
    let place = Workplace::new();
    place.write("in.jsonl", "{\"id\":\"k\",\"colour\":\"red\"}\n");
    place.ok("create db");
    place.ok("import db in.jsonl --tree t --key id --index i=colour");
    place.ok("export db -o some.export");
    place.ok("backup create db backups");
    place.ok("dump db some.dump");
    place
}

fn all_end_with(place: &Workplace, code: i32, db: &str, commands: &[&[&str]]) {
    for (number, command) in commands.concat().iter().enumerate() {
        let command = command.replace("DB", db).replace("OUT", &format!("out-{code}-{number}"));
        let outcome = place.run(&command);
        assert_eq!(outcome.code, code, "{command}: {outcome:?}");
        if code != 0 {
            assert!(outcome.stderr.starts_with("braid: ") && outcome.stdout.is_empty(), "{command}: {outcome:?}");
        }
    }
}

#[test]
fn sound_database_exits_0() {
    all_end_with(&filled(), 0, "db", &[&READING, &MAKING, &WRITING]);
}

#[test]
fn missing_database_exits_1() {
    let place = filled();
    all_end_with(&place, 1, "none", &[&READING, &WRITING, &MAKING]);
    assert!(!place.path("none").exists());
    for command in [
        "get db none k",
        "get db t none",
        "scan db none",
        "del db none k",
        "del db t none",
        "find db none --by i --eq red",
        "find db t --by none --eq red",
        "find db t --by i --eq none",
        "export db none",
        "export db none --format jsonl",
        "watch db --tree none",
        "restore backups new --backup 7",
        "backup delete backups 7",
    ] {
        place.fails(1, command);
    }
}

#[test]
fn file_in_place_of_database_exits_2() {
    let place = filled();
    place.write("file", "root:x:0:0\n");
    all_end_with(&place, 2, "file", &[&READING, &MAKING, &WRITING]);
    for command in ["create db", "restore backups db", "load some.dump db", "checkpoint db backups"] {
        place.fails(2, command);
    }
}

#[test]
fn damage_exits_3_but_checks_exit_1() {
    let place = filled();
    let damaged = |from: &str, part: &str| {
        for entry in fs::read_dir(place.path(from)).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.file_name().unwrap().to_string_lossy().contains(part) {
                let len = fs::metadata(&entry).unwrap().len();
                fs::write(&entry, vec![b'x'; usize::try_from(len).unwrap()]).unwrap();
            }
        }
    };
    damaged("backups", ".run");
    place.fails(3, "restore backups new");
    let checked = place.run("backup verify backups --json");
    assert_eq!(checked.code, 1, "{checked:?}");
    let report: serde_json::Value = serde_json::from_str(&checked.stdout).unwrap();
    assert_eq!(report["damaged"], serde_json::json!([1]));
    let mut dump = fs::read(place.path("some.dump")).unwrap();
    let middle = dump.len() / 2;
    dump[middle] ^= 1;
    fs::write(place.path("some.dump"), dump).unwrap();
    place.fails(3, "load some.dump new");
    place.fails(3, "load some.dump --check");
    damaged("db", "MANIFEST");
    all_end_with(&place, 3, "db", &[&READING, &MAKING, &WRITING]);
}

#[test]
fn write_to_open_database_exits_4_and_read_exits_0() {
    let place = filled();
    let mut holder = Command::new(BRAID);
    holder.args(["import", "db", "-", "--tree", "numbers", "--format", "jsonl", "--acknowledge"]);
    holder.current_dir(place.path("")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = common::spawn(&mut holder);
    let mut input = holder.stdin.take().unwrap();
    // More than the reader buffers, and more than a batch, which the import acknowledges.
    let records = format!("{{\"x\":\"{}\"}}\n", "x".repeat(1000)).repeat(4000);
    input.write_all(records.as_bytes()).unwrap();
    holder.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
    all_end_with(&place, 4, "db", &[&WRITING, &MAKING]);
    all_end_with(&place, 0, "db", &[&READING]);
    drop(input);
    let mut rest = Vec::new();
    holder.stdout.take().unwrap().read_to_end(&mut rest).unwrap();
    assert!(holder.wait().unwrap().success());
}

/// An empty .jsonl ended with 0, an empty .csv with 5.
#[test]
fn empty_input_exits_0_and_useless_input_exits_5() {
    let place = filled();
    for format in ["jsonl", "csv", "tsv"] {
        place.write("empty", "");
        let report = place.ok(&format!("import db empty --format {format} --tree {format} --key id"));
        assert!(report.starts_with("0 records"), "{report}");
        place.write("useless", "a\n\u{1}b,\n");
        place.fails(5, &format!("import db useless --format {format} --tree {format} --key id"));
    }
    place.write("empty.tar", "");
    place.ok("import db empty.tar");
    place.fails(5, "import db empty --format export");
}
