//! Bad records can be located: by number, line and byte, and in the file of `--rejects`.

use crate::common;

use std::{fs, path::Path};

use common::{Workplace, compress};
use serde_json::{Value, json};

fn place() -> Workplace {
    let place = Workplace::new();
    place.ok("create db");
    place
}

fn samples(report: &str) -> Value {
    let report: Value = serde_json::from_str(report).unwrap();
    let kinds = report["dirt"].as_array().unwrap();
    kinds.iter().flat_map(|kind| kind["samples"].as_array().unwrap().clone()).collect()
}

/// Records were counted from 0, and every JSON error was "at line 1".
#[test]
fn bad_record_is_reported_with_number_line_and_byte() {
    let place = place();
    let text = "{\"id\":1}\n\n{\"id\":2}\r\n  {\"id\":x}\n";
    for ending in ["", "gz"] {
        place.write("in.jsonl", compress(ending, text.as_bytes()));
        let found = samples(&place.ok("import db in.jsonl --key id --dry-run --json"));
        let expected =
            json!([{"record": 3, "line": 4, "offset": 20, "detail": "expected value at column 9: {\"id\":x}"}]);
        assert_eq!(found, expected, "{ending}");
    }
    let report = place.ok("import db in.jsonl --key id --dry-run --number-from 100");
    assert!(report.contains("record 3, line 4, byte 20: expected value at column 9"), "{report}");
    let message = place.fails(5, "import db in.jsonl --tree t --key id --on-error stop");
    assert!(message.contains("record 3, line 4, byte 20 cannot be stored: not JSON"), "{message}");
    let report = place.ok("import db in.jsonl --tree t --key id --resume");
    assert!(report.contains("resumed at record 3") && report.contains("record 3, line 4, byte 20"), "{report}");
    for (name, text) in [("in.csv", "id,n\n1,\"a\nb\"\n2\n"), ("in.tsv", "id\tn\n1\ta\n\n2\n")] {
        place.write(name, text);
        let report = place.ok(&format!("import db {name} --dry-run"));
        assert!(report.contains(&format!("record 2, line 4, byte {}", text.len() - 2)), "{report}");
    }
}

/// An unclosed quote swallowed 50 rows, which were reported as one record.
#[test]
fn unclosed_quote_is_reported_and_next_rows_are_read() {
    let rows = |from: u32, to: u32| (from..to).map(|number| format!("{number},x{number}\n")).collect::<String>();
    let place = place();
    place.write("in.csv", format!("id,n\n1,a\n5,\"open\n{}56,\"x\"\n57,y\n", rows(6, 56)));
    let report = place.ok("import db in.csv --tree t --key id:u64");
    assert!(report.contains("1 unclosed-quote (skipped)"), "{report}");
    assert!(report.contains("record 2, line 3, byte 9: the quote in line 3 is not closed"), "{report}");
    assert_eq!(place.ok("scan db t").lines().count(), 53);
    place.write("text.csv", format!("id,n\n1,a\n5,\"open\nno row\n{}56,\"x\"\n57,y\n", rows(6, 56)));
    let report = place.ok("import db text.csv --tree u --key id:u64");
    assert!(
        report.contains("record 2, lines 3-55, byte 9: the quote in line 3 swallows the 52 lines after it"),
        "{report}"
    );
    assert_eq!(place.ok("scan db u").lines().count(), 2);
}

#[test]
fn rejects_are_written_unchanged_and_import_after_correction() {
    let place = place();
    let bad: String = (0..10).map(|number| format!("b{number},\"x\"\"\n y\",too many\r\n")).collect();
    place.write("in.csv", format!("id,\"n\"\"m\"\nk,v\n{bad}z"));
    let report = place.ok("import db in.csv --tree t --key id --rejects out.csv");
    assert!(report.contains("11 rejected into out.csv"), "{report}");
    let rejected = fs::read_to_string(place.path("out.csv")).unwrap();
    assert_eq!(rejected, format!("id,\"n\"\"m\"\n{bad}z\n"));
    place.write("out.csv", rejected.replace(",too many", "").replace("z\n", "z,\n"));
    let report = place.ok("import db out.csv --tree t --key id --rejects again.csv");
    assert!(report.contains("11 stored, 0 skipped") && report.contains("no record was rejected"), "{report}");
    assert_eq!(place.ok("scan db t").lines().count(), 12);
    assert_eq!(place.ok("get db t b7"), "{\"id\":\"b7\",\"n\\\\\"m\":\"x\\\\\"\\\\n y\"}\n");
    assert_eq!(fs::read(place.path("again.csv")).unwrap(), b"");
}

#[test]
fn rejects_have_format_of_input() {
    let place = place();
    place.write("in.jsonl", b"{\"id\":\"1\"}\nnot \xff json\r\n{\"no\":1}\n");
    let report = place.ok("import db in.jsonl --key id --tree t --rejects out.jsonl.gz --json");
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["rejects"], json!({"file": "out.jsonl.gz", "records": 2, "left_out": 0}));
    let place_of = |name: &str| fs::read(place.path(name)).unwrap();
    place.fails(5, "import db out.jsonl.gz --key id --tree t --rejects out.jsonl");
    assert_eq!(place_of("out.jsonl"), b"not \xff json\r\n{\"no\":1}\n");
    place.write("in.tsv", "a\tb\n1\n2\tx\n");
    place.ok("import db in.tsv --tree tsv --rejects out.tsv");
    assert_eq!(fs::read_to_string(place.path("out.tsv")).unwrap(), "a\tb\n1\n");
    place.write("in.csv", "1;x\n2\n");
    place.ok("import db in.csv --tree csv --no-header --delimiter ; --rejects out.csv");
    assert_eq!(fs::read_to_string(place.path("out.csv")).unwrap(), "2\n");
    let outcome = place.run("import db in.csv --dry-run --no-header --delimiter ; --rejects -");
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "2\n"), "{outcome:?}");
    assert!(outcome.stderr.contains("1 would be stored, 1 skipped"), "{outcome:?}");
}

#[test]
fn rejects_before_error_are_kept_and_not_replaced_by_resume() {
    let place = place();
    let packed = compress("gz", b"{\"id\":1}\nbad\n{\"id\":2}\n");
    place.write("in.gz", &packed[..packed.len() - 4]);
    let rest = "--format jsonl --tree t --key id --rejects out";
    place.fails(5, &format!("import db in.gz {rest}"));
    assert_eq!(fs::read_to_string(place.path("out")).unwrap(), "bad\n");
    let message = place.fails(2, &format!("import db in.gz {rest} --resume"));
    assert!(message.contains("name another file for --rejects"), "{message}");
    assert_eq!(fs::read_to_string(place.path("out")).unwrap(), "bad\n");
}

#[test]
fn rejects_into_input_or_without_skip_are_refused() {
    let place = place();
    place.write("in.jsonl", "{\"id\":1}\nbad\n");
    place.fails(2, "import db in.jsonl --tree t --rejects ./in.jsonl");
    place.fails(2, "import db in.jsonl --tree t --rejects out --on-error stop");
    place.fails(2, "import db in.jsonl --to-jsonl out --rejects out");
    assert_eq!(fs::read_to_string(place.path("in.jsonl")).unwrap(), "{\"id\":1}\nbad\n");
    assert_eq!(place.ok("trees db"), "");
}

#[cfg(target_os = "linux")]
#[test]
fn failed_rejects_end_import_after_its_records_are_stored() {
    let place = place();
    place.write("in.jsonl", "{\"id\":1}\nbad\n{\"id\":2}\n");
    let message = place.fails(4, "import db in.jsonl --tree t --key id --rejects /dev/full");
    assert!(message.contains("cannot write to /dev/full"), "{message}");
    assert!(message.contains("stored 2 records before the error"), "{message}");
    assert_eq!(place.ok("scan db t").lines().count(), 2);
    place.fails(4, "import db in.jsonl --tree u --key id --rejects no/folder");
    assert_eq!(place.ok("trees db").lines().filter(|line| line.contains('u')).count(), 0);
}

#[test]
fn bad_disc_is_reported_with_path_and_offset() {
    let place = place();
    let archive = common::fixture_archive();
    place.write("dump.tar.bz2", compress("bz2", &archive));
    let found = samples(&place.ok("import db dump.tar.bz2 --format freedb --dry-run --json"));
    let found = found.as_array().unwrap();
    assert!(found.iter().any(|sample| sample["place"] == "jazz/16019002"), "{found:?}");
    for sample in found {
        let (path, offset) = (sample["place"].as_str().unwrap(), sample["offset"].as_u64().unwrap() as usize);
        assert_eq!(&archive[offset..][..path.len()], path.as_bytes());
        assert!(sample["record"].as_u64().unwrap() > 0 && sample.get("line").is_none(), "{sample}");
    }
}

#[test]
fn rejected_discs_are_an_importable_archive() {
    let place = place();
    place.write("dump.tar", common::fixture_archive());
    let report = place.ok("import db dump.tar --tree albums --rejects out.tar.gz");
    assert!(report.contains("3 rejected into out.tar.gz"), "{report}");
    let outcome = place.run("import db out.tar.gz --tree albums --rejects again.tar --number-from 100");
    assert_eq!(outcome.code, 5, "{outcome:?}");
    assert!(outcome.stdout.contains("3 records") && outcome.stdout.contains("3 skipped"), "{outcome:?}");
    let (mut names, mut originals) = (Vec::new(), Vec::new());
    let mut again = tar::Archive::new(fs::File::open(place.path("again.tar")).unwrap());
    for entry in again.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
        let name = entry.path().unwrap().to_string_lossy().into_owned();
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/freedb").join(&name);
        originals.push(fs::read(fixture).unwrap() == bytes);
        names.push(name);
    }
    assert_eq!((names.len(), originals), (3, vec![true; 3]), "{names:?}");
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Link);
    header.set_size(0);
    builder.append_link(&mut header, "rock/00000001", "rock/00000002").unwrap();
    place.write("link.tar", builder.into_inner().unwrap());
    let outcome = place.run("import db link.tar --dry-run --rejects none.tar");
    assert!(outcome.stdout.contains("1 not in none.tar: too large, or links to missing files"), "{outcome:?}");
    assert_eq!(fs::read(place.path("none.tar")).unwrap(), b"");
}
