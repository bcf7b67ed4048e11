//! Trees that clients must not write, and rules of typed trees.

use crate::client::Running;
use braid_server::{Options, Rules, Store};
use braiddb::{Db, TreeCodec, TreeOptions};
use braiddb_typed::TypedTree;
use serde_json::{Value, json};

const ONE: &str = "/trees/users/%5B1%5D?codec=tuple";

/// The story: a PUT wrote past the entries of a unique index, and get_by found a record of another name.
#[test]
fn tree_with_secondary_indexes_is_read_and_not_written() {
    let db = Db::in_memory().unwrap();
    let users = TypedTree::<u32, String>::builder(&db, "users").unique_index("name", String::clone).open().unwrap();
    users.put(&1, &"Ann".to_owned()).unwrap();
    let server = Running::writable(&db);
    let put = json!({"op": "put", "tree": "users", "key": [1], "codec": "tuple", "value": "\"Eve\""});
    let delete = json!({"op": "delete", "tree": "users", "key": [1], "codec": "tuple"});
    let large = format!("\"{}\"", "x".repeat(100_000));
    let version = server.get(ONE).has(200).etag().to_owned();
    for reply in [
        server.put(ONE, "\"Eve\""),
        server.put(ONE, &large),
        server.ask("PUT", ONE, &[("If-Match", &version)], b"\"Eve\""),
        server.ask("DELETE", ONE, &[], b""),
        server.ask("DELETE", ONE, &[("If-Match", &version)], b""),
        server.ask("POST", "/batch", &[], json!([put]).to_string().as_bytes()),
        server.ask("POST", "/batch", &[], json!([delete]).to_string().as_bytes()),
    ] {
        let reply = reply.has_problem(409);
        assert!(reply.text().contains("secondary indexes") && reply.text().contains("write it there"), "{reply:?}");
    }
    let check = json!([{"op": "check", "tree": "users", "key": [1], "codec": "tuple", "if_version": version}]);
    server.ask("POST", "/batch", &[], check.to_string().as_bytes()).has(200);
    assert_eq!(users.get(&1).unwrap().unwrap(), "Ann");
    assert!(users.verify_indexes().unwrap().problems.is_empty());
}

#[test]
fn keys_and_values_of_another_codec_are_refused() {
    let db = Db::in_memory().unwrap();
    let options = TreeOptions::new().codec(TreeCodec::new(braiddb_typed::KEY_CODEC, "json").unwrap());
    let tree = db.tree_with("users", options).unwrap();
    let server = Running::limited(&db, |limits| limits.batch_bytes = 200_000);
    assert!(server.put(ONE, "{").has_problem(409).text().contains("not JSON"));
    assert!(server.put("/trees/users/abc", "1").has_problem(409).text().contains("JSON array"));
    let large = |end: &str| format!("\"{}{end}", "x".repeat(100_000));
    assert!(server.put(ONE, large("")).has_problem(409).text().contains("not JSON"));
    assert!(tree.is_empty().unwrap());
    server.put(ONE, large("\"")).has(201);
    server.put(ONE, vec![b' '; 200_001]).has_problem(413);
    for (key, value) in [(json!([1]), "{"), (json!([1]), "")] {
        let batch = json!([{"op": "put", "tree": "users", "key": key, "codec": "tuple", "value": value}]);
        server.ask("POST", "/batch", &[], batch.to_string().as_bytes()).has_problem(409);
    }
    assert_eq!(tree.len().unwrap(), 1);
    // A record that the tree should not have can be deleted.
    tree.put("abc", "").unwrap();
    server.ask("DELETE", "/trees/users/abc", &[], b"").has(204);
}

#[test]
fn tuple_scan_shows_records_and_no_index_entries() {
    let db = Db::in_memory().unwrap();
    let users = TypedTree::<String, String>::builder(&db, "users").index("name", String::clone).open().unwrap();
    for key in ["a", "a\0b", "b"] {
        users.put(&key.to_owned(), &"Ann".to_owned()).unwrap();
    }
    let server = Running::writable(&db);
    let keys = |query: &str| -> Vec<Value> {
        let json = server.get(&format!("/trees/users/?{query}")).has(200).json();
        json["records"].as_array().unwrap().iter().map(|record| record["key"].clone()).collect()
    };
    assert_eq!(keys("codec=tuple"), [json!(["a"]), json!(["a\0b"]), json!(["b"])]);
    assert_eq!(keys("codec=tuple&reverse&limit=1"), [json!(["b"])]);
    assert_eq!(keys("codec=tuple&start=%5B%22b%22%5D"), [json!(["b"])]);
    // The tuple ["a"] is a prefix of the bytes of ["a\0b"].
    assert_eq!(keys("codec=tuple&prefix=%5B%22a%22%5D"), [json!(["a"])]);
    assert_eq!(keys("codec=tuple&end=%5B%22a%5Cu0000b%22%5D"), [json!(["a"])]);
    assert!(keys("").len() > 3);
}

#[derive(Debug)]
struct OnlyFree;

impl OnlyFree {
    fn check(tree: &str) -> Result<(), String> {
        if tree.starts_with("free") { Ok(()) } else { Err(format!("the tree {tree} is taken: use another")) }
    }
}

impl Rules for OnlyFree {
    fn check_records(&self, db: &Db, tree: &str) -> Result<(), String> {
        assert!(db.open_tree(tree).is_ok());
        OnlyFree::check(tree)
    }
    fn check_create(&self, _: &Db, tree: &str) -> Result<(), String> {
        OnlyFree::check(tree)
    }
    fn check_drop(&self, _: &Db, tree: &str) -> Result<(), String> {
        OnlyFree::check(tree)
    }
}

#[test]
fn rules_of_the_program_decide() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    tree.put("k", "v").unwrap();
    let server = Running::with(Store::owner(&db), Options::new().write(true).rules(OnlyFree));
    server.put("/trees/free", "").has(201);
    server.put("/trees/free/k", "v").has(201);
    let batch = json!([{"op": "put", "tree": "free", "key": "k", "value": "w"},
        {"op": "delete", "tree": "t", "key": "k"}]);
    for (method, path, body) in [
        ("PUT", "/trees/t/k", "w".to_owned()),
        ("PUT", "/trees/t/k", "w".repeat(100_000)),
        ("DELETE", "/trees/t/k", String::new()),
        ("PUT", "/trees/other", String::new()),
        ("DELETE", "/trees/t", String::new()),
        ("POST", "/batch", batch.to_string()),
    ] {
        let reply = server.ask(method, path, &[], body.as_bytes()).has_problem(409);
        assert!(reply.text().contains("is taken: use another"), "{reply:?}");
    }
    assert_eq!(tree.get("k").unwrap().unwrap(), "v");
    assert_eq!(db.tree("free").unwrap().get("k").unwrap().unwrap(), "v");
    server.ask("DELETE", "/trees/free", &[], b"").has(204);
    assert!(db.open_tree("other").is_err());
}
