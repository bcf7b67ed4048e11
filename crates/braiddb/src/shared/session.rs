//! The client's side of a session: one request at a time, sent again after a lost connection.

use super::{
    frame::{self, FrameError, FrameReader},
    message::{PROTOCOL_VERSION, Reply, Request, SessionId},
    polling::{Polling, PollingReader},
};
use crate::{
    base::Error,
    platform::{LocalStream, Runtime},
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// Time after which a blocked read or write checks the deadline.
pub const SLICE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub struct Connection {
    pub stream: Arc<LocalStream>,
    frames: FrameReader,
    polling: Polling,
}

/// Why there is no reply.
#[derive(Debug)]
pub enum Lost {
    /// There is no connection, or the request was not sent whole: it does not run.
    NotSent,
    /// The owner may have run the request.
    Sent,
    /// The owner refuses this client.
    Refused(Error),
}

/// The time by which a call returns.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    pub began_ns: u64,
    pub ends_ns: u64,
}

impl Deadline {
    pub fn after(runtime: &dyn Runtime, timeout_ns: u64) -> Deadline {
        let began_ns = runtime.monotonic_ns();
        Deadline { began_ns, ends_ns: began_ns.saturating_add(timeout_ns) }
    }

    pub fn later_by(self, ns: u64) -> Deadline {
        Deadline { ends_ns: self.ends_ns.saturating_add(ns), ..self }
    }

    pub fn left_ns(&self, runtime: &dyn Runtime) -> u64 {
        self.ends_ns.saturating_sub(runtime.monotonic_ns())
    }

    pub fn left(&self, runtime: &dyn Runtime) -> Duration {
        Duration::from_nanos(self.left_ns(runtime))
    }

    pub fn is_over(&self, runtime: &dyn Runtime) -> bool {
        runtime.monotonic_ns() >= self.ends_ns
    }

    pub fn waited(&self, runtime: &dyn Runtime) -> Duration {
        Duration::from_nanos(runtime.monotonic_ns().saturating_sub(self.began_ns))
    }
}

/// Surroundings of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub dir: &'a Path,
    pub runtime: &'a dyn Runtime,
    /// 0: any.
    pub incarnation: u64,
}

impl Connection {
    /// Connects and says hello. Returns the owner's incarnation too.
    pub fn open(place: Place<'_>, session: SessionId, deadline: Deadline) -> Result<(Connection, u64), Lost> {
        let stream = Arc::new(LocalStream::connect(place.dir, SLICE).map_err(|_| Lost::NotSent)?);
        let polling = Polling::new(place.runtime);
        let mut connection = Connection { stream, frames: FrameReader::default(), polling };
        let hello = Request::Hello { version: PROTOCOL_VERSION, incarnation: place.incarnation, session };
        let frame = hello.frame().ok_or(Lost::NotSent)?;
        match connection.exchange(&frame, place.runtime, deadline, false) {
            Ok(Reply::Done { incarnation, .. }) => Ok((connection, incarnation)),
            Ok(Reply::Refused(error)) => Err(Lost::Refused(error)),
            Ok(Reply::Again | Reply::Placed(_)) | Err(_) => Err(Lost::NotSent),
        }
    }

    /// Sends a request and waits for its reply. Returns [`Lost`] once the deadline is over.
    pub fn exchange(
        &mut self,
        frame: &[u8],
        runtime: &dyn Runtime,
        deadline: Deadline,
        is_quick: bool,
    ) -> Result<Reply, Lost> {
        let mut is_late = || deadline.is_over(runtime);
        if is_late() {
            return Err(Lost::NotSent);
        }
        if frame::write(&mut &*self.stream, frame, &mut is_late).is_err() {
            return Err(if self.stream.withdraw() { Lost::NotSent } else { Lost::Sent });
        }
        let polling = is_quick.then_some(&mut self.polling);
        let mut reader = PollingReader { stream: &self.stream, runtime, polling, pause: SLICE };
        let payload = self.frames.read(&mut reader, &mut is_late).map_err(|_: FrameError| Lost::Sent)?;
        Reply::decode(payload).ok_or(Lost::Sent)
    }
}

impl Connection {
    /// Asks the owner to end the session of this connection. Returns `None` without a reply.
    pub fn asked_to_end(mut self, runtime: &dyn Runtime, timeout_ns: u64) -> Option<Connection> {
        let frame = Request::End.frame()?;
        match self.exchange(&frame, runtime, Deadline::after(runtime, timeout_ns), true) {
            Ok(Reply::Done { .. }) => Some(self),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
pub struct Session {
    pub id: SessionId,
    /// The last request.
    pub number: u64,
    pub connection: Option<Connection>,
    /// Time of its last use.
    pub used_ns: u64,
}

impl Session {
    /// Makes a session whose id no other process uses. The random numbers of forked processes may be
    /// equal, and process numbers of containers that share a directory.
    pub fn new(runtime: &dyn Runtime) -> Session {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&runtime.random_u64().to_le_bytes());
        id[8..12].copy_from_slice(&std::process::id().to_le_bytes());
        let made = u64::from(MADE.fetch_add(1, Ordering::Relaxed));
        let mixed = (runtime.random_u64() ^ runtime.unix_time_us()).wrapping_add(made);
        id[12..].copy_from_slice(&mixed.to_le_bytes()[..4]);
        Session { id, number: 0, connection: None, used_ns: 0 }
    }

    /// Sends a request on the connection, which is opened if there is none and given up after an
    /// error. `is_quick` if a reply is expected within microseconds.
    pub fn exchange(
        &mut self,
        place: Place<'_>,
        frame: &[u8],
        deadline: Deadline,
        is_quick: bool,
    ) -> Result<Reply, Lost> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(place, self.id, deadline)?.0,
        };
        let reply = connection.exchange(frame, place.runtime, deadline, is_quick)?;
        if !matches!(reply, Reply::Again) {
            self.connection = Some(connection);
        }
        Ok(reply)
    }

    /// Ends the session, so that the owner removes its record.
    pub fn say_goodbye(mut self, runtime: &dyn Runtime, deadline: Deadline) {
        if let (Some(connection), Some(frame)) = (&mut self.connection, Request::Goodbye.frame()) {
            let _ = connection.exchange(&frame, runtime, deadline, false);
        }
    }
}
