//! The thread of the role while it is slow, and after a panic.

use super::{on_disk, open};
use crate::{
    base::{Error, Result},
    db::{Settings, tests_common::SECOND_NS},
    platform::{Runtime, SystemRuntime},
    shared::{SharedDb, SharedOptions, core::Core, election},
};
use parking_lot::Mutex;
use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::channel,
    },
    thread::{self, JoinHandle, ThreadId},
    time::{Duration, Instant},
};

/// A runtime whose calls of the thread of the role can be slow, or panic.
#[derive(Debug, Default)]
struct Troubled {
    system: SystemRuntime,
    role: Mutex<Option<ThreadId>>,
    /// Delay of each call for the wall-clock time.
    delay: Duration,
    /// Panic at the next call for the wall-clock time, or for the monotonic one.
    wall_panics: AtomicBool,
    clock_panics: AtomicBool,
}

impl Troubled {
    /// Returns whether the caller is the thread of the role, the first one that is started.
    fn is_role(&self) -> bool {
        *self.role.lock() == Some(thread::current().id())
    }

    fn settings(self: &Arc<Troubled>) -> Settings {
        Settings { runtime: Arc::<Troubled>::clone(self), ..on_disk() }
    }
}

impl Runtime for Troubled {
    fn unix_time_us(&self) -> u64 {
        if self.is_role() {
            thread::sleep(self.delay);
            assert!(!self.wall_panics.swap(false, Ordering::Relaxed), "planted");
        }
        self.system.unix_time_us()
    }
    fn monotonic_ns(&self) -> u64 {
        assert!(!(self.is_role() && self.clock_panics.swap(false, Ordering::Relaxed)), "planted");
        self.system.monotonic_ns()
    }
    fn random_u64(&self) -> u64 {
        self.system.random_u64()
    }
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        // Held until the thread is known, which it needs for its first call.
        let mut role = self.role.lock();
        let thread = self.system.spawn(name, body)?;
        role.get_or_insert(thread.thread().id());
        Ok(thread)
    }
    fn sleep_us(&self, micros: u64) {
        self.system.sleep_us(micros);
    }
    fn process_name(&self) -> String {
        self.system.process_name()
    }
}

const LONG: Duration = Duration::from_secs(60);

fn open_troubled(runtime: &Arc<Troubled>, timeout: Duration, dir: &Path) -> Result<SharedDb> {
    SharedDb::open(runtime.settings(), SharedOptions::default().with_timeout(timeout), dir)
}

/// An open waits for its own recovery beyond its timeout, and ended with `NoOwner` in the moment
/// between the recovery and the role.
#[test]
fn open_waits_from_its_recovery_to_its_role() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = Arc::new(Troubled { delay: Duration::from_millis(150), ..Troubled::default() });
    let db = open_troubled(&runtime, Duration::from_millis(400), dir.path()).unwrap();
    assert!(db.is_owner());
    // The mark ends with the election, not with the owner.
    let began = Instant::now();
    while db.core().is_opening.load(Ordering::Acquire) {
        assert!(began.elapsed() < Duration::from_secs(10), "the owner still counts as opening");
        thread::sleep(Duration::from_millis(1));
    }
    db.close().unwrap();
}

/// The open waited for ever: the thread was gone, and still counted as opening.
#[test]
fn panic_before_the_role_fails_the_open() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let runtime = Arc::new(Troubled { wall_panics: AtomicBool::new(true), ..Troubled::default() });
    let (sender, opened) = channel();
    let path = dir.path().to_owned();
    thread::spawn(move || sender.send(open_troubled(&runtime, LONG, &path).map(drop)));
    let failed = opened.recv_timeout(LONG / 2).expect("the open waits").unwrap_err();
    assert!(matches!(failed, Error::ReadOnly { .. }), "{failed}");
    assert!(failed.to_string().contains("panicked"), "{failed}");
    assert!(open(dir.path()).is_owner(), "nothing holds the lock");
}

/// The guard alone, without the end of the role.
#[test]
fn panic_in_owner_ends_the_opening() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = Arc::new(Troubled { wall_panics: AtomicBool::new(true), ..Troubled::default() });
    let core = Arc::new(Core::new(runtime.settings(), dir.path().to_owned(), SECOND_NS / 20));
    let of_thread = Arc::clone(&core);
    let body = Box::new(move || election::open_and_own(&of_thread).unwrap());
    let thread = core.runtime().spawn("braiddb-share", body).unwrap();
    assert!(thread.join().is_err());
    assert!(!core.is_opening.load(Ordering::Acquire));
}

/// The process stayed the owner without a listener: its lock and its connections kept the members
/// from a takeover.
#[test]
fn panic_of_owner_leaves_the_database_to_a_member() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = Arc::new(Troubled::default());
    let owner = open_troubled(&runtime, LONG, dir.path()).unwrap();
    let member = open(dir.path());
    let (of_owner, of_member) = (owner.tree("t").unwrap(), member.tree("t").unwrap());
    of_owner.put("k", "1").unwrap();
    of_member.put("k", "2").unwrap();
    runtime.clock_panics.store(true, Ordering::Relaxed);
    let began = Instant::now();
    while owner.is_owner() {
        assert!(began.elapsed() < Duration::from_secs(10), "the thread of the role calls no clock");
        thread::sleep(Duration::from_millis(1));
    }
    let failed = of_owner.put("k", "3").unwrap_err();
    assert!(matches!(failed, Error::ReadOnly { .. }), "{failed}");
    of_member.put("k", "4").unwrap();
    assert!(member.is_owner());
    assert_eq!(of_member.get("k").unwrap().unwrap(), "4");
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
}
