//! The stop: running requests are answered, new ones are refused.

use crate::client::Running;
use braiddb::Db;
use std::{net::TcpStream, time::Duration};

#[test]
fn stop_answers_running_requests_and_closes_idle_connections() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    let mut server = Running::writable(&db);
    let mut idle = server.connect();
    idle.ask("GET", "/health", &[], b"").has(200);
    let mut running = server.connect();
    running.send_head("PUT", "/trees/t/k", &[("Content-Length", "200000"), ("Expect", "100-continue")]);
    // The server asks for the body: it is inside the request.
    assert_eq!(running.read_head().unwrap().status, 100);
    running.write(&[1; 100_000]);
    server.stop();
    assert!(idle.is_closed());
    while TcpStream::connect(server.address).is_ok() {}
    assert!(!server.has_ended());
    running.write(&[1; 100_000]);
    let reply = running.reply("PUT").has(201);
    assert_eq!(reply.header("connection"), Some("close"));
    server.ended();
    assert_eq!(tree.get("k").unwrap().unwrap().len(), 200_000);
}

#[test]
fn stop_gives_up_requests_that_do_not_end() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    let mut server = Running::limited(&db, |limits| limits.drain = Duration::from_millis(100));
    let mut running = server.connect();
    running.send_head("PUT", "/trees/t/k", &[("Content-Length", "200000"), ("Expect", "100-continue")]);
    assert_eq!(running.read_head().unwrap().status, 100);
    server.stop();
    server.ended();
    assert!(running.is_closed());
    assert!(tree.is_empty().unwrap());
}

#[test]
fn stop_before_the_first_request_ends_the_server() {
    let db = Db::in_memory().unwrap();
    let mut server = Running::writable(&db);
    server.stop();
    server.ended();
    db.close().unwrap();
}
