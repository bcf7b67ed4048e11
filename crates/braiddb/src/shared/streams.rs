//! Values that a member writes in parts.
//!
//! The member sends parts of [`PART_BYTES`] to the owner, which writes them to blob files and keeps
//! them for the commit (`held.rs`). A value of one part is an ordinary put. Both processes need memory
//! for a part only.

use super::{
    core::Core,
    database::logged,
    message::{Reply, Request},
    seat::Seat,
    tree::SharedTree,
};
use crate::{
    base::{Error, Result, SequenceNumber, TreeId},
    db::{Durability, Placed, StreamReader, StreamWriter},
};
use std::{
    fmt,
    io::{self, Read, Write},
    ops::Range,
    sync::Arc,
};

/// Bytes of a part.
const PART_BYTES: usize = 256 << 10;

/// A tree's number, and a key.
type Place<'a> = (TreeId, &'a [u8]);

/// The end of a value: the value, or its entry.
pub(super) enum Ended {
    Short(Vec<u8>),
    Placed(Placed),
}

/// A value that is sent to the owner.
#[derive(Debug, Default)]
struct Parts {
    /// The last part.
    buffer: Vec<u8>,
    is_begun: bool,
    has_failed: bool,
}

impl Parts {
    /// Sends the parts that are full. Returns false if this process is the owner, which happens
    /// before the first one only.
    fn send_full(&mut self, core: &Arc<Core>, seat: &mut Option<Seat>, place: Place<'_>) -> Result<bool> {
        if self.has_failed {
            return Err(Error::InvalidArgument("the stream has failed before: write it again".to_owned()));
        }
        if self.buffer.len() < PART_BYTES {
            return Ok(true);
        }
        let sent = self.send(core, seat, place);
        self.has_failed = sent.is_err();
        sent
    }

    fn send(&mut self, core: &Arc<Core>, seat: &mut Option<Seat>, (tree, key): Place<'_>) -> Result<bool> {
        if !self.is_begun {
            let begin = || Request::Stream { tree, key: key.to_vec() };
            match seat {
                Some(seat) => drop(seat.exchange(&begin())?),
                None => *seat = Seat::take(core, core.deadline(), |_| begin())?,
            }
            self.is_begun = seat.is_some();
        }
        let Some(seat) = seat else { return Ok(false) };
        seat.exchange(&Request::Part(std::mem::take(&mut self.buffer))).map(|_| true)
    }

    fn end(mut self, core: &Arc<Core>, seat: &mut Option<Seat>, place: Place<'_>) -> Result<Ended> {
        self.send_full(core, seat, place)?;
        if !self.is_begun {
            return Ok(Ended::Short(self.buffer));
        }
        if !self.buffer.is_empty() {
            self.send(core, seat, place)?;
        }
        match seat.as_mut().ok_or(Error::Closed)?.exchange(&Request::EndStream)? {
            Reply::Placed(placed) => Ok(Ended::Placed(placed)),
            _ => Err(Error::conflict("the owner lost the stream")),
        }
    }

    /// Appends up to a part. Returns false at the end of `reader`.
    fn fill(&mut self, reader: &mut impl Read) -> Result<bool> {
        let mut filled = self.buffer.len();
        self.buffer.resize(PART_BYTES.max(filled), 0);
        let done = loop {
            let room = &mut self.buffer[filled..];
            if room.is_empty() {
                break Ok(true);
            }
            match reader.read(room) {
                Ok(0) => break Ok(false),
                Ok(count) if count <= room.len() => filled += count,
                Ok(_) => break Err(Error::InvalidArgument("a reader says it has read more than fits".to_owned())),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // A reader of a database's stream returns the database's own error inside.
                Err(e) => break Err(e.downcast::<Error>().unwrap_or_else(Error::abort)),
            }
        };
        self.buffer.truncate(filled);
        self.has_failed |= done.is_err();
        done
    }
}

/// Sends the contents of a reader for a transaction, whose seat this may be.
pub(super) fn send(
    core: &Arc<Core>,
    seat: &mut Option<Seat>,
    place: Place<'_>,
    mut reader: impl Read,
) -> Result<Ended> {
    let mut parts = Parts::default();
    while parts.fill(&mut reader)? {
        if !parts.send_full(core, seat, place)? {
            return Err(Error::conflict("this process became the owner after the transaction began"));
        }
    }
    parts.end(core, seat, place)
}

/// Writes a value of up to 4 GiB - 1 sequentially: see [`SharedTree::stream_writer`]. Dropped
/// without [`SharedStreamWriter::commit`], it discards the value. After a failed write, drop it and
/// start again: also after a conflict, which is the end of the owner meanwhile.
pub struct SharedStreamWriter {
    tree: SharedTree,
    key: Vec<u8>,
    sink: Sink,
    len: u64,
}

enum Sink {
    Own(StreamWriter),
    Sent(Parts, Option<Seat>),
}

impl fmt::Debug for SharedStreamWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedStreamWriter").field("tree", &self.tree).field("len", &self.len).finish_non_exhaustive()
    }
}

impl SharedStreamWriter {
    fn core(&self) -> &Arc<Core> {
        self.tree.database().core()
    }

    /// Returns the number of bytes written.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends bytes.
    fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = match &self.sink {
                Sink::Own(_) => bytes.len(),
                Sink::Sent(parts, _) => PART_BYTES.saturating_sub(parts.buffer.len()),
            };
            let (part, rest) = bytes.split_at(room.min(bytes.len()));
            match &mut self.sink {
                Sink::Own(writer) => writer.write_all(part).map_err(of_write)?,
                Sink::Sent(parts, _) => parts.buffer.extend_from_slice(part),
            }
            self.len += part.len() as u64;
            bytes = rest;
            self.send_full()?;
        }
        Ok(())
    }

    fn send_full(&mut self) -> Result<()> {
        let core = Arc::clone(self.core());
        let Sink::Sent(parts, seat) = &mut self.sink else { return Ok(()) };
        if parts.send_full(&core, seat, (self.tree.id(), &self.key))? {
            return Ok(());
        }
        // This process has become the owner.
        let begun = std::mem::take(&mut parts.buffer);
        let owner = core.await_role(core.deadline())?.ok_or(Error::Closed)?;
        let mut writer = self.tree.in_state(owner.db())?.stream_writer(&self.key)?;
        writer.write_all(&begun).map_err(of_write)?;
        self.sink = Sink::Own(writer);
        Ok(())
    }

    /// Appends the contents of `reader`. A reader that fails gives [`Error::Aborted`].
    pub fn read_from(&mut self, mut reader: impl Read) -> Result<()> {
        loop {
            let (before, is_over) = match &mut self.sink {
                Sink::Own(writer) => {
                    let before = writer.len();
                    writer.read_from(&mut reader)?;
                    self.len += writer.len() - before;
                    return Ok(());
                }
                Sink::Sent(parts, _) => (parts.buffer.len(), !parts.fill(&mut reader)?),
            };
            if let Sink::Sent(parts, _) = &self.sink {
                self.len += (parts.buffer.len() - before) as u64;
            }
            self.send_full()?;
            if is_over {
                return Ok(());
            }
        }
    }

    /// Commits the value with the database's durability.
    pub fn commit(self) -> Result<SequenceNumber> {
        let durability = self.tree.database().durability();
        self.commit_with(durability)
    }

    /// Commits the value with the given durability.
    pub fn commit_with(self, durability: Durability) -> Result<SequenceNumber> {
        let SharedStreamWriter { tree, key, sink, .. } = self;
        let (db, durability) = (tree.database(), logged(durability));
        let core = db.core();
        core.check_process()?;
        let deadline = core.deadline();
        let (parts, mut seat) = match sink {
            Sink::Own(writer) => {
                let owner = core.owner().ok_or(Error::Closed)?;
                owner.await_room(|| deadline.ends_ns)?;
                return owner.db().waiting_until(deadline.ends_ns, |_| writer.commit_with(durability));
            }
            Sink::Sent(parts, seat) => (parts, seat),
        };
        match parts.end(core, &mut seat, (tree.id(), &key))? {
            Ended::Short(value) => tree.put_with(key, value, durability),
            Ended::Placed(placed) => {
                let state = db.any_state()?;
                let mut batch = state.batch();
                batch.put_placed_elsewhere(&tree.in_state(&state)?, &key, placed);
                seat.ok_or(Error::Closed)?.commit(batch.into_forwarded()?, durability, deadline)
            }
        }
    }
}

impl Write for SharedStreamWriter {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.append(buf).map_err(io::Error::other)?;
        Ok(buf.len())
    }

    /// Does nothing: only a commit makes the value durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn of_write(error: io::Error) -> Error {
    error.downcast::<Error>().unwrap_or_else(|error| Error::io("write", "a stream", error))
}

impl SharedTree {
    /// Sets the value of `key` to the contents of `reader`, up to 4 GiB - 1, in constant memory of
    /// this process and of the owner. Each part has the timeout. If the owner ends meanwhile, it
    /// fails with [`Error::Conflict`]: write the value again.
    pub fn put_stream(&self, key: impl AsRef<[u8]>, reader: impl Read) -> Result<SequenceNumber> {
        let mut writer = self.stream_writer(key)?;
        writer.read_from(reader)?;
        writer.commit()
    }

    /// Begins writing a value of `key` in parts.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # if !cfg!(any(unix, windows)) { return Ok(()) }
    /// # let dir = std::env::temp_dir().join(format!("braiddb-doc-shared-stream-{}", std::process::id()));
    /// use std::io::Write;
    ///
    /// let db = braiddb::Db::builder().open_shared(&dir)?;
    /// let logs = db.tree("logs")?;
    /// let mut writer = logs.stream_writer("today")?;
    /// for line in 0..100_000 {
    ///     writeln!(writer, "line {line}")?;
    /// }
    /// writer.commit()?;
    /// assert_eq!(logs.read_range("today", 7..13)?.as_deref(), Some(&b"line 1"[..]));
    /// # db.close()?;
    /// # std::fs::remove_dir_all(dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    pub fn stream_writer(&self, key: impl AsRef<[u8]>) -> Result<SharedStreamWriter> {
        let core = self.database().core();
        core.check_process()?;
        let key = key.as_ref().to_vec();
        let sink = match core.owner() {
            Some(owner) => Sink::Own(self.in_state(owner.db())?.stream_writer(&key)?),
            None => Sink::Sent(Parts::default(), None),
        };
        Ok(SharedStreamWriter { tree: self.clone(), key, sink, len: 0 })
    }

    /// Opens any value for reading in parts. In a member it fails with [`Error::Superseded`] after
    /// ten minutes.
    pub fn stream(&self, key: impl AsRef<[u8]>) -> Result<Option<StreamReader>> {
        self.now()?.stream(key)
    }

    /// Reads a byte range, clipped to the value's length.
    pub fn read_range(&self, key: impl AsRef<[u8]>, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        self.now()?.read_range(key, range)
    }
}
