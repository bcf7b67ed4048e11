//! The text form of tuples.

use braiddb_typed::text::{from_json, hex, show, to_json, unhex};

fn packed(text: &str) -> Result<Vec<u8>, String> {
    from_json(&serde_json::from_str(text).unwrap())
}

#[test]
fn text_of_each_element_is_read_and_written_equally() {
    for (text, bytes) in [
        ("[]", ""),
        ("[null]", "00"),
        ("[[null,[]],false,true]", "0500ff0500002627"),
        (r#"["a\u0000é"]"#, "026100ffc3a900"),
        (r#"[{"bytes":"00ff"}]"#, "0100ffff00"),
        ("[0,1,-1,255,256,-256]", "14150113fe15ff1601 0012feff"),
        ("[18446744073709551615,-9223372036854775808]", "1cffffffffffffffff0c7fffffffffffffff"),
        (r#"[{"int":"-0x8000000000000001"}]"#, "0c7ffffffffffffffe"),
        (r#"[{"int":"0x010000000000000000"}]"#, "1d09010000000000000000"),
        (r#"[{"int":"-0x010000000000000000"}]"#, "0bf6feffffffffffffffff"),
        ("[1.5,-0.0]", "21bff8000000000000217fffffffffffffff"),
        (r#"[{"float":-42.0}]"#, "203dd7ffff"),
        (r#"[{"double":"7ff8000000000000"},{"float":"ff800000"}]"#, "21fff800000000000020007fffff"),
        (r#"[{"uuid":"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"}]"#, "30f81d4fae7dec11d0a76500a0c91e6bf6"),
        (r#"[{"versionstamp":"000102030405060708090a0b"}]"#, "33000102030405060708090a0b"),
    ] {
        let bytes = unhex(&bytes.replace(' ', "")).unwrap();
        assert_eq!(hex(&packed(text).unwrap()), hex(&bytes), "{text}");
        assert_eq!(to_json(&bytes).unwrap().to_string(), text);
        assert_eq!(show(&bytes), text);
    }
    assert_eq!(packed("7").unwrap(), packed("[7]").unwrap());
}

#[test]
fn text_of_no_tuple_is_refused() {
    for text in [
        "1e999",
        "{}",
        r#"{"bytes":"0"}"#,
        r#"{"bytes":"zz"}"#,
        r#"{"bytes":7}"#,
        r#"{"uuid":"7"}"#,
        r#"{"float":0.1}"#,
        r#"{"int":"-0x"}"#,
        r#"{"int":"12"}"#,
        r#"{"versionstamp":"00"}"#,
        r#"{"bytes":"00","uuid":""}"#,
    ] {
        // The parser itself refuses some of them.
        let Ok(json) = serde_json::from_str(text) else { continue };
        assert!(from_json(&json).is_err(), "{text}");
    }
}

#[test]
fn bytes_of_no_tuple_are_shown_as_hexadecimal() {
    for bytes in [
        &b"\xff\x00"[..],
        b"\x02a",
        b"\x05",
        b"\x05\x00\x00\x05",
        b"\x1d\x01\x01",
        b"\x16\x00\x01",
        b"\x02\xff\0",
        b"\x40",
    ] {
        assert_eq!(to_json(bytes), None, "{bytes:?}");
        assert_eq!(show(bytes), format!("hex:{}", hex(bytes)));
    }
    // Deep nesting must not exhaust the stack.
    assert_eq!(to_json(&[0x05; 60_000]), None);
}
