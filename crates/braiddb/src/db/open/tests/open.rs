//! Reads of blobs on open, and handling of damaged blobs.

use crate::{
    base::{Error, Result},
    codec::Compression,
    db::{
        Db, Durability, Follower, Settings,
        tests_common::{self, DIR, fault, small},
    },
    platform::{
        File, OpenMode, Vfs,
        fault_vfs::{FaultVfs, Operation},
    },
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

fn open(vfs: &FaultVfs) -> Result<Db> {
    open_with(vfs, 4 << 20)
}

fn open_with(vfs: &FaultVfs, blob_file_bytes: u64) -> Result<Db> {
    tests_common::open(settings(vfs, blob_file_bytes))
}

fn settings(vfs: &FaultVfs, blob_file_bytes: u64) -> Settings {
    Settings {
        memory: 64 << 20,
        durability: Durability::Sync,
        compression: Compression::None,
        memtable_bytes: Some(1 << 20),
        partition_bytes: Some(64 << 20),
        log_segment_bytes: 64 << 10,
        block_bytes: 4 << 10,
        blob_threshold: 4 << 10,
        blob_file_bytes,
        ..small(&fault(vfs))
    }
}

fn killed(files: &BTreeMap<PathBuf, Vec<u8>>) -> FaultVfs {
    FaultVfs::of_files(Path::new(DIR), files)
}

#[test]
fn opening_reads_no_value_that_is_known_to_be_durable() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(&vfs).unwrap();
    let tree = db.tree("t").unwrap();
    for i in 0..64u8 {
        tree.put([i], vec![i; 1 << 20]).unwrap();
    }
    let again = killed(&vfs.files());
    let reopened = open(&again).unwrap();
    let read = again.bytes_read("blob");
    // Only the last commit's sync is not confirmed by a later record.
    assert!((1 << 20..3 << 20).contains(&read), "{read} bytes of blobs read after a kill");
    assert_eq!(reopened.tree("t").unwrap().get([63]).unwrap().map(|v| v.len()), Some(1 << 20));
    drop(tree);
    db.close().unwrap();
    let again = killed(&vfs.files());
    let reopened = open(&again).unwrap();
    let read = again.bytes_read("blob");
    assert!(read < 64 << 10, "{read} bytes of blobs read after a close");
    assert_eq!(reopened.tree("t").unwrap().iter().count(), 64);
}

/// Regression: an open failed when a reader of a closed handle removed a listed file.
#[test]
fn an_orphan_that_is_gone_already_is_no_error() {
    let vfs = FaultVfs::new(Path::new(DIR));
    drop(open(&vfs).unwrap());
    let mut files = vfs.files();
    files.insert(Path::new(DIR).join("000777.run"), b"left behind".to_vec());
    for (kind, is_open) in [(ErrorKind::NotFound, true), (ErrorKind::PermissionDenied, false)] {
        let again = killed(&files);
        again.fail(Operation::Remove, 0, 1, kind);
        assert_eq!(open(&again).is_ok(), is_open, "{kind}");
    }
}

/// With background threads, one of them removes leftovers; the open does not wait.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test of threads")]
fn orphans_are_removed_by_a_thread_and_one_that_cannot_be_is_left_to_the_next_open() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(&vfs).unwrap();
    db.tree("t").unwrap().put(b"k", b"v").unwrap();
    let mut files = vfs.files();
    let orphans = ["000777.run", "000778.view"].map(|name| Path::new(DIR).join(name));
    for orphan in &orphans {
        files.insert(orphan.clone(), b"left behind".to_vec());
    }
    let again = killed(&files);
    again.fail(Operation::Remove, 0, 1, ErrorKind::PermissionDenied);
    for round in 0..2 {
        let db = tests_common::open(Settings { background_threads: 2, ..settings(&again, 10_000) }).unwrap();
        assert_eq!(db.tree("t").unwrap().get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
        let left = || orphans.iter().filter(|orphan| again.files().contains_key(*orphan)).count();
        let most = 1 - round;
        for _ in 0..1000 {
            if left() <= most {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(left() <= most, "{} in round {round}", left());
        db.close().unwrap();
    }
}

/// Leftover log segments may survive many writes and a kill.
#[test]
fn log_segments_that_are_left_over_change_nothing() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(&vfs).unwrap();
    let put = |db: &Db, round: u8| {
        let tree = db.tree("t").unwrap();
        for row in 0..40u8 {
            tree.put([round, row], vec![round; 3000]).unwrap();
            tree.put([0, row], vec![round; 100]).unwrap();
        }
    };
    put(&db, 1);
    let mut files = vfs.files();
    drop(db);
    for round in 2..6 {
        let again = killed(&files);
        again.fail(Operation::Remove, 0, 1_000_000, ErrorKind::PermissionDenied);
        let before: Vec<PathBuf> =
            again.files().into_keys().filter(|p| p.extension().is_some_and(|e| e == "wal")).collect();
        let db = tests_common::open(Settings { background_threads: 2, ..settings(&again, 10_000) }).unwrap();
        put(&db, round);
        files = again.files();
        assert!(before.iter().all(|segment| files.contains_key(segment)), "none could be removed");
        let reopened = open(&killed(&files)).unwrap();
        let tree = reopened.tree("t").unwrap();
        assert_eq!(tree.iter().count(), 40 * usize::from(round) + 40);
        assert!((0..40).all(|row| tree.get([0, row]).unwrap().is_some_and(|value| *value == [round; 100])));
    }
}

/// Creates a database killed after two synced commits and three others, each with a value in its
/// own file; corrupts one value.
fn with_damaged_value(damaged: u8) -> FaultVfs {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open_with(&vfs, 10_000).unwrap();
    let tree = db.tree("t").unwrap();
    for i in 1..=5u8 {
        let mut batch = db.batch();
        batch.put(&tree, [i], vec![i; 10_000]);
        batch.commit_with(if i <= 2 { Durability::Sync } else { Durability::Buffered }).unwrap();
    }
    let mut files = vfs.files();
    let is_blob = |path: &Path| path.extension().is_some_and(|e| e == "blob");
    for (_, bytes) in files.iter_mut().filter(|(path, _)| is_blob(path)) {
        if let Some(at) = bytes.windows(100).position(|w| w.iter().all(|b| *b == damaged)) {
            bytes[at + 50] ^= 1;
        }
    }
    killed(&files)
}

#[test]
fn the_first_bad_value_past_what_is_durable_ends_the_log() {
    for damaged in 3..=5u8 {
        let vfs = with_damaged_value(damaged);
        let db = open(&vfs).unwrap();
        let tree = db.tree("t").unwrap();
        let keys: Vec<u8> = tree.iter().map(|pair| pair.unwrap().0[0]).collect();
        assert!(keys.iter().copied().eq(1..damaged), "{keys:?} with {damaged} damaged");
        let note = db.stats().log_tail_note.unwrap();
        assert!(note.contains("a value it refers to is missing"), "{note}");
        tree.put([damaged], b"again").unwrap();
        drop(tree);
        db.close().unwrap();
        let db = open(&vfs).unwrap();
        assert_eq!(db.tree("t").unwrap().iter().count(), usize::from(damaged));
        assert!(db.verify().unwrap().problems.is_empty());
    }
}

/// Regression: a read-only open took the record for one just written by a live writer and did not
/// report the lost commit.
#[test]
fn read_only_open_notes_a_log_that_ends_before_a_missing_value() {
    for damaged in 3..=5u8 {
        let vfs = with_damaged_value(damaged);
        let db = Follower::open_with(settings(&vfs, 4 << 20), Path::new(DIR), None).unwrap().db();
        assert_eq!(db.open_tree("t").unwrap().iter().count(), usize::from(damaged) - 1);
        let note = db.stats().log_tail_note.expect("a note");
        assert!(note.contains("a value it refers to is missing"), "{note}");
        let notes = db.verify().unwrap().notes;
        assert!(notes.iter().any(|text| text.contains(&note)), "{notes:?}");
    }
}

#[test]
fn a_bad_value_of_a_durable_commit_is_the_readers_to_find() {
    let vfs = with_damaged_value(1);
    let db = open(&vfs).unwrap();
    let tree = db.tree("t").unwrap();
    assert!(tree.get([1]).unwrap_err().is_corruption());
    let found = db.verify().unwrap().problems;
    assert!(
        matches!(found.as_slice(), [e] if e.kind == crate::db::maintenance::verify::ProblemKind::Damaged),
        "{found:?}"
    );
    assert!((2..=5u8).all(|i| tree.get([i]).unwrap().is_some()));
}

#[test]
fn a_missing_blob_file_of_a_durable_commit_is_corruption() {
    let vfs = with_damaged_value(1);
    let mut files = vfs.files();
    files.retain(|path, _| path.extension().is_none_or(|e| e != "blob"));
    let error = open(&killed(&files)).unwrap_err();
    assert!(matches!(error, Error::Corruption(_)), "{error}");
    let mut files = vfs.files();
    let (_, blob) = files.iter_mut().find(|(path, _)| path.extension().is_some_and(|e| e == "blob")).unwrap();
    blob.truncate(5_000);
    let error = open(&killed(&files)).unwrap_err();
    assert!(matches!(error, Error::Corruption(_)), "{error}");
}

/// Past a bad value the log has ended; files of later records may be missing.
#[test]
fn files_that_only_records_past_the_end_refer_to_are_not_asked_for() {
    let mut files = with_damaged_value(3).files();
    let holds = |bytes: &[u8], value: u8| bytes.windows(100).any(|w| w.iter().all(|b| *b == value));
    files.retain(|path, bytes| path.extension().is_none_or(|e| e != "blob") || !holds(bytes, 4));
    let db = open(&killed(&files)).unwrap();
    assert_eq!(db.tree("t").unwrap().iter().count(), 2);
}

#[derive(Clone, Debug)]
struct Noting {
    inner: FaultVfs,
    asked: Arc<Mutex<Vec<PathBuf>>>,
}

#[derive(Debug)]
struct NotingFile {
    inner: Arc<dyn File>,
    path: PathBuf,
    asked: Arc<Mutex<Vec<PathBuf>>>,
}

impl crate::platform::VfsLayer for Noting {
    fn inner(&self) -> &dyn Vfs {
        &self.inner
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(NotingFile { inner, path: path.to_owned(), asked: Arc::clone(&self.asked) }))
    }
}

impl crate::platform::FileLayer for NotingFile {
    fn inner(&self) -> &dyn File {
        &*self.inner
    }

    fn start_write_back(&self, _offset: u64, _len: u64) {
        self.asked.lock().push(self.path.clone());
    }
}

#[test]
fn the_log_is_being_written_while_it_is_replayed_by_who_will_sync_it_and_by_nobody_else() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let buffered = |vfs: &FaultVfs| Settings { durability: Durability::Buffered, ..settings(vfs, 4 << 20) };
    let db = tests_common::open(buffered(&vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    for i in 0..200u16 {
        tree.put(i.to_be_bytes(), [7; 1000]).unwrap();
    }
    // Three segments of 64 KiB and more.
    let files = vfs.files();
    let segments: Vec<PathBuf> =
        files.keys().filter(|path| path.extension().is_some_and(|e| e == "wal")).cloned().collect();
    assert!(segments.len() >= 4, "{segments:?}");
    let asked_of = |is_followed: bool| {
        let noting = Noting { inner: killed(&files), asked: Arc::default() };
        let vfs: Arc<dyn Vfs> = Arc::new(noting.clone());
        let settings = Settings { vfs, ..buffered(&noting.inner) };
        if is_followed {
            drop(Follower::open_with(settings, Path::new(DIR), None).unwrap());
        } else {
            let again = tests_common::open(settings).unwrap();
            assert_eq!(again.tree("t").unwrap().get(199u16.to_be_bytes()).unwrap().map(|v| v.len()), Some(1000));
        }
        let mut asked = noting.asked.lock().clone();
        asked.retain(|path| segments.contains(path));
        asked
    };
    let asked = asked_of(false);
    assert!(asked.len() >= 4 && segments.iter().filter(|path| asked.contains(path)).count() == asked.len());
    assert_eq!(asked_of(true), Vec::<PathBuf>::new());
}

/// Regression: with full memtables, the commit that stores a new retention limit waited forever,
/// because no flush thread had started.
#[test]
fn a_database_whose_memtables_are_full_opens_with_another_log_retention() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = tests_common::open(Settings { memtable_bytes: Some(1 << 20), ..small(&fault(&vfs)) }).unwrap();
    let tree = db.tree("t").unwrap();
    // For some numbers, the last replayed record fills its memtable.
    for number in 0..700_u32 {
        tree.put(number.to_be_bytes(), [7; 100]).unwrap();
        if number < 540 {
            continue;
        }
        let after = tests_common::killed(&vfs);
        let settings = Settings { background_threads: 1, log_retention_bytes: Some(1 << 20), ..small(&fault(&after)) };
        let db = tests_common::bounded("opening", move || tests_common::open(settings).unwrap());
        assert_eq!(db.tree("t").unwrap().iter().count(), number as usize + 1);
    }
}
