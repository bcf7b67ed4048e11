//! Detects and decodes text of unknown encoding, and replaces escapes.
//!
//! The format allows US-ASCII, ISO-8859-1 and UTF-8 without declaring which. The encoding is
//! detected once per file, after continued lines were joined:
//!
//! - no byte above 7F: ASCII;
//! - all sequences valid: UTF-8;
//! - more valid than invalid sequences: damaged UTF-8, each invalid sequence becomes U+FFFD;
//! - else ISO-8859-1, with bytes 80-9F read as Windows-1252.

use std::borrow::Cow;

use crate::dirt::Dirt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Ascii,
    Utf8,
    BrokenUtf8,
    Latin1,
}

impl Encoding {
    pub fn dirt(self) -> Option<Dirt> {
        match self {
            Encoding::Ascii | Encoding::Utf8 => None,
            Encoding::BrokenUtf8 => Some(Dirt::BrokenUtf8),
            Encoding::Latin1 => Some(Dirt::Latin1),
        }
    }
}

const WINDOWS_1252: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}', '‘', '’',
    '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

pub fn detect<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Encoding {
    let (mut whole, mut damaged) = (0_u64, 0_u64);
    for field in fields.filter(|field| !field.is_ascii()) {
        for chunk in field.utf8_chunks() {
            whole += chunk.valid().chars().filter(|c| !c.is_ascii()).count() as u64;
            damaged += u64::from(!chunk.invalid().is_empty());
        }
    }
    match (whole, damaged) {
        (0, 0) => Encoding::Ascii,
        (_, 0) => Encoding::Utf8,
        _ if whole > damaged => Encoding::BrokenUtf8,
        _ => Encoding::Latin1,
    }
}

pub fn decode(bytes: &[u8], encoding: Encoding) -> String {
    match encoding {
        Encoding::Latin1 => bytes.iter().map(|&byte| latin1(byte)).collect(),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

fn latin1(byte: u8) -> char {
    match byte {
        0x80..=0x9f => WINDOWS_1252[usize::from(byte - 0x80)],
        _ => char::from(byte),
    }
}

/// Replaces `\n`, `\t` and `\\`; any other backslash stays.
pub fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let replaced = match (character, characters.peek()) {
            ('\\', Some('n')) => '\n',
            ('\\', Some('t')) => '\t',
            ('\\', Some('\\')) => '\\',
            _ => {
                out.push(character);
                continue;
            }
        };
        out.push(replaced);
        characters.next();
    }
    Cow::Owned(out)
}

pub fn decode_fields<'a>(fields: impl Iterator<Item = &'a [u8]> + Clone) -> (Vec<String>, Option<Dirt>) {
    let encoding = detect(fields.clone());
    (fields.map(|field| decode(field, encoding)).collect(), encoding.dirt())
}
