//! Trees with many values per key: their records, scans and batches.

use crate::client::{Reply, Running};
use braiddb::Db;
use serde_json::{Value, json};

fn pairs(reply: &Reply) -> Vec<(String, String)> {
    let json = reply.json();
    let text = |pair: &Value, name: &str| pair[name].as_str().unwrap_or_default().to_owned();
    json["records"].as_array().unwrap().iter().map(|pair| (text(pair, "key"), text(pair, "value"))).collect()
}

fn expected(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn key_has_all_values_that_were_put() {
    let db = Db::in_memory().unwrap();
    let server = Running::writable(&db);
    server.ask("PUT", "/trees/m?kind=multi", &[], b"").has(201);
    server.ask("PUT", "/trees/m?kind=multi", &[], b"").has(204);
    server.ask("PUT", "/trees/m?kind=many", &[], b"").has_problem(400);
    server.ask("PUT", "/trees/n?kind=multi&ttl=1", &[], b"").has_problem(400);
    server.put("/trees/m", "").has_problem(409);
    server.get("/trees/m/a%00b").has_problem(404);
    server.put("/trees/m/a%00b", "two").has(201);
    server.put("/trees/m/a%00b", "one").has(201);
    server.put("/trees/m/a%00b", "two").has(204);
    server.put("/trees/m/a", "other").has(201);
    server.put("/trees/m/a%00b", b"\xff\x00").has(201);
    let all = server.get("/trees/m/a%00b").has(200);
    assert!(all.header("braid-version").is_some());
    assert_eq!(
        all.json()["records"],
        json!([
            {"key": "a\0b", "value": "one"},
            {"key": "a\0b", "value": "two"},
            {"key": "a\0b", "value": {"hex": "ff00"}},
        ])
    );
    assert_eq!(pairs(&server.get("/trees/m/a")), expected(&[("a", "other")]));
    let lines = server.ask("GET", "/trees/m/a", &[("Accept", "application/x-ndjson")], b"").has(200);
    assert_eq!(lines.text(), "{\"key\":\"a\",\"value\":\"other\"}\n");
    server.ask("HEAD", "/trees/m/a", &[], b"").has(200);
    server.ask("DELETE", "/trees/m/a%00b?value=%FF%00", &[], b"").has(204);
    server.ask("DELETE", "/trees/m/a%00b?value=absent", &[], b"").has(204);
    assert_eq!(server.get("/trees/m/a%00b").json()["records"].as_array().unwrap().len(), 2);
    server.ask("DELETE", "/trees/m/a%00b", &[], b"").has(204);
    server.get("/trees/m/a%00b").has_problem(404);
    // Typed keys.
    server.put("/trees/m/%5B1%2C%22x%22%5D?codec=tuple", "v").has(201);
    let typed = server.get("/trees/m/%5B1%2C%22x%22%5D?codec=tuple").has(200).json();
    assert_eq!(typed["records"], json!([{"key": [1, "x"], "value": "v"}]));
    server.ask("DELETE", "/trees/m", &[], b"").has(204);
    server.get("/trees/m/a").has_problem(404);
}

#[test]
fn what_pairs_do_not_have_is_refused() {
    let db = Db::in_memory().unwrap();
    let multi = db.multi_tree("m").unwrap();
    multi.add("k", "v").unwrap();
    db.tree("t").unwrap().put("k", "v").unwrap();
    let server = Running::writable(&db);
    for method in ["GET", "PUT", "DELETE"] {
        for condition in [("If-Match", "*"), ("If-None-Match", "*")] {
            let refused = server.ask(method, "/trees/m/k", &[condition], b"w").has_problem(400);
            assert!(refused.text().contains("no version"), "{}", refused.text());
        }
    }
    server.put("/trees/m/k?ttl=1", "w").has_problem(400);
    server.put("/trees/m/k", vec![b'x'; (64 << 10) + 1]).has_problem(413);
    server.put("/trees/m/k", vec![b'x'; 64 << 10]).has(201);
    server.ask("PUT", "/trees/m/k", &[("Content-Encoding", "br")], b"w").has_problem(415);
    server.ask("DELETE", "/trees/t/k?value=v", &[], b"").has_problem(400);
    for (operation, status) in [
        (r#"{"op":"put","tree":"m","key":"k","value":"w","if_absent":true}"#, 400),
        (r#"{"op":"put","tree":"m","key":"k","value":"w","ttl":1}"#, 400),
        (r#"{"op":"check","tree":"m","key":"k","if_absent":true}"#, 400),
        (r#"{"op":"delete","tree":"t","key":"k","value":"v"}"#, 400),
    ] {
        let body = format!(r#"[{{"op":"put","tree":"m","key":"k","value":"w"}},{operation}]"#);
        let refused = server.ask("POST", "/batch", &[], body.as_bytes()).has_problem(status);
        assert_eq!(refused.json()["operation"], 1);
    }
    assert_eq!(multi.count_values("k").unwrap(), 2, "a refused batch changes nothing");
    assert!(db.open_tree("t").unwrap().contains("k").unwrap());
}

#[test]
fn batch_changes_pairs_with_records() {
    let db = Db::in_memory().unwrap();
    let multi = db.multi_tree("m").unwrap();
    multi.extend([("a", "1"), ("a", "2"), ("b", "1"), ("b", "2")]).unwrap();
    db.tree("t").unwrap();
    let server = Running::writable(&db);
    let body = br#"[
        {"op":"delete","tree":"m","key":"a"},
        {"op":"put","tree":"m","key":"a","value":"3"},
        {"op":"delete","tree":"m","key":"b","value":"1"},
        {"op":"put","tree":"t","key":"k","value":"v","if_absent":true}
    ]"#;
    server.ask("POST", "/batch", &[], body).has(200);
    assert_eq!(pairs(&server.get("/trees/m/")), expected(&[("a", "3"), ("b", "2")]));
    assert!(db.open_tree("t").unwrap().contains("k").unwrap());
}

/// In both directions, with pages that end inside a key; writes between them are not seen.
#[test]
fn pages_show_pairs_of_one_snapshot() {
    let db = Db::in_memory().unwrap();
    let multi = db.multi_tree("m").unwrap();
    let mut all = Vec::new();
    for key in ["a", "a\0", "a\0b", "b", "c"] {
        for value in ["", "\0", "v", "w"] {
            multi.add(key, value).unwrap();
            all.push((key.to_owned(), value.to_owned()));
        }
    }
    let server = Running::writable(&db);
    let pages = |path: &str, limit: u32| {
        let (mut found, mut path_of_page) = (Vec::new(), format!("{path}limit={limit}"));
        loop {
            let page = server.get(&path_of_page).has(200);
            found.extend(pairs(&page));
            multi.add("b", format!("later {}", found.len())).unwrap();
            multi.delete_pair("a\0b", "v").unwrap();
            let Some(next) = page.json()["next"].as_str().map(str::to_owned) else { break };
            let (resource, _) = path.split_once('?').unwrap();
            path_of_page = format!("{resource}?limit={limit}&next={next}");
        }
        multi.delete_range(..).unwrap();
        multi.extend(all.iter().map(|(key, value)| (key, value))).unwrap();
        found
    };
    let reversed = |list: &[(String, String)]| list.iter().rev().cloned().collect::<Vec<_>>();
    for limit in [1, 3, 4, 20, 21] {
        assert_eq!(pages("/trees/m/?", limit), all, "{limit}");
        assert_eq!(pages("/trees/m/?reverse&", limit), reversed(&all), "{limit}");
        assert_eq!(pages("/trees/m/?start=a%00&end=c&", limit), all[4..16], "{limit}");
        assert_eq!(pages("/trees/m/?prefix=a%00&reverse&", limit), reversed(&all[4..12]), "{limit}");
        assert_eq!(pages("/trees/m/a%00b?", limit), all[8..12], "{limit}");
        assert_eq!(pages("/trees/m/a?reverse&", limit), reversed(&all[..4]), "{limit}");
        let keys: Vec<String> = pages("/trees/m/?values=false&", limit).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["a", "a\0", "a\0b", "b", "c"], "each key once, {limit}");
    }
    // The token of a record's tree has another form.
    let tree = db.tree("t").unwrap();
    tree.extend([("x", ""), ("y", "")]).unwrap();
    let next = server.get("/trees/t/?limit=1").json()["next"].as_str().unwrap().to_owned();
    server.get(&format!("/trees/m/?next={next}")).has_problem(400);
    let next = server.get("/trees/m/?limit=1").json()["next"].as_str().unwrap().to_owned();
    for cut in [16, 17, 18, 22, 24] {
        if let Some(part) = next.get(..cut).filter(|part| part.len() < next.len()) {
            server.get(&format!("/trees/m/?next={part}")).has_problem(400);
        }
    }
}

/// A key with more values than a chunk has.
#[test]
fn many_values_of_a_key_are_streamed() {
    let db = Db::in_memory().unwrap();
    let multi = db.multi_tree("m").unwrap();
    multi.extend((0..20_000).map(|number| ("k", format!("{number:05}")))).unwrap();
    multi.add("l", "other").unwrap();
    let server = Running::writable(&db);
    let reply = server.get("/trees/m/k?limit=1000000").has(200);
    assert_eq!(reply.header("transfer-encoding"), Some("chunked"));
    let found = pairs(&reply);
    assert!(found.iter().map(|(_, value)| value.clone()).eq((0..20_000).map(|number| format!("{number:05}"))));
    assert_eq!(server.get("/trees/m/k").json()["records"].as_array().unwrap().len(), 1000);
}
