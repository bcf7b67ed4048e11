//! Commits at chosen moments of a flush's installation.

use crate::common;

use braiddb::{
    Db, Durability,
    options::Tuning,
    platform::{File, OpenMode, Vfs},
    watch::{Change, Gap, WatchOptions},
};
use braiddb_sim::{CrashPolicy, Random, SimDisk, SimRuntime};
use common::{PATH, empty_disk, full_text, threads::ok};
use std::{
    fmt, io,
    path::Path,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

type Hook = Box<dyn FnOnce() + Send>;

#[derive(Clone, Default)]
struct BeforeManifest(Arc<Mutex<Option<Hook>>>);

impl fmt::Debug for BeforeManifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeforeManifest")
    }
}

#[derive(Debug)]
struct Interposed {
    disk: Arc<SimDisk>,
    hook: BeforeManifest,
}

#[derive(Debug)]
struct Manifest {
    file: Arc<dyn File>,
    hook: BeforeManifest,
}

impl braiddb::platform::VfsLayer for Interposed {
    fn inner(&self) -> &dyn Vfs {
        &*self.disk
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(path, mode)?;
        let is_manifest = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("MANIFEST"));
        Ok(if is_manifest { Arc::new(Manifest { file, hook: self.hook.clone() }) } else { file })
    }
}

impl braiddb::platform::FileLayer for Manifest {
    fn inner(&self) -> &dyn File {
        &*self.file
    }

    fn sync_data(&self) -> io::Result<()> {
        let hook = self.hook.0.lock().expect("no panic while locked").take();
        if let Some(hook) = hook {
            hook();
        }
        self.file.sync_data()
    }
}

fn after_crash(disk: &SimDisk) -> Db {
    let vfs: Arc<dyn Vfs> = disk.crash_image(disk.operations(), CrashPolicy::LoseAllUnsynced);
    let db = Db::builder().create_parents(true).vfs(vfs).runtime(SimRuntime::new(2)).background_threads(0).open(PATH);
    db.unwrap_or_else(|e| panic!("open after the crash: {}", full_text(&e)))
}

fn noise(len: usize, tag: u64) -> Vec<u8> {
    Random::new(tag).bytes(len)
}

/// The story: while a flush was installed, the log's last segment was sealed without another commit
/// in it. It was released as fully flushed, although recovery started there: a crash lost durable
/// commits, or the database did not open.
#[test]
fn segment_sealed_during_flush_is_kept_for_recovery() {
    let disk = empty_disk(1);
    let hook = BeforeManifest::default();
    let vfs = Arc::new(Interposed { disk: disk.clone(), hook: hook.clone() });
    let builder = Db::builder()
        .create_parents(true)
        .vfs(vfs)
        .runtime(SimRuntime::in_real_time(1))
        .background_threads(1)
        .memory(16 << 20);
    let db = ok(builder.tuning(Tuning::new().log_segment_bytes(8 << 10)).blob_threshold(1 << 20).open(PATH));
    let tree = ok(db.tree("left"));
    ok(tree.put(b"flushed", noise(2000, 1)));
    let (other, other_db) = (tree.clone(), db.clone());
    *hook.0.lock().expect("no panic while locked") = Some(Box::new(move || {
        let mut batch = other_db.batch();
        batch.put(&other, b"meanwhile", noise(7000, 2));
        ok(batch.commit_with(Durability::Sync));
    }));
    ok(db.flush());
    assert!(hook.0.lock().expect("no panic while locked").is_none(), "the flush must sync a manifest");
    for number in 0..4_u64 {
        ok(tree.put(number.to_be_bytes(), noise(7000, number)));
    }
    let after = after_crash(&disk);
    drop((tree, db));
    let db = after;
    let tree = ok(db.open_tree("left"));
    let mut expected = vec![(b"flushed".to_vec(), noise(2000, 1)), (b"meanwhile".to_vec(), noise(7000, 2))];
    expected.extend((0..4_u64).map(|number| (number.to_be_bytes().to_vec(), noise(7000, number))));
    for (key, value) in expected {
        assert!(ok(tree.get(&key)).as_deref() == Some(&*value), "{} is lost", key.escape_ascii());
    }
}

/// The story: an idle database continues its log in a short segment. While the manifest recorded
/// that, a commit that did not fit sealed this empty segment, which was then released as fully
/// flushed.
#[test]
fn short_segment_sealed_during_manifest_edit_is_kept_for_recovery() {
    const LEN: usize = 1 << 20;
    let disk = empty_disk(1);
    let hook = BeforeManifest::default();
    let vfs = Arc::new(Interposed { disk: disk.clone(), hook: hook.clone() });
    let builder = Db::builder()
        .create_parents(true)
        .vfs(vfs)
        .runtime(SimRuntime::in_real_time(1))
        .background_threads(1)
        .memory(128 << 20);
    let db = ok(builder.blob_threshold(16 << 20).open(PATH));
    let tree = ok(db.tree("left"));
    ok(tree.put(b"first", noise(LEN / 4 * 3, 1)));
    ok(tree.put(b"second", noise(LEN, 2)));
    ok(db.flush());
    ok(db.compact());
    let segments = move |disk: &SimDisk| -> Vec<u64> {
        let files = disk.list(Path::new(PATH)).expect("the database is there");
        files.iter().filter(|file| file.name.ends_with(".wal")).map(|file| file.len).collect()
    };
    assert!(segments(&disk).iter().any(|len| *len > LEN as u64), "{:?}", segments(&disk));
    let (other, other_db, other_disk) = (tree.clone(), db.clone(), disk.clone());
    let (sender, seen) = mpsc::channel();
    *hook.0.lock().expect("no panic while locked") = Some(Box::new(move || {
        let mut batch = other_db.batch();
        batch.put(&other, b"meanwhile", noise(LEN / 4 * 5, 3));
        ok(batch.commit_with(Durability::Sync));
        sender.send(segments(&other_disk)).expect("the test waits for it");
    }));
    let seen = seen.recv_timeout(Duration::from_secs(30)).expect("an idle manifest edit");
    assert_eq!(
        seen.iter().filter(|len| **len == LEN as u64).count(),
        1,
        "the log must end in a short segment by then: {seen:?}"
    );
    ok(tree.put(b"last", noise(LEN, 4)));
    ok(db.sync());
    let after = after_crash(&disk);
    drop((tree, db));
    let db = after;
    let tree = ok(db.open_tree("left"));
    for (key, len, tag) in
        [("first", LEN / 4 * 3, 1), ("second", LEN, 2), ("meanwhile", LEN / 4 * 5, 3), ("last", LEN, 4)]
    {
        assert!(ok(tree.get(key)).as_deref() == Some(&*noise(len, tag)), "{key} is lost");
    }
}

/// The story: a commit ahead of a bulk load announces it. A watcher that saw the commit while the
/// manifest was written read the tree too early and missed the load.
#[test]
fn watcher_during_load_is_shown_gap_after_installation() {
    let disk = empty_disk(1);
    let hook = BeforeManifest::default();
    let vfs = Arc::new(Interposed { disk: disk.clone(), hook: hook.clone() });
    let builder = Db::builder()
        .create_parents(true)
        .vfs(vfs)
        .runtime(SimRuntime::in_real_time(1))
        .background_threads(0)
        .memory(16 << 20);
    let db = ok(builder.open(PATH));
    let tree = ok(db.tree("left"));
    ok(tree.put(b"key", b"put"));
    ok(db.flush());
    let before = db.snapshot().sequence();
    let mut watcher = ok(db.watch(WatchOptions::new()));
    let (other_db, (sender, shown)) = (db.clone(), mpsc::channel());
    *hook.0.lock().expect("no panic while locked") = Some(Box::new(move || {
        let reported = ok(watcher.try_next()).map(|set| set.changes);
        sender.send((other_db.snapshot().sequence(), reported, watcher)).expect("the test waits for it");
    }));
    ok(tree.bulk_load([(b"key", b"loaded")]));
    let (meanwhile, reported, mut watcher) = shown.recv().expect("a load writes the manifest");
    assert_eq!(meanwhile, before, "the load is not visible yet");
    assert!(reported.is_none(), "{reported:?}");
    let gap = ok(watcher.try_next()).expect("the gap is shown now");
    assert!(matches!(&gap.changes[..], [Change::Gap(Gap::Range { start, .. })] if start == b"key"), "{gap:?}");
    assert_eq!(ok(tree.get(b"key")).as_deref(), Some(&b"loaded"[..]));
}
