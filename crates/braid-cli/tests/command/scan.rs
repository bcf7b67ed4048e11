//! `scan` and `export`.

use crate::common;

use common::Workplace;

fn filled() -> Workplace {
    let place = Workplace::with_database();
    for (key, value) in [("a", "1"), ("ab", "{\"x\":[1,2]}"), ("b", "text"), ("ba", "4"), ("c", "5")] {
        assert_eq!(place.run_with(&["put", "db", "t", key, value], b"").code, 0);
    }
    place
}

#[test]
fn scan_of_range_works_in_both_directions() {
    let place = filled();
    assert_eq!(place.ok("scan db t"), "a\t1\nab\t{\"x\":[1,2]}\nb\ttext\nba\t4\nc\t5\n");
    assert_eq!(place.ok("scan db t --from ab --to ba"), "ab\t{\"x\":[1,2]}\nb\ttext\n");
    assert_eq!(place.ok("scan db t --prefix b"), "b\ttext\nba\t4\n");
    assert_eq!(place.ok("scan db t --reverse --limit 2"), "c\t5\nba\t4\n");
    assert_eq!(place.ok("scan db t --prefix b --reverse"), "ba\t4\nb\ttext\n");
    assert_eq!(place.ok("scan db t --to b --limit 1"), "a\t1\n");
    assert_eq!(place.ok("scan db t --from x"), "");
    place.fails(2, "scan db t --prefix a --from b");
}

#[test]
fn scan_prints_hex_json_and_jsonl() {
    let place = filled();
    assert_eq!(place.ok("scan db t --prefix b --format hex"), "62\t74657874\n6261\t34\n");
    let json = "{\"key\":\"ab\",\"value\":{\"x\":[1,2]}}\n{\"key\":\"b\",\"value\":\"text\"}\n";
    assert_eq!(place.ok("scan db t --from ab --to ba --format jsonl"), json);
    assert_eq!(place.run_with(&["put", "db", "t", "ff", "-"], b"\xff\n").code, 0);
    let hex = "{\"key\":\"ff\",\"value\":{\"hex\":\"ff0a\"}}\n";
    assert_eq!(place.ok("scan db t --prefix ff --format jsonl"), hex);
    assert_eq!(place.ok("scan db t --prefix ff --format json"), hex);
    let text = "{\"key\":\"ab\",\"value\":\"{\\\"x\\\":[1,2]}\"}\n";
    assert_eq!(place.ok("scan db t --prefix ab --format json"), text);
    assert_eq!(place.ok("scan db t --prefix ff"), "ff\t\\xff\\x0a\n");
}

#[test]
fn export_of_values_equals_imported_lines() {
    let place = Workplace::with_database();
    let lines: String = (0..3000).map(|number| format!("{{\"id\":\"{number:05}\",\"n\":{number}}}\n")).collect();
    place.write("in.jsonl", &lines);
    place.ok("import db in.jsonl --tree t --key id");
    assert_eq!(place.ok("export db t --values"), lines);
    for name in ["out.jsonl", "out.jsonl.gz", "out.jsonl.bz2", "out.jsonl.zst"] {
        place.ok(&format!("export db t --values -o {name}"));
        place.ok(&format!("import db-{name} {name} --tree t --key id --create"));
        assert_eq!(place.ok(&format!("export db-{name} t --values")), lines, "{name}");
    }
    assert!(
        place
            .ok("export db t --format jsonl")
            .starts_with("{\"key\":\"00000\",\"value\":{\"id\":\"00000\",\"n\":0}}\n")
    );
}
