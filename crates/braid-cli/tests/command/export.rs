//! `export`, and `import` of its output.

use crate::common;

use common::Workplace;

fn filled() -> Workplace {
    let place = Workplace::with_database();
    place.write("in.jsonl", "{\"id\":1,\"artist\":\"Björk\"}\n{\"id\":2,\"artist\":\"björk\"}\n");
    place.ok("import db in.jsonl --tree songs --key id:u64 --index by_artist=artist:lower");
    place.ok("put db sessions 7f3a ann --ttl 100000");
    assert_eq!(place.run_with(&["put", "db", "bytes", "\\xff\\\\", "-"], b"\"a\xffb\"").code, 0);
    assert_eq!(place.run_with(&["put", "db", "bytes", "", ""], b"").code, 0);
    place
}

/// One damaged block ended every export.
#[test]
fn export_with_keep_going_skips_and_names_damage() {
    let place = Workplace::with_database();
    let lines: String = (0..4000).map(|n| format!("{{\"id\":\"{n:05}\",\"x\":\"{}\"}}\n", n * 7919)).collect();
    place.write("in.jsonl", lines);
    place.ok("import db in.jsonl --tree t --key id");
    place.ok("compact db");
    let runs = std::fs::read_dir(place.path("db")).unwrap().map(|entry| entry.unwrap().path());
    let run = runs.filter(|path| path.extension().is_some_and(|extension| extension == "run"));
    let run = run.max_by_key(|path| std::fs::metadata(path).unwrap().len()).unwrap();
    let mut bytes = std::fs::read(&run).unwrap();
    let at = bytes.len() / 3;
    bytes[at] ^= 1;
    std::fs::write(&run, bytes).unwrap();
    place.fails(3, "export db t");
    let exported = place.run("export db t --keep-going");
    assert_eq!(exported.code, 1, "{}", exported.stderr);
    assert!(exported.stderr.contains("left out: t: records after 0"), "{}", exported.stderr);
    let records = exported.stdout.lines().filter(|line| line.starts_with("{\"key\"")).count();
    assert!((2000..4000).contains(&records), "{records}: {}", exported.stderr);
    assert!(exported.stdout.contains("\"00000\"") && exported.stdout.contains("\"03999\""));
    let imported = place.run_with(&["import", "copy", "-", "--create"], exported.stdout.as_bytes());
    assert_eq!(imported.code, 0, "{imported:?}");
    assert!(imported.stderr.contains("the export lacks"), "{imported:?}");
}

/// The text 1 returned as the number 1, a byte as text, an expiring record without expiry.
#[test]
fn export_then_import_is_identity() {
    let place = filled();
    let exported = place.ok("export db");
    for name in ["out", "out.gz", "out.bz2", "out.zst", "out.jsonl"] {
        place.ok(&format!("export db -o {name}"));
        let report = place.ok(&format!("import copy-{name} {name} --create"));
        assert_eq!(report, "5 records of 3 trees stored\n");
        assert_eq!(place.ok(&format!("export copy-{name}")), exported, "{name}");
        for command in [
            "trees DB",
            "scan DB songs",
            "scan DB by_artist",
            "get DB sessions 7f3a --json",
            "find DB songs --by by_artist --eq BJÖRK",
        ] {
            assert_eq!(
                place.ok(&command.replace("DB", &format!("copy-{name}"))),
                place.ok(&command.replace("DB", "db")),
                "{command}"
            );
        }
    }
    let piped = place.run_with(&["import", "piped", "-", "--json", "--create"], exported.as_bytes());
    assert_eq!((piped.code, piped.stdout.as_str()), (0, "{\"trees\":3,\"records\":5,\"left_out\":0}\n"), "{piped:?}");
    assert_eq!(place.run_with(&["import", "none", "-", "--dry-run"], exported.as_bytes()).code, 0);
    assert!(!place.path("none").exists());
}

#[test]
fn export_of_one_tree_imports_under_other_name() {
    let place = filled();
    place.ok("export db bytes -o one");
    place.ok("import db one --tree copy");
    assert_eq!(place.ok("scan db copy --format hex"), place.ok("scan db bytes --format hex"));
    place.ok("export db bytes sessions -o two");
    place.fails(2, "import db two --tree copy");
    place.fails(1, "export db none");
    place.fails(2, "import db one --key id");
    place.fails(2, "export db --format jsonl");
    place.fails(2, "export db bytes --format export --values");
}

#[test]
fn incomplete_export_is_refused_with_number_of_stored_records() {
    let place = filled();
    let exported = place.ok("export db");
    let cut: String = exported.lines().take(5).map(|line| format!("{line}\n")).collect();
    place.write("cut", cut);
    let message = place.fails(5, "import copy cut --create");
    assert!(message.contains("2 of them, are stored: the export is incomplete"), "{message}");
    place.write("damaged", exported.replace("\"value\"", "\"valu\""));
    let message = place.fails(5, "import other damaged --create");
    assert!(message.contains("line 3 of the export is damaged"), "{message}");
    assert!(!place.path("other").exists(), "nothing was stored in it");
    place.ok("create other");
    place.write("other.jsonl", "{\"braid_export\":1}\n");
    place.fails(5, "import other other.jsonl");
    place.ok("import other other.jsonl --format jsonl --tree t");
}
