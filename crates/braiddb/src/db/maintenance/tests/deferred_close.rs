//! Which thread removes files: with background threads the cleaner, otherwise the one that drops
//! the last reference.

use crate::{
    db::{
        Db, Settings,
        tests_common::{DIR, bounded, fault, mem, open, small},
    },
    platform::{
        OpenMode, Vfs, VfsLayer,
        fault_vfs::{FaultVfs, Operation},
    },
};
use parking_lot::Mutex;
use std::{io, path::Path, sync::Arc, thread};

#[derive(Debug)]
struct Noting {
    inner: Arc<dyn Vfs>,
    removers: Mutex<Vec<String>>,
}

impl VfsLayer for Noting {
    fn inner(&self) -> &dyn Vfs {
        &*self.inner
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if path.extension().is_some_and(|e| e == "run" || e == "view" || e == "blob") {
            self.removers.lock().push(thread::current().name().unwrap_or("nobody").to_owned());
        }
        self.inner.remove(path)
    }
}

/// Returns the threads that removed files: while a cursor pins the inputs of a compaction, and
/// after it is dropped in another thread.
fn removers(background_threads: usize) -> (Vec<String>, Vec<String>) {
    let vfs = Arc::new(Noting { inner: mem(), removers: Mutex::default() });
    let on = Arc::clone(&vfs) as Arc<dyn Vfs>;
    let db = open(Settings { background_threads, ..small(&on) }).unwrap();
    let tree = db.tree("t").unwrap();
    let fill = |with: u8| {
        for i in 0..2000u32 {
            tree.put(i.to_be_bytes(), vec![with; if i.is_multiple_of(50) { 300 } else { 30 }]).unwrap();
        }
        db.compact().unwrap();
    };
    fill(1);
    let mut cursor = tree.cursor();
    assert!(cursor.seek_first().unwrap());
    vfs.removers.lock().clear();
    fill(2);
    let before = std::mem::take(&mut *vfs.removers.lock());
    let reader = thread::Builder::new().name("reader".to_owned());
    reader.spawn(move || drop(cursor)).unwrap().join().unwrap();
    db.compact().unwrap();
    let after = std::mem::take(&mut *vfs.removers.lock());
    (before, after)
}

#[test]
fn no_reader_removes_a_file_where_there_is_a_thread_for_it() {
    let (_, after) = removers(0);
    assert!(after.iter().any(|name| name == "reader"), "{after:?}");
    bounded("removing", || {
        let (before, after) = removers(2);
        assert!(!after.is_empty(), "the cursor held some");
        for name in before.iter().chain(&after) {
            // The compacting thread may remove files itself, since it waits until all are gone.
            assert_ne!(name, "reader");
            assert!(!name.starts_with("braiddb-merge") && !name.starts_with("braiddb-flush"), "{name}");
        }
    });
}

/// Deferred removals free space before a job fails with a full disk.
#[test]
fn where_space_is_short_what_waits_goes_first() {
    for waits in [false, true] {
        let vfs = FaultVfs::new(Path::new(DIR));
        let db = open(Settings { background_threads: 0, ..small(&fault(&vfs)) }).unwrap();
        let tree = db.tree("t").unwrap();
        let deferred_close = Arc::clone(&db.engine().storage.table.deferred_close);
        deferred_close.defer(Arc::new(|| {}));
        for round in 0..3u32 {
            for i in 0..100u32 {
                tree.put(i.to_be_bytes(), round.to_be_bytes()).unwrap();
            }
            db.flush().unwrap();
        }
        db.compact().unwrap();
        tree.put("more", "v").unwrap();
        if waits {
            deferred_close.drop_later(());
        }
        for job in [Db::flush, Db::compact] {
            // With nothing deferred, spare log segments are freed instead, and the job is retried.
            let times = if waits { 1 } else { u32::MAX };
            vfs.fail(Operation::Create, 0, times, io::ErrorKind::StorageFull);
            let done = job(&db);
            assert_eq!(done.is_ok(), waits, "{done:?}");
            assert!(!waits || vfs.failures_to_come() == 0);
            vfs.heal();
            assert!(waits || done.err().unwrap().is_disk_full());
            if waits {
                deferred_close.drop_later(());
            } else {
                job(&db).unwrap();
            }
        }
        assert_eq!(tree.get("more").unwrap().unwrap().as_ref(), b"v");
    }
}

/// After a close, the directory may be removed or opened elsewhere: no file may be touched.
#[test]
fn what_waits_is_gone_when_a_database_is_closed() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let on = fault(&vfs);
    let db = open(Settings { background_threads: 0, ..small(&on) }).unwrap();
    db.tree("t").unwrap().put("k", "v").unwrap();
    let deferred_close = Arc::clone(&db.engine().storage.table.deferred_close);
    deferred_close.defer(Arc::new(|| {}));
    let old = Path::new(DIR).join("000999.run");
    let handle = on.open(&old, OpenMode::CreateNew).unwrap();
    deferred_close.remove(&on, &old, handle);
    db.flush().unwrap();
    assert!(vfs.files().contains_key(&old));
    db.close().unwrap();
    assert!(!vfs.files().contains_key(&old));
}
