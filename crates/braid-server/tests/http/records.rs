//! Records: methods, keys, conditional requests, expiry.

use crate::client::Running;
use braiddb::{Db, Version};
use std::time::{Duration, SystemTime};

#[test]
fn record_is_created_replaced_read_and_deleted() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    let server = Running::writable(&db);
    server.get("/trees/t/k").has_problem(404);
    let created = server.put("/trees/t/k", "one").has(201);
    let read = server.get("/trees/t/k").has(200);
    assert_eq!(read.text(), "one");
    assert_eq!(read.etag(), created.etag());
    let (_, version) = tree.get_versioned("k").unwrap().unwrap();
    assert_eq!(read.etag(), &*version.etag());
    assert_eq!(read.header("content-type"), Some("application/octet-stream"));
    assert_eq!(read.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(read.header("cache-control"), Some("no-cache"));
    assert!(read.header("date").is_some());
    let replaced = server.put("/trees/t/k", "").has(204);
    assert_ne!(replaced.etag(), created.etag());
    assert_eq!(server.get("/trees/t/k").has(200).body, b"");
    server.ask("DELETE", "/trees/t/k", &[], b"").has(204);
    server.ask("DELETE", "/trees/t/k", &[], b"").has(204);
    assert!(!tree.contains("k").unwrap());
    server.get("/trees/t/k").has_problem(404);
    server.get("/trees/absent/k").has_problem(404);
}

#[test]
fn head_has_length_and_version_without_body() {
    let db = Db::in_memory().unwrap();
    db.tree("t").unwrap().put("k", vec![7; 300_000]).unwrap();
    let server = Running::writable(&db);
    let mut client = server.connect();
    let head = client.ask("HEAD", "/trees/t/k", &[], b"").has(200);
    assert_eq!(head.header("content-length"), Some("300000"));
    // The connection goes on right after the head.
    assert_eq!(client.ask("GET", "/trees/t/k", &[], b"").has(200).etag(), head.etag());
    client.ask("HEAD", "/trees/t/absent", &[], b"").has(404);
    client.ask("GET", "/health", &[], b"").has(200);
}

#[test]
fn every_byte_of_a_key_is_percent_decoded() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    let server = Running::writable(&db);
    let mut client = server.connect();
    for byte in 0..=255_u8 {
        let key = [byte, b'/', byte];
        let path = format!("/trees/t/%{byte:02X}/%{byte:02x}");
        client.ask("PUT", &path, &[], &[byte]).has(201);
        assert_eq!(tree.get(key).unwrap().unwrap(), [byte], "{path}");
        assert_eq!(client.ask("GET", &path, &[], b"").has(200).body, [byte]);
    }
    let all: Vec<u8> = (0..=255).collect();
    let path: String = all.iter().map(|byte| format!("%{byte:02x}")).collect();
    client.ask("PUT", &format!("/trees/t/{path}"), &[], b"all").has(201);
    assert_eq!(tree.get(&all).unwrap().unwrap(), "all");
    // A plus sign is itself in a path.
    client.ask("PUT", "/trees/t/a+b", &[], b"plus").has(201);
    assert_eq!(tree.get("a+b").unwrap().unwrap(), "plus");
    db.tree("ä/b").unwrap().put("k", "v").unwrap();
    assert_eq!(client.ask("GET", "/trees/%c3%a4%2Fb/k", &[], b"").has(200).text(), "v");
    client.ask("GET", "/trees/t/%zz", &[], b"").has_problem(400);
    client.ask("GET", "/trees/%ff/k", &[], b"").has_problem(400);
}

/// Method, headers, status of the existing and of the absent record.
type Case = (&'static str, &'static [(&'static str, &'static str)], u16, u16);

/// Each row: method, headers with `@` for the present and `#` for an earlier version, status for the
/// existing and for the absent record.
#[test]
fn preconditions_decide_the_status() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    let server = Running::writable(&db);
    let mut client = server.connect();
    let cases: [Case; 22] = [
        ("GET", &[("If-Match", "@")], 200, 404),
        ("GET", &[("If-Match", "#")], 412, 404),
        ("GET", &[("If-Match", "W/@")], 412, 404),
        ("GET", &[("If-Match", "*")], 200, 404),
        ("GET", &[("If-None-Match", "@")], 304, 404),
        ("GET", &[("If-None-Match", "#, W/@")], 304, 404),
        ("GET", &[("If-None-Match", "#")], 200, 404),
        ("GET", &[("If-None-Match", "*")], 304, 404),
        ("HEAD", &[("If-None-Match", "@")], 304, 404),
        ("GET", &[("If-None-Match", "#"), ("If-None-Match", "@")], 304, 404),
        ("GET", &[("If-Match", "#"), ("If-None-Match", "@")], 412, 404),
        ("GET", &[("If-Modified-Since", "Sat, 29 Oct 2050 19:43:31 GMT")], 200, 404),
        ("GET", &[("If-Match", "abc")], 400, 400),
        ("PUT", &[("If-Match", "@")], 204, 412),
        ("PUT", &[("If-Match", "#,@")], 204, 412),
        ("PUT", &[("If-Match", "#")], 412, 412),
        ("PUT", &[("If-Match", "*")], 204, 412),
        ("PUT", &[("If-None-Match", "*")], 412, 201),
        ("PUT", &[("If-None-Match", "@")], 412, 201),
        ("DELETE", &[("If-Match", "@")], 204, 412),
        ("DELETE", &[("If-Match", "#")], 412, 412),
        ("DELETE", &[("If-None-Match", "*")], 412, 204),
    ];
    for (method, headers, existing, absent) in cases {
        for (is_there, status) in [(true, existing), (false, absent)] {
            let earlier = db.version_of(tree.put("k", "old").unwrap());
            let present = db.version_of(tree.put("k", "value").unwrap());
            if !is_there {
                tree.delete("k").unwrap();
            }
            let fill = |value: &str| value.replace('@', &present.etag()).replace('#', &earlier.etag());
            let filled: Vec<(&str, String)> = headers.iter().map(|(name, value)| (*name, fill(value))).collect();
            let given: Vec<(&str, &str)> = filled.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let body: &[u8] = if method == "PUT" { b"new" } else { b"" };
            let reply = client.ask(method, "/trees/t/k", &given, body);
            assert_eq!(reply.status, status, "{method} {headers:?} {is_there}: {reply:?}");
            if status == 304 {
                assert_eq!(reply.etag(), &*present.etag());
            }
            let stored = tree.get("k").unwrap();
            let expected = match (method, status) {
                ("PUT", 201 | 204) => Some("new"),
                ("DELETE", 204) => None,
                _ => is_there.then_some("value"),
            };
            assert_eq!(stored.as_deref(), expected.map(str::as_bytes), "{method} {headers:?} {is_there}");
        }
    }
}

/// Lost updates: each client increments a number with `If-Match` until it succeeds.
#[test]
fn concurrent_conditional_puts_lose_no_update() {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 25;
    let db = Db::in_memory().unwrap();
    db.tree("t").unwrap().put("n", "0").unwrap();
    let server = Running::writable(&db);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = server.connect();
                for _ in 0..ROUNDS {
                    loop {
                        let read = client.ask("GET", "/trees/t/n", &[], b"").has(200);
                        let next = (read.text().parse::<u64>().unwrap() + 1).to_string();
                        let reply = client.ask("PUT", "/trees/t/n", &[("If-Match", read.etag())], next.as_bytes());
                        match reply.status {
                            204 => break,
                            412 => {}
                            _ => panic!("{reply:?}"),
                        }
                    }
                }
            });
        }
    });
    assert_eq!(server.get("/trees/t/n").text(), (CLIENTS * ROUNDS).to_string());
}

#[test]
fn ttl_is_stored_and_its_expiry_shown() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    let server = Running::writable(&db);
    for (path, body) in [("/trees/t/small", vec![1; 10]), ("/trees/t/large", vec![2; 2_000_000])] {
        let first = server.put(&format!("{path}?ttl=1000"), &body).has(201);
        let read = server.get(path).has(200);
        // A cache must not serve a record that was replaced meanwhile.
        assert_eq!(read.header("cache-control"), Some("no-cache"));
        let (_, expires) = tree.get_with_expiry(&path[9..]).unwrap().unwrap();
        let shown = Duration::from_micros(read.header("braid-expires-us").unwrap().parse().unwrap());
        assert_eq!(SystemTime::UNIX_EPOCH + shown, expires.unwrap());
        let left = expires.unwrap().duration_since(SystemTime::now()).unwrap();
        assert!(left < Duration::from_secs(1001) && left > Duration::from_secs(800), "{left:?}");
        let matching = [("If-Match", first.etag())];
        server.ask("PUT", &format!("{path}?ttl=5000"), &matching, &body).has(204);
        let (_, expires) = tree.get_with_expiry(&path[9..]).unwrap().unwrap();
        assert!(expires.unwrap() > SystemTime::now() + Duration::from_secs(4000));
        server.put(path, &body).has(204);
        assert_eq!(server.get(path).header("braid-expires-us"), None);
        server.put(&format!("{path}?ttl=0"), &body).has(204);
        server.get(path).has(404);
    }
    server.put("/trees/t/k?ttl=x", "v").has_problem(400);
    server.put("/trees/t/k?tll=5", "v").has_problem(400);
}

#[test]
fn put_with_parts_or_coding_is_refused() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    let server = Running::writable(&db);
    server.ask("PUT", "/trees/t/k", &[("Content-Range", "bytes 0-1/2")], b"ab").has_problem(400);
    server.ask("PUT", "/trees/t/k", &[("Content-Encoding", "br")], b"ab").has_problem(415);
    assert!(!tree.contains("k").unwrap());
    server.ask("PUT", "/trees/t/k", &[("Content-Encoding", "identity")], b"ab").has(201);
}

#[test]
fn tuple_key_is_a_json_array_of_the_path() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    let server = Running::writable(&db);
    // ["pt",7]
    server.put("/trees/t/%5B%22pt%22%2C7%5D?codec=tuple", "v").has(201);
    let json = serde_json::json!(["pt", 7]);
    let packed = braiddb_typed::text::from_json(&json).unwrap();
    assert_eq!(tree.get(packed).unwrap().unwrap(), "v");
    assert_eq!(server.get("/trees/t/%5B%22pt%22%2C7%5D?codec=tuple").has(200).text(), "v");
    let scanned = server.get("/trees/t/?codec=tuple&prefix=%5B%22pt%22%5D").has(200).json();
    assert_eq!(scanned["records"][0], serde_json::json!({"key": ["pt", 7], "value": "v"}));
    server.get("/trees/t/pt?codec=tuple").has_problem(400);
    server.get("/trees/t/pt?codec=other").has_problem(400);
}

/// The answer to a put is durable: the text of its version is that of the record after a reopening.
#[test]
fn acknowledged_put_is_there_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path().join("db")).unwrap();
    db.tree("t").unwrap();
    let server = Running::writable(&db);
    let version: Version = server.put("/trees/t/k", "v").has(201).etag().parse().unwrap();
    drop(server);
    db.close().unwrap();
    let db = Db::open(folder.path().join("db")).unwrap();
    assert_eq!(db.open_tree("t").unwrap().get_versioned("k").unwrap().unwrap(), ("v".into(), version));
}
