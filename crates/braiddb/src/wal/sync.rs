//! Shared syncs: many waiters, one flush of the disk.

use super::format::Lsn;
use crate::base::{Error, Result};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, Thread},
};

/// The first failure after which nothing may be written any more. Set once, never cleared.
#[derive(Debug, Default)]
pub struct Latch {
    reason: OnceLock<String>,
}

impl Latch {
    /// Latches, unless an earlier failure did.
    pub fn set(&self, reason: impl Into<String>) {
        let reason = reason.into();
        tracing::error!(reason, "the log takes no more writes");
        let _ = self.reason.set(reason);
    }

    /// [`Error::ReadOnly`] if latched.
    pub fn check(&self) -> Result<()> {
        match self.reason.get() {
            Some(reason) => Err(Error::ReadOnly { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Why it is latched.
    pub fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    fn unknown(&self) -> Error {
        Error::CommitUnknown { reason: self.reason.get().cloned().unwrap_or_default() }
    }
}

/// Makes many calls of `sync` share one flush, without a thread of its own.
///
/// **Who does what.** A caller whose LSN is durable returns after one atomic load. Otherwise the first caller leads: it
/// runs the flush on its own thread, without holding the lock. Callers that come meanwhile each leave a waiter in the
/// queue and park. When the flush ends, the leader takes out those it covers, hands the lead to one of the rest (whose
/// records came too late for this flush), and only then, with the lock released, writes each waiter's own state word
/// and unparks it.
///
/// **No convoy.** A woken waiter reads its own word and returns: it touches neither the lock nor anything that others
/// wait for, and it is woken exactly once. The next leader starts its flush at once, beside the threads that return.
/// The lock guards only the queue and is held for a few instructions.
///
/// **Company.** Threads that commit again as soon as they can would fall into two halves that take turns, each flush
/// serving one of them. So a leader first lets others run, while fewer wait than were here lately; the more often that
/// was in vain, the shorter.
///
/// **Order.** The leader publishes `durable` with release before it wakes anybody; a woken waiter has the result in
/// its word. A failed flush latches before anybody is woken; from then on every waiter and every later caller whose
/// LSN is not durable gets an error, and no flush is tried again.
#[derive(Debug)]
pub struct SyncStage {
    durable: AtomicU64,
    syncs: AtomicU64,
    queue: Mutex<Queue>,
    /// How many threads waited for a flush, or were served by it, when the last one ended.
    company: AtomicUsize,
    /// How often in a row a leader has let others run in vain.
    disappointments: AtomicU32,
}

/// A leader lets others run so many times at most.
const YIELDS_MAX: u32 = 100;

#[derive(Debug, Default)]
struct Queue {
    /// Whether some thread runs a flush or has been told to.
    led: bool,
    waiters: Vec<Arc<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    up_to: Lsn,
    state: AtomicU8,
    thread: Thread,
}

const WAITING: u8 = 0;
const DURABLE: u8 = 1;
const FAILED: u8 = 2;
const LEAD: u8 = 3;

impl SyncStage {
    /// A stage that knows everything below `durable` to be synced.
    pub fn new(durable: Lsn) -> SyncStage {
        SyncStage {
            durable: AtomicU64::new(durable),
            syncs: AtomicU64::new(0),
            queue: Mutex::default(),
            company: AtomicUsize::new(0),
            disappointments: AtomicU32::new(0),
        }
    }

    /// How far the log is known to be synced.
    pub fn durable_lsn(&self) -> Lsn {
        self.durable.load(Ordering::Acquire)
    }

    /// How many flushes have succeeded.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Returns when everything below `up_to` is synced. `flush` makes all that was appended before its call durable,
    /// and returns the LSN up to which that is; everything below `up_to` has been appended.
    pub fn wait(&self, up_to: Lsn, latch: &Latch, flush: impl Fn() -> Result<Lsn>) -> Result<Lsn> {
        if self.durable_lsn() >= up_to {
            return Ok(self.durable_lsn());
        }
        let waiter = {
            let mut queue = self.queue.lock();
            if self.durable_lsn() >= up_to {
                return Ok(self.durable_lsn());
            }
            if latch.reason().is_some() {
                return Err(latch.unknown());
            }
            if queue.led {
                let waiter = Arc::new(Waiter { up_to, state: AtomicU8::new(WAITING), thread: thread::current() });
                queue.waiters.push(waiter.clone());
                Some(waiter)
            } else {
                queue.led = true;
                None
            }
        };
        match waiter.map_or(LEAD, |waiter| waiter.wait()) {
            LEAD => self.lead(up_to, latch, flush),
            DURABLE => Ok(self.durable_lsn()),
            _ => Err(latch.unknown()),
        }
    }

    fn lead(&self, up_to: Lsn, latch: &Latch, flush: impl Fn() -> Result<Lsn>) -> Result<Lsn> {
        let handover = Handover { stage: self, latch };
        if latch.reason().is_some() {
            return Err(latch.unknown());
        }
        self.await_company();
        match flush() {
            Ok(end) => {
                assert!(end >= up_to, "a flush reaches all that was appended before it");
                self.durable.fetch_max(end, Ordering::AcqRel);
                self.syncs.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                latch.set(format!("the log could not be synced: {error}"));
                return Err(latch.unknown());
            }
        }
        drop(handover);
        Ok(self.durable_lsn())
    }
}

impl SyncStage {
    /// Lets others run while fewer wait than may be expected.
    fn await_company(&self) {
        let expected = self.company.load(Ordering::Relaxed);
        if expected <= 1 {
            return;
        }
        let disappointments = self.disappointments.load(Ordering::Relaxed);
        for _ in 0..YIELDS_MAX >> disappointments.min(YIELDS_MAX.ilog2()) {
            if self.queue.lock().waiters.len() + 1 >= expected {
                self.disappointments.store(0, Ordering::Relaxed);
                return;
            }
            thread::yield_now();
        }
        self.disappointments.store(disappointments.saturating_add(1), Ordering::Relaxed);
    }
}

impl Waiter {
    fn wait(&self) -> u8 {
        loop {
            let state = self.state.load(Ordering::Acquire);
            if state != WAITING {
                return state;
            }
            // Parking may end without reason, or on a token that some other use of this thread left.
            thread::park();
        }
    }

    fn wake(&self, state: u8) {
        // The clone outlives the waiter, which its thread may drop as soon as the state is stored.
        let thread = self.thread.clone();
        self.state.store(state, Ordering::Release);
        thread.unpark();
    }
}

/// Gives up the lead on every way out of a flush, a panic included: nobody may be left parked.
struct Handover<'a> {
    stage: &'a SyncStage,
    latch: &'a Latch,
}

impl Drop for Handover<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.latch.set("the thread that synced the log panicked");
        }
        let failed = self.latch.reason().is_some();
        let durable = self.stage.durable_lsn();
        let (done, next) = {
            let mut queue = self.stage.queue.lock();
            let (done, mut late): (Vec<_>, Vec<_>) =
                queue.waiters.drain(..).partition(|waiter| failed || waiter.up_to <= durable);
            self.stage.company.store(done.len() + late.len() + 1, Ordering::Relaxed);
            let next = late.pop();
            queue.led = next.is_some();
            queue.waiters = late;
            (done, next)
        };
        // The next flush should begin before anybody else is woken.
        if let Some(next) = next {
            next.wake(LEAD);
        }
        for waiter in done {
            waiter.wake(if waiter.up_to <= durable { DURABLE } else { FAILED });
        }
    }
}
