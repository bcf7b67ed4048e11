//! `create`, `get`, `put`, `del`, `trees`.

use crate::common;

use common::Workplace;

#[test]
fn put_get_and_del_of_key_work() {
    let place = Workplace::new();
    place.ok("create db");
    place.ok("put db fruit apple red");
    place.ok("put db fruit pear green --durability buffered");
    assert_eq!(place.ok("get db fruit apple"), "red\n");
    assert_eq!(place.ok("get db fruit pear --format hex"), "677265656e\n");
    assert_eq!(place.ok("get db fruit pear --format raw"), "green");
    place.ok("put db fruit apple yellow");
    assert_eq!(place.ok("get db fruit apple"), "yellow\n");
    place.ok("del db fruit apple");
    place.fails(1, "get db fruit apple");
    place.fails(1, "del db fruit apple");
    assert_eq!(place.ok("trees db"), "fruit\n");
}

#[test]
fn put_reads_value_from_standard_input() {
    let place = Workplace::with_database();
    let value = b"two\nlines";
    assert_eq!(place.run_with(&["put", "db", "t", "k", "-"], value).code, 0);
    assert_eq!(place.ok("get db t k --format raw").as_bytes(), value);
    assert_eq!(place.ok("get db t k"), "two\\x0alines\n");
}

#[test]
fn keys_in_text_hex_and_u64_are_accepted() {
    let place = Workplace::with_database();
    place.ok("put db t 258 x --keys u64");
    assert_eq!(place.ok("get db t 0000000000000102 --keys hex"), "x\n");
    assert_eq!(place.ok("scan db t"), "258\tx\n");
    assert_eq!(place.ok("scan db t --keys text"), "\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x02\tx\n");
    place.fails(2, "get db t 1x --keys u64");
    place.fails(2, "get db t 1 --keys hex");
}

#[test]
fn multi_value_tree_stores_and_returns_all_values() {
    let place = Workplace::with_database();
    place.write("in.jsonl", "{\"id\":\"1\",\"tag\":[\"red\",\"round\"]}\n{\"id\":\"2\",\"tag\":\"red\"}\n");
    place.ok("import db in.jsonl --tree things --key id --index by_tag=tag");
    assert_eq!(place.ok("get db by_tag red"), "1\n2\n");
    place.ok("put db by_tag red 3");
    assert_eq!(place.ok("get db by_tag red"), "1\n2\n3\n");
    place.ok("del db by_tag red --value 2");
    assert_eq!(place.ok("scan db by_tag"), "red\t1\nred\t3\nround\t1\n");
    place.ok("del db by_tag red");
    assert_eq!(place.ok("scan db by_tag"), "round\t1\n");
    place.fails(1, "get db by_tag red");
    place.fails(2, "del db things 1 --value x");
    let trees = place.ok("trees db");
    assert!(trees.contains("by_tag\tmany values to a key\n") && trees.contains("things\n"), "{trees}");
    assert!(place.ok("trees db --json").contains("\"name\":\"by_tag\""));
}
