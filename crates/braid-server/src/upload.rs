//! Bodies of requests: a small one whole, a large value chunk by chunk into blob files.

use crate::{body::CHUNK_BYTES, connection::Patience, place::in_pool, problem::Problem, service::Service};
use braiddb::{Tree, streams::PendingStream};
use bytes::Bytes;
use hyper::{
    HeaderMap, StatusCode,
    body::{Body as _, Incoming},
    header,
};
use std::{future::poll_fn, pin::Pin};
use tokio::{
    sync::SemaphorePermit,
    time::{Instant, timeout, timeout_at},
};

/// Maximum bytes of a value that is put whole. A connection holds at most one.
pub const SMALL_BYTES: usize = 64 << 10;
/// Bytes that are written to a stream at once.
const WRITE_BYTES: usize = 256 << 10;

/// The value of a `PUT`.
#[derive(Debug)]
pub enum Value {
    Small(Bytes),
    /// In blob files, not committed yet.
    Stream(PendingStream),
}

/// Refuses a body by its declared length, before the client sends it.
pub fn check_declared(headers: &HeaderMap, bytes_max: u64) -> Result<(), Problem> {
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|declared| declared > bytes_max) { Err(too_large(bytes_max)) } else { Ok(()) }
}

fn too_large(bytes_max: u64) -> Problem {
    Problem::too_large(format!("the limit of this body is {bytes_max} bytes"))
}

struct Receiver {
    body: Incoming,
    received: u64,
    bytes_max: u64,
    patience: Patience,
}

impl Receiver {
    fn new(service: &Service, body: Incoming, bytes_max: u64) -> Receiver {
        Receiver { body, received: 0, bytes_max, patience: Patience::new(service.limits()) }
    }

    /// Returns the next part of the body, or `None` at its end.
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            let began = Instant::now();
            let frame = poll_fn(|context| Pin::new(&mut self.body).poll_frame(context));
            let frame = timeout_at(self.patience.deadline(began), frame).await.map_err(|_| {
                let detail = "the body came too slowly: send it faster, or in smaller values";
                Problem::new(StatusCode::REQUEST_TIMEOUT, "Request timeout", detail)
            })?;
            self.patience.waited(began.elapsed());
            let frame = match frame {
                None => return Ok(None),
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Err(Problem::bad_request(format!("the body is not complete: {error}"))),
            };
            // Trailers are ignored.
            let Ok(part) = frame.into_data() else { continue };
            self.patience.moved(part.len());
            self.received += part.len() as u64;
            if self.received > self.bytes_max {
                return Err(too_large(self.bytes_max));
            }
            return Ok(Some(part));
        }
    }

    /// Appends parts to `bytes` until it has `enough`. Returns true at the end of the body.
    async fn fill(&mut self, bytes: &mut Vec<u8>, enough: usize) -> Result<bool, Problem> {
        while bytes.len() < enough {
            match self.next().await? {
                Some(part) => bytes.extend_from_slice(&part),
                None => return Ok(true),
            }
        }
        Ok(false)
    }
}

/// Waits for a turn to receive a large body.
async fn turn(service: &Service) -> Result<SemaphorePermit<'_>, Problem> {
    match timeout(service.limits().patience, service.uploads().acquire()).await {
        Ok(Ok(permit)) => Ok(permit),
        _ => Err(Problem::busy("too many large bodies are being received: try again")),
    }
}

/// Receives a value for `key`. Holds at most [`WRITE_BYTES`] and the engine's buffers.
pub async fn receive(
    service: &Service,
    tree: &Tree,
    key: &[u8],
    body: &mut Option<Incoming>,
) -> Result<Value, Problem> {
    let Some(body) = body.take() else { return Ok(Value::Small(Bytes::new())) };
    let mut receiver = Receiver::new(service, body, service.limits().value_bytes);
    let mut chunk = Vec::new();
    if receiver.fill(&mut chunk, SMALL_BYTES + 1).await? {
        return Ok(Value::Small(chunk.into()));
    }
    let _turn = turn(service).await?;
    let (tree, key) = (tree.clone(), key.to_vec());
    let mut writer = in_pool(move || tree.stream_writer(key)).await??;
    let mut is_ended = false;
    while !is_ended {
        is_ended = receiver.fill(&mut chunk, WRITE_BYTES).await?;
        let write = move || {
            writer.read_from(chunk.as_slice())?;
            chunk.clear();
            Ok::<_, braiddb::Error>((writer, chunk))
        };
        (writer, chunk) = in_pool(write).await??;
    }
    Ok(Value::Stream(in_pool(move || writer.finish()).await??))
}

/// Reads the rest of a short body that a refused request has, so that the connection can go on.
/// Returns false if it must end: the body is long, or its client waits to be asked for it.
pub async fn discard(service: &Service, headers: &HeaderMap, body: Incoming) -> bool {
    if body.is_end_stream() {
        return true;
    }
    let is_short = body.size_hint().upper().is_some_and(|len| len <= SMALL_BYTES as u64);
    if !is_short || headers.contains_key(header::EXPECT) {
        return false;
    }
    let mut receiver = Receiver::new(service, body, SMALL_BYTES as u64);
    loop {
        match receiver.next().await {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Receives a body whole.
pub async fn receive_whole(service: &Service, body: &mut Option<Incoming>, bytes_max: u64) -> Result<Vec<u8>, Problem> {
    let Some(body) = body.take() else { return Ok(Vec::new()) };
    let mut receiver = Receiver::new(service, body, bytes_max);
    let mut bytes = Vec::new();
    if receiver.fill(&mut bytes, CHUNK_BYTES).await? {
        return Ok(bytes);
    }
    let _turn = turn(service).await?;
    receiver.fill(&mut bytes, usize::MAX).await?;
    Ok(bytes)
}
