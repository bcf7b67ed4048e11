//! The engine: an open database, shared by all its handles, in parts with their own locks.
//!
//! # Concurrency
//!
//! - *Readers* take no lock. They load [`StateCell::state`] and then the visible sequence number
//!   (INVARIANT R1, `read/state.rs`).
//! - *Writers* queue in [`CommitPipeline::queue`]. The leader of a group holds `write`; it alone
//!   numbers, logs, inserts, publishes, and freezes the active memtable.
//! - *Jobs* (flush, fold, merge) work without a lock. They hold [`Storage::disk`] to install a
//!   result: one edit at a time.
//! - [`StateCell::change`] is held while a new read state is made, by leaders and jobs.
//! - *Callers that change files* hold [`Health::gate`] shared; the close takes it exclusively
//!   (INVARIANT E1).
//! - *Transactions* are validated by the leader against [`CommitPipeline::window`]. An exclusive
//!   one makes all other commits wait (INVARIANT X1, `write/conflict_window.rs`).
//! - *Panics* poison the database and harm nothing else. Commits, edits and jobs run in
//!   [`Engine::catch_panic`], the first two under `write` or `disk`: the next holder finds the
//!   database poisoned and leaves half-done changes alone. Readers load only states published
//!   whole.
//!
//! INVARIANT E2 (lock order): `gate`, the catalog's lock, `write`, `disk`, `change`. `work` is a
//! leaf.

use super::{
    catalog::Catalog,
    clock::{Clock, Moment},
    events::{event::Event, queue::Events},
    memory::TenantQuota,
    parts::{
        commits::CommitPipeline,
        health::Health,
        log_state::LogState,
        maintenance::Maintenance,
        pressure::FROZEN_MAX,
        readers::Readers,
        state_cell::{Memtables, StateCell},
        storage::Storage,
    },
    read_hold::Hold,
    settings::Settings,
    stats::Counters,
};
use crate::{
    base::{Error, ReaderKind, Result, SequenceNumber},
    codec::MergeFunctions,
    commit::Held,
    db::files::reserve::Stage,
    memtable::{Memtable, MemtableOptions},
    platform::WHOLE,
    read::ReadState,
    version::{FileSet, Version},
};
use arc_swap::Guard;
use parking_lot::MutexGuard;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

/// Apparent clock lead to ignore, in microseconds: the clock is read first.
const NOISE_US: u64 = 1000;

pub struct Engine {
    pub dir: PathBuf,
    pub settings: Settings,
    pub clock: Clock,
    pub tenant: TenantQuota,
    pub catalog: Catalog,
    pub functions: Arc<MergeFunctions>,
    pub counters: Counters,
    pub health: Health,
    pub cell: StateCell,
    pub readers: Readers,
    pub commits: CommitPipeline,
    pub log: LogState,
    pub storage: Storage,
    pub maintenance: Maintenance,
    pub events: Events,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("path", &self.dir).finish_non_exhaustive()
    }
}

impl Engine {
    /// Refuses writes from now on: the state on disk is unknown.
    pub fn poison(&self, reason: &Error) {
        self.poison_for(&reason.to_string(), matches!(reason, Error::Closed));
    }

    /// A panic poisons the database, and its message is returned.
    pub fn catch_panic<R>(&self, what: &str, work: impl FnOnce() -> R) -> std::result::Result<R, String> {
        // Unwind safe: writers check for poison first, and readers load only states published
        // whole.
        catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
            let message = panic.downcast_ref::<&str>().copied();
            let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            let reason = format!("{what} panicked: {}", message.unwrap_or("without a message"));
            self.poison_for(&reason, false);
            reason
        })
    }

    fn poison_for(&self, reason: &str, is_closed: bool) {
        if self.health.poison(reason, is_closed) {
            self.events.emit(|| Event::Failed { reason: reason.to_owned() });
        }
        self.signal_work();
    }

    /// Wakes threads that wait for work or its completion. The caller may hold any lock.
    pub fn signal_work(&self) {
        self.tenant.common.pool.call(self.tenant.id);
        self.maintenance.work_changed.notify_all();
    }

    pub fn new_memtable(settings: &Settings, before_bytes: usize) -> Arc<Memtable> {
        let common = settings.common();
        let options = MemtableOptions::for_capacity(settings.memtable_bytes());
        let likely = MemtableOptions::for_capacity(common.likely_memtable_bytes(settings, before_bytes));
        let (chunk_pool, filter_bytes) = (Some(Arc::clone(&common.chunk_pool)), likely.filter_bytes);
        Arc::new(Memtable::new(MemtableOptions { chunk_pool, filter_bytes, ..options }))
    }

    /// Replaces the present state. `change` is the guard of [`StateCell::change`].
    pub fn publish(&self, change: &MutexGuard<'_, ()>, state: ReadState) {
        let state = Arc::new(state);
        self.measure_pressure(&state);
        self.cell.replace(change, state);
        self.signal_work();
    }

    pub fn publish_version(&self, version: Version, memtables: Memtables<'_>, files: &FileSet) {
        let change = self.cell.change.lock();
        let old = self.cell.state.load_full();
        let mut frozen = old.frozen.clone();
        let mut active = Arc::clone(&old.active);
        match memtables {
            Memtables::Same => {}
            Memtables::Flushed(flushed) => frozen.retain(|memtable| !Arc::ptr_eq(memtable, flushed)),
            Memtables::Fresh => {
                let fresh = Engine::new_memtable(&self.settings, active.bytes_used());
                let before = std::mem::replace(&mut active, fresh);
                if !before.is_empty() {
                    frozen.insert(0, before);
                }
            }
        }
        let garbage = Arc::clone(&old.garbage);
        self.publish(&change, ReadState { active, frozen, version: Arc::new(version), garbage });
        drop(old);
        self.share_memory(files);
    }

    /// The caller holds `write`.
    pub fn freeze(&self) {
        let change = self.cell.change.lock();
        let old = self.cell.state.load_full();
        if old.active.is_empty() {
            return;
        }
        let mut frozen = Vec::with_capacity(old.frozen.len() + 1);
        frozen.push(Arc::clone(&old.active));
        frozen.extend(old.frozen.iter().cloned());
        let active = Engine::new_memtable(&self.settings, old.active.bytes_used());
        let (version, garbage) = (Arc::clone(&old.version), Arc::clone(&old.garbage));
        self.publish(&change, ReadState { active, frozen, version, garbage });
        drop(old);
        self.share_memory_again();
    }

    #[inline(always)]
    pub fn present_state(&self) -> Result<Guard<Arc<ReadState>>> {
        let state = self.cell.state.load();
        if state.version.partitions.is_empty() {
            // Empty after the close, which refuses readers first.
            self.health.check_open()?;
        }
        Ok(state)
    }

    /// Returns the state and sequence number to read at. Fails if the hold has expired. A reader
    /// that changes to another state calls this again.
    #[inline(always)]
    pub fn state_for(&self, hold: Option<&Hold>) -> Result<(Guard<Arc<ReadState>>, SequenceNumber)> {
        // INVARIANT R1: the state first, either way. See `SnapshotList` for holds.
        let state = self.present_state()?;
        match hold {
            None => Ok((state, self.readers.snapshots.visible())),
            Some(hold) => hold.check().map(|()| (state, hold.sequence())),
        }
    }

    pub fn time_since(&self, began_ns: u64) -> Duration {
        Duration::from_nanos(self.now_ns().saturating_sub(began_ns))
    }

    pub fn now_ns(&self) -> u64 {
        self.settings.runtime.monotonic_ns()
    }

    #[inline]
    pub fn now(&self) -> Moment {
        self.clock.now(&*self.settings.runtime)
    }

    /// Lead of the database's clock over the wall clock, in microseconds.
    pub fn ahead_us(&self) -> u64 {
        let ahead_us = self.now().us.saturating_sub(self.settings.runtime.unix_time_us());
        if ahead_us < NOISE_US { 0 } else { ahead_us }
    }

    /// Returns the coarse clock for the age of readers.
    #[inline]
    pub fn coarse_now_ns(&self) -> u64 {
        self.settings.runtime.monotonic_coarse_ns()
    }

    /// Fails if a reader has expired. INVARIANT: load the state to read from before this check.
    #[inline]
    pub fn check_held(&self, held: &Held) -> Result<()> {
        if self.readers.snapshots.is_expired(held) { Err(self.expired(held)) } else { Ok(()) }
    }

    #[cold]
    fn expired(&self, held: &Held) -> Error {
        Error::ReaderExpired {
            kind: self.readers.snapshots.kind_of(held).unwrap_or(ReaderKind::Snapshot),
            sequence: held.sequence,
            age: Duration::from_nanos(self.coarse_now_ns().saturating_sub(held.taken_ns)),
        }
    }

    /// Releases the reserve of a stage on a full disk. Returns whether there was any.
    pub(in crate::db) fn release_reserve(&self, stage: Stage) -> bool {
        let is_released = self.storage.reserve.release(stage);
        if is_released {
            self.set_refusing(true);
        }
        is_released
    }

    /// Refuses writes that need space, or accepts them again.
    pub fn set_refusing(&self, is_refusing: bool) {
        match (self.maintenance.pressure.set_refusing(is_refusing), is_refusing) {
            (false, true) => self.events.emit(|| Event::ReserveUsed),
            (true, false) => self.events.emit(|| Event::ReserveRefilled),
            _ => {}
        }
    }

    /// Measures the backpressure of a read state. The caller holds `change`, and not `work`.
    pub fn measure_pressure(&self, state: &ReadState) {
        let work = self.maintenance.work.lock();
        let dead = (self.maintenance.upcalls.garbage_to_limit)(self, state, &work);
        // Databases with shared memory divide their limit.
        let waiting_bytes_max =
            (FROZEN_MAX * self.settings.memtable_bytes()).min(self.tenant.common.waiting_bytes_max());
        let pressure = &self.maintenance.pressure;
        match pressure.measure(state, waiting_bytes_max, dead, |partition| work.failed.contains_key(&partition)) {
            (false, true) => self.events.emit(|| Event::ThrottleBegin),
            (true, false) => self.events.emit(|| Event::ThrottleEnd),
            _ => {}
        }
        let share = if work.idle { WHOLE } else { pressure.share_of_merges(self.settings.loose_runs) };
        self.storage.set_pace(share);
    }
}
