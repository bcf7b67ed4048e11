//! The page at `/`, and the statistics behind it.

use crate::client::{Reply, Running, TOKEN};
use braid_server::{Journal, Limits, Options, Store};
use braiddb::{Db, events::Event};
use serde_json::Value;
use std::{thread, time::Duration};

const WITHOUT_TOKEN: (&str, &str) = ("Authorization", "");

fn file(server: &Running, path: &str) -> Reply {
    server.ask("GET", path, &[WITHOUT_TOKEN], b"").has(200)
}

/// Returns the files that a file of the page names.
fn named_files(text: &str) -> Vec<String> {
    let quoted = text.split('"').skip(1).step_by(2);
    let files = quoted.filter_map(|path| path.strip_prefix("/page/").or_else(|| path.strip_prefix("./")));
    files.map(str::to_owned).collect()
}

#[test]
fn page_and_all_its_files_are_served_without_token() {
    let db = Db::in_memory().unwrap();
    let server = Running::writable(&db);
    let page = file(&server, "/");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.body, file(&server, "/page/index.html").body);
    let mut names = named_files(page.text());
    let mut at = 0;
    while at < names.len() {
        let reply = file(&server, &format!("/page/{}", names[at]));
        let expected = match names[at].rsplit_once('.').unwrap().1 {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            _ => "image/svg+xml",
        };
        assert_eq!(reply.header("content-type"), Some(expected), "{}", names[at]);
        for name in named_files(reply.text()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        at += 1;
    }
    assert!(names.len() > 15, "{names:?}");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    let mut in_folder: Vec<String> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    in_folder.retain(|name| name != "index.html");
    in_folder.sort();
    names.sort();
    names.dedup();
    assert_eq!(names, in_folder, "the page names each file of the folder, and no others");
}

/// A record's bytes must not run as a script of the page, nor leave the browser for another origin.
#[test]
fn page_permits_no_inline_script_and_no_other_origin() {
    let db = Db::in_memory().unwrap();
    let server = Running::writable(&db);
    for path in ["/", "/page/main.js", "/page/style.css", "/page/icon.svg"] {
        let reply = file(&server, path);
        let policy = reply.header("content-security-policy").unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.split("; ").any(|found| found == part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
    }
    let page = file(&server, "/");
    assert!(!page.text().contains("<script>") && !page.text().contains("style="), "inline code");
    assert!(!page.text().contains("http://") && !page.text().contains("https://"), "a foreign address");
}

#[test]
fn unchanged_file_of_the_page_is_not_sent_again() {
    let db = Db::in_memory().unwrap();
    let server = Running::writable(&db);
    let first = file(&server, "/page/main.js");
    assert_eq!(first.header("cache-control"), Some("no-cache"));
    let tag = first.etag();
    for tags in [tag.to_owned(), format!("\"other\", W/{tag}"), "*".to_owned()] {
        let again = server.ask("GET", "/page/main.js", &[WITHOUT_TOKEN, ("If-None-Match", &tags)], b"").has(304);
        assert!(again.body.is_empty() && again.etag() == tag);
    }
    // The 200 of a browser had a weak tag, and its 304 a strong one.
    let headers = |tag: &str| -> Vec<(&str, String)> {
        vec![("Accept-Encoding", "gzip, br".to_owned()), ("If-None-Match", tag.to_owned())]
    };
    let ask = |headers: &[(&str, String)]| {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        server.ask("GET", "/page/main.js", &[&[WITHOUT_TOKEN], &headers[..]].concat(), b"")
    };
    let coded = ask(&headers("\"other\"")).has(200);
    assert_eq!(coded.etag(), format!("{}-gzip\"", tag.trim_end_matches('"')));
    for (given, fresh) in [(coded.etag(), coded.etag()), (tag, tag)] {
        let again = ask(&headers(given)).has(304);
        assert_eq!((again.etag(), again.header("vary")), (fresh, Some("accept-encoding")));
    }
    ask(&headers(coded.etag())[1..]).has(200);
    assert_ne!(file(&server, "/page/dom.js").etag(), tag);
    server.ask("GET", "/page/main.js", &[WITHOUT_TOKEN, ("If-None-Match", "\"other\"")], b"").has(200);
    let head = server.ask("HEAD", "/page/main.js", &[WITHOUT_TOKEN], b"").has(200);
    assert_eq!(head.header("content-length").unwrap().parse::<usize>().unwrap(), first.body.len());
}

#[test]
fn page_gives_no_data_without_token() {
    let db = Db::in_memory().unwrap();
    let server = Running::writable(&db);
    for path in ["/stats", "/stats?partitions=true", "/trees", "/page"] {
        server.ask("GET", path, &[WITHOUT_TOKEN], b"").has_problem(401);
        server.ask("GET", &format!("{path}?token={TOKEN}"), &[WITHOUT_TOKEN], b"").has_problem(401);
    }
    for path in ["/page/", "/page/absent.js", "/page/../trees", "/page/%2e%2e/trees"] {
        server.ask("GET", path, &[WITHOUT_TOKEN], b"").has_problem(404);
    }
    for path in ["/", "/page/main.js", "/stats"] {
        server.ask("PUT", path, &[], b"x").has_problem(405);
    }
    server.ask("GET", "/", &[WITHOUT_TOKEN, ("Host", "rebound.example")], b"").has_problem(421);
}

fn stats(server: &Running, query: &str) -> Value {
    server.get(&format!("/stats{query}")).has(200).json()
}

#[test]
fn stats_have_the_counters_of_the_engine() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::default();
    let listener = journal.clone();
    let builder = Db::builder().on_event(move |event| listener.note(event));
    let db = builder.open(folder.path().join("db")).unwrap();
    journal.note(&Event::BackgroundError { error: "the disk failed".to_owned() });
    let options = Options::new().write(true).name("music.db").journal(journal);
    let server = Running::with(Store::owner(&db), options);
    server.put("/trees/albums", "").has(201);
    server.put("/trees/albums/ten", "Once").has(201);
    server.get("/trees/albums/ten").has(200);
    server.get("/trees/albums/absent").has(404);
    server.get("/trees/albums/").has(200);
    db.flush().unwrap();
    let snapshot = db.snapshot();
    thread::sleep(Duration::from_millis(600));
    let json = stats(&server, "?partitions=true");
    let expected = db.stats();
    assert_eq!(json["server"]["name"], "music.db");
    assert_eq!(json["events"][0]["kind"], "background_error");
    assert_eq!(json["server"]["write"], true);
    assert_eq!(json["server"]["follower"], false);
    assert_eq!(json["server"]["not_ready"], Value::Null);
    assert!(json["server"]["responses"]["4xx"].as_u64().unwrap() >= 1);
    assert_eq!(json["engine"]["commits"], expected.commits);
    assert_eq!(json["engine"]["flushes"], 1);
    assert_eq!(json["engine"]["disk_bytes"], expected.disk_bytes);
    assert_eq!(json["engine"]["snapshots"], 1);
    assert_eq!(json["engine"]["oldest_snapshot"], snapshot.sequence());
    assert_eq!(json["damaged_partitions"], serde_json::json!([]));
    let counts = |kind: &str| {
        let kinds = json["requests"]["kinds"].as_array().unwrap();
        let found = kinds.iter().find(|found| found["kind"] == kind).unwrap();
        let buckets = found["buckets"].as_array().unwrap();
        assert_eq!(buckets.len(), json["requests"]["bounds_us"].as_array().unwrap().len());
        assert_eq!(found["count"], buckets.iter().map(|count| count.as_u64().unwrap()).sum::<u64>());
        found["count"].as_u64().unwrap()
    };
    assert_eq!(["get", "scan", "put", "delete", "batch"].map(counts), [2, 1, 1, 0, 0]);
}

#[test]
fn stats_have_the_slow_commits_and_their_causes() {
    let db = Db::builder().slow_commit(Duration::ZERO).open_in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    let sequence = tree.put("k", "value").unwrap();
    let server = Running::writable(&db);
    let json = stats(&server, "");
    let last = json["slow_commits"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["sequence"], &last["records"]), (&sequence.into(), &1.into()), "{last}");
    let parts: u64 = last["parts"].as_array().unwrap().iter().map(|part| part["us"].as_u64().unwrap()).sum();
    assert!(last["took_us"].as_u64().unwrap() >= parts, "{last}");
    assert_eq!(last["cause"], last["parts"][0]["name"], "{last}");
    let totals = json["slow_commit_totals"].as_array().unwrap();
    let counted: u64 = totals.iter().map(|total| total["commits"].as_u64().unwrap()).sum();
    assert_eq!(counted, json["slow_commits"].as_array().unwrap().len() as u64);
    assert!(totals.iter().any(|total| total["cause"] == "view_build"), "{json}");
}

#[test]
fn stats_list_partitions_with_their_trees_if_asked() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path().join("db")).unwrap();
    let tree = db.tree("albums").unwrap();
    for round in 0..2 {
        let mut batch = db.batch();
        for number in 0..1000_u32 {
            batch.put(&tree, number.to_be_bytes(), format!("round {round}"));
        }
        batch.commit().unwrap();
        db.flush().unwrap();
    }
    let server = Running::writable(&db);
    assert_eq!(stats(&server, "").get("partition_list"), None);
    let json = stats(&server, "?partitions=true");
    let expected = db.stats().partitions;
    let list = json["partition_list"].as_array().unwrap();
    assert_eq!(list.len(), expected.len());
    assert_eq!(json["partitions"]["count"], expected.len());
    let first = &list[0];
    assert!(first["tree_id"].is_null() && first["tree"] == "albums" && first["key"] == "", "{first}");
    let runs = first["runs"].as_array().unwrap().iter().chain(first["unindexed"].as_array().unwrap());
    let entries: u64 = runs.map(|run| run["entries"].as_u64().unwrap()).sum();
    assert!(entries >= 1000 && json["partitions"]["entries"].as_u64().unwrap() >= entries, "{json}");
    server.get("/stats?partitions=yes").has_problem(400);
    server.get("/stats?since=now").has_problem(400);
    server.get("/stats?token=x").has_problem(400);
}

/// Requests without the token counted as gets and puts, and the page showed their latencies.
#[test]
fn refused_requests_are_not_counted() {
    let db = Db::in_memory().unwrap();
    db.tree("t").unwrap();
    let server = Running::writable(&db);
    let counts = || -> Vec<u64> {
        let kinds = stats(&server, "")["requests"]["kinds"].clone();
        kinds.as_array().unwrap().iter().map(|kind| kind["count"].as_u64().unwrap()).collect()
    };
    for method in ["GET", "PUT", "DELETE"] {
        server.ask(method, "/trees/t/k", &[("Authorization", "Bearer no")], b"v").has(401);
        server.ask(method, "/trees/t/k", &[("Origin", "http://evil.example")], b"v").has(403);
        server.ask(method, "/trees/t/k?unknown=1", &[], b"v").has(400);
    }
    server.ask("PUT", "/trees/t/k", &[("Content-Encoding", "br")], b"v").has(415);
    server.get("/trees/t/?limit=0").has(400);
    server.ask("POST", "/batch", &[], b"no list").has(400);
    assert_eq!(counts(), [0; 5]);
    server.get("/trees/t/k").has(404);
    server.put("/trees/t/k", "v").has(201);
    server.ask("PUT", "/trees/t/k", &[("If-None-Match", "*")], b"v").has(412);
    server.ask("DELETE", "/trees/t/k", &[], b"").has(204);
    assert_eq!(counts(), [1, 0, 2, 1, 0]);
}

/// The page took the blocks of its own lists of trees for the reads of others, above all those of a
/// list that took longer than the time between two samples.
#[test]
fn pollers_of_an_idle_database_count_no_cache_lookups() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    tree.extend((0..20_000_u32).map(|number| (number.to_be_bytes(), [7; 20]))).unwrap();
    db.compact().unwrap();
    // Beside records in memory, the others are sampled.
    tree.put(5_u32.to_be_bytes(), [8; 20]).unwrap();
    let server = Running::writable(&db);
    let lookups = || {
        let stats = db.stats();
        (stats.cache_hits, stats.cache_misses)
    };
    let before = lookups();
    for path in ["/trees", "/trees?sizes=false", "/metrics", "/stats?partitions=true&since=0", "/health", "/ready"] {
        server.get(path).has(200);
    }
    assert_eq!(lookups(), before);
    server.get("/trees/t/%00%00%00%01").has(200);
    assert_ne!(lookups(), before, "reads of records count");
}

/// A link of another site to the page got 403.
#[test]
fn link_of_another_site_opens_the_page_and_nothing_else() {
    let db = Db::in_memory().unwrap();
    let server = Running::writable(&db);
    let visit = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")];
    let ask = |method: &str, path: &str, headers: &[(&str, &str)]| server.ask(method, path, headers, b"").status;
    assert_eq!(ask("GET", "/", &visit), 200);
    for path in ["/trees", "/stats", "/backup", "/page/main.js", "/page/index.html?x", "/health"] {
        let expected = if path.starts_with("/page/index") { 200 } else { 403 };
        assert_eq!(ask("GET", path, &visit), expected, "{path}");
    }
    assert_eq!(ask("POST", "/", &visit), 403);
    for (at, value) in [(1, "cors"), (1, "no-cors"), (2, "iframe"), (2, "script"), (2, "")] {
        let mut other = visit;
        other[at].1 = value;
        assert_eq!(ask("GET", "/", &other), 403, "{value}");
    }
    assert_eq!(ask("GET", "/", &[&visit[..], &[("Origin", "http://evil.example")]].concat()), 403);
    assert_eq!(ask("GET", "/", &[&visit[..], &[("Host", "evil.example")]].concat()), 421);
}

/// Every open page asks every two seconds, and a reading of a large database takes long.
#[test]
fn clients_at_once_share_one_reading() {
    let db = Db::in_memory().unwrap();
    let server = Running::start(Store::owner(&db), false, Limits::default());
    let before = stats(&server, "")["server"]["readings"].as_u64().unwrap();
    let began = std::time::Instant::now();
    let after = thread::scope(|scope| {
        let ask = || stats(&server, "")["server"]["readings"].as_u64().unwrap();
        let asked: Vec<_> = (0..20).map(|_| scope.spawn(ask)).collect();
        asked.into_iter().map(|one| one.join().unwrap()).max().unwrap()
    });
    // One for each half of a second, and those of the history.
    let most = 2 + began.elapsed().as_millis() as u64 / 250;
    assert!(after - before <= most, "{} readings for 20 clients, {most} at most", after - before);
}

#[test]
fn history_of_samples_grows_and_is_continued() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    let server = Running::writable(&db);
    let began = std::time::Instant::now();
    let rows = loop {
        tree.put("k", "v").unwrap();
        let samples = stats(&server, "?since=0")["samples"].clone();
        let rows = samples["rows"].as_array().unwrap().clone();
        if rows.len() >= 2 {
            let names = samples["names"].as_array().unwrap();
            assert_eq!(names[0], "time_us");
            assert!(rows.iter().all(|row| row.as_array().unwrap().len() == names.len()));
            let commits = names.iter().position(|name| name == "commits").unwrap();
            assert!(rows[1][commits].as_u64() > rows[0][commits].as_u64(), "{rows:?}");
            break rows;
        }
        assert!(began.elapsed().as_secs() < 60, "no second sample");
        thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(stats(&server, "").get("samples"), None);
    let since = rows[0][0].as_u64().unwrap();
    let later = stats(&server, &format!("?since={since}"))["samples"]["rows"].clone();
    assert_eq!(later[0], rows[1]);
}

/// The page said "healthy" beside a damaged block that each request met.
#[test]
fn damage_is_shown_and_hides_no_other_tree() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let db = Db::open(&path).unwrap();
    db.tree("intact").unwrap().put("k", "v").unwrap();
    let tree = db.tree("damaged").unwrap();
    for number in 0..2000_u32 {
        tree.put_with(number.to_be_bytes(), [7; 300], braiddb::Durability::None).unwrap();
    }
    db.compact().unwrap();
    db.close().unwrap();
    for entry in path.read_dir().unwrap().map(Result::unwrap) {
        if entry.path().extension().is_some_and(|kind| kind == "run") {
            let mut bytes = std::fs::read(entry.path()).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle..middle + 200].fill(0xff);
            std::fs::write(entry.path(), bytes).unwrap();
        }
    }
    let db = Db::open(&path).unwrap();
    let server = Running::writable(&db);
    assert_eq!(stats(&server, "")["server"]["last_failure"], Value::Null);
    let failed: Vec<_> = (0..2000_u32)
        .map(|number| number.to_be_bytes().map(|byte| format!("%{byte:02x}")).concat())
        .map(|key| server.get(&format!("/trees/damaged/{key}")))
        .filter(|reply| reply.status == 500)
        .collect();
    assert!(!failed.is_empty(), "no request met the damage");
    let failure = stats(&server, "")["server"]["last_failure"].clone();
    assert_eq!(failure["title"], "Database damaged");
    assert_eq!(failure["detail"], failed.last().unwrap().json()["detail"]);
    let trees = server.get("/trees").has(200).json();
    assert_eq!(trees["trees"].as_array().unwrap().len(), 2, "{trees}");
}
