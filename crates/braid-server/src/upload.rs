//! Bodies of requests: a small one whole, a large value chunk by chunk into blob files. Coded ones
//! are decoded on the way.

use crate::{
    body::CHUNK_BYTES,
    connection::Patience,
    decompress::{self, Decoder, Step},
    place::{DropInPool, in_pool},
    problem::Problem,
    service::Service,
};
use braiddb::{
    Tree,
    streams::{PendingStream, StreamWriter},
};
use braiddb_typed::guard;
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
    /// In blob files, synced and not committed yet.
    Stream(DropInPool<PendingStream>),
}

/// A body, and the turn of a large one: memory that it keeps until its commit counts.
pub type Received<'s, T> = (T, Option<SemaphorePermit<'s>>);

/// Returns the maximum bytes of a value in a tree. One that the tree's codec checks is held in
/// memory like a batch.
pub fn value_bytes_max(service: &Service, tree: &Tree) -> u64 {
    let limits = service.limits();
    match guard::checks_values(tree.options().codec) {
        true => limits.value_bytes.min(limits.batch_bytes),
        false => limits.value_bytes,
    }
}

fn declared_len(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Returns whether a body is so short by its declared length that a refusal may wait for it.
pub fn is_declared_short(headers: &HeaderMap) -> bool {
    let is_coded = headers.contains_key(header::CONTENT_ENCODING);
    !is_coded && declared_len(headers).is_some_and(|len| len <= SMALL_BYTES as u64)
}

/// Refuses a body by its declared length, before the client sends it.
pub fn check_declared(headers: &HeaderMap, bytes_max: u64) -> Result<(), Problem> {
    let declared = declared_len(headers);
    if declared.is_some_and(|declared| declared > bytes_max) { Err(too_large(bytes_max)) } else { Ok(()) }
}

fn too_large(bytes_max: u64) -> Problem {
    Problem::too_large(format!("the limit of this body is {bytes_max} bytes"))
}

/// Takes the body when all of it is received. One that stays was not received whole.
struct Receiver<'b> {
    body: &'b mut Option<Incoming>,
    received: u64,
    /// Limits the bytes received, and those decoded.
    bytes_max: u64,
    patience: Patience,
    decoder: Option<Decoder>,
    decoded: u64,
}

impl<'b> Receiver<'b> {
    fn new(service: &Service, body: &'b mut Option<Incoming>, bytes_max: u64) -> Receiver<'b> {
        let patience = Patience::new(service.limits());
        Receiver { body, received: 0, bytes_max, patience, decoder: None, decoded: 0 }
    }

    /// Decodes a body that has a coding. Returns the turn that it takes, since its decoder has a window of
    /// up to 8 MiB.
    async fn decode<'s>(
        &mut self,
        service: &'s Service,
        headers: &HeaderMap,
    ) -> Result<Option<SemaphorePermit<'s>>, Problem> {
        let Some(coding) = decompress::coding_of(headers)? else { return Ok(None) };
        let turn = turn(service).await?;
        let decoder = Decoder::new(coding);
        self.decoder = Some(decoder.map_err(|_| Problem::busy("there is no memory to decode the body: try again"))?);
        Ok(Some(turn))
    }

    /// Returns the next part of the body, decoded, or `None` at its end.
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let Some(mut decoder) = self.decoder.take() else { return self.next_received().await };
        loop {
            match decoder.step()? {
                Step::NeedsInput => decoder.feed(self.next_received().await?),
                Step::Ended => return Ok(None),
                Step::Bytes(bytes) => {
                    self.decoded += bytes.len() as u64;
                    if self.decoded > self.bytes_max {
                        return Err(too_large(self.bytes_max));
                    }
                    self.decoder = Some(decoder);
                    // A small body may have many parts: lets other tasks run.
                    tokio::task::yield_now().await;
                    return Ok(Some(bytes));
                }
            }
        }
    }

    async fn next_received(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            let Some(body) = self.body.as_mut() else { return Ok(None) };
            let began = Instant::now();
            let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context));
            let frame = timeout_at(self.patience.deadline(began), frame).await.map_err(|_| {
                let detail = "the body came too slowly: send it faster, or in smaller values";
                Problem::new(StatusCode::REQUEST_TIMEOUT, "Request timeout", detail)
            })?;
            self.patience.waited(began.elapsed());
            let frame = match frame {
                None => {
                    *self.body = None;
                    return Ok(None);
                }
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

/// Receives a value for `key`. Holds at most [`WRITE_BYTES`] and the engine's buffers, except for
/// values that the tree's codec checks.
pub async fn receive<'s>(
    service: &'s Service,
    tree: &Tree,
    key: &[u8],
    headers: &HeaderMap,
    body: &mut Option<Incoming>,
) -> Result<Received<'s, Value>, Problem> {
    let mut receiver = Receiver::new(service, body, value_bytes_max(service, tree));
    let early_turn = receiver.decode(service, headers).await?;
    let mut chunk = Vec::new();
    if receiver.fill(&mut chunk, SMALL_BYTES + 1).await? {
        return Ok((Value::Small(chunk.into()), None));
    }
    let turn = match early_turn {
        Some(turn) => turn,
        None => turn(service).await?,
    };
    if guard::checks_values(tree.options().codec) {
        receiver.fill(&mut chunk, usize::MAX).await?;
        return Ok((Value::Small(chunk.into()), Some(turn)));
    }
    let (tree, key) = (tree.clone(), key.to_vec());
    let mut writer = in_pool(move || tree.stream_writer(key).map(DropInPool::new)).await??;
    let mut is_ended = false;
    while !is_ended {
        is_ended = receiver.fill(&mut chunk, WRITE_BYTES).await?;
        let write = move || {
            let mut taken = taken(writer)?;
            taken.read_from(chunk.as_slice())?;
            chunk.clear();
            Ok::<_, Problem>((DropInPool::new(taken), chunk))
        };
        (writer, chunk) = in_pool(write).await??;
    }
    let finish = move || {
        let stream = taken(writer)?.finish()?;
        // Here, since other writes wait for the log sync of the commit.
        stream.sync()?;
        Ok::<_, Problem>(Value::Stream(DropInPool::new(stream)))
    };
    Ok((in_pool(finish).await??, Some(turn)))
}

fn taken(writer: DropInPool<StreamWriter>) -> Result<StreamWriter, Problem> {
    writer.take().ok_or_else(Problem::panicked)
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
    let mut body = Some(body);
    let mut receiver = Receiver::new(service, &mut body, SMALL_BYTES as u64);
    loop {
        match receiver.next().await {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Receives a body whole.
pub async fn receive_whole<'s>(
    service: &'s Service,
    headers: &HeaderMap,
    body: &mut Option<Incoming>,
    bytes_max: u64,
) -> Result<Received<'s, Vec<u8>>, Problem> {
    let mut receiver = Receiver::new(service, body, bytes_max);
    let early_turn = receiver.decode(service, headers).await?;
    let mut bytes = Vec::new();
    if receiver.fill(&mut bytes, CHUNK_BYTES).await? {
        return Ok((bytes, None));
    }
    let turn = match early_turn {
        Some(turn) => turn,
        None => turn(service).await?,
    };
    receiver.fill(&mut bytes, usize::MAX).await?;
    Ok((bytes, Some(turn)))
}
