//! Background threads, for one database or for many.
//!
//! Each thread has a role. It serves the databases with work of its role in turn, one job at a
//! time; a merge thread prefers the database with the fewest running merges. So a busy database
//! does not delay the others. A call, a finished job, or a due check queues a database.
//!
//! INVARIANT: no call is lost. A call during a database's turn queues it again.
//!
//! The lock here is a leaf: no database is called, pinned or dropped while it is held.

use crate::platform::Runtime;
use parking_lot::{Condvar, Mutex};
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    fmt, io,
    sync::{Arc, Weak},
    thread::{self, JoinHandle},
    time::Duration,
};

/// Longer pauses end at a multiple of this, so that checks share a wake-up.
const LOOKS_NS: u64 = 100_000_000;

/// Maximum threads that sync logs. Databases with shared threads sync beside each other up to this
/// number.
const SYNCERS_MAX: usize = 4;

/// Maximum sleep while a check is due later.
const SLEEP_NS_MAX: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Flushes. No merge delays them.
    Flusher,
    /// Prepares the log's next segment. No flush delays it.
    Logger,
    Merger,
    /// Closes and removes files, only after `call_cleaner`.
    Cleaner,
    /// Syncs the log for asynchronous commits, only after `call_syncer`, which starts the threads.
    Syncer,
    /// The calling thread, if there are no threads or the caller waits.
    All,
}

const ROLES: [Role; 5] = [Role::Flusher, Role::Logger, Role::Merger, Role::Cleaner, Role::Syncer];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobResult {
    Again,
    /// Check again after this many nanoseconds.
    Rest(u64),
    Done,
    Over,
}

pub trait Worker: Send + Sync {
    /// Does at most one job. Calls `found` first, so that other threads look for more.
    fn run_job(&self, role: Role, found: &dyn Fn()) -> JobResult;
}

/// The drop ends the threads.
pub struct ThreadPool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    runtime: Arc<dyn Runtime>,
    state: Mutex<State>,
    /// Wakes threads of each role: a database is queued.
    wake: [Condvar; ROLES.len()],
    /// Notified after each turn, for [`ThreadPool::leave`].
    left: Condvar,
}

#[derive(Default)]
struct State {
    members: HashMap<u64, Member>,
    ready: [VecDeque<u64>; ROLES.len()],
    due: [BTreeSet<(u64, u64)>; ROLES.len()],
    syncers: usize,
    syncers_busy: usize,
    is_over: bool,
}

struct Member {
    worker: Weak<dyn Worker>,
    places: [Place; ROLES.len()],
    is_leaving: bool,
}

#[derive(Default)]
struct Place {
    is_ready: bool,
    due_ns: Option<u64>,
    running: usize,
    is_called: bool,
    is_over: bool,
}

impl ThreadPool {
    pub fn new(runtime: Arc<dyn Runtime>) -> ThreadPool {
        let shared = Shared { runtime, state: Mutex::default(), wake: Default::default(), left: Condvar::new() };
        ThreadPool { shared: Arc::new(shared), threads: Mutex::default() }
    }

    pub fn start(&self, flushers: usize, mergers: usize) -> io::Result<()> {
        let roles = [(Role::Flusher, flushers), (Role::Logger, 1), (Role::Merger, mergers), (Role::Cleaner, 1)];
        for (role, count) in roles {
            for index in 0..count {
                let shared = Arc::clone(&self.shared);
                let name = format!("braiddb-{}{index}", role.name());
                let thread = self.shared.runtime.spawn(&name, Box::new(move || shared.work(role)))?;
                self.threads.lock().push(thread);
            }
        }
        Ok(())
    }

    pub fn threads(&self) -> usize {
        self.threads.lock().len()
    }

    pub fn join(&self, id: u64, worker: Weak<dyn Worker>) {
        let member = Member { worker, places: Default::default(), is_leaving: false };
        self.shared.state.lock().members.insert(id, member);
        self.call(id);
    }

    /// Queues a database for all roles but the cleaner and the syncer.
    pub fn call(&self, id: u64) {
        let mut state = self.shared.state.lock();
        for role in [Role::Flusher, Role::Logger, Role::Merger] {
            self.shared.call(&mut state, id, role);
        }
    }

    pub fn call_cleaner(&self, id: u64) {
        self.shared.call(&mut self.shared.state.lock(), id, Role::Cleaner);
    }

    /// Queues a database for a sync, and starts a thread if all are busy. Returns false if there is
    /// no thread, or the database has left.
    pub fn call_syncer(&self, id: u64) -> bool {
        let mut state = self.shared.state.lock();
        if state.is_over || state.members.get(&id).is_none_or(|member| member.is_leaving) {
            return false;
        }
        self.shared.call(&mut state, id, Role::Syncer);
        if !state.lacks_syncer() {
            return true;
        }
        drop(state);
        self.start_syncer();
        self.shared.state.lock().syncers > 0
    }

    #[cold]
    fn start_syncer(&self) {
        // One caller at a time. `end` waits here, and then joins the thread.
        let mut threads = self.threads.lock();
        let state = self.shared.state.lock();
        let (index, is_over) = (state.syncers, state.is_over);
        if is_over || !state.lacks_syncer() {
            return;
        }
        drop(state);
        let shared = Arc::clone(&self.shared);
        let name = format!("braiddb-{}{index}", Role::Syncer.name());
        match self.shared.runtime.spawn(&name, Box::new(move || shared.work(Role::Syncer))) {
            Ok(thread) => {
                threads.push(thread);
                self.shared.state.lock().syncers += 1;
            }
            Err(error) => tracing::warn!(%error, "a thread that syncs logs could not be started"),
        }
    }

    /// Waits for running jobs, except that of the syncer if the caller is part of it
    /// (`is_in_sync`).
    pub fn leave(&self, id: u64, is_in_sync: bool) {
        let mut state = self.shared.state.lock();
        for role in ROLES {
            state.remove(id, role);
        }
        while let Some(member) = state.members.get_mut(&id) {
            member.is_leaving = true;
            let running: usize = member.places.iter().map(|place| place.running).sum();
            if running == usize::from(is_in_sync) {
                state.members.remove(&id);
                return;
            }
            self.shared.left.wait(&mut state);
        }
    }

    pub fn end(&self) {
        self.shared.state.lock().is_over = true;
        for wake in &self.shared.wake {
            wake.notify_all();
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        for handle in threads {
            // The caller may be one of these threads.
            if handle.thread().id() != thread::current().id() && handle.join().is_err() {
                tracing::error!("a background thread has panicked");
            }
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Flusher => "flush",
            Role::Logger => "log",
            Role::Merger => "merge",
            Role::Cleaner => "clean",
            Role::Syncer => "sync",
            Role::All => "all",
        }
    }
}

impl Shared {
    fn call(&self, state: &mut State, id: u64, role: Role) {
        if state.call(id, role) {
            self.wake[role as usize].notify_one();
        }
    }

    fn work(&self, role: Role) {
        if matches!(role, Role::Merger | Role::Cleaner) {
            self.runtime.give_way();
        }
        let mut state = self.state.lock();
        while !state.is_over {
            let now_ns = self.runtime.monotonic_ns();
            state.call_due(role, now_ns);
            let Some((id, worker)) = state.take(role) else {
                self.wait(role, &mut state, now_ns);
                continue;
            };
            let is_syncer = usize::from(role == Role::Syncer);
            state.syncers_busy += is_syncer;
            drop(state);
            // Without the lock: dropping the last handle of a database may call this pool.
            let run_job =
                worker.upgrade().map_or(JobResult::Over, |worker| worker.run_job(role, &|| self.offer(role, id)));
            state = self.state.lock();
            state.syncers_busy -= is_syncer;
            state.finish(role, id, run_job, self.runtime.monotonic_ns());
            self.left.notify_all();
        }
    }

    fn wait(&self, role: Role, state: &mut parking_lot::MutexGuard<'_, State>, now_ns: u64) {
        let wake = &self.wake[role as usize];
        match state.due[role as usize].first() {
            None => wake.wait(state),
            Some((due_ns, _)) => {
                let pause_ns = due_ns.saturating_sub(now_ns).min(SLEEP_NS_MAX);
                wake.wait_for(state, Duration::from_nanos(pause_ns));
            }
        }
    }

    /// Lets another merge thread look for a second job.
    fn offer(&self, role: Role, id: u64) {
        if role == Role::Merger && self.state.lock().call(id, role) {
            self.wake[role as usize].notify_one();
        }
    }
}

impl State {
    /// Queues a database, or notes the call during its turn. Returns whether it is newly queued.
    fn call(&mut self, id: u64, role: Role) -> bool {
        let Some(member) = self.members.get_mut(&id).filter(|member| !member.is_leaving) else { return false };
        let place = &mut member.places[role as usize];
        if place.is_over || place.is_ready {
            return false;
        }
        // Only merges run concurrently.
        if place.running > 0 && role != Role::Merger {
            place.is_called = true;
            return false;
        }
        place.is_ready = true;
        if let Some(due_ns) = place.due_ns.take() {
            self.due[role as usize].remove(&(due_ns, id));
        }
        self.ready[role as usize].push_back(id);
        true
    }

    /// Returns true if a database would wait for a sync of another one.
    fn lacks_syncer(&self) -> bool {
        self.ready[Role::Syncer as usize].len() + self.syncers_busy > self.syncers && self.syncers < SYNCERS_MAX
    }

    fn call_due(&mut self, role: Role, now_ns: u64) {
        while let Some(&(due_ns, id)) = self.due[role as usize].first() {
            if due_ns > now_ns {
                break;
            }
            if !self.call(id, role) {
                self.due[role as usize].remove(&(due_ns, id));
            }
        }
    }

    fn take(&mut self, role: Role) -> Option<(u64, Weak<dyn Worker>)> {
        let members = &self.members;
        let running = |id: &u64| members.get(id).map_or(0, |member| member.places[role as usize].running);
        let line = &mut self.ready[role as usize];
        let first = line.iter().position(|id| running(id) == 0);
        let next =
            first.or_else(|| line.iter().enumerate().min_by_key(|(_, id)| running(id)).map(|(index, _)| index))?;
        let id = line.remove(next)?;
        let member = self.members.get_mut(&id)?;
        let place = &mut member.places[role as usize];
        place.is_ready = false;
        place.running += 1;
        Some((id, Weak::clone(&member.worker)))
    }

    fn finish(&mut self, role: Role, id: u64, run_job: JobResult, now_ns: u64) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let is_leaving = member.is_leaving;
        let place = &mut member.places[role as usize];
        place.running -= 1;
        let is_called = std::mem::take(&mut place.is_called);
        place.is_over |= run_job == JobResult::Over;
        match run_job {
            _ if is_leaving || place.is_over || place.is_ready => {}
            JobResult::Rest(pause_ns) if !is_called => {
                let due_ns = due_at(now_ns, pause_ns);
                if place.due_ns.is_none_or(|before| due_ns < before) {
                    let before = place.due_ns.replace(due_ns);
                    let due = &mut self.due[role as usize];
                    before.map(|before| due.remove(&(before, id)));
                    due.insert((due_ns, id));
                }
            }
            JobResult::Done if !is_called => {}
            _ => {
                self.call(id, role);
            }
        }
    }

    fn remove(&mut self, id: u64, role: Role) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let place = &mut member.places[role as usize];
        if std::mem::take(&mut place.is_ready) {
            self.ready[role as usize].retain(|other| *other != id);
        }
        if let Some(due_ns) = place.due_ns.take() {
            self.due[role as usize].remove(&(due_ns, id));
        }
    }
}

fn due_at(now_ns: u64, pause_ns: u64) -> u64 {
    let due_ns = now_ns.saturating_add(pause_ns);
    if pause_ns <= LOOKS_NS { due_ns } else { due_ns.checked_next_multiple_of(LOOKS_NS).unwrap_or(due_ns) }
}

#[cfg(test)]
mod tests;

pub const RETRY_NS_MIN: u64 = 50_000_000;
