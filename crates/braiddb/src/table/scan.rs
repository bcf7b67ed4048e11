//! Scans of a whole run in file order, for merges, view building and verification.
//!
//! They read large pieces and bypass the cache, since readers seldom want the same blocks next.
//! Pieces grow from 64 KiB to 128, so that short scans read little.

use super::{
    Position,
    block::{self, entry_count},
    format::{Contents, UNIT_HEADER_LEN, open_unit},
    key_block::ChunkReader,
    run::{Run, read_error},
    tail::ChunkEntry,
};
use crate::base::{EntryKind, EntryRef, Error, Result, SequenceNumber};
use std::{ops::Range, sync::Arc};

const FIRST_PIECE_BYTES: usize = 64 << 10;
const MAX_PIECE_BYTES: usize = 128 << 10;
const MAX_PIECE_BYTES_UNBUFFERED: usize = 256 << 10;

#[derive(Debug)]
struct ReadAhead {
    buffer: Vec<u8>,
    filled: usize,
    begins_at: u64,
    piece: usize,
}

impl ReadAhead {
    fn new() -> ReadAhead {
        ReadAhead { buffer: Vec::new(), filled: 0, begins_at: 0, piece: FIRST_PIECE_BYTES }
    }

    /// Reads the bytes `from..to` of the file, up to the unit border that `whole` returns.
    fn fetch(&mut self, run: &Run, from: u64, to: u64, whole: impl FnOnce(u64) -> u64) -> Result<Range<usize>> {
        let present = self.begins_at..self.begins_at + self.filled as u64;
        if !(present.start <= from && to <= present.end) {
            // Do not cut a unit, which would be read twice.
            let piece = if run.file().is_read_ahead() { 0 } else { self.piece as u64 };
            let end = whole(from.saturating_add(piece)).max(to);
            self.fill(run, from, end)?;
        }
        let start = (from - self.begins_at) as usize;
        Ok(start..start + (to - from) as usize)
    }

    fn fill(&mut self, run: &Run, from: u64, to: u64) -> Result<()> {
        let too_long = |_| Error::corruption(run.path(), from, "a length that this machine cannot hold");
        let len = usize::try_from(to - from).map_err(too_long)?;
        self.filled = 0;
        if self.buffer.len() < len {
            self.buffer.resize(len, 0);
        }
        let target = &mut self.buffer[..len];
        run.file().read_exact_at(target, from).map_err(|error| read_error(run.path(), from, error))?;
        (self.begins_at, self.filled) = (from, len);
        let is_unbuffered = run.file().is_unbuffered();
        self.piece = (self.piece * 2).min(if is_unbuffered { MAX_PIECE_BYTES_UNBUFFERED } else { MAX_PIECE_BYTES });
        Ok(())
    }
}

/// All entries. Starts before the first: call [`RunScan::next`].
#[derive(Debug)]
pub struct RunScan {
    run: Arc<Run>,
    ahead: ReadAhead,
    /// Current block, in the read-ahead buffer or decompressed.
    plain: Option<Range<usize>>,
    unpacked: Vec<u8>,
    /// `None` past the last block.
    loaded: Option<u16>,
    next: Position,
    current: Option<Position>,
}

impl RunScan {
    pub(super) fn new(run: Arc<Run>, from: Position) -> RunScan {
        RunScan {
            ahead: ReadAhead::new(),
            plain: None,
            unpacked: Vec::new(),
            loaded: None,
            next: run.advance(from, 0),
            current: None,
            run,
        }
    }

    /// False at the end. An error ends the scan.
    pub fn next(&mut self) -> Result<bool> {
        self.current = None;
        let position = self.next;
        if position == self.run.end() {
            return Ok(false);
        }
        if self.loaded != Some(position.block) {
            // Undone below on success.
            self.next = self.run.end();
            self.loaded = None;
            self.load(position.block)?;
            self.loaded = Some(position.block);
        }
        self.next = self.run.advance(position, 1);
        self.current = Some(position);
        Ok(true)
    }

    #[inline]
    pub fn entry(&self) -> EntryRef<'_> {
        let position = self.current.expect("a scan that is on an entry");
        let entry = block::entry(self.block(), position.slot).expect("a block that was checked");
        entry.numbered(self.run.given_sequence())
    }

    pub fn key(&self) -> Option<&[u8]> {
        self.current.map(|_| self.entry().key)
    }

    pub fn position(&self) -> Position {
        self.current.unwrap_or_else(|| self.run.end())
    }

    pub(super) fn block_len(&self) -> usize {
        self.block().len()
    }

    fn block(&self) -> &[u8] {
        match &self.plain {
            Some(range) => &self.ahead.buffer[range.clone()],
            None => &self.unpacked,
        }
    }

    fn load(&mut self, block: u16) -> Result<()> {
        let index = self.run.index();
        let Range { start: from, end: to } = index.unit(usize::from(block), self.run.note(block).len());
        let next = usize::from(block) + 1;
        let whole = |end: u64| {
            let first_past = (next..=index.blocks()).find(|&block| index.offset(block) > end);
            index.offset(first_past.map_or(index.blocks(), |block| block - 1))
        };
        let padded = self.ahead.fetch(&self.run, from, index.offset(next), whole)?;
        let unit = padded.start..padded.start + (to - from) as usize;
        if self.ahead.buffer[unit.end..padded.end].iter().any(|&byte| byte != 0) {
            return Err(Error::corruption(self.run.path(), to, "the bytes after a data block are not zero"));
        }
        let contents = open_unit(
            &self.ahead.buffer[unit.clone()],
            self.run.meta().file_id,
            from,
            self.run.path(),
            &mut self.unpacked,
        )?;
        self.plain = match contents {
            Contents::Plain(_) => Some(unit.start + UNIT_HEADER_LEN..unit.end),
            Contents::Unpacked => None,
        };
        let entries = self.run.block_entries(block);
        if entry_count(self.block()) != entries || !block::validate(self.block(), entries) {
            return Err(Error::corruption(self.run.path(), from, format!("block {block} is malformed")));
        }
        Ok(())
    }
}

/// All keys with sequence number and kind. Starts before the first: call [`KeyScan::next`].
#[derive(Debug)]
pub struct KeyScan {
    source: KeySource,
}

#[derive(Debug)]
enum KeySource {
    Chunks(Box<ChunkScan>),
    Blocks(Box<RunScan>),
}

impl KeyScan {
    pub(super) fn new(run: Arc<Run>, from: Position) -> KeyScan {
        let source = if run.meta().has_key_block {
            KeySource::Chunks(Box::new(ChunkScan::new(run, from)))
        } else {
            KeySource::Blocks(Box::new(RunScan::new(run, from)))
        };
        KeyScan { source }
    }

    /// False at the end. An error ends the scan.
    pub fn next(&mut self) -> Result<bool> {
        match &mut self.source {
            KeySource::Chunks(scan) => scan.next(),
            KeySource::Blocks(scan) => scan.next(),
        }
    }

    /// Entry without value.
    #[inline]
    pub fn entry(&self) -> EntryRef<'_> {
        match &self.source {
            KeySource::Chunks(scan) => scan.entry(),
            KeySource::Blocks(scan) => EntryRef { value: &[], ..scan.entry() },
        }
    }

    pub fn key(&self) -> &[u8] {
        self.entry().key
    }

    pub fn sequence(&self) -> SequenceNumber {
        self.entry().sequence
    }

    pub fn kind(&self) -> EntryKind {
        self.entry().kind
    }

    pub fn position(&self) -> Position {
        match &self.source {
            KeySource::Chunks(scan) => scan.current.unwrap_or_else(|| scan.run.end()),
            KeySource::Blocks(scan) => scan.position(),
        }
    }
}

#[derive(Debug)]
struct ChunkScan {
    run: Arc<Run>,
    ahead: ReadAhead,
    reader: ChunkReader,
    loaded: Option<usize>,
    at: Position,
    next: Position,
    current: Option<Position>,
}

impl ChunkScan {
    fn new(run: Arc<Run>, from: Position) -> ChunkScan {
        ChunkScan {
            ahead: ReadAhead::new(),
            reader: ChunkReader::default(),
            loaded: None,
            at: Position::default(),
            next: run.advance(from, 0),
            current: None,
            run,
        }
    }

    fn next(&mut self) -> Result<bool> {
        self.current = None;
        let position = self.next;
        if position == self.run.end() {
            return Ok(false);
        }
        // Undone below on success.
        self.next = self.run.end();
        let chunks = &self.run.index().chunks;
        let chunk = match self.loaded {
            Some(loaded) if chunks.get(loaded + 1).is_none_or(|next| position.block < next.first_block) => loaded,
            _ => chunks.partition_point(|chunk| chunk.first_block <= position.block).saturating_sub(1),
        };
        if self.loaded != Some(chunk) {
            self.load(chunk)?;
        }
        while self.at <= position {
            self.reader.advance().ok_or_else(|| self.malformed(chunk))?;
            self.at = self.run.advance(self.at, 1);
        }
        let end = self.run.index().chunks.get(chunk + 1).map_or(self.run.end().block, |next| next.first_block);
        if self.at.block == end && !self.reader.is_at_end() {
            return Err(self.malformed(chunk));
        }
        self.next = self.at;
        self.current = Some(position);
        Ok(true)
    }

    #[inline]
    fn entry(&self) -> EntryRef<'_> {
        assert!(self.current.is_some(), "a scan that is on an entry");
        let kind = self.reader.kind.expect("an entry that was read");
        let entry = EntryRef { key: &self.reader.key, sequence: self.reader.sequence, kind, value: &[] };
        entry.numbered(self.run.given_sequence())
    }

    fn load(&mut self, chunk: usize) -> Result<()> {
        self.loaded = None;
        let chunks = &self.run.index().chunks;
        let Some(entry) = chunks.get(chunk).copied() else { return Err(self.malformed(chunk)) };
        let (from, path) = (entry.offset, self.run.path());
        let end_of = |chunk: &ChunkEntry| chunk.offset + chunk.unit_len;
        let whole = |end: u64| {
            let rest = chunks[chunk..].iter().take_while(|chunk| end_of(chunk) <= end);
            rest.last().map_or(from, end_of)
        };
        let unit = self.ahead.fetch(&self.run, from, end_of(&entry), whole)?;
        let contents = &mut self.reader.contents;
        if let Contents::Plain(plain) =
            open_unit(&self.ahead.buffer[unit], self.run.meta().file_id, from, path, contents)?
        {
            contents.clear();
            contents.extend_from_slice(plain);
        }
        self.reader.begin().ok_or_else(|| Error::corruption(path, from, "a key chunk is malformed"))?;
        self.at = Position { block: entry.first_block, slot: 0 };
        self.loaded = Some(chunk);
        Ok(())
    }

    #[cold]
    fn malformed(&self, chunk: usize) -> Error {
        let offset = self.run.index().chunks.get(chunk).map_or(0, |chunk| chunk.offset);
        Error::corruption(self.run.path(), offset, format!("key chunk {chunk} is malformed"))
    }
}
