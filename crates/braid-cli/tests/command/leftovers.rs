//! Failed commands remove what they have created.

use crate::common;

use std::fs;

use common::Workplace;

fn filled() -> Workplace {
    let place = Workplace::with_database();
    let value: String = (0..200_u32).map(|number| format!("{:x}", number * number)).collect();
    place.ok(&format!("put db t k {value}"));
    place.ok("dump db some.dump");
    place.ok("backup create db backups");
    place
}

fn cut(place: &Workplace, from: &str, to: &str) {
    let whole = fs::read(place.path(from)).unwrap();
    place.write(to, &whole[..whole.len() - 3]);
}

fn damage_runs(place: &Workplace, dir: &str) {
    let mut damaged = 0;
    for path in fs::read_dir(place.path(dir)).unwrap().map(|entry| entry.unwrap().path()) {
        if path.extension().is_some_and(|extension| extension == "run") {
            let mut bytes = fs::read(&path).unwrap();
            bytes[100..200].iter_mut().for_each(|byte| *byte ^= 1);
            fs::write(&path, bytes).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0);
}

/// An empty directory stayed.
#[test]
fn directory_of_failed_load_restore_checkpoint_and_salvage_is_removed() {
    let place = filled();
    cut(&place, "some.dump", "cut.dump");
    place.fails(3, "load cut.dump new");
    assert!(!place.path("new").exists());
    place.ok("compact db");
    place.ok("backup create db backups --full");
    damage_runs(&place, "backups");
    place.fails(3, "restore backups new");
    assert!(!place.path("new").exists());
    damage_runs(&place, "db");
    place.fails(3, "checkpoint db new --copy");
    assert!(!place.path("new").exists());
    place.fails(1, "salvage backups new");
    assert!(!place.path("new").exists());
    fs::create_dir(place.path("mine")).unwrap();
    place.fails(3, "load cut.dump mine");
    assert_eq!(fs::read_dir(place.path("mine")).unwrap().count(), 0);
}

#[test]
fn created_database_is_removed_after_refused_command() {
    let place = Workplace::new();
    place.write("bad.jsonl", "bad\n");
    place.write("bad.csv", "a,a\n1,2\n");
    place.write("bad.export", "{\"braid_export\":1,\"trees\":[{\"name\":\"t\"}]}\nbad\n");
    let long = "k".repeat(70_000);
    fs::create_dir(place.path("mine")).unwrap();
    for db in ["new", "mine"] {
        for (code, command) in [
            (5, "import DB bad.jsonl --tree t --create"),
            (5, "import DB bad.jsonl --tree t --create --resume"),
            (5, "import DB bad.csv --tree t --create"),
            (5, "import DB bad.export --create"),
            (2, "import DB bad.jsonl --tree braid.import --create"),
            (2, "put DB t 7f v --keys u64 --create"),
            (2, &format!("put DB t {long} v --create")),
        ] {
            let command = command.replace("DB", db);
            place.fails(code, &command);
            match db {
                "new" => assert!(!place.path("new").exists(), "{command}"),
                _ => assert_eq!(fs::read_dir(place.path("mine")).unwrap().count(), 0, "{command}"),
            }
        }
    }
    place.write("half.jsonl", "{\"id\":\"1\"}\nbad\n");
    place.fails(5, "import half half.jsonl --tree t --key id --create --on-error stop");
    assert_eq!(place.ok("count half t"), "1\n");
    place.ok("create db");
    place.fails(5, "import db bad.jsonl --tree t --create");
    assert_eq!(place.ok("trees db"), "");
}

#[test]
fn refused_import_of_export_leaves_no_empty_tree() {
    let place = Workplace::with_database();
    let trees = "{\"braid_export\":1,\"trees\":[{\"name\":\"a\",\"indexes\":[{\"name\":\"i\",\"field\":\"f\"}]},\
                 {\"name\":\"b\",\"multi\":true},{\"name\":\"c\",\"keys\":\"u64\"}]}\n";
    place.write("bad.export", format!("{trees}bad\n"));
    place.fails(5, "import db bad.export");
    assert_eq!(place.ok("trees db"), "");
    let clash = trees.replace("\"i\"", "\"c\"");
    place.write("clash.export", format!("{clash}{{\"end\":{{\"records\":0,\"left_out\":0}}}}\n"));
    assert_ne!(place.run("import db clash.export").code, 0);
    assert_eq!(place.ok("trees db"), "");
    place.ok("put db c 7 v --keys u64");
    place.write("half.export", format!("{trees}{{\"tree\":\"a\"}}\n{{\"key\":\"k\",\"value\":\"v\"}}\nbad\n"));
    let said = place.fails(5, "import db half.export");
    assert!(said.contains("the records before it, 1 of them, are stored"), "{said}");
    assert_eq!(place.ok("scan db a"), "k\tv\n");
    let trees = place.ok("trees db");
    assert!(
        trees.contains('c') && !trees.lines().any(|line| line.starts_with('b') && !line.starts_with("braid")),
        "{trees}"
    );
    assert_eq!(place.ok("get db c 7"), "v\n");
}

/// A refused put left the tree that it had created.
#[test]
fn refused_put_leaves_no_tree() {
    let place = Workplace::with_database();
    place.fails(2, &format!("put db t {} v", "k".repeat(70_000)));
    assert_eq!(place.ok("trees db"), "");
}
