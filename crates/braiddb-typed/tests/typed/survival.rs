//! Codec, records and indexes survive whatever a database goes through.

use crate::common::{Users, keys, user, users, verified};
use braiddb::{
    Builder, Db,
    backup::DirectoryTarget,
    dump::{DumpOptions, LoadOptions},
    salvage::SalvageOptions,
};
use braiddb_typed::TypedTree;
use std::path::Path;

fn fill(db: &Db) {
    let users = users(db).unwrap();
    for key in 0..50 {
        users.put(&key, &user(&format!("name {}", key % 5), &format!("{key}@x"), &["a"])).unwrap();
    }
    users.remove(&49).unwrap();
}

fn check(db: &Db) -> Users {
    let info = db.trees().unwrap().into_iter().find(|tree| tree.name == "users").unwrap();
    assert_eq!(info.codec.unwrap().to_string(), "tuple/json");
    let refused = TypedTree::<u32, crate::common::User>::open(db, "users").unwrap_err();
    assert!(refused.to_string().contains("email"), "{refused}");
    let users = users(db).unwrap();
    assert_eq!(verified(&users), 3 * 49);
    assert_eq!(keys(users.by_index("name", &"name 4")), [4, 9, 14, 19, 24, 29, 34, 39, 44]);
    users
}

#[test]
fn typed_tree_survives_reopen_and_rename() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = Db::open(&path).unwrap();
    fill(&db);
    db.close().unwrap();
    let db = Db::open(&path).unwrap();
    let users = check(&db);
    db.rename_tree("users", "people").unwrap();
    assert_eq!(users.name(), "people");
    users.put(&49, &user("Zoe", "zoe@x", &[])).unwrap();
    users.remove(&49).unwrap();
    db.close().unwrap();
    let db = Db::open(&path).unwrap();
    db.rename_tree("people", "users").unwrap();
    check(&db);
    db.close().unwrap();
    let db = Builder::new().open_read_only(&path).unwrap();
    check(&db);
}

#[test]
fn typed_tree_survives_dump_backup_checkpoint_and_salvage() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = Db::open(path("db")).unwrap();
    fill(&db);
    let mut dump = Vec::new();
    db.dump(&mut dump, DumpOptions::default()).unwrap();
    Builder::new().load(path("loaded"), &mut dump.as_slice(), LoadOptions::default()).unwrap();
    let target = DirectoryTarget::open(path("backups")).unwrap();
    db.backup(&target).unwrap();
    Builder::new().restore(&target, None, path("restored")).unwrap();
    db.checkpoint(path("copy")).unwrap();
    db.close().unwrap();
    Builder::new().salvage(path("db"), path("salvaged"), SalvageOptions::default()).unwrap();
    for name in ["loaded", "restored", "copy", "salvaged", "db"] {
        println!("{name}");
        check(&Db::open(path(name)).unwrap());
    }
}

/// The golden database of the first build with codecs: docs/internals/format.md has its bytes.
#[test]
fn golden_typed_database_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/typed.tar.zst");
    if std::env::var_os("BRAIDDB_MAKE_GOLDEN").is_some() {
        let db = Builder::new().background_threads(0).open(dir.path().join("db")).unwrap();
        fill(&db);
        db.compact().unwrap();
        db.close().unwrap();
        let mut archive = tar::Builder::new(Vec::new());
        archive.append_dir_all("db", dir.path().join("db")).unwrap();
        std::fs::create_dir_all(fixture.parent().unwrap()).unwrap();
        #[expect(clippy::disallowed_methods, reason = "a fixture is written")]
        std::fs::write(&fixture, zstd::encode_all(archive.into_inner().unwrap().as_slice(), 19).unwrap()).unwrap();
        return;
    }
    #[expect(clippy::disallowed_methods, reason = "a fixture is read")]
    let packed = std::fs::read(fixture).unwrap();
    tar::Archive::new(zstd::decode_all(packed.as_slice()).unwrap().as_slice()).unpack(dir.path()).unwrap();
    check(&Db::open(dir.path().join("db")).unwrap());
}
