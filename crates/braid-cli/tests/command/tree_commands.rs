//! `drop-tree`, `rename-tree`, `copy-tree`, `count`, and `del` of a range.

use crate::common::Workplace;

fn place_with_things() -> Workplace {
    let place = Workplace::new();
    place.ok("create db");
    let records =
        "{\"id\":\"a1\",\"tag\":\"red\"}\n{\"id\":\"a2\",\"tag\":\"red\"}\n{\"id\":\"b1\",\"tag\":\"blue\"}\n";
    place.write("in.jsonl", records);
    place.ok("import db in.jsonl --tree things --key id --index by_tag=tag");
    place
}

#[test]
fn count_of_range_is_exact() {
    let place = place_with_things();
    assert_eq!(place.ok("count db things"), "3\n");
    assert_eq!(place.ok("count db things --prefix a"), "2\n");
    assert_eq!(place.ok("count db things --from a2"), "2\n");
    assert_eq!(place.ok("count db things --from a --to b"), "2\n");
    assert_eq!(place.ok("count db by_tag --prefix red"), "2\n");
    assert_eq!(place.ok("count db things --json"), "{\"tree\":\"things\",\"count\":3,\"exact\":true}\n");
    place.fails(1, "count db absent");
    assert_eq!(place.ok("count db by_tag --estimate"), place.ok("count db by_tag"));
}

#[test]
fn del_of_prefix_removes_records_and_index_entries() {
    let place = place_with_things();
    assert_eq!(place.ok("del db things --prefix a"), "2 records deleted\n");
    assert_eq!(place.ok("count db things"), "1\n");
    assert_eq!(place.ok("scan db by_tag"), "blue\tb1\n");
    let checked = place.ok("index rebuild db things --check");
    assert_eq!(checked, "by_tag: 1 entry of 1 record: 0 missing, 0 stale\n");
    place.fails(1, "del db things --prefix a");
    place.fails(2, "del db things");
    place.fails(2, "del db things b1 --prefix b");
}

#[test]
fn del_of_range_in_multi_value_tree_removes_all_values() {
    let place = place_with_things();
    assert_eq!(place.ok("del db by_tag --from red"), "2 records deleted\n");
    assert_eq!(place.ok("scan db by_tag"), "blue\tb1\n");
}

#[test]
fn del_of_range_without_indexes_leaves_other_keys() {
    let place = Workplace::new();
    place.ok("create db");
    for key in ["a", "b", "c"] {
        place.ok(&format!("put db t {key} v"));
    }
    assert_eq!(place.ok("del db t --from b --to c"), "1 record deleted\n");
    assert_eq!(place.ok("scan db t"), "a\tv\nc\tv\n");
}

#[test]
fn drop_tree_drops_its_indexes_and_import_records() {
    let place = place_with_things();
    let refused = place.fails(2, "drop-tree db by_tag");
    assert!(refused.contains("index drop"), "{refused}");
    place.ok("drop-tree db things");
    assert_eq!(place.ok("trees db"), "braid.import\n");
    place.fails(1, "drop-tree db things");
    // A resumed import reported "2 stored" for a tree that had been dropped, and stored nothing.
    place.ok("import db in.jsonl --tree things --key id --resume");
    assert_eq!(place.ok("count db things"), "3\n");
    assert_eq!(place.ok("index list db"), "");
}

#[test]
fn drop_tree_with_missing_name_drops_none() {
    let place = place_with_things();
    place.fails(1, "drop-tree db things absent");
    assert_eq!(place.ok("count db things"), "3\n");
    place.fails(2, "drop-tree db braid.import");
}

#[test]
fn rename_tree_keeps_indexes_and_key_notation() {
    let place = place_with_things();
    place.write("rows.jsonl", "{\"n\":1}\n{\"n\":2}\n");
    place.ok("import db rows.jsonl --tree rows");
    place.ok("rename-tree db rows lines");
    assert_eq!(place.ok("get db lines 1"), "{\"n\":2}\n");
    place.ok("rename-tree db things goods");
    place.ok("put db goods c1 {\"id\":\"c1\",\"tag\":\"red\"}");
    assert_eq!(place.ok("get db by_tag red"), "a1\na2\nc1\n");
    place.fails(1, "rename-tree db things others");
    place.fails(2, "rename-tree db goods lines");
    place.fails(2, "rename-tree db by_tag tags");
}

#[test]
fn copy_tree_copies_records_and_pairs_within_and_between_databases() {
    let place = place_with_things();
    assert_eq!(place.ok("copy-tree db things again"), "3 records\n");
    assert_eq!(place.ok("scan db again"), place.ok("scan db things"));
    place.ok("create other");
    assert_eq!(place.ok("copy-tree db by_tag tags --into other"), "3 records\n");
    assert_eq!(place.ok("scan other tags"), place.ok("scan db by_tag"));
    place.fails(2, "copy-tree db things again");
    place.fails(1, "copy-tree db absent x");
    place.fails(1, "copy-tree db things x --into absent");
}

#[test]
fn copy_tree_keeps_expiry_times() {
    let place = Workplace::new();
    place.ok("create db");
    place.ok("put db t k v --ttl 4000");
    place.ok("put db t forever v");
    place.ok("copy-tree db t u");
    let expiry = |tree: &str, key: &str| {
        let json: serde_json::Value = serde_json::from_str(&place.ok(&format!("get db {tree} {key} --json"))).unwrap();
        json["expires_us"].as_u64()
    };
    assert!(expiry("t", "k").is_some());
    assert_eq!(expiry("u", "k"), expiry("t", "k"));
    assert_eq!(expiry("u", "forever"), None);
}

/// A copy lost its key notation.
#[test]
fn copy_tree_keeps_key_notation() {
    let place = Workplace::new();
    place.ok("create db");
    place.ok("create other");
    place.ok("put db numbers 7 seven --keys u64");
    place.ok("copy-tree db numbers again");
    place.ok("copy-tree db numbers there --into other");
    assert_eq!(place.ok("scan db again"), place.ok("scan db numbers"));
    assert_eq!(place.ok("scan other there"), place.ok("scan db numbers"));
    assert_eq!(place.ok("get db again 7"), "seven\n");
}

/// The command's own records of keys and indexes could be changed by hand.
#[test]
fn write_to_import_tree_is_refused() {
    let place = Workplace::new();
    place.ok("create db");
    place.ok("put db numbers 7 seven --keys u64");
    for command in [
        "put db braid.import k v",
        "del db braid.import k",
        "del db braid.import --prefix k",
        "trees db --set braid.import --ttl 1",
        "copy-tree db braid.import x",
        "copy-tree db numbers braid.import",
    ] {
        assert!(place.fails(2, command).contains("is reserved"), "{command}");
    }
    assert_eq!(place.ok("get db numbers 7"), "seven\n");
}
