//! Directories in which a database may or may not be created.

use braiddb::{
    Builder, Db, Error, Result,
    backup::DirectoryTarget,
    dump::{DumpOptions, LoadOptions},
    platform::{MemVfs, OpenMode, Vfs},
};
use std::{path::Path, sync::Arc};

fn mem() -> Arc<dyn Vfs> {
    Arc::new(MemVfs::new())
}

fn builder(vfs: &Arc<dyn Vfs>) -> Builder {
    Builder::new().vfs(Arc::clone(vfs)).memory(4 << 20).background_threads(0)
}

fn open(vfs: &Arc<dyn Vfs>, path: &str) -> Result<Db> {
    builder(vfs).open(path)
}

fn make_file(vfs: &Arc<dyn Vfs>, path: &str) {
    vfs.create_dir_all(Path::new(path).parent().unwrap()).unwrap();
    vfs.open(Path::new(path), OpenMode::CreateNew).unwrap();
}

/// Fails to open, and changes nothing.
fn refused(vfs: &Arc<dyn Vfs>, path: &str) -> Error {
    let listed = || {
        let mut names: Vec<String> =
            vfs.list(Path::new(path)).map(|all| all.into_iter().map(|e| e.name).collect()).unwrap_or_default();
        names.sort();
        (names, vfs.list(Path::new(path)).is_ok())
    };
    let before = listed();
    let error = open(vfs, path).unwrap_err();
    assert_eq!(listed(), before, "{path}");
    error
}

/// The story: a database was created in any directory: beside other files, inside a backup, below
/// missing parents.
#[test]
fn create_in_nonempty_directory_is_refused() {
    let vfs = mem();
    make_file(&vfs, "/place/letter.txt");
    let error = refused(&vfs, "/place");
    assert!(matches!(error, Error::AlreadyExists(_)) && error.to_string().contains("letter.txt"), "{error}");
    vfs.create_dir_all(Path::new("/projects/one")).unwrap();
    let error = refused(&vfs, "/projects");
    assert!(matches!(error, Error::AlreadyExists(_)) && error.to_string().contains("one"), "{error}");
}

#[test]
fn create_beside_lock_hidden_files_and_lost_and_found_succeeds() {
    let vfs = mem();
    for name in ["LOCK", ".gitignore"] {
        make_file(&vfs, &format!("/mount/{name}"));
    }
    vfs.create_dir_all(Path::new("/mount/lost+found")).unwrap();
    open(&vfs, "/mount").unwrap().close().unwrap();
    make_file(&vfs, "/mount/notes.txt");
    open(&vfs, "/mount").unwrap();
}

#[test]
fn create_below_missing_parent_is_refused_unless_requested() {
    let vfs = mem();
    let error = refused(&vfs, "/a/b/c");
    assert!(matches!(error, Error::NotFound(_)) && error.to_string().contains("create_parents"), "{error}");
    assert!(vfs.list(Path::new("/a")).is_err(), "no parent was made");
    builder(&vfs).create_parents(true).open("/a/b/c").unwrap();
    open(&vfs, "/a/b/d").unwrap();
}

#[test]
fn create_inside_backups_archive_or_database_is_refused() {
    let vfs = mem();
    let db = builder(&vfs).log_archive("/archive").open("/db").unwrap();
    db.tree("t").unwrap().put(b"k", b"v").unwrap();
    db.backup(&DirectoryTarget::open_in(Arc::clone(&vfs), "/backups").unwrap()).unwrap();
    db.archive_now().unwrap();
    db.close().unwrap();
    let life = vfs.list_directories(Path::new("/archive")).unwrap().pop().unwrap();
    let life = format!("/archive/{life}");
    for path in ["/backups", "/backups/new", "/archive", "/archive/new", &life, &format!("{life}/new"), "/db/new"] {
        let error = refused(&vfs, path);
        assert!(matches!(error, Error::AlreadyExists(_)), "{path}: {error}");
    }
}

/// The story: load, restore and checkpoint created databases inside backups and log archives.
#[test]
fn load_restore_and_checkpoint_into_backups_or_archive_are_refused() {
    let vfs = mem();
    let db = builder(&vfs).log_archive("/archive").open("/db").unwrap();
    db.tree("t").unwrap().put(b"k", b"v").unwrap();
    let backups = DirectoryTarget::open_in(Arc::clone(&vfs), "/backups").unwrap();
    db.backup(&backups).unwrap();
    db.archive_now().unwrap();
    let mut dump = Vec::new();
    db.dump(&mut dump, DumpOptions::default()).unwrap();
    // A backup target has a lock file.
    let names = |path| vfs.list(Path::new(path)).map(|all| all.into_iter().map(|e| e.name).collect::<Vec<_>>()).ok();
    for path in ["/backups", "/backups/new", "/archive", "/archive/new", "/db/new"] {
        let before = names(path);
        let load = builder(&vfs).load(path, &mut dump.as_slice(), LoadOptions::default()).map(drop);
        let restore = builder(&vfs).restore(&backups, None, path).map(drop);
        let checkpoint = db.checkpoint(path).map(drop);
        for (error, what) in [(load, "load"), (restore, "restore"), (checkpoint, "checkpoint")] {
            let error = error.expect_err(what);
            assert!(matches!(error, Error::AlreadyExists(_)), "{what} into {path}: {error}");
        }
        assert_eq!(names(path), before, "{path}");
    }
    builder(&vfs).load("/new", &mut dump.as_slice(), LoadOptions::default()).unwrap();
}

/// The story: a target inside the database's directory was accepted: backups that are lost with their
/// database.
#[test]
fn backup_target_inside_database_is_refused() {
    let vfs = mem();
    let db = open(&vfs, "/db").unwrap();
    db.tree("t").unwrap().put(b"k", b"v").unwrap();
    for path in ["/db", "/db/backups", "/db/a/b/c"] {
        let error = DirectoryTarget::open_in(Arc::clone(&vfs), path).unwrap_err();
        assert!(error.is_invalid_argument() && error.to_string().contains("database /db,"), "{path}: {error}");
    }
    assert_eq!(vfs.list_directories(Path::new("/db")).unwrap(), [""; 0], "nothing was made");
    // Another program's file of the same name is no database.
    make_file(&vfs, "/other/CURRENT");
    for path in ["/other/backups", "/db.backups"] {
        let target = DirectoryTarget::open_in(Arc::clone(&vfs), path).unwrap();
        db.backup(&target).unwrap();
    }
}

#[test]
fn target_and_restore_create_missing_parents() {
    let vfs = mem();
    let db = open(&vfs, "/db").unwrap();
    db.tree("t").unwrap().put(b"k", b"v").unwrap();
    let target = DirectoryTarget::open_in(Arc::clone(&vfs), "/mnt/backups/music").unwrap();
    db.backup(&target).unwrap();
    builder(&vfs).restore(&target, None, "/copies/2026/db").unwrap();
    open(&vfs, "/copies/2026/db").unwrap().open_tree("t").unwrap();
}

/// A file with a backup's name beside a database made its open fail.
#[test]
fn open_beside_file_named_like_backup_succeeds() {
    let vfs = mem();
    open(&vfs, "/db").unwrap().close().unwrap();
    make_file(&vfs, "/db/CURRENT.backup");
    open(&vfs, "/db").unwrap();
}

/// An archive in the database's own directory mixed the files of both.
#[test]
fn log_archive_in_directory_of_database_is_refused() {
    let vfs = mem();
    open(&vfs, "/other").unwrap().close().unwrap();
    for archive in ["/db", "/db/", "/db/archive", "/x/../db/./archive", "/other", "/other/archive"] {
        let error = builder(&vfs).log_archive(archive).open("/db").unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{archive}: {error}");
        assert!(vfs.list(Path::new("/db")).is_err(), "{archive}: nothing was made");
    }
    let opened = builder(&vfs).log_archive("/no/parent").open("/db");
    assert!(matches!(opened, Err(Error::NotFound(_))));
    assert!(vfs.list(Path::new("/db")).is_err());
}

#[test]
fn open_of_file_or_empty_path_names_the_cause() {
    let vfs = mem();
    make_file(&vfs, "/place/letter.txt");
    let error = open(&vfs, "/place/letter.txt").unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)) && error.to_string().contains("is a file"), "{error}");
    let error = open(&vfs, "").unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)) && error.to_string().contains("empty"), "{error}");
}

#[test]
fn second_open_in_same_process_names_the_cause() {
    let vfs = mem();
    let db = open(&vfs, "/db").unwrap();
    let error = open(&vfs, "/db").unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    assert!(error.to_string().contains("this process"), "{error}");
    drop(db);
}
