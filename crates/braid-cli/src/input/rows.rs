//! Lines and rows: where one ends, and what fields a row has.
//!
//! A row of CSV (RFC 4180) ends at a line end outside quotes. A quote opens a quoted field only at the field's
//! beginning; elsewhere it is a letter like any other. A quote that is never closed would swallow the rest of the
//! input, so when a row has grown beyond the limit, or the input ends, inside quotes, only its first line is given up,
//! and reading goes on with the second.

use std::{
    borrow::Cow,
    io::{self, Read},
};

use super::chunk::RECORD_BYTES_MAX;
use crate::dirt::Dirt;

const READ_BYTES: usize = 256 << 10;

/// What separates fields, and whether they may be quoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowStyle {
    /// Nothing separates fields: a row is a line.
    Lines,
    /// Commas and quotes.
    Csv,
    /// Tabs, no quotes.
    Tsv,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    FieldStart,
    Plain,
    Quoted,
    /// After a quote inside quotes: the end of the field, or the first half of a doubled quote.
    QuoteSeen,
}

/// One row.
#[derive(Debug)]
pub struct Row<'a> {
    /// Its bytes, without the line end.
    pub bytes: &'a [u8],
    /// Where the next row begins.
    pub next_offset: u64,
    /// Why it is not whole.
    pub defect: Option<Dirt>,
}

/// Cuts an input into rows. Empty lines are no rows.
pub struct RowReader<R> {
    reader: R,
    style: RowStyle,
    bytes_max: usize,
    /// Bytes read and not yet given out begin at `start`; those before `scanned` were looked at.
    buffer: Vec<u8>,
    start: usize,
    scanned: usize,
    state: State,
    offset: u64,
    at_end: bool,
    /// An error of the reader, kept until the whole rows before it are given out.
    failure: Option<io::Error>,
}

enum Cut {
    /// A row up to here, and the next from there.
    Row {
        end: usize,
        next: usize,
        defect: Option<Dirt>,
    },
    /// The beginning of a row too large to hold.
    Oversized,
    End,
}

impl<R: Read> RowReader<R> {
    /// Reads rows; `offset` is where `reader` stands in the whole input.
    pub fn new(reader: R, style: RowStyle, offset: u64) -> RowReader<R> {
        RowReader::with_limit(reader, style, offset, RECORD_BYTES_MAX)
    }

    pub(super) fn with_limit(reader: R, style: RowStyle, offset: u64, bytes_max: usize) -> RowReader<R> {
        RowReader {
            reader,
            style,
            bytes_max,
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            state: State::FieldStart,
            offset,
            at_end: false,
            failure: None,
        }
    }

    /// The next row; `None` at the end.
    pub fn next_row(&mut self) -> io::Result<Option<Row<'_>>> {
        loop {
            match self.cut()? {
                Cut::End => return Ok(None),
                Cut::Oversized => {
                    // What is shown of it as a sample is its beginning.
                    let kept = self.buffer[self.start..][..100.min(self.bytes_max)].to_vec();
                    self.drop_line()?;
                    self.buffer.splice(..self.start, kept.iter().copied());
                    self.start = kept.len();
                    self.scanned = self.start;
                    let bytes = &self.buffer[..self.start];
                    return Ok(Some(Row { bytes, next_offset: self.offset, defect: Some(Dirt::TooLarge) }));
                }
                Cut::Row { end, next, defect } => {
                    let start = self.advance(next);
                    let bytes = self.buffer[start..end].strip_suffix(b"\r").map_or(end, |bytes| start + bytes.len());
                    let mark = if self.offset == (next - start) as u64 { b"\xef\xbb\xbf".as_slice() } else { b"" };
                    let start = if self.buffer[start..bytes].starts_with(mark) { start + mark.len() } else { start };
                    if start == bytes {
                        continue;
                    }
                    let bytes = &self.buffer[start..bytes];
                    return Ok(Some(Row { bytes, next_offset: self.offset, defect }));
                }
            }
        }
    }

    /// Moves on to `next`; gives where the row began.
    fn advance(&mut self, next: usize) -> usize {
        let start = self.start;
        self.offset += (next - start) as u64;
        self.start = next;
        self.scanned = next;
        self.state = State::FieldStart;
        start
    }

    fn cut(&mut self) -> io::Result<Cut> {
        loop {
            if let Some(at) = self.scan() {
                return Ok(Cut::Row { end: at, next: at + 1, defect: None });
            }
            let too_large = self.buffer.len() - self.start > self.bytes_max;
            if self.state == State::Quoted && (too_large || self.at_end) {
                let rest = &self.buffer[self.start..];
                let line = rest.iter().position(|&byte| byte == b'\n');
                let end = line.map_or(self.buffer.len(), |line| self.start + line);
                let next = (end + 1).min(self.buffer.len());
                return Ok(Cut::Row { end, next, defect: Some(Dirt::UnclosedQuote) });
            }
            if too_large {
                return Ok(Cut::Oversized);
            }
            if self.at_end {
                let end = self.buffer.len();
                return Ok(if self.start == end { Cut::End } else { Cut::Row { end, next: end, defect: None } });
            }
            self.fill()?;
        }
    }

    /// Looks for the line end that ends the row.
    fn scan(&mut self) -> Option<usize> {
        let unseen = &self.buffer[self.scanned..];
        if self.style != RowStyle::Csv {
            let found = unseen.iter().position(|&byte| byte == b'\n');
            let at = found.map(|at| self.scanned + at);
            self.scanned = at.unwrap_or(self.buffer.len());
            return at;
        }
        let mut state = self.state;
        for (index, &byte) in unseen.iter().enumerate() {
            state = match (state, byte) {
                (State::FieldStart, b'"') | (State::QuoteSeen, b'"') => State::Quoted,
                (State::Quoted, b'"') => State::QuoteSeen,
                (State::Quoted, _) => State::Quoted,
                (_, b'\n') => {
                    self.scanned += index;
                    return Some(self.scanned);
                }
                (_, b',') => State::FieldStart,
                _ => State::Plain,
            };
        }
        self.state = state;
        self.scanned = self.buffer.len();
        None
    }

    /// Reads more, after moving what is left to the front.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.start);
        self.scanned -= self.start;
        self.start = 0;
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        match self.reader.by_ref().take(READ_BYTES as u64).read_to_end(&mut self.buffer) {
            Ok(read) => self.at_end = read == 0,
            Err(failure) => self.failure = Some(failure),
        }
        Ok(())
    }

    /// Passes over the rest of the line, however long it is.
    fn drop_line(&mut self) -> io::Result<()> {
        loop {
            let rest = &self.buffer[self.start..];
            if let Some(at) = rest.iter().position(|&byte| byte == b'\n') {
                self.advance(self.start + at + 1);
                return Ok(());
            }
            self.advance(self.buffer.len());
            if self.at_end {
                return Ok(());
            }
            self.fill()?;
        }
    }
}

/// The fields of a row.
pub fn split_fields(row: &[u8], style: RowStyle) -> Vec<Cow<'_, [u8]>> {
    match style {
        RowStyle::Lines => vec![Cow::Borrowed(row)],
        RowStyle::Tsv => row.split(|&byte| byte == b'\t').map(Cow::Borrowed).collect(),
        RowStyle::Csv => split_quoted(row),
    }
}

fn split_quoted(row: &[u8]) -> Vec<Cow<'_, [u8]>> {
    let mut fields = Vec::new();
    let mut rest = row;
    loop {
        let (field, after) = match rest.strip_prefix(b"\"") {
            Some(quoted) => take_quoted(quoted),
            None => {
                let end = rest.iter().position(|&byte| byte == b',').unwrap_or(rest.len());
                (Cow::Borrowed(&rest[..end]), &rest[end..])
            }
        };
        fields.push(field);
        match after.split_first() {
            Some((_, after)) => rest = after,
            None => return fields,
        }
    }
}

/// A quoted field, after its first quote; and what follows it, from the comma on.
fn take_quoted(quoted: &[u8]) -> (Cow<'_, [u8]>, &[u8]) {
    let mut field = Vec::new();
    let mut rest = quoted;
    while let Some(at) = rest.iter().position(|&byte| byte == b'"') {
        field.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        match rest.strip_prefix(b"\"") {
            Some(after) => {
                field.push(b'"');
                rest = after;
            }
            None => {
                // Letters between the closing quote and the comma are a flaw of the writer; they belong to the field.
                let end = rest.iter().position(|&byte| byte == b',').unwrap_or(rest.len());
                field.extend_from_slice(&rest[..end]);
                return (Cow::Owned(field), &rest[end..]);
            }
        }
    }
    field.extend_from_slice(rest);
    (Cow::Owned(field), b"")
}
