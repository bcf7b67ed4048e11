//! A killed import resumes after its last batch.

use crate::common;

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use common::{BRAID, Workplace, compress, spawn};
use serde_json::Value;

const RECORDS: u64 = 20_000;
const KEYED: &str = "--tree t --format jsonl --key id --index by_group=group";

fn line(number: u64) -> String {
    let filler = "x".repeat(150);
    format!("{{\"id\":\"{number:08}\",\"group\":\"g{}\",\"filler\":\"{filler}\"}}\n", number % 100)
}

/// Kills an import when a quarter of its input is acknowledged. Returns the acknowledged number.
fn killed_import(place: &Workplace) -> u64 {
    let mut command = Command::new(BRAID);
    command.args(["import", place.path("db").to_str().unwrap(), "-", "--acknowledge"]).args(KEYED.split(' '));
    let mut child = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()));
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || {
        for number in 0..RECORDS / 2 {
            if input.write_all(line(number).as_bytes()).is_err() {
                break;
            }
        }
        input
    });
    let mut acknowledged = 0;
    for text in BufReader::new(child.stdout.take().unwrap()).lines() {
        let json: Value = serde_json::from_str(text.unwrap().strip_prefix("ack ").unwrap()).unwrap();
        acknowledged = json["next_number"].as_u64().unwrap();
        if acknowledged >= RECORDS / 4 {
            let _ = child.kill();
        }
    }
    assert!(!child.wait().unwrap().success());
    drop(writer.join().unwrap());
    acknowledged
}

#[test]
fn acknowledged_records_survive_kill_and_import_resumes() {
    let place = Workplace::with_database();
    let acknowledged = killed_import(&place);
    assert!((RECORDS / 4..RECORDS).contains(&acknowledged), "{acknowledged}");
    let survived = place.ok("export db t --values");
    let expected: String = (0..RECORDS).map(line).collect();
    assert!(expected.starts_with(&survived));
    assert!(survived.lines().count() as u64 >= acknowledged);
    let indexed = place.ok("scan db by_group").lines().count();
    assert_eq!(indexed, survived.lines().count(), "records and index entries come together");

    place.write("in", &expected);
    let report: Value = serde_json::from_str(&place.ok(&format!("import db in {KEYED} --resume --json"))).unwrap();
    assert_eq!(report["resumed_at"].as_u64().unwrap(), survived.lines().count() as u64 + 1);
    assert_eq!((&report["records"], &report["stored"]), (&RECORDS.into(), &RECORDS.into()));
    assert_eq!(report["replaced"], 0);
    assert_eq!(place.ok("export db t --values"), expected);
    assert_eq!(place.ok("scan db by_group").lines().count() as u64, RECORDS);
    assert_eq!(place.ok("find db t --by by_group --eq g42").lines().count() as u64, RECORDS / 100);

    let again = place.ok(&format!("import db in {KEYED} --resume"));
    assert!(again.contains(&format!("resumed at record {}", "20,001")), "{again}");
}

#[test]
fn resume_with_other_input_or_plan_is_refused() {
    let place = Workplace::with_database();
    let lines: String = (0..10).map(line).collect();
    place.write("in", format!("{lines}not json\n{}", line(10)));
    place.fails(5, &format!("import db in {KEYED} --on-error stop"));
    place.write("other", &lines);
    let message = place.fails(5, &format!("import db other {KEYED} --resume"));
    assert!(message.contains("not the one"), "{message}");
    let message = place.fails(5, "import db in --tree t --format jsonl --key group --resume");
    assert!(message.contains("--key id"), "{message}");
    place.fails(5, "import db in --tree t --format csv --key id --resume");
    let report = place.ok(&format!("import db in {KEYED} --resume"));
    assert!(report.contains("resumed at record 11") && report.contains("11 stored, 1 skipped"), "{report}");
}

#[test]
fn resume_of_compressed_rows_keeps_columns() {
    for ending in ["", "gz", "bz2", "zst"] {
        let place = Workplace::with_database();
        place.write("in.csv", compress(ending, b"id,name\n1,a\n2,\"b\nb\"\n3,c,d\n4,e\n"));
        place.fails(5, "import db in.csv --tree t --key id --on-error stop");
        assert_eq!(place.ok("scan db t").lines().count(), 2);
        place.ok("import db in.csv --tree t --key id --resume");
        assert_eq!(place.ok("get db t 4"), "{\"id\":\"4\",\"name\":\"e\"}\n", "{ending}");
    }
}
