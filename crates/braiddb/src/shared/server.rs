//! Serves the connections of other processes: a thread for each.

use super::{
    election::replaced,
    frame::{self, FrameError, FrameReader},
    held::Held,
    message::{NO_SESSION, PROTOCOL_VERSION, Reply, Request, SessionId},
    owner::{Claim, Owner, Unserved, Wanted},
    polling::{Polling, PollingReader},
};
use crate::{
    base::Error,
    platform::{LocalStream, Runtime},
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Maximum connections. A process has up to 17.
const CONNECTIONS_MAX: usize = 4096;

/// Pause of a stream without bytes, and the number of them that ends a connection within a frame.
const PAUSE: Duration = Duration::from_secs(5);
const PAUSES_MAX: u32 = 3;

/// Time for a client to take a reply.
const REPLY_NS: u64 = 60_000_000_000;

#[derive(Debug)]
pub struct Server {
    owner: Arc<Owner>,
    runtime: Arc<dyn Runtime>,
    connections: Arc<Connections>,
    threads: Vec<JoinHandle<()>>,
    opened: u64,
}

#[derive(Debug, Default)]
struct Connections {
    is_ending: AtomicBool,
    open: Mutex<HashMap<u64, Arc<LocalStream>>>,
}

impl Server {
    pub fn new(owner: Arc<Owner>, runtime: Arc<dyn Runtime>) -> Server {
        Server { owner, runtime, connections: Arc::default(), threads: Vec::new(), opened: 0 }
    }

    /// Serves a connection on a thread of its own.
    pub fn serve(&mut self, stream: LocalStream) -> io::Result<()> {
        self.threads.retain(|thread| !thread.is_finished());
        if self.threads.len() >= CONNECTIONS_MAX {
            return Ok(());
        }
        self.opened += 1;
        let open = Open { connections: Arc::clone(&self.connections), number: self.opened };
        let stream = Arc::new(stream);
        self.connections.open.lock().insert(open.number, Arc::clone(&stream));
        let (owner, runtime) = (Arc::clone(&self.owner), Arc::clone(&self.runtime));
        let body = Box::new(move || {
            let (connections, stream, runtime) = (&*open.connections, &*stream, &*runtime);
            let held = Held::default();
            Connection { owner: &owner, connections, stream, runtime, claim: None, held }.run();
        });
        self.threads.push(self.runtime.spawn("braiddb-share", body)?);
        Ok(())
    }

    /// Ends all connections. Commits in progress complete, but their replies may be lost.
    pub fn end(mut self) {
        let _right = self.owner.await_exclusive_end();
        self.shut_down();
        for thread in std::mem::take(&mut self.threads) {
            if thread.join().is_err() {
                tracing::error!("a thread that served a connection panicked");
            }
        }
    }

    fn shut_down(&self) {
        self.connections.is_ending.store(true, Ordering::Release);
        // Their ends are the timeouts of other processes.
        self.owner.end_waits();
        self.connections.open.lock().values().for_each(|stream| stream.shut_down());
    }
}

impl Drop for Server {
    /// After a panic of the thread that accepts, open connections would keep the database locked.
    fn drop(&mut self) {
        if !self.connections.is_ending.load(Ordering::Acquire) {
            self.shut_down();
        }
    }
}

/// A connection's place in the list. Its drop, even by a panic, ends the connection.
struct Open {
    connections: Arc<Connections>,
    number: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        let ended = self.connections.open.lock().remove(&self.number);
        ended.iter().for_each(|stream| stream.shut_down());
    }
}

struct Connection<'a> {
    owner: &'a Owner,
    connections: &'a Connections,
    stream: &'a LocalStream,
    runtime: &'a dyn Runtime,
    claim: Option<Claim>,
    held: Held,
}

impl Connection<'_> {
    fn run(mut self) {
        let mut frames = FrameReader::with_pauses(PAUSES_MAX);
        let mut polling = Polling::new(self.runtime);
        while !self.is_ending() {
            let polling = Some(&mut polling);
            let mut reader = PollingReader { stream: self.stream, runtime: self.runtime, polling, pause: PAUSE };
            let request = match frames.read(&mut reader, &mut || self.is_ending()) {
                Ok(payload) => Request::decode(payload),
                Err(FrameError::Malformed) => None,
                Err(_) => break,
            };
            let reply =
                request.ok_or_else(|| refused("a request is malformed")).and_then(|request| self.answer(request));
            let is_end = reply.is_err();
            let Some(frame) = reply.unwrap_or_else(|last| last).frame() else { break };
            let began_ns = self.runtime.monotonic_ns();
            let is_late = || self.runtime.monotonic_ns().saturating_sub(began_ns) > REPLY_NS;
            let sent = frame::write(&mut &*self.stream, &frame, &mut || self.is_ending() || is_late());
            if is_end || sent.is_err() {
                break;
            }
        }
        self.release(false);
    }

    fn release(&mut self, is_goodbye: bool) {
        // Before the record of the session is removed, which waits for an exclusive right.
        self.held = Held::default();
        if let Some(claim) = self.claim.take() {
            self.owner.release(&claim, is_goodbye);
        }
    }

    fn is_ending(&self) -> bool {
        self.connections.is_ending.load(Ordering::Acquire)
    }

    /// An error is the last reply of the connection.
    fn answer(&mut self, request: Request) -> Result<Reply, Reply> {
        let Some(claim) = &self.claim else {
            let Request::Hello { version, incarnation, session } = request else {
                return Err(refused("a connection begins with a hello"));
            };
            return self.begin(version, incarnation, session);
        };
        let done = match request {
            Request::Hello { .. } => return Err(refused("a second hello")),
            Request::Commit { .. } if *claim.id() == NO_SESSION => return Err(refused("a commit without a session")),
            Request::Commit { number, left_us, durability, commit } => {
                let ends_ns = ends_ns(self.runtime, left_us);
                self.owner.commit(claim, &mut self.held, Wanted { number, commit, durability, ends_ns })
            }
            Request::Begin { .. } if *claim.id() == NO_SESSION => return Err(refused("a begin without a session")),
            Request::Begin { left_us } => {
                let begun = self.held.begin(self.owner, ends_ns(self.runtime, left_us));
                // The close revokes its own right, which lets those that wait in. This one would end with the
                // owner, so the client asks the next one.
                if self.is_ending() {
                    self.held.end();
                    return Err(Reply::Again);
                }
                begun.map_err(Unserved::from)
            }
            Request::End => {
                self.held.end();
                Ok(0)
            }
            Request::Stream { .. } if *claim.id() == NO_SESSION => return Err(refused("a stream without a session")),
            Request::Stream { tree, key } => self.held.begin_stream(self.owner, tree, &key).map_err(Unserved::from),
            Request::Part(bytes) => self.held.write(&bytes).map_err(Unserved::from),
            Request::EndStream => match self.held.end_stream(self.owner) {
                Ok(placed) => return Ok(Reply::Placed(placed)),
                Err(e) => Err(e.into()),
            },
            Request::Tree(tree) => self.owner.tree(&tree).map_err(Unserved::from),
            Request::Function { name } => self.owner.function(&name).map_err(Unserved::from),
            Request::Sync => self.owner.sync().map_err(Unserved::from),
            Request::Goodbye => {
                self.release(true);
                return Err(self.done(0));
            }
        };
        match done {
            Ok(sequence) => Ok(self.done(sequence)),
            Err(Unserved::Refused(error)) => Ok(Reply::Refused(error)),
            Err(Unserved::Closing | Unserved::Superseded) => Err(Reply::Again),
        }
    }

    fn begin(&mut self, version: u8, incarnation: u64, session: SessionId) -> Result<Reply, Reply> {
        if version != PROTOCOL_VERSION {
            let detail = format!(
                "a process with version {version} of the protocol for shared databases, and the owner has \
                 {PROTOCOL_VERSION}: run the same version of BraidDB in all processes"
            );
            return Err(Reply::Refused(Error::InvalidArgument(detail)));
        }
        if incarnation != 0 && incarnation != self.owner.incarnation() {
            return Err(Reply::Refused(replaced()));
        }
        let claim = self.owner.claim(session).map_err(|e| match Unserved::from(e) {
            Unserved::Refused(error) => Reply::Refused(error),
            _ => Reply::Again,
        })?;
        self.claim = Some(claim);
        Ok(self.done(0))
    }

    fn done(&self, sequence: u64) -> Reply {
        Reply::Done { sequence, incarnation: self.owner.incarnation() }
    }
}

fn ends_ns(runtime: &dyn Runtime, left_us: u64) -> u64 {
    runtime.monotonic_ns().saturating_add(left_us.saturating_mul(1000))
}

fn refused(detail: &str) -> Reply {
    Reply::Refused(Error::InvalidArgument(detail.to_owned()))
}
