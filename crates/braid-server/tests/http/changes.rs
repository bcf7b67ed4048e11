//! The change stream: its events, resumption, slow clients, positions that are gone, the stop.

use crate::client::{Client, Running};
use braid_server::{Limits, Store};
use braiddb::{Db, options::Tuning, platform::MemVfs};
use serde_json::{Value, json};
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// An event as a client library gives it to the program.
#[derive(Clone, Debug, PartialEq)]
struct Event {
    name: String,
    has_id: bool,
    data: Value,
}

/// A client of a change stream, by the rules of the standard: an `id` counts also without data.
struct Events {
    client: Client,
    text: String,
    last_id: Option<String>,
}

impl Events {
    fn open(server: &Running, query: &str, last_id: Option<&str>) -> Events {
        let mut client = server.connect_narrowly();
        let headers: Vec<(&str, &str)> = last_id.iter().map(|id| ("Last-Event-ID", *id)).collect();
        client.send_head("GET", &format!("/changes{query}"), &headers);
        let head = client.read_head().unwrap().has(200);
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        assert_eq!(head.header("cache-control"), Some("no-store"));
        Events { client, text: String::new(), last_id: last_id.map(|id| id.trim_matches('"').to_owned()) }
    }

    /// Returns the next block of lines; `None` at the end of the stream.
    fn block(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let block = block.to_owned();
                self.text = rest.to_owned();
                return Ok(Some(block));
            }
            match self.client.read_chunk()? {
                Some(chunk) => self.text += str::from_utf8(&chunk).unwrap(),
                None => return Ok(None),
            }
        }
    }

    fn try_next(&mut self) -> io::Result<Option<Event>> {
        let began = Instant::now();
        while let Some(block) = self.block()? {
            // The comments of an idle stream end no read.
            assert!(began.elapsed() < PATIENCE, "only comments");
            let (mut name, mut data, mut has_id) = ("message".to_owned(), None, false);
            for line in block.lines() {
                match line.split_once(": ") {
                    Some(("event", text)) => name = text.to_owned(),
                    Some(("data", text)) => data = Some(serde_json::from_str(text).unwrap()),
                    Some(("id", text)) => (self.last_id, has_id) = (Some(text.to_owned()), true),
                    _ => assert!(line.starts_with(':'), "{line}"),
                }
            }
            if let Some(data) = data {
                return Ok(Some(Event { name, has_id, data }));
            }
        }
        Ok(None)
    }

    fn next(&mut self) -> Option<Event> {
        self.try_next().unwrap()
    }

    /// Returns the changes of the next commit, without their versions, which must be the commit's.
    fn commit(&mut self) -> Vec<Value> {
        let mut changes = Vec::new();
        loop {
            let mut event = self.next().unwrap();
            if event.name == "commit" {
                assert_eq!(event.data["changes"], changes.len());
                assert!(event.data["time_us"].is_u64());
                assert!(changes.iter().all(|(version, _)| *version == event.data["version"]), "{changes:?}");
                assert_eq!(event.data["version"], self.last_id.as_deref().unwrap());
                return changes.into_iter().map(|(_, change)| change).collect();
            }
            assert_eq!((event.name.as_str(), event.has_id), ("change", false), "only a commit has an id");
            let version = event.data["version"].take();
            event.data.as_object_mut().unwrap().remove("version");
            changes.push((version, event.data));
        }
    }
}

/// Flushes do not take the log from clients.
fn retaining() -> Db {
    Db::builder().vfs(Arc::new(MemVfs::new())).log_retention(1 << 30).open("/db").unwrap()
}

#[test]
fn commit_is_shown_with_all_its_changes_and_its_version() {
    let db = Db::in_memory().unwrap();
    let server = Running::writable(&db);
    let mut events = Events::open(&server, "", None);
    assert_eq!(events.block().unwrap().unwrap().split_once(": ").unwrap().0, "id", "the position comes first");
    server.put("/trees/t?ttl=3600", "").has(201);
    assert_eq!(
        events.commit(),
        [json!({"type": "create_tree", "tree": "t", "kind": "single", "ttl": 3600.0, "codec": null})]
    );
    let put = server.put("/trees/t/%FF", b"\xfe").has(201);
    let shown = events.commit();
    assert_eq!((&shown[0]["key"], &shown[0]["value"]), (&json!({"hex": "ff"}), &json!({"hex": "fe"})));
    assert!(shown[0]["expires_us"].as_u64().is_some_and(|us| us > 1_700_000_000_000_000), "{shown:?}");
    assert_eq!(events.last_id.as_deref(), Some(put.etag().trim_matches('"')), "an id is the version of records");

    let (tree, multi) = (db.tree("u").unwrap(), db.multi_tree("m").unwrap());
    events.commit();
    events.commit();
    tree.put_stream("stream", io::Read::take(io::repeat(7), 5_000_000)).unwrap();
    assert_eq!(events.commit(), [json!({"type": "put", "tree": "u", "key": "stream", "bytes": 5_000_000})]);
    let add = db.merge_function("add").unwrap();
    let mut batch = db.batch();
    batch.put(&tree, "a", vec![b'x'; 300_000]).delete(&tree, "b").merge(&tree, "c", &add, 5_u64.to_le_bytes());
    batch.delete_range(&tree, "d".."e").add(&multi, "k", "v").delete_pair(&multi, "k", "w");
    batch.commit().unwrap();
    let mut shown = events.commit();
    let operands = shown.iter_mut().find_map(|change| change.as_object_mut().unwrap().remove("operands"));
    assert_eq!(operands.unwrap()[0]["function"], "add");
    let mut expected = vec![
        json!({"type": "delete_range", "tree": "u", "start": "d", "end": "e"}),
        json!({"type": "put", "tree": "u", "key": "a", "bytes": 300_000}),
        json!({"type": "delete", "tree": "u", "key": "b"}),
        json!({"type": "merge", "tree": "u", "key": "c"}),
        json!({"type": "add", "tree": "m", "key": "k", "value": "v"}),
        json!({"type": "delete_pair", "tree": "m", "key": "k", "value": "w"}),
    ];
    let text = |list: &mut Vec<Value>| list.sort_by_key(Value::to_string);
    text(&mut shown);
    text(&mut expected);
    assert_eq!(shown, expected);
    db.drop_tree("u").unwrap();
    assert_eq!(events.commit(), [json!({"type": "drop_tree", "tree": "u"})]);
}

#[test]
fn filters_select_changes_and_limit_ends_the_stream() {
    let db = Db::in_memory().unwrap();
    let server = Running::limited(&db, |limits| limits.heartbeat = Duration::from_millis(20));
    let mut all = Events::open(&server, "?limit=2", None);
    all.block().unwrap();
    for tree in ["t", "u"] {
        server.put(&format!("/trees/{tree}"), "").has(201);
    }
    assert_eq!((all.commit().len(), all.commit().len(), all.next()), (1, 1, None));
    let after = all.last_id.unwrap();

    let mut of_t = Events::open(&server, &format!("?tree=t&prefix=a%FF&after={after}"), None);
    let mut of_tuples = Events::open(&server, &format!("?tree=u&codec=tuple&prefix=%5B%22x%22%5D&after={after}"), None);
    for path in ["/trees/t/a%FFb", "/trees/t/b", "/trees/u/a%FFb"] {
        server.put(path, "v").has(201);
    }
    let tuple = |text: &str| server.put(&format!("/trees/u/{text}?codec=tuple"), "w").has(201);
    tuple("%5B%22x%5Cu0000y%22%5D");
    let last = tuple("%5B%22x%22%2C1%5D");
    assert_eq!(of_t.commit(), [json!({"type": "put", "tree": "t", "key": {"hex": "61ff62"}, "value": "v"})]);
    assert_eq!(of_tuples.commit(), [json!({"type": "put", "tree": "u", "key": ["x", 1], "value": "w"})]);
    // The position passes commits of others, so that it does not become too old.
    let began = Instant::now();
    while of_t.last_id.as_deref() != Some(last.etag().trim_matches('"')) {
        assert!(began.elapsed() < PATIENCE);
        let block = of_t.block().unwrap().unwrap();
        assert!(block == ":" || block.starts_with("id: "), "{block}");
        of_t.last_id = block.strip_prefix("id: ").map_or(of_t.last_id, |id| Some(id.to_owned()));
    }
    for wrong in ["prefix=a", "codec=tuple", "after=1", "limit=0", "limit=x", "trees=t", "tree=t&codec=tuple&prefix=a"]
    {
        server.get(&format!("/changes?{wrong}")).has_problem(400);
    }
    server.get("/changes?tree=absent").has_problem(404);
    server.ask("POST", "/changes", &[], b"").has_problem(405);
    server.ask("HEAD", "/changes", &[], b"").has(200);
}

/// Changes of trees one after another that had the name `t`, and the version before the first.
fn trees_of_one_name(server: &Running) -> (String, Vec<Vec<Value>>) {
    let scan = server.get("/trees/t/").has(200);
    server.put("/trees/t/a", "1").has(201);
    server.put("/trees/other/a", "1").has(201);
    server.ask("DELETE", "/trees/t", &[], b"").has(204);
    server.put("/trees/other/b", "2").has(201);
    server.put("/trees/t?kind=multi", "").has(201);
    server.put("/trees/t/a", "3").has(201);
    server.put("/trees/other/c", "3").has(201);
    server.ask("DELETE", "/trees/t", &[], b"").has(204);
    server.put("/trees/t?ttl=60", "").has(201);
    server.put("/trees/t/z", "4").has(201);
    let single = |ttl: Value| json!({"type": "create_tree", "tree": "t", "kind": "single", "ttl": ttl, "codec": null});
    let multi = json!({"type": "create_tree", "tree": "t", "kind": "multi", "ttl": null, "codec": null});
    let all = vec![
        vec![json!({"type": "put", "tree": "t", "key": "a", "value": "1"})],
        vec![json!({"type": "drop_tree", "tree": "t"})],
        vec![multi],
        vec![json!({"type": "add", "tree": "t", "key": "a", "value": "3"})],
        vec![json!({"type": "drop_tree", "tree": "t"})],
        vec![single(json!(60.0))],
        vec![json!({"type": "put", "tree": "t", "key": "z", "value": "4"})],
    ];
    (scan.header("braid-version").unwrap().trim_matches('"').to_owned(), all)
}

/// Returns the changes of the next commit without the time of expiry.
fn commit_without_expiry(events: &mut Events) -> Vec<Value> {
    let mut changes = events.commit();
    changes.iter_mut().for_each(|change| drop(change.as_object_mut().unwrap().remove("expires_us")));
    changes
}

/// A stream followed the tree that had the name at its start. After a drop it was silent, and a resumed
/// client never heard of the drop.
#[test]
fn stream_of_a_tree_follows_its_name() {
    let db = retaining();
    db.tree("t").unwrap();
    db.tree("other").unwrap();
    let server = Running::writable(&db);
    let mut connected = Events::open(&server, "?tree=t", None);
    connected.block().unwrap();
    let (before, all) = trees_of_one_name(&server);
    let mut ids = vec![before];
    for expected in &all {
        assert_eq!(commit_without_expiry(&mut connected), *expected);
        ids.push(connected.last_id.clone().unwrap());
    }
    for (at, id) in ids.iter().enumerate() {
        let mut resumed = Events::open(&server, "?tree=t", Some(id));
        for expected in &all[at..] {
            assert_eq!(commit_without_expiry(&mut resumed), *expected, "resumed after {at}");
        }
    }
    // The prefix is of all these trees.
    let mut of_z = Events::open(&server, "?tree=t&prefix=z", Some(&ids[0]));
    for at in [1, 2, 4, 5, 6] {
        assert_eq!(commit_without_expiry(&mut of_z), all[at]);
    }
    // A position from before the tree of its name, and none: a dropped tree, and one that never was.
    server.ask("DELETE", "/trees/t", &[], b"").has(204);
    let mut dropped = Events::open(&server, "?tree=t", ids.last().map(String::as_str));
    assert_eq!((connected.commit(), dropped.commit()), (all[1].clone(), all[1].clone()));
    let mut absent = Events::open(&server, "?tree=t", dropped.last_id.as_deref());
    server.get("/changes?tree=t").has_problem(404);
    server.put("/trees/t?ttl=60", "").has(201);
    for events in [&mut connected, &mut dropped, &mut absent] {
        assert_eq!(events.commit(), all[5]);
    }
}

/// The name can also go to a tree that has had another one.
#[test]
fn stream_of_a_tree_follows_its_name_through_renames() {
    let db = retaining();
    db.tree("t").unwrap();
    db.tree("other").unwrap();
    let server = Running::writable(&db);
    let mut connected = Events::open(&server, "?tree=t", None);
    connected.block().unwrap();
    let start = server.get("/trees/t/").has(200).header("braid-version").unwrap().to_owned();
    db.rename_tree("t", "old").unwrap();
    server.put("/trees/old/a", "1").has(201);
    db.rename_tree("other", "t").unwrap();
    server.put("/trees/t/b", "2").has(201);
    for events in [&mut connected, &mut Events::open(&server, "?tree=t", Some(&start))] {
        assert_eq!(events.commit(), [json!({"type": "rename_tree", "tree": "old", "from": "t"})]);
        assert_eq!(events.commit(), [json!({"type": "rename_tree", "tree": "t", "from": "other"})]);
        assert_eq!(events.commit(), [json!({"type": "put", "tree": "t", "key": "b", "value": "2"})]);
    }
}

/// A browser's `EventSource` can send no token.
#[test]
fn ticket_opens_change_streams_only() {
    let db = retaining();
    db.tree("t").unwrap();
    let server = Running::limited(&db, |limits| limits.ticket_life = Duration::from_millis(300));
    let without = ("Authorization", "");
    server.ask("POST", "/ticket", &[without], b"").has_problem(401);
    server.get("/ticket").has_problem(405);
    let issue = || {
        let issued = server.ask("POST", "/ticket", &[], b"").has(200);
        assert_eq!(issued.header("cache-control"), Some("no-store"));
        issued.json()["ticket"].as_str().unwrap().to_owned()
    };
    let status = |path: &str| {
        let mut client = server.connect();
        client.send_head("GET", path, &[without]);
        client.read_head().unwrap().status
    };
    let ticket = issue();
    for path in ["/trees", "/trees/t/", "/trees/t/k", "/stats", "/backup", "/metrics"] {
        assert_eq!(status(&format!("{path}?ticket={ticket}")), 401, "{path}");
    }
    server.ask("POST", &format!("/ticket?ticket={ticket}"), &[without], b"").has_problem(401);
    assert_eq!(status("/changes"), 401);
    assert_eq!(status(&format!("/changes?ticket={}", "0".repeat(48))), 401);
    let ticket = issue();
    assert_eq!(status(&format!("/changes?tree=t&ticket={ticket}")), 200);
    let began = Instant::now();
    while server.ask("HEAD", &format!("/changes?ticket={ticket}"), &[without], b"").status == 200 {
        std::thread::sleep(Duration::from_millis(400));
        assert!(began.elapsed() < PATIENCE, "the ticket does not expire");
    }
    let refused = server.ask("GET", &format!("/changes?ticket={ticket}"), &[without], b"").has_problem(401);
    assert!(refused.text().contains("POST /ticket"), "{}", refused.text());
}

/// The client disconnects at random places, also inside a commit, while a writer commits. It drops the
/// changes of an unfinished commit and resumes with its last id.
#[test]
fn resumed_client_gets_each_commit_once_and_whole() {
    const COMMITS: u64 = 300;
    let db = retaining();
    let tree = db.tree("t").unwrap();
    let server = Running::writable(&db);
    let scan = server.get("/trees/t/").has(200);
    let start = scan.header("braid-version").unwrap().to_owned();
    let writer = std::thread::spawn(move || {
        for commit in 0..COMMITS {
            let mut batch = db.batch();
            // Some are longer than a chunk.
            for number in 0..1 + commit % 40 * 5 {
                batch.put(&tree, format!("{commit:05} {number:05}"), vec![b'x'; (commit % 7) as usize * 200]);
            }
            batch.commit().unwrap();
        }
    });
    let mut seen = 0;
    let mut last_id = Some(start);
    let mut random = 1_u64;
    while seen < COMMITS {
        let mut events = Events::open(&server, "?tree=t", last_id.as_deref());
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut left = (random >> 33) % 1500;
        let mut changes = 0;
        while left > 0 && seen < COMMITS {
            left -= 1;
            let event = events.next().unwrap();
            if event.name == "change" {
                assert_eq!(event.data["key"], format!("{seen:05} {changes:05}"));
                changes += 1;
                continue;
            }
            assert_eq!((changes, &event.data["changes"]), (1 + seen % 40 * 5, &json!(changes)));
            (seen, changes, last_id) = (seen + 1, 0, events.last_id.clone());
        }
    }
    writer.join().unwrap();
}

fn await_streams(server: &Running, count: u64) {
    let wanted = format!("\nbraiddb_http_change_streams {count}\n");
    let began = Instant::now();
    while !server.get("/metrics").has(200).text().contains(&wanted) {
        assert!(began.elapsed() < PATIENCE, "never {count} streams");
    }
}

#[test]
fn client_that_goes_away_frees_its_stream() {
    let db = Db::in_memory().unwrap();
    let server = Running::limited(&db, |limits| limits.streams = 2);
    let idle = [Events::open(&server, "", None), Events::open(&server, "", None)];
    await_streams(&server, 2);
    let refused = server.get("/changes").has_problem(503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    drop(idle);
    await_streams(&server, 0);
    Events::open(&server, "", None);
}

/// Commits of 60 rows, in the log and not in blob files. The log compresses, so the values are random.
fn many_commits(db: &Db, bytes: usize) {
    let tree = db.tree("t").unwrap();
    let mut random = 1_u64;
    for number in 0..bytes / 60_000 {
        let mut batch = db.batch();
        for row in 0..60 {
            let letter = |_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                b'0' + (random >> 33) as u8 % 64
            };
            batch.put(&tree, format!("{number} {row:02}"), (0..1000).map(letter).collect::<Vec<u8>>());
        }
        batch.commit().unwrap();
    }
}

/// More of them than the pool has threads. They take nothing, and the others wait for none of them.
#[test]
fn clients_that_take_nothing_hold_no_thread() {
    let db = retaining();
    let server = Running::writable(&db);
    db.tree("t").unwrap();
    let start = server.get("/trees/t/").has(200).header("braid-version").unwrap().to_owned();
    many_commits(&db, 12_000_000);
    let mut stalled: Vec<Events> = (0..70).map(|_| Events::open(&server, "", Some(&start))).collect();
    await_streams(&server, 70);
    server.put("/trees/t/after", "v").has(201);
    server.get("/trees/t/?limit=2").has(200);
    // A client that goes on gets all.
    let mut last = stalled.pop().unwrap();
    for _ in 0..200 {
        last.commit();
    }
    assert_eq!(last.commit()[0]["key"], "after");
    drop((stalled, last));
    await_streams(&server, 0);
}

#[test]
fn client_that_stalls_for_long_is_cut_off() {
    let db = retaining();
    db.tree("t").unwrap();
    let server = Running::limited(&db, |limits| limits.patience = Duration::from_millis(100));
    let start = server.get("/trees/t/").has(200).header("braid-version").unwrap().to_owned();
    many_commits(&db, 12_000_000);
    let mut stalled = Events::open(&server, "", Some(&start));
    await_streams(&server, 0);
    // It notices the missing end, and resumes behind the last commit that it has.
    let error = loop {
        match stalled.try_next() {
            Ok(event) => assert!(event.is_some(), "the stream ended like a whole one"),
            Err(error) => break error,
        }
    };
    // A read that timed out would be no end.
    assert!(!matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{error}");
    let mut resumed = Events::open(&server, "", stalled.last_id.as_deref());
    assert_eq!(resumed.commit().len(), 60);
}

#[test]
fn position_that_is_gone_gets_410() {
    let builder = Db::builder().vfs(Arc::new(MemVfs::new())).tuning(Tuning::new().log_segment_bytes(1 << 20));
    let db = builder.open("/db").unwrap();
    let tree = db.tree("t").unwrap();
    let server = Running::writable(&db);
    let first = server.put("/trees/t/k", "v").has(201);
    let id = first.etag();
    let mut stalled = Events::open(&server, "", Some(id));
    // More than sockets hold, so the server has not read it all when its log goes.
    many_commits(&db, 12_000_000);
    let end = db.version_of(tree.put("k", "v").unwrap());
    let began = Instant::now();
    let status = || {
        let mut client = server.connect();
        client.send_head("GET", "/changes", &[("Last-Event-ID", &end.etag())]);
        client.read_head().unwrap().status
    };
    while status() != 410 {
        assert!(began.elapsed() < PATIENCE, "the log is still there");
        many_commits(&db, 1_000_000);
        db.flush().unwrap();
    }
    let problem = server.ask("GET", "/changes", &[("Last-Event-ID", id)], b"").has_problem(410);
    assert!(problem.text().contains("Braid-Version"), "{}", problem.text());
    let last = loop {
        let event = stalled.next().unwrap();
        if event.name == "problem" {
            break event;
        }
    };
    assert_eq!((&last.data["status"], stalled.next()), (&json!(410), None));

    // Of another database, and of a commit that is not there.
    let other = Db::in_memory().unwrap();
    let last = tree.put("k", "v").unwrap();
    let of_other = other.tree("t").unwrap();
    while of_other.put("k", "v").unwrap() < last {}
    let (foreign, later) = (other.version_of(last), db.version_of(last + 1));
    for version in [foreign, later] {
        server.get(&format!("/changes?after={}", version.etag().trim_matches('"'))).has_problem(410);
    }
    for wrong in ["x", "0000000000000007", "0000000000000007-000000000000000G"] {
        server.ask("GET", "/changes", &[("Last-Event-ID", wrong)], b"").has_problem(400);
    }
}

/// Idle and stalled clients: the server ends at once, and not when the time for requests is over.
#[test]
fn stop_ends_streams_at_once() {
    let db = retaining();
    db.tree("t").unwrap();
    let mut server = Running::limited(&db, |limits| (limits.drain, limits.patience) = (2 * PATIENCE, 2 * PATIENCE));
    let start = server.get("/trees/t/").has(200).header("braid-version").unwrap().to_owned();
    let mut idle = Events::open(&server, "", None);
    many_commits(&db, 12_000_000);
    let _stalled = Events::open(&server, "", Some(&start));
    let mut busy = Events::open(&server, "", Some(&start));
    // Meanwhile the server fills the buffers of the other one, and waits for it.
    assert_eq!(busy.commit()[0]["key"], "0 00");
    for _ in 1..200 {
        busy.commit();
    }
    idle.commit();
    await_streams(&server, 3);
    let began = Instant::now();
    server.stop();
    // With the end of a whole response: clients connect again.
    while idle.next().is_some() {}
    drop(busy);
    server.ended();
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    db.close().unwrap();
}

/// A follower has states and no change stream.
#[test]
fn follower_refuses_the_stream() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let owner = Db::open(&path).unwrap();
    owner.tree("t").unwrap().put("k", "v").unwrap();
    let server = Running::start(Store::follower(Db::open_follower(&path).unwrap()), false, Limits::default());
    let refused = server.get("/changes").has_problem(501);
    assert!(refused.text().contains("--write"), "{}", refused.text());
    assert!(server.get("/trees/t/").has(200).header("braid-version").is_some());
}
