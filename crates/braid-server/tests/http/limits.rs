//! Limits: sizes, slow clients, connections.

use crate::client::{Client, Running};
use braiddb::{Db, platform::MemVfs};
use std::{
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

const SHORT: Duration = Duration::from_millis(200);

#[test]
fn body_over_the_limit_is_refused_and_not_stored() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    let server = Running::limited(&db, |limits| {
        limits.value_bytes = 100_000;
        limits.batch_bytes = 1000;
    });
    // Declared: refused before the body is sent.
    let mut client = server.connect();
    client.send_head("PUT", "/trees/t/k", &[("Content-Length", "100001"), ("Expect", "100-continue")]);
    client.reply("PUT").has_problem(413);
    // Not declared: refused while it is received.
    for (len, status) in [(100_000, 201), (100_001, 413)] {
        let mut client = server.connect();
        client.send_head("PUT", &format!("/trees/t/{len}"), &[("Transfer-Encoding", "chunked")]);
        client.write(format!("{len:x}\r\n").as_bytes());
        client.write(&vec![b'x'; len]);
        client.write(b"\r\n0\r\n\r\n");
        client.reply("PUT").has(status);
    }
    server.put("/trees/t/whole", vec![b'x'; 100_000]).has(201);
    assert_eq!(tree.len().unwrap(), 2);
    server.ask("POST", "/batch", &[], &[b' '; 1001]).has_problem(413);
    let padded = format!("[]{}", " ".repeat(998));
    server.ask("POST", "/batch", &[], padded.as_bytes()).has(200);
}

#[test]
fn head_over_the_limit_is_refused() {
    let db = Db::in_memory().unwrap();
    let server = Running::limited(&db, |limits| limits.head_bytes = 10_000);
    server.ask("GET", "/health", &[("X-Padding", &"x".repeat(8_000))], b"").has(200);
    server.ask("GET", "/health", &[("X-Padding", &"x".repeat(20_000))], b"").has(431);
    let many: Vec<(String, String)> = (0..100).map(|n| (format!("X-{n}"), "v".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    server.ask("GET", "/health", &many, b"").has(431);
}

#[test]
fn connection_with_slow_head_is_closed() {
    let db = Db::in_memory().unwrap();
    let server = Running::limited(&db, |limits| limits.head_time = SHORT);
    let mut silent = server.connect();
    let mut begun = server.connect();
    begun.write(b"GET /health HTTP/1.1\r\nHost:");
    let mut idle = server.connect();
    idle.ask("GET", "/health", &[], b"").has(200);
    for client in [&mut silent, &mut begun, &mut idle] {
        assert!(client.is_closed());
    }
}

#[test]
fn slow_body_is_given_up() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    let server = Running::limited(&db, |limits| limits.patience = SHORT);
    for sent in [10, 100_000] {
        let mut client = server.connect();
        client.send_head("PUT", "/trees/t/k", &[("Content-Length", "1000000")]);
        client.write(&vec![b'x'; sent]);
        client.reply("PUT").has_problem(408);
        assert!(client.is_closed());
    }
    assert!(tree.is_empty().unwrap());
}

/// A client that sends a byte now and then must not hold its place for long.
#[test]
fn body_below_the_least_rate_is_given_up() {
    let db = Db::in_memory().unwrap();
    db.tree("t").unwrap();
    let server = Running::limited(&db, |limits| limits.patience = 5 * SHORT);
    let mut client = server.connect();
    client.send_head("PUT", "/trees/t/k", &[("Content-Length", "1000000")]);
    let sent = AtomicUsize::new(0);
    let mut writer = client.stream.get_ref().try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while writer.write_all(b"x").is_ok() {
                sent.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(SHORT / 20);
            }
        });
        client.reply("PUT").has_problem(408);
        let sent = sent.load(Ordering::Relaxed);
        // About 100 in the time that the client may keep the server waiting.
        assert!(sent < 1000, "given up after {sent} bytes");
        drop(client);
    });
}

/// The client takes nothing of a large value. It holds no snapshot after its time, and others are
/// served meanwhile.
#[test]
fn client_that_takes_nothing_is_given_up() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    tree.put_stream("large", std::io::repeat(7).take(50_000_000)).unwrap();
    let server = Running::limited(&db, |limits| limits.patience = SHORT);
    let mut slow = server.connect();
    slow.send("GET", "/trees/t/large", &[], b"");
    let head = slow.read_head().unwrap();
    assert_eq!(head.header("content-length"), Some("50000000"));
    server.get("/health").has(200);
    let began = std::time::Instant::now();
    while db.stats().snapshots > 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "the reader is still there");
        std::thread::yield_now();
    }
    let mut rest = Vec::new();
    let _ = slow.stream.read_to_end(&mut rest);
    assert!(rest.len() < 40_000_000, "{} bytes were sent", rest.len());
}

/// One that takes its bytes steadily gets all, however long it lasts.
#[test]
fn client_that_takes_bytes_steadily_gets_all() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    tree.put_stream("large", std::io::repeat(7).take(40_000_000)).unwrap();
    let server = Running::limited(&db, |limits| {
        limits.patience = 10 * SHORT;
        limits.rate_min = 1 << 20;
    });
    let mut client = server.connect();
    client.send("GET", "/trees/t/large", &[], b"");
    client.read_head().unwrap();
    let mut left = 40_000_000;
    let mut part = vec![0; 1_000_000];
    while left > 0 {
        std::thread::sleep(SHORT / 2);
        client.stream.read_exact(&mut part).unwrap();
        left -= part.len();
    }
}

/// Regression: with large socket buffers, the server saw no progress for seconds, and cut off clients
/// that read slightly faster than the minimum rate.
#[cfg(target_os = "linux")]
#[test]
fn client_just_above_the_least_rate_gets_all() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    tree.put_stream("large", std::io::repeat(7).take(30_000_000)).unwrap();
    let server = Running::limited(&db, |limits| {
        limits.patience = 8 * SHORT;
        limits.rate_min = 256 << 10;
    });
    let mut client = server.connect();
    client.send("GET", "/trees/t/large", &[], b"");
    client.read_head().unwrap();
    let began = std::time::Instant::now();
    let mut part = vec![0; 32 << 10];
    let mut taken = 0;
    // 1.25 times the rate, for longer than the client's patience and the buffers last.
    while began.elapsed() < 60 * SHORT {
        client.stream.read_exact(&mut part).unwrap();
        taken += part.len();
        let due = Duration::from_secs_f64(taken as f64 / (320 << 10) as f64);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
    let mut rest = Vec::new();
    client.stream.by_ref().take((30_000_000 - taken) as u64).read_to_end(&mut rest).unwrap();
    assert_eq!(taken + rest.len(), 30_000_000);
}

#[test]
fn connection_over_the_limit_waits_for_another_to_end() {
    let db = Db::in_memory().unwrap();
    let server = Running::limited(&db, |limits| limits.connections = 2);
    let (mut first, mut second) = (server.connect(), server.connect());
    first.ask("GET", "/health", &[], b"").has(200);
    second.ask("GET", "/health", &[], b"").has(200);
    let mut third = server.connect();
    third.send("GET", "/health", &[], b"");
    third.stream.get_ref().set_read_timeout(Some(SHORT)).unwrap();
    assert!(third.try_reply("GET").is_err(), "answered beside two others");
    drop(first);
    third.stream.get_ref().set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    third.reply("GET").has(200);
    second.ask("GET", "/health", &[], b"").has(200);
}

/// Sends the body of a large PUT slowly until `done`, then the rest.
fn send_slowly(client: &mut Client, done: impl FnOnce()) {
    let mut socket = client.stream.get_ref().try_clone().unwrap();
    let is_done = AtomicBool::new(false);
    let mut left = 100_000;
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                socket.write_all(b"x").unwrap();
                left -= 1;
                std::thread::sleep(SHORT / 10);
            }
        });
        done();
        is_done.store(true, Ordering::Relaxed);
        slow.join().unwrap();
    });
    client.write(&vec![b'x'; left]);
    client.reply("PUT").has(201);
}

fn with_one_upload(db: &Db, patience: Duration) -> (Running, Client) {
    db.tree("t").unwrap();
    let server = Running::limited(db, |limits| {
        limits.uploads = 1;
        limits.patience = patience;
        limits.rate_min = 1;
    });
    let mut first = server.connect();
    first.send_head("PUT", "/trees/t/first", &[("Content-Length", "200000")]);
    first.write(&[b'x'; 100_000]);
    server.await_uploads(1);
    (server, first)
}

#[test]
fn upload_over_the_limit_is_refused_after_its_patience() {
    let db = Db::builder().vfs(Arc::new(MemVfs::new())).create_parents(true).open("/db").unwrap();
    let (server, mut first) = with_one_upload(&db, 2 * SHORT);
    send_slowly(&mut first, || {
        // Small values need no turn.
        server.put("/trees/t/small", "v").has(201);
        let refused = server.put("/trees/t/second", [2; 200_000]).has_problem(503);
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert_eq!(refused.header("connection"), Some("close"));
    });
    assert!(!db.tree("t").unwrap().contains("second").unwrap());
}

#[test]
fn upload_over_the_limit_waits_for_its_turn() {
    let db = Db::builder().vfs(Arc::new(MemVfs::new())).create_parents(true).open("/db").unwrap();
    let (server, mut first) = with_one_upload(&db, 300 * SHORT);
    let mut second = server.connect();
    send_slowly(&mut first, || {
        second.send("PUT", "/trees/t/second", &[], &[2; 200_000]);
        second.stream.get_ref().set_read_timeout(Some(SHORT)).unwrap();
        assert!(second.try_reply("PUT").is_err(), "answered beside another upload");
    });
    second.stream.get_ref().set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    second.reply("PUT").has(201);
    server.await_uploads(0);
}

/// A reset after the close overtook the response: clients that send their whole body first saw only a
/// broken connection.
#[test]
fn refusal_of_a_long_body_reaches_its_client() {
    let db = Db::in_memory().unwrap();
    db.tree("t").unwrap();
    let server = Running::limited(&db, |limits| limits.value_bytes = 1_000_000);
    for (path, headers, status) in [
        ("/trees/t/k", vec![], 413),
        ("/trees/t/k", vec![("Authorization", "Bearer no")], 401),
        ("/nothing", vec![], 404),
    ] {
        let mut client = server.connect();
        let head = [vec![("Content-Length", "3000000")], headers].concat();
        client.send_head("PUT", path, &head);
        std::thread::sleep(SHORT);
        for part in vec![0; 3_000_000].chunks(100_000) {
            client.stream.get_mut().write_all(part).unwrap();
        }
        assert_eq!(client.reply("PUT").has_problem(status).header("connection"), Some("close"));
        client.stream.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
        assert!(client.is_closed());
    }
}

/// A client that sends a refused body without end keeps its connection for a short time.
#[test]
fn refused_body_is_read_for_a_limited_time() {
    let db = Db::in_memory().unwrap();
    let server = Running::writable(&db);
    let mut client = server.connect();
    client.send_head("PUT", "/", &[("Content-Length", "1000000000")]);
    let began = std::time::Instant::now();
    while client.stream.get_mut().write_all(&[0; 1000]).is_ok() {
        assert!(began.elapsed() < Duration::from_secs(60), "the connection is still open");
        std::thread::sleep(SHORT / 20);
    }
}

#[test]
fn longest_times_are_permitted() {
    let db = Db::in_memory().unwrap();
    db.tree("t").unwrap();
    let server = Running::limited(&db, |limits| {
        limits.head_time = Duration::MAX;
        limits.patience = Duration::MAX;
        limits.snapshot_life = Duration::MAX;
        limits.drain = Duration::MAX;
    });
    let mut client = server.connect();
    client.ask("PUT", "/trees/t/k", &[], &[1; 300_000]).has(201);
    assert_eq!(client.ask("GET", "/trees/t/k", &[], b"").has(200).body.len(), 300_000);
    client.ask("GET", "/trees/t/?limit=1", &[], b"").has(200);
}

#[test]
fn batch_over_the_number_of_operations_is_refused() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    let server = Running::limited(&db, |limits| limits.batch_operations = 10);
    let batch = |count: usize| {
        let puts: Vec<_> = (0..count)
            .map(|n| serde_json::json!({"op": "put", "tree": "t", "key": n.to_string(), "value": ""}))
            .collect();
        serde_json::Value::from(puts).to_string()
    };
    server.ask("POST", "/batch", &[], batch(11).as_bytes()).has_problem(413);
    assert!(tree.is_empty().unwrap());
    server.ask("POST", "/batch", &[], batch(10).as_bytes()).has(200);
    assert_eq!(tree.len().unwrap(), 10);
}
