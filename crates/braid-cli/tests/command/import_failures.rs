//! Failed imports: their outputs, and their advice to continue.

use crate::common;

use std::fs;

use common::Workplace;

/// An import without a usable record replaced the old file by an empty one.
#[test]
fn json_output_without_usable_record_leaves_old_file() {
    let place = Workplace::new();
    place.write("in.jsonl", "bad\nworse\n");
    for name in ["old.jsonl", "old.jsonl.gz"] {
        place.write(name, "old");
        place.fails(5, &format!("import none in.jsonl --to-jsonl {name}"));
        assert_eq!(fs::read_to_string(place.path(name)).unwrap(), "old");
    }
    place.fails(5, "import none in.jsonl --to-jsonl new.jsonl");
    assert!(!place.path("new.jsonl").exists());
    place.write("empty.jsonl", "");
    place.ok("import none empty.jsonl --to-jsonl old.jsonl");
    assert_eq!(fs::read_to_string(place.path("old.jsonl")).unwrap(), "");
}

/// The rejects of a failed import that stored nothing replaced those of another.
#[test]
fn rejects_of_import_that_stores_nothing_leave_old_file() {
    let place = Workplace::new();
    let packed = common::compress("gz", b"{\"id\":1}\nbad\n{\"id\":2}\n");
    place.write("in.jsonl.gz", &packed[..packed.len() - 4]);
    place.write("rejects", "old");
    place.fails(5, "import none in.jsonl.gz --to-jsonl out --rejects rejects");
    assert_eq!(fs::read_to_string(place.path("rejects")).unwrap(), "old");
    assert!(!place.path("out").exists());
}

/// An output was written in place: a hard-linked database file lost its contents.
#[test]
fn output_into_hard_link_of_database_file_leaves_database() {
    let place = Workplace::with_database();
    place.write("in.jsonl", "{\"id\":\"1\"}\nbad\n");
    place.ok("import db in.jsonl --tree t --key id");
    place.ok("compact db");
    let run = fs::read_dir(place.path("db")).unwrap().map(|entry| entry.unwrap().path());
    let run = run.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "run")).unwrap();
    let before = fs::read(&run).unwrap();
    for command in [
        "dump db OUT --force",
        "export db -o OUT",
        "export db t --values -o OUT",
        "import db in.jsonl --to-jsonl OUT",
        "import db in.jsonl --dry-run --rejects OUT",
    ] {
        let link = place.path("link");
        let _ = fs::remove_file(&link);
        fs::hard_link(&run, &link).unwrap();
        place.ok(&command.replace("OUT", "link"));
        assert_ne!(fs::read(&link).unwrap(), before, "{command}");
        assert_eq!(fs::read(&run).unwrap(), before, "{command}");
    }
    place.ok("verify db");
}

#[test]
fn dump_onto_existing_file_names_force() {
    let place = Workplace::with_database();
    place.write("taken", "old");
    let said = place.fails(2, "dump db taken");
    assert!(said.contains("taken exists already") && said.contains("--force"), "{said}");
    assert_eq!(fs::read_to_string(place.path("taken")).unwrap(), "old");
    place.ok("dump db taken --force");
}

/// A resumed import into a tree whose records had been deleted stored nothing.
#[test]
fn resume_after_records_were_deleted_starts_again() {
    for options in ["", " --index by_n=n"] {
        let place = Workplace::with_database();
        place.write("in.jsonl", "{\"id\":\"1\",\"n\":\"x\"}\n{\"id\":\"2\",\"n\":\"y\"}\n");
        let import = format!("import db in.jsonl --tree t --key id{options} --resume");
        place.ok(&import);
        place.ok("del db t 1");
        place.ok("del db t 2");
        let again = place.run(&import);
        assert_eq!(again.code, 0, "{again:?}");
        assert!(again.stderr.contains("are gone: the import begins with the first record"), "{again:?}");
        assert!(again.stdout.contains("2 stored"), "{again:?}");
        assert_eq!(place.ok("count db t"), "2\n");
    }
}

#[test]
fn resume_reports_records_of_earlier_runs() {
    let place = Workplace::with_database();
    place.write("in.jsonl", "{\"id\":\"1\"}\n{\"id\":\"2\"}\nbad\n{\"id\":\"3\"}\n");
    place.fails(5, "import db in.jsonl --tree t --key id --resume --on-error stop");
    place.ok("del db t 1");
    let report = place.ok("import db in.jsonl --tree t --key id --resume");
    assert!(report.contains("resumed at record 3: earlier runs stored 2 records"), "{report}");
    let report: serde_json::Value =
        serde_json::from_str(&place.ok("import db in.jsonl --tree t --key id --resume --json")).unwrap();
    assert_eq!((&report["stored_before"], &report["stored"]), (&3.into(), &3.into()));
}

#[test]
fn rows_with_same_key_are_counted_as_replaced() {
    let place = Workplace::with_database();
    place.write("in.csv", "id,n\n1,a\n2,b\n1,c\n");
    for (tree, options) in [("whole", ""), ("batches", " --resume"), ("indexed", " --index by_n=n")] {
        let report = place.ok(&format!("import db in.csv --tree {tree} --key id{options}"));
        assert!(report.contains("3 stored (1 of them replaced older ones)"), "{tree}: {report}");
        assert_eq!(place.ok(&format!("get db {tree} 1")), "{\"id\":\"1\",\"n\":\"c\"}\n");
    }
}
