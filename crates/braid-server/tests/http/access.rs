//! Reports for an access log.

use crate::client::{Running, TOKEN};
use braid_server::{Access, AccessLog, Limits, Options, Store};
use braiddb::Db;
use std::{
    io::Read as _,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

#[derive(Debug, Default)]
struct Lines(Mutex<Vec<String>>);

impl AccessLog for Lines {
    fn record(&self, access: &Access<'_>) {
        assert!(access.peer.ip().is_loopback() && access.time < Duration::from_secs(600));
        assert!(!format!("{access:?}").contains(TOKEN));
        let Access { method, route, target, status, bytes, is_whole, .. } = access;
        self.0.lock().unwrap().push(format!("{method} {route} {target} {status} {bytes} {is_whole}"));
    }
}

impl Lines {
    /// A report follows the response.
    fn wait_for(&self, count: usize) -> Vec<String> {
        let began = Instant::now();
        while self.0.lock().unwrap().len() < count {
            assert!(began.elapsed() < Duration::from_secs(60), "{:?}", self.0.lock().unwrap());
            std::thread::yield_now();
        }
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

#[test]
fn each_request_is_reported_once() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    tree.put_stream("large", std::io::repeat(7).take(300_000)).unwrap();
    let lines = Arc::new(Lines::default());
    let server = Running::with(Store::owner(&db), Options::new().write(true).access_log(lines.clone()));
    let mut client = server.connect();
    for (method, path, body, report) in [
        ("PUT", "/trees/t/a%20b?ttl=9", "value", "PUT /trees/{tree}/{key} /trees/t/a%20b?ttl=9 201 0 true"),
        ("GET", "/trees/t/a%20b", "", "GET /trees/{tree}/{key} /trees/t/a%20b 200 5 true"),
        ("HEAD", "/trees/t/large", "", "HEAD /trees/{tree}/{key} /trees/t/large 200 0 true"),
        ("GET", "/trees/t/large", "", "GET /trees/{tree}/{key} /trees/t/large 200 300000 true"),
        ("HEAD", "/trees/t/", "", "HEAD /trees/{tree}/ /trees/t/ 200 0 true"),
        ("GET", "/trees/t/?limit=1&values=false", "", "GET /trees/{tree}/ /trees/t/?limit=1&values=false 200"),
        ("DELETE", "/trees/t/a%20b", "", "DELETE /trees/{tree}/{key} /trees/t/a%20b 204 0 true"),
        ("GET", "/none", "", "GET - /none 404"),
        ("GET", "/health", "", "GET /health /health 200 3 true"),
    ] {
        client.ask(method, path, &[], body.as_bytes());
        let reports = lines.wait_for(1);
        assert!(reports.len() == 1 && reports[0].starts_with(report) && reports[0].ends_with(" true"), "{reports:?}");
    }
    client.ask("GET", "/trees", &[("Authorization", "Bearer no")], b"").has(401);
    assert!(lines.wait_for(1)[0].starts_with("GET /trees /trees 401 "));
}

#[test]
fn request_given_up_is_reported_as_cut() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    tree.put_stream("large", std::io::repeat(7).take(50_000_000)).unwrap();
    let lines = Arc::new(Lines::default());
    let mut limits = Limits::default();
    limits.patience = Duration::from_millis(200);
    let server = Running::with(Store::owner(&db), Options::new().limits(limits).access_log(lines.clone()));
    let mut slow = server.connect();
    slow.send("GET", "/trees/t/large", &[], b"");
    slow.read_head().unwrap();
    let reports = lines.wait_for(1);
    assert!(reports[0].starts_with("GET /trees/{tree}/{key} /trees/t/large 200 "), "{reports:?}");
    assert!(reports[0].ends_with(" false"), "{reports:?}");
}
