//! Inputs with unexpected encodings, line ends or compression.

use crate::common;

use common::{Workplace, compress};

fn place() -> Workplace {
    let place = Workplace::new();
    place.ok("create db");
    place
}

fn utf_16(text: &str, is_big: bool) -> Vec<u8> {
    let bytes_of = if is_big { u16::to_be_bytes } else { u16::to_le_bytes };
    text.encode_utf16().flat_map(bytes_of).collect()
}

fn refused(name: &str, bytes: impl AsRef<[u8]>, why: &str) {
    let place = place();
    place.write(name, bytes);
    let message = place.fails(5, &format!("import db {name} --tree t"));
    assert!(message.contains(why), "{name}: {message}");
    assert_eq!(place.ok("trees db"), "", "{name}");
}

/// After the byte order mark the quote was not recognized, and the header ended inside a name.
#[test]
fn byte_order_mark_before_quoted_name_is_dropped() {
    let place = place();
    place.write("bom.csv", "\u{feff}\"Order\nID\",name\n1,a\n2,b\n");
    place.ok("import db bom.csv --tree t");
    assert_eq!(place.ok("get db t 1"), "{\"Order\\\\nID\":\"2\",\"name\":\"b\"}\n");
    place.write("bom.tsv", "\u{feff}id\tn\n1\ta\n");
    place.ok("import db bom.tsv --tree tsv --key id");
    assert_eq!(place.ok("get db tsv 1"), "{\"id\":\"1\",\"n\":\"a\"}\n");
    place.write("bom.jsonl", "\u{feff}{\"id\":1}\n");
    place.ok("import db bom.jsonl --tree jsonl --key id");
    assert_eq!(place.ok("get db jsonl 1"), "{\"id\":1}\n");
}

/// In joined files, the second byte order mark became part of a key.
#[test]
fn byte_order_mark_inside_input_is_reported() {
    let place = place();
    place.write("joined.csv", "\u{feff}id,n\n1,a\n\u{feff}2,b\n");
    let report = place.ok("import db joined.csv --tree t --key id");
    assert!(report.contains("stray-mark (skipped)") && report.contains("record 2, line 3, byte 12"), "{report}");
    assert_eq!(place.ok("scan db t").lines().count(), 1);
}

/// UTF-16 was stored as garbage, with code 0.
#[test]
fn utf_16_with_mark_is_read_in_every_format_and_compression() {
    let texts = [
        ("in.csv", "id,n\r\n1,a€😀\r\n2,b\r\n"),
        ("in.tsv", "id\tn\n1\ta€😀\n2\tb\n"),
        ("in.jsonl", "{\"id\":\"1\",\"n\":\"a€😀\"}\n{\"id\":\"2\",\"n\":\"b\"}\n"),
    ];
    for (name, text) in texts {
        for (is_big, ending) in [(false, ""), (true, ""), (false, "gz"), (true, "zst")] {
            let place = place();
            place.write(name, compress(ending, &utf_16(&format!("\u{feff}{text}"), is_big)));
            place.ok(&format!("import db {name} --tree t --key id"));
            let expected = "1\t{\"id\":\"1\",\"n\":\"a€😀\"}\n2\t{\"id\":\"2\",\"n\":\"b\"}\n";
            assert_eq!(place.ok("scan db t"), expected, "{name} {is_big} {ending}");
        }
    }
}

#[test]
fn utf_16_import_resumes_after_last_batch() {
    let place = place();
    place.write("in.csv", utf_16("\u{feff}id,n\n1,é\n2\n3,c\n", false));
    place.fails(5, "import db in.csv --tree t --key id --on-error stop");
    place.ok("import db in.csv --tree t --key id --resume");
    assert_eq!(place.ok("scan db t"), "1\t{\"id\":\"1\",\"n\":\"é\"}\n3\t{\"id\":\"3\",\"n\":\"c\"}\n");
}

#[test]
fn export_in_utf_16_is_detected_and_imported() {
    let place = place();
    place.ok("put db t k vé");
    let export = place.ok("export db");
    for (name, bytes) in
        [("wide", utf_16(&format!("\u{feff}{export}"), false)), ("marked", format!("\u{feff}{export}").into())]
    {
        place.write(name, bytes);
        place.ok(&format!("create {name}.db"));
        place.ok(&format!("import {name}.db {name}"));
        assert_eq!(place.ok(&format!("export {name}.db")), export, "{name}");
    }
}

#[test]
fn utf_16_without_mark_and_utf_32_are_refused_by_name() {
    for text in ["id,n\n1,a\n2,b\n", "名,名\n漢字漢字漢字漢字漢字漢字,漢字漢字漢字漢字漢字漢字\n"]
    {
        refused("in.csv", utf_16(text, false), "UTF-16 without a byte order mark");
        refused("in.csv", utf_16(text, true), "iconv -f UTF-16BE -t UTF-8");
        refused("in.tsv", utf_16(&text.replace(',', "\t"), false), "iconv -f UTF-16LE -t UTF-8");
    }
    refused("in.jsonl", utf_16("{\"id\":1}\n{\"id\":2}\n", false), "UTF-16 without a byte order mark");
    let wide: Vec<u8> = "\u{feff}id,n\n1,a\n".chars().flat_map(|c| (c as u32).to_le_bytes()).collect();
    refused("in.csv", wide, "the input is UTF-32");
}

#[test]
fn zero_byte_in_field_makes_bad_record() {
    let place = place();
    place.write("in.csv", b"id,n\n1,a\0b\n2,plain text\n");
    let report = place.ok("import db in.csv --tree t --key id");
    assert!(report.contains("1 zero-byte (skipped)") && report.contains("record 1, line 2, byte 5"), "{report}");
    assert_eq!(place.ok("scan db t"), "2\t{\"id\":\"2\",\"n\":\"plain text\"}\n");
}

#[test]
fn cut_or_damaged_utf_16_is_refused() {
    let place = place();
    let bytes = utf_16("\u{feff}id,n\n1,a\n2,b\n", false);
    place.write("cut.csv", &bytes[..bytes.len() - 1]);
    let message = place.fails(5, "import db cut.csv --tree t --key id");
    assert!(message.contains("in the middle of a UTF-16 character"), "{message}");
    assert!(message.contains("stored 1 record before the error"), "{message}");
}

/// The whole file was the header: 0 records, code 0.
#[test]
fn lines_that_end_in_cr_are_refused_by_name() {
    refused("in.csv", "id,n\r1,a\r2,b\r", "CR alone");
    refused("in.csv", "id,n\r1,\"a\nb\"\r2,b\r", "CR alone (byte 4)");
    refused("in.csv", "id,n\r1,a\n2,b\n", "CR alone");
    refused("in.tsv", "id\tn\r1\ta\r", "CR alone");
    refused("in.jsonl", "{\"id\":1}\r{\"id\":2}\r", "tr '\\r' '\\n'");
    refused("in.tsv", "id\tn\r\r\n1\ta\r\r\n", "fix the line ends");
    refused("in.csv", "id,n\r\r\n1,a\r\r\n", "CR alone");
    let place = place();
    place.write("in.csv", "\"i\rd\",n\r\n1,\"a\rb\"\r\n2,b\rc\r\n");
    let report = place.ok("import db in.csv --tree t");
    assert!(report.contains("lone-cr (skipped)") && report.contains("record 2, line 3"), "{report}");
    assert_eq!(place.ok("scan db t"), "0\t{\"i\\\\rd\":\"1\",\"n\":\"a\\\\rb\"}\n");
    place.write("two.tsv", "id\tn\n1\ta\r\r\n2\tb\rc\n");
    assert!(place.ok("import db two.tsv --tree two --key id").contains("1 lone-cr (skipped)"));
    assert_eq!(place.ok("scan db two"), "2\t{\"id\":\"2\",\"n\":\"b\\\\rc\"}\n");
    place.write("one.tsv", "id\n1\r2\r3\n4\n");
    place.ok("import db one.tsv --tree one --key id");
    assert_eq!(place.ok("scan db one"), "4\t{\"id\":\"4\"}\n");
}

/// An array with one element per line was stored in part.
#[test]
fn json_array_is_refused_by_name() {
    refused("in.jsonl", "[\n{\"id\":1},\n{\"id\":2}\n]\n", "a JSON array");
    refused("in.jsonl", "\u{feff}[{\"id\":1},{\"id\":2}]", "jq -c '.[]'");
}

#[test]
fn zeros_after_gzip_data_are_ignored() {
    let place = place();
    for zeros in [1, 512, 1 << 20] {
        place.write("in.jsonl.gz", [compress("gz", b"{\"id\":1}\n{\"id\":2}\n"), vec![0; zeros]].concat());
        place.ok(&format!("import db in.jsonl.gz --tree t{zeros} --key id"));
        assert_eq!(place.ok(&format!("scan db t{zeros}")).lines().count(), 2);
    }
}

#[test]
fn other_bytes_after_compressed_data_are_refused_by_name() {
    for (ending, why) in [("gz", "other data follows its gzip data"), ("bz2", "bzip2 data"), ("zst", "zstd data")] {
        for rest in [&b"garbage"[..], b"\0\0garbage", b"\0\x1f\x8b\x08"] {
            let place = place();
            place.write("in", [compress(ending, b"{\"id\":1}\n{\"id\":2}\n"), rest.to_vec()].concat());
            let message = place.fails(5, "import db in --format jsonl --tree t --key id");
            assert!(message.contains(why), "{ending}: {message}");
            assert!(message.contains("stored 2 records before the error"), "{ending}: {message}");
        }
    }
}

#[test]
fn truncated_compressed_input_is_refused_by_name() {
    let text: String = (0..1000).map(|number| format!("{number},{}\n", number * 7919 % 1000)).collect();
    for (ending, form) in [("gz", "gzip"), ("bz2", "bzip2"), ("zst", "zstd")] {
        let whole = compress(ending, format!("id,n\n{text}").as_bytes());
        for length in [whole.len() - 1, whole.len() / 2, 12] {
            let place = place();
            place.write("in.csv", &whole[..length]);
            let message = place.fails(5, "import db in.csv --tree t");
            assert!(message.contains(&format!("{form} data is cut off")), "{ending} {length}: {message}");
        }
        let place = place();
        place.write("in.csv", &whole[..3]);
        let message = place.fails(5, "import db in.csv --tree t");
        assert!(message.contains("ends within its first bytes") || message.contains("cut off"), "{ending}: {message}");
    }
}

#[test]
fn unsupported_files_are_refused_by_name() {
    refused("in.csv", b"\xfd7zXZ\0\0\x04", "xz-compressed");
    refused("in.csv", b"\xfd7zXZ", "ends within its first bytes");
    refused("in.csv", b"PK\x03\x04....", "zip archive");
    refused("in.csv", b"PAR1....", "Parquet");
    refused("in.csv", b"\x04\x22\x4d\x18....", "lz4-compressed");
}

/// Quotes escaped by a backslash were stored as `a \\b\\" c"`, and `"a"b` as `ab`.
#[test]
fn quotes_that_are_not_doubled_make_bad_record() {
    let place = place();
    place.write("in.csv", "id,n\n1,\"a \\\"b\\\" c\"\n2,\"a\"b\n3,\"a \"\"b\"\"\"\n4,5\" d\n");
    let report = place.ok("import db in.csv --tree t --key id");
    assert!(report.contains("2 stray-quote (skipped)") && report.contains("record 1, line 2, byte 5"), "{report}");
    let stored = ["3\t{\"id\":\"3\",\"n\":\"a \\\\\"b\\\\\"\"}", "4\t{\"id\":\"4\",\"n\":\"5\\\\\" d\"}"];
    assert_eq!(place.ok("scan db t").lines().collect::<Vec<_>>(), stored);
    refused("head.csv", "\"i\"d,n\n1,a\n", "the first row of the input cannot be read");
}
