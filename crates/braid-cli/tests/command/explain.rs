//! `explain`

use crate::common;

use common::Workplace;
use serde_json::Value;

fn explain(place: &Workplace, arguments: &str) -> Value {
    serde_json::from_str(&place.ok(&format!("explain db {arguments} --json"))).unwrap()
}

fn sources(explained: &Value) -> Vec<&str> {
    let steps = explained["steps"].as_array().unwrap();
    steps.iter().filter(|step| step["step"] == "block").map(|step| step["source"].as_str().unwrap()).collect()
}

#[test]
fn explain_shows_steps_and_place_of_value() {
    let place = Workplace::with_database();
    place.ok("put db t k value");
    let text = place.ok("explain db t k");
    assert!(text.starts_with("get of k in tree t at commit "), "{text}");
    assert!(text.contains("value of commit ") || text.contains("key found: value of commit "), "{text}");
    assert!(text.lines().last().unwrap().contains("found: 5 bytes of commit "), "{text}");
    place.ok("compact db");
    let explained = explain(&place, "t k");
    assert_eq!(explained["outcome"]["result"], "found", "{explained}");
    assert!(explained["outcome"]["place"]["run"].is_u64(), "{explained}");
    assert_eq!(sources(&explained).len(), 1, "{explained}");
    assert!(explained["took_ns"].as_u64().unwrap() > 0, "{explained}");
}

#[test]
fn explain_tells_deleted_from_absent_with_code_0() {
    let place = Workplace::with_database();
    place.ok("put db t 1 x --keys u64");
    place.ok("put db t 2 x --keys u64");
    place.ok("del db t 2");
    let deleted = explain(&place, "t 2");
    assert_eq!((&deleted["outcome"]["result"], &deleted["outcome"]["is_range"]), (&"deleted".into(), &false.into()));
    assert_eq!(explain(&place, "t 3")["outcome"], serde_json::json!({"result": "absent"}));
    assert!(place.ok("explain db t 3").ends_with("  absent\n"));
}

#[test]
fn explain_of_repeated_read_shows_a_warm_cache() {
    let place = Workplace::with_database();
    place.ok("put db t k value");
    place.ok("compact db");
    assert_ne!(sources(&explain(&place, "t k --repeat 3")), ["disk"]);
}

#[test]
fn explain_refuses_multi_value_trees_and_no_repeats() {
    let place = Workplace::with_database();
    place.write("in.jsonl", "{\"id\":\"k\",\"tag\":\"a\"}\n");
    place.ok("import db in.jsonl --tree t --key id --index by_tag=tag");
    place.fails(2, "explain db by_tag a");
    place.fails(2, "explain db t k --repeat 0");
    place.fails(1, "explain db none k");
}
