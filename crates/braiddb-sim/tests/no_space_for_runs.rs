//! The disk has no space for runs, but the log has: writers get errors, none waits forever, and
//! writes resume with space.

#![expect(clippy::disallowed_methods, reason = "real threads and real time")]

use braiddb::{
    Db, Durability,
    options::Tuning,
    platform::{File, MemVfs, OpenMode, Vfs},
};
use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

#[derive(Debug)]
struct FullForRuns {
    inner: MemVfs,
    is_full: AtomicBool,
}

impl braiddb::platform::VfsLayer for FullForRuns {
    fn inner(&self) -> &dyn Vfs {
        &self.inner
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let is_new_run = mode == OpenMode::CreateNew && path.extension().is_some_and(|e| e == "run");
        if is_new_run && self.is_full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.inner.open(path, mode)
    }
}

#[test]
fn writers_without_space_for_runs_are_refused_and_resume() {
    let vfs = Arc::new(FullForRuns { inner: MemVfs::new(), is_full: AtomicBool::new(false) });
    let builder = Db::builder()
        .create_parents(true)
        .vfs(vfs.clone())
        .memory(4 << 20)
        .tuning(Tuning::new().memtable_bytes(256 << 10).log_segment_bytes(64 << 10));
    let db = builder.open("/db").unwrap();
    let (written, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let is_stopped = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..2)
        .map(|_| {
            let (db, written, refused) = (db.clone(), Arc::clone(&written), Arc::clone(&refused));
            let is_stopped = Arc::clone(&is_stopped);
            thread::spawn(move || {
                let tree = db.tree("t").unwrap();
                for n in 0u64.. {
                    if is_stopped.load(Ordering::Relaxed) {
                        return;
                    }
                    let mut batch = db.batch();
                    batch.put(&tree, (n % 20_000).to_be_bytes(), [n as u8; 200]);
                    match batch.commit_with(Durability::Buffered) {
                        Ok(_) => written.fetch_add(1, Ordering::Relaxed),
                        Err(e) => {
                            assert!(e.is_disk_full(), "{e}");
                            refused.fetch_add(1, Ordering::Relaxed)
                        }
                    };
                }
            })
        })
        .collect();
    // Longer than the idle timeout: refused commits are no activity.
    for full_ms in [1700, 2300, 1900] {
        vfs.is_full.store(true, Ordering::Relaxed);
        let before = (refused.load(Ordering::Relaxed), db.stats().background_errors);
        thread::sleep(Duration::from_millis(full_ms));
        let mut waited_ms = full_ms;
        while refused.load(Ordering::Relaxed) == before.0 {
            assert!(waited_ms < 20_000, "no writer was refused: {:?}", db.stats());
            thread::sleep(Duration::from_millis(5));
            waited_ms += 5;
        }
        let tries = db.stats().background_errors - before.1;
        assert!(tries < waited_ms / 10, "{tries} flushes were tried in {waited_ms} ms");
        vfs.is_full.store(false, Ordering::Relaxed);
        let (sofar, mut waited_ms) = (written.load(Ordering::Relaxed), 0);
        while written.load(Ordering::Relaxed) == sofar {
            assert!(waited_ms < 20_000, "writes do not resume: {:?}", db.stats());
            thread::sleep(Duration::from_millis(5));
            waited_ms += 5;
        }
    }
    is_stopped.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    vfs.is_full.store(true, Ordering::Relaxed);
    let (done, closed) = mpsc::channel();
    thread::spawn(move || done.send(db.close().is_ok()));
    assert!(closed.recv_timeout(Duration::from_secs(20)).is_ok(), "close does not return");
}
