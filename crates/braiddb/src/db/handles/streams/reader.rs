//! Reading a value from wherever one likes, a part at a time.

use crate::{
    base::{Content, EntryKind, Error, Result},
    db::{
        engine::{key::KeyBuf, read_hold::Hold, root::Engine},
        handles::database::Db,
        read::merge_operands::FoundOperands,
        write::{pending_blobs::PendingBlobs, piece_writer::Base},
    },
    read::{self, ReadState},
    table::blob::{BLOB_CHUNK_LEN, BlobRef, Pieces},
};
use std::{
    fmt,
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
    sync::Arc,
};

/// The most that is read at once, where one part is read after the other. The least is a chunk.
const AHEAD_MAX: u64 = 1 << 20;

/// A value, and where it was found.
#[derive(Debug)]
pub struct Found {
    /// Holds the blob files.
    pub state: Arc<ReadState>,
    pub base: Base,
    /// When it expires, if it does.
    pub expires_us: Option<u64>,
}

/// Where a reader has its bytes from.
enum Source {
    /// All of them are here.
    Whole(Vec<u8>),
    /// Pieces of an entry of the database, and where each begins.
    Stored { hold: Hold, key: KeyBuf, state: Arc<ReadState>, pieces: Pieces, starts: Vec<u64> },
    /// Pieces that a transaction has written, and not committed yet.
    Own { pieces: Pieces, starts: Vec<u64>, _pending: PendingBlobs },
}

/// Reads a value as of one moment, a part at a time: [`Read`] and [`Seek`]. Takes about a mebibyte of memory, whatever the
/// value's length, if the value stands in blob files.
///
/// It keeps what was overwritten meanwhile, as a snapshot does; and until it reads on, the files and memtables that it read from last, though
/// nobody else needs them any more: so do not leave it lying about. It expires as a snapshot does: then reads fail with an [`io::Error`] around
/// [`crate::Error::ReaderExpired`].
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
    position: u64,
    /// A part of the value, and where it begins.
    buffer: Vec<u8>,
    buffer_at: u64,
    /// How much is read next.
    ahead: u64,
}

impl fmt::Debug for StreamReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamReader").field("len", &self.len).field("position", &self.position).finish()
    }
}

impl Engine {
    /// What a key has at a snapshot, or now. Large values are not read, but where operands are merged into them.
    pub fn find_value(&self, key: &[u8], hold: Option<&Hold>) -> Result<Option<Found>> {
        self.health.check_open()?;
        self.healing(|| {
            let (state, at) = self.state_for(hold)?;
            let state = Arc::clone(&state);
            let (kind, sequence, value) = {
                let guard = crossbeam_epoch::pin();
                match read::get(&state, key, at, &guard)? {
                    None => return Ok(None),
                    Some(entry) => (entry.kind, entry.sequence, entry.value.to_vec()),
                }
            };
            let content = Content::of(kind, &value).ok_or_else(|| self.storage.blobs.misunderstood())?;
            let now_us = self.time_of(hold);
            if content.expires_us.is_some_and(|expires_us| expires_us <= now_us) {
                return Ok(None);
            }
            let mut expires_us = content.expires_us;
            let base = match content.kind {
                EntryKind::BlobRef | EntryKind::Stream => {
                    Base::Pieces(Pieces::of(&content).ok_or_else(|| self.storage.blobs.misunderstood())?)
                }
                EntryKind::Merge => {
                    let operands = FoundOperands { key: key.to_vec(), sequence, operands: value.clone() };
                    let (value, end_beneath) = self.merged(&state, &operands, now_us)?;
                    // An append makes one value of both, which ends with the value beneath.
                    expires_us = end_beneath;
                    Base::Value(value)
                }
                _ => Base::Value(content.value.to_vec()),
            };
            Ok(Some(Found { state, base, expires_us }))
        })
    }

    /// The same, with the files of its pieces on their way with those of a commit, which may then refer to them.
    pub fn find_and_pin(
        &self,
        key: &[u8],
        hold: Option<&Hold>,
        pending: &mut PendingBlobs,
    ) -> Result<Option<(Base, Option<u64>)>> {
        loop {
            let Some(Found { state, base, expires_us }) = self.find_value(key, hold)? else { return Ok(None) };
            let is_pinned = match &base {
                Base::Value(_) => true,
                Base::Pieces(pieces) => pending.pin(pieces),
            };
            if is_pinned {
                return Ok(Some((base, expires_us)));
            }
            // A file was let go of, and the state that does without it was published before: so there is another now.
            if Arc::ptr_eq(&self.cell.state.load(), &state) {
                return Err(Error::corruption(&self.dir, 0, "a blob file is missing that an entry refers to"));
            }
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
    /// The value of an internal key at what is held; `None` if it has none.
    pub(in crate::db) fn open(db: &Db, key: KeyBuf, hold: Hold) -> Result<Option<StreamReader>> {
        let Some(Found { state, base, .. }) = db.engine().find_value(&key, Some(&hold))? else { return Ok(None) };
        Ok(Some(match base {
            Base::Value(value) => StreamReader::whole(db, value),
            Base::Pieces(pieces) => {
                let (len, starts) = (pieces.len(), starts_of(&pieces));
                StreamReader::over(db, len, Source::Stored { hold, key, state, pieces, starts })
            }
        }))
    }

    /// Over a value that is in memory.
    pub(in crate::db) fn whole(db: &Db, value: Vec<u8>) -> StreamReader {
        StreamReader::over(db, value.len() as u64, Source::Whole(value))
    }

    /// Over pieces whose files are on their way.
    pub(in crate::db) fn own(db: &Db, pieces: Pieces, pending: PendingBlobs) -> StreamReader {
        let (len, starts) = (pieces.len(), starts_of(&pieces));
        StreamReader::over(db, len, Source::Own { pieces, starts, _pending: pending })
    }

    fn over(db: &Db, len: u64, source: Source) -> StreamReader {
        StreamReader { db: db.clone(), source, len, position: 0, buffer: Vec::new(), buffer_at: 0, ahead: 0 }
    }

    /// The value's length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the value is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A part of the value; what lies past its end is left out. Where the reader stands does not count, and is left as it is.
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

    /// Some bytes from `at` on, which is before the end: at least one.
    fn bytes_at(&mut self, at: u64) -> Result<&[u8]> {
        let buffered = self.buffer_at..self.buffer_at + self.buffer.len() as u64;
        let is_whole = matches!(self.source, Source::Whole(_));
        if !is_whole && !buffered.contains(&at) {
            self.ahead = if at == buffered.end && at > 0 { (2 * self.ahead).min(AHEAD_MAX) } else { 0 };
            self.ahead = self.ahead.max(BLOB_CHUNK_LEN as u64);
            self.buffer.clear();
            self.fill(at)?;
        }
        let bytes = if let Source::Whole(value) = &self.source { value } else { &self.buffer };
        let from = usize::try_from(at - self.buffer_at).unwrap_or(usize::MAX);
        Ok(bytes.get(from..).unwrap_or_default())
    }

    /// Reads the part with `at` into the buffer.
    fn fill(&mut self, at: u64) -> Result<()> {
        self.go_over()?;
        let (pieces, starts) = match &self.source {
            Source::Stored { pieces, starts, .. } | Source::Own { pieces, starts, .. } => (pieces, starts),
            Source::Whole(_) => return Ok(()),
        };
        let index = starts.partition_point(|start| *start <= at).saturating_sub(1);
        let (Some(piece), Some(start)) = (pieces.list.get(index), starts.get(index)) else { return Ok(()) };
        // Whole chunks: a part of one would have to be read as a whole anyway.
        let from = (at - start) / BLOB_CHUNK_LEN as u64 * BLOB_CHUNK_LEN as u64;
        let part = from..(from + self.ahead).min(piece.len);
        self.buffer = self.db.engine().storage.blobs.file(piece.file)?.read_range(piece, part)?;
        self.buffer_at = start + from;
        // Each read gets on.
        if self.buffer_at + self.buffer.len() as u64 <= at {
            Err(self.db.engine().storage.blobs.misunderstood())
        } else {
            Ok(())
        }
    }

    /// Goes over to the present state, if it is another than that in which the pieces were found: they may have been moved, and
    /// who kept the old state would keep all that has gone since.
    fn go_over(&mut self) -> Result<()> {
        let engine = self.db.engine();
        let is_open = engine.health.check_open();
        let Source::Stored { hold, key, state, pieces, starts } = &mut self.source else { return is_open };
        let is_present = Arc::ptr_eq(&engine.cell.state.load(), state);
        // After the state was loaded: see `SnapshotList`.
        if let Err(e) = is_open.and_then(|()| hold.check()) {
            *state = Arc::new(ReadState::empty());
            return Err(e);
        }
        if is_present {
            return Ok(());
        }
        let len = pieces.len();
        match engine.find_value(key, Some(hold))? {
            Some(Found { state: present, base: Base::Pieces(found), .. }) if found.len() == len => {
                *starts = starts_of(&found);
                (*state, *pieces) = (present, found);
                Ok(())
            }
            // What is held does not change, but where it stands.
            _ => Err(engine.storage.blobs.misunderstood()),
        }
    }
}

fn told(error: Error) -> io::Error {
    io::Error::other(error)
}

impl Read for StreamReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() || self.position >= self.len {
            return Ok(0);
        }
        let bytes = self.bytes_at(self.position).map_err(told)?;
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
