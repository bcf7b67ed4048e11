//! Scans: bounds, pages at one snapshot, formats.

use crate::client::{Reply, Running};
use braid_server::{Limits, Store};
use braiddb::{Db, options::MAX_KEY_LEN};
use serde_json::{Value, json};
use std::time::Duration;

fn filled(count: u32) -> Db {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    for number in 0..count {
        tree.put(format!("k{number:05}"), number.to_string()).unwrap();
    }
    db
}

fn keys(reply: &Reply) -> Vec<String> {
    let json = reply.json();
    let records = json["records"].as_array().unwrap();
    records.iter().map(|record| record["key"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn scan_shows_records_within_bounds_in_order() {
    let db = filled(20);
    let server = Running::writable(&db);
    let mut client = server.connect();
    let mut keys_of = |query: &str| keys(&client.ask("GET", &format!("/trees/t/{query}"), &[], b"").has(200));
    let range = |from: u32, to: u32| -> Vec<String> { (from..to).map(|n| format!("k{n:05}")).collect() };
    let reversed = |from, to| -> Vec<String> { range(from, to).into_iter().rev().collect() };
    assert_eq!(keys_of(""), range(0, 20));
    assert_eq!(keys_of("?start=k00003&end=k00006"), range(3, 6));
    assert_eq!(keys_of("?reverse"), reversed(0, 20));
    assert_eq!(keys_of("?reverse=true&start=k00003&end=k00006"), reversed(3, 6));
    assert_eq!(keys_of("?prefix=k0001"), range(10, 20));
    assert_eq!(keys_of("?prefix=k0001&start=k00015"), range(15, 20));
    assert_eq!(keys_of("?prefix=k0001&end=k00015&reverse"), reversed(10, 15));
    assert_eq!(keys_of("?prefix=x"), range(0, 0));
    assert_eq!(keys_of("?start=k00006&end=k00003"), range(0, 0));
    for wrong in ["?limit=0", "?limit=-1", "?limit=x", "?unknown=1", "?reverse=maybe", "?start=%zz", "?next=1"] {
        client.ask("GET", &format!("/trees/t/{wrong}"), &[], b"").has_problem(400);
    }
    client.ask("GET", "/trees/absent/", &[], b"").has_problem(404);
}

/// Writes between the pages are not seen, and retrying a page gives it again.
#[test]
fn pages_of_a_scan_show_one_snapshot() {
    for (reverse, accept) in [("", "application/json"), ("&reverse", "application/json"), ("", "application/x-ndjson")]
    {
        let db = filled(25);
        let tree = db.open_tree("t").unwrap();
        let server = Running::writable(&db);
        let mut client = server.connect();
        let mut seen: Vec<Value> = Vec::new();
        let mut path = format!("/trees/t/?limit=10{reverse}");
        let mut pages = 0;
        loop {
            let read = client.ask("GET", &path, &[("Accept", accept)], b"").has(200);
            assert_eq!(read.header("content-type"), Some(accept));
            if pages < 2 {
                let again = client.ask("GET", &path, &[("Accept", accept)], b"").has(200);
                assert_eq!(records(&again, accept).0, records(&read, accept).0);
            }
            let (records, next) = records(&read, accept);
            seen.extend(records);
            pages += 1;
            tree.clear().unwrap();
            tree.put("k00012x", "new").unwrap();
            let Some(next) = next else { break };
            path = format!("/trees/t/?limit=10&next={next}");
        }
        assert_eq!(pages, 3);
        let mut expected: Vec<Value> =
            (0..25).map(|n| json!({"key": format!("k{n:05}"), "value": n.to_string()})).collect();
        if !reverse.is_empty() {
            expected.reverse();
        }
        assert_eq!(seen, expected, "{reverse} {accept}");
    }
}

fn records(reply: &Reply, accept: &str) -> (Vec<Value>, Option<String>) {
    let next_of = |value: &Value| value["next"].as_str().map(str::to_owned);
    if accept == "application/json" {
        let json = reply.json();
        return (json["records"].as_array().unwrap().clone(), next_of(&json));
    }
    let mut lines: Vec<Value> = reply.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let next = lines.last().and_then(next_of);
    if next.is_some() {
        lines.pop();
    }
    (lines, next)
}

/// A page that ends exactly at the last record has no next one.
#[test]
fn last_page_has_no_token() {
    let server = Running::writable(&filled(10));
    assert_eq!(server.get("/trees/t/?limit=10").json().get("next"), None);
    assert!(server.get("/trees/t/?limit=9").json()["next"].is_string());
    let inside = server.get("/trees/t/?limit=3&end=k00003").json();
    assert_eq!(inside.get("next"), None, "{inside}");
}

#[test]
fn expired_or_foreign_token_is_refused() {
    let db = filled(10);
    db.tree("u").unwrap();
    let server = Running::limited(&db, |limits| {
        limits.snapshots = 2;
        limits.snapshot_life = Duration::from_secs(600);
    });
    let begin = || server.get("/trees/t/?limit=1").json()["next"].as_str().unwrap().to_owned();
    let first = begin();
    server.get(&format!("/trees/u/?next={first}")).has_problem(400);
    server.get(&format!("/trees/t/?next={first}&reverse")).has_problem(400);
    server.get(&format!("/trees/t/?next={}", &first[..15])).has_problem(400);
    begin();
    server.get(&format!("/trees/t/?limit=1&next={first}")).has(200);
    let readers = db.stats().snapshots;
    begin();
    assert_eq!(db.stats().snapshots, readers, "a full table drops one for each new one");
    // The second was unused for longest, then the first.
    begin();
    server.get(&format!("/trees/t/?next={first}")).has_problem(410);
    drop(server);
    assert_eq!(db.stats().snapshots, 0);

    let server = Running::limited(&db, |limits| limits.snapshot_life = Duration::from_millis(1));
    let next = server.get("/trees/t/?limit=1").json()["next"].as_str().unwrap().to_owned();
    let began = std::time::Instant::now();
    while db.stats().snapshots > 0 {
        assert!(began.elapsed().as_secs() < 60, "the snapshot is still kept");
        std::thread::yield_now();
    }
    server.get(&format!("/trees/t/?next={next}")).has_problem(410);
}

/// The token of a page had the key of its first row: above 16 KiB the next request got 431.
#[test]
fn pages_of_the_longest_keys_have_short_tokens() {
    let db = Db::in_memory().unwrap();
    let (tree, multi) = (db.tree("t").unwrap(), db.multi_tree("m").unwrap());
    let long = |byte: u8| vec![byte; MAX_KEY_LEN];
    // The server decides by the length of a place: shorter ones are between.
    for byte in b'a'..=b'e' {
        tree.put(long(byte), [byte]).unwrap();
        tree.put([byte], [byte]).unwrap();
    }
    for (key, value) in [(b'a', b'a'), (b'a', b'b'), (b'b', b'a'), (b'b', b'b')] {
        multi.add(long(key), long(value)).unwrap();
        multi.add([key], long(value)).unwrap();
    }
    let server = Running::writable(&db);
    for (path, rows) in [("/trees/t/", 10), ("/trees/m/", 8)] {
        let whole = server.get(path).has(200).json()["records"].as_array().unwrap().clone();
        assert_eq!(whole.len(), rows);
        for reverse in ["", "&reverse"] {
            let mut found = Vec::new();
            let mut query = format!("?limit=1{reverse}");
            let mut before = None;
            loop {
                let page = server.get(&format!("{path}{query}")).has(200).json();
                found.extend(page["records"].as_array().unwrap().clone());
                let Some(next) = page["next"].as_str() else { break };
                let again = server.get(&format!("{path}{query}")).has(200).json();
                assert!(again["records"] == page["records"], "{path}{query}");
                before = Some(std::mem::replace(&mut query, format!("?limit=1&next={next}")));
            }
            // The scan has ended.
            server.get(&format!("{path}{}", before.unwrap())).has_problem(410);
            if !reverse.is_empty() {
                found.reverse();
            }
            assert!(found == whole, "{path} {reverse}");
        }
    }
    let first = server.get("/trees/m/?limit=1").has(200).json()["next"].as_str().unwrap().to_owned();
    let mut next = first.clone();
    for _ in 0..4 {
        next = server.get(&format!("/trees/m/?limit=1&next={next}")).has(200).json()["next"].as_str().unwrap().into();
    }
    let refused = server.get(&format!("/trees/m/?limit=1&next={first}")).has_problem(410);
    assert!(refused.text().contains("begin the scan again"), "{}", refused.text());
}

/// Any spelling of the tree's name continues its scan.
#[test]
fn token_is_of_the_tree_and_not_of_its_spelling() {
    let db = Db::in_memory().unwrap();
    for name in ["\u{e4}", "u"] {
        let tree = db.tree(name).unwrap();
        tree.put("a", "").unwrap();
        tree.put("b", "").unwrap();
    }
    let server = Running::writable(&db);
    let first = server.get("/trees/%C3%A4/?limit=1").has(200).json();
    let next = first["next"].as_str().unwrap();
    server.get(&format!("/trees/u/?next={next}")).has_problem(400);
    assert_eq!(keys(&server.get(&format!("/trees/%c3%a4/?next={next}")).has(200)), ["b"]);
}

/// A follower closes states that later ones replaced long ago. The client begins again.
#[test]
fn page_of_a_superseded_state_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let owner = Db::open(&path).unwrap();
    let tree = owner.tree("t").unwrap();
    for number in 0..10 {
        tree.put(number.to_string(), "v").unwrap();
    }
    let short = Duration::from_millis(20);
    let follower = Db::builder().refresh_every(Some(short)).reader_age_max(short).open_follower(&path).unwrap();
    let server = Running::start(Store::follower(follower), false, Limits::default());
    let next = server.get("/trees/t/?limit=1").has(200).json()["next"].as_str().unwrap().to_owned();
    let began = std::time::Instant::now();
    loop {
        tree.put("0", began.elapsed().as_nanos().to_string()).unwrap();
        let reply = server.get(&format!("/trees/t/?limit=1&next={next}"));
        if reply.status != 200 {
            reply.has_problem(410);
            break;
        }
        assert!(began.elapsed().as_secs() < 60, "the state is still there");
    }
    server.get("/trees/t/?limit=1").has(200);
}

#[test]
fn bytes_and_large_values_have_their_own_form() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    tree.put(b"\xff", b"\x00\xfe").unwrap();
    tree.put("a\"b", "line\nand \\").unwrap();
    tree.put("large", vec![b'x'; 300_000]).unwrap();
    tree.put_stream("stream", std::io::Read::take(std::io::repeat(7), 5_000_000)).unwrap();
    let server = Running::writable(&db);
    let json = server.get("/trees/t/").has(200).json();
    assert_eq!(
        json["records"],
        json!([
            {"key": "a\"b", "value": "line\nand \\"},
            {"key": "large", "bytes": 300_000},
            {"key": "stream", "bytes": 5_000_000},
            {"key": {"hex": "ff"}, "value": {"hex": "00fe"}},
        ])
    );
    let bare = server.get("/trees/t/?values=false&prefix=%FF").json();
    assert_eq!(bare["records"], json!([{"key": {"hex": "ff"}}]));
}

#[test]
fn long_scan_is_streamed() {
    let db = filled(30_000);
    let server = Running::writable(&db);
    let reply =
        server.ask("GET", "/trees/t/?limit=100000", &[("Accept", "text/html, application/x-ndjson;q=0.9")], b"");
    assert_eq!(reply.header("transfer-encoding"), Some("chunked"));
    let mut lines = reply.text().lines();
    for number in 0..30_000 {
        assert_eq!(lines.next().unwrap(), format!("{{\"key\":\"k{number:05}\",\"value\":\"{number}\"}}"));
    }
    assert_eq!(lines.next(), None);
    assert_eq!(keys(&server.get("/trees/t/?limit=100000")).len(), 30_000);
    assert_eq!(keys(&server.get("/trees/t/")).len(), 1000);
}
