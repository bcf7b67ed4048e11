//! The text form of keys, values and tree names: the output of one command is the input of another.

use crate::common;

use common::Workplace;
use serde_json::Value;

fn awkward_keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = vec![
        b"\\x41".to_vec(),
        b"A".to_vec(),
        b"hex:41".to_vec(),
        b"\\".to_vec(),
        b"a\\\\b".to_vec(),
        b"\xff\xfe".to_vec(),
        "\u{2028}é\u{202e}".as_bytes().to_vec(),
        b"{\"hex\":\"41\"}".to_vec(),
        b"1".to_vec(),
        b" - ".to_vec(),
        b"--x".to_vec(),
    ];
    keys.extend((0..=255).step_by(17).map(|byte| vec![b'k', byte]));
    keys
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `scan` printed the keys `\x41` and `A` alike, and `get` accepted neither form.
#[test]
fn scan_output_of_any_key_is_accepted_by_get_put_and_del() {
    let place = Workplace::with_database();
    let keys = awkward_keys();
    for key in &keys {
        let outcome =
            place.run_with(&["put", "db", "t", &hex(key), "-", "--keys", "hex"], &[b"=", key.as_slice()].concat());
        assert_eq!(outcome.code, 0, "{outcome:?}");
    }
    let scanned = place.ok("scan db t");
    assert_eq!(scanned.lines().count(), keys.len());
    for line in scanned.lines() {
        let (key, value) = line.split_once('\t').unwrap();
        assert_eq!(place.run_with(&["get", "db", "t", "--", key], b"").stdout, format!("{value}\n"), "{line}");
        assert_eq!(value, format!("={key}"), "{line}");
        let outcome = place.run_with(&["put", "db", "copy", "--", key, value], b"");
        assert_eq!(outcome.code, 0, "{line}: {outcome:?}");
        let alone = place.run_with(&["scan", "db", "t", &format!("--prefix={key}"), "--limit", "1"], b"");
        assert_eq!(alone.stdout, format!("{line}\n"));
    }
    assert_eq!(place.ok("scan db copy --format hex"), place.ok("scan db t --format hex"));
    for line in scanned.lines() {
        let key = line.split_once('\t').unwrap().0;
        assert_eq!(place.run_with(&["del", "db", "t", "--", key], b"").code, 0, "{line}");
    }
    assert_eq!(place.ok("scan db t"), "");
}

/// A value of the bytes `"a ff b"` made a line that was not JSON; the text 1 became the number 1.
#[test]
fn json_output_of_any_value_round_trips() {
    let place = Workplace::with_database();
    let values: [&[u8]; 8] =
        [b"\"a\xffb\"", b"1", b"hex:41", b"A", b"{\"hex\":\"41\"}", b"\"\\ud800\"", b"", b"{\"a\": 1.50,\n \"a\":\t2}"];
    for (number, value) in values.iter().enumerate() {
        assert_eq!(place.run_with(&["put", "db", "t", &number.to_string(), "-"], value).code, 0);
    }
    let bytes_of = |value: &Value| match value {
        Value::String(text) => text.as_bytes().to_vec(),
        other => {
            let digits = other["hex"].as_str().unwrap();
            (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
        }
    };
    let json = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let scanned = place.ok("scan db t --format json");
    let found: Vec<Vec<u8>> = scanned.lines().map(|line| bytes_of(&json(line)["value"])).collect();
    assert_eq!(found, values);
    for (number, value) in values.iter().enumerate() {
        assert_eq!(bytes_of(&json(&place.ok(&format!("get db t {number} --json")))["value"]), *value);
    }
    for command in
        ["export db t", "export db t --format jsonl", "export db t --values", "scan db t --format jsonl", "watch db"]
    {
        place.ok(command).lines().for_each(|line| drop(json(line)));
    }
    assert!(place.ok("scan db t --format jsonl").contains("\"value\":{\"a\": 1.50,  \"a\":\t2}}\n"));
}

#[test]
fn value_in_each_format_is_stored_exactly() {
    let place = Workplace::with_database();
    let put = |arguments: &[&str], stdin: &[u8]| place.run_with(&[&["put", "db", "t", "k"], arguments].concat(), stdin);
    let stored = || place.ok("get db t k --format hex");
    assert_eq!((put(&["a\\\\b\\x00"], b"").code, stored()), (0, "615c6200\n".to_owned()));
    assert_eq!((put(&["a\\b", "--format", "raw"], b"").code, stored()), (0, "615c62\n".to_owned()));
    assert_eq!((put(&["ff00", "--format", "hex"], b"").code, stored()), (0, "ff00\n".to_owned()));
    assert_eq!((put(&["-"], b"a\\b\n").code, stored()), (0, "615c620a\n".to_owned()));
    assert_eq!((put(&["-", "--format", "text"], b"\\xff\n").code, stored()), (0, "ff\n".to_owned()));
    let refused = put(&["C:\\new"], b"");
    assert_eq!(refused.code, 2);
    assert!(
        refused.stderr.contains("\\new is not an escape") && refused.stderr.contains("--format raw"),
        "{refused:?}"
    );
    assert_eq!(stored(), "ff\n");
    for name in ["text", "hex"] {
        assert_eq!(put(&["-", "--format", name], b"\xff\\").code, 2);
    }
}

#[test]
fn listed_tree_name_is_accepted() {
    let place = Workplace::with_database();
    assert_eq!(place.run_with(&["put", "db", "two\\x0alines\\\\", "k", "v"], b"").code, 0);
    let listed = place.ok("trees db");
    assert_eq!(listed, "two\\x0alines\\\\\n");
    assert_eq!(place.run_with(&["get", "db", listed.trim_end(), "k"], b"").stdout, "v\n");
    let missing = place.run_with(&["get", "db", "a\\x1bb", "k"], b"");
    assert!(missing.stderr.contains("no tree named a\\x1bb;"), "{missing:?}");
}
