//! The change stream: `GET /changes`, as Server-Sent Events.
//!
//! A commit is a sequence of events `change` and one event `commit`, which alone has an `id`: the
//! commit's version. So a client that resumes with `Last-Event-ID` gets each commit whole.
//!
//! **Threads.** A poll of the engine's stream reads the log, so it runs in the pool (INVARIANT H1,
//! `place.rs`). An idle stream waits for its bell, which the engine rings, and holds no thread.
//!
//! **Memory.** A client holds one chunk, the commit that is being written, and the log that the
//! watcher has read ahead: 1 MiB, or the largest group of commits.

use crate::{
    body::{Body, CHUNK_BYTES},
    coding::parse_tag,
    connection::{first_of, stopped},
    event_text::{Notation, write_change, write_commit, write_position, write_problem},
    live::Source,
    place::{DropInPool, in_pool},
    problem::Problem,
    query::Query,
    service::{Answer, Service, typed, typed_key},
    tree_changes::{Selection, TreeChanges, gone, of_watch},
    turns::Turn,
};
use braiddb::{Db, Version, watch::ChangeSet};
use bytes::Bytes;
use hyper::{
    HeaderMap, StatusCode,
    header::{HeaderName, HeaderValue},
    http::request::Parts,
};
use std::{
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

const PARAMETERS: [&str; 6] = ["tree", "prefix", "codec", "after", "limit", "ticket"];
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Asks proxies not to collect the response.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// Response header of scans: the version of the last commit that they show. A stream after it
/// continues them.
pub const BRAID_VERSION: HeaderName = HeaderName::from_static("braid-version");

/// The content type of a change stream, by which the connection knows it.
pub const EVENT_STREAM: &str = "text/event-stream";

pub async fn changes(service: &Service, request: &Parts) -> Answer {
    let query = Query::of(request.uri.query(), &PARAMETERS)?;
    if service.is_follower() {
        let detail = "the server reads beside the process that writes, which alone has the change stream: \
                      start that one with `braid serve --write`, or ask it";
        return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, "No change stream", detail));
    }
    let after = position(&request.headers, query)?;
    let commits_left = query.number("limit", "of commits, from 1")?.unwrap_or(u64::MAX);
    if commits_left == 0 {
        return Err(Problem::bad_request("limit=0 asks for no commit: give at least 1"));
    }
    let db = service.db();
    let (selection, notation) = select(query)?;
    let turn = service.streams().begin("too many change streams are open: end others, or try again")?;
    let heartbeat = service.limits().heartbeat;
    let begin =
        move || Ok::<_, Problem>(DropInPool::new(Following::begin(db, selection, after, notation, commits_left)?));
    let following = in_pool(begin).await??;
    let stream = Stream { following, turn, heartbeat, sent: Instant::now(), is_idle: false };
    let mut response = typed(StatusCode::OK, EVENT_STREAM, Body::live(Bytes::new(), stream));
    response.headers_mut().insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}

/// Returns the position of the client: `Last-Event-ID`, which a client sends when it connects
/// again to the same URL, before `after`.
fn position(headers: &HeaderMap, query: Query<'_>) -> Result<Option<Version>, Problem> {
    let header = headers.get(LAST_EVENT_ID).map(HeaderValue::as_bytes).filter(|id| !id.is_empty());
    let after = query.bytes("after")?;
    let Some(text) = header.or(after.as_deref()) else { return Ok(None) };
    let version = str::from_utf8(text).ok().and_then(parse_version);
    version.map(Some).ok_or_else(|| {
        Problem::bad_request("the position is no version: give the id of an event, an ETag, or a Braid-Version")
    })
}

/// Parses the text of a version, with or without the quotes of an `ETag`.
pub fn parse_version(text: &str) -> Option<Version> {
    parse_tag(format!("\"{}\"", text.trim_matches('"')).as_bytes()).map(|(version, _)| version)
}

fn select(query: Query<'_>) -> Result<(Selection, Notation), Problem> {
    let has_tuples = query.bytes("codec")?.is_some();
    let prefix = query.bytes("prefix")?.map(|prefix| typed_key(prefix, query)).transpose()?.unwrap_or_default();
    let notation = if has_tuples { Notation::Tuples { prefix_len: prefix.len() } } else { Notation::Bytes };
    let Some(name) = query.bytes("tree")? else {
        if has_tuples || !prefix.is_empty() {
            return Err(Problem::bad_request("prefix and codec are of one tree: add tree=NAME"));
        }
        return Ok((Selection { name: None, prefix: Vec::new() }, notation));
    };
    let name = str::from_utf8(&name).map_err(|_| Problem::bad_request("the name of a tree must be UTF-8"))?;
    Ok((Selection { name: Some(name.to_owned()), prefix: prefix.into_owned() }, notation))
}

/// Wakes the stream. A ring that nothing waits for is kept.
#[derive(Default)]
struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// The engine's stream with the text that is not written yet. Used in the pool.
struct Following {
    db: Db,
    changes: TreeChanges,
    bell: Arc<Bell>,
    waker: Waker,
    notation: Notation,
    /// A commit, and the number of its changes that are passed and written.
    current: Option<(ChangeSet, usize, u64)>,
    /// Sequence number of the last position that was sent.
    sent: Option<u64>,
    commits_left: u64,
    is_over: bool,
}

/// The result of a step.
struct Step {
    chunk: Vec<u8>,
    /// Nothing follows until the bell rings.
    is_idle: bool,
}

impl Following {
    fn begin(
        db: Db,
        selection: Selection,
        after: Option<Version>,
        notation: Notation,
        commits_left: u64,
    ) -> Result<Following, Problem> {
        if after.is_some_and(|version| db.version_of(version.sequence()) != version) {
            return Err(gone(
                "the position is of another database, of this one before it was restored, or of a commit that a \
                 crash took back"
                    .to_owned(),
            ));
        }
        let changes = TreeChanges::begin(db.clone(), selection, after.map(|version| version.sequence()))?;
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        Ok(Following { db, changes, bell, waker, notation, current: None, sent: None, commits_left, is_over: false })
    }

    /// Writes pending events, up to one chunk. The first step always writes the position.
    fn step(&mut self) -> Step {
        let mut chunk = Vec::new();
        if self.sent.is_none() {
            self.write_position(&mut chunk);
        }
        let is_idle = loop {
            if self.is_over || chunk.len() >= CHUNK_BYTES {
                break false;
            }
            if self.current.is_some() {
                self.write_current(&mut chunk);
                continue;
            }
            match self.changes.poll_next(&mut Context::from_waker(&self.waker)) {
                Poll::Pending => break true,
                Poll::Ready(Some(Ok(commit))) => self.current = Some((commit, 0, 0)),
                Poll::Ready(Some(Err(error))) => {
                    write_problem(&mut chunk, &of_watch(error));
                    self.is_over = true;
                }
                Poll::Ready(None) => self.is_over = true,
            }
        };
        Step { chunk, is_idle }
    }

    /// Writes changes of the current commit until the chunk is full, and its end after the last.
    fn write_current(&mut self, chunk: &mut Vec<u8>) {
        let Some((commit, passed, written)) = &mut self.current else { return };
        while let Some(change) = commit.changes.get(*passed) {
            if chunk.len() >= CHUNK_BYTES {
                return;
            }
            *passed += 1;
            *written += u64::from(write_change(chunk, change, commit.version, self.notation));
        }
        if *written > 0 {
            write_commit(chunk, commit, *written);
            self.sent = Some(commit.sequence);
            self.commits_left -= 1;
            self.is_over = self.commits_left == 0;
        }
        self.current = None;
    }

    /// Writes the position, which has passed commits without matching changes, if it is new.
    fn write_position(&mut self, chunk: &mut Vec<u8>) {
        let sequence = self.changes.position();
        if self.current.is_none() && self.sent != Some(sequence) {
            write_position(chunk, self.db.version_of(sequence));
            self.sent = Some(sequence);
        }
    }

    /// Returns the text for a client that got none for long. The step before has read the log.
    fn heartbeat(&mut self) -> Vec<u8> {
        let mut chunk = Vec::new();
        self.write_position(&mut chunk);
        if chunk.is_empty() {
            chunk.extend_from_slice(b":\n\n");
        }
        chunk
    }
}

/// The change stream of a client.
struct Stream {
    following: DropInPool<Following>,
    turn: Turn,
    heartbeat: Duration,
    /// Time of the last chunk.
    sent: Instant,
    /// The last step found nothing more, so the bell will ring.
    is_idle: bool,
}

impl Source for Stream {
    async fn next(self) -> Result<Option<(Bytes, Stream)>, Problem> {
        let mut stop = self.turn.stop.clone();
        Ok(first_of(self.next_chunk(), stopped(&mut stop)).await.ok().flatten())
    }
}

impl Stream {
    async fn next_chunk(self) -> Option<(Bytes, Stream)> {
        let Stream { mut following, turn, heartbeat, sent, mut is_idle } = self;
        let due = sent + heartbeat;
        loop {
            let is_due = is_idle && {
                let bell = following.get().map(|following| Arc::clone(&following.bell))?;
                timeout_at(due, bell.0.notified()).await.is_err()
            };
            let step = in_pool(move || {
                let mut taken = following.take()?;
                let mut step = taken.step();
                if is_due && step.chunk.is_empty() && !taken.is_over {
                    step.chunk = taken.heartbeat();
                }
                let is_over = taken.is_over && step.chunk.is_empty();
                (!is_over).then(|| (DropInPool::new(taken), step))
            });
            // A panic ends the stream too.
            let (after, step) = step.await.ok()??;
            (following, is_idle) = (after, step.is_idle);
            if !step.chunk.is_empty() {
                let stream = Stream { following, turn, heartbeat, sent: Instant::now(), is_idle };
                return Some((step.chunk.into(), stream));
            }
        }
    }
}
