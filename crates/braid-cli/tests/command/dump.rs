//! `dump`, `load` and `upgrade`.

use crate::common;

use common::Workplace;
use std::{
    fs,
    io::Read,
    process::{Command, Stdio},
};

fn workplace() -> Workplace {
    let place = Workplace::with_database();
    place.ok("put db t first one");
    place.ok(&format!("put db t long {}", "x".repeat(10_000)));
    place.ok("put db t passing gone --ttl 100000");
    place.write("records.jsonl", "{\"id\":\"a\",\"who\":\"X\"}\n{\"id\":\"b\",\"who\":\"X\"}\n");
    let records = place.path("records.jsonl");
    let import = ["import", "db", "records.jsonl", "--tree", "records", "--key", "id", "--index", "by_who=who"];
    assert!(records.exists());
    assert_eq!(place.run_with(&import, b"").code, 0);
    place
}

/// `load --check --json` ended without the totals that its text has.
#[test]
fn check_of_a_dump_as_json_ends_with_totals() {
    let place = Workplace::with_database();
    place.ok("put db t k v");
    place.ok("put db u k v");
    place.ok("dump db out.dump");
    let lines: Vec<serde_json::Value> =
        place.ok("load out.dump --check --json").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]["name"], &lines[1]["records"]), (3, &"t".into(), &1.into()), "{lines:?}");
    let end = &lines[2]["end"];
    assert_eq!(
        (&end["trees"], &end["records"], &end["merge_functions"]),
        (&2.into(), &2.into(), &serde_json::json!([]))
    );
    assert!(end["commit"].as_u64() > Some(0) && end["dump_bytes"].as_u64() > Some(0), "{end}");
}

#[test]
fn dump_is_checked_and_loaded() {
    let place = workplace();
    assert!(place.ok("dump db moved.dump").starts_with("dumped "));
    assert!(place.fails(2, "dump db moved.dump").contains("exists already"));
    let checked = place.ok("load moved.dump --check");
    assert!(checked.contains("t\t3 records") && checked.contains("by_who\t2 pairs"), "{checked}");
    assert!(checked.contains("whole: as of commit"), "{checked}");
    assert!(place.ok("load moved.dump new --threads 3").starts_with("loaded "));
    for command in
        ["trees DB --json", "scan DB t", "scan DB by_who", "export DB records", "find DB records --by by_who --eq X"]
    {
        assert_eq!(place.ok(&command.replace("DB", "db")), place.ok(&command.replace("DB", "new")), "{command}");
    }
    assert!(place.ok("verify new").contains("sound"));
    assert!(place.fails(2, "load moved.dump new").contains("is not empty"));
    assert!(place.fails(2, "load moved.dump").contains("--check"));
}

fn piped(place: &Workplace, from: &str, bytes_max: Option<u64>, to: &str) -> (Option<i32>, String) {
    let start = |arguments: &str, input: Stdio, output: Stdio| {
        let mut command = Command::new(common::BRAID);
        command.args(arguments.split(' ')).current_dir(place.path("")).stdin(input).stdout(output);
        common::spawn(command.stderr(Stdio::piped()))
    };
    let mut writer = start(from, Stdio::null(), Stdio::piped());
    let mut output = writer.stdout.take().unwrap();
    let reader = match bytes_max {
        None => start(to, output.into(), Stdio::null()),
        Some(bytes_max) => {
            let mut reader = start(to, Stdio::piped(), Stdio::null());
            let mut input = reader.stdin.take().unwrap();
            std::io::copy(&mut Read::by_ref(&mut output).take(bytes_max), &mut input).unwrap();
            reader
        }
    };
    let (written, read) = (writer.wait_with_output().unwrap(), reader.wait_with_output().unwrap());
    let said = [written.stderr, read.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    (read.status.code(), said)
}

#[test]
fn dump_through_pipe_loads() {
    let place = workplace();
    let (code, said) = piped(&place, "dump db --compression zstd", None, "load - new");
    assert!(code == Some(0) && said.contains("dumped "), "{said}");
    assert_eq!(place.ok("get new t long").len(), 10_001);
    assert_eq!(piped(&place, "dump db -", None, "load - --check").0, Some(0));
    let (code, said) = piped(&place, "dump db -", Some(200), "load - other");
    assert!(code == Some(3) && said.contains("cut short"), "{said}");
    assert!(!place.path("other").join("CURRENT").exists());
}

#[test]
fn damaged_dump_is_refused_and_leaves_nothing() {
    let place = workplace();
    place.ok("dump db moved.dump");
    let whole = fs::read(place.path("moved.dump")).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    place.write("flipped.dump", &flipped);
    place.write("short.dump", &whole[..whole.len() - 1]);
    place.write("other.dump", b"something else");
    for (name, code) in [("flipped.dump", 3), ("short.dump", 3), ("other.dump", 2)] {
        let said = place.fails(code, &format!("load {name} new"));
        assert!(said.contains(name) && said.contains("dump"), "{said}");
        assert!(!place.path("new").join("CURRENT").exists());
        place.fails(code, &format!("load {name} --check"));
    }
    place.ok("load moved.dump new");
}

#[test]
fn upgrade_of_current_version_rewrites_nothing() {
    let place = workplace();
    assert_eq!(place.ok("upgrade db"), "0 files of earlier versions rewritten\n");
    assert_eq!(place.ok("upgrade db --check"), "0 files of earlier versions\n");
}

/// A dump did not report a record whose merge function fails; scans and exports ended there.
#[test]
fn dump_with_failing_merge_names_record_and_exits_1() {
    let place = Workplace::new();
    let db = braiddb::Db::open(place.path("db")).unwrap();
    let (counts, add) = (db.tree("counts").unwrap(), db.merge_function("add").unwrap());
    counts.put(b"visits", b"many").unwrap();
    counts.merge(b"visits", &add, 1_i64.to_le_bytes()).unwrap();
    counts.put(b"z", b"whole").unwrap();
    drop(counts);
    db.close().unwrap();
    let dumped = place.run("dump db out.dump");
    assert_eq!(dumped.code, 1, "{dumped:?}");
    assert!(dumped.stderr.contains("\"visits\" of the tree \"counts\""), "{dumped:?}");
    assert!(dumped.stdout.contains("fails on 1 of them"), "{dumped:?}");
    assert!(place.run("dump db again.dump --json").stdout.contains("\"failing_merges\":1"));
    assert!(place.ok("load out.dump new").starts_with("loaded 3 records"));
    assert_eq!(place.ok("get new counts z"), "whole\n");
}
