//! `braid shell` with commands from a pipe and from arguments.

use crate::common;

use common::{BRAID, Workplace};
use std::{
    io::{Read, Write},
    process::{Command, Stdio},
};

fn shell(place: &Workplace, arguments: &str, commands: &str) -> common::Outcome {
    let arguments: Vec<&str> = ["shell", "db"].into_iter().chain(arguments.split_whitespace()).collect();
    place.run_with(&arguments, commands.as_bytes())
}

fn filled() -> Workplace {
    let place = Workplace::with_database();
    let outcome = shell(&place, "--write", "put t a 1\nput t 'b c' \\xff\n# a comment\n\nput t d 3\n");
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, "braid: created tree t\n"), "{outcome:?}");
    place
}

#[test]
fn commands_of_a_pipe_print_as_the_commands_do() {
    let place = filled();
    let outcome = shell(&place, "--tree t", "scan\nget 'b c'; count\nget t d --json\ntrees\n");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let alike = [place.ok("scan db t"), place.run_with(&["get", "db", "t", "b c"], b"").stdout, place.ok("count db t")];
    let json = [place.ok("get db t d --json"), place.ok("trees db")];
    assert_eq!(outcome.stdout, [alike.concat(), json.concat()].concat());
}

#[test]
fn first_error_ends_the_commands_and_names_its_line() {
    let place = filled();
    let outcome = shell(&place, "", "use t\nget a; gett b\nget d\n");
    assert_eq!((outcome.code, outcome.stdout.as_str()), (2, "1\n"));
    assert_eq!(outcome.stderr, "braid: line 2, command 2: there is no command \"gett\": `help` lists the commands\n");
    let outcome = shell(&place, "--keep-going", "use u\nput t a 2\nget t d\n");
    assert_eq!((outcome.code, outcome.stdout.as_str()), (1, "3\n"));
    assert!(outcome.stderr.contains("line 1: ") && outcome.stderr.contains("line 2: "), "{outcome:?}");
    // An absent key is an answer.
    let outcome = shell(&place, "--tree t", "get none\nget a\n");
    assert_eq!(
        (outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()),
        (1, "1\n", "braid: no such key: none\n")
    );
    let outcome = shell(&place, "--json", "use t\nget 'a\n");
    let error: serde_json::Value = serde_json::from_str(&outcome.stderr).unwrap();
    assert_eq!(error, serde_json::json!({"error": "line 2: the quote ' is not closed", "code": 2}));
    let outcome = place.run_with(&["shell", "db"], b"get t a\nget t \xff\n");
    assert_eq!((outcome.code, outcome.stdout.as_str()), (2, "1\n"));
    assert!(outcome.stderr.contains("line 2: it is not UTF-8"), "{outcome:?}");
}

#[test]
fn commands_of_arguments_run_in_order() {
    let place = filled();
    let outcome = place.run_with(&["shell", "db", "-c", "use t; get a", "-c", "get d"], b"quit");
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "1\n3\n"), "{outcome:?}");
    let outcome = place.run_with(&["shell", "db", "-c", "use t", "-c", "gett d"], b"");
    assert!(outcome.stderr.starts_with("braid: line 2: "), "{outcome:?}");
    let outcome = place.run_with(&["shell", "db", "-c", "quit; gett"], b"");
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, ""));
}

#[test]
fn transaction_without_commit_stores_nothing() {
    let place = filled();
    let outcome = shell(&place, "--write", "use t\nbegin\nput e 5\nget e\n");
    assert_eq!((outcome.code, outcome.stdout.as_str()), (2, "5\n"));
    assert!(outcome.stderr.contains("nothing since line 2 is stored"), "{outcome:?}");
    assert_eq!(place.ok("count db t"), "3\n");
    let outcome = shell(&place, "--write --json", "use t\nbegin\nput e 5\ncommit\n");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    let expected =
        ["{\"tree\":\"t\",\"created\":false}", "{\"transaction\":\"begun\",\"exclusive\":false}", "{\"commit\":null}"];
    assert_eq!(lines[..3], expected);
    assert!(serde_json::from_str::<serde_json::Value>(lines[3]).unwrap()["commit"].is_u64(), "{lines:?}");
    assert_eq!(place.ok("get db t e"), "5\n");
}

/// `begin`, `savepoint`, `use` and the commands of snapshots printed nothing.
#[test]
fn each_command_that_changes_the_session_prints_an_object() {
    let place = filled();
    let commands = "use; use t; use u --create --multi; begin; savepoint s; rollback s; rollback; begin --exclusive; \
                    rollback; snapshot n; at n; at now; release n";
    let outcome = shell(&place, "--write --json", commands);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let lines: Vec<serde_json::Value> =
        outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[9]["commit"].is_u64(), "{outcome:?}");
    let expected = [
        r#"{"tree":null}"#,
        r#"{"tree":"t","created":false}"#,
        r#"{"tree":"u","created":true}"#,
        r#"{"transaction":"begun","exclusive":false}"#,
        r#"{"savepoint":"s"}"#,
        r#"{"savepoint":"s","rolled_back":true}"#,
        r#"{"transaction":"rolled back"}"#,
        r#"{"transaction":"begun","exclusive":true}"#,
        r#"{"transaction":"rolled back"}"#,
        &format!(r#"{{"snapshot":"n","commit":{}}}"#, lines[9]["commit"]),
        r#"{"at":"n"}"#,
        r#"{"at":null}"#,
        r#"{"released":"n"}"#,
    ];
    assert_eq!(outcome.stdout.lines().collect::<Vec<_>>(), expected);
}

/// The command waited for itself for ever.
#[test]
fn new_tree_in_an_exclusive_transaction_is_refused_at_once() {
    let place = filled();
    for command in ["use t2 --create", "put t2 a 1"] {
        let outcome = shell(&place, "--write", &format!("begin --exclusive; {command}; commit"));
        assert_eq!(outcome.code, 2, "{outcome:?}");
        assert!(outcome.stderr.contains("cannot create the tree t2: create it before"), "{outcome:?}");
    }
    assert_eq!(place.ok("trees db"), "t\n");
}

/// An open transaction at the end was not reported after an earlier error, and a failed `begin` left
/// its writes as commits of their own.
#[test]
fn shell_that_keeps_going_stores_nothing_of_a_failed_transaction() {
    let place = filled();
    let outcome = shell(&place, "--write --keep-going", "oops\nbegin\nput t e 5\n");
    assert_eq!(outcome.code, 2);
    assert!(outcome.stderr.contains("line 3: the commands end without `commit`"), "{outcome:?}");
    let outcome = shell(&place, "--write --keep-going", "begin --oops\nput t e 5\ncommit\nput t f 6\n");
    assert_eq!(outcome.code, 2);
    for part in
        ["line 2: put is not run, since line 1 of", "line 3: not committed, but rolled back, since line 1 failed"]
    {
        assert!(outcome.stderr.contains(part), "{part}: {outcome:?}");
    }
    assert_eq!(place.ok("scan db t --from d"), "d\t3\nf\t6\n");
    let outcome = shell(&place, "--write", "begin\nput t e 5\noops\ncommit\n");
    assert!(
        outcome.stderr.contains("the transaction of line 1 is rolled back: nothing of it is stored"),
        "{outcome:?}"
    );
    assert_eq!((outcome.code, place.ok("count db t").as_str()), (2, "4\n"));
}

/// Each command of a reading shell shows the latest commits of the owner.
#[test]
fn reading_shell_follows_the_owner_command_by_command() {
    let place = filled();
    let start = |arguments: &[&str]| {
        let mut command = Command::new(BRAID);
        command.args(["shell", "db"]).args(arguments).current_dir(place.path(""));
        common::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()))
    };
    let (mut writer, mut reader) = (start(&["--write", "--json"]), start(&[]));
    let (mut into_writer, mut of_writer) = (writer.stdin.take().unwrap(), writer.stdout.take().unwrap());
    let (mut into_reader, mut of_reader) = (reader.stdin.take().unwrap(), reader.stdout.take().unwrap());
    for number in 4..8 {
        into_writer.write_all(format!("put t new{number} v\n").as_bytes()).unwrap();
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            line.push(0);
            of_writer.read_exact(line.last_mut().map(std::slice::from_mut).unwrap()).unwrap();
        }
        into_reader.write_all(b"count t\n").unwrap();
        let mut count = [0; 2];
        of_reader.read_exact(&mut count).unwrap();
        assert_eq!(count, *format!("{number}\n").as_bytes());
    }
    drop((into_writer, into_reader));
    assert!(writer.wait().unwrap().success() && reader.wait().unwrap().success());
    assert_eq!(shell(&place, "", "put t a 2").code, 2);
}

#[test]
fn options_of_the_shell_are_checked() {
    let place = filled();
    assert!(place.fails(1, "shell none").contains("there is no database"));
    assert!(place.fails(1, "shell db --tree none").contains("there is no tree named none"));
    assert_eq!(shell(&place, "", "help\n").code, 0);
    assert_eq!(
        shell(&place, "", "help scan; stats").stdout.lines().next().unwrap_or_default(),
        "scan [TREE]: print keys and values in order"
    );
}

/// A scan of more rows than memory would hold as a whole, ended by its reader.
#[cfg(unix)]
#[test]
fn reader_that_ends_a_scan_ends_the_shell_with_code_0() {
    let place = filled();
    let puts: String = (0..20_000).map(|number| format!("put t key{number} {}\n", "v".repeat(50))).collect();
    assert_eq!(shell(&place, "--write --durability none", &puts).code, 0);
    let mut command = Command::new(BRAID);
    command.args(["shell", "db", "-c", "scan t", "-c", "scan t --reverse"]).current_dir(place.path(""));
    let mut child = common::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 1000]).unwrap();
    drop(out);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
