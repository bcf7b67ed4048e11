//! Content codings of responses and of requests.

use crate::client::{Reply, Running};
use braid_server::{Limits, Store};
use braiddb::Db;
use std::io::{Read, Write};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn encode(coding: &str, bytes: &[u8]) -> Vec<u8> {
    if coding == "gzip" { gzip(bytes) } else { zstd::encode_all(bytes, 3).unwrap() }
}

fn decode(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::new();
    match coding {
        "gzip" => flate2::read::GzDecoder::new(bytes).read_to_end(&mut decoded).map(drop),
        _ => zstd::stream::copy_decode(bytes, &mut decoded),
    }
    .unwrap();
    decoded
}

fn get(server: &Running, path: &str, accept: &str) -> Reply {
    server.ask("GET", path, &[("Accept-Encoding", accept)], b"").has(200)
}

/// Text that a coding shortens, and bytes that none does.
fn values() -> [Vec<u8>; 2] {
    let text = (0..40_000_u32).flat_map(|number| format!("{} ", number % 977).into_bytes()).collect();
    let noise = (0..40_000_u64).flat_map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at << 40).to_le_bytes());
    [text, noise.collect()]
}

#[test]
fn answer_is_coded_as_the_client_accepts() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    tree.extend((0..5000).map(|n| (format!("key-{n:05}"), format!("the value of the record {n}")))).unwrap();
    let server = Running::writable(&db);
    for path in ["/trees/t/?limit=9999", "/trees/t/?prefix=key-000", "/metrics"] {
        let plain = server.get(path).has(200);
        assert_eq!(plain.header("vary"), Some("accept-encoding"));
        assert!(plain.header("content-encoding").is_none());
        for coding in ["gzip", "zstd"] {
            let coded = get(&server, path, coding);
            assert_eq!(coded.header("content-encoding"), Some(coding), "{path}");
            assert_eq!(coded.header("vary"), Some("accept-encoding"));
            assert_eq!(coded.header("content-type"), plain.header("content-type"));
            assert!(coded.body.len() * 2 < plain.body.len(), "{path}: {} bytes", coded.body.len());
            if path != "/metrics" {
                assert!(decode(coding, &coded.body) == plain.body, "{path} {coding}");
            }
        }
        assert_eq!(get(&server, path, "br").header("content-encoding"), None);
    }
    // Short bodies are not worth it.
    let small = get(&server, "/trees/t/?limit=2", "gzip");
    assert_eq!((small.header("content-encoding"), small.header("vary")), (None, Some("accept-encoding")));
    server.ask("GET", "/trees/none/k", &[("Accept-Encoding", "gzip")], b"").has_problem(404);
}

#[test]
fn coded_record_has_its_own_tag() {
    let db = Db::in_memory().unwrap();
    db.tree("t").unwrap();
    let server = Running::writable(&db);
    let [text, noise] = values();
    for (key, len) in [("small", 50_000), ("large", text.len())] {
        let path = format!("/trees/t/{key}");
        let tag = server.put(&path, &text[..len]).has(201).etag().to_owned();
        for coding in ["gzip", "zstd"] {
            let coded = get(&server, &path, coding);
            assert_eq!(coded.header("content-encoding"), Some(coding));
            assert_eq!(coded.header("accept-ranges"), None);
            assert!(decode(coding, &coded.body) == text[..len]);
            let own = coded.etag().to_owned();
            assert_eq!(own, format!("{}-{coding}\"", tag.trim_end_matches('"')));
            // The 304 names the answer that the client has and accepts.
            for (given, accept) in [(&own, coding), (&own, "*;q=0.1"), (&tag, coding), (&tag, "identity")] {
                let headers = [("If-None-Match", given.as_str()), ("Accept-Encoding", accept)];
                let fresh = server.ask("GET", &path, &headers, b"").has(304);
                assert_eq!((fresh.etag(), fresh.header("vary")), (given.as_str(), Some("accept-encoding")));
            }
            // A cache asks for a client that cannot decode the answer that it has.
            for accept in ["identity", "br", ""] {
                let headers = [("If-None-Match", own.as_str()), ("Accept-Encoding", accept)];
                let whole = server.ask("GET", &path, &headers, b"").has(200);
                assert!(whole.etag() == tag && whole.body == text[..len], "{coding} {accept}");
            }
            // A range is of the bytes: not of the coded answer that the client has in part.
            let ranged = [("Range", "bytes=0-9"), ("If-Range", own.as_str()), ("Accept-Encoding", coding)];
            let whole = server.ask("GET", &path, &ranged, b"").has(200);
            assert!(whole.header("content-encoding").is_none() && whole.body == text[..len]);
            let part = server.ask("GET", &path, &[("Range", "bytes=0-9"), ("Accept-Encoding", coding)], b"").has(206);
            assert_eq!((part.etag(), &part.body[..]), (&*tag, &text[..10]));
            assert_eq!(part.header("vary"), Some("accept-encoding"));
            let fresh = [("Range", "bytes=0-9"), ("If-None-Match", own.as_str()), ("Accept-Encoding", coding)];
            server.ask("GET", &path, &fresh, b"").has(206);
        }
        // Lost updates are prevented with either.
        let own = get(&server, &path, "gzip").etag().to_owned();
        let check = |version: &str| {
            let version = version.replace('"', "\\\"");
            format!("[{{\"op\":\"check\",\"tree\":\"t\",\"key\":\"{key}\",\"if_version\":\"{version}\"}}]")
        };
        server.ask("POST", "/batch", &[], check(&own).as_bytes()).has(200);
        server.ask("PUT", &path, &[("If-Match", &own)], &text[..len - 1]).has(204);
        server.ask("PUT", &path, &[("If-Match", &own)], &text[..len]).has_problem(412);
        server.ask("POST", "/batch", &[], check(&own).as_bytes()).has_problem(412);
    }
    for len in [50_000, noise.len()] {
        let tag = server.put("/trees/t/noise", &noise[..len]).etag().to_owned();
        let plain = get(&server, "/trees/t/noise", "gzip, zstd");
        assert!(plain.header("content-encoding").is_none() && plain.body == noise[..len]);
        assert_eq!(plain.header("content-length"), Some(&*len.to_string()));
        assert_eq!(plain.etag(), tag);
    }
}

/// A HEAD had the length and the tag of the bytes, and the GET those of the coded answer.
#[test]
fn head_has_the_headers_of_the_get() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    let [text, noise] = values();
    for (key, value) in [("small", &text[..50_000]), ("large", &text), ("noise", &noise), ("tiny", b"v")] {
        tree.put(key, value).unwrap();
    }
    tree.put_stream("stream", &text[..]).unwrap();
    db.multi_tree("m").unwrap().extend((0..500).map(|number| ("k", number.to_string()))).unwrap();
    let server = Running::start(Store::owner(&db), false, Limits::default());
    let paths = ["small", "large", "noise", "tiny", "stream"].map(|key| format!("/trees/t/{key}"));
    let others = ["/trees/t/", "/trees/m/k", "/trees", "/openapi.json", "/page/main.js", "/", "/backup", "/none"];
    for path in paths.iter().map(String::as_str).chain(others) {
        for accept in ["", "gzip", "gzip, zstd", "identity;q=1, gzip;q=0.1"] {
            let ask = |method: &str, more: &[(&str, &str)]| {
                let headers = [&[("Accept-Encoding", accept)], more].concat();
                let mut reply = server.ask(method, path, &headers, b"");
                // hyper leaves out the form of a body that it does not send.
                reply.headers.retain(|(name, _)| !["date", "transfer-encoding"].contains(&name.as_str()));
                (reply.status, reply.headers, reply.body.len())
            };
            let (got, head) = (ask("GET", &[]), ask("HEAD", &[]));
            assert_eq!((got.0, &got.1, 0), (head.0, &head.1, head.2), "{path} {accept}");
            // RFC 9110, section 14.2: a range is of a GET.
            assert_eq!(ask("HEAD", &[("Range", "bytes=0-0")]), head, "{path} {accept}");
            let Some((_, tag)) = got.1.iter().find(|(name, _)| name == "etag") else { continue };
            let fresh = [("If-None-Match", tag.as_str())];
            assert_eq!(ask("HEAD", &fresh), ask("GET", &fresh), "{path} {accept}");
            assert_eq!(ask("GET", &fresh).0, 304, "{path} {accept}");
        }
    }
}

/// Encoders have memory: without a turn the answer is sent as it is.
#[test]
fn answer_over_the_limit_of_codings_is_not_coded() {
    let db = Db::in_memory().unwrap();
    db.tree("t").unwrap();
    let server = Running::limited(&db, |limits| limits.codings = 1);
    let [text, _] = values();
    let large = text.repeat(100);
    server.put("/trees/t/large", &large).has(201);
    server.put("/trees/t/small", &text).has(201);
    let mut slow = server.connect();
    // More than the buffers between take, even coded.
    let noisy: Vec<u8> =
        (0..40).flat_map(|_| values()[1].clone()).zip(large.iter().cycle()).flat_map(|(a, b)| [a, *b, *b]).collect();
    server.put("/trees/t/noisy", &noisy).has(201);
    slow.send("GET", "/trees/t/noisy", &[("Accept-Encoding", "gzip")], b"");
    assert_eq!(slow.read_head().unwrap().header("content-encoding"), Some("gzip"));
    let plain = get(&server, "/trees/t/small", "gzip");
    assert!(plain.header("content-encoding").is_none() && plain.body == text);
    drop(slow);
    let began = std::time::Instant::now();
    while get(&server, "/trees/t/small", "gzip").header("content-encoding").is_none() {
        assert!(began.elapsed().as_secs() < 60, "the turn is not given back");
    }
}

#[test]
fn coded_body_is_stored_decoded() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    let server = Running::writable(&db);
    let [text, noise] = values();
    for coding in ["gzip", "zstd"] {
        for (len, bytes) in [(0, &text), (100, &text), (text.len(), &text), (noise.len(), &noise)] {
            let path = format!("/trees/t/{coding}-{len}");
            let created = server.ask("PUT", &path, &[("Content-Encoding", coding)], &encode(coding, &bytes[..len]));
            // The record has other bytes than the request: RFC 9110, section 9.3.4.
            assert_eq!(created.has(201).header("etag"), None);
            assert!(server.get(&path).has(200).body == bytes[..len], "{coding} {len}");
        }
        let batch =
            format!("[{{\"op\":\"put\",\"tree\":\"t\",\"key\":\"{coding}\",\"value\":\"{}\"}}]", "v".repeat(70_000));
        server.ask("POST", "/batch", &[("Content-Encoding", coding)], &encode(coding, batch.as_bytes())).has(200);
        assert_eq!(tree.get(coding).unwrap().unwrap().len(), 70_000);
    }
    server.ask("PUT", "/trees/t/k", &[("Content-Encoding", "identity")], b"v").has(201);
    for (coding, body) in [("br", &b"v"[..]), ("gzip, gzip", b"v")] {
        let refused = server.ask("PUT", "/trees/t/k", &[("Content-Encoding", coding)], body).has_problem(415);
        assert_eq!(refused.header("accept-encoding"), Some("gzip, zstd"));
    }
    let whole = gzip(&text);
    for wrong in [&whole[..whole.len() - 1], b"", b"no gzip"] {
        server.ask("PUT", "/trees/t/k", &[("Content-Encoding", "gzip")], wrong).has_problem(400);
    }
    assert_eq!(tree.get("k").unwrap().unwrap(), b"v");
    assert_eq!(
        server.get("/metrics").text().lines().find(|line| line.starts_with("braiddb_http_uploads")),
        Some("braiddb_http_uploads 0")
    );
}

/// A body of 1 MB decodes to a gigabyte. The limit applies to decoded bytes, and decoding stops at it.
#[test]
fn decompression_bomb_is_refused() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    let server = Running::limited(&db, |limits| {
        limits.value_bytes = 3_000_000;
        limits.batch_bytes = 3_000_000;
    });
    for coding in ["gzip", "zstd"] {
        let bomb = match coding {
            "gzip" => gzip(&vec![0; 100_000_000]),
            _ => zstd::encode_all(std::io::repeat(0).take(1 << 30), 3).unwrap(),
        };
        assert!(bomb.len() < 200_000);
        for (method, path) in [("PUT", "/trees/t/k"), ("POST", "/batch")] {
            let began = std::time::Instant::now();
            server.ask(method, path, &[("Content-Encoding", coding)], &bomb).has_problem(413);
            assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
        }
        let fits = encode(coding, &[0; 3_000_000]);
        server.ask("PUT", &format!("/trees/t/{coding}"), &[("Content-Encoding", coding)], &fits).has(201);
    }
    assert!(!tree.contains("k").unwrap());
}
