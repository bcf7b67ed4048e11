//! Backups: the dump of a download loads, and one that was cut short does not.

use crate::client::Running;
use braid_server::{Limits, Store};
use braiddb::{Db, Error, dump::LoadOptions, platform::MemVfs};
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(60);

fn load(mut dump: &[u8]) -> braiddb::Result<Db> {
    let vfs = Arc::new(MemVfs::new());
    Db::builder().vfs(vfs.clone()).load("/db", &mut dump, LoadOptions::default())?;
    Db::builder().vfs(vfs).open("/db")
}

/// Values that do not compress.
fn fill(db: &Db, rows: u64) {
    let tree = db.tree("t").unwrap();
    let mut random = 1_u64;
    let mut value = || -> Vec<u8> {
        let byte = |_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 56) as u8
        };
        (0..1000).map(byte).collect()
    };
    tree.extend((0..rows).map(|number| (format!("{number:06}"), value()))).unwrap();
}

#[test]
fn downloaded_dump_loads_and_has_everything() {
    let db = Db::in_memory().unwrap();
    fill(&db, 3000);
    let multi = db.multi_tree("m").unwrap();
    multi.extend([("k", "v"), ("k", "w")]).unwrap();
    db.open_tree("t").unwrap().put_stream("stream", io::Read::take(io::repeat(7), 3_000_000)).unwrap();
    let server = Running::start(Store::owner(&db), false, Limits::default());
    let last = db.stats().last_sequence;
    let head = server.ask("HEAD", "/backup", &[], b"").has(200);
    let dump = server.get("/backup").has(200);
    for reply in [&head, &dump] {
        let name = format!("attachment; filename=\"braiddb-{last}.dump\"");
        assert_eq!(reply.header("content-disposition"), Some(name.as_str()));
        assert_eq!(reply.header("braid-version"), Some(&*db.version_of(last).etag()));
    }
    let loaded = load(&dump.body).unwrap();
    let (before, after) = (db.open_tree("t").unwrap(), loaded.open_tree("t").unwrap());
    assert_eq!(after.len().unwrap(), 3001);
    assert!(before.iter().map(Result::unwrap).eq(after.iter().map(Result::unwrap)));
    let pairs = loaded.open_multi_tree("m").unwrap();
    assert!(multi.iter().map(Result::unwrap).eq(pairs.iter().map(Result::unwrap)));
    server.get("/backup?tree=t").has_problem(400);
    server.ask("DELETE", "/backup", &[], b"").has_problem(405);
}

/// At each length, also where a frame ends.
#[test]
fn cut_download_is_refused() {
    let db = Db::in_memory().unwrap();
    fill(&db, 600);
    db.tree("u").unwrap().put("k", "v").unwrap();
    let server = Running::writable(&db);
    let dump = server.get("/backup").has(200).body;
    assert!(load(&dump).is_ok() && dump.len() > 500_000);
    let mut lens: Vec<usize> = (0..dump.len()).step_by(dump.len() / 40).collect();
    lens.extend((dump.len() - 200..dump.len()).rev().step_by(9));
    for len in lens {
        // Less than a header is no dump.
        let error = load(&dump[..len]).unwrap_err();
        assert!(len < 64 || matches!(error, Error::DumpDamaged { .. }), "{len} of {}: {error}", dump.len());
    }
}

fn await_backups(server: &Running, count: u64) {
    let wanted = format!("\nbraiddb_http_backups {count}\n");
    let began = Instant::now();
    while !server.get("/metrics").has(200).text().contains(&wanted) {
        assert!(began.elapsed() < PATIENCE, "never {count} backups");
    }
}

/// It shows the state of its beginning, and ends when its client goes away.
#[test]
fn slow_download_holds_a_snapshot_and_no_thread_of_the_pool() {
    let db = Db::in_memory().unwrap();
    fill(&db, 12_000);
    let server = Running::limited(&db, |limits| limits.backups = 1);
    let mut slow = server.connect_narrowly();
    slow.send_head("GET", "/backup", &[]);
    assert_eq!(slow.read_head().unwrap().status, 200);
    server.get("/backup").has_problem(503);
    server.get("/trees/t/?limit=10").has(200);
    let tree = db.open_tree("t").unwrap();
    tree.clear().unwrap();
    let mut dump = Vec::new();
    while let Some(chunk) = slow.read_chunk().unwrap() {
        dump.extend(chunk);
    }
    assert_eq!(load(&dump).unwrap().open_tree("t").unwrap().len().unwrap(), 12_000);
    await_backups(&server, 0);

    fill(&db, 12_000);
    let snapshots = db.stats().snapshots;
    let mut gone = server.connect_narrowly();
    gone.send_head("GET", "/backup", &[]);
    gone.read_head().unwrap();
    await_backups(&server, 1);
    drop(gone);
    await_backups(&server, 0);
    let began = Instant::now();
    while db.stats().snapshots > snapshots {
        assert!(began.elapsed() < PATIENCE, "the snapshot of the cut download is still there");
    }
    server.get("/backup").has(200);
}

/// The server ends before the dump does: the response has no end, as the dump has none.
#[test]
fn download_that_the_server_ends_is_no_whole_response() {
    let db = Db::in_memory().unwrap();
    fill(&db, 12_000);
    let mut server = Running::limited(&db, |limits| limits.drain = Duration::from_millis(50));
    let mut slow = server.connect_narrowly();
    slow.send_head("GET", "/backup", &[]);
    slow.read_head().unwrap();
    let mut dump = slow.read_chunk().unwrap().unwrap();
    server.stop();
    server.ended();
    let error = loop {
        match slow.read_chunk() {
            Ok(chunk) => dump.extend(chunk.expect("the response has an end")),
            Err(error) => break error,
        }
    };
    assert!(!matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{error}");
    assert!(matches!(load(&dump), Err(Error::DumpDamaged { .. })));
    db.close().unwrap();
}

/// The dump fails after its first parts, since the program closes the database.
#[test]
fn failed_dump_is_no_whole_response() {
    let db = Db::in_memory().unwrap();
    fill(&db, 12_000);
    let server = Running::writable(&db);
    let mut slow = server.connect_narrowly();
    slow.send_head("GET", "/backup", &[]);
    slow.read_head().unwrap();
    db.close().unwrap();
    let error = loop {
        match slow.read_chunk() {
            Ok(chunk) => assert!(chunk.is_some(), "the response has an end"),
            Err(error) => break error,
        }
    };
    // A read that timed out would be no end.
    assert!(!matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{error}");
}

#[test]
fn description_is_served() {
    let db = Db::in_memory().unwrap();
    let server = Running::writable(&db);
    let described = server.get("/openapi.json").has(200);
    assert_eq!(described.header("content-type"), Some("application/json"));
    assert_eq!(described.json()["openapi"], "3.1.0");
}
