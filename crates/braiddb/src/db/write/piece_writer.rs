//! Writes a value piece by piece, to be committed later.
//!
//! Full pieces go to a blob file. The first pieces are short, so that streams of moderate length
//! take little memory; later ones are longer, so that the list stays short: 1072 pieces for 4 GiB,
//! in about 25 KiB. A value that never fills a piece is an ordinary value.
//!
//! **Appends.** The new list is the old list and the new pieces. A short append rewrites the last
//! old pieces that are at most twice as long as the bytes after them, up to the length of a long
//! piece. So each rewrite moves a byte into a piece at least half as long again: at most 38
//! rewrites. Each short piece at the end is more than twice as long as the next: there are at most
//! 23. Any two neighbours among the others make a long piece or more.

use super::pending_blobs::PendingBlobs;
use crate::{
    base::{Content, EntryKind, Error, Result, limits},
    codec::Compression,
    db::engine::{key::KeyBuf, root::Engine, settings::TreeOptions},
    table::blob::{Lane, Pieces},
};
use std::{
    io::{self, Read},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// Number of short pieces before the long ones.
const SHORT_PIECES: usize = 64;

/// Length of a long piece, in short pieces.
const LONG_PIECE: usize = 4;

/// Bytes between syncs. Limits the work of the sync at the commit.
const SYNC_BYTES: u64 = 16 << 20;

const ROOM_MIN: usize = 8 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub kind: EntryKind,
    pub value: Vec<u8>,
    /// Length of the user's value.
    pub len: u64,
}

impl Placed {
    fn value(value: Vec<u8>) -> Placed {
        Placed { kind: EntryKind::Value, len: value.len() as u64, value }
    }

    fn pieces(pieces: &Pieces) -> Placed {
        let (kind, value) = pieces.entry();
        Placed { kind, value, len: pieces.len() }
    }

    /// Adds the expiry time of the old value.
    pub fn expiring(self, expires_us: Option<u64>) -> Placed {
        let mut room = Vec::new();
        let (kind, value) = Content { kind: self.kind, value: &self.value, expires_us }.entry(&mut room);
        Placed { kind, value: value.to_vec(), len: self.len }
    }
}

#[derive(Debug)]
pub enum Base {
    Value(Vec<u8>),
    Pieces(Pieces),
}

impl Base {
    fn len(&self) -> u64 {
        match self {
            Base::Value(value) => value.len() as u64,
            Base::Pieces(pieces) => pieces.len(),
        }
    }
}

#[derive(Debug)]
pub struct PieceWriter {
    engine: Arc<Engine>,
    key: KeyBuf,
    compression: Compression,
    threshold: usize,
    pieces: Pieces,
    written: u64,
    /// The first `filled` bytes follow the last piece.
    buffer: Vec<u8>,
    filled: usize,
    pending: PendingBlobs,
    unsynced: u64,
    has_failed: bool,
}

impl PieceWriter {
    pub fn new(engine: &Arc<Engine>, key: KeyBuf, options: &TreeOptions) -> PieceWriter {
        PieceWriter {
            engine: Arc::clone(engine),
            key,
            compression: options.compression.unwrap_or(engine.settings.compression),
            threshold: options.blob_threshold.unwrap_or(engine.settings.blob_threshold).max(1),
            pieces: Pieces::default(),
            written: 0,
            buffer: Vec::new(),
            filled: 0,
            pending: PendingBlobs::new(engine),
            unsynced: 0,
            has_failed: false,
        }
    }

    pub fn len(&self) -> u64 {
        self.written + self.filled as u64
    }

    fn piece_len(&self) -> usize {
        let short = self.engine.settings.piece_bytes();
        if self.pieces.list.len() < SHORT_PIECES { short } else { LONG_PIECE * short }
    }

    fn len_max(&self) -> u64 {
        self.engine.settings.stream_len_max
    }

    /// After a failure all calls fail.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = self.room(bytes.len())?;
            let now = bytes.len().min(room.len());
            let (head, rest) = bytes.split_at(now);
            room[..now].copy_from_slice(head);
            self.filled += now;
            bytes = rest;
        }
        Ok(())
    }

    /// Returns the reader's error, even if it panics.
    pub fn read_from(&mut self, reader: &mut dyn Read) -> Result<()> {
        let done = self.try_read_from(reader);
        self.has_failed |= done.is_err();
        done
    }

    fn try_read_from(&mut self, reader: &mut dyn Read) -> Result<()> {
        loop {
            let (piece_len, is_full) = (self.piece_len(), self.len() >= self.len_max());
            let mut probe = [0];
            // At the maximum length, the reader must have no more bytes.
            let room = if is_full { &mut probe[..] } else { self.room(piece_len)? };
            // No lock is held, and a panic can break only the reader.
            let read = catch_unwind(AssertUnwindSafe(|| reader.read(room)));
            match read.unwrap_or_else(|panic| Err(io::Error::other(panic_text(&*panic)))) {
                Ok(0) => return Ok(()),
                Ok(_) if is_full => return Err(too_long()),
                Ok(count) if count <= room.len() => self.filled += count,
                Ok(_) => return Err(Error::InvalidArgument("a reader says it has read more than fits".to_owned())),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // A reader of a database's stream returns the database's own error inside.
                Err(e) => return Err(e.downcast::<Error>().unwrap_or_else(Error::abort)),
            }
        }
    }

    /// Returns free space in the buffer, at most `wanted` bytes and at least one.
    fn room(&mut self, wanted: usize) -> Result<&mut [u8]> {
        self.check_not_failed()?;
        if self.filled == self.piece_len() {
            self.write_piece(Lane::Bulk)?;
        }
        if self.len() >= self.len_max() {
            self.has_failed = true;
            return Err(too_long());
        }
        let left = usize::try_from(self.len_max() - self.len()).unwrap_or(usize::MAX);
        let end = self.piece_len().min(self.filled.saturating_add(wanted)).min(self.filled.saturating_add(left));
        if self.buffer.len() < end {
            // Doubling keeps short values small and moves long ones rarely.
            let len = end.min((2 * self.buffer.len()).max(self.filled + ROOM_MIN)).max(self.filled + 1);
            self.buffer.resize(len, 0);
        }
        let end = end.min(self.buffer.len());
        Ok(&mut self.buffer[self.filled..end])
    }

    fn check_not_failed(&self) -> Result<()> {
        if self.has_failed {
            return Err(Error::InvalidArgument("the stream has failed before: write it anew".to_owned()));
        }
        Ok(())
    }

    fn write_piece(&mut self, lane: Lane) -> Result<()> {
        let written = self.try_write_piece(lane);
        self.has_failed |= written.is_err();
        written
    }

    fn try_write_piece(&mut self, lane: Lane) -> Result<()> {
        let piece = self.pending.write(lane, &self.key, &self.buffer[..self.filled], self.compression)?;
        self.pieces.list.push(piece);
        self.written += self.filled as u64;
        self.filled = 0;
        self.unsynced += piece.stored_len;
        if self.unsynced >= SYNC_BYTES {
            self.pending.sync()?;
            self.unsynced = 0;
        }
        Ok(())
    }

    fn finish_pieces(&mut self) -> Result<()> {
        self.check_not_failed()?;
        if !self.pieces.list.is_empty() && self.filled > 0 { self.write_piece(Lane::Bulk) } else { Ok(()) }
    }

    /// Returns the entry's value, and pins on its files.
    pub fn finish(mut self) -> Result<(Placed, PendingBlobs)> {
        self.finish_pieces()?;
        if self.pieces.list.is_empty() {
            if self.filled < self.threshold {
                self.buffer.truncate(self.filled);
                return Ok((Placed::value(self.buffer), self.pending));
            }
            self.write_piece(Lane::Values)?;
        }
        Ok((Placed::pieces(&self.pieces), self.pending))
    }

    pub fn into_tail(mut self) -> Result<(Tail, PendingBlobs)> {
        self.finish_pieces()?;
        self.buffer.truncate(self.filled);
        let PieceWriter { engine, key, compression, threshold, pieces, buffer, pending, .. } = self;
        let short = if pieces.list.is_empty() { buffer } else { Vec::new() };
        Ok((Tail { engine, key, compression, threshold, pieces, short }, pending))
    }
}

#[derive(Debug)]
pub struct Tail {
    engine: Arc<Engine>,
    key: KeyBuf,
    compression: Compression,
    threshold: usize,
    /// Either this has all bytes, or `short`.
    pieces: Pieces,
    short: Vec<u8>,
}

impl Tail {
    pub fn len(&self) -> u64 {
        self.pieces.len() + self.short.len() as u64
    }

    /// Returns the value that begins with `base`, whose files are pinned in `pending`.
    pub fn onto(&self, base: Option<Base>, pending: &mut PendingBlobs) -> Result<Placed> {
        if base.as_ref().map_or(0, Base::len) + self.len() > self.engine.settings.stream_len_max {
            return Err(too_long());
        }
        let (mut list, mut bytes) = match base {
            None => (Pieces::default(), Vec::new()),
            Some(Base::Value(value)) => (Pieces::default(), value),
            Some(Base::Pieces(pieces)) => (pieces, Vec::new()),
        };
        list.list.retain(|piece| piece.len > 0);
        let long = LONG_PIECE * self.engine.settings.piece_bytes();
        let mut lane = Lane::Bulk;
        if self.pieces.list.is_empty() {
            bytes.extend_from_slice(&self.short);
            bytes = self.join_end(&mut list, bytes, long)?;
            if list.list.is_empty() && bytes.len() < self.threshold {
                return Ok(Placed::value(bytes));
            }
            lane = Lane::Values;
        }
        for piece in bytes.chunks(long) {
            list.list.push(pending.write(lane, &self.key, piece, self.compression)?);
        }
        list.list.extend_from_slice(&self.pieces.list);
        Ok(Placed::pieces(&list))
    }

    /// Removes the last pieces that are at most twice as long as the bytes after them, and returns
    /// all these bytes.
    fn join_end(&self, list: &mut Pieces, mut bytes: Vec<u8>, len_max: usize) -> Result<Vec<u8>> {
        let fits = |last: u64, len: u64| last <= 2 * len && last + len <= len_max as u64;
        while let Some(last) = list.list.pop_if(|last| fits(last.len, bytes.len() as u64)) {
            let mut joined = self.engine.storage.blobs.read_uncached(&last)?;
            joined.extend_from_slice(&bytes);
            bytes = joined;
        }
        Ok(bytes)
    }
}

fn too_long() -> Error {
    Error::InvalidArgument(format!("a value would be longer than {} bytes", limits::MAX_VALUE_LEN))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the reader of a stream panicked: {}", message.unwrap_or("without a message"))
}
