//! Commits refused by a full log leave no gap in the log archive, at any moment of a crash.
//!
//! The story: a flush recorded refused numbers in the manifest as used. The power failed before the
//! next commit, which would have logged them as no-ops. So the archive lacked them, and every later
//! restore failed.

use crate::common;

use braiddb::{
    Db, Durability, Tree,
    backup::{DirectoryTarget, RestorePoint},
    platform::Vfs,
};
use braiddb_sim::{Call, CrashPolicy, Effect, Fault, SimDisk};
use common::{PATH, SmallOptions, empty_disk, explained, full_text, value};
use std::{io::ErrorKind, sync::Arc};

const ARCHIVE: &str = "/archive";
/// Enough that the log has no space for their numbers either.
const REFUSED: u64 = 100;
const RESTORED: &str = "/restored";

fn open(options: &SmallOptions, disk: &Arc<SimDisk>, seed: u64) -> (Db, Tree) {
    let db = options.builder(disk, seed).log_archive(ARCHIVE).open(PATH);
    let db = db.unwrap_or_else(|e| panic!("open: {}", full_text(&e)));
    let tree = db.tree("zero").expect("a tree");
    (db, tree)
}

fn target(disk: &Arc<SimDisk>) -> DirectoryTarget {
    let vfs: Arc<dyn Vfs> = disk.clone();
    DirectoryTarget::open_in(vfs, "/backups").expect("a target")
}

fn contents(tree: &Tree) -> Vec<(Vec<u8>, Vec<u8>)> {
    tree.iter().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).expect("an entry")).collect()
}

fn fill_log(db: &Db, tree: &Tree) {
    let mut refused = 0;
    for at in 0..500_u64 {
        let mut batch = db.batch();
        batch.put(tree, at.to_le_bytes(), value(700, at));
        match batch.commit_with(Durability::Buffered) {
            Err(e) if e.is_disk_full() => refused += 1,
            done => drop(done.unwrap_or_else(|e| panic!("a write: {}", full_text(&e)))),
        }
        if refused == REFUSED {
            return;
        }
    }
    panic!("the log refused nothing");
}

#[test]
fn archive_after_refused_commits_and_crash_anywhere_has_no_gap() {
    let options = SmallOptions { memtable_bytes: 1 << 20, ..SmallOptions::default() };
    for has_flush in [true, false] {
        let disk = empty_disk(3);
        let (db, tree) = open(&options, &disk, 1);
        tree.put("first", "1").expect("a write");
        db.backup(&target(&disk)).expect("a backup");
        let no_segment = Fault {
            path_suffix: Some(".wal".to_owned()),
            forever: true,
            effect: Effect::Fail(ErrorKind::StorageFull),
            ..Fault::nth_of(Call::Reserve, 0, ErrorKind::StorageFull)
        };
        disk.inject(no_segment);
        fill_log(&db, &tree);
        let from = disk.operations();
        if has_flush {
            db.flush().expect("there is space for runs");
        }
        disk.clear_faults();
        tree.put("after", "2").expect("a write");
        db.sync().expect("a sync");
        let to = disk.operations();
        drop((tree, db));
        for moment in from..=to {
            for policy in CrashPolicy::some(2, moment as u64) {
                explained(
                    || format!("flush {has_flush}, crash after {moment} of {from}..{to}, {policy:?}"),
                    || {
                        let image = disk.crash_image(moment, policy);
                        let (db, tree) = open(&options, &image, 2);
                        let last = tree.put("last", "3").expect("a write");
                        let expected = contents(&tree);
                        db.archive_now().expect("archive");
                        let builder = options.builder(&image, 3).create(false);
                        let point = RestorePoint::Version(last);
                        let restored = builder.restore_to(&target(&image), ARCHIVE, point, RESTORED);
                        let restored = restored.unwrap_or_else(|e| panic!("restore: {}", full_text(&e)));
                        assert_eq!(restored.sequence, last);
                        let db = options.builder(&image, 4).create(false).open(RESTORED).expect("open");
                        assert_eq!(contents(&db.tree("zero").expect("a tree")), expected);
                    },
                );
            }
        }
    }
}

/// A snapshot may be at a refused number that another commit gets after a crash; a watcher from the
/// snapshot must see that commit.
#[test]
fn watcher_from_refused_number_is_shown_commit_that_reuses_it() {
    let options = SmallOptions { memtable_bytes: 1 << 20, ..SmallOptions::default() };
    let disk = empty_disk(4);
    let retained =
        |disk: &Arc<SimDisk>, seed| options.builder(disk, seed).log_retention(1 << 20).open(PATH).expect("open");
    let db = retained(&disk, 1);
    let tree = db.tree("zero").expect("a tree");
    disk.inject(Fault {
        path_suffix: Some(".wal".to_owned()),
        forever: true,
        ..Fault::nth_of(Call::Reserve, 0, ErrorKind::StorageFull)
    });
    fill_log(&db, &tree);
    let seen = db.snapshot().sequence();
    let token = db.watch(braiddb::watch::WatchOptions::new().after(seen)).expect("a watcher").token();
    let image = disk.crash_image(disk.operations(), CrashPolicy::KeepAll);
    drop((tree, db));
    let db = retained(&image, 2);
    let tree = db.tree("zero").expect("a tree");
    let commit = tree.put("new", "1").expect("a write");
    assert!(commit <= seen, "the number must be reused, or this test proves nothing");
    let mut watcher = db.watch(braiddb::watch::WatchOptions::new().resume(token)).expect("a watcher");
    let shown = watcher.try_next().expect("a change").expect("the commit");
    assert_eq!(shown.sequence, commit);
}
