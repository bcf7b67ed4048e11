//! The key notation of a tree is set by its first record.

use crate::common;

use common::Workplace;

/// `import --key n:u64` made text keys of the tree look like numbers, and `get` did not find them.
#[test]
fn import_with_other_key_notation_is_refused_and_changes_nothing() {
    let place = Workplace::with_database();
    place.write("s.jsonl", "{\"sku\":\"ABCDEFGH\",\"n\":1}\n{\"sku\":\"ZZTOP\",\"n\":2}\n");
    place.write("bad.jsonl", "{\"x\":1}\n");
    place.ok("import db s.jsonl --tree t --key sku");
    let before = place.ok("scan db t --format hex");
    for input in ["bad.jsonl", "s.jsonl"] {
        let message = place.fails(2, &format!("import db {input} --tree t --key n:u64"));
        assert!(message.contains("are text, such as ABCDEFGH, but --key n:u64 would add numbers"), "{message}");
        let message = place.fails(2, &format!("import db {input} --tree t"));
        assert!(message.contains("record numbers (no --key)"), "{message}");
    }
    assert_eq!(place.ok("scan db t --format hex"), before);
    assert_eq!(place.ok("get db t ABCDEFGH"), "{\"sku\":\"ABCDEFGH\",\"n\":1}\n");
    place.ok("import db s.jsonl --tree u --key n:u64");
    place.fails(2, "import db s.jsonl --tree u --key sku");
    assert!(place.ok("scan db u").starts_with("1\t"));
    place.ok("put db plain ABCDEFGH v");
    place.fails(2, "import db s.jsonl --tree plain --key n:u64");
    place.ok("import db s.jsonl --tree plain --key sku");
}

#[test]
fn import_that_stores_nothing_sets_no_key_notation() {
    let place = Workplace::with_database();
    place.write("s.jsonl", "{\"sku\":\"ABCDEFGH\",\"n\":1}\n");
    place.write("bad.jsonl", "{\"x\":1}\n");
    place.fails(5, "import db bad.jsonl --tree t --key n:u64");
    place.ok("import db s.jsonl --tree t --key sku");
    assert!(place.ok("scan db t").starts_with("ABCDEFGH\t"));
    place.ok("del db t ABCDEFGH");
    place.ok("import db s.jsonl --tree t --key n:u64");
    assert!(place.ok("scan db t").starts_with("1\t"));
}

#[test]
fn number_keys_are_numbers_in_every_command() {
    let place = Workplace::with_database();
    place.write("s.jsonl", "{\"sku\":\"A\",\"n\":258}\n");
    place.ok("import db s.jsonl --tree t --key n:u64 --index by_sku=sku");
    assert_eq!(
        place.ok("get db t 258 --format json"),
        "{\"key\":258,\"value\":\"{\\\"sku\\\":\\\"A\\\",\\\"n\\\":258}\"}\n"
    );
    assert!(place.ok("find db t --by by_sku --eq A").starts_with("258\t"));
    assert!(place.ok("export db t").contains("{\"key\":258,"));
    assert!(place.ok("watch db --tree t").contains("\"key\":258,"));
    place.ok("put db t 323538 v --keys hex");
    assert!(place.ok("scan db t").ends_with("\\x3258\tv\n"));
    assert_eq!(place.ok("get db t \\x3258"), "v\n");
    place.ok("del db t 258");
    assert_eq!(place.ok("scan db t"), "\\x3258\tv\n");
}
