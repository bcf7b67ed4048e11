//! The text form: a lossless notation of bytes as one line of UTF-8.
//!
//! A printable character is itself, a backslash is `\\`, and any other byte is `\xNN`.
//! `docs/cli.md` specifies this and the JSON form.

use std::fmt::Write as _;

use serde_json::{Value, json};

const HEX: &str = "hex";

pub fn to_text(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => out.push_str("\\\\"),
                character if is_shown(character) => out.push(character),
                character => escape_bytes(&mut out, character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        escape_bytes(&mut out, chunk.invalid());
    }
    out
}

pub fn parse_text(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        rest = match escape.strip_prefix('\\') {
            Some(after) => {
                bytes.push(b'\\');
                after
            }
            None => {
                let byte = escape.strip_prefix('x').and_then(|digits| digits.get(..2)).and_then(parse_hex);
                let Some(byte) = byte else {
                    let shown: String = escape.chars().take(3).collect();
                    return Err(format!(
                        "\\{shown} is not an escape of the text form: write \\\\ for a backslash, or \\x and two \
                         hexadecimal digits for any other byte"
                    ));
                };
                bytes.extend(byte);
                &escape[3..]
            }
        };
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

pub fn to_json(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => hex_json(bytes),
    }
}

pub fn hex_json(bytes: &[u8]) -> Value {
    json!({ HEX: to_hex(bytes) })
}

pub fn from_json(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.into_bytes()),
        Value::Object(object) if object.len() == 1 => parse_hex(object.get(HEX)?.as_str()?),
        _ => None,
    }
}

pub fn to_hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

pub fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Escapes control characters, line separators, direction marks and the byte order mark, which
/// terminals and editors would hide.
fn is_shown(character: char) -> bool {
    !character.is_control()
        && !matches!(character, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn escape_bytes(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(out, "\\x{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn text_form_of_known_bytes_matches_specification() {
        let cases: [(&[u8], &str); 8] = [
            (b"", ""),
            (b"plain", "plain"),
            (b"a\\x41", "a\\\\x41"),
            (b"a\tb\nc\x7f", "a\\x09b\\x0ac\\x7f"),
            (b"\xff\xc3", "\\xff\\xc3"),
            ("ágætis \u{1f600}".as_bytes(), "ágætis \u{1f600}"),
            ("\u{85}\u{2028}\u{202e}\u{feff}".as_bytes(), "\\xc2\\x85\\xe2\\x80\\xa8\\xe2\\x80\\xae\\xef\\xbb\\xbf"),
            (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),
        ];
        for (bytes, text) in cases {
            assert_eq!(to_text(bytes), text);
            assert_eq!(parse_text(text).unwrap(), bytes);
        }
        assert_eq!(parse_text("\\xFf\\xfF").unwrap(), b"\xff\xff");
    }

    #[test]
    fn text_form_of_wrong_escape_is_refused() {
        for wrong in ["\\", "a\\", "\\n", "\\x", "\\x1", "\\xg0", "\\x+1", "\\xé", "C:\\new", "\\\\\\"] {
            let message = parse_text(wrong).unwrap_err();
            assert!(message.contains("is not an escape"), "{wrong}: {message}");
        }
    }

    /// "hex:41" and the byte 41 were printed alike, as were `\x41` and that byte.
    #[test]
    fn text_form_of_random_bytes_is_one_line_and_round_trips() {
        let mut random = Random::of(1, 0);
        for round in 0..20_000 {
            let alphabet: &[u8] = match round % 3 {
                0 => &[],
                1 => b"\\x41xfF0:{\"hex\":\"}",
                _ => b"\xc3\xa9\xe2\x80\xa8\xf0\x9f\x98\x80\xed\xa0a\n\t\0\x7f",
            };
            let bytes: Vec<u8> = (0..random.below(40))
                .map(|_| match alphabet.len() as u64 {
                    0 => random.below(256) as u8,
                    len => alphabet[random.below(len) as usize],
                })
                .collect();
            let text = to_text(&bytes);
            assert!(text.chars().all(is_shown), "{text:?}");
            assert_eq!(parse_text(&text).as_deref(), Ok(bytes.as_slice()), "{text:?}");
            let json = to_json(&bytes).to_string();
            assert_eq!(from_json(serde_json::from_str(&json).unwrap()), Some(bytes), "{json}");
        }
    }

    #[test]
    fn json_of_neither_string_nor_hex_is_refused() {
        for wrong in ["1", "null", "[]", "{}", "{\"hex\":1}", "{\"hex\":\"f\"}", "{\"hex\":\"ff\",\"x\":1}", "true"] {
            assert_eq!(from_json(serde_json::from_str(wrong).unwrap()), None, "{wrong}");
        }
    }
}
