//! Large values as streams: written from a reader, appended to, and committed with whatever else a commit has.
//!
//! The bytes go to blob files as they come, once; what is committed is the list of where they stand. Until it is, nothing refers to
//! them: a stream that is given up, or that a crash cuts short, is space to be reclaimed, and no more.
//!
//! **Appends.** The new version of the key refers to pieces that an older version refers to. They are found, their files
//! are kept (see `blobs.rs`), and the new version is committed only if the key has not been written since the moment before it was
//! read; else all but what was read of the caller's is done again. So the pieces are those of the version that it follows. That
//! version may be merged away, moved or expire at any time: the files stay, since they are on their way, then since the commit has a
//! number above all that is flushed, and then since a run refers to them. Meanwhile a merge may move the older version's pieces to
//! other files. Then they stand twice, for as long as both versions do; each entry's references are right all the while.

use super::reader::StreamReader;
use crate::{
    base::{Error, ReaderKind, Result, SequenceNumber},
    commit::RawBatch,
    db::{
        engine::{catalog::TreeState, key::KeyBuf, read_hold::Hold, settings::Durability},
        handles::{
            batch::{Batch, commit},
            database::Db,
            snapshot::Snapshot,
            tree::Tree,
        },
        write::{
            conflict_window::ConflictWindowGuard,
            pending_blobs::PendingBlobs,
            piece_writer::{PieceWriter, Placed, Tail},
            pipeline::CommitCondition,
        },
    },
    txn::{Check, ReadSet},
};
use std::{
    io::{self, Read, Write},
    ops::Range,
    slice,
    sync::Arc,
};

/// Commits operations that refer to what was written before: see [`commit`].
pub(in crate::db) fn commit_streams(
    db: &Db,
    raw: RawBatch,
    trees: &[Arc<TreeState>],
    durability: Durability,
    condition: CommitCondition,
    streams: &[Arc<PendingBlobs>],
) -> Result<SequenceNumber> {
    for stream in streams {
        if !stream.is_of(db.engine()) {
            return Err(Error::InvalidArgument("a stream was written to another database".to_owned()));
        }
        stream.make_ready(durability)?;
    }
    let committed = commit(db, raw, trees, durability, condition);
    let sequence = match &committed {
        Ok(sequence) => Some(*sequence),
        // It has its number all the same, though it is not told.
        Err(e) if e.is_commit_unknown() => Some(db.engine().readers.snapshots.visible()),
        Err(_) => None,
    };
    if let Some(sequence) = sequence {
        streams.iter().for_each(|stream| stream.committed(sequence));
    }
    committed
}

/// A value that was written to blob files, for a key of a tree, and is to be committed with other writes: see [`Batch::put_stream`].
/// Dropped, it is given up.
pub struct PendingStream {
    tree: Tree,
    key: Vec<u8>,
    placed: Placed,
    pending: Arc<PendingBlobs>,
}

impl std::fmt::Debug for PendingStream {
    /// Without what is inside: see [`Db`](crate::Db).
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingStream").finish_non_exhaustive()
    }
}

impl PendingStream {
    /// The value's length in bytes.
    pub fn len(&self) -> u64 {
        self.placed.len
    }

    /// Whether the value is empty.
    pub fn is_empty(&self) -> bool {
        self.placed.len == 0
    }
}

/// Writes a value of a key from front to back, of up to 4 GiB - 1: see [`Tree::stream_writer`]. Nothing is seen of it before
/// [`StreamWriter::commit`]. Dropped without, it has not happened, and its space comes back. Takes about ten mebibytes of memory at
/// most, whatever the length. A failed write is for good: then drop it, and write anew.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::io::Write;
///
/// let db = braiddb::Db::in_memory()?;
/// let logs = db.tree("logs")?;
/// let mut writer = logs.stream_writer(b"today")?;
/// for line in 0..100_000 {
///     writeln!(writer, "line {line}")?;
/// }
/// writer.commit()?;
/// assert_eq!(logs.read_range(b"today", 7..13)?.as_deref(), Some(&b"line 1"[..]));
/// # Ok(())
/// # }
/// ```
pub struct StreamWriter {
    tree: Tree,
    key: Vec<u8>,
    pieces: PieceWriter,
}

impl std::fmt::Debug for StreamWriter {
    /// Without what is inside: see [`Db`](crate::Db).
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamWriter").finish_non_exhaustive()
    }
}

impl StreamWriter {
    fn new(tree: &Tree, key: &[u8]) -> Result<StreamWriter> {
        let internal = KeyBuf::of(tree.state(), key)?;
        tree.db().engine().health.check_writable()?;
        let pieces = PieceWriter::new(tree.db().engine(), internal, &tree.state().options.get());
        Ok(StreamWriter { tree: tree.clone(), key: key.to_vec(), pieces })
    }

    /// How many bytes were written so far.
    pub fn len(&self) -> u64 {
        self.pieces.len()
    }

    /// Whether none were.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends all that a reader has. If it fails, so does this, with [`Error::Aborted`] around what it said; so it does
    /// if it panics. Reads that are interrupted are tried again.
    pub fn read_from(&mut self, mut reader: impl Read) -> Result<()> {
        self.pieces.read_from(&mut reader)
    }

    /// Commits what was written as the value of the key, with the database's durability.
    pub fn commit(self) -> Result<SequenceNumber> {
        let durability = self.tree.db().engine().settings.durability;
        self.commit_with(durability)
    }

    /// The same with another durability.
    pub fn commit_with(self, durability: Durability) -> Result<SequenceNumber> {
        let db = self.tree.db().clone();
        let mut batch = Batch::default();
        batch.put_stream(self.finish()?);
        batch.commit(&db, durability)
    }

    /// Ends it, to be committed with other writes.
    pub fn finish(self) -> Result<PendingStream> {
        let StreamWriter { tree, key, pieces } = self;
        let (placed, pending) = pieces.finish()?;
        let placed = placed.expiring(tree.db().engine().default_expiry(tree.state()));
        Ok(PendingStream { tree, key, placed, pending: Arc::new(pending) })
    }

    /// Ends it, to be put or appended by a transaction.
    pub(in crate::db) fn into_pieces(self) -> PieceWriter {
        self.pieces
    }
}

impl Write for StreamWriter {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.pieces.write(buf).map_err(io::Error::other)?;
        Ok(buf.len())
    }

    /// Does nothing: what was written counts once it is committed.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Tree {
    /// Gives `key` the value that `reader` has, of up to 4 GiB - 1, in constant memory: see [`StreamWriter`]. What is less than a
    /// mebibyte is put as [`Tree::put`] would.
    pub fn put_stream(&self, key: impl AsRef<[u8]>, reader: impl Read) -> Result<SequenceNumber> {
        let mut writer = self.stream_writer(key)?;
        writer.read_from(reader)?;
        writer.commit()
    }

    /// Writes the value that `reader` has, to be committed for `key` with other writes.
    pub fn write_stream(&self, key: impl AsRef<[u8]>, reader: impl Read) -> Result<PendingStream> {
        let mut writer = self.stream_writer(key)?;
        writer.read_from(reader)?;
        writer.finish()
    }

    /// Begins a value of `key`.
    pub fn stream_writer(&self, key: impl AsRef<[u8]>) -> Result<StreamWriter> {
        StreamWriter::new(self, key.as_ref())
    }

    /// Appends all that `reader` has to the value of `key`; no value counts as empty. What is there is not read or written again,
    /// but for short pieces at its end. Atomic: if others write the key meanwhile, it is appended to what they have written.
    pub fn append_stream(&self, key: impl AsRef<[u8]>, reader: impl Read) -> Result<SequenceNumber> {
        let mut writer = self.stream_writer(&key)?;
        writer.read_from(reader)?;
        let (tail, written) = writer.pieces.into_tail()?;
        self.append_tail(&KeyBuf::of(self.state(), key.as_ref())?, &tail, Arc::new(written))
    }

    fn append_tail(&self, internal: &KeyBuf, tail: &Tail, written: Arc<PendingBlobs>) -> Result<SequenceNumber> {
        let engine = self.db().engine();
        let _window_guard = ConflictWindowGuard::new(engine);
        let mut retries = 0;
        loop {
            // Before the read: it is checked from here on.
            let visible = engine.readers.snapshots.visible();
            let mut pending = PendingBlobs::new(engine);
            let found = engine.find_and_pin(internal, None, &mut pending)?;
            let (base, expires_us) = found.map_or((None, None), |(base, expires_us)| (Some(base), expires_us));
            let expires_us = if base.is_none() { engine.default_expiry(self.state()) } else { expires_us };
            let placed = tail.onto(base, &mut pending)?.expiring(expires_us);
            let mut batch = RawBatch::default();
            batch.push(placed.kind, &[internal], &placed.value);
            batch.count_placed(tail.len());
            let mut reads = ReadSet::default();
            reads.add_key(internal);
            let condition = CommitCondition::Unchanged(Box::new(Check::new(reads, visible, None)));
            let durability = engine.settings.durability;
            let streams = [Arc::clone(&written), Arc::new(pending)];
            match commit_streams(self.db(), batch, slice::from_ref(self.state()), durability, condition, &streams) {
                Err(e) if e.is_conflict() => self.db().pause(retries, e)?,
                committed => return committed,
            }
            retries += 1;
        }
    }

    /// The value of `key`, to be read a part at a time, as of now; of any value, however it was written.
    pub fn stream(&self, key: impl AsRef<[u8]>) -> Result<Option<StreamReader>> {
        let key = KeyBuf::of(self.state(), key.as_ref())?;
        StreamReader::open(self.db(), key, Hold::now(self.db().engine(), ReaderKind::Stream))
    }

    /// A part of the value of `key`; what lies past its end is left out.
    pub fn read_range(&self, key: impl AsRef<[u8]>, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        self.stream(key)?.map(|mut stream| stream.read_range(range)).transpose()
    }
}

impl Snapshot {
    /// The value that `key` had, to be read a part at a time: see [`Tree::stream`].
    pub fn stream(&self, tree: &Tree, key: impl AsRef<[u8]>) -> Result<Option<StreamReader>> {
        self.check_tree(tree.state())?;
        let key = KeyBuf::of(tree.state(), key.as_ref())?;
        StreamReader::open(self.db(), key, self.hold().clone())
    }

    /// A part of the value that `key` had; what lies past its end is left out.
    pub fn read_range(&self, tree: &Tree, key: impl AsRef<[u8]>, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        self.stream(tree, key)?.map(|mut stream| stream.read_range(range)).transpose()
    }
}

impl Batch {
    /// Gives the key that a stream was written for its value.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// use braiddb::Durability;
    ///
    /// let db = braiddb::Db::in_memory()?;
    /// let (films, titles) = (db.tree("films")?, db.tree("titles")?);
    /// let film = films.write_stream(b"1", &mut std::io::empty())?;
    /// let mut batch = db.batch();
    /// batch.put(&titles, b"1", b"The Void").put_stream(film);
    /// db.write(batch, Durability::Sync)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_stream(&mut self, stream: PendingStream) -> &mut Batch {
        let PendingStream { tree, key, placed, pending } = stream;
        self.push_placed(&tree, &key, &placed, pending);
        self
    }
}
