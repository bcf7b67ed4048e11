//! Every format, every compression, standard input; `--dry-run` and `--to-jsonl`.

use crate::common;

use common::{Workplace, compress, fixture_archive};
use serde_json::Value;

const JSONL: &str = "{\"id\":7,\"name\":\"Ada\",\"note\":\"a,b\"}\n{\"id\":10,\"name\":\"Grace\",\"note\":\"c\\nd\"}\n";
const CSV: &str = "id,name,note\n7,Ada,\"a,b\"\r\n10,\"Grace\",\"c\nd\"\n";
const TSV: &str = "id\tname\tnote\n7\tAda\ta,b\n10\tGrace\t\"c d\n";

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn import_accepts_every_format_and_compression() {
    for (format, text) in [("jsonl", JSONL), ("csv", CSV), ("tsv", TSV)] {
        let mut expected = None;
        for ending in ["", "gz", "bz2", "zst"] {
            let place = Workplace::with_database();
            let name = format!("in.{format}");
            place.write(&name, compress(ending, text.as_bytes()));
            place.ok(&format!("import db {name} --tree t --key id"));
            let scanned = place.ok("scan db t --format jsonl");
            assert_eq!(scanned.lines().count(), 2, "{format} {ending}: {scanned}");
            assert_eq!(*expected.get_or_insert(scanned.clone()), scanned, "{format} {ending}");
            assert_eq!(json(&place.ok("get db t 7 --format raw"))["note"], "a,b");
            assert_eq!(json(&place.ok("get db t 10 --format raw"))["name"], "Grace");
        }
    }
}

#[test]
fn import_reads_from_pipe() {
    let place = Workplace::with_database();
    let arguments = ["import", "db", "-", "--tree", "t", "--format", "csv", "--key", "id"];
    assert_eq!(place.run_with(&arguments, &compress("zst", CSV.as_bytes())).code, 0);
    assert_eq!(json(&place.ok("get db t 10 --format raw"))["note"], "c\nd");
}

#[test]
fn import_without_key_numbers_records() {
    let place = Workplace::with_database();
    place.write("in.jsonl", JSONL);
    place.ok("import db in.jsonl --tree t");
    assert_eq!(json(&place.ok("get db t 1"))["name"], "Grace");
    assert_eq!(json(&place.ok("get db t 0000000000000000 --keys hex"))["name"], "Ada");
    place.ok("import db in.jsonl --tree u --key id:u64");
    assert!(place.ok("scan db u --limit 1").starts_with("7\t{"));
    place.ok("import db in.jsonl --tree v --number-from 100");
    assert_eq!(json(&place.ok("get db v 101"))["name"], "Grace");
}

#[test]
fn imported_discs_are_found_by_id_artist_and_title() {
    for ending in ["", "bz2"] {
        let place = Workplace::with_database();
        place.write("dump.tar", compress(ending, &fixture_archive()));
        place.ok("import db dump.tar --format freedb");
        let found = place.ok("find db albums --by by_disc_id --eq 0b019002 --format jsonl");
        let artists: Vec<Value> = found.lines().map(|line| json(line)["value"]["artist"].clone()).collect();
        assert_eq!(artists, ["Muddy Waters", "Muddy Watters"]);
        let found = place.ok("find db albums --by by_artist --prefix NIRV --format jsonl");
        assert_eq!(found.lines().count(), 2);
        let found = json(&place.ok("find db albums --by by_title --prefix ágætis --format jsonl"));
        assert_eq!(found["value"]["artist"], "Sigur Rós");
        assert_eq!(found["value"]["tracks"], json("[\"One\\tTwo\",\"Back\\\\slash\"]"));
        assert_eq!(found["value"]["extended"], "first\nsecond");
        assert_eq!(found["value"]["number"], found["key"]);
        place.fails(1, "find db albums --by by_disc_id --eq ffffffff");
    }
}

#[test]
fn dry_run_stores_nothing() {
    let place = Workplace::new();
    place.write("in.jsonl", JSONL);
    let report = place.ok("import db in.jsonl --dry-run");
    assert!(report.contains("2 would be stored"), "{report}");
    assert!(!place.path("db").exists());
}

#[test]
fn dump_converted_to_json_lines_imports_same_records() {
    let place = Workplace::new();
    place.write("dump.tar.bz2", compress("bz2", &fixture_archive()));
    place.ok("import db dump.tar.bz2 --to-jsonl discs.jsonl.gz --format freedb");
    assert!(!place.path("db").exists() && !place.path("discs.jsonl.gz.part").exists());
    place.ok("import one dump.tar.bz2 --tree albums --format freedb --create");
    place.ok("import two discs.jsonl.gz --tree albums --key number:u64 --index by_artist=artist:lower --create");
    assert_eq!(place.ok("scan one albums"), place.ok("scan two albums"));
    assert_eq!(place.ok("scan one by_artist"), place.ok("scan two by_artist"));
    let converted = place.ok("import db dump.tar.bz2 --to-jsonl - --format freedb");
    assert_eq!(converted, place.ok("export one albums --values"));
}
