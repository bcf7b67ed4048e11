//! A file system whose log syncs wait or fail on demand, and a waker that counts.

#![expect(clippy::disallowed_methods, reason = "tests of threads")]

use braiddb::{
    Builder, Commit, Db, Result, SequenceNumber,
    platform::{File, FileLayer, MemVfs, OpenMode, Vfs, VfsLayer},
};
use std::{
    future::Future,
    io,
    path::Path,
    pin::Pin,
    sync::{Arc, Condvar, Mutex},
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

pub const DIR: &str = "/db";

/// Longer than any test takes. A test that hangs panics after it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Held syncs fail after this time, so that a test that panics meanwhile can close its database.
const HELD_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
struct Gate {
    is_held: bool,
    is_failing: bool,
    /// Syncs of the log that began.
    begun: usize,
}

/// The file system. Clones share their state.
#[derive(Clone, Debug)]
pub struct HeldSyncs {
    inner: Arc<MemVfs>,
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

#[derive(Debug)]
struct HeldFile {
    inner: Arc<dyn File>,
    vfs: HeldSyncs,
}

impl HeldSyncs {
    pub fn new() -> HeldSyncs {
        HeldSyncs { inner: Arc::new(MemVfs::new()), gate: Arc::default() }
    }

    pub fn builder(&self, background_threads: usize) -> Builder {
        let vfs: Arc<dyn Vfs> = Arc::new(self.clone());
        Db::builder().create_parents(true).memory(8 << 20).vfs(vfs).background_threads(background_threads)
    }

    pub fn open(&self, background_threads: usize) -> Db {
        self.builder(background_threads).open(DIR).unwrap()
    }

    /// Log syncs wait from now on.
    pub fn hold(&self) {
        self.change(|gate| gate.is_held = true);
    }

    pub fn release(&self) {
        self.change(|gate| gate.is_held = false);
    }

    /// Log syncs fail from now on.
    pub fn fail(&self) {
        self.change(|gate| gate.is_failing = true);
    }

    /// Waits until `count` log syncs began since the creation.
    pub fn await_syncs(&self, count: usize) {
        let (gate, changed) = &*self.gate;
        let is_early = |gate: &mut Gate| gate.begun < count;
        let (gate, _) = changed.wait_timeout_while(gate.lock().unwrap(), PATIENCE, is_early).unwrap();
        assert!(gate.begun >= count, "{} of {count} syncs began", gate.begun);
    }

    pub fn syncs(&self) -> usize {
        self.gate.0.lock().unwrap().begun
    }

    fn change(&self, change: impl FnOnce(&mut Gate)) {
        change(&mut self.gate.0.lock().unwrap());
        self.gate.1.notify_all();
    }

    fn pass(&self) -> io::Result<()> {
        self.change(|gate| gate.begun += 1);
        let (gate, changed) = &*self.gate;
        let (gate, _) = changed.wait_timeout_while(gate.lock().unwrap(), HELD_MAX, |gate| gate.is_held).unwrap();
        let has_failed = gate.is_failing || gate.is_held;
        if has_failed { Err(io::Error::other("planned fault of the test")) } else { Ok(()) }
    }
}

impl VfsLayer for HeldSyncs {
    fn inner(&self) -> &dyn Vfs {
        &*self.inner
    }
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let inner = self.inner.open(path, mode)?;
        if path.extension().is_none_or(|extension| extension != "wal") {
            return Ok(inner);
        }
        Ok(Arc::new(HeldFile { inner, vfs: self.clone() }))
    }
}

impl FileLayer for HeldFile {
    fn inner(&self) -> &dyn File {
        &*self.inner
    }
    fn sync_data(&self) -> io::Result<()> {
        self.vfs.pass()?;
        self.inner.sync_data()
    }
}

/// Counts its calls.
#[derive(Debug, Default)]
pub struct CountingWaker {
    calls: Mutex<usize>,
    called: Condvar,
}

impl CountingWaker {
    pub fn calls(&self) -> usize {
        *self.calls.lock().unwrap()
    }

    /// Waits until the waker was called `count` times.
    pub fn await_calls(&self, count: usize) {
        let calls = self.calls.lock().unwrap();
        let (calls, _) = self.called.wait_timeout_while(calls, PATIENCE, |calls| *calls < count).unwrap();
        assert!(*calls >= count, "{} of {count} calls of the waker", *calls);
    }

    /// Waits until nothing else keeps the waker. The thread that called it still does for a moment.
    pub fn await_release(self: &Arc<Self>) {
        let mut calls = self.calls.lock().unwrap();
        for _ in 0..10_000 {
            if Arc::strong_count(self) == 1 {
                return;
            }
            calls = self.called.wait_timeout(calls, Duration::from_millis(1)).unwrap().0;
        }
        panic!("something keeps the waker");
    }
}

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        *self.calls.lock().unwrap() += 1;
        self.called.notify_all();
    }
}

/// Polls once, with a waker of its own kind.
pub fn poll<W: Wake + Send + Sync + 'static>(commit: &mut Commit, waker: &Arc<W>) -> Poll<Result<SequenceNumber>> {
    let waker = Waker::from(Arc::clone(waker));
    Pin::new(commit).poll(&mut Context::from_waker(&waker))
}

/// Panics instead of hanging if `body` does not end.
pub fn bounded<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || sender.send(body()));
    receiver.recv_timeout(PATIENCE).expect("hangs or has panicked")
}
