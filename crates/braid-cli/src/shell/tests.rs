//! Tests of sessions: transactions, snapshots, many-value trees, indexes, completion.

use std::sync::atomic::Ordering;

use braiddb::{Db, Durability};

use super::{
    complete::{complete, hint},
    script::Script,
    session::{Access, Outcome, Session},
    syntax, words,
};
use crate::exit;

fn session() -> (Db, Session) {
    let db = Db::in_memory().unwrap();
    let session = Session::new(Access::Owner(db.clone()), Durability::Buffered, false);
    (db, session)
}

fn run(session: &mut Session, commands: &str) -> (u8, String) {
    let mut out = Vec::new();
    let code = Script::new(session, &mut out, false).run(&mut commands.as_bytes()).unwrap();
    (code, String::from_utf8(out).unwrap())
}

/// Runs commands one by one, as the terminal does: a transaction may stay open.
fn ok(session: &mut Session, commands: &str) -> String {
    let mut out = Vec::new();
    for words in commands.lines().flat_map(|line| words::split(line).commands).filter(|words| !words.is_empty()) {
        let done = syntax::parse(&words).and_then(|statement| session.run(statement, &mut out));
        assert!(matches!(done, Ok(Outcome::Done(exit::OK))), "{commands}: {words:?}: {:?}", done.err());
    }
    String::from_utf8(out).unwrap()
}

#[test]
fn transaction_reads_its_writes_and_hides_them_until_the_commit() {
    let (db, mut session) = session();
    ok(&mut session, "put t a 1; use t");
    let tree = db.open_tree("t").unwrap();
    let out = ok(&mut session, "begin; put b 2; get b; scan; count; del a; scan; commit");
    assert_eq!(out, "2\na\t1\nb\t2\n2\nb\t2\n");
    assert_eq!(tree.get("b").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(tree.get("a").unwrap(), None);
    ok(&mut session, "begin; put c 3; rollback");
    assert_eq!(tree.get("c").unwrap(), None);
}

#[test]
fn explain_reads_the_state_that_a_get_reads() {
    let (_, mut session) = session();
    let outcome = |session: &mut Session| {
        let out = ok(session, "explain t k --repeat 2 --json");
        let explained: serde_json::Value = serde_json::from_str(&out).unwrap();
        (explained["outcome"]["result"].as_str().unwrap().to_owned(), explained["outcome"]["bytes"].as_u64())
    };
    ok(&mut session, "put t k 1; snapshot s; put t k 123");
    assert_eq!(outcome(&mut session), ("found".to_owned(), Some(3)));
    ok(&mut session, "at s");
    assert_eq!(outcome(&mut session), ("found".to_owned(), Some(1)));
    // The write of the transaction is not in its snapshot.
    ok(&mut session, "at now; begin; del t k");
    assert_eq!(outcome(&mut session), ("found".to_owned(), Some(3)));
    ok(&mut session, "commit");
    assert_eq!(outcome(&mut session), ("deleted".to_owned(), None));
    assert!(ok(&mut session, "explain t k").starts_with("get of k in tree t at commit "));
}

#[test]
fn rollback_to_savepoint_undoes_later_writes_only() {
    let (_, mut session) = session();
    let out = ok(&mut session, "put t a 1; use t; begin; put b 2; savepoint s; put c 3; savepoint u; rollback s; scan");
    assert_eq!(out, "a\t1\nb\t2\n");
    let (code, _) = run(&mut session, "rollback u");
    assert_eq!(code, exit::NOT_FOUND);
    assert_eq!(ok(&mut session, "rollback s; commit; count"), "2\n");
}

/// Another commit between a read and the commit of the transaction.
#[test]
fn conflict_ends_the_transaction_with_code_4() {
    let (db, mut session) = session();
    ok(&mut session, "put t a 1; use t; begin; get a; put b 2");
    assert!(session.has_transaction());
    db.open_tree("t").unwrap().put("a", "2").unwrap();
    let (code, _) = run(&mut session, "commit");
    assert_eq!(code, exit::SYSTEM);
    assert!(!session.has_transaction());
    assert_eq!(ok(&mut session, "get a; count"), "2\n1\n");
}

/// The completion of keys reads outside the transaction.
#[test]
fn completion_in_a_transaction_causes_no_conflict() {
    let (db, mut session) = session();
    ok(&mut session, "put t a 1; use t; begin; put b 2");
    assert_eq!(complete(&session, "get ").1, ["t ", "a "]);
    db.open_tree("t").unwrap().put("a", "2").unwrap();
    ok(&mut session, "commit");
}

#[test]
fn transaction_left_open_is_refused_at_the_end_of_a_script() {
    let (_, mut session) = session();
    assert_eq!(run(&mut session, "begin\nput t a 1").0, exit::USAGE);
}

#[test]
fn snapshot_shows_its_state_until_now() {
    let (_, mut session) = session();
    let out = ok(
        &mut session,
        "put t a 1; use t; snapshot s; put a 2; put b 3; at s; scan; count; get a; at now; scan; snapshots",
    );
    assert!(out.starts_with("a\t1\n1\n1\na\t2\nb\t3\ns\tcommit "), "{out}");
    assert_eq!(run(&mut session, "at s; put a 5").0, exit::USAGE);
    assert_eq!(run(&mut session, "release s").0, exit::USAGE);
    ok(&mut session, "at now; release s");
    assert_eq!(run(&mut session, "at s").0, exit::NOT_FOUND);
}

#[test]
fn many_values_of_a_key_are_added_and_deleted_one_by_one() {
    let (_, mut session) = session();
    let out = ok(
        &mut session,
        "use m --create --multi; put a 1; put a 2; put b 3; get a; count; del a --value 1; scan; begin; put a 9; get a; \
         del --prefix a; scan; rollback; get a",
    );
    assert_eq!(out, "1\n2\n3\na\t2\nb\t3\n2\n9\n2 records deleted\nb\t3\n2\n");
    assert_eq!(run(&mut session, "put a 1 --ttl 5").0, exit::USAGE);
}

#[test]
fn ttl_of_a_value_is_shown() {
    let (_, mut session) = session();
    let out = ok(&mut session, "put t a 1 --ttl 3600; put t b 2; ttl t a; ttl t b; begin; ttl t a --json; commit");
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].ends_with('Z') && lines[0].starts_with("20"), "{out}");
    assert_eq!(lines[1], "never");
    assert!(lines[2].starts_with("{\"expires_us\":1"), "{out}");
}

#[test]
fn index_entries_follow_writes_of_the_shell() {
    let (db, mut session) = session();
    let specs = [crate::import::IndexSpec::parse("by=f").unwrap()];
    crate::import::Indexes::declare_now(&db, "t", &specs).unwrap();
    let entries = |db: &Db| {
        let pairs = db.open_multi_tree("by").unwrap();
        pairs.iter().map(|pair| String::from_utf8(pair.unwrap().0.to_vec()).unwrap()).collect::<Vec<_>>()
    };
    ok(&mut session, r#"put t a {"f": "x"}; begin; put t b {"f": "y"}; put t a {"f": "z"}; commit"#);
    assert_eq!(entries(&db), ["y", "z"]);
    ok(&mut session, "del t a");
    assert_eq!(entries(&db), ["y"]);
    ok(&mut session, "del t --prefix b");
    assert!(entries(&db).is_empty());
    assert_eq!(run(&mut session, "put t a 1 --ttl 5").0, exit::USAGE);
}

#[test]
fn keys_of_u64_trees_are_numbers() {
    let (_, mut session) = session();
    let out = ok(&mut session, "use n --create --keys u64; put 10 a; put 9 b; scan; get 9; scan --from 10 --json");
    assert_eq!(out, "9\tb\n10\ta\nb\n{\"key\":10,\"value\":\"a\"}\n");
    assert_eq!(complete(&session, "get 1").1, ["10 "]);
    assert_eq!(run(&mut session, "use other --create; put 1 a --keys u64").0, exit::USAGE);
}

/// Ctrl-C sets the flag while rows are written.
#[test]
fn stop_flag_ends_scan_and_not_the_session() {
    struct Stopping(std::sync::Arc<std::sync::atomic::AtomicBool>, usize);
    impl std::io::Write for Stopping {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.1 += bytes.iter().filter(|byte| **byte == b'\n').count();
            self.0.store(self.1 >= 10, Ordering::Relaxed);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (_, mut session) = session();
    let puts: String = (0..100).map(|number| format!("put t {number} v\n")).collect();
    ok(&mut session, &puts);
    let mut out = Stopping(session.stop_flag(), 0);
    let code = Script::new(&mut session, &mut out, false).run(&mut "scan t".as_bytes()).unwrap();
    assert_eq!((code, out.1), (exit::INTERRUPTED, 10));
    assert_eq!(ok(&mut session, "count t"), "100\n");
}

#[test]
fn completion_offers_commands_options_trees_and_keys() {
    let (_, mut session) = session();
    ok(
        &mut session,
        "put albums a1 v; put albums 'a 2' v; put albums b\\x00 v; put artists x v; use albums; snapshot s",
    );
    let complete = |line: &str| {
        let (start, found) = complete(&session, line);
        (start, found.join("|"))
    };
    assert_eq!(complete("sc"), (0, "scan ".to_owned()));
    assert_eq!(complete("get 'a 2'; ro"), (11, "rollback ".to_owned()));
    assert_eq!(complete("get ar"), (4, "artists ".to_owned()));
    assert_eq!(complete("get a"), (4, "albums |artists |'a 2' |a1 ".to_owned()));
    assert_eq!(complete("get 'a "), (4, "'a 2' ".to_owned()));
    assert_eq!(complete("get b\\x"), (4, "b\\x00 ".to_owned()));
    assert_eq!(complete("get artists "), (12, "x ".to_owned()));
    assert_eq!(complete("put a1 "), (7, String::new()));
    assert_eq!(complete("scan --re"), (5, "--reverse ".to_owned()));
    assert_eq!(complete("scan --prefix a1"), (14, "a1 ".to_owned()));
    assert_eq!(complete("scan artists --from "), (20, "x ".to_owned()));
    assert_eq!(complete("scan --keys "), (12, "text |hex |u64 |tuple ".to_owned()));
    assert_eq!(complete("at "), (3, "s |now ".to_owned()));
    assert_eq!(complete("help tre"), (5, "trees ".to_owned()));
    assert_eq!(complete("nothing "), (8, String::new()));
    assert_eq!(complete("get a # a"), (9, String::new()));
    assert_eq!(hint("put ").as_deref(), Some("[TREE] KEY VALUE"));
    assert_eq!(hint("put a"), None);
}

#[test]
fn completion_of_tuples_goes_on_after_complete_elements() {
    let (db, mut session) = session();
    let tree = db.tree("orders").unwrap();
    let mut options = tree.options();
    options.codec = Some("tuple/json".parse().unwrap());
    tree.set_options(options).unwrap();
    ok(&mut session, r#"use orders; put ["ann", 1] {"n": 1}; put ["ann", 2] {"n": 2}; put ["bob", 1] {"n": 3}"#);
    assert_eq!(
        ok(&mut session, r#"scan --prefix ["ann"] --limit 1; get ["bob",1]"#),
        "[\"ann\",1]\t{\"n\": 1}\n{\"n\": 3}\n"
    );
    assert_eq!(complete(&session, "get [").1.len(), 3);
    assert_eq!(
        complete(&session, r#"get ["ann", "#),
        (4, vec![r#"["ann",1] "#.to_owned(), r#"["ann",2] "#.to_owned()])
    );
    assert_eq!(complete(&session, r#"get ["b"#).1, [r#"["bob",1] "#]);
}

/// Each key that a scan shows can be completed and read back.
#[test]
fn completed_key_of_any_bytes_reads_back() {
    let (db, mut session) = session();
    let tree = db.tree("t").unwrap();
    let keys: [&[u8]; 9] = [b"", b" ", b"it's", b"a;b", b"#", b"--x", b"\\", b"\x00\xff", b"[\"a\""];
    for (number, key) in keys.iter().enumerate() {
        tree.put(key, number.to_string()).unwrap();
    }
    let (_, found) = complete(&session, "get t ");
    assert_eq!(found.len(), keys.len());
    let mut read: Vec<String> = found.iter().map(|key| ok(&mut session, &format!("get t {key}"))).collect();
    read.sort();
    assert_eq!(read, (0..keys.len()).map(|number| format!("{number}\n")).collect::<Vec<_>>());
}

/// A tree is a commit of its own, which waited for the exclusive transaction of its own session.
#[test]
fn exclusive_transaction_refuses_new_trees() {
    let (db, mut session) = session();
    ok(&mut session, "put t a 1; use t; begin --exclusive; put b 2");
    for command in ["use t2 --create", "use t2 --create --multi", "put t2 a 1"] {
        let words = words::split(command).commands.remove(0);
        let error = session.run(syntax::parse(&words).unwrap(), &mut Vec::new()).err().unwrap();
        assert!(error.to_string().contains("cannot create the tree t2"), "{command}: {error}");
        assert_eq!(exit::code_of(&error), exit::USAGE, "{command}");
    }
    assert_eq!(ok(&mut session, "use t --create; commit; count"), "2\n");
    assert_eq!(db.trees().unwrap().len(), 1);
}

fn run_all(session: &mut Session, commands: &str) -> (u8, String) {
    let mut out = Vec::new();
    let code = Script::new(session, &mut out, true).run(&mut commands.as_bytes()).unwrap();
    (code, String::from_utf8(out).unwrap())
}

/// Commands after a failed `begin` were commits of their own, and those after another error were
/// committed without the failed one.
#[test]
fn script_that_continues_runs_nothing_of_a_transaction_after_its_error() {
    for (error, code) in [
        ("begin --exclusve; put t b 2; put t c 3; commit", exit::USAGE),
        ("begin; put t b 2; putt t b 3; put t c 3; commit", exit::USAGE),
        ("begin; put t b 2; savepoint s; rollback none; rollback s; commit", exit::NOT_FOUND),
        ("begin; put t b 2; begin; put t c 3; commit", exit::USAGE),
        ("begin; put t b 2\nput t c '3\ncommit", exit::USAGE),
        ("begin; put t b '2\nput t c 3; commit", exit::USAGE),
        ("begin; put t b 2; count none; put t c 3; commit", exit::NOT_FOUND),
    ] {
        let (db, mut session) = session();
        ok(&mut session, "put t a 1");
        let (ended, out) = run_all(&mut session, &format!("{error}\nput t d 4\nscan t\n"));
        assert_eq!((ended, out.as_str()), (code, "a\t1\nd\t4\n"), "{error}");
        assert_eq!(db.open_tree("t").unwrap().len().unwrap(), 2, "{error}");
    }
    let (_, mut session) = session();
    let commands = "begin; put t b 2; oops; get t b; rollback; put t c 3; begin; put t d 4; commit; scan t";
    assert_eq!(run_all(&mut session, commands), (exit::USAGE, "c\t3\nd\t4\n".to_owned()));
}

#[test]
fn failed_commit_ends_its_transaction_in_a_script_that_continues() {
    let (db, mut session) = session();
    ok(&mut session, "put t a 1; begin; get t a; put t b 2");
    db.open_tree("t").unwrap().put("a", "2").unwrap();
    assert_eq!(run_all(&mut session, "commit; put t c 3; scan t"), (exit::SYSTEM, "a\t2\nc\t3\n".to_owned()));
}

/// `put` wrote into the tree before the mistyped one, and `get` read the latest state.
#[test]
fn script_that_continues_works_on_no_other_tree_or_state_after_an_error() {
    let (db, mut session) = session();
    ok(&mut session, "put t a 1; use t; snapshot s; put a 2");
    assert_eq!(run_all(&mut session, "use typo; put a 3; get a; use t; get a").1, "2\n");
    assert_eq!(run_all(&mut session, "at typo; get a; put a 3; at s; get a; at typo; at now; get a").1, "1\n2\n");
    let commands = "use t; begin; oops; use typo; put a 3; rollback; put a 4; get t a";
    assert_eq!(run_all(&mut session, commands).1, "2\n");
    assert_eq!(db.trees().unwrap().len(), 1);
}

#[test]
fn failed_write_leaves_no_new_tree() {
    let (db, mut session) = session();
    let long_key = "k".repeat(70_000);
    for command in [
        format!("put new {long_key} 1"),
        format!("begin; put new {long_key} 1; commit"),
        "use new --create --keys hex".to_owned(),
    ] {
        assert_eq!(run(&mut session, &command).0, exit::USAGE, "{:.50}", command);
        assert_eq!(db.trees().unwrap(), [], "{:.50}", command);
        if session.has_transaction() {
            ok(&mut session, "rollback");
        }
    }
    ok(&mut session, "begin; put new a 1; rollback");
    assert_eq!(db.trees().unwrap(), []);
    ok(&mut session, "begin; put new a 1; put other a 1; rollback; put new a 1; begin; put other a 1; commit");
    assert_eq!(db.trees().unwrap().len(), 2);
}

/// A put listed all trees several times: with 9,000 trees it took 500 times as long.
#[test]
fn put_takes_as_long_with_thousands_of_trees() {
    let fastest = |session: &mut Session| {
        let took = (0..50).map(|_| {
            let begun = std::time::Instant::now();
            ok(session, "put t a 1");
            begun.elapsed()
        });
        took.min().unwrap()
    };
    let (db, mut session) = session();
    ok(&mut session, "put t a 1");
    let alone = fastest(&mut session);
    for number in 0..5000 {
        db.tree(&format!("tree {number}")).unwrap();
    }
    let among_many = fastest(&mut session);
    assert!(among_many < 10 * alone, "{among_many:?}, and {alone:?} with one tree");
}
