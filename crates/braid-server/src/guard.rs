//! Checks of each request before anything else: that it is meant for this server, comes from no
//! foreign web page, and has the token.
//!
//! A page in the user's browser can send requests to a loopback address. Two checks refuse them
//! besides the token: `Host` must name this machine's loopback interface (a page that rebinds its
//! own DNS name sends that name), and `Origin` must be absent or the same as `Host`. With TLS, any `Host`
//! is accepted: the browser has checked the certificate for the name, so a rebound one fails earlier.
//!
//! A link of a foreign page to the page of this server is harmless: the user sees the page, and the
//! foreign one gets nothing of it.

use crate::{problem::Problem, route::Route, token::Token};
use hyper::{
    HeaderMap, Method, StatusCode, Uri,
    header::{self, HeaderName, HeaderValue},
};
use std::net::IpAddr;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Returns whether a browser opens the page in a window of its own.
fn is_visit(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    let has = |name, value: &str| headers.get(name).is_some_and(|found: &HeaderValue| found == value);
    matches!(*method, Method::GET | Method::HEAD)
        && Route::of(uri.path()) == Some(Route::Page("index.html"))
        && has(SEC_FETCH_MODE, "navigate")
        && has(SEC_FETCH_DEST, "document")
}

/// Refuses requests for other hosts and from foreign pages.
pub fn check_origin(method: &Method, uri: &Uri, headers: &HeaderMap, is_encrypted: bool) -> Result<(), Problem> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (host, second) = (hosts.next(), hosts.next());
    let (Some(host), None) = (host.and_then(|host| host.to_str().ok()), second) else {
        return Err(Problem::bad_request("a request needs one header Host"));
    };
    let authority = uri.authority().map_or(host, |authority| authority.as_str());
    if !is_encrypted && (!is_loopback(host) || !is_loopback(authority)) {
        let detail = "the server answers only for localhost, 127.0.0.1 and [::1]: use one of these in the URL";
        return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "Misdirected request", detail));
    }
    let scheme: &[u8] = if is_encrypted { b"https://" } else { b"http://" };
    let is_own = |origin: &HeaderValue| {
        let origin = origin.as_bytes();
        origin.strip_prefix(scheme).is_some_and(|origin| origin.eq_ignore_ascii_case(host.as_bytes()))
    };
    let is_near = |site: &HeaderValue| matches!(site.as_bytes(), b"same-origin" | b"none");
    if headers.get(header::ORIGIN).is_some_and(|origin| !is_own(origin))
        || headers.get(SEC_FETCH_SITE).is_some_and(|site| !is_near(site) && !is_visit(method, uri, headers))
    {
        let detail = "the request comes from a web page of another origin, which may not use the server";
        return Err(Problem::new(StatusCode::FORBIDDEN, "Foreign origin", detail));
    }
    Ok(())
}

pub fn check_token(token: &Token, headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(header::AUTHORIZATION);
    if given.is_some_and(|given| token.is_in(given.as_bytes())) {
        return Ok(());
    }
    let detail = "send the header `Authorization: Bearer TOKEN` with the server's token: the one it was started with \
                  (`--token` or BRAID_TOKEN), else the one it printed at its start";
    let challenge = match given {
        None => "Bearer realm=\"braiddb\"",
        Some(_) => "Bearer realm=\"braiddb\", error=\"invalid_token\"",
    };
    Err(Problem::new(StatusCode::UNAUTHORIZED, "No valid token", detail)
        .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge)))
}

/// Returns whether a host with an optional port is a loopback address or `localhost`.
fn is_loopback(authority: &str) -> bool {
    let (host, port) = match authority.strip_prefix('[') {
        Some(address) => match address.split_once(']') {
            Some((address, port)) => (address, port),
            None => return false,
        },
        None => authority.find(':').map_or((authority, ""), |at| authority.split_at(at)),
    };
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    let is_host =
        || host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|host: IpAddr| host.is_loopback());
    is_port && is_host()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_loopback_only_for_own_names() {
        for host in ["localhost", "LocalHost:80", "127.0.0.1", "127.0.0.1:8080", "127.1.2.3", "[::1]", "[::1]:9"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            ":80",
            "localhost.",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.example:80",
            "10.0.0.1",
            "0.0.0.0",
            "[::1",
            "[::2]",
            "::1",
            "localhost:80:80",
            "localhost:x",
            "user@localhost",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    fn check(headers: &[(&'static str, &'static str)]) -> Result<(), Problem> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        check_origin(&Method::GET, &Uri::from_static("/trees"), &map, false)
    }

    #[test]
    fn encrypted_request_needs_the_origin_of_its_host() {
        let check = |host: &'static str, origin: &'static str| {
            let mut map = HeaderMap::new();
            map.insert("host", HeaderValue::from_static(host));
            map.insert("origin", HeaderValue::from_static(origin));
            check_origin(&Method::GET, &Uri::from_static("/trees"), &map, true).is_ok()
        };
        assert!(check("db.example:8443", "https://db.example:8443"));
        assert!(!check("db.example:8443", "http://db.example:8443"));
        assert!(!check("db.example:8443", "https://evil.example"));
    }

    #[test]
    fn request_of_foreign_page_is_refused() {
        let host = ("host", "127.0.0.1:8080");
        assert!(check(&[host]).is_ok());
        assert!(check(&[host, ("origin", "http://127.0.0.1:8080"), ("sec-fetch-site", "same-origin")]).is_ok());
        assert!(check(&[host, ("sec-fetch-site", "none")]).is_ok());
        for foreign in ["http://evil.example", "null", "http://127.0.0.1:8081", "https://127.0.0.1:8080", ""] {
            assert!(check(&[host, ("origin", foreign)]).is_err(), "{foreign}");
        }
        for site in ["cross-site", "same-site"] {
            assert!(check(&[host, ("sec-fetch-site", site)]).is_err(), "{site}");
        }
        assert!(check(&[("host", "evil.example")]).is_err());
        assert!(check(&[]).is_err());
        assert!(check(&[host, host]).is_err());
        let absolute = Uri::from_static("http://evil.example/trees");
        let mut map = HeaderMap::new();
        map.insert("host", HeaderValue::from_static("localhost"));
        assert!(check_origin(&Method::GET, &absolute, &map, false).is_err());
    }
}
