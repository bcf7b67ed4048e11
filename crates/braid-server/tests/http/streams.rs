//! Large values and ranges.

use crate::client::Running;
use braiddb::Db;
use std::{
    path::Path,
    time::{Duration, Instant},
};

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

#[test]
fn large_value_streams_in_and_out() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path().join("db")).unwrap();
    let tree = db.tree("t").unwrap();
    let server = Running::writable(&db);
    let value = pattern(20_000_001);
    let created = server.put("/trees/t/known", &value).has(201);
    let read = server.get("/trees/t/known").has(200);
    assert_eq!(read.header("content-length"), Some("20000001"));
    assert_eq!(read.etag(), created.etag());
    assert!(read.body == value);

    let mut client = server.connect();
    client.send_head("PUT", "/trees/t/chunked", &[("Transfer-Encoding", "chunked")]);
    for chunk in value.chunks(70_001) {
        client.write(format!("{:x}\r\n", chunk.len()).as_bytes());
        client.write(chunk);
        client.write(b"\r\n");
    }
    client.write(b"0\r\n\r\n");
    client.reply("PUT").has(201);
    assert!(client.ask("GET", "/trees/t/chunked", &[], b"").has(200).body == value);
    assert_eq!(tree.stream("chunked").unwrap().unwrap().len(), value.len() as u64);

    // Conditional replacement of a stream.
    let matching = [("If-Match", created.etag())];
    server.ask("PUT", "/trees/t/known", &matching, &value[1..]).has(204);
    server.ask("PUT", "/trees/t/known", &matching, &value).has_problem(412);
    assert!(server.get("/trees/t/known").body == value[1..]);
}

fn blob_files(folder: &Path) -> usize {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files
        .map(
            |file| {
                if file.is_dir() { blob_files(&file) } else { file.extension().is_some_and(|end| end == "blob").into() }
            },
        )
        .sum()
}

/// The client goes away in the middle of a large body: nothing is stored, and no file stays pending.
#[test]
fn upload_cut_short_stores_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path().join("db")).unwrap();
    let tree = db.tree("t").unwrap();
    tree.put("k", "before").unwrap();
    let server = Running::limited(&db, |limits| limits.uploads = 1);
    let await_files = |is_enough: fn(usize) -> bool| {
        let began = Instant::now();
        while !is_enough(blob_files(folder.path())) {
            assert!(began.elapsed() < Duration::from_secs(60), "{} files", blob_files(folder.path()));
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    assert_eq!(blob_files(folder.path()), 0);
    for _ in 0..3 {
        let mut client = server.connect();
        client.send_head("PUT", "/trees/t/k", &[("Content-Length", "30000000")]);
        client.write(&pattern(20_000_000));
        await_files(|files| files > 0);
        server.await_uploads(1);
        drop(client);
        server.await_uploads(0);
        await_files(|files| files == 0);
    }
    // The turn of a cut upload is free again.
    server.put("/trees/t/other", pattern(1_000_000)).has(201);
    assert_eq!(tree.get("k").unwrap().unwrap(), "before");
}

#[test]
fn range_of_small_and_large_values() {
    let db = Db::in_memory().unwrap();
    let server = Running::writable(&db);
    db.tree("t").unwrap();
    let mut client = server.connect();
    for len in [1000, 3_000_000] {
        let value = pattern(len);
        let etag = client.ask("PUT", "/trees/t/k", &[], &value);
        let etag = etag.etag();
        let earlier = "\"0000000000000000-0000000000000001\"";
        let mut range = |range: &str, if_range: &str| {
            client.ask("GET", "/trees/t/k", &[("Range", range), ("If-Range", if_range)], b"")
        };
        let part = range("bytes=10-19", "").has(206);
        assert_eq!(part.body, value[10..20]);
        assert_eq!(part.header("content-range"), Some(format!("bytes 10-19/{len}").as_str()));
        assert_eq!(part.header("content-length"), Some("10"));
        assert_eq!(part.etag(), etag);
        assert!(range("bytes=7-", "").has(206).body == value[7..]);
        assert_eq!(range("bytes=-5", "").has(206).body, value[len - 5..]);
        assert!(range(&format!("bytes=900-{}", len * 2), "").has(206).body == value[900..]);
        let beyond = range(&format!("bytes={len}-"), "").has_problem(416);
        assert_eq!(beyond.header("content-range"), Some(format!("bytes */{len}").as_str()));
        // Several ranges, and ranges that are none: the whole value.
        for whole in ["bytes=0-1,5-6", "bytes=5-2", "lines=1-2"] {
            assert!(range(whole, "").has(200).body == value);
        }
        assert_eq!(range("bytes=10-19", etag).has(206).body.len(), 10);
        for other in [earlier, &format!("W/{etag}"), "Sat, 29 Oct 1994 19:43:31 GMT"] {
            assert_eq!(range("bytes=10-19", other).has(200).body.len(), len, "{other}");
        }
        // Preconditions come before the range.
        let reply = client.ask("GET", "/trees/t/k", &[("Range", "bytes=0-1"), ("If-None-Match", etag)], b"");
        reply.has(304);
        client.ask("HEAD", "/trees/t/k", &[("Range", "bytes=0-1")], b"").has(200);
        client.ask("PUT", "/trees/t/k", &[("Range", "bytes=0-1")], b"whole").has(204);
        client.ask("DELETE", "/trees/t/k", &[], b"").has(204);
    }
}
