//! Index entries after imports, repeated imports, `put` and `del`.

use crate::common;

use common::Workplace;

#[test]
fn repeated_record_leaves_no_stale_entries() {
    let place = Workplace::with_database();
    place.write("one.jsonl", "{\"id\":\"1\",\"name\":\"Ada\"}\n{\"id\":\"2\",\"name\":\"Grace\"}\n");
    place.write(
        "two.jsonl",
        "{\"id\":\"1\",\"name\":\"Eve\"}\n{\"id\":\"1\",\"name\":\"Ida\"}\n{\"id\":\"3\",\"name\":\"ADA\"}\n",
    );
    place.ok("import db one.jsonl --tree people --key id --index by_name=name:lower");
    assert_eq!(place.ok("scan db by_name"), "ada\t1\ngrace\t2\n");
    let report = place.ok("import db two.jsonl --tree people --key id");
    assert!(report.contains("3 stored (2 of them replaced older ones)"), "{report}");
    assert_eq!(place.ok("scan db by_name"), "ada\t3\ngrace\t2\nida\t1\n");
    assert_eq!(place.ok("find db people --by by_name --eq aDa"), "3\t{\"id\":\"3\",\"name\":\"ADA\"}\n");
    place.ok("import db two.jsonl --tree people --key id");
    assert_eq!(place.ok("scan db by_name"), "ada\t3\ngrace\t2\nida\t1\n");
}

#[test]
fn put_and_del_update_indexes() {
    let place = Workplace::with_database();
    place.write("in.jsonl", "{\"id\":\"1\",\"tags\":[\"a\",\"b\",\"a\"],\"in\":{\"ner\":5}}\n");
    place.ok("import db in.jsonl --tree t --key id --index by_tag=tags --index by_inner=in.ner");
    assert_eq!(place.ok("scan db by_tag"), "a\t1\nb\t1\n");
    assert_eq!(place.ok("scan db by_inner"), "5\t1\n");
    place.ok("put db t 1 {\"tags\":[\"b\",\"c\"]}");
    assert_eq!(place.ok("scan db by_tag"), "b\t1\nc\t1\n");
    assert_eq!(place.ok("scan db by_inner"), "");
    place.ok("put db t 2 {\"tags\":\"c\"}");
    assert_eq!(place.ok("find db t --by by_tag --eq c").lines().count(), 2);
    place.ok("del db t 1");
    assert_eq!(place.ok("scan db by_tag"), "c\t2\n");
    place.fails(1, "find db t --by by_tag --eq b");
}

#[test]
fn find_by_prefix_returns_each_record_once_in_index_order() {
    let place = Workplace::with_database();
    place.write(
        "in.jsonl",
        "{\"id\":\"1\",\"n\":[\"bab\",\"baa\"]}\n{\"id\":\"2\",\"n\":\"ba\"}\n{\"id\":\"3\",\"n\":\"c\"}\n",
    );
    place.ok("import db in.jsonl --tree t --key id --index by_n=n");
    let found = place.ok("find db t --by by_n --prefix ba");
    let keys: Vec<&str> = found.lines().map(|line| &line[..1]).collect();
    assert_eq!(keys, ["2", "1"]);
    assert_eq!(place.ok("find db t --by by_n --prefix ba --limit 1").lines().count(), 1);
    place.fails(1, "find db t --by by_n --prefix x");
    place.fails(1, "find db t --by by_other --eq x");
}

#[test]
fn find_distinguishes_texts_longer_than_entries() {
    let place = Workplace::with_database();
    let base = "é".repeat(600);
    let lines: String =
        ["a", "b", ""].iter().map(|end| format!("{{\"id\":\"x{end}\",\"text\":\"{base}{end}\"}}\n")).collect();
    place.write("in.jsonl", lines);
    place.ok("import db in.jsonl --tree t --key id --index by_text=text");
    let keys = |what: &str, text: &str| -> Vec<String> {
        let outcome = place.run_with(&["find", "db", "t", "--by", "by_text", what, text], b"");
        outcome.stdout.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
    };
    assert_eq!(keys("--eq", &format!("{base}b")), ["xb"]);
    assert_eq!(keys("--eq", &base), ["x"]);
    assert_eq!(keys("--prefix", &base), ["x", "xa", "xb"]);
    assert_eq!(keys("--prefix", &format!("{base}a")), ["xa"]);
    assert_eq!(keys("--prefix", "éé"), ["x", "xa", "xb"]);
    assert_eq!(keys("--eq", &base[..1000]), Vec::<String>::new());
}

#[test]
fn invalid_indexes_are_refused() {
    let place = Workplace::with_database();
    place.write("in.jsonl", "{\"id\":\"1\",\"n\":\"a\"}\n");
    place.ok("import db in.jsonl --tree t --key id --index by_n=n");
    place.fails(2, "import db in.jsonl --tree t --key id --index by_n=n:lower");
    place.fails(2, "import db in.jsonl --tree t --key id --index by_m=n");
    place.fails(2, "import db in.jsonl --tree u --key id --index by_n=n");
    place.fails(2, "import db in.jsonl --tree u --key id --index u=n");
    place.fails(2, "import db in.jsonl --tree braid.import --key id");
}
