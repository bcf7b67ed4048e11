//! Arguments and results of many parts: numbers in little-endian order, bytes behind their length.

use crate::{
    boundary::{Outcome, too_short},
    errors::Failure,
};

/// Length of absent bytes.
const NONE: u32 = u32::MAX;

/// Decodes arguments.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    pub fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    fn array<const N: usize>(&mut self) -> Outcome<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk().ok_or_else(too_short)?;
        self.0 = rest;
        Ok(*array)
    }

    pub fn byte(&mut self) -> Outcome<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn count(&mut self) -> Outcome<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn long(&mut self) -> Outcome<i64> {
        self.array().map(i64::from_le_bytes)
    }

    pub fn maybe_bytes(&mut self) -> Outcome<Option<&'a [u8]>> {
        let len = self.count()?;
        if len == NONE {
            return Ok(None);
        }
        let (bytes, rest) = self.0.split_at_checked(len as usize).ok_or_else(too_short)?;
        self.0 = rest;
        Ok(Some(bytes))
    }

    pub fn bytes(&mut self) -> Outcome<&'a [u8]> {
        self.maybe_bytes()?.ok_or_else(|| Failure::argument("bytes are absent"))
    }

    pub fn text(&mut self) -> Outcome<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Failure::argument("a text is not UTF-8"))
    }
}

/// Encodes a result.
#[derive(Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    pub fn new() -> Writer {
        Writer::default()
    }

    pub fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub fn bool(&mut self, bool: bool) {
        self.byte(u8::from(bool));
    }

    pub fn count(&mut self, count: usize) {
        // Lengths of a result: `give_writer` refuses one that a Java array cannot hold.
        self.0.extend_from_slice(&u32::try_from(count).unwrap_or(NONE - 1).to_le_bytes());
    }

    pub fn long(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub fn maybe_bytes(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bytes(bytes),
            None => self.0.extend_from_slice(&NONE.to_le_bytes()),
        }
    }

    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}
