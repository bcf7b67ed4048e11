//! Records as the reader cuts them from the input, handed on by the chunk.

use super::rows::{Position, Row};
use crate::dirt::Dirt;

/// The largest record; larger ones are skipped without being held in memory.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

const CHUNK_BYTES: usize = 256 << 10;
const CHUNK_RECORDS: usize = 1024;

/// A record that was not looked into yet.
#[derive(Debug)]
pub struct RawRecord {
    start: usize,
    end: usize,
    raw_end: usize,
    /// Where it is.
    pub position: Position,
    /// Where the next record begins, in bytes of decompressed input.
    pub next_offset: u64,
    /// The file in the archive; empty where records have no names.
    pub place: Box<str>,
    /// Set if the record could not even be cut out whole: then its bytes are its beginning only.
    pub defect: Option<Dirt>,
    /// Details of the defect.
    pub why: Box<str>,
}

/// Some records that follow each other.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The number of the first record.
    pub first_number: u64,
    /// The records, in order.
    pub records: Vec<RawRecord>,
    bytes: Vec<u8>,
}

impl Chunk {
    /// The bytes of one of its records.
    pub fn bytes_of(&self, record: &RawRecord) -> &[u8] {
        &self.bytes[record.start..record.end]
    }

    /// The same, with the line end.
    pub fn raw_of(&self, record: &RawRecord) -> &[u8] {
        &self.bytes[record.start..record.raw_end]
    }

    /// The size of all records.
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }
}

/// The other side takes no more: it failed, and says why itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

/// Gathers records into chunks and sends them on.
pub struct ChunkSink<F> {
    chunk: Chunk,
    send: F,
}

impl<F: FnMut(Chunk) -> Result<(), Stopped>> ChunkSink<F> {
    /// A sink whose first record has this number.
    pub fn new(first_number: u64, send: F) -> ChunkSink<F> {
        ChunkSink { chunk: Chunk { first_number, ..Chunk::default() }, send }
    }

    /// Adds a row.
    pub fn push_row(&mut self, row: &Row<'_>) -> Result<(), Stopped> {
        let start = self.chunk.bytes.len();
        self.chunk.bytes.extend_from_slice(row.raw);
        self.add(RawRecord {
            start,
            end: start + row.length,
            raw_end: self.chunk.bytes.len(),
            position: row.position,
            next_offset: row.next_offset,
            place: Box::default(),
            defect: row.defect,
            why: row.why.as_str().into(),
        })
    }

    /// Adds a record from a file of an archive, which begins at `offset`.
    pub fn push_file(
        &mut self,
        bytes: &[u8],
        offset: u64,
        next_offset: u64,
        place: &str,
        defect: Option<Dirt>,
    ) -> Result<(), Stopped> {
        let start = self.chunk.bytes.len();
        self.chunk.bytes.extend_from_slice(bytes);
        let end = self.chunk.bytes.len();
        let position = Position { offset, ..Position::default() };
        let (place, why) = (place.into(), Box::default());
        self.add(RawRecord { start, end, raw_end: end, position, next_offset, place, defect, why })
    }

    fn add(&mut self, record: RawRecord) -> Result<(), Stopped> {
        self.chunk.records.push(record);
        let is_full = self.chunk.bytes.len() >= CHUNK_BYTES || self.chunk.records.len() >= CHUNK_RECORDS;
        if is_full { self.flush() } else { Ok(()) }
    }

    /// Sends what is gathered.
    pub fn flush(&mut self) -> Result<(), Stopped> {
        if self.chunk.records.is_empty() {
            return Ok(());
        }
        let first_number = self.chunk.first_number + self.chunk.records.len() as u64;
        let next = Chunk { first_number, ..Chunk::default() };
        (self.send)(std::mem::replace(&mut self.chunk, next))
    }
}
