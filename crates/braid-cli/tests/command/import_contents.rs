//! Inputs whose contents differ from their names, or change in the middle.

use crate::common;

use common::Workplace;

const ROWS: u32 = 6000;

/// Only the first 64 KiB were checked.
#[test]
fn zero_bytes_late_in_table_are_refused_with_their_row() {
    let place = Workplace::with_database();
    let rows = |separator: &str| {
        let rows: String = (0..ROWS).map(|row| format!("{row}{separator}some text that is long\n")).collect();
        format!("id{separator}n\n{rows}")
    };
    let utf_16: Vec<u8> = "6000,x\n6001,y\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (name, tail) in [("a.csv", b"6000,x\0y\n".to_vec()), ("b.csv", utf_16), ("c.tsv", b"6000\tx\0\n".to_vec())] {
        let separator = if name.ends_with("tsv") { "\t" } else { "," };
        place.write(name, [rows(separator).into_bytes(), tail, b"\n".to_vec()].concat());
        let tree = &name[..1];
        let report = place.ok(&format!("import db {name} --tree {tree} --key id"));
        assert!(
            report.contains("zero-byte (skipped)")
                && report.contains("record 6,001, line 6,002,") | report.contains("record 6001, line 6002,"),
            "{report}"
        );
        assert_eq!(place.ok(&format!("count db {tree}")).trim(), ROWS.to_string());
        let message = place.fails(5, &format!("import db {name} --tree {tree}2 --key id --on-error stop"));
        assert!(message.contains("line 6002") && message.contains("zero byte"), "{message}");
    }
}

#[test]
fn rows_with_empty_key_are_refused_with_their_number() {
    let place = Workplace::with_database();
    place.write("in.csv", "id,n\n,a\n2,b\n,c\n");
    place.write("in.jsonl", "{\"id\":\"\",\"n\":1}\n{\"id\":\"2\"}\n{\"id\":\"\"}\n");
    for name in ["in.csv", "in.jsonl"] {
        let tree = &name[3..];
        let report = place.ok(&format!("import db {name} --tree {tree} --key id"));
        assert!(report.contains("1 stored, 2 skipped") && report.contains("2 empty-key (skipped)"), "{report}");
        assert!(report.contains("record 1, line") && report.contains("record 3, line"), "{report}");
        assert_eq!(place.ok(&format!("count db {tree}")), "1\n");
    }
}

/// JSON in a column lost duplicate members, and `1e3` became `1e+3`.
#[test]
fn json_and_numbers_in_columns_are_stored_as_written() {
    let place = Workplace::with_database();
    place.write(
        "in.csv",
        "id,f,j\n1,1e3,\"{\"\"a\"\": 1e3, \"\"a\"\":1.50,\n \"\"s\"\": \"\"x \\\"\" y\\\\\"\"}\"\n2,+1E-07,[ 1 ]\n3,1,{a}\n",
    );
    let report = place.ok("import db in.csv --tree t --key id --types f:float,j:json");
    assert!(report.contains("1 bad-type (skipped)"), "{report}");
    let stored = place.run_with(&["get", "db", "t", "1", "--format", "raw"], b"").stdout;
    assert_eq!(stored, r#"{"id":"1","f":1e3,"j":{"a":1e3,"a":1.50,"s":"x \" y\\"}}"#);
    let stored = place.run_with(&["get", "db", "t", "2", "--format", "raw"], b"").stdout;
    assert_eq!(stored, r#"{"id":"2","f":1E-07,"j":[1]}"#);
    place.ok("import db in.csv --to-jsonl out.jsonl --types f:float,j:json");
    assert_eq!(std::fs::read_to_string(place.path("out.jsonl")).unwrap().lines().count(), 2);
}

/// An error page instead of a download was stored as rows of one column.
#[test]
fn unsupported_documents_are_refused_by_name() {
    for (text, what) in [
        ("{\"id\":1}\n{\"id\":2}\n", "give --format jsonl"),
        ("{\n  \"id\": 1\n}\n", "the input is JSON"),
        ("[\n{\"id\":1}]\n", "a JSON array"),
        ("%PDF-1.7\n1 0 obj\n", "a PDF document"),
        ("\u{feff}\n<!DOCTYPE html>\n<p>Not found\n", "an HTML page"),
        ("<html><body>Not found\n", "an HTML page"),
        ("<?xml version=\"1.0\"?>\n<a/>\n", "an XML document"),
        ("{\\rtf1\\ansi\n", "an RTF document"),
    ] {
        for name in ["in.csv", "in.tsv", "in.jsonl"] {
            if name == "in.jsonl" && what.contains("JSON") | what.contains("jsonl") {
                continue;
            }
            let place = Workplace::with_database();
            place.write(name, text);
            let message = place.fails(5, &format!("import db {name} --tree t"));
            assert!(message.contains(what), "{name} {text:?}: {message}");
            assert_eq!(place.ok("trees db"), "");
        }
    }
    let place = Workplace::with_database();
    place.write("in.csv", "{id},n\n1,a\n");
    place.ok("import db in.csv --tree t");
}
