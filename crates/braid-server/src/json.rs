//! Bytes in JSON: a string if they are UTF-8, else `{"hex":".."}`, as the `braid` command has them.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// Appends the JSON of bytes.
pub fn write_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    match str::from_utf8(bytes) {
        Ok(text) => to.extend_from_slice(Value::from(text).to_string().as_bytes()),
        Err(_) => to.extend_from_slice(format!("{{\"hex\":\"{}\"}}", to_hex(bytes)).as_bytes()),
    }
}

/// Returns the JSON of bytes.
pub fn of_bytes(bytes: &[u8]) -> Value {
    match str::from_utf8(bytes) {
        Ok(text) => Value::from(text),
        Err(_) => json!({"hex": to_hex(bytes)}),
    }
}

/// Returns the bytes of a string or of `{"hex":".."}`.
pub fn into_bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.into_bytes()),
        Value::Object(object) if object.len() == 1 => from_hex(object.get("hex")?.as_str()?),
        _ => None,
    }
}

pub fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |character: &u8| char::from(*character).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair.first()?)? << 4 | digit(pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_of_bytes_round_trips() {
        let all: Vec<u8> = (0..=255).collect();
        let texts: [&[u8]; 5] = [b"", b"a\"b\\\n\0", "ä\u{1f600}".as_bytes(), b"\xff", &all];
        for bytes in texts {
            let mut json = Vec::new();
            write_bytes(&mut json, bytes);
            let value = serde_json::from_slice(&json).unwrap();
            assert_eq!(into_bytes(value).unwrap(), bytes);
        }
        for wrong in ["1", "null", "[]", "{}", "{\"hex\":\"f\"}", "{\"hex\":\"xx\"}", "{\"hex\":\"ff\",\"a\":1}"] {
            assert_eq!(into_bytes(serde_json::from_str(wrong).unwrap()), None, "{wrong}");
        }
    }
}
