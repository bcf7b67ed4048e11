//! The page at `/`: files that are part of the program.
//!
//! They need no token, since they are the same for everyone: the page asks its user for the token,
//! and sends it with each request for data. The policy permits no inline script and no other origin,
//! so a record's bytes cannot run as a script, and cannot be sent elsewhere.

use crate::{
    body::Body,
    coding::Accepted,
    conditions::fresh_tag,
    problem::Problem,
    service::{Answer, new_response, typed},
};
use hyper::{
    StatusCode,
    header::{self, HeaderName, HeaderValue},
    http::request::Parts,
};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'";

/// Headers of all files of the page besides their type and tag.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CACHE_CONTROL, "no-cache"),
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

struct File {
    /// Its path below `/page/`.
    name: &'static str,
    content_type: &'static str,
    text: &'static str,
}

macro_rules! files {
    ($($name:literal: $content_type:ident,)*) => {
        [$(File {
            name: $name,
            content_type: $content_type,
            text: include_str!(concat!("../page/", $name)),
        }),*]
    };
}

static FILES: [File; 23] = files! {
    "index.html": HTML,
    "style.css": STYLE,
    "icon.svg": IMAGE,
    "api.js": SCRIPT,
    "bytes.js": SCRIPT,
    "charts.js": SCRIPT,
    "commits.js": SCRIPT,
    "dom.js": SCRIPT,
    "findings.js": SCRIPT,
    "format.js": SCRIPT,
    "latencies.js": SCRIPT,
    "main.js": SCRIPT,
    "msgpack.js": SCRIPT,
    "overview.js": SCRIPT,
    "partitions.js": SCRIPT,
    "record.js": SCRIPT,
    "records.js": SCRIPT,
    "samples.js": SCRIPT,
    "skyline.js": SCRIPT,
    "table.js": SCRIPT,
    "trees.js": SCRIPT,
    "tuples.js": SCRIPT,
    "values.js": SCRIPT,
};

/// Answers with a file of the page; the page itself has the name `index.html`.
pub fn file(request: &Parts, name: &str) -> Answer {
    let Some(file) = FILES.iter().find(|file| file.name == name) else {
        return Err(Problem::not_found("the page has no such file: reload it at /"));
    };
    let tag = tag_of(file.text);
    let known = fresh_tag(&request.headers, &tag, Accepted::of_request(&request.method, &request.headers));
    let mut response = match known {
        Some(_) => new_response(StatusCode::NOT_MODIFIED, Body::empty()),
        None => typed(StatusCode::OK, file.content_type, Body::whole(file.text)),
    };
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::try_from(known.unwrap_or(tag)) {
        headers.insert(header::ETAG, tag);
    }
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

/// Returns the entity tag of a text: a hash (FNV-1a, 64 bits) that changes with each edit.
fn tag_of(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("\"{hash:016x}\"")
}
