//! Lines and rows: their ends, positions and fields.
//!
//! A quote opens a quoted field only at the start of a field (RFC 4180). An unclosed quote swallows
//! the following rows: see [`RowReader::give_up_quote`].

use std::{
    borrow::Cow,
    io::{self, Read},
};

use memchr::{memchr, memchr_iter, memchr2};

use super::chunk::RECORD_BYTES_MAX;
use crate::dirt::Dirt;

const READ_BYTES: usize = 256 << 10;

const SAMPLE_BYTES: usize = 100;

pub const MARK: &[u8] = b"\xef\xbb\xbf";

/// Minimum number of swallowed complete rows to resume after an unclosed quote. Two lines of a text
/// may have the right number of commas by chance.
const ROWS_BEHIND_QUOTE_MIN: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowStyle {
    Lines,
    Csv(u8),
    Tsv(u8),
}

impl RowStyle {
    pub fn delimiter(self) -> Option<u8> {
        match self {
            RowStyle::Lines => None,
            RowStyle::Csv(delimiter) | RowStyle::Tsv(delimiter) => Some(delimiter),
        }
    }
}

/// Position of a record in the decompressed input, as UTF-8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub offset: u64,
    /// First line, from 1; 0 if unknown.
    pub line: u64,
    pub lines: u64,
}

impl Position {
    pub fn line_after(self) -> Option<u64> {
        (self.line > 0).then(|| self.line + self.lines)
    }
}

#[derive(Debug)]
pub struct Row<'a> {
    pub raw: &'a [u8],
    /// Length without the line end.
    pub length: usize,
    pub position: Position,
    pub next_offset: u64,
    pub defect: Option<Dirt>,
    pub why: String,
}

impl Row<'_> {
    pub fn bytes(&self) -> &[u8] {
        &self.raw[..self.length]
    }
}

/// Splits an input into rows without empty lines.
pub struct RowReader<R> {
    reader: R,
    style: RowStyle,
    bytes_max: usize,
    pub(super) piece_bytes: usize,
    /// Bytes from `start` on are not returned yet; those before `scanned` were searched.
    buffer: Vec<u8>,
    start: usize,
    scanned: usize,
    columns: Option<usize>,
    quotes: Quotes,
    offset: u64,
    line: u64,
    at_end: bool,
    failure: Option<io::Error>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Quotes {
    is_open: bool,
    any: bool,
    opened: usize,
    /// Offset of an opening quote whose closing quote, in a later line, is followed by text.
    doubtful: Option<usize>,
}

enum Cut {
    Row { end: usize, next: usize, defect: Option<Dirt>, why: String },
    Oversized,
    End,
}

impl<R: Read> RowReader<R> {
    pub fn new(reader: R, style: RowStyle, offset: u64, line: u64) -> RowReader<R> {
        RowReader { line, ..RowReader::with_limit(reader, style, offset, RECORD_BYTES_MAX) }
    }

    pub(super) fn with_limit(reader: R, style: RowStyle, offset: u64, bytes_max: usize) -> RowReader<R> {
        RowReader {
            reader,
            style,
            bytes_max,
            piece_bytes: READ_BYTES,
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            columns: None,
            quotes: Quotes::default(),
            offset,
            line: 1,
            at_end: false,
            failure: None,
        }
    }

    /// Required to find rows again after an unclosed quote.
    pub fn expect_columns(&mut self, columns: usize) {
        self.columns = Some(columns);
    }

    pub fn next_line(&self) -> u64 {
        self.line
    }

    pub fn next_row(&mut self) -> io::Result<Option<Row<'_>>> {
        loop {
            let (cut, line) = (self.cut()?, self.line);
            match cut {
                Cut::End => return Ok(None),
                Cut::Oversized => return self.pass_over().map(Some),
                Cut::Row { end, next, defect, why } => {
                    let lines = self.lines_before(next);
                    let start = self.advance(next, lines);
                    let length = self.buffer[start..end].strip_suffix(b"\r").map_or(end - start, <[u8]>::len);
                    if length == 0 {
                        continue;
                    }
                    let position = Position { offset: self.offset - (next - start) as u64, line, lines };
                    let raw = &self.buffer[start..next];
                    return Ok(Some(Row { raw, length, position, next_offset: self.offset, defect, why }));
                }
            }
        }
    }

    fn pass_over(&mut self) -> io::Result<Row<'_>> {
        let (offset, line) = (self.offset, self.line);
        let kept = self.buffer[self.start..][..SAMPLE_BYTES.min(self.bytes_max)].to_vec();
        let lines = self.drop_row()?;
        self.buffer.splice(..self.start, kept.iter().copied());
        self.start = kept.len();
        self.scanned = self.start;
        let position = Position { offset, line, lines };
        let why = format!("{} bytes", self.offset - offset);
        let raw = &self.buffer[..self.start];
        let defect = Some(Dirt::TooLarge);
        Ok(Row { raw, length: raw.len(), position, next_offset: self.offset, defect, why })
    }

    fn lines_before(&self, next: usize) -> u64 {
        match self.quotes.any {
            true => line_count(&self.buffer[self.start..next]),
            false => 1,
        }
    }

    fn advance(&mut self, next: usize, lines: u64) -> usize {
        let start = self.start;
        self.offset += (next - start) as u64;
        if self.line > 0 {
            self.line += lines;
        }
        self.start = next;
        self.scanned = next;
        self.quotes = Quotes::default();
        start
    }

    fn cut(&mut self) -> io::Result<Cut> {
        loop {
            if let Some(at) = self.scan() {
                if let Some(opened) = self.quotes.doubtful {
                    return self.give_up_quote(opened, at + 1);
                }
                return Ok(Cut::Row { end: at, next: at + 1, defect: None, why: String::new() });
            }
            let too_large = self.buffer.len() - self.start > self.bytes_max;
            if self.quotes.is_open && (too_large || self.at_end) {
                return self.give_up_quote(self.quotes.opened, self.buffer.len());
            }
            if too_large {
                return Ok(Cut::Oversized);
            }
            if self.at_end {
                let end = self.buffer.len();
                return match self.quotes.doubtful {
                    _ if self.start == end => Ok(Cut::End),
                    Some(opened) => self.give_up_quote(opened, end),
                    None => Ok(Cut::Row { end, next: end, defect: None, why: String::new() }),
                };
            }
            self.fill()?;
        }
    }

    /// Gives up a row in which the quote at `opened` swallows the text up to `until`: only its
    /// first line if at least [`ROWS_BEHIND_QUOTE_MIN`] complete rows follow, else the whole text.
    fn give_up_quote(&mut self, opened: usize, until: usize) -> io::Result<Cut> {
        let row = &self.buffer[self.start..until];
        let line = self.line + memchr_iter(b'\n', &row[..opened]).count() as u64;
        let first_end = memchr(b'\n', &row[opened..]).map_or(row.len(), |at| opened + at);
        let rest = row.get(first_end + 1..).unwrap_or_default();
        let swallowed = line_count(rest);
        let is_cut = !self.at_end && row.len() > self.bytes_max;
        let place = if self.line > 0 { format!("the quote in line {line}") } else { "a quote".to_owned() };
        if swallowed >= ROWS_BEHIND_QUOTE_MIN && self.are_rows(rest, is_cut) {
            let end = self.start + first_end;
            let why = format!("{place} is not closed; the rows after it are read");
            return Ok(Cut::Row { end, next: end + 1, defect: Some(Dirt::UnclosedQuote), why });
        }
        if is_cut {
            let why = format!(
                "{place} (byte {}) is not closed within {} bytes: close it, or remove it",
                self.offset + opened as u64,
                self.bytes_max
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let why = match swallowed {
            0 => format!("{place} is not closed"),
            1 => format!("{place} swallows the line after it"),
            _ => format!("{place} swallows the {swallowed} lines after it"),
        };
        let end = if row.ends_with(b"\n") { until - 1 } else { until };
        Ok(Cut::Row { end, next: until, defect: Some(Dirt::UnclosedQuote), why })
    }

    fn are_rows(&self, text: &[u8], is_cut: bool) -> bool {
        let Some(columns) = self.columns else { return false };
        let mut rows = RowReader::with_limit(text, self.style, 0, text.len());
        let text_end = text.len() as u64;
        while let Ok(Some(row)) = rows.next_row() {
            let is_last = is_cut && row.next_offset == text_end;
            let Fields { fields, has_stray_quote } = split_fields(row.bytes(), self.style);
            let is_whole = row.defect.is_none() && !has_stray_quote && fields.len() == columns;
            if !is_whole && !is_last {
                return false;
            }
        }
        true
    }

    fn scan(&mut self) -> Option<usize> {
        if let RowStyle::Csv(delimiter) = self.style {
            return self.scan_quoted(delimiter);
        }
        let found = memchr(b'\n', &self.buffer[self.scanned..]).map(|at| self.scanned + at);
        self.scanned = found.unwrap_or(self.buffer.len());
        found
    }

    fn scan_quoted(&mut self, delimiter: u8) -> Option<usize> {
        let mut at = self.scanned;
        let found = loop {
            let rest = &self.buffer[at..];
            let found = if self.quotes.is_open { memchr(b'"', rest) } else { memchr2(b'"', b'\n', rest) };
            let Some(found) = found.map(|found| at + found) else {
                at = self.buffer.len();
                break None;
            };
            if self.buffer[found] == b'\n' {
                at = found;
                break Some(found);
            }
            at = found + 1;
            if !self.quotes.is_open {
                if found == self.start || self.buffer[found - 1] == delimiter {
                    let opened = found - self.start;
                    self.quotes = Quotes { is_open: true, any: true, opened, doubtful: self.quotes.doubtful };
                }
                continue;
            }
            match self.buffer.get(at) {
                None if !self.at_end => {
                    at = found;
                    break None;
                }
                Some(b'"') => at += 1,
                next => {
                    self.quotes.is_open = false;
                    let ends_field = next.is_none_or(|&next| next == delimiter || next == b'\n' || next == b'\r');
                    let opened = self.start + self.quotes.opened;
                    if !ends_field && memchr(b'\n', &self.buffer[opened..found]).is_some() {
                        self.quotes.doubtful.get_or_insert(self.quotes.opened);
                    }
                }
            }
        };
        self.scanned = at;
        found
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.start);
        self.scanned -= self.start;
        self.start = 0;
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let is_beginning = self.offset == 0 && self.buffer.is_empty();
        match self.reader.by_ref().take(self.piece_bytes as u64).read_to_end(&mut self.buffer) {
            Ok(read) => self.at_end = read == 0,
            Err(failure) => self.failure = Some(failure),
        }
        if is_beginning && self.buffer.starts_with(MARK) {
            self.advance(MARK.len(), 0);
        }
        Ok(())
    }

    fn drop_row(&mut self) -> io::Result<u64> {
        let mut lines = 0;
        loop {
            let found = self.scan();
            // The byte before the unscanned part shows whether a field begins there.
            let end = match found {
                Some(at) => at + 1,
                None if self.at_end => self.buffer.len(),
                None => self.scanned.saturating_sub(1).max(self.start),
            };
            let ended = memchr_iter(b'\n', &self.buffer[self.start..end]).count() as u64;
            let (quotes, scanned) = (self.quotes, self.scanned);
            self.advance(end, ended);
            lines += ended;
            if found.is_some() || self.at_end {
                return Ok(lines.max(1));
            }
            (self.quotes, self.scanned) = (Quotes { opened: 0, ..quotes }, scanned);
            self.fill()?;
        }
    }
}

fn line_count(text: &[u8]) -> u64 {
    memchr_iter(b'\n', text).count() as u64 + u64::from(!text.is_empty() && !text.ends_with(b"\n"))
}

#[derive(Debug)]
pub struct Fields<'a> {
    /// Fields that were quoted are owned.
    pub fields: Vec<Cow<'a, [u8]>>,
    /// Text follows a closing quote.
    pub has_stray_quote: bool,
}

pub fn split_fields(row: &[u8], style: RowStyle) -> Fields<'_> {
    let fields = match style {
        RowStyle::Lines => vec![Cow::Borrowed(row)],
        RowStyle::Tsv(delimiter) => row.split(|&byte| byte == delimiter).map(Cow::Borrowed).collect(),
        RowStyle::Csv(delimiter) => return split_quoted(row, delimiter),
    };
    Fields { fields, has_stray_quote: false }
}

fn split_quoted(row: &[u8], delimiter: u8) -> Fields<'_> {
    let mut fields = Vec::new();
    let mut has_stray_quote = false;
    let mut rest = row;
    loop {
        let (field, after) = match rest.strip_prefix(b"\"") {
            Some(quoted) => {
                let (field, after) = take_quoted(quoted);
                let end = memchr(delimiter, after).unwrap_or(after.len());
                has_stray_quote |= end > 0;
                (Cow::Owned(field), &after[end..])
            }
            None => {
                let end = rest.iter().position(|&byte| byte == delimiter).unwrap_or(rest.len());
                (Cow::Borrowed(&rest[..end]), &rest[end..])
            }
        };
        fields.push(field);
        match after.split_first() {
            Some((_, after)) => rest = after,
            None => return Fields { fields, has_stray_quote },
        }
    }
}

fn take_quoted(quoted: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut field = Vec::new();
    let mut rest = quoted;
    while let Some(at) = memchr(b'"', rest) {
        field.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        match rest.strip_prefix(b"\"") {
            Some(after) => {
                field.push(b'"');
                rest = after;
            }
            None => return (field, rest),
        }
    }
    field.extend_from_slice(rest);
    (field, b"")
}
