//! Shared syncs: many waiters, one disk flush.

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

/// The first failure after which nothing may be written any more.
#[derive(Debug, Default)]
pub struct Latch {
    reason: OnceLock<String>,
}

impl Latch {
    pub fn set(&self, reason: impl Into<String>) {
        let reason = reason.into();
        tracing::error!(reason, "the log takes no more writes");
        let _ = self.reason.set(reason);
    }

    pub fn check(&self) -> Result<()> {
        match self.reason.get() {
            Some(reason) => Err(Error::ReadOnly { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    pub fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    fn unknown(&self) -> Error {
        Error::CommitUnknown { reason: self.reason.get().cloned().unwrap_or_default() }
    }
}

/// Makes concurrent calls of `sync` share one flush, without a thread of its own.
///
/// **Roles.** A caller whose LSN is durable returns after one atomic load. Otherwise the first
/// caller leads: it runs the flush without the lock. Later callers each queue a waiter and park.
/// After the flush, the leader takes out the waiters that it covers and hands the lead to another
/// one. Only then, with the lock released, it writes each waiter's state word and unparks it.
///
/// **No convoy.** A woken waiter reads its own word and returns, without the lock or other shared
/// data. The lock guards only the queue, for a few instructions.
///
/// **Waiting for company.** Threads that commit in a loop would split into two halves, each flush
/// serving one of them. So a leader yields while fewer threads wait than took part in the last
/// round, and yields less after each round in vain.
///
/// **Order.** The leader stores `durable` (release) before it wakes a waiter. A failed flush
/// latches before any waiter is woken; from then on every caller whose LSN is not durable gets an
/// error, and no flush is retried.
#[derive(Debug)]
pub struct SyncStage {
    durable: AtomicU64,
    syncs: AtomicU64,
    queue: Mutex<Queue>,
    /// Threads that the last flush served or left waiting.
    company: AtomicUsize,
    /// Rounds in a row in which the leader yielded in vain.
    disappointments: AtomicU32,
}

/// Maximum yields of a leader before a flush.
const YIELDS_MAX: u32 = 100;

#[derive(Debug, Default)]
struct Queue {
    /// A thread runs a flush or was woken to do so.
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
    pub fn new(durable: Lsn) -> SyncStage {
        SyncStage {
            durable: AtomicU64::new(durable),
            syncs: AtomicU64::new(0),
            queue: Mutex::default(),
            company: AtomicUsize::new(0),
            disappointments: AtomicU32::new(0),
        }
    }

    pub fn durable_lsn(&self) -> Lsn {
        self.durable.load(Ordering::Acquire)
    }

    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Waits until everything below `up_to`, which has been appended, is synced. `flush` makes
    /// everything appended before its call durable and returns its end.
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
            // `park` may return spuriously, or for an old token of this thread.
            thread::park();
        }
    }

    fn wake(&self, state: u8) {
        // Clone the handle: the thread may drop its waiter once the state is stored.
        let thread = self.thread.clone();
        self.state.store(state, Ordering::Release);
        thread.unpark();
    }
}

/// Passes on the lead on every exit from a flush, even a panic: no waiter may stay parked.
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
        // Start the next flush before waking this one's waiters.
        if let Some(next) = next {
            next.wake(LEAD);
        }
        for waiter in done {
            waiter.wake(if waiter.up_to <= durable { DURABLE } else { FAILED });
        }
    }
}
