//! What the owner keeps for a connection between two of its requests.
//!
//! INVARIANT S4: it ends with the connection, and so with the process at the other end. A client
//! that connects again has none of it: its exclusive commit, or one with streams, is then a conflict.
//!
//! Memory: a stream that is being written takes up to about 10 MiB, so [`STREAMS_MAX`] limits them. The
//! entries of ended ones are limited as those of a transaction.

use super::owner::Owner;
use crate::{
    base::{Error, Result, SequenceNumber, TreeId},
    db::{ExclusiveRight, ForwardedStream, Kept, Placed, StreamWriter},
};
use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Maximum streams that members write at a time.
const STREAMS_MAX: usize = 64;

#[derive(Debug, Default)]
pub struct Held {
    right: Option<ExclusiveRight>,
    writing: Option<(StreamWriter, Slot)>,
    /// For the next commit.
    streams: Vec<ForwardedStream>,
}

/// The number of streams that members write.
#[derive(Clone, Debug, Default)]
pub struct Streams(Arc<AtomicUsize>);

#[derive(Debug)]
struct Slot(Streams);

impl Slot {
    fn take(owner: &Owner) -> Result<Slot> {
        let streams = owner.streams().clone();
        if streams.0.fetch_add(1, Ordering::Relaxed) < STREAMS_MAX {
            return Ok(Slot(streams));
        }
        drop(Slot(streams));
        let reason = Error::InvalidArgument(format!("{STREAMS_MAX} streams are being written"));
        Err(Error::too_busy(owner.db().dir(), 1, Duration::ZERO, reason))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Held {
    /// Waits for the exclusive right, at most until `ends_ns`. Returns a commit that the client must
    /// see.
    pub fn begin(&mut self, owner: &Owner, ends_ns: u64) -> Result<SequenceNumber> {
        self.end();
        self.right = Some(owner.db().waiting_until(ends_ns, |db| db.exclusive_right())?);
        Ok(owner.db().logged())
    }

    pub fn begin_stream(&mut self, owner: &Owner, tree: TreeId, key: &[u8]) -> Result<SequenceNumber> {
        self.writing = None;
        let slot = Slot::take(owner)?;
        self.writing = Some((owner.db().tree_numbered(tree)?.stream_writer(key)?, slot));
        Ok(0)
    }

    pub fn write(&mut self, part: &[u8]) -> Result<SequenceNumber> {
        let (writer, _) = self.writing.as_mut().ok_or_else(no_stream)?;
        let written = writer.write_all(part).map_err(|e| match e.downcast::<Error>() {
            Ok(error) => error,
            Err(e) => Error::io("write", "a stream", e),
        });
        if written.is_err() {
            self.writing = None;
        }
        written.map(|()| 0)
    }

    pub fn end_stream(&mut self, owner: &Owner) -> Result<Placed> {
        let (writer, _slot) = self.writing.take().ok_or_else(no_stream)?;
        let stream = writer.finish_forwarded()?;
        let bytes = self.streams.iter().chain([&stream]).map(ForwardedStream::size_bytes).sum();
        let bytes_max = owner.db().transaction_bytes_max();
        if bytes > bytes_max {
            return Err(Error::TransactionTooLarge { bytes, bytes_max });
        }
        let placed = stream.placed().clone();
        self.streams.push(stream);
        Ok(placed)
    }

    pub fn end(&mut self) {
        *self = Held::default();
    }

    /// Takes everything for a commit, which ends it.
    pub fn take(&mut self, is_exclusive: bool) -> Kept {
        let Held { right, streams, .. } = std::mem::take(self);
        Kept { right: right.filter(|_| is_exclusive), streams }
    }
}

fn no_stream() -> Error {
    Error::InvalidArgument("a part of no stream".to_owned())
}
