//! The log of a command: `-v` and `-vv`.

use crate::common;

use common::Workplace;

/// `-v` printed nothing about most commands.
#[test]
fn verbose_command_logs_its_open_its_rate_and_its_time() {
    let place = Workplace::with_database();
    let log = |line: &str| {
        let outcome = place.run(line);
        assert_eq!(outcome.code, 0, "{outcome:?}");
        outcome.stderr
    };
    let put = log("-v put db t k v");
    assert!(put.contains("opened db for writing in ") && put.contains("the command took "), "{put}");
    let scan = log("scan db t -v");
    assert!(scan.contains("opened db for reading in ") && scan.contains("2 records read from the log"), "{scan}");
    assert!(scan.contains("printed 1 record in "), "{scan}");
    let compact = log("compact db -v");
    assert!(compact.contains("flushed a memtable in ") && !compact.contains("FlushBegin"), "{compact}");
    assert!(log("export db -v -o out").contains("exported 1 record in "));
    assert!(log("dump db out.dump -v").contains("dumped 1 record in "));
    assert!(log("load out.dump loaded -v").contains("loaded 1 record in "));
    place.ok("put db t k w");
    assert!(log("compact db -vv").contains("FlushBegin"));
    assert_eq!(log("get db t k"), "");
    let json = log("get db t k -v --json");
    assert!(json.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["note"].is_string()));
}
