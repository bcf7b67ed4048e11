//! Sizes of trees in `stats`.

use crate::common;

use common::Workplace;
use serde_json::Value;

fn report(place: &Workplace, more: &str) -> Value {
    serde_json::from_str(&place.ok(&format!("stats db --json{more}"))).unwrap()
}

fn tree<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["trees"].as_array().unwrap().iter().find(|tree| tree["name"] == name).unwrap()
}

#[test]
fn stats_shows_keys_and_bytes_of_each_tree() {
    let place = Workplace::with_database();
    let lines: String = (0..500).map(|n| format!("{{\"id\":\"{n:03}\",\"tag\":[\"a\",\"b\"]}}\n")).collect();
    place.write("in.jsonl", lines);
    place.ok("import db in.jsonl --tree records --key id --index by_tag=tag");
    place.ok("put db small k v");
    place.ok("put db small k w");
    for compacted in [false, true] {
        if compacted {
            place.ok("compact db");
        }
        let text = place.ok("stats db");
        for line in ["tree by_tag: 1,000 pairs, ", "tree records: 500 keys, ", "tree small: 1 key, "] {
            assert!(text.contains(line), "{text}");
        }
        let report = report(&place, "");
        assert_eq!(
            (&tree(&report, "records")["keys"], &tree(&report, "records")["exact"]),
            (&500.into(), &true.into())
        );
        assert_eq!((&tree(&report, "by_tag")["keys"], &tree(&report, "by_tag")["multi"]), (&1000.into(), &true.into()));
        assert!(tree(&report, "records")["bytes"].as_u64() > tree(&report, "small")["bytes"].as_u64());
        assert_eq!(report["trees_left_out"], 0);
    }
}

#[test]
fn stats_estimate_is_near_exact_count() {
    let place = Workplace::with_database();
    let lines =
        |from: u32| (from..from + 40_000).map(|n| format!("{{\"id\":\"{n:06}\",\"x\":1}}\n")).collect::<String>();
    place.write("one.jsonl", lines(0));
    place.write("two.jsonl", lines(20_000));
    place.ok("import db one.jsonl --tree t --key id --resume");
    place.ok("import db two.jsonl --tree t --key id");
    let estimated = report(&place, "");
    let keys = tree(&estimated, "t")["keys"].as_u64().unwrap();
    assert!(keys.abs_diff(60_000) <= 6_000, "{estimated}");
    let [min, max] = ["keys_min", "keys_max"].map(|name| tree(&estimated, "t")[name].as_u64().unwrap());
    assert!(min <= 60_000 && 60_000 <= max, "{estimated}");
    let counted = report(&place, " --count");
    assert_eq!((&tree(&counted, "t")["keys"], &tree(&counted, "t")["exact"]), (&60_000.into(), &true.into()));
    assert!(place.ok("stats db --count").contains("tree t: 60,000 keys, "));
}

/// Beside a server, the counters of the command itself (all 0) were shown as if measured.
#[cfg(feature = "shell")]
#[test]
fn stats_of_a_reader_names_what_only_the_owner_knows() {
    let place = Workplace::with_database();
    place.ok("put db t k v");
    let text = place.ok("stats db");
    assert!(!text.contains("cache") && !text.contains("recovered") && !text.contains("open in"), "{text}");
    assert!(
        text.contains("in the log       2 records not in") && text.contains("`braid top http://HOST:PORT`"),
        "{text}"
    );
    let json = place.ok("stats db --json");
    assert_eq!(json.lines().count(), 1);
    let report = report(&place, "");
    let not_known: Vec<&str> = report["not_known"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for name in ["commits", "memory_bytes", "slow_commits", "failure", "snapshots", "log_bytes_written"] {
        assert!(report[name].is_null() && not_known.contains(&name), "{name}: {report}");
    }
    for name in ["disk_bytes", "last_sequence", "memtable_bytes", "partitions"] {
        assert!(!report[name].is_null() && !not_known.contains(&name), "{name}: {report}");
    }
    let shell = place.run_with(&["shell", "db", "--write", "-c", "stats --json"], b"");
    let of_owner: Value = serde_json::from_str(&shell.stdout).unwrap();
    assert!(of_owner["commits"].is_u64() && of_owner.get("not_known").is_none(), "{of_owner}");
}

#[cfg(all(feature = "serve", target_os = "linux"))]
#[test]
fn stats_beside_a_server_names_its_process() {
    let place = Workplace::with_database();
    let served = crate::serve::Served::start(&place, "db --write", Some(crate::serve::TOKEN));
    served.ask("PUT", "/trees/t", crate::serve::TOKEN, "");
    let report = report(&place, "");
    assert!(report["commits"].is_null(), "{report}");
    let owner = report["owner"].as_str().unwrap();
    assert!(place.ok("stats db").contains(&format!("open in          {owner}\n")), "{owner}");
}

#[test]
fn stats_shows_more_than_100_trees_on_request() {
    let place = Workplace::new();
    let db = braiddb::Db::open(place.path("db")).unwrap();
    for number in 0..103 {
        db.tree(&format!("t{number:03}")).unwrap();
    }
    db.close().unwrap();
    let text = place.ok("stats db");
    assert!(text.contains("tree t099: 0 keys") && !text.contains("tree t100"), "{text}");
    assert!(text.contains("and 3 more trees: --trees shows all"), "{text}");
    assert!(place.ok("stats db --trees").contains("tree t102: "));
    assert_eq!(report(&place, "")["trees_left_out"], 3);
    assert_eq!(report(&place, " --trees")["trees"].as_array().unwrap().len(), 103);
}

#[test]
fn stats_of_damaged_database_shows_readable_trees() {
    let place = Workplace::with_database();
    place.ok("put db t k v");
    place.ok("compact db");
    for entry in std::fs::read_dir(place.path("db")).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.extension().is_some_and(|extension| extension == "view") {
            let mut bytes = std::fs::read(&entry).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle..].fill(0);
            std::fs::write(&entry, bytes).unwrap();
        }
    }
    assert!(place.ok("stats db").contains("tree t: "));
}
