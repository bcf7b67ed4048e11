//! Trees, metrics, readiness.

use crate::client::Running;
use braiddb::Db;
use std::time::Duration;

#[test]
fn trees_are_listed_created_and_dropped() {
    let db = Db::in_memory().unwrap();
    db.tree("t").unwrap().put("k", "v").unwrap();
    db.multi_tree("m").unwrap().add("k", "v").unwrap();
    let server = Running::writable(&db);
    server.put("/trees/%C3%A4%2F", "").has(201);
    server.put("/trees/%C3%A4%2F", "").has(204);
    server.put("/trees/s?ttl=60", "").has(201);
    // The texts are those of HTTP, with the remedy.
    for (path, remedy) in [
        ("/trees/s", "ttl=60;"),
        ("/trees/s?ttl=61", "ttl=60;"),
        ("/trees/t?ttl=60", "leave out ttl"),
        ("/trees/t?kind=multi", "leave out kind=multi"),
        ("/trees/m", "add kind=multi"),
    ] {
        let refused = server.put(path, "").has_problem(409);
        assert!(refused.text().contains(remedy) && !refused.text().contains("::"), "{}", refused.text());
    }
    server.put("/trees/s?ttl=60", "").has(204);
    // All its records would have expired; one record may.
    server.put("/trees/zero?ttl=0", "").has_problem(400);
    server.put("/trees/t/expired?ttl=0", "v").has(201);
    server.get("/trees/t/expired").has_problem(404);
    let refused = server.get("/trees/s").has_problem(405);
    assert!(refused.text().contains("/trees/{tree}/"), "{}", refused.text());
    assert_eq!(refused.header("allow"), Some("PUT, DELETE"));
    assert_eq!(db.open_tree("s").unwrap().options().ttl, Some(Duration::from_secs(60)));
    let json = server.get("/trees").has(200).json();
    let of = |name: &str| json["trees"].as_array().unwrap().iter().find(|tree| tree["name"] == name).unwrap().clone();
    assert_eq!(of("t")["kind"], "single");
    assert_eq!(of("t")["records_estimate"], 1);
    assert_eq!(of("m")["kind"], "multi");
    let names = server.get("/trees?sizes=false").has(200).json()["trees"].clone();
    assert_eq!(names.as_array().unwrap().len(), json["trees"].as_array().unwrap().len());
    assert!(names[0]["records_estimate"].is_null() && names[0]["name"].is_string(), "{names}");
    assert_eq!(of("s")["ttl"], 60.0);
    assert_eq!(of("ä/")["records_estimate"], 0);
    server.ask("DELETE", "/trees/t", &[], b"").has(204);
    server.ask("DELETE", "/trees/t", &[], b"").has_problem(404);
    server.get("/trees/t/k").has_problem(404);
}

/// The story: `If-None-Match: *` was ignored.
#[test]
fn tree_is_changed_only_as_asked() {
    let db = Db::in_memory().unwrap();
    db.tree("t").unwrap().put("k", "v").unwrap();
    let server = Running::writable(&db);
    for method in ["PUT", "DELETE"] {
        server.ask(method, "/trees/t", &[], b"{\"ttl\":60}").has_problem(400);
        server.ask(method, "/trees/t", &[("If-Match", "\"0000000000000000-0000000000000001\"")], b"").has_problem(412);
        server.ask(method, "/trees/absent", &[("If-Match", "*")], b"").has_problem(412);
        server.ask(method, "/trees/t", &[("If-None-Match", "*")], b"").has_problem(412);
        server.ask(method, "/trees/t", &[("If-Match", "t")], b"").has_problem(400);
    }
    assert!(db.open_tree("t").unwrap().contains("k").unwrap() && db.open_tree("absent").is_err());
    server.ask("PUT", "/trees/new", &[("If-None-Match", "*")], b"").has(201);
    server.ask("PUT", "/trees/new", &[("If-Match", "*")], b"").has(204);
    server.ask("DELETE", "/trees/new", &[("If-Match", "*")], b"").has(204);
    server.ask("DELETE", "/trees/new", &[("If-None-Match", "*")], b"").has_problem(404);
}

#[test]
fn closed_database_is_not_ready() {
    let db = Db::in_memory().unwrap();
    let server = Running::writable(&db);
    server.get("/ready").has(200);
    db.close().unwrap();
    server.get("/ready").has_problem(503);
    server.get("/health").has(200);
}

#[test]
fn metrics_have_the_format_of_prometheus() {
    let db = Db::in_memory().unwrap();
    db.tree("t").unwrap();
    let server = Running::writable(&db);
    let value = |name: &str| -> u64 {
        let reply = server.get("/metrics").has(200);
        let line = reply.text().lines().find_map(|line| line.strip_prefix(&format!("{name} ")).map(str::to_owned));
        line.unwrap_or_else(|| panic!("no {name}: {}", reply.text())).parse().unwrap()
    };
    let before = value("braiddb_commits_total");
    server.put("/trees/t/k", "v").has(201);
    assert_eq!(value("braiddb_commits_total"), before + 1);
    server.get("/trees/t/absent").has(404);
    assert!(value("braiddb_http_responses_total{class=\"4xx\"}") >= 1);
    assert_eq!(value("braiddb_failed"), 0);
    assert_eq!(value("braiddb_slow_commits_total{cause=\"memory_full\"}"), 0);
    assert_eq!(value("braiddb_slow_commit_microseconds_total{part=\"memory_full\"}"), 0);
    let reply = server.get("/metrics");
    assert!(reply.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    let mut lines = reply.text().lines().peekable();
    while let Some(help) = lines.next() {
        let name = help.strip_prefix("# HELP ").unwrap().split(' ').next().unwrap();
        let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).unwrap();
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
        while let Some(sample) = lines.next_if(|line| !line.starts_with('#')) {
            let (found, number) = sample.rsplit_once(' ').unwrap();
            assert_eq!(found.split('{').next().unwrap(), name);
            number.parse::<u64>().unwrap();
        }
    }
    assert_eq!(server.get("/ready").has(200).text(), "ready\n");
    assert_eq!(server.get("/health").has(200).text(), "ok\n");
}
