//! Gaps of a log archive: `archive` detects them, and `restore` reports them.

use crate::common;

use common::Workplace;

/// Creates a database, a backup, and an archive with a gap.
fn workplace_with_gap() -> Workplace {
    let place = Workplace::with_database();
    place.ok("put db t a 1");
    place.ok("backup create db backups");
    place.ok("put db t b 2");
    place.ok("archive db log");
    for key in ["c", "d", "e"] {
        place.ok(&format!("put db t {key} 3"));
    }
    place.ok("compact db");
    place
}

/// `archive` over a gap ended with code 0, and a later `restore --to` called the backup damaged.
#[test]
fn archive_across_gap_names_missing_commits_and_exits_1() {
    let place = workplace_with_gap();
    let outcome = place.run("archive db log --json");
    assert_eq!(outcome.code, 1, "{outcome:?}");
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    let (first, last) = (report["gaps"][0]["first"].as_u64().unwrap(), report["gaps"][0]["last"].as_u64().unwrap());
    assert_eq!(report["gaps"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!((last - first, last), (2, report["commit"].as_u64().unwrap()), "{report}");
    let missing = format!("commits {first} to {last} are missing");
    assert!(outcome.stderr.contains(&missing) && outcome.stderr.contains("full backup"), "{outcome:?}");
    place.ok("put db t f 4");
    let said = place.fails(1, "archive db log");
    assert!(said.contains(&missing) && said.contains(&format!("reaches commit {} at most", first - 1)), "{said}");
    assert!(place.fails(1, "archive db log --backups backups").contains(&missing));
    let restored = place.fails(1, &format!("restore backups r --archive log --to {}", last + 1));
    let newest = format!("a backup from before the gap can be restored up to commit {}", first - 1);
    assert!(restored.contains(&missing) && restored.contains(&newest), "{restored}");
    assert!(!restored.contains("damaged"), "{restored}");
    place.ok(&format!("restore backups before --archive log --to {}", first - 1));
    place.ok("backup create db backups");
    place.ok("put db t g 5");
    assert!(place.ok("archive db log --backups backups").starts_with("archived up to commit"));
    place.ok("restore backups after --archive log --to latest");
    assert_eq!(place.ok("get after t g"), "5\n");
}

#[test]
fn archive_without_gap_reports_none() {
    let place = Workplace::with_database();
    place.ok("put db t a 1");
    for round in 0..3 {
        place.ok(&format!("put db t b {round}"));
        let report: serde_json::Value = serde_json::from_str(&place.ok("archive db log --json")).unwrap();
        assert_eq!(report["gaps"].as_array().unwrap().len(), 0, "{report}");
    }
}
