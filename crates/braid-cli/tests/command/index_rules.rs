//! An index is declared completely or not at all, and can be added, dropped and rebuilt.

use crate::common;

use common::Workplace;

const LINES: &str = "{\"id\":\"1\",\"n\":\"a\"}\n{\"id\":\"2\",\"n\":\"b\"}\n";

/// `--index other=n` was refused because `other` was a plain tree, but its declaration stayed, and
/// all later writes failed.
#[test]
fn index_named_like_plain_tree_is_refused_and_changes_nothing() {
    let place = Workplace::new();
    place.write("in.jsonl", LINES);
    place.ok("create db");
    place.ok("put db other k v");
    let before = place.ok("trees db");
    let message = place.fails(2, "import db in.jsonl --tree t --key id --index other=n");
    assert!(message.contains("other is a tree with one value per key"), "{message}");
    assert_eq!(place.ok("trees db"), before);
    place.ok("import db in.jsonl --tree t --key id");
    place.ok("put db t 3 {}");
    assert_eq!(place.ok("scan db other"), "k\tv\n");
}

#[test]
fn index_of_import_that_stores_nothing_is_not_declared() {
    let place = Workplace::new();
    place.write("in.jsonl", LINES);
    place.ok("create db");
    place.fails(5, "import db in.jsonl --tree t --key nope --index by_n=name");
    place.write("none.jsonl", "");
    place.ok("import db none.jsonl --tree t --key id --index by_n=name");
    assert_eq!(place.ok("trees db"), "");
    place.ok("import db in.jsonl --tree t --key id --index by_n=n");
    assert_eq!(place.ok("scan db by_n"), "a\t1\nb\t2\n");
}

#[test]
fn import_that_leaves_index_empty_names_it() {
    let place = Workplace::with_database();
    place.write("in.jsonl", LINES);
    let said = place.run("import db in.jsonl --tree t --key id --index by_n=n --index by_m=m");
    assert!(said.code == 0 && said.stderr.contains("the index by_m is empty"), "{said:?}");
    assert!(!said.stderr.contains("the index by_n is empty"), "{said:?}");
}

/// A user's multi-value tree was silently used as an index, and its entries were mixed with theirs.
#[test]
fn index_named_like_filled_multi_value_tree_is_refused() {
    let place = Workplace::with_database();
    place.write("in.jsonl", LINES);
    place.ok("import db in.jsonl --tree t --key id --index own=n");
    place.ok("export db own -o own.export");
    place.ok("import db2 own.export --create");
    let message = place.fails(2, "import db2 in.jsonl --tree t --key id --index own=n");
    assert!(message.contains("own is a tree with entries, but not an index"), "{message}");
    assert_eq!(place.ok("trees db2"), "own\tmany values to a key\n");
}

#[test]
fn index_add_creates_entries_and_drop_removes_them() {
    let place = Workplace::with_database();
    place.write("in.jsonl", LINES);
    place.ok("import db in.jsonl --tree t --key id");
    let message = place.fails(2, "import db in.jsonl --tree t --key id --index by_n=n");
    assert!(message.contains("braid index add DB t by_n=n"), "{message}");
    assert_eq!(place.ok("index add db t by_n=n"), "by_n: 2 entries added, of 2 records\n");
    assert_eq!(place.ok("index add db t by_n=n"), "by_n: 0 entries added, of 2 records\n");
    assert_eq!(place.ok("index list db"), "t\tby_n=n\n");
    assert_eq!(place.ok("find db t --by by_n --eq b"), "2\t{\"id\":\"2\",\"n\":\"b\"}\n");
    place.ok("put db t 2 {\"n\":\"c\"}");
    assert_eq!(place.ok("scan db by_n"), "a\t1\nc\t2\n");
    assert!(place.run("index add db t by_m=m").stderr.contains("is it mistyped"), "no record has it");
    place.ok("index drop db t by_m");
    place.ok("index drop db t by_n");
    assert_eq!((place.ok("index list db"), place.ok("trees db")), (String::new(), "braid.import\nt\n".to_owned()));
    place.fails(1, "index drop db t by_n");
    place.fails(1, "index add db no by_n=n");
    place.fails(2, "index rebuild db t");
}

#[test]
fn index_rebuild_adds_missing_and_removes_stale_entries() {
    let place = Workplace::with_database();
    place.write("in.jsonl", LINES);
    place.ok("import db in.jsonl --tree t --key id --index by_n=n");
    place.ok("del db by_n a --value 1");
    place.ok("put db by_n stale 2");
    assert_eq!(place.run("index rebuild db t --check").code, 1);
    assert_eq!(place.ok("scan db by_n"), "b\t2\nstale\t2\n");
    assert_eq!(place.ok("index rebuild db t"), "by_n: 2 entries of 2 records: 1 added, 1 removed\n");
    assert_eq!(place.ok("scan db by_n"), "a\t1\nb\t2\n");
    place.ok("index rebuild db t by_n --check");
}
