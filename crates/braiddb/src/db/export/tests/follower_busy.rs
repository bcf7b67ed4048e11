//! Followers of a database that changes faster than they read.

use crate::{
    base::{Error, Result},
    db::{
        Db, Follower, Settings,
        tests_common::{Clock, DIR, SECOND_NS, fault, open, small},
    },
    platform::{OpenMode, Runtime, Vfs, fault_vfs::FaultVfs},
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};

/// A clock on which each pause takes a second, in which a writer flushes and its runs disappear.
#[derive(Debug)]
struct Busy {
    clock: Arc<Clock>,
    vfs: FaultVfs,
    writer: Mutex<Option<Db>>,
    removed: Mutex<BTreeMap<PathBuf, Vec<u8>>>,
}

impl Busy {
    fn remove_runs(&self) {
        let is_run = |path: &Path| path.extension().is_some_and(|e| e == "run");
        for (path, bytes) in self.vfs.files().into_iter().filter(|(path, _)| is_run(path)) {
            self.vfs.remove(&path).unwrap();
            self.removed.lock().insert(path, bytes);
        }
    }

    fn put_runs_back(&self) {
        for (path, bytes) in std::mem::take(&mut *self.removed.lock()) {
            self.vfs.open(&path, OpenMode::CreateNew).unwrap().write_at(&bytes, 0).unwrap();
        }
    }
}

impl Runtime for Busy {
    fn unix_time_us(&self) -> u64 {
        self.clock.unix_time_us()
    }
    fn monotonic_ns(&self) -> u64 {
        self.clock.monotonic_ns()
    }
    fn random_u64(&self) -> u64 {
        self.clock.random_u64()
    }
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        self.clock.spawn(name, body)
    }
    fn sleep_us(&self, _micros: u64) {
        self.clock.advance(SECOND_NS);
        if let Some(writer) = &*self.writer.lock() {
            writer.tree("t").unwrap().put("k", "v").unwrap();
            writer.flush().unwrap();
            self.remove_runs();
        }
    }
    fn process_name(&self) -> String {
        self.clock.process_name()
    }
}

fn check_too_busy(error: &Error) {
    assert!(matches!(error, Error::TooBusy { .. }), "{error}");
    assert!(error.is_retryable() && !error.is_corruption());
    let text = error.to_string();
    assert!(text.contains("is too busy") && text.contains("try again") && !text.contains("verify"), "{text}");
}

/// After 20 seconds beside a fast writer, a follower used to report damage and advise to restore a
/// backup.
#[test]
fn refresh_beside_writer_that_is_always_ahead_reports_busy_database() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let owner = open(small(&fault(&vfs))).unwrap();
    owner.tree("t").unwrap().put("a", "1").unwrap();
    let runtime =
        Arc::new(Busy { clock: Clock::new(), vfs: vfs.clone(), writer: Mutex::new(None), removed: Mutex::default() });
    let follow = || -> Result<Follower> {
        let runtime: Arc<dyn Runtime> = runtime.clone();
        Follower::open_with(Settings { runtime, ..small(&fault(&vfs)) }, Path::new(DIR), None)
    };
    let follower = follow().unwrap();
    let before = follower.db();

    // Each manifest names a run that is gone when it is read.
    owner.flush().unwrap();
    runtime.remove_runs();
    *runtime.writer.lock() = Some(owner.clone());
    check_too_busy(&follower.refresh().unwrap_err());
    check_too_busy(&follow().unwrap_err());
    assert_eq!(before.open_tree("t").unwrap().get("a").unwrap().as_deref(), Some(&b"1"[..]));

    // An unchanged manifest with a missing file is damage.
    *runtime.writer.lock() = None;
    assert!(follower.refresh().unwrap_err().is_corruption());
    assert!(follow().unwrap_err().is_corruption());

    runtime.put_runs_back();
    follower.refresh().unwrap();
    let db = follower.db();
    assert_eq!(db.open_tree("t").unwrap().get("k").unwrap().as_deref(), Some(&b"v"[..]));
    follow().unwrap();
}
