//! Import records belong to their tree, and a failed import leaves nothing.

use crate::common;

use common::Workplace;

const LINES: &str = "{\"id\":\"1\"}\n{\"id\":\"2\"}\n";

/// After a program had dropped the tree, `import --resume` reported "2 stored" and stored nothing.
#[test]
fn resume_after_tree_was_dropped_starts_again() {
    let place = Workplace::with_database();
    place.write("in.jsonl", LINES);
    place.ok("import db in.jsonl --tree t --key id");
    {
        let db = braiddb::Db::open(place.path("db")).unwrap();
        db.drop_tree("t").unwrap();
        db.close().unwrap();
    }
    let outcome = place.run("import db in.jsonl --tree t --key id --resume");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(outcome.stderr.contains("is not the one that the earlier import filled"), "{outcome:?}");
    assert_eq!(place.ok("scan db t").lines().count(), 2);
}

/// Progress and indexes were stored by tree name: a renamed tree lost both.
#[test]
fn resume_after_tree_was_renamed_continues_and_keeps_indexes() {
    let place = Workplace::with_database();
    place.write("in.jsonl", format!("{LINES}not json\n{{\"id\":\"3\"}}\n"));
    place.fails(5, "import db in.jsonl --tree t --key id --index by_id=id --on-error stop");
    {
        let db = braiddb::Db::open(place.path("db")).unwrap();
        db.rename_tree("t", "u").unwrap();
        db.close().unwrap();
    }
    assert_eq!(place.ok("index list db"), "u\tby_id=id\n");
    let report = place.ok("import db in.jsonl --tree u --key id --resume");
    assert!(report.contains("3 stored, 1 skipped"), "{report}");
    assert_eq!(place.ok("scan db by_id"), "1\t1\n2\t2\n3\t3\n");
    place.ok("import db in.jsonl --tree t --key id");
    assert_eq!(place.ok("index list db"), "u\tby_id=id\n");
}

#[test]
fn import_without_usable_record_leaves_no_tree() {
    let place = Workplace::new();
    place.write("in.jsonl", LINES);
    place.write("empty.csv", "");
    place.ok("create db");
    for rest in ["", " --resume", " --index i=n"] {
        place.fails(5, &format!("import db in.jsonl --tree t --key nope{rest}"));
        place.ok(&format!("import db empty.csv --tree t{rest}"));
        assert_eq!(place.ok("trees db"), "", "{rest}");
    }
}

#[test]
fn second_import_without_key_or_number_is_refused() {
    let place = Workplace::with_database();
    place.write("in.jsonl", LINES);
    place.ok("import db in.jsonl --tree t");
    let message = place.fails(2, "import db in.jsonl --tree t");
    assert!(message.contains("--number-from 2 to append"), "{message}");
    place.ok("import db in.jsonl --tree t --number-from 2");
    assert_eq!(place.ok("scan db t").lines().count(), 4);
    place.ok("import db in.jsonl --tree t --number-from 0");
    assert_eq!(place.ok("scan db t").lines().count(), 4);
}

/// Numbers wrapped at 2^64, after records had been stored.
#[test]
fn number_from_that_could_overflow_is_refused() {
    let place = Workplace::new();
    place.write("in.jsonl", LINES);
    place.fails(2, "import db in.jsonl --tree t --number-from 18446744073709551615");
    assert!(!place.path("db").exists());
    place.ok("import db in.jsonl --tree t --number-from 9223372036854775808 --create");
    assert!(place.ok("scan db t").starts_with("9223372036854775808\t"));
}
