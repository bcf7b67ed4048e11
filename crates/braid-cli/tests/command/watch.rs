//! `watch`: committed changes from the log, as JSON lines.

use crate::common;

use common::Workplace;
use serde_json::{Value, json};

fn lines(output: &str) -> Vec<Value> {
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn changes(lines: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let all = lines.iter().flat_map(|line| line["changes"].as_array().unwrap());
    all.map(|change| format!("{} {} {}", text(&change["type"]), text(&change["key"]), text(&change["value"]))).collect()
}

#[test]
fn watch_prints_commits_from_start_or_token() {
    let place = Workplace::new();
    place.ok("create db");
    place.ok("watch db --keep 16M");
    place.ok("put db t a 1");
    place.ok("put db t b 2 --durability buffered");
    place.ok("put db other a 3");
    place.ok("del db t a");
    place.ok("compact db");
    let shown = lines(&place.ok("watch db"));
    let expected = ["create_tree - -", "put a 1", "put b 2", "create_tree - -", "put a 3", "delete a -"];
    assert_eq!(changes(&shown), expected);
    let created = &shown[0]["changes"][0];
    assert_eq!((&created["multi"], &created["codec"]), (&json!(false), &Value::Null));
    assert!(shown.windows(2).all(|pair| pair[0]["sequence"].as_u64() < pair[1]["sequence"].as_u64()));
    assert!(shown.iter().all(|line| line["time_us"].as_u64() > Some(1_500_000_000_000_000)));
    assert_eq!(changes(&lines(&place.ok("watch db --read-only"))), expected);
    assert_eq!(changes(&lines(&place.ok("watch db --tree t --prefix b"))), ["create_tree - -", "put b 2"]);
    assert_eq!(changes(&lines(&place.ok("watch db --limit 2"))), expected[..2]);
    let token = shown[2]["token"].as_str().unwrap();
    assert_eq!(changes(&lines(&place.ok(&format!("watch db --from {token}")))), expected[3..]);
    let sequence = shown[4]["sequence"].as_u64().unwrap();
    assert_eq!(changes(&lines(&place.ok(&format!("watch db --after {sequence}")))), expected[5..]);
    place.ok("trees db --set other --codec tuple/json");
    place.ok("copy-tree db other another");
    let copied = lines(&place.ok("watch db --tree another"));
    assert!(copied.iter().any(|line| line["changes"][0]["codec"] == "tuple/json"), "{copied:?}");
    place.fails(2, "watch db --from 00");
    place.fails(2, "watch db --prefix b");
    place.fails(1, "watch db --tree none");
    place.fails(1, "watch none");
}

#[test]
fn watch_reports_commits_without_wal_as_gap() {
    let place = Workplace::new();
    place.ok("create db");
    place.ok("watch db --keep 16M");
    place.ok("put db t a 1");
    place.ok("put db t b 2 --durability none");
    assert_eq!(place.ok("get db t b"), "2\n");
    place.ok("put db t c 3");
    assert_eq!(changes(&lines(&place.ok("watch db"))), ["create_tree - -", "put a 1", "gap - -", "put c 3"]);
    place.ok("watch db --keep 0");
    place.ok("compact db");
    place.ok("compact db");
    let reported = place.fails(1, "watch db --after 0");
    assert!(reported.contains("commits 1 to ") && reported.contains("--keep"), "{reported}");
}

/// A watch of a trimmed log silently started in the middle.
#[test]
fn watch_of_trimmed_log_reports_start_and_missing_commits() {
    let place = Workplace::with_database();
    place.ok("watch db --keep 16M");
    place.ok("put db t a 1");
    let whole = place.run("watch db");
    assert_eq!((whole.code, whole.stderr.as_str()), (0, ""), "{whole:?}");
    let early = lines(&whole.stdout)[0]["token"].as_str().unwrap().to_owned();
    place.ok("put db t b 2");
    place.ok("watch db --keep 0");
    place.ok("compact db");
    place.ok("compact db");
    place.ok("watch db --keep 16M");
    place.ok("put db t c 3");
    let trimmed = place.run("watch db");
    assert_eq!(trimmed.code, 0, "{trimmed:?}");
    let shown = lines(&trimmed.stdout);
    assert_eq!(changes(&shown).last().unwrap(), "put c 3");
    let gap = &shown[0]["changes"][0];
    assert_eq!((&gap["type"], &gap["from"], &gap["up_to"]), (&"gap".into(), &1.into(), &shown[0]["sequence"]));
    let missing = gap["up_to"].as_u64().unwrap();
    assert!(missing > 0 && shown[1..].iter().all(|line| line["sequence"].as_u64() > Some(missing)), "{shown:?}");
    let expected = [format!("begins after commit {missing}"), "--keep SIZE".to_owned()];
    assert!(expected.iter().all(|part| trimmed.stderr.contains(part)), "{trimmed:?}");
    let token = shown[0]["token"].as_str().unwrap();
    let after = place.run(&format!("watch db --from {token}"));
    assert_eq!((lines(&after.stdout), after.stderr.as_str()), (shown[1..].to_vec(), ""));
    assert_eq!(lines(&place.ok("watch db --limit 1")).len(), 2);
    for from in [format!("--from {early}"), "--after 0".to_owned()] {
        let refused = place.run(&format!("watch db {from}"));
        assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{refused:?}");
        let expected = [format!("to {missing} are not in the log of db any more"), "--keep".to_owned()];
        assert!(expected.iter().all(|part| refused.stderr.contains(part)), "{refused:?}");
    }
    place.fails(2, "watch db --after 99999999999");
}

/// The message about a token above the last commit named nonsensical commits.
#[test]
fn watch_from_token_above_last_commit_names_both_numbers() {
    let place = Workplace::with_database();
    place.ok("watch db --keep 16M");
    place.ok("put db t a 1");
    let earlier = place.path("earlier");
    std::fs::create_dir(&earlier).unwrap();
    for entry in std::fs::read_dir(place.path("db")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), earlier.join(entry.file_name())).unwrap();
    }
    let last = lines(&place.ok("watch db")).last().unwrap()["sequence"].as_u64().unwrap();
    place.ok("put db t b 2");
    place.ok("put db t c 3");
    let shown = lines(&place.ok("watch db"));
    let (ahead, token) = (&shown.last().unwrap()["sequence"], shown.last().unwrap()["token"].as_str().unwrap());
    let refused = place.run(&format!("watch earlier --from {token}"));
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{refused:?}");
    let expected = [format!("after commit {ahead},"), format!("database is {last}:")];
    assert!(expected.iter().all(|part| refused.stderr.contains(part)), "{refused:?}");
}
