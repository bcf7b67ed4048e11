//! Compresses bodies of responses for clients that accept it.
//!
//! Coded are JSON, text and records of at least [`BYTES_MIN`], whole: an answer to `Range` is not. A
//! record is only coded if a sample of it becomes shorter. A stream is compressed chunk by chunk, in
//! the pool, as the client takes it. A HEAD gets the headers of the GET.
//!
//! Each answer that would be coded for another client, another length or another time has `Vary`: also
//! a short one, a part and a 304. `coding.rs` has the rule for entity tags.
//!
//! **Memory.** An encoder takes about 1 MiB. There are at most
//! [`Limits::codings`](crate::Limits); a further response is sent as it is, which is always right.

use crate::{
    body::{Body, CHUNK_BYTES, Producer},
    coding::{Accepted, Coding},
    place::in_pool,
    problem::Problem,
    service::Service,
};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use hyper::{
    HeaderMap, Response, StatusCode,
    header::{self, HeaderValue},
    http::request::Parts,
};
use std::{
    io::{self, Write as _},
    mem,
    sync::Arc,
};
use tokio::sync::OwnedSemaphorePermit;
use zstd::zstd_safe::CParameter;

/// Minimum bytes of a body that is coded: it fills a packet.
const BYTES_MIN: usize = 1 << 10;
/// Levels of about 200 and 60 MB a second.
const ZSTD_LEVEL: i32 = 2;
const GZIP_LEVEL: u32 = 3;
/// Limits the memory of an encoder and of the clients' decoders.
const ZSTD_WINDOW_LOG: u32 = 17;
const ZSTD_TABLE_LOG: u32 = 16;
/// Chunks that are read until a compressed one must be sent.
const CHUNKS_MAX: usize = 16;

/// The media types that are worth it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    /// May be compressed already.
    Record,
}

fn kind(headers: &HeaderMap) -> Option<Kind> {
    let media_type = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    match media_type.split(';').next().unwrap_or_default().trim() {
        "application/octet-stream" => Some(Kind::Record),
        // Each event must arrive at once.
        "text/event-stream" => None,
        "application/json" | "application/x-ndjson" | "application/javascript" | "image/svg+xml" => Some(Kind::Text),
        text if text.starts_with("text/") || text.ends_with("+json") => Some(Kind::Text),
        _ => None,
    }
}

/// Codes the body of a response if its client accepts it.
pub async fn compress(service: &Service, request: &Parts, mut response: Response<Body>) -> Response<Body> {
    let kind = kind(response.headers()).filter(|_| !response.body().is_live());
    let is_coded = match response.status() {
        StatusCode::OK | StatusCode::PARTIAL_CONTENT => kind.is_some(),
        // Records and the files of the page.
        StatusCode::NOT_MODIFIED => true,
        _ => false,
    };
    if is_coded {
        // Caches must not give the answer to clients that accept other codings.
        response.headers_mut().append(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
    let Some(kind) = kind.filter(|_| is_whole(&response)) else { return response };
    let accepted = Accepted::of_request(&request.method, &request.headers);
    let Some(coding) = accepted.preferred else { return response };
    let Ok(turn) = Arc::clone(service.codings()).try_acquire_owned() else { return response };
    let body = mem::replace(response.body_mut(), Body::empty());
    let coded = in_pool(move || encode(body, kind, coding, turn)).await;
    match coded {
        Ok((body, true)) => {
            *response.body_mut() = body;
            describe(response.headers_mut(), coding);
            response
        }
        Ok((body, false)) => {
            *response.body_mut() = body;
            response
        }
        Err(problem) => problem.into_response(),
    }
}

fn is_whole(response: &Response<Body>) -> bool {
    response.status() == StatusCode::OK
        && !response.headers().contains_key(header::CONTENT_ENCODING)
        && response.body().beginning().len() >= BYTES_MIN
}

fn describe(headers: &mut HeaderMap, coding: Coding) {
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    headers.remove(header::CONTENT_LENGTH);
    // Ranges are of the bytes themselves.
    headers.remove(header::ACCEPT_RANGES);
    let tag = headers.get(header::ETAG).and_then(|tag| tag.to_str().ok()).map(|tag| coding.tag_of(tag));
    if let Some(Ok(tag)) = tag.map(HeaderValue::try_from) {
        headers.insert(header::ETAG, tag);
    }
}

/// Returns the body, and whether it is coded now.
fn encode(body: Body, kind: Kind, coding: Coding, turn: OwnedSemaphorePermit) -> (Body, bool) {
    let is_worth_it = |sample: &Bytes| match kind {
        Kind::Text => true,
        Kind::Record => all_at_once(Coding::Zstd, sample).is_ok_and(|coded| coded.len() < sample.len() / 10 * 9),
    };
    if !is_worth_it(body.beginning()) {
        return (body, false);
    }
    match body.into_producer() {
        Ok((first, producer)) => match Encoder::new(coding) {
            Ok(encoder) => {
                let coded = Coded { first: Some(first), producer, encoder: Some(encoder), _turn: turn };
                (Body::of_producer(Bytes::new(), Box::new(coded), None), true)
            }
            Err(_) => (Body::of_producer(first, producer, None), false),
        },
        Err(body) => match all_at_once(coding, body.beginning()) {
            Ok(coded) => (Body::whole(coded), true),
            Err(_) => (body, false),
        },
    }
}

fn all_at_once(coding: Coding, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = Encoder::new(coding)?;
    encoder.write_all(bytes)?;
    encoder.finish()
}

enum Encoder {
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    fn new(coding: Coding) -> io::Result<Encoder> {
        Ok(match coding {
            Coding::Gzip => Encoder::Gzip(GzEncoder::new(Vec::new(), Compression::new(GZIP_LEVEL))),
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
                encoder.set_parameter(CParameter::WindowLog(ZSTD_WINDOW_LOG))?;
                encoder.set_parameter(CParameter::HashLog(ZSTD_TABLE_LOG))?;
                encoder.set_parameter(CParameter::ChainLog(ZSTD_TABLE_LOG))?;
                Encoder::Zstd(encoder)
            }
        })
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Encoder::Gzip(encoder) => encoder.write_all(bytes),
            Encoder::Zstd(encoder) => encoder.write_all(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Encoder::Gzip(encoder) => encoder.flush(),
            Encoder::Zstd(encoder) => encoder.flush(),
        }
    }

    fn output(&mut self) -> &mut Vec<u8> {
        match self {
            Encoder::Gzip(encoder) => encoder.get_mut(),
            Encoder::Zstd(encoder) => encoder.get_mut(),
        }
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Encoder::Gzip(encoder) => encoder.finish(),
            Encoder::Zstd(encoder) => encoder.finish(),
        }
    }
}

/// Compresses the chunks of another producer.
struct Coded {
    first: Option<Bytes>,
    producer: Box<dyn Producer>,
    /// `None` after the end.
    encoder: Option<Encoder>,
    _turn: OwnedSemaphorePermit,
}

impl Producer for Coded {
    fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let Some(mut encoder) = self.encoder.take() else { return Ok(None) };
        for _ in 0..CHUNKS_MAX {
            let chunk = match self.first.take() {
                Some(first) => Some(first),
                None => self.producer.next()?,
            };
            let Some(chunk) = chunk else {
                return encoder.finish().map(|rest| Some(rest.into())).map_err(failed);
            };
            encoder.write_all(&chunk).map_err(failed)?;
            if encoder.output().len() >= CHUNK_BYTES / 2 {
                break;
            }
        }
        if encoder.output().is_empty() {
            encoder.flush().map_err(failed)?;
        }
        let coded = mem::take(encoder.output());
        self.encoder = Some(encoder);
        Ok(Some(coded.into()))
    }
}

fn failed(error: io::Error) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "Internal error", format!("the body cannot be compressed: {error}"))
}
