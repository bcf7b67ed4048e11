//! Streams: large values written to blob files, then committed by reference.
//!
//! A commit stores only the list of pieces. Until then nothing refers to them: an abandoned stream,
//! or one cut short by a crash, is reclaimable space.
//!
//! **Appends.** An append refers to pieces of the old version. It pins their files and commits only
//! if the key is unchanged since before the read; a conflict repeats all but reading the caller's
//! input. The old version may be merged away, moved or expire at any time. Its files stay: first
//! pinned as pending, then because the commit's number is above all flushed ones, then because a
//! run refers to them. If a merge copies the old version's pieces meanwhile, both copies exist as
//! long as both versions do.

use super::reader::{self, StreamReader};
use crate::{
    base::{Error, ReaderKind, Result, SequenceNumber},
    commit::RawBatch,
    db::{
        engine::{
            catalog::TreeState, key::KeyBuf, read_hold::Hold, settings::Durability, slow_commits::timer::CommitTimer,
        },
        handles::{
            batch::{Batch, commit_timed, timed},
            database::Db,
            expiry,
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
    time::Duration,
};

pub(in crate::db) fn commit_streams(
    db: &Db,
    timer: &mut CommitTimer,
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
        stream.make_ready(timer, durability)?;
    }
    let committed = commit_timed(db, timer, raw, trees, durability, condition);
    let sequence = match &committed {
        Ok(sequence) => Some(*sequence),
        // The commit has a number, although the caller does not learn it.
        Err(e) if e.is_commit_unknown() => Some(db.engine().readers.snapshots.visible()),
        Err(_) => None,
    };
    if let Some(sequence) = sequence {
        streams.iter().for_each(|stream| stream.committed(sequence));
    }
    committed
}

/// A value in blob files, not committed yet: see [`Batch::put_stream`] and
/// [`Transaction::put_pending_stream`](crate::Transaction::put_pending_stream). Dropping it discards the
/// value.
pub struct PendingStream {
    tree: Tree,
    key: Vec<u8>,
    /// Without the expiry time.
    placed: Placed,
    expires_us: Option<u64>,
    pending: Arc<PendingBlobs>,
}

impl std::fmt::Debug for PendingStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingStream").finish_non_exhaustive()
    }
}

impl PendingStream {
    /// Returns the value's length in bytes.
    pub fn len(&self) -> u64 {
        self.placed.len
    }

    /// Returns true if empty.
    pub fn is_empty(&self) -> bool {
        self.placed.len == 0
    }

    /// Sets the time to live from now on, instead of that of the tree: see [`Tree::put_with_ttl`].
    pub fn with_ttl(mut self, ttl: Duration) -> PendingStream {
        self.expires_us = Some(expiry::expiry_after(self.tree.db().engine(), ttl));
        self
    }

    /// Makes the value's files durable. Without it, an asynchronous commit leaves that to the log
    /// sync, where the commits of other threads wait for it.
    pub fn sync(&self) -> Result<()> {
        self.pending.sync()
    }

    pub(in crate::db) fn into_parts(self) -> (Tree, Vec<u8>, Placed, Arc<PendingBlobs>) {
        (self.tree, self.key, self.placed.expiring(self.expires_us), self.pending)
    }
}

/// Writes a value of up to 4 GiB - 1 sequentially: see [`Tree::stream_writer`]. Dropped without
/// [`StreamWriter::commit`], it discards the value. Uses up to about 10 MiB of memory. After a
/// failed write, drop it and start again.
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

    /// Returns the number of bytes written.
    pub fn len(&self) -> u64 {
        self.pieces.len()
    }

    /// Returns true if empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the contents of `reader`, retrying interrupted reads. A reader that fails or panics
    /// gives [`Error::Aborted`].
    pub fn read_from(&mut self, mut reader: impl Read) -> Result<()> {
        self.pieces.read_from(&mut reader)
    }

    /// Commits the value with the database's durability.
    pub fn commit(self) -> Result<SequenceNumber> {
        let durability = self.tree.db().engine().settings.durability;
        self.commit_with(durability)
    }

    /// Commits the value with the given durability.
    pub fn commit_with(self, durability: Durability) -> Result<SequenceNumber> {
        let mut batch = self.tree.db().batch();
        batch.put_stream(self.finish()?);
        batch.commit_with(durability)
    }

    /// Ends the value, for a commit with other writes.
    pub fn finish(self) -> Result<PendingStream> {
        let StreamWriter { tree, key, pieces } = self;
        let (placed, pending) = pieces.finish()?;
        let expires_us = expiry::default_expiry(tree.db().engine(), tree.state());
        Ok(PendingStream { tree, key, placed, expires_us, pending: Arc::new(pending) })
    }

    /// Ends the value, without an expiry time. Also returns its internal key.
    pub(in crate::db) fn into_placed(self) -> Result<(KeyBuf, Placed, PendingBlobs)> {
        let key = KeyBuf::of(self.tree.state(), &self.key)?;
        let (placed, pending) = self.pieces.finish()?;
        Ok((key, placed, pending))
    }

    pub(in crate::db) fn into_pieces(self) -> PieceWriter {
        self.pieces
    }
}

impl Write for StreamWriter {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.pieces.write(buf).map_err(io::Error::other)?;
        Ok(buf.len())
    }

    /// Does nothing: only a commit makes the value durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Tree {
    /// Sets the value of `key` to the contents of `reader`, up to 4 GiB - 1, in constant memory.
    /// Values below 1 MiB are stored as by [`Tree::put`].
    pub fn put_stream(&self, key: impl AsRef<[u8]>, reader: impl Read) -> Result<SequenceNumber> {
        let mut writer = self.stream_writer(key)?;
        writer.read_from(reader)?;
        writer.commit()
    }

    /// Writes the contents of `reader`, for a commit with other writes.
    pub fn write_stream(&self, key: impl AsRef<[u8]>, reader: impl Read) -> Result<PendingStream> {
        let mut writer = self.stream_writer(key)?;
        writer.read_from(reader)?;
        writer.finish()
    }

    /// Begins writing a value of `key`.
    pub fn stream_writer(&self, key: impl AsRef<[u8]>) -> Result<StreamWriter> {
        StreamWriter::new(self, key.as_ref())
    }

    /// Appends the contents of `reader` atomically; an absent value counts as empty. Rewrites only
    /// short pieces at the end of the existing value.
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
            // Before the read: the commit checks the key from this number on.
            let visible = engine.readers.snapshots.visible();
            let mut pending = PendingBlobs::new(engine);
            let found = reader::find_and_pin(engine, internal, None, &mut pending)?;
            let (base, expires_us) = found.map_or((None, None), |(base, expires_us)| (Some(base), expires_us));
            let expires_us = if base.is_none() { expiry::default_expiry(engine, self.state()) } else { expires_us };
            let placed = tail.onto(base, &mut pending)?.expiring(expires_us);
            let mut batch = RawBatch::default();
            batch.push(placed.kind, &[internal], &placed.value);
            batch.count_placed(tail.len());
            let mut reads = ReadSet::default();
            reads.add_key(internal);
            let condition = CommitCondition::Unchanged(Box::new(Check::new(reads, visible, None)));
            let durability = engine.settings.durability;
            let streams = [Arc::clone(&written), Arc::new(pending)];
            let trees = slice::from_ref(self.state());
            let committed =
                timed(engine, |timer| commit_streams(self.db(), timer, batch, trees, durability, condition, &streams));
            match committed {
                Err(e) if e.is_conflict() => self.db().pause(retries, e)?,
                committed => return committed,
            }
            retries += 1;
        }
    }

    /// Opens any value for reading in parts.
    pub fn stream(&self, key: impl AsRef<[u8]>) -> Result<Option<StreamReader>> {
        let key = KeyBuf::of(self.state(), key.as_ref())?;
        StreamReader::open(self.db(), key, Hold::now(self.db().engine(), ReaderKind::Stream))
    }

    /// Reads a byte range, clipped to the value's length.
    pub fn read_range(&self, key: impl AsRef<[u8]>, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        self.stream(key)?.map(|mut stream| stream.read_range(range)).transpose()
    }
}

impl Snapshot {
    /// Opens a value for reading in parts.
    pub fn stream(&self, tree: &Tree, key: impl AsRef<[u8]>) -> Result<Option<StreamReader>> {
        self.check_tree(tree.state())?;
        let key = KeyBuf::of(tree.state(), key.as_ref())?;
        StreamReader::open(self.db(), key, self.hold().clone())
    }

    /// Reads a byte range, clipped to the value's length.
    pub fn read_range(&self, tree: &Tree, key: impl AsRef<[u8]>, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        self.stream(tree, key)?.map(|mut stream| stream.read_range(range)).transpose()
    }
}

impl Batch {
    /// Sets the stream's key to its value.
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
    /// batch.commit_with(Durability::Sync)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_stream(&mut self, stream: PendingStream) -> &mut Batch {
        let (tree, key, placed, pending) = stream.into_parts();
        self.push_placed(&tree, &key, &placed, pending);
        self
    }
}
