//! Reads a value in parts.

use crate::{
    base::{Content, EntryKind, Error, Result, SequenceNumber},
    db::{
        engine::{key::KeyBuf, read_hold::Hold, root::Engine},
        handles::{database::Db, expiry},
        read::{
            healing,
            merge_operands::{self, FoundOperands},
            point_read,
        },
        record::version::Version,
        write::{pending_blobs::PendingBlobs, piece_writer::Base},
    },
    platform::SystemTime,
    read::{self, ReadState},
    table::blob::{BLOB_CHUNK_LEN, BlobRef, Pieces},
};
use std::{
    fmt,
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
    sync::Arc,
};

/// Maximum bytes of sequential read-ahead. Random reads fetch one chunk.
const AHEAD_MAX: u64 = 1 << 20;

#[derive(Debug)]
pub struct Found {
    pub state: Arc<ReadState>,
    pub base: Base,
    pub sequence: SequenceNumber,
    /// By the database's clock.
    pub expires_us: Option<u64>,
}

enum Source {
    Whole(Vec<u8>),
    Stored { hold: Hold, key: KeyBuf, state: Arc<ReadState>, pieces: Pieces, starts: Vec<u64> },
    Own { pieces: Pieces, starts: Vec<u64>, _pending: PendingBlobs },
}

/// Reads a value at one snapshot through [`Read`] and [`Seek`]. Uses about 1 MiB of memory for a
/// value in blob files.
///
/// Pins old versions, as a snapshot does, and the files it read last, so drop idle readers. When it
/// expires, reads fail with an [`io::Error`] around [`crate::Error::ReaderExpired`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::io::{Read, Seek, SeekFrom};
///
/// let db = braiddb::Db::in_memory()?;
/// let films = db.tree("films")?;
/// films.put_stream(b"1", &mut std::io::repeat(7).take(3_000_000))?;
/// let mut film = films.stream(b"1")?.expect("it was put");
/// assert_eq!(film.len(), 3_000_000);
/// film.seek(SeekFrom::End(-10))?;
/// let mut end = Vec::new();
/// film.read_to_end(&mut end)?;
/// assert_eq!(end, [7; 10]);
/// # Ok(())
/// # }
/// ```
pub struct StreamReader {
    db: Db,
    source: Source,
    len: u64,
    /// `None` for a value that a transaction wrote itself.
    version: Option<Version>,
    expires_us: Option<u64>,
    position: u64,
    /// Part of the value, and its offset.
    buffer: Vec<u8>,
    buffer_at: u64,
    /// Bytes to read next.
    ahead: u64,
    ahead_max: u64,
}

impl fmt::Debug for StreamReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamReader").field("len", &self.len).field("position", &self.position).finish()
    }
}

/// Reads a large value only to merge operands into it.
pub fn find_value(engine: &Engine, key: &[u8], hold: Option<&Hold>) -> Result<Option<Found>> {
    engine.health.check_open()?;
    healing::retry(engine, || {
        let (state, at) = engine.state_for(hold)?;
        let state = Arc::clone(&state);
        let (kind, sequence, value) = {
            let guard = crossbeam_epoch::pin();
            match read::get(&state, key, at, &guard)? {
                None => return Ok(None),
                Some(entry) => (entry.kind, entry.sequence, entry.value.to_vec()),
            }
        };
        let content = Content::of(kind, &value).ok_or_else(|| engine.storage.blobs.misunderstood())?;
        let now_us = point_read::time_of(engine, hold);
        if content.expires_us.is_some_and(|expires_us| expires_us <= now_us) {
            return Ok(None);
        }
        let mut expires_us = content.expires_us;
        let base = match content.kind {
            EntryKind::BlobRef | EntryKind::Stream => {
                Base::Pieces(Pieces::of(&content).ok_or_else(|| engine.storage.blobs.misunderstood())?)
            }
            EntryKind::Merge => {
                let operands = FoundOperands { key: key.to_vec(), sequence, operands: value.clone() };
                let (value, end_beneath) = merge_operands::merged(engine, &state, &operands, now_us)?;
                // An append's result expires with the value beneath.
                expires_us = end_beneath;
                Base::Value(value)
            }
            _ => Base::Value(content.value.to_vec()),
        };
        Ok(Some(Found { state, base, sequence, expires_us }))
    })
}

/// Pins the files of the value's pieces, so that a commit may refer to them.
pub fn find_and_pin(
    engine: &Engine,
    key: &[u8],
    hold: Option<&Hold>,
    pending: &mut PendingBlobs,
) -> Result<Option<(Base, Option<u64>)>> {
    loop {
        let Some(Found { state, base, expires_us, .. }) = find_value(engine, key, hold)? else { return Ok(None) };
        let is_pinned = match &base {
            Base::Value(_) => true,
            Base::Pieces(pieces) => pending.pin(pieces),
        };
        if is_pinned {
            return Ok(Some((base, expires_us)));
        }
        // The state without the released file was published before its release.
        if Arc::ptr_eq(&engine.cell.state.load(), &state) {
            return Err(Error::corruption(&engine.dir, 0, "a blob file is missing that an entry refers to"));
        }
    }
}

fn starts_of(pieces: &Pieces) -> Vec<u64> {
    let mut end = 0;
    let start = |piece: &BlobRef| {
        let start = end;
        end += piece.len;
        start
    };
    pieces.list.iter().map(start).collect()
}

impl StreamReader {
    pub(in crate::db) fn open(db: &Db, key: KeyBuf, hold: Hold) -> Result<Option<StreamReader>> {
        let found = find_value(db.engine(), &key, Some(&hold))?;
        let Some(Found { state, base, sequence, expires_us }) = found else { return Ok(None) };
        let reader = match base {
            Base::Value(value) => StreamReader::whole(db, value),
            Base::Pieces(pieces) => {
                let (len, starts) = (pieces.len(), starts_of(&pieces));
                StreamReader::over(db, len, Source::Stored { hold, key, state, pieces, starts })
            }
        };
        let version = Some(db.engine().commits.versions.of(sequence));
        Ok(Some(StreamReader { version, expires_us, ..reader }))
    }

    pub(in crate::db) fn whole(db: &Db, value: Vec<u8>) -> StreamReader {
        StreamReader::over(db, value.len() as u64, Source::Whole(value))
    }

    pub(in crate::db) fn own(db: &Db, pieces: Pieces, pending: PendingBlobs) -> StreamReader {
        let (len, starts) = (pieces.len(), starts_of(&pieces));
        StreamReader::over(db, len, Source::Own { pieces, starts, _pending: pending })
    }

    fn over(db: &Db, len: u64, source: Source) -> StreamReader {
        let (version, expires_us) = (None, None);
        StreamReader {
            db: db.clone(),
            source,
            len,
            version,
            expires_us,
            position: 0,
            buffer: Vec::new(),
            buffer_at: 0,
            ahead: 0,
            ahead_max: AHEAD_MAX,
        }
    }

    /// Returns the value's length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the version of the record, as [`Tree::get_versioned`](crate::Tree::get_versioned)
    /// does; `None` for a value that the transaction itself wrote.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// let films = db.tree("films")?;
    /// let commit = films.put(b"1", b"The Void")?;
    /// let film = films.stream(b"1")?.expect("it was put");
    /// assert_eq!(film.version(), Some(db.version_of(commit)));
    /// assert_eq!(film.expires(), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// Returns the expiry time of the record by the wall clock; `None` if it never expires, and for
    /// a value that the transaction itself wrote.
    pub fn expires(&self) -> Option<SystemTime> {
        self.expires_us.and_then(|us| expiry::wall_time(self.db.engine(), us))
    }

    /// Limits sequential read-ahead, which is the memory that the reader keeps: 1 MiB by default,
    /// and at least 64 KiB. For programs with thousands of readers.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = braiddb::Db::in_memory()?;
    /// # let films = db.tree("films")?;
    /// # films.put_stream(b"1", &mut std::io::repeat(7).take(3_000_000))?;
    /// use std::io::Read;
    ///
    /// let film = films.stream(b"1")?.expect("it was put");
    /// let mut film = film.with_read_ahead(128 << 10);
    /// assert_eq!(film.read_to_end(&mut Vec::new())?, 3_000_000);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_read_ahead(self, bytes_max: u64) -> StreamReader {
        StreamReader { ahead_max: bytes_max, ..self }
    }

    /// Reads a byte range, clipped to the value's length, without moving the position.
    pub fn read_range(&mut self, range: Range<u64>) -> Result<Vec<u8>> {
        let range = range.start.min(self.len)..range.end.min(self.len);
        let mut part = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let bytes = self.bytes_at(at)?;
            let now = bytes.len().min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
            part.extend_from_slice(&bytes[..now]);
            at += now as u64;
        }
        Ok(part)
    }

    /// Returns at least one byte; `at` is before the end.
    fn bytes_at(&mut self, at: u64) -> Result<&[u8]> {
        let buffered = self.buffer_at..self.buffer_at + self.buffer.len() as u64;
        let is_whole = matches!(self.source, Source::Whole(_));
        if !is_whole && !buffered.contains(&at) {
            self.ahead = if at == buffered.end && at > 0 { (2 * self.ahead).min(self.ahead_max) } else { 0 };
            self.ahead = self.ahead.max(BLOB_CHUNK_LEN as u64);
            self.buffer.clear();
            self.fill(at)?;
        }
        let bytes = if let Source::Whole(value) = &self.source { value } else { &self.buffer };
        let from = usize::try_from(at - self.buffer_at).unwrap_or(usize::MAX);
        Ok(bytes.get(from..).unwrap_or_default())
    }

    fn fill(&mut self, at: u64) -> Result<()> {
        self.go_over()?;
        let (pieces, starts) = match &self.source {
            Source::Stored { pieces, starts, .. } | Source::Own { pieces, starts, .. } => (pieces, starts),
            Source::Whole(_) => return Ok(()),
        };
        let index = starts.partition_point(|start| *start <= at).saturating_sub(1);
        let (Some(piece), Some(start)) = (pieces.list.get(index), starts.get(index)) else { return Ok(()) };
        // Part of a chunk costs as much.
        let from = (at - start) / BLOB_CHUNK_LEN as u64 * BLOB_CHUNK_LEN as u64;
        let part = from..(from + self.ahead).min(piece.len);
        self.buffer = self.db.engine().storage.blobs.file(piece.file)?.read_range(piece, part)?;
        self.buffer_at = start + from;
        if self.buffer_at + self.buffer.len() as u64 <= at {
            Err(self.db.engine().storage.blobs.misunderstood())
        } else {
            Ok(())
        }
    }

    /// Switches to the latest state: pieces may have moved, and the old state pins removed files.
    fn go_over(&mut self) -> Result<()> {
        let engine = self.db.engine();
        let is_open = engine.health.check_open();
        let Source::Stored { hold, key, state, pieces, starts } = &mut self.source else { return is_open };
        let is_present = Arc::ptr_eq(&engine.cell.state.load(), state);
        // Check after loading the state: see `SnapshotList`.
        if let Err(e) = is_open.and_then(|()| hold.check()) {
            *state = Arc::new(ReadState::empty());
            return Err(e);
        }
        if is_present {
            return Ok(());
        }
        let len = pieces.len();
        match find_value(engine, key, Some(hold))? {
            Some(Found { state: present, base: Base::Pieces(found), .. }) if found.len() == len => {
                *starts = starts_of(&found);
                (*state, *pieces) = (present, found);
                Ok(())
            }
            // A snapshot's values never change, only their location.
            _ => Err(engine.storage.blobs.misunderstood()),
        }
    }
}

fn to_io_error(error: Error) -> io::Error {
    io::Error::other(error)
}

impl Read for StreamReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() || self.position >= self.len {
            return Ok(0);
        }
        let bytes = self.bytes_at(self.position).map_err(to_io_error)?;
        let count = bytes.len().min(buf.len());
        buf[..count].copy_from_slice(&bytes[..count]);
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for StreamReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.len.checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        let before = || io::Error::new(io::ErrorKind::InvalidInput, "a seek to before the beginning");
        self.position = position.ok_or_else(before)?;
        Ok(self.position)
    }
}
