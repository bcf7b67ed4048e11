//! Records: `GET`, `HEAD`, `PUT` and `DELETE` of `/trees/{tree}/{key}`.

use crate::{
    body::{Body, CHUNK_BYTES, Producer},
    coding::Accepted,
    conditions::{Conditions, Freshness, permits_range},
    decompress,
    opened::Opened,
    pairs,
    problem::Problem,
    query::Query,
    range::Part,
    rules::Checks,
    service::{Answer, Service, new_response},
    upload::{self, SMALL_BYTES, Value},
};
use braiddb::{
    Commit, Db, Tree, Version,
    streams::{PendingStream, StreamReader},
};
use bytes::Bytes;
use hyper::{
    HeaderMap, Method, StatusCode,
    body::Incoming,
    header::{self, HeaderName, HeaderValue},
    http::request::Parts,
};
use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Maximum tries of a conditional write that conflicts. Each conflict is a write of the same key.
const TRIES_MAX: u32 = 20;
/// Read-ahead of a large value: the memory that a slow client keeps.
const READ_AHEAD_BYTES: u64 = 128 << 10;

/// When the record expires: Unix time in microseconds.
const EXPIRES: HeaderName = HeaderName::from_static("braid-expires-us");

/// A record found by a read.
struct Found {
    version: Version,
    expires: Option<SystemTime>,
    len: u64,
    value: Stored,
}

enum Stored {
    Small(Bytes),
    Large(Box<StreamReader>),
}

fn look_up(tree: &Tree, key: &[u8]) -> Result<Option<Found>, Problem> {
    let Some(mut reader) = tree.stream(key)? else { return Ok(None) };
    let (len, expires) = (reader.len(), reader.expires());
    let Some(version) = reader.version() else { return Ok(None) };
    let value = match usize::try_from(len) {
        Ok(small) if small <= SMALL_BYTES => Stored::Small(reader.read_range(0..len)?.into()),
        _ => Stored::Large(Box::new(reader.with_read_ahead(READ_AHEAD_BYTES))),
    };
    Ok(Some(Found { version, expires, len, value }))
}

/// Returns the version of a record; `None` without one.
fn present_version(tree: &Tree, key: &[u8]) -> Result<Option<Version>, Problem> {
    Ok(tree.stream(key)?.and_then(|reader| reader.version()))
}

pub async fn get(service: &Service, request: &Parts, name: &str, key: &str) -> Answer {
    let tree = match service.opened(name)? {
        Opened::Single(tree) => tree,
        Opened::Multi(tree) => return pairs::get(service, request, tree, name, key).await,
    };
    let (headers, query) = (&request.headers, Query::of(request.uri.query(), &["codec"])?);
    let conditions = Conditions::of(headers)?;
    let key = service.key(key, query)?.into_owned();
    // A HEAD is answered like a GET, whose headers depend on the value: hyper drops the body.
    let found = service.place().run(move || look_up(&tree, &key)).await??;
    let Some(found) = found else {
        return Err(Problem::not_found("the tree has no record with this key"));
    };
    let accepted = Accepted::of_request(&request.method, headers);
    let freshness = conditions.of_read(found.version, accepted)?;
    let mut response = new_response(StatusCode::OK, Body::empty());
    let to = response.headers_mut();
    to.insert(header::ETAG, etag(found.version));
    // Caches validate each use, which the version makes cheap: a record may be replaced or deleted
    // long before it expires.
    to.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Some(expires) = found.expires {
        to.insert(EXPIRES, unix_us(expires));
    }
    if let Freshness::NotModified(coding) = freshness {
        if let Some(coding) = coding {
            to.insert(header::ETAG, ascii(coding.tag(found.version)));
        }
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return Ok(response);
    }
    to.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    to.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let is_get = request.method == Method::GET;
    let wanted = headers.get(header::RANGE).filter(|_| is_get && permits_range(headers, found.version));
    let part = match Part::of(wanted.map(HeaderValue::as_bytes), found.len) {
        Part::Whole => 0..found.len,
        Part::Bytes(part) => {
            let text = format!("bytes {}-{}/{}", part.start, part.end - 1, found.len);
            to.insert(header::CONTENT_RANGE, ascii(text));
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            part
        }
        Part::Unsatisfiable => return Err(out_of_range(found.len)),
    };
    *response.body_mut() = body_of(found.value, part).await?;
    Ok(response)
}

fn out_of_range(len: u64) -> Problem {
    let detail = format!("the value has {len} bytes: begin the range before its end");
    Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, "Range not satisfiable", detail)
        .with_header(header::CONTENT_RANGE, ascii(format!("bytes */{len}")))
}

async fn body_of(value: Stored, part: Range<u64>) -> Result<Body, Problem> {
    match value {
        Stored::Small(bytes) => {
            let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            Ok(Body::whole(bytes.slice(place(part.start)..place(part.end))))
        }
        Stored::Large(reader) => {
            let len = part.end - part.start;
            Body::produced(Pieces { reader, part }, Some(len)).await
        }
    }
}

/// Reads a large value as the client takes it.
struct Pieces {
    reader: Box<StreamReader>,
    part: Range<u64>,
}

impl Producer for Pieces {
    fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        if self.part.is_empty() {
            return Ok(None);
        }
        let end = self.part.end.min(self.part.start + CHUNK_BYTES as u64);
        let bytes = self.reader.read_range(self.part.start..end)?;
        self.part.start = end;
        Ok(Some(bytes.into()))
    }
}

/// Text of digits, letters and punctuation.
pub fn ascii(text: impl AsRef<[u8]>) -> HeaderValue {
    HeaderValue::from_bytes(text.as_ref()).unwrap_or_else(|_| HeaderValue::from_static(""))
}

pub fn etag(version: Version) -> HeaderValue {
    ascii(version.etag().as_bytes())
}

/// Returns the Unix time of an expiry in microseconds.
fn unix_us(time: SystemTime) -> HeaderValue {
    ascii(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros().to_string())
}

pub async fn put(service: &Service, request: &Parts, body: &mut Option<Incoming>, name: &str, key: &str) -> Answer {
    let tree = match service.opened(name)? {
        Opened::Single(tree) => tree,
        Opened::Multi(tree) => return pairs::put(service, request, body, tree, key).await,
    };
    let query = Query::of(request.uri.query(), &["codec", "ttl"])?;
    let ttl = query.seconds("ttl")?;
    let is_coded = check_coding(&request.headers)?;
    let conditions = Arc::new(Conditions::of(&request.headers)?);
    let key = Arc::<[u8]>::from(&*service.key(key, query)?);
    upload::check_declared(&request.headers, upload::value_bytes_max(service, &tree))?;
    if !conditions.is_empty() || !upload::is_declared_short(&request.headers) {
        // Spares the client from sending a body in vain.
        let (db, checks) = (service.db(), service.checks().clone());
        let (tree, key, conditions) = (tree.clone(), Arc::clone(&key), Arc::clone(&conditions));
        let check = move || {
            checks.of_records(&db, &tree)?;
            checks.of_put(&tree, &key, None)?;
            if conditions.is_empty() { Ok(()) } else { conditions.of_write(present_version(&tree, &key)?) }
        };
        service.place().run(check).await??;
    }
    let (value, _turn) = upload::receive(service, &tree, &key, &request.headers, body).await?;
    let mut value = Some(value);
    for _ in 0..TRIES_MAX {
        let given = match &value {
            Some(Value::Small(bytes)) => Value::Small(bytes.clone()),
            _ => match value.take() {
                Some(stream) => stream,
                None => break,
            },
        };
        let (db, checks) = (service.db(), service.checks().clone());
        let (tree, key, conditions) = (tree.clone(), Arc::clone(&key), Arc::clone(&conditions));
        let write = move || {
            checks.of_records(&db, &tree)?;
            begin_put(&db, &tree, &key, given, ttl, &conditions, &checks)
        };
        let (commit, is_new) = service.place().run(write).await??;
        match commit.await {
            Ok(sequence) => {
                let status = if is_new { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
                let mut response = new_response(status, Body::empty());
                // RFC 9110, section 9.3.4: the bytes that were sent are not those of the record.
                if !is_coded {
                    response.headers_mut().insert(header::ETAG, etag(service.db().version_of(sequence)));
                }
                return Ok(response);
            }
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(conflict())
}

pub fn conflict() -> Problem {
    let detail = "other writes changed the record at the same time: read it again, then repeat the request";
    Problem::new(StatusCode::CONFLICT, "Conflict", detail)
        .with_header(header::RETRY_AFTER, HeaderValue::from_static("0"))
}

/// Values are stored whole and decoded. Returns whether the body has a coding.
pub fn check_coding(headers: &HeaderMap) -> Result<bool, Problem> {
    if headers.contains_key(header::CONTENT_RANGE) {
        return Err(Problem::bad_request("a PUT replaces the whole value: leave out Content-Range"));
    }
    Ok(decompress::coding_of(headers)?.is_some())
}

/// A value to apply.
enum Write {
    Bytes(Bytes),
    Stream(PendingStream),
}

/// Applies the write. Returns its commit, and whether the record is new.
fn begin_put(
    db: &Db,
    tree: &Tree,
    key: &[u8],
    value: Value,
    ttl: Option<Duration>,
    conditions: &Conditions,
    checks: &Checks,
) -> Result<(Commit, bool), Problem> {
    let value = match value {
        Value::Small(bytes) => {
            checks.of_put(tree, key, Some(&bytes))?;
            Write::Bytes(bytes)
        }
        // The codec checks none in blob files.
        Value::Stream(stream) => {
            checks.of_put(tree, key, None)?;
            let stream = stream.take().ok_or_else(Problem::panicked)?;
            Write::Stream(match ttl {
                Some(ttl) => stream.with_ttl(ttl),
                None => stream,
            })
        }
    };
    if conditions.is_empty() {
        let is_new = !tree.contains(key)?;
        let mut batch = db.batch();
        match (value, ttl) {
            (Write::Bytes(value), None) => batch.put(tree, key, value),
            (Write::Bytes(value), Some(ttl)) => batch.put_with_ttl(tree, key, value, ttl),
            (Write::Stream(stream), _) => batch.put_stream(stream),
        };
        return Ok((batch.commit_async(), is_new));
    }
    let transaction = db.begin()?;
    let present = transaction.stream(tree, key)?.and_then(|reader| reader.version());
    conditions.of_write(present)?;
    match (value, ttl) {
        (Write::Bytes(value), None) => transaction.put(tree, key, value)?,
        (Write::Bytes(value), Some(ttl)) => transaction.put_with_ttl(tree, key, value, ttl)?,
        (Write::Stream(stream), _) => transaction.put_pending_stream(stream)?,
    }
    Ok((transaction.commit_async(), present.is_none()))
}

pub async fn delete(service: &Service, request: &Parts, name: &str, key: &str) -> Answer {
    let tree = match service.opened(name)? {
        Opened::Single(tree) => tree,
        Opened::Multi(tree) => return pairs::delete(service, request, tree, key).await,
    };
    let query = Query::of(request.uri.query(), &["codec"])?;
    let conditions = Arc::new(Conditions::of(&request.headers)?);
    let key = Arc::<[u8]>::from(&*service.key(key, query)?);
    for _ in 0..TRIES_MAX {
        let (db, checks) = (service.db(), service.checks().clone());
        let (tree, key, conditions) = (tree.clone(), Arc::clone(&key), Arc::clone(&conditions));
        let delete = move || {
            checks.of_records(&db, &tree)?;
            begin_delete(&db, &tree, &key, &conditions)
        };
        let commit = service.place().run(delete).await??;
        match commit.await {
            Ok(_) => return Ok(new_response(StatusCode::NO_CONTENT, Body::empty())),
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(conflict())
}

fn begin_delete(db: &Db, tree: &Tree, key: &[u8], conditions: &Conditions) -> Result<Commit, Problem> {
    if conditions.is_empty() {
        return Ok(tree.delete_async(key));
    }
    let transaction = db.begin()?;
    conditions.of_write(transaction.stream(tree, key)?.and_then(|reader| reader.version()))?;
    transaction.delete(tree, key)?;
    Ok(transaction.commit_async())
}
