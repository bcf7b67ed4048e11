//! Dirty input: counted exactly, sampled, skipped or fatal.

use crate::common;

use std::collections::BTreeMap;

use common::{Workplace, fixture_archive};
use serde_json::Value;

fn report(place: &Workplace, arguments: &str) -> Value {
    serde_json::from_str(&place.ok(&format!("{arguments} --json"))).unwrap()
}

fn dirt(report: &Value) -> BTreeMap<String, u64> {
    let kinds = report["dirt"].as_array().unwrap();
    kinds.iter().map(|kind| (kind["kind"].as_str().unwrap().to_owned(), kind["records"].as_u64().unwrap())).collect()
}

fn counts<const N: usize>(expected: [(&str, u64); N]) -> BTreeMap<String, u64> {
    expected.into_iter().map(|(kind, records)| (kind.to_owned(), records)).collect()
}

#[test]
fn import_counts_each_kind_of_dirt() {
    let place = Workplace::with_database();
    place.write("dump.tar", fixture_archive());
    let report = report(&place, "import db dump.tar --tree albums --format freedb");
    let expected = counts([
        ("carriage-returns", 2),
        ("latin-1", 2),
        ("broken-utf-8", 1),
        ("repeated-field", 1),
        ("missing-field", 1),
        ("bad-field", 1),
        ("id-mismatch", 1),
        ("empty-title", 2),
        ("huge-text", 1),
        ("junk-line", 1),
        ("wrong-disc-id", 17),
        ("not-a-disc", 2),
        ("missing-title", 1),
    ]);
    assert_eq!(dirt(&report), expected);
    assert_eq!((&report["records"], &report["stored"], &report["skipped"]), (&19.into(), &16.into(), &3.into()));
    let samples: Vec<&Value> =
        report["dirt"].as_array().unwrap().iter().flat_map(|kind| kind["samples"].as_array().unwrap()).collect();
    assert!(samples.iter().any(|sample| sample["place"] == "jazz/16019002"), "{samples:?}");
    // Skipped files keep their numbers.
    assert_eq!(place.ok("scan db albums").lines().count(), 16);
}

#[test]
fn repaired_discs_are_found_by_index() {
    let place = Workplace::with_database();
    place.write("dump.tar", fixture_archive());
    place.ok("import db dump.tar --tree albums --format freedb");
    let find = |by: &str, value: &str| -> Value {
        let arguments = ["find", "db", "albums", "--by", by, "--eq", value, "--format", "jsonl"];
        let outcome = place.run_with(&arguments, b"");
        assert_eq!(outcome.code, 0, "{by} {value}: {outcome:?}");
        serde_json::from_str::<Value>(&outcome.stdout).unwrap()["value"].clone()
    };
    assert_eq!(find("by_title", "it’s – “western”")["artist"], "Ennio Morricone");
    assert_eq!(find("by_title", "Sinfonía")["tracks"][1], "Größe");
    assert_eq!(find("by_artist", "китаро")["tracks"][0], "Карава\u{fffd}!");
    assert_eq!(find("by_artist", "Metallica")["title"], "Metallica");
    assert_eq!(find("by_artist", "Various")["tracks"][1], "Data Two");
    assert_eq!(find("by_title", "")["artist"], "Unknown");
    for id in ["16019002", "16019902"] {
        assert_eq!(find("by_disc_id", id)["title"], "Kind of Blue");
    }
    assert_eq!(find("by_disc_id", "15019003")["tracks"], serde_json::json!(["Silver Dagger", "", "Fare Thee Well"]));
    assert_eq!(find("by_title", "legend")["extended"].as_str().unwrap().len(), 20_000);
    assert_eq!(find("by_title", "nevermind").get("year"), None);
}

#[test]
fn bad_record_with_on_error_stop_ends_import() {
    let place = Workplace::with_database();
    place.write("in.jsonl", "{\"id\":\"a\"}\n{\"id\":\"b\"}\nnot json\n{\"id\":\"c\"}\n");
    let message = place.fails(5, "import db in.jsonl --tree t --key id --on-error stop");
    assert!(message.contains("record 3, line 3, byte 22"), "{message}");
    assert_eq!(place.ok("scan db t").lines().count(), 2);
    place.fails(5, "import db in.jsonl --tree t --key id --on-error stop --resume");
    let report = report(&place, "import db in.jsonl --tree t --key id --resume");
    assert_eq!((&report["stored"], &report["skipped"], &report["resumed_at"]), (&3.into(), &1.into(), &3.into()));
    assert_eq!(dirt(&report), counts([("malformed-json", 1)]));
}

#[test]
fn bad_lines_and_rows_are_counted() {
    let place = Workplace::with_database();
    let long_key = "k".repeat(65_537);
    place.write(
        "in.jsonl",
        format!(
            "{{\"id\":1}}\n[1]\n{{\"id\":null}}\n{{\"no\":1}}\n{{\"id\":\"{long_key}\"}}\n{{\"id\":\n\n\"x\n{{\"id\":true}}\n"
        ),
    );
    let found = report(&place, "import db in.jsonl --tree t --key id");
    let expected = [("not-an-object", 1), ("missing-key", 2), ("key-too-long", 1), ("malformed-json", 2)];
    assert_eq!(dirt(&found), counts(expected));
    assert_eq!((&found["stored"], &found["skipped"]), (&2.into(), &6.into()));

    place.write("in.csv", b"id,name\n1,a\n2\n3,b,c\n4,caf\xe9\n5,\"open\n6,d\n7,e\n8,f\n");
    let found = report(&place, "import db in.csv --tree rows --key id");
    assert_eq!(dirt(&found), counts([("wrong-columns", 2), ("latin-1", 1), ("unclosed-quote", 1)]));
    assert_eq!(place.ok("get db rows 4"), "{\"id\":\"4\",\"name\":\"café\"}\n");
    assert_eq!(place.ok("get db rows 6"), "{\"id\":\"6\",\"name\":\"d\"}\n");

    place.write("bad.csv", "a,b,a\n1,2,3\n");
    place.fails(5, "import db bad.csv --tree bad");
    place.write("empty.csv", "");
    place.ok("import db empty.csv --tree empty");
}

#[test]
fn input_without_usable_record_exits_5() {
    let place = Workplace::with_database();
    place.write("in.jsonl", "{\"id\":\"a\"}\n{\"id\":\"b\"}\nnot json\n");
    for target in ["--tree t", "--dry-run", "--to-jsonl out.jsonl", "--tree t --resume"] {
        let outcome = place.run(&format!("import db in.jsonl --key nope {target}"));
        assert_eq!(outcome.code, 5, "{outcome:?}");
        assert!(outcome.stderr.contains("2 of 3: the key's field is missing"), "{outcome:?}");
        assert!(outcome.stderr.contains("does --key nope name"), "{outcome:?}");
        assert!(format!("{}{}", outcome.stdout, outcome.stderr).contains("3 skipped"), "{outcome:?}");
    }
    place.write("random", b"\x8f\x01{\n\xff\xfe\x00\n[\x9c");
    let message = place.fails(5, "import db random --format jsonl --tree t");
    assert!(message.contains("not JSON; is it really jsonl?"), "{message}");
    place.ok("import db in.jsonl --key id --tree t");
    place.write("empty", "");
    place.ok("import db empty --format jsonl --tree empty");
}

#[test]
fn damaged_archive_imports_records_before_damage() {
    let place = Workplace::with_database();
    let whole = fixture_archive();
    place.write("dump.tar", &whole[..whole.len() / 2]);
    place.fails(5, "import db dump.tar --tree albums --format freedb");
    let stored = place.ok("scan db albums").lines().count();
    assert!((1..16).contains(&stored), "{stored}");
    place.write("not.tar", "x".repeat(2000));
    place.fails(5, "import db not.tar --tree other --format freedb --index other_ids=disc_ids");
}
