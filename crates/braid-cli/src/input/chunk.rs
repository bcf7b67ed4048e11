//! Raw records, passed on in chunks.

use super::rows::{Position, Row};
use crate::dirt::Dirt;

/// Maximum size of a record. Larger records are skipped without being held in memory.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

const CHUNK_BYTES: usize = 256 << 10;
const CHUNK_RECORDS: usize = 1024;

#[derive(Debug)]
pub struct RawRecord {
    start: usize,
    end: usize,
    raw_end: usize,
    pub position: Position,
    pub next_offset: u64,
    pub place: Box<str>,
    /// Why the record is incomplete: its bytes are then only its beginning.
    pub defect: Option<Dirt>,
    pub why: Box<str>,
}

#[derive(Debug, Default)]
pub struct Chunk {
    pub first_number: u64,
    pub records: Vec<RawRecord>,
    bytes: Vec<u8>,
}

impl Chunk {
    pub fn bytes_of(&self, record: &RawRecord) -> &[u8] {
        &self.bytes[record.start..record.end]
    }

    pub fn raw_of(&self, record: &RawRecord) -> &[u8] {
        &self.bytes[record.start..record.raw_end]
    }

    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

pub struct ChunkSink<F> {
    chunk: Chunk,
    send: F,
}

impl<F: FnMut(Chunk) -> Result<(), Stopped>> ChunkSink<F> {
    pub fn new(first_number: u64, send: F) -> ChunkSink<F> {
        ChunkSink { chunk: Chunk { first_number, ..Chunk::default() }, send }
    }

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

    pub fn flush(&mut self) -> Result<(), Stopped> {
        if self.chunk.records.is_empty() {
            return Ok(());
        }
        let first_number = self.chunk.first_number + self.chunk.records.len() as u64;
        let next = Chunk { first_number, ..Chunk::default() };
        (self.send)(std::mem::replace(&mut self.chunk, next))
    }
}
