//! Backups beside writers: their contents, shared files, retention and damage.

use braiddb::{
    Builder, Db, Durability, Error,
    backup::{BackupTarget, Backups, DirectoryTarget, RestorePoint, Retention},
    options::Tuning,
    platform::{MemVfs, OpenMode, SystemTime, UNIX_EPOCH, Vfs},
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

const DIR: &str = "/db";
const BACKUPS: &str = "/backups";

fn builder(vfs: &Arc<dyn Vfs>) -> Builder {
    let tuning = Tuning::new().memtable_bytes(32 << 10).blob_file_bytes(64 << 10).log_segment_bytes(64 << 10);
    let builder = Builder::new().vfs(Arc::clone(vfs)).memory(8 << 20).tuning(tuning).blob_threshold(300);
    builder.background_threads(0).durability(Durability::Buffered)
}

fn world() -> (Arc<dyn Vfs>, Db, DirectoryTarget) {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let db = builder(&vfs).open(DIR).unwrap();
    let target = DirectoryTarget::open_in(Arc::clone(&vfs), BACKUPS).unwrap();
    (vfs, db, target)
}

fn ids(target: &DirectoryTarget) -> Vec<u64> {
    Backups::new(target).list().unwrap().iter().map(|info| info.id).collect()
}

fn write_rounds(db: &Db, writer: u8, stop: &AtomicBool, committed: &AtomicU64) {
    let (a, b) = (db.tree("a").unwrap(), db.tree("b").unwrap());
    for round in 1_u64.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let mut batch = db.batch();
        for key in 0..6_u8 {
            let value = round.to_be_bytes().repeat(if key.is_multiple_of(3) { 100 } else { 1 });
            batch.put(if key.is_multiple_of(2) { &a } else { &b }, [writer, key], &value);
        }
        batch.put(&b, [&[writer, 99][..], &(round % 300).to_be_bytes()].concat(), [1; 60]);
        committed.fetch_max(batch.commit_with(Durability::Buffered).unwrap(), Ordering::SeqCst);
        if round.is_multiple_of(150) {
            a.put_stream([writer, 200], round.to_be_bytes().repeat(2000).as_slice()).unwrap();
            let name = format!("passing {writer}");
            db.tree(&name).unwrap().put_with_ttl(b"k", b"v", Duration::from_secs(1)).unwrap();
            db.drop_tree(&name).unwrap();
        }
        if round.is_multiple_of(500) {
            db.compact().unwrap();
        }
    }
}

fn check_rounds(db: &Db, sequence: u64) {
    assert_eq!(db.snapshot().sequence(), sequence);
    let report = db.verify().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let (a, b) = (db.open_tree("a").unwrap(), db.open_tree("b").unwrap());
    for writer in 0..2_u8 {
        let round = |key: u8| {
            let tree = if key.is_multiple_of(2) { &a } else { &b };
            tree.get([writer, key]).unwrap().map(|value| value[..8].to_vec())
        };
        for key in 1..6 {
            assert_eq!(round(key), round(0), "key {key} of writer {writer}");
        }
    }
}

#[test]
fn backup_under_full_load_is_state_of_a_commit() {
    let (vfs, db, target) = world();
    drop(db);
    let db = builder(&vfs).background_threads(2).log_archive("/archive").open(DIR).unwrap();
    db.tree("a").unwrap();
    db.tree("b").unwrap();
    let (stop, committed) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut taken = Vec::new();
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (db, stop, committed) = (&db, &stop, &committed);
            scope.spawn(move || write_rounds(db, writer, stop, committed));
        }
        while taken.len() < 8 || committed.load(Ordering::SeqCst) < 3000 {
            let before = committed.load(Ordering::SeqCst);
            let info = db.backup(&target).unwrap();
            assert!(info.sequence >= before);
            taken.push(info);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let last = db.archive_now().unwrap();
    db.close().unwrap();
    for info in taken.iter().take(8) {
        let dir = format!("/restored/{}", info.id);
        assert_eq!(builder(&vfs).restore(&target, Some(info.id), &dir).unwrap().sequence, info.sequence);
        check_rounds(&builder(&vfs).open(&dir).unwrap(), info.sequence);
    }
    let first = taken[0].sequence;
    for number in 0..20 {
        let version = first + (last - first) * number / 19;
        let (dir, point) = (format!("/points/{number}"), RestorePoint::Version(version));
        assert_eq!(builder(&vfs).restore_to(&target, "/archive", point, &dir).unwrap().sequence, version);
        check_rounds(&builder(&vfs).open(&dir).unwrap(), version);
    }
}

#[test]
fn backup_after_another_copies_only_new_files() {
    let (vfs, db, target) = world();
    let tree = db.tree("t").unwrap();
    for i in 0..2000_u32 {
        tree.put(i.to_be_bytes(), [7; 100]).unwrap();
    }
    db.compact().unwrap();
    let first = db.backup(&target).unwrap();
    assert_eq!((first.bytes_copied, first.files_copied), (first.bytes, first.files));
    let none = db.backup(&target).unwrap();
    assert_eq!((none.bytes_copied, none.files_copied, none.bytes), (0, 0, first.bytes));
    tree.put(b"more", [8; 1000]).unwrap();
    let second = db.backup(&target).unwrap();
    assert!(second.files_copied == 2 && second.bytes_copied < 10_000, "{second:?}");
    let stored: u64 = target.list().unwrap().iter().filter(|o| !o.name.ends_with("backup")).map(|o| o.len).sum();
    assert_eq!(stored, first.bytes + second.bytes_copied);
    drop((tree, db));
    builder(&vfs).restore(&target, Some(second.id), "/r").unwrap();
    let tree = builder(&vfs).open("/r").unwrap().open_tree("t").unwrap();
    assert_eq!(tree.get(b"more").unwrap().as_deref(), Some(&[8; 1000][..]));
}

/// File numbers are reused for other contents after a restore.
#[test]
fn backup_after_restore_does_not_share_files_by_number() {
    let (vfs, db, target) = world();
    db.tree("t").unwrap().put(b"k", b"before").unwrap();
    let first = db.backup(&target).unwrap();
    for life in 1..4_u8 {
        let dir = format!("/life {life}");
        builder(&vfs).restore(&target, Some(first.id), &dir).unwrap();
        let db = builder(&vfs).open(&dir).unwrap();
        db.tree("t").unwrap().put(b"k", [life; 400]).unwrap();
        let info = db.backup(&target).unwrap();
        assert_ne!(info.incarnation, first.incarnation);
        builder(&vfs).restore(&target, Some(info.id), format!("/again {life}")).unwrap();
        let again = builder(&vfs).open(format!("/again {life}")).unwrap().open_tree("t").unwrap();
        assert_eq!(again.get(b"k").unwrap().as_deref(), Some(&[life; 400][..]));
    }
    assert!(Backups::new(&target).verify(None).unwrap().problems.is_empty());
}

#[test]
fn retain_by_count_and_age_keeps_matching_backups() {
    let (_, db, target) = world();
    let tree = db.tree("t").unwrap();
    for round in 0..5_u8 {
        tree.put([round], [round; 500]).unwrap();
        db.backup(&target).unwrap();
    }
    let backups = Backups::new(&target);
    let now = backups.list().unwrap()[4].taken;
    let retain = |keep, days: Option<u64>, later: u64| {
        let mut retention = Retention::new();
        retention.keep = keep;
        retention.keep_for = days.map(|days| Duration::from_secs(days * 86_400));
        backups.retain(retention, now + Duration::from_secs(later * 86_400)).unwrap()
    };
    assert_eq!(retain(None, None, 100), [0_u64; 0]);
    assert_eq!(retain(Some(2), Some(3), 2), [0_u64; 0]);
    assert_eq!(retain(Some(4), Some(1), 2), [1]);
    assert_eq!(retain(Some(2), None, 0), [2, 3]);
    assert_eq!(ids(&target), [4, 5]);
    assert_eq!(retain(None, Some(1), 2), [4]);
    assert_eq!(retain(None, Some(0), 9), [0_u64; 0]);
    assert!(matches!(backups.delete(4), Err(Error::NotFound(_))));
    assert!(backups.verify(None).unwrap().problems.is_empty());
    // A number is not reused while a part of its backup is left.
    assert_eq!(db.backup(&target).unwrap().id, 6);
}

#[test]
fn backup_beside_another_is_locked() {
    let (_, db, target) = world();
    db.tree("t").unwrap().put(b"k", b"v").unwrap();
    let lock = target.lock().unwrap();
    let refused = db.backup(&target).unwrap_err();
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");
    drop(lock);
    db.backup(&target).unwrap();
}

/// A damaged description protects all files, because its references are unknown.
#[test]
fn delete_beside_damaged_description_keeps_all_files() {
    let (vfs, db, target) = world();
    let tree = db.tree("t").unwrap();
    for round in 0..3_u8 {
        tree.put([round], [round; 500]).unwrap();
        db.backup(&target).unwrap();
    }
    let path = Path::new(BACKUPS).join("000003.backup");
    let file = vfs.open(&path, OpenMode::ReadWrite).unwrap();
    file.write_at(b"x", 100).unwrap();
    let backups = Backups::new(&target);
    assert!(backups.list().unwrap_err().is_corruption());
    assert!(builder(&vfs).restore(&target, None, "/r").unwrap_err().is_corruption());
    builder(&vfs).restore(&target, Some(2), "/r").unwrap();
    let count =
        |target: &DirectoryTarget| target.list().unwrap().iter().filter(|o| !o.name.ends_with("backup")).count();
    let before = count(&target);
    backups.delete(1).unwrap();
    assert_eq!(count(&target), before);
    let report = backups.verify(None).unwrap();
    assert_eq!((report.whole, report.damaged), (vec![2], vec![3]));
    assert_eq!(db.backup(&target).unwrap().id, 4);
    backups.delete(3).unwrap();
    assert_eq!(ids(&target), [2, 4]);
    assert!(backups.verify(None).unwrap().problems.is_empty());
}

/// Foreign objects stay in the target.
#[test]
fn backup_target_with_other_objects_keeps_them() {
    let (vfs, db, target) = world();
    db.tree("t").unwrap().put(b"k", b"v").unwrap();
    let path = Path::new(BACKUPS).join("README.txt");
    vfs.open(&path, OpenMode::CreateNew).unwrap();
    let info = db.backup(&target).unwrap();
    assert!(info.taken > UNIX_EPOCH);
    Backups::new(&target).delete(info.id).unwrap();
    assert!(vfs.open(&path, OpenMode::Read).is_ok());
}

/// Damage in the database is reported and not backed up.
#[test]
fn backup_of_damaged_database_is_refused() {
    let (vfs, db, target) = world();
    let tree = db.tree("t").unwrap();
    tree.put(b"long", [5; 3000]).unwrap();
    tree.put(b"short", [6; 200]).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let names: Vec<_> = vfs.list(Path::new(DIR)).unwrap();
    for kind in ["run", "blob"] {
        let name = names.iter().find(|entry| entry.name.ends_with(kind)).unwrap();
        let file = vfs.open(&Path::new(DIR).join(&name.name), OpenMode::ReadWrite).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 150).unwrap();
        file.write_at(&[byte[0] ^ 1], 150).unwrap();
        let db = builder(&vfs).open(DIR);
        let refused = db.and_then(|db| db.backup(&target)).unwrap_err();
        assert!(refused.is_corruption(), "{kind}: {refused}");
        file.write_at(&byte, 150).unwrap();
    }
    assert_eq!(ids(&target), [0_u64; 0]);
    builder(&vfs).open(DIR).unwrap().backup(&target).unwrap();
}

fn ends(db: &Db) -> Vec<(Vec<u8>, Option<SystemTime>)> {
    let tree = db.open_tree("sessions").unwrap();
    let (mut rows, mut cursor) = (Vec::new(), tree.cursor());
    while cursor.next().unwrap() {
        rows.push((cursor.key().to_vec(), cursor.expires().unwrap()));
    }
    rows
}

#[test]
fn restore_of_expiring_records_keeps_their_expiry() {
    let (vfs, db, target) = world();
    drop(db);
    let db = builder(&vfs).log_archive("/archive").open(DIR).unwrap();
    let sessions = db.tree("sessions").unwrap();
    let at = |us: u64| UNIX_EPOCH + Duration::from_micros(us);
    let late = |n: u64| at(4_000_000_000_000_000 + n);
    sessions.put_until(b"a", b"1", late(7)).unwrap();
    sessions.put_until(b"b", [7; 1000], late(9)).unwrap();
    sessions.put_until(b"past", b"1", at(5)).unwrap();
    sessions.put(b"z", b"1").unwrap();
    let info = db.backup(&target).unwrap();
    let first = vec![(b"a".to_vec(), Some(late(7))), (b"b".to_vec(), Some(late(9))), (b"z".to_vec(), None)];
    assert_eq!(ends(&db), first);
    sessions.put_until(b"z", b"1", late(11)).unwrap();
    let last = db.archive_now().unwrap();
    let second = ends(&db);
    builder(&vfs).restore(&target, Some(info.id), "/first").unwrap();
    assert_eq!(ends(&builder(&vfs).open("/first").unwrap()), first);
    builder(&vfs).restore_to(&target, "/archive", RestorePoint::Version(last), "/second").unwrap();
    assert_eq!(ends(&builder(&vfs).open("/second").unwrap()), second);
}
