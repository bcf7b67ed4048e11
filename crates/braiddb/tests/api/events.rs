//! Events of backups and of the log archive.

#![expect(clippy::disallowed_methods, reason = "a test on the real file system")]

use braiddb::{Db, Durability, backup::DirectoryTarget, events::Event, options::Tuning};
use std::{fs, path::Path, sync::mpsc};

fn open(dir: &Path) -> (Db, mpsc::Receiver<Event>) {
    let (sender, events) = mpsc::channel();
    let builder = Db::builder().background_threads(0).durability(Durability::Buffered).memory(8 << 20);
    let builder = builder.tuning(Tuning::new().log_segment_bytes(16 << 10)).log_archive(dir.join("archive"));
    (builder.on_event(move |event| _ = sender.send(event.clone())).open(dir.join("db")).unwrap(), events)
}

#[test]
fn backups_are_reported_with_their_numbers_or_as_failed() {
    let dir = tempfile::tempdir().unwrap();
    let (db, events) = open(dir.path());
    db.tree("t").unwrap().put(b"k", b"v").unwrap();
    let target = DirectoryTarget::open(dir.path().join("backups")).unwrap();
    let info = db.backup(&target).unwrap();
    fs::remove_dir_all(dir.path().join("backups")).unwrap();
    db.backup(&target).unwrap_err();
    db.close().unwrap();
    let is_of_backup = |event: &Event| matches!(event, Event::BackupBegin | Event::BackupEnd { .. });
    let ends: Vec<_> = events.into_iter().filter(is_of_backup).collect();
    let [Event::BackupBegin, Event::BackupEnd { id: first, .. }, Event::BackupBegin, Event::BackupEnd { id: None, .. }] =
        ends[..]
    else {
        panic!("{ends:?}")
    };
    assert_eq!(first, Some(info.id));
}

#[test]
fn unwritable_archive_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (db, events) = open(dir.path());
    let (tree, archive) = (db.tree("t").unwrap(), dir.path().join("archive"));
    fs::remove_dir_all(&archive).unwrap();
    fs::write(&archive, "no directory").unwrap();
    (0..1_000_u32).for_each(|key| _ = tree.put(key.to_be_bytes(), [7; 100]).unwrap());
    db.flush().unwrap();
    drop(tree);
    // The close cannot archive the log either.
    _ = db.close();
    let failed = events.into_iter().find(|event| matches!(event, Event::ArchiveFailed { .. }));
    let Some(Event::ArchiveFailed { error }) = failed else { panic!("{failed:?}") };
    assert!(error.contains("archive"), "{error}");
}
