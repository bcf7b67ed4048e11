//! Atomic batches.

use crate::client::Running;
use braiddb::Db;
use serde_json::json;

#[test]
fn batch_is_applied_whole_with_one_version() {
    let db = Db::in_memory().unwrap();
    let (t, u) = (db.tree("t").unwrap(), db.tree("u").unwrap());
    t.put("gone", "v").unwrap();
    let server = Running::writable(&db);
    let batch = json!([
        {"op": "put", "tree": "t", "key": "a", "value": "1"},
        {"op": "put", "tree": "u", "key": {"hex": "00ff"}, "value": {"hex": "fe"}, "ttl": 1000},
        {"op": "delete", "tree": "t", "key": "gone"},
        {"op": "put", "tree": "t", "key": ["pt", 7], "codec": "tuple", "value": "", "if_absent": true},
    ]);
    let reply = server.ask("POST", "/batch", &[], batch.to_string().as_bytes()).has(200);
    let version = reply.json()["version"].as_str().unwrap().to_owned();
    assert_eq!(reply.etag(), format!("\"{version}\""));
    assert_eq!(server.get("/trees/t/a").has(200).etag(), reply.etag());
    assert_eq!(&*t.get_versioned("a").unwrap().unwrap().1.etag(), reply.etag());
    assert!(!t.contains("gone").unwrap());
    let (value, expires) = u.get_with_expiry(b"\x00\xff").unwrap().unwrap();
    assert_eq!(value, [0xfe]);
    assert!(expires.is_some());
    let next = json!([
        {"op": "check", "tree": "t", "key": "a", "if_version": version},
        {"op": "delete", "tree": "t", "key": "a", "if_version": reply.etag()},
    ]);
    server.ask("POST", "/batch", &[], next.to_string().as_bytes()).has(200);
    assert!(!t.contains("a").unwrap());
}

#[test]
fn batch_with_failed_condition_changes_nothing() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    let old = db.version_of(tree.put("k", "old").unwrap());
    tree.put("k", "new").unwrap();
    let server = Running::writable(&db);
    let first = json!({"op": "put", "tree": "t", "key": "first", "value": "v"});
    for (condition, status) in [
        (json!({"op": "put", "tree": "t", "key": "k", "value": "v", "if_version": old.to_string()}), 412),
        (json!({"op": "delete", "tree": "t", "key": "k", "if_absent": true}), 412),
        (json!({"op": "check", "tree": "t", "key": "absent", "if_version": old.to_string()}), 412),
        // Written by the same batch.
        (json!({"op": "put", "tree": "t", "key": "first", "value": "w", "if_absent": true}), 412),
        (json!({"op": "put", "tree": "t", "key": "first", "value": "w", "if_version": old.to_string()}), 412),
        (json!({"op": "put", "tree": "absent", "key": "k", "value": "v"}), 404),
        (json!({"op": "put", "tree": "t", "key": "k"}), 400),
    ] {
        let reply = server.ask("POST", "/batch", &[], json!([first, condition]).to_string().as_bytes());
        assert_eq!(reply.has_problem(status).json()["operation"], 1, "{condition}");
        assert_eq!(tree.len().unwrap(), 1, "{condition}");
        assert_eq!(tree.get("k").unwrap().unwrap(), "new");
    }
    server.ask("POST", "/batch", &[], b"{}").has_problem(400);
    server.ask("POST", "/batch", &[], b"[").has_problem(400);
    server.ask("POST", "/batch", &[], b"[]").has(200);
}

/// Each batch moves an amount between two accounts, if both have the versions that it read. Batches
/// that conflict at their commits are repeated by the server.
#[test]
fn concurrent_batches_keep_the_sum() {
    const CLIENTS: usize = 4;
    const ROUNDS: u64 = 20;
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    tree.put("a", "1000").unwrap();
    tree.put("b", "1000").unwrap();
    let server = Running::writable(&db);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (server, client) = (&server, client as u64);
            scope.spawn(move || {
                let mut connection = server.connect();
                for round in 0..ROUNDS {
                    loop {
                        let read = |reply: crate::client::Reply| {
                            (reply.text().parse::<u64>().unwrap(), reply.etag().to_owned())
                        };
                        let (a, version_of_a) = read(connection.ask("GET", "/trees/t/a", &[], b"").has(200));
                        let (b, version_of_b) = read(connection.ask("GET", "/trees/t/b", &[], b"").has(200));
                        let batch = json!([
                            {"op": "put", "tree": "t", "key": "a", "value": (a - 1).to_string(), "if_version": version_of_a},
                            {"op": "put", "tree": "t", "key": "b", "value": (b + 1).to_string(), "if_version": version_of_b},
                            {"op": "put", "tree": "t", "key": format!("done/{client}/{round}"), "value": ""},
                        ]);
                        match connection.ask("POST", "/batch", &[], batch.to_string().as_bytes()) {
                            reply if reply.status == 200 => break,
                            reply => drop(reply.has_problem(412)),
                        }
                    }
                }
            });
        }
    });
    let moved = CLIENTS as u64 * ROUNDS;
    assert_eq!(tree.get("a").unwrap().unwrap(), (1000 - moved).to_string());
    assert_eq!(tree.get("b").unwrap().unwrap(), (1000 + moved).to_string());
    assert_eq!(tree.len().unwrap(), moved + 2);
}
