//! Scans: `GET /trees/{tree}/`, page by page at one snapshot.

use crate::{
    body::{Body, CHUNK_BYTES, Producer},
    changes::BRAID_VERSION,
    json, opened,
    problem::Problem,
    query::{self, Query},
    record::etag,
    rows::Rows,
    service::{Answer, Service, typed, typed_key},
    snapshots::{Found, Scan, Snapshots, Token},
};
use braiddb::Error;
use braiddb_typed::{BEYOND_RECORDS, text};
use bytes::Bytes;
use hyper::{HeaderMap, StatusCode, header, http::request::Parts};
use std::sync::Arc;

/// Records of a page without `limit`.
const LIMIT_DEFAULT: u64 = 1000;
/// Maximum bytes of a value in a scan. Longer ones are replaced by their lengths.
const VALUE_BYTES_MAX: u64 = 256 << 10;

const PARAMETERS: [&str; 8] = ["prefix", "start", "end", "reverse", "limit", "values", "codec", "next"];

pub async fn scan(service: &Service, request: &Parts, name: &str) -> Answer {
    let query = Query::of(request.uri.query(), &PARAMETERS)?;
    answer(service, request, query, name, None).await
}

/// Answers with the pairs of one key, of a tree with many values per key.
pub async fn of_key(service: &Service, request: &Parts, query: Query<'_>, name: &str, key: &[u8]) -> Answer {
    answer(service, request, query, name, Some(key)).await
}

async fn answer(service: &Service, request: &Parts, query: Query<'_>, name: &str, key: Option<&[u8]>) -> Answer {
    let limit = query.number("limit", "from 1")?.unwrap_or(LIMIT_DEFAULT);
    if limit == 0 {
        return Err(Problem::bad_request("limit=0 asks for no record: give at least 1"));
    }
    let position = match query.bytes("next")? {
        None => None,
        Some(next) => {
            let alone = Query::of(request.uri.query(), &["next", "limit"]);
            alone.map_err(|_| Problem::bad_request("next continues a scan with its parameters: add only limit"))?;
            Some(Token::parse(&next).ok_or_else(|| Problem::bad_request("next is not the token of a scan"))?)
        }
    };
    let (scan, from) = match &position {
        None => {
            let begun = begin(service, query, name)?;
            (Arc::new(if let Some(key) = key { begun.of_key(key) } else { begun }), None)
        }
        Some(token) => find(service, token, name).map(|(scan, place)| (scan, Some(place)))?,
    };
    let is_lines = wants_lines(&request.headers);
    let version = service.db().version_of(scan.snapshot.sequence());
    let page = Page {
        rows: Rows::of(&scan),
        scan,
        snapshots: Arc::clone(service.snapshots()),
        id: position.map(|token| token.id),
        from,
        left: limit,
        is_lines,
        stage: Stage::Begin,
    };
    let content_type = if is_lines { "application/x-ndjson" } else { "application/json" };
    let mut response = typed(StatusCode::OK, content_type, Body::produced(page, None).await?);
    response.headers_mut().insert(BRAID_VERSION, etag(version));
    Ok(response)
}

fn wants_lines(headers: &HeaderMap) -> bool {
    let names = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    let mut types = names.flat_map(|accept| accept.split(',')).map(|one| one.split(';').next().unwrap_or_default());
    types.any(|name| ["application/x-ndjson", "application/jsonl"].contains(&name.trim()))
}

fn begin(service: &Service, query: Query<'_>, name: &str) -> Result<Scan, Problem> {
    let db = service.db();
    let tree = opened::open(&db, &query::decode_name(name)?)?;
    let has_tuples = query.bytes("codec")?.is_some();
    let key = |parameter| {
        let Some(text) = query.bytes(parameter)? else { return Ok(None) };
        typed_key(text, query).map(|key| Some(key.into_owned()))
    };
    let (mut start, mut end) = (key("start")?.unwrap_or_default(), key("end")?);
    if has_tuples {
        // Index entries and definitions of typed trees follow the records.
        let records_end = vec![BEYOND_RECORDS];
        end = Some(end.map_or_else(|| records_end.clone(), |end| end.min(records_end.clone())));
    }
    if let Some(prefix) = key("prefix")? {
        // No element of a tuple begins with this byte, but a text with a zero continues with it.
        let after = match has_tuples {
            true => Some([&prefix[..], &[BEYOND_RECORDS]].concat()),
            false => successor(&prefix),
        };
        start = start.max(prefix);
        end = match (end, after) {
            (Some(end), Some(after)) => Some(end.min(after)),
            (end, after) => end.or(after),
        };
    }
    Ok(Scan {
        snapshot: db.snapshot(),
        tree,
        tree_name: query::decode_name(name)?.into_owned(),
        start,
        end,
        is_reverse: query.flag("reverse")?,
        has_values: query.bytes("values")?.is_none() || query.flag("values")?,
        has_tuples,
    })
}

/// Returns the scan of a token, and the place of its page.
fn find(service: &Service, token: &Token, name: &str) -> Result<(Arc<Scan>, Vec<u8>), Problem> {
    let (scan, place) = match service.snapshots().find(token) {
        Found::Page(scan, place) => (scan, place),
        Found::NoScan => return Err(expired()),
        Found::NoPlace => {
            let detail = "the server has dropped the place of this earlier page, whose key is long: begin the scan \
                          again, and ask for each page once the one before is complete";
            return Err(Problem::new(StatusCode::GONE, "Page expired", detail));
        }
    };
    if scan.tree_name == query::decode_name(name)? {
        Ok((scan, place))
    } else {
        Err(Problem::bad_request("next is the token of another tree"))
    }
}

fn expired() -> Problem {
    let detail = "the snapshot of this scan is gone: begin the scan again, and ask for its pages without long pauses";
    Problem::new(StatusCode::GONE, "Scan expired", detail)
}

/// A follower drops the states that its owner's later ones replaced long ago.
fn of_scan(error: Error) -> Problem {
    if matches!(error, Error::Superseded) { expired() } else { error.into() }
}

impl Scan {
    /// Restricts the scan to the pairs of a key.
    fn of_key(mut self, key: &[u8]) -> Scan {
        self.start = key.to_vec();
        self.end = Some([key, &[0]].concat());
        self
    }
}

/// Returns the first key after all keys with a prefix; `None` if there is none.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < 0xff)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

/// The records of a page as JSON, in chunks.
struct Page {
    rows: Rows,
    scan: Arc<Scan>,
    snapshots: Arc<Snapshots>,
    /// The number of the kept scan, after the first page.
    id: Option<u64>,
    /// The place of the first row of a later page.
    from: Option<Vec<u8>>,
    left: u64,
    is_lines: bool,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begin,
    First,
    Later,
    Ended,
}

impl Page {
    fn seek(&mut self) -> braiddb::Result<bool> {
        match self.from.take() {
            None => self.rows.begin(&self.scan),
            Some(place) => self.rows.resume(place, self.scan.is_reverse),
        }
    }

    fn is_inside(&self) -> bool {
        let key = self.rows.key();
        *key >= *self.scan.start && self.scan.end.as_ref().is_none_or(|end| *key < **end)
    }

    fn write_record(&mut self, to: &mut Vec<u8>) -> braiddb::Result<()> {
        if !self.is_lines && self.stage == Stage::Later {
            to.push(b',');
        }
        if !self.is_lines {
            to.push(b'\n');
        }
        self.stage = Stage::Later;
        let tuple = if self.scan.has_tuples { text::to_json(self.rows.key()) } else { None };
        to.extend_from_slice(b"{\"key\":");
        match tuple {
            Some(tuple) => to.extend_from_slice(tuple.to_string().as_bytes()),
            None => json::write_bytes(to, self.rows.key()),
        }
        if self.scan.has_values {
            match self.rows.value_len()? {
                len if len > VALUE_BYTES_MAX => to.extend_from_slice(format!(",\"bytes\":{len}").as_bytes()),
                _ => {
                    to.extend_from_slice(b",\"value\":");
                    json::write_bytes(to, self.rows.value()?);
                }
            }
        }
        to.push(b'}');
        if self.is_lines {
            to.push(b'\n');
        }
        Ok(())
    }

    fn write_end(&mut self, to: &mut Vec<u8>, has_more: bool) {
        let next = has_more.then(|| self.snapshots.keep(&self.scan, self.id, &self.rows.place()));
        if let (None, Some(id)) = (&next, self.id) {
            self.snapshots.end(id);
        }
        let end = match (self.is_lines, next) {
            (true, None) => String::new(),
            (true, Some(next)) => format!("{{\"next\":\"{next}\"}}\n"),
            (false, None) => "\n]}\n".to_owned(),
            (false, Some(next)) => format!("\n],\"next\":\"{next}\"}}\n"),
        };
        to.extend_from_slice(end.as_bytes());
        self.stage = Stage::Ended;
    }
}

impl Page {
    fn write_chunk(&mut self, chunk: &mut Vec<u8>) -> braiddb::Result<()> {
        let mut has_row = match self.stage {
            Stage::Ended => return Ok(()),
            Stage::Begin => {
                if !self.is_lines {
                    chunk.extend_from_slice(b"{\"records\":[");
                }
                self.stage = Stage::First;
                self.seek()?
            }
            Stage::First | Stage::Later => self.rows.is_on_row(),
        };
        loop {
            if !has_row || !self.is_inside() || self.left == 0 {
                let has_more = has_row && self.is_inside();
                self.write_end(chunk, has_more);
                return Ok(());
            }
            if chunk.len() >= CHUNK_BYTES {
                return Ok(());
            }
            self.write_record(chunk)?;
            self.left -= 1;
            has_row = self.rows.advance(&self.scan)?;
        }
    }
}

impl Producer for Page {
    fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let mut chunk = Vec::new();
        self.write_chunk(&mut chunk).map_err(of_scan)?;
        Ok(if chunk.is_empty() { None } else { Some(chunk.into()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successor_of_prefix_is_first_key_after_it() {
        assert_eq!(successor(b"a").unwrap(), b"b");
        assert_eq!(successor(b"a\xff\xff").unwrap(), b"b");
        assert_eq!(successor(b"\xff"), None);
        assert_eq!(successor(b""), None);
    }
}
