//! Protection: token, origin, read-only, addresses.

use crate::client::{Running, TOKEN};
use braid_server::{Limits, Options, Server, Store};
use braiddb::Db;

#[test]
fn request_without_token_is_refused() {
    let db = Db::in_memory().unwrap();
    db.tree("t").unwrap().put("k", "secret").unwrap();
    let server = Running::writable(&db);
    for authorization in ["", "Bearer", "Bearer wrong", &format!("Bearer {TOKEN}x"), &format!("Basic {TOKEN}")] {
        for (method, path) in
            [("GET", "/trees/t/k"), ("PUT", "/trees/t/k"), ("POST", "/batch"), ("GET", "/metrics"), ("GET", "/nothing")]
        {
            let reply = server.ask(method, path, &[("Authorization", authorization)], b"x").has_problem(401);
            assert!(reply.header("www-authenticate").unwrap().starts_with("Bearer realm="), "{reply:?}");
            assert!(!reply.text().contains("secret"));
        }
        server.ask("GET", "/health", &[("Authorization", authorization)], b"").has(200);
        server.ask("GET", "/ready", &[("Authorization", authorization)], b"").has(200);
    }
    assert_eq!(server.get("/trees/t/k").has(200).text(), "secret");
}

#[test]
fn request_from_web_page_or_for_other_host_is_refused() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    let server = Running::writable(&db);
    server.ask("PUT", "/trees/t/k", &[("Host", "evil.example")], b"v").has_problem(421);
    server.ask("PUT", "/trees/t/k", &[("Host", "localhost"), ("Origin", "http://evil.example")], b"v").has_problem(403);
    server.ask("GET", "/health", &[("Host", "rebound.example:80")], b"").has_problem(421);
    server.ask("OPTIONS", "/trees/t/k", &[("Origin", "http://evil.example")], b"").has_problem(403);
    assert!(tree.is_empty().unwrap());
    let own = format!("http://{}", server.address);
    server.ask("PUT", "/trees/t/k", &[("Host", &server.address.to_string()), ("Origin", &own)], b"v").has(201);
}

#[test]
fn server_without_write_refuses_all_writes() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    tree.put("k", "v").unwrap();
    let server = Running::start(Store::owner(&db), false, Limits::default());
    for (method, path) in [
        ("PUT", "/trees/t/k"),
        ("DELETE", "/trees/t/k"),
        ("PUT", "/trees/new"),
        ("DELETE", "/trees/t"),
        ("POST", "/batch"),
    ] {
        let reply = server.ask(method, path, &[], b"x").has_problem(403);
        assert!(reply.text().contains("--write"), "{reply:?}");
    }
    assert_eq!(server.get("/trees/t/k").has(200).text(), "v");
    assert_eq!(tree.len().unwrap(), 1);
}

#[test]
fn unknown_method_and_path_are_refused() {
    let db = Db::in_memory().unwrap();
    db.tree("t").unwrap();
    let server = Running::writable(&db);
    for (method, path, allowed) in [
        ("POST", "/trees/t/k", "GET, HEAD, PUT, DELETE"),
        ("GET", "/trees/t", "PUT, DELETE"),
        ("PUT", "/trees", "GET, HEAD"),
        ("GET", "/batch", "POST"),
        ("DELETE", "/trees/t/", "GET, HEAD"),
        ("PATCH", "/health", "GET, HEAD"),
    ] {
        assert_eq!(server.ask(method, path, &[], b"").has_problem(405).header("allow"), Some(allowed));
    }
    server.get("/nothing").has_problem(404);
    server.get("/trees//k").has_problem(404);
}

#[test]
fn server_listens_at_loopback_addresses_only() {
    let db = Db::in_memory().unwrap();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let error = Server::bind(address.parse().unwrap(), Store::owner(&db), Options::default()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{address}");
    }
    let short = Options::new().token("short");
    assert!(Server::bind("127.0.0.1:0".parse().unwrap(), Store::owner(&db), short).is_err());
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), Store::owner(&db), Options::default()).unwrap();
    assert_eq!(server.token().len(), 48);
}

/// A follower shows the commits of the owner, and refuses to be served for writing.
#[test]
fn follower_is_served_beside_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let owner = Db::open(&path).unwrap();
    let tree = owner.tree("t").unwrap();
    tree.put("k", "one").unwrap();
    let follow =
        || Db::builder().refresh_every(Some(std::time::Duration::from_millis(1))).open_follower(&path).unwrap();
    let write = Options::new().write(true);
    assert!(Server::bind("127.0.0.1:0".parse().unwrap(), Store::follower(follow()), write).is_err());
    let server = Running::start(Store::follower(follow()), false, Limits::default());
    let mut client = server.connect();
    let first = client.ask("GET", "/trees/t/k", &[], b"").has(200);
    assert_eq!(first.etag(), &*tree.get_versioned("k").unwrap().unwrap().1.etag());
    tree.put("k", "two").unwrap();
    let began = std::time::Instant::now();
    while client.ask("GET", "/trees/t/k", &[], b"").has(200).text() != "two" {
        assert!(began.elapsed().as_secs() < 60, "the follower shows no later commit");
    }
    client.ask("PUT", "/trees/t/k", &[], b"v").has_problem(403);
    client.ask("GET", "/metrics", &[], b"").has(200);
}
