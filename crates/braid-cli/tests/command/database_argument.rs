//! `--db`, `BRAID_DB`, and JSON for errors.

use crate::common;

use common::{BRAID, Outcome, Workplace};
use std::process::Command;

fn run_with_variable(place: &Workplace, database: &str, arguments: &str) -> Outcome {
    let mut command = Command::new(BRAID);
    command.args(arguments.split(' ')).current_dir(place.path("")).env("BRAID_DB", database);
    let output = command.output().unwrap();
    Outcome {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn variable_replaces_database_argument() {
    let place = Workplace::new();
    assert_eq!(run_with_variable(&place, "db", "create").code, 0);
    assert_eq!(run_with_variable(&place, "db", "put t k v").code, 0);
    assert_eq!(run_with_variable(&place, "db", "get t k").stdout, "v\n");
    assert_eq!(run_with_variable(&place, "none", "get db t k").stdout, "v\n");
    assert_eq!(run_with_variable(&place, "none", "get t k --db db").stdout, "v\n");
    assert_eq!(run_with_variable(&place, "none", "get t k").code, 1);
    let refused = run_with_variable(&place, "db", "export t");
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{refused:?}");
    assert!(refused.stderr.contains("two meanings") && refused.stderr.contains("--db"), "{refused:?}");
    let exported = run_with_variable(&place, "db", "export --db db t").stdout;
    assert!(exported.starts_with("{\"braid_export\""), "{exported}");
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

#[test]
fn error_of_command_with_json_is_an_object() {
    let place = Workplace::with_database();
    let absent = json(&place.fails(1, "stats none --json"));
    assert_eq!(
        absent,
        serde_json::json!({"error": "there is no database in none: the directory does not exist", "code": 1})
    );
    place.ok("put db t k v");
    assert_eq!(json(&place.fails(1, "get db t none --json"))["error"], "no such key: none");
    let wrong = json(&place.fails(2, "stats db --json --oops"));
    assert_eq!(wrong["code"], 2);
    assert!(wrong["error"].as_str().unwrap().contains("--oops"), "{wrong}");
    assert!(place.fails(1, "stats none").starts_with("braid: there is no database"));
}

#[test]
fn json_of_writing_commands() {
    let place = Workplace::new();
    assert_eq!(json(&place.ok("create db --json"))["created"], "db");
    let put = place.run("put db t k v --json");
    assert_eq!(json(&put.stderr)["note"], "created tree t");
    assert!(json(&put.stdout)["commit"].as_u64().unwrap() > 0);
    place.ok("put db t l w");
    assert_eq!(json(&place.ok("copy-tree db t u --json"))["records"], 2);
    assert_eq!(json(&place.ok("rename-tree db u v --json")), serde_json::json!({"from": "u", "to": "v"}));
    assert_eq!(json(&place.ok("drop-tree db v --json"))["dropped"], serde_json::json!(["v"]));
    assert_eq!(json(&place.ok("index add db t i=f --json"))["index"], "i");
    assert_eq!(json(&place.ok("index drop db t i --json"))["dropped"], serde_json::json!(["i"]));
    assert_eq!(place.ok("scan db t --json --limit 1"), "{\"key\":\"k\",\"value\":\"v\"}\n");
    assert_eq!(json(&place.ok("export db t -o out --json")), serde_json::json!({"records": 2, "left_out": []}));
    assert_eq!(json(&place.run("export db t --json").stderr)["records"], 2);
    assert_eq!(json(&place.ok("del db t k --json"))["deleted"], 1);
    assert_eq!(json(&place.ok("del db t --prefix l --json"))["deleted"], 1);
    place.fails(2, "scan db t --json --format hex");
}

#[test]
fn verbose_is_accepted_before_and_after_the_command() {
    let place = Workplace::with_database();
    for line in ["-vv stats db", "stats -vv db", "stats db -v -v", "index -v list db"] {
        assert_ne!(place.run(line).code, 2, "{line}");
    }
    place.fails(2, "stats db -w");
}
