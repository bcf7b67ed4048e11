//! The download of a dump: `GET /backup`.
//!
//! A dump waits for its client again and again, so it has a thread of its own and no thread of the
//! pool. It writes into a channel of two parts: memory is bounded, and the client sets the pace. A
//! client that goes away, or is too slow for its connection, ends the dump at the next part. The turn
//! lasts until both have ended, the response and the thread.

use crate::{
    body::Body,
    changes::BRAID_VERSION,
    live::Source,
    problem::Problem,
    query::Query,
    record::{ascii, etag},
    service::{Answer, Service, typed},
    turns::Turn,
};
use braiddb::{Snapshot, dump::DumpOptions};
use bytes::Bytes;
use hyper::{Method, StatusCode, header, http::request::Parts};
use std::{
    io::{self, Write},
    mem,
    sync::Arc,
    thread,
};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Bytes of a part. A frame of a dump has up to 2 MiB.
const PART_BYTES: usize = 256 << 10;
/// Parts that wait for the client.
const PARTS_MAX: usize = 2;

/// A part of a dump, or `None` after the last. Without that, the dump is not complete.
type Part = Result<Option<Bytes>, Problem>;

pub async fn download(service: &Service, request: &Parts) -> Answer {
    Query::of(request.uri.query(), &[])?;
    let db = service.db();
    let snapshot = db.snapshot();
    let sequence = snapshot.sequence();
    let body = match request.method == Method::HEAD {
        true => Body::live(Bytes::new(), Nothing),
        false => begin(service, snapshot).await?,
    };
    let mut response = typed(StatusCode::OK, "application/octet-stream", body);
    let headers = response.headers_mut();
    let name = format!("attachment; filename=\"braiddb-{sequence}.dump\"");
    headers.insert(header::CONTENT_DISPOSITION, ascii(name));
    headers.insert(BRAID_VERSION, etag(db.version_of(sequence)));
    Ok(response)
}

/// Starts the dump. Waits for its first part, so that an error before it becomes an error response.
async fn begin(service: &Service, snapshot: Snapshot) -> Result<Body, Problem> {
    let turn = Arc::new(service.backups().begin("too many backups are being downloaded: try again")?);
    let (parts, mut received) = channel(PARTS_MAX);
    let turn_of_thread = Arc::clone(&turn);
    let run = move || {
        let _turn = turn_of_thread;
        dump(&snapshot, parts);
        drop(snapshot);
    };
    let spawned = thread::Builder::new().name("braid-backup".to_owned()).spawn(run);
    spawned.map_err(|error| Problem::busy(format!("no thread could be started for the backup: {error}")))?;
    let first = received.recv().await.unwrap_or_else(|| Err(Problem::panicked()))?;
    Ok(Body::live(first.unwrap_or_default(), Download { received, _turn: turn }))
}

fn dump(snapshot: &Snapshot, parts: Sender<Part>) {
    let mut pipe = Pipe { part: Vec::new(), parts };
    // Other threads would wait for the client too.
    let options = DumpOptions::new().threads(0);
    let dumped = snapshot.dump(&mut pipe, options).map_err(Problem::from);
    // An error: the client is gone.
    let _ = pipe.parts.blocking_send(dumped.map(|_| None));
}

/// Collects parts and hands them to the connection. Waits for the client.
struct Pipe {
    part: Vec<u8>,
    parts: Sender<Part>,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.part.extend_from_slice(bytes);
        if self.part.len() >= PART_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.part.is_empty() {
            return Ok(());
        }
        let part = Bytes::from(mem::take(&mut self.part));
        self.parts.blocking_send(Ok(Some(part))).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// The body of a HEAD, which is dropped: of unknown length like that of a GET.
struct Nothing;

impl Source for Nothing {
    async fn next(self) -> Result<Option<(Bytes, Nothing)>, Problem> {
        Ok(None)
    }
}

struct Download {
    received: Receiver<Part>,
    _turn: Arc<Turn>,
}

impl Source for Download {
    async fn next(mut self) -> Result<Option<(Bytes, Download)>, Problem> {
        // Without its last part the dump panicked: the client must notice.
        let part = self.received.recv().await.unwrap_or_else(|| Err(Problem::panicked()))?;
        Ok(part.map(|part| (part, self)))
    }
}
