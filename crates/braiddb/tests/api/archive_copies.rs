//! Copies of a log archive in a target.

use braiddb::{
    Builder, Db, Durability,
    backup::{ArchiveCopies, BackupTarget, DirectoryTarget, RestorePoint},
    options::Tuning,
    platform::{MemVfs, OpenMode, Vfs},
};
use std::{path::Path, sync::Arc};

const VALUE_LEN: usize = 40 << 10;

struct Site {
    vfs: Arc<dyn Vfs>,
    backups: DirectoryTarget,
    copies: DirectoryTarget,
}

impl Site {
    fn new() -> Site {
        let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
        let target = |dir: &str| DirectoryTarget::open_in(Arc::clone(&vfs), dir).unwrap();
        let (backups, copies) = (target("/backups"), target("/copies"));
        Site { vfs, backups, copies }
    }

    fn builder(&self) -> Builder {
        let tuning = Tuning::new().log_segment_bytes(64 << 10);
        let builder = Builder::new().vfs(Arc::clone(&self.vfs)).memory(8 << 20).tuning(tuning);
        builder.background_threads(0).durability(Durability::Buffered)
    }

    fn open(&self) -> Db {
        self.builder().log_archive("/archive").open("/db").unwrap()
    }

    fn copies(&self) -> ArchiveCopies<'_> {
        ArchiveCopies::new(&self.copies).vfs(Arc::clone(&self.vfs))
    }

    fn put(&self, db: &Db, range: std::ops::Range<u32>) {
        let tree = db.tree("t").unwrap();
        for i in range {
            // Every tenth value goes to a blob file.
            let len = if i % 10 == 0 { VALUE_LEN } else { 300 };
            tree.put(i.to_be_bytes(), value(i, len)).unwrap();
        }
    }

    fn check(&self, dir: &str, count: u32) {
        let db = Builder::new().vfs(Arc::clone(&self.vfs)).open(dir).unwrap();
        let tree = db.open_tree("t").unwrap();
        assert_eq!(tree.count(..).unwrap(), u64::from(count));
        for i in 0..count {
            let found = tree.get(i.to_be_bytes()).unwrap().unwrap();
            assert!(found.to_vec() == value(i, found.len()), "value {i}");
        }
    }
}

/// Bytes that do not compress.
fn value(i: u32, len: usize) -> Vec<u8> {
    let mut state = u64::from(i) + 1;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn copied_archive_restores_the_latest_commit_from_the_tail_only() {
    let site = Site::new();
    let db = site.open();
    for begin in (0..300).step_by(50) {
        site.put(&db, begin..begin + 50);
        db.archive_now().unwrap();
    }
    let first = site.copies().copy("/archive", db.incarnation()).unwrap();
    assert!(first.files > 5, "{first:?}");
    let backup = db.backup(&site.backups).unwrap();
    site.put(&db, 300..330);
    let last = db.archive_now().unwrap();
    let second = site.copies().copy("/archive", db.incarnation()).unwrap();
    assert!((1..first.files).contains(&second.files), "{second:?} after {first:?}");
    assert_eq!(second.last, Some(last));
    let third = site.copies().copy("/archive", db.incarnation()).unwrap();
    assert_eq!((third.files, third.bytes), (0, 0));

    let fetched = site.copies().fetch(db.incarnation(), backup.sequence, "/fetched").unwrap();
    assert_eq!(fetched.last, Some(last));
    assert!(fetched.bytes < first.bytes, "{fetched:?} of {first:?}");
    assert_eq!(site.copies().fetch(db.incarnation(), backup.sequence, "/fetched").unwrap().files, 0);
    let restore = |archive: &str, point, dir: &str| {
        let builder = Builder::new().vfs(Arc::clone(&site.vfs));
        builder.restore_to(&site.backups, archive, point, dir).map(|restored| restored.sequence)
    };
    assert_eq!(restore("/fetched", RestorePoint::Latest, "/restored").unwrap(), last);
    site.check("/restored", 330);
    let before = RestorePoint::Version(last - 5);
    assert_eq!(restore("/fetched", before, "/restored before").unwrap(), last - 5);
    site.check("/restored before", 325);
    // The copies of everything are as good as the archive.
    let all = site.copies().fetch(db.incarnation(), 0, "/all").unwrap();
    assert_eq!(all.bytes, first.bytes + second.bytes);
    assert!(site.copies().fetch(db.incarnation() ^ 1, 0, "/other").unwrap_err().is_not_found());
}

/// A restore from copies without the note would end before the gap without an error.
#[test]
fn note_of_gap_is_copied_and_refuses_the_restore() {
    let site = Site::new();
    let db = site.open();
    site.put(&db, 0..5);
    let backup = db.backup(&site.backups).unwrap();
    let life = db.incarnation();
    db.close().unwrap();
    let db = site.builder().durability(Durability::None).open("/db").unwrap();
    site.put(&db, 5..9);
    db.flush().unwrap();
    db.close().unwrap();
    let db = site.open();
    site.put(&db, 9..12);
    let archived = db.archive_now().or_else(|_| db.archive_now());
    let gaps = db.archive_gaps().unwrap();
    site.copies().copy("/archive", life).unwrap();
    site.copies().fetch(life, backup.sequence, "/fetched").unwrap();
    let builder = Builder::new().vfs(Arc::clone(&site.vfs));
    let point = RestorePoint::Version(archived.unwrap());
    let restored = builder.restore_to(&site.backups, "/fetched", point, "/restored");
    match gaps.is_empty() {
        true => site.check("/restored", 12),
        false => assert!(restored.unwrap_err().is_archive_gap()),
    }
    assert!(!gaps.is_empty(), "the open without the archive left no gap, so the test shows nothing");
}

#[test]
fn copy_of_unfinished_object_is_repeated() {
    let site = Site::new();
    let db = site.open();
    site.put(&db, 0..50);
    let last = db.archive_now().unwrap();
    site.copies().copy("/archive", db.incarnation()).unwrap();
    let cut = site.copies.list().unwrap().into_iter().find(|object| object.name.ends_with(".wal")).unwrap();
    let path = Path::new("/copies").join(&cut.name);
    site.vfs.open(&path, OpenMode::ReadWrite).unwrap().set_len(cut.len / 2).unwrap();
    let again = site.copies().copy("/archive", db.incarnation()).unwrap();
    assert_eq!((again.files, again.bytes, again.last), (1, cut.len, Some(last)));
}

/// Two copies of a directory have the same incarnation, and their logs differ.
#[test]
fn copy_of_a_copied_database_is_refused() {
    let site = Site::new();
    let db = site.open();
    site.put(&db, 0..50);
    db.archive_now().unwrap();
    let life = db.incarnation();
    site.copies().copy("/archive", life).unwrap();
    let first = site.copies.list().unwrap().into_iter().find(|object| object.name.ends_with(".wal")).unwrap();
    let (stem, _) = first.name.rsplit_once('-').unwrap();
    site.copies.put(&format!("{stem}-987654.wal")).unwrap().finish().unwrap();
    let refused = site.copies().copy("/archive", life).unwrap_err();
    assert!(refused.is_already_exists() && refused.to_string().contains("checkpoint"), "{refused}");
}
