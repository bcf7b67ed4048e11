//! Text encodings, and refused line ends.
//!
//! UTF-16 with a byte order mark is converted to UTF-8; offsets refer to the UTF-8. Other detected
//! encodings are refused by name.

use std::io::{self, Read};

use anyhow::Result;
use memchr::{memchr, memchr_iter};

use super::rows::{MARK, RowStyle};
use crate::exit::{INPUT, failure};

pub const JUDGED_BYTES: usize = 64 << 10;

const READ_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8, or a single-byte encoding.
    Bytes,
    Utf16Le,
    Utf16Be,
}

impl Encoding {
    pub fn of_mark(head: &[u8]) -> Encoding {
        match head {
            [0xff, 0xfe, ..] => Encoding::Utf16Le,
            [0xfe, 0xff, ..] => Encoding::Utf16Be,
            _ => Encoding::Bytes,
        }
    }

    pub fn reader<'a>(self, inner: Box<dyn Read + Send + 'a>) -> Box<dyn Read + Send + 'a> {
        match self {
            Encoding::Bytes => inner,
            Encoding::Utf16Le => Box::new(Utf16Reader::new(inner, u16::from_le_bytes)),
            Encoding::Utf16Be => Box::new(Utf16Reader::new(inner, u16::from_be_bytes)),
        }
    }
}

pub fn check_encoding(head: &[u8]) -> Result<()> {
    let refuse = |what: &str, name: &str| {
        let advice = format!("convert it to UTF-8 first, for example with `iconv -f {name} -t UTF-8`");
        Err(failure(INPUT, format!("the input is {what}: {advice}")))
    };
    match head {
        [0xff, 0xfe, 0, 0, ..] => return refuse("UTF-32", "UTF-32"),
        [0, 0, 0xfe, 0xff, ..] => return refuse("UTF-32", "UTF-32"),
        _ if Encoding::of_mark(head) != Encoding::Bytes => return Ok(()),
        _ => {}
    }
    let zeros = memchr_iter(0, head).count();
    if zeros == 0 {
        return Ok(());
    }
    let odd = memchr_iter(0, head).filter(|at| at % 2 == 1).count();
    let ends = |before: bool| {
        let is_wide = |at: usize| match before {
            true => at % 2 == 1 && head.get(at - 1) == Some(&0),
            false => at.is_multiple_of(2) && head.get(at + 1).is_none_or(|&next| next == 0),
        };
        memchr(b'\n', head).is_some() && memchr_iter(b'\n', head).all(is_wide)
    };
    if odd == zeros && (zeros * 4 >= head.len() || ends(false)) {
        return refuse("probably UTF-16 without a byte order mark", "UTF-16LE");
    }
    if odd == 0 && (zeros * 4 >= head.len() || ends(true)) {
        return refuse("probably UTF-16 without a byte order mark", "UTF-16BE");
    }
    if zeros * 8 >= head.len() {
        let advice = "it is not text; give its real --format, or convert it";
        return Err(failure(INPUT, format!("the input has {zeros} zero bytes in its first {}: {advice}", head.len())));
    }
    Ok(())
}

const DOCUMENTS: [(&[u8], &str); 6] = [
    (b"%pdf-", "a PDF document"),
    (b"<!doctype html", "an HTML page"),
    (b"<html", "an HTML page"),
    (b"<?xml", "an XML document"),
    (b"{\\rtf", "an RTF document"),
    (b"%!ps", "a PostScript document"),
];

fn check_kind(text: &[u8], style: RowStyle) -> Result<()> {
    let text = text.trim_ascii_start();
    let begins = |magic: &[u8]| text.get(..magic.len()).is_some_and(|head| head.eq_ignore_ascii_case(magic));
    if let Some((_, what)) = DOCUMENTS.iter().find(|(magic, _)| begins(magic)) {
        let advice = "was the right file saved? Give csv, tsv or JSON lines";
        return Err(failure(INPUT, format!("the input is {what}, whatever its name: {advice}")));
    }
    let after = |open: &[u8]| text.strip_prefix(open).and_then(|rest| rest.trim_ascii_start().first().copied());
    let what = match (after(b"{"), after(b"[")) {
        _ if style == RowStyle::Lines => return Ok(()),
        (Some(b'"' | b'}'), _) => "JSON, whatever its name: give --format jsonl, if each line is an object",
        (_, Some(b'{' | b'[')) => {
            "a JSON array, whatever its name: write one element per line, for example with `jq -c '.[]'`, and give --format jsonl"
        }
        _ => return Ok(()),
    };
    Err(failure(INPUT, format!("the input is {what}")))
}

pub fn check_lines(text: &[u8], style: RowStyle) -> Result<()> {
    let text = text.strip_prefix(MARK).unwrap_or(text);
    check_kind(text, style)?;
    if style == RowStyle::Lines && text.trim_ascii_start().starts_with(b"[") {
        let advice = "write one element per line first, for example with `jq -c '.[]'`";
        return Err(failure(INPUT, format!("the input is a JSON array, not one object per line: {advice}")));
    }
    if let Some(line_end) = lone_cr(text, style) {
        let advice = "convert the line ends first, for example with `tr '\\r' '\\n'`";
        return Err(failure(
            INPUT,
            format!("the lines of the input end in CR alone (byte {line_end}), not in LF or CR LF: {advice}"),
        ));
    }
    Ok(())
}

/// Returns the offset of a CR outside quotes in the first line that is not part of CR LF.
fn lone_cr(text: &[u8], style: RowStyle) -> Option<usize> {
    let is_lone = |at: usize| text.get(at + 1).is_some_and(|&next| next != b'\n');
    let RowStyle::Csv(delimiter) = style else {
        return if memchr(b'\n', text).is_none() { memchr_iter(b'\r', text).find(|&at| is_lone(at)) } else { None };
    };
    let (mut is_quoted, mut before) = (false, delimiter);
    for (at, &byte) in text.iter().enumerate() {
        match byte {
            b'"' if is_quoted || before == delimiter => is_quoted = !is_quoted,
            b'"' if before == b'"' => is_quoted = true,
            b'\n' if !is_quoted => return None,
            b'\r' if !is_quoted && is_lone(at) => return Some(at),
            _ => {}
        }
        before = byte;
    }
    None
}

struct Utf16Reader<R> {
    inner: R,
    unit: fn([u8; 2]) -> u16,
    pending: Vec<u8>,
    text: Vec<u8>,
    given: usize,
    offset: u64,
    at_end: bool,
    failure: Option<io::Error>,
}

impl<R: Read> Utf16Reader<R> {
    fn new(inner: R, unit: fn([u8; 2]) -> u16) -> Utf16Reader<R> {
        let (pending, text) = (Vec::new(), Vec::new());
        Utf16Reader { inner, unit, pending, text, given: 0, offset: 0, at_end: false, failure: None }
    }

    /// Characters before an error are returned first.
    fn decode_more(&mut self) {
        self.text.clear();
        self.given = 0;
        match self.inner.by_ref().take(READ_BYTES as u64).read_to_end(&mut self.pending) {
            Ok(read) => self.at_end = read == 0,
            Err(error) => self.failure = Some(error),
        }
        let mut end = self.pending.len() / 2 * 2;
        let unit_at = |at: usize| (self.unit)([self.pending[at], self.pending[at + 1]]);
        let is_final = self.at_end || self.failure.is_some();
        if !is_final && end >= 2 && (0xd800..0xdc00).contains(&unit_at(end - 2)) {
            end -= 2;
        }
        let units = (0..end).step_by(2).map(unit_at);
        let mut decoded = 0;
        let mut wrong = None;
        for character in char::decode_utf16(units) {
            match character {
                Ok('\u{feff}') if self.offset + decoded == 0 => decoded += 2,
                Ok(character) => {
                    let mut bytes = [0; 4];
                    self.text.extend_from_slice(character.encode_utf8(&mut bytes).as_bytes());
                    decoded += 2 * character.len_utf16() as u64;
                }
                Err(_) => {
                    wrong = Some(format!("an unpaired UTF-16 surrogate at byte {}", self.offset + decoded));
                    break;
                }
            }
        }
        if wrong.is_none() && self.at_end && end < self.pending.len() {
            wrong = Some(format!("it ends in the middle of a UTF-16 character, at byte {}", self.offset + decoded));
        }
        self.offset += decoded;
        self.pending.drain(..end);
        if let Some(wrong) = wrong {
            self.failure.get_or_insert(io::Error::new(io::ErrorKind::InvalidData, wrong));
        }
    }
}

impl<R: Read> Read for Utf16Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.given == self.text.len() {
            if let Some(failure) = self.failure.take() {
                self.at_end = true;
                self.pending.clear();
                return Err(failure);
            }
            if self.at_end {
                return Ok(0);
            }
            self.decode_more();
        }
        let count = self.text[self.given..].as_ref().read(buffer)?;
        self.given += count;
        Ok(count)
    }
}
