//! Text of unknown encoding, and the three escapes.
//!
//! The format admits US-ASCII, ISO-8859-1 and UTF-8, with nothing saying which. The choice is made once for a file,
//! over the bytes of all its fields after continued lines were joined (lines were split at a byte count, often in
//! the middle of a UTF-8 sequence):
//!
//! - no byte above 7F: ASCII;
//! - all sequences whole: UTF-8 (no ISO-8859-1 text of any length is valid UTF-8 by chance);
//! - more whole sequences than damaged ones: UTF-8 that was damaged, and each bad sequence becomes U+FFFD;
//! - else ISO-8859-1. Bytes 80-9F are control codes there that nobody means, and are read as Windows-1252, which
//!   is what the software of the time wrote; the five bytes Windows-1252 leaves open keep their ISO meaning.

use std::borrow::Cow;

use crate::dirt::Dirt;

/// How a file's text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Bytes below 80 only.
    Ascii,
    /// Whole UTF-8.
    Utf8,
    /// UTF-8 with damage.
    BrokenUtf8,
    /// ISO-8859-1, or Windows-1252.
    Latin1,
}

impl Encoding {
    /// What is remarked about a text in it.
    pub fn dirt(self) -> Option<Dirt> {
        match self {
            Encoding::Ascii | Encoding::Utf8 => None,
            Encoding::BrokenUtf8 => Some(Dirt::BrokenUtf8),
            Encoding::Latin1 => Some(Dirt::Latin1),
        }
    }
}

/// The characters of bytes 80-9F in Windows-1252.
const WINDOWS_1252: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}', '‘', '’',
    '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

/// Chooses the encoding of a file from all its fields.
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

/// The text of a field, escapes included.
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

/// Replaces `\n`, `\t` and `\\`; a backslash before anything else stays as it is.
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

/// Decodes the fields of one record, which share an encoding; with the dirt that was met.
pub fn decode_fields<'a>(fields: impl Iterator<Item = &'a [u8]> + Clone) -> (Vec<String>, Option<Dirt>) {
    let encoding = detect(fields.clone());
    (fields.map(|field| decode(field, encoding)).collect(), encoding.dirt())
}
