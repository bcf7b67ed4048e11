//! Trees with a codec: keys as JSON arrays, values as JSON.

use crate::common;

use braiddb::Db;
use braiddb_typed::{MessagePack, TypedTree};
use common::Workplace;
use serde_json::{Value, json};

fn with_tree(codec: &str) -> Workplace {
    let place = Workplace::with_database();
    place.ok("put db t x 1");
    place.ok("del db t x");
    assert_eq!(place.ok(&format!("trees db --set t --codec {codec}")), format!("t\tcodec {codec}\n"));
    place
}

fn refused(place: &Workplace, arguments: &[&str], part: &str) {
    let outcome = place.run_with(arguments, b"");
    assert_eq!(outcome.code, 2, "{outcome:?}");
    assert!(outcome.stderr.contains(part), "{part:?} is not in {}", outcome.stderr);
}

#[test]
fn tuple_keys_are_written_and_read_as_json_arrays() {
    let place = with_tree("tuple/json");
    for (key, value) in [
        ("[\"a\",1]", "{\"n\":1}"),
        ("[\"a\",300]", "2"),
        ("[\"a\\u0000b\",1]", "3"),
        ("[-1,null,[1.5,{\"bytes\":\"00ff\"}]]", "4"),
        ("\"one\"", "5"),
    ] {
        let outcome = place.run_with(&["put", "db", "t", "--", key, value], b"");
        assert_eq!(outcome.code, 0, "{outcome:?}");
        assert_eq!(place.run_with(&["get", "db", "t", "--", key], b"").stdout, format!("{value}\n"));
    }
    let scanned = "[\"a\",1]\t{\"n\":1}\n[\"a\",300]\t2\n[\"a\\u0000b\",1]\t3\n[\"one\"]\t5\n[-1,null,[1.5,{\"bytes\":\"00ff\"}]]\t4\n";
    assert_eq!(place.ok("scan db t"), scanned);
    // The text "a" is a prefix of the bytes of "a\0b", but no element of that tuple.
    assert_eq!(place.ok("scan db t --prefix [\"a\"]"), "[\"a\",1]\t{\"n\":1}\n[\"a\",300]\t2\n");
    assert_eq!(place.ok("scan db t --from [\"a\",2] --to [\"b\"]"), "[\"a\",300]\t2\n[\"a\\u0000b\",1]\t3\n");
    assert_eq!(place.ok("count db t --prefix [\"a\"]"), "2\n");
    assert_eq!(place.ok("scan db t --format json --limit 1"), "{\"key\":[\"a\",1],\"value\":\"{\\\"n\\\":1}\"}\n");
    assert_eq!(place.ok("scan db t --format jsonl --limit 1"), "{\"key\":[\"a\",1],\"value\":{\"n\":1}}\n");
    assert_eq!(place.ok("scan db t --format hex --limit 1"), "026100 1501\t7b226e223a317d\n".replace(' ', ""));
    assert_eq!(place.ok("get db t [\"a\",1] --json"), "{\"key\":[\"a\",1],\"value\":\"{\\\"n\\\":1}\"}\n");
    place.ok("del db t [\"a\",1]");
    place.fails(1, "get db t [\"a\",1]");
    assert!(place.fails(1, "del db t [\"a\",1]").contains("[\"a\",1]"));
}

#[test]
fn tuple_keys_and_values_of_no_codec_are_refused() {
    let place = with_tree("tuple/json");
    refused(&place, &["put", "db", "t", "[1", "1"], "is not a tuple");
    refused(&place, &["put", "db", "t", "[18446744073709551616]", "1"], "more than 64 bits");
    refused(&place, &["put", "db", "t", "[{\"a\":1}]", "1"], "no element");
    refused(&place, &["put", "db", "t", "[1]", "{"], "not JSON");
    refused(&place, &["put", "db", "t", "abc", "1", "--keys", "text"], "is none");
    refused(&place, &["put", "db", "t", "hex:05", "1"], "is none");
    assert_eq!(place.ok("count db t"), "0\n");
}

#[test]
fn messagepack_values_are_shown_and_given_as_json() {
    let place = with_tree("tuple/msgpack");
    let value = r#"{"n":[1,-2,1.5,18446744073709551615],"t":"é","o":null}"#;
    assert_eq!(place.run_with(&["put", "db", "t", "[1]", value], b"").code, 0);
    assert_eq!(place.ok("get db t [1]"), format!("{value}\n"));
    assert_eq!(place.ok("scan db t --format jsonl"), format!("{{\"key\":[1],\"value\":{value}}}\n"));
    assert!(place.ok("get db t [1] --format hex").starts_with("83a16e94"));
    let packed = [0x81, 0xa1, b'a', 0x01];
    assert_eq!(place.run_with(&["put", "db", "t", "[2]", "-"], &packed).code, 0);
    assert_eq!(place.ok("get db t [2]"), "{\"a\":1}\n");
    let outcome = place.run_with(&["put", "db", "t", "[3]", "-"], &[0x81]);
    assert_eq!(outcome.code, 2, "{outcome:?}");
    let db = Db::open(place.path("db")).unwrap();
    let tree: TypedTree<u32, Value, MessagePack> = TypedTree::open(&db, "t").unwrap();
    assert_eq!(tree.get(&2).unwrap(), Some(json!({"a": 1})));
}

#[test]
fn tree_with_indexes_is_read_and_not_written() {
    let place = Workplace::with_database();
    let db = Db::open(place.path("db")).unwrap();
    let tree = TypedTree::<u32, String>::builder(&db, "users").unique_index("name", String::clone).open().unwrap();
    tree.put(&1, &"Ann".to_owned()).unwrap();
    tree.put(&2, &"Bob".to_owned()).unwrap();
    drop(tree);
    db.close().unwrap();
    assert_eq!(place.ok("scan db users"), "[1]\t\"Ann\"\n[2]\t\"Bob\"\n");
    assert_eq!(place.ok("scan db users --reverse --limit 1"), "[2]\t\"Bob\"\n");
    assert_eq!(place.ok("count db users"), "2\n");
    assert_eq!(place.ok("scan db users --keys hex").lines().count(), 5);
    for arguments in ["put db users [1] \"Eve\"", "del db users [1]", "del db users --prefix [1]"] {
        assert!(place.fails(2, arguments).contains("secondary indexes"), "{arguments}");
    }
    // An export and import carry records, entries and definitions.
    place.ok("export db -o out.export");
    place.ok("create copy");
    place.ok("import copy out.export");
    place.ok("copy-tree db users people");
    for (name, users) in [("copy", "users"), ("db", "people")] {
        let db = Db::open(place.path(name)).unwrap();
        let tree = TypedTree::<u32, String>::builder(&db, users).unique_index("name", String::clone).open().unwrap();
        assert_eq!(tree.get_by("name", &"Bob").unwrap().unwrap().0, 2);
        let report = tree.verify_indexes().unwrap();
        assert_eq!((report.records, report.entries, report.problems.len()), (2, 2, 0));
    }
}

/// The story: an import wrote records past the indexes of a typed tree.
#[test]
fn import_into_a_typed_tree_is_refused_where_indexes_would_be_outdated() {
    let place = Workplace::with_database();
    let open = |name: &str, tree: &str, has_index: bool| {
        let db = Db::open(place.path(name)).unwrap();
        let builder = TypedTree::<u32, String>::builder(&db, tree);
        let builder = if has_index { builder.unique_index("name", String::clone) } else { builder };
        (builder.open().unwrap(), db)
    };
    let (users, db) = open("db", "users", true);
    users.put(&1, &"Ann".to_owned()).unwrap();
    TypedTree::<u32, String>::open(&db, "plain").unwrap().put(&2, &"Bob".to_owned()).unwrap();
    drop(users);
    db.close().unwrap();
    place.write("rows.jsonl", b"{\"id\":\"x\"}\n");
    for tree in ["users", "plain"] {
        let refused = place.fails(2, &format!("import db rows.jsonl --tree {tree} --key id"));
        assert!(refused.contains("tuple/json") && refused.contains("another --tree"), "{refused}");
        place.ok(&format!("export db {tree} -o {tree}.export"));
    }
    let before = place.ok("scan db users --keys hex");
    let refused = place.fails(2, "import db users.export");
    assert!(refused.contains("secondary indexes") && refused.contains("drop-tree"), "{refused}");
    assert_eq!(place.ok("scan db users --keys hex"), before);
    // Records without indexes join others; indexes do not come to records that they lack.
    place.ok("create copy");
    place.ok("import copy plain.export");
    let (plain, db) = open("copy", "plain", false);
    plain.put(&3, &"Cid".to_owned()).unwrap();
    drop(plain);
    db.close().unwrap();
    place.ok("import copy plain.export");
    assert_eq!(place.ok("count copy plain"), "2\n");
    assert!(place.fails(2, "import copy users.export --tree plain").contains("another name"));
    place.ok("import copy users.export");
    assert_eq!(place.ok("count copy plain"), "3\n");
    let (users, _db) = open("copy", "users", true);
    assert_eq!(users.verify_indexes().unwrap().problems, []);
}
