//! Runs background jobs, one after another: flushes and merges.
//!
//! At most one flush runs at a time, on its own thread, so it never waits for a merge. At most one
//! job works on a partition; different partitions are merged in parallel. While idle, unindexed
//! runs are folded whatever their number, which counts garbage and reclaims its space.

use super::{choose::Job, log_trim};
use crate::{
    base::{Error, Result},
    compaction::{Plan, droppable_runs},
    db::{
        engine::{
            parts::maintenance::WorkState,
            root::Engine,
            thread_pool::{JobResult, Role, Worker},
        },
        files::{names::damaged_view, reserve::Stage},
    },
    version::Partition,
};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// Interval at which the flusher checks for idleness.
const IDLE_LOOK_NS: u64 = 100_000_000;

/// Maximum number of jobs after the merges of a compaction, plus four per partition.
const SETTLE_JOBS_MIN: usize = 64;

/// Sleep between checks when there is no work.
const PAUSE_NS: u64 = 1_000_000_000;

/// Sleep of merge threads between checks while idle.
const LONG_PAUSE_NS: u64 = 10_000_000_000;

/// Delay before jobs are retried after a full disk.
pub(super) const RETRY_NS: u64 = 1_000_000_000;

/// Time after a full disk in which no partition is merged only to reduce fragmentation.
const NO_SPACE_PAUSE_NS: u64 = 60_000_000_000;

impl Engine {
    /// Refuses further calls, interrupts those that change files, and waits until they return.
    pub fn refuse_calls(&self) {
        self.health.closing.store(true, Ordering::Release);
        // Fast-path gets do not check for a close: without a state they take the general path,
        // which does.
        self.cell.fast_state.retire();
        self.signal_work();
        self.wake_leaders();
        self.log.watches.wake();
        drop(self.health.gate.write());
    }

    pub fn compact_all(&self) -> Result<()> {
        let _hurry = self.hurry();
        let deep = self.storage.reserve.begin_compaction();
        let ids: Vec<u64> = self.cell.state.load().version.partitions.iter().map(|p| p.id).collect();
        self.compact_each(ids)?;
        // The limit matters: under concurrent writes there is always another job.
        self.settle_after_compaction(SETTLE_JOBS_MIN + 4 * self.cell.state.load().version.partitions.len())?;
        // Releases the space before returning, except files that readers pin.
        self.storage.table.deferred_close.work_through();
        drop(deep);
        self.keep_reserve_after(true);
        Ok(())
    }

    /// Executes a plan for the whole partition, once no other job works on it.
    pub(in crate::db) fn compact_by(&self, id: u64, plan: impl Fn(&Partition) -> Plan) -> Result<()> {
        while !self.try_compact(id, &plan)? {
            let mut work = self.maintenance.work.lock();
            self.maintenance.work_changed.wait_for(&mut work, Duration::from_millis(10));
        }
        Ok(())
    }

    /// Like `compact_by`, but returns false while another job works on the partition or work is
    /// left.
    fn try_compact(&self, id: u64, plan: impl Fn(&Partition) -> Plan) -> Result<bool> {
        self.health.check_writable()?;
        let partition = {
            let mut work = self.maintenance.work.lock();
            let state = self.cell.state.load();
            let Some(partition) = state.version.partitions.iter().find(|p| p.id == id) else { return Ok(true) };
            if !work.busy.insert(id) {
                return Ok(false);
            }
            Arc::clone(partition)
        };
        let plan = plan(&partition);
        // The first job only drops runs that need no reading; the next attempt merges the others.
        let is_step = !droppable_runs(&partition, self.readers.snapshots.strata()[0], self.expired_by_us()).is_empty();
        let is_empty = partition.all_runs().next().is_none();
        let indexed = self.partitions_with_hash_indexes();
        let done = if is_empty { Ok(()) } else { self.run_partition(&partition, &plan, Some(Stage::Merge)) };
        self.maintenance.work.lock().busy.remove(&id);
        self.signal_work();
        done?;
        self.reset_index_pause(id);
        self.index_new_runs(&indexed, false);
        Ok(!is_step)
    }

    pub fn run_inline(&self) {
        self.keep_time();
        self.check_readers_if_due();
        log_trim::prepare_log(self);
        while let Some(job) = self.next_job(Role::All, false) {
            if !self.run_job(job) {
                break;
            }
        }
        self.index_searched();
    }

    /// Runs at most `jobs_max` jobs, until none is left. Folds unindexed runs whatever their
    /// number.
    pub(in crate::db) fn run_until_settled(&self, jobs_max: usize) -> Result<()> {
        let mut jobs = 0;
        while jobs < jobs_max {
            jobs += 1;
            let Some(job) = self.next_job(Role::All, true) else {
                let work = self.maintenance.work.lock();
                if !work.flushing && work.busy.is_empty() {
                    break;
                }
                jobs -= 1;
                let mut work = work;
                self.maintenance.work_changed.wait_for(&mut work, Duration::from_millis(10));
                continue;
            };
            if !self.run_job(job) {
                self.health.check_writable()?;
                return Err(self.disk_full());
            }
        }
        self.health.check_writable()
    }

    /// Runs a job. Returns false if it could not be done now.
    pub(super) fn run_job(&self, job: Job) -> bool {
        let indexed = self.partitions_with_hash_indexes();
        let result = match &job {
            Job::Flush => self.run_flush(),
            Job::Partition(partition, plan) => self.run_partition_or_prefix(partition, plan),
        };
        let mut work = self.maintenance.work.lock();
        match &job {
            Job::Flush => {
                work.flushing = false;
                let is_refused = matches!(result, Err(Error::DiskFull { .. }));
                work.flush_refused_at_ns = is_refused.then(|| self.now_ns());
            }
            Job::Partition(partition, _) => {
                work.busy.remove(&partition.id);
            }
        }
        let done = match &result {
            Ok(()) => {
                work.flush_not_before_ns = 0;
                // Only a successful merge ends the delay: a flush needs less space than a merge.
                if !matches!(job, Job::Flush) {
                    work.merge_not_before_ns = 0;
                }
                true
            }
            Err(e) => self.note_failure(&mut work, &job, e),
        };
        drop(work);
        if result.is_err() {
            let _change = self.cell.change.lock();
            self.measure_pressure(&self.cell.state.load());
        }
        if let (Ok(()), Job::Partition(partition, plan @ (Plan::Fold | Plan::Major { .. }))) = (&result, &job) {
            self.learn_superseding(partition, plan);
        }
        self.signal_work();
        if done && (self.storage.reserve.is_used() || matches!(job, Job::Flush)) {
            self.keep_reserve_after(true);
        }
        if done {
            self.index_new_runs(&indexed, matches!(job, Job::Flush));
        }
        done
    }

    /// Executes a plan. Sets a damaged view aside, so that the partition is planned again.
    pub(in crate::db) fn run_partition(
        &self,
        partition: &Arc<Partition>,
        plan: &Plan,
        stage: Option<Stage>,
    ) -> Result<()> {
        let done = self.catch_panic("a merge", || match self.with_space(stage, || self.run_plan(partition, plan)) {
            Err(e) => match damaged_view(&e) {
                Some(number) => self.note_damaged_view(number, &e),
                None => Err(e),
            },
            done => done,
        });
        done.unwrap_or_else(|reason| Err(Error::ReadOnly { reason }))
    }

    /// Handles a failed job. Returns whether other jobs may continue.
    fn note_failure(&self, work: &mut WorkState, job: &Job, error: &Error) -> bool {
        self.counters.background_errors.fetch_add(1, Ordering::Relaxed);
        match (error, job) {
            (Error::Closed, _) => false,
            (Error::DiskFull { .. }, _) => {
                tracing::warn!(%error, "background work waits for space");
                // A flush may succeed with less space than a merge needs.
                work.merge_not_before_ns = self.now_ns() + RETRY_NS;
                if matches!(job, Job::Flush) {
                    work.flush_not_before_ns = work.merge_not_before_ns;
                }
                work.no_space_until_ns = self.now_ns() + NO_SPACE_PAUSE_NS;
                false
            }
            // A retry would fail in the same way, and the job changed nothing.
            (Error::Corruption { .. } | Error::InvalidArgument(_), Job::Partition(partition, _)) => {
                tracing::error!(%error, partition = partition.id, "a partition will not be merged");
                work.failed.insert(partition.id, error.to_string());
                true
            }
            _ => {
                self.poison(error);
                false
            }
        }
    }

    /// Records a change of the clock in the manifest; retries later if the disk is full.
    pub(super) fn keep_time(&self) {
        if self.health.check_writable().is_ok()
            && let Err(error) = self.note_time()
        {
            tracing::debug!(%error, "that a clock was set could not be noted");
        }
    }
}

impl Worker for Engine {
    fn run_job(&self, role: Role, found: &dyn Fn()) -> JobResult {
        // After a panic the database is read-only and has no more work.
        self.catch_panic("a background thread", || self.work_once(role, found)).unwrap_or(JobResult::Over)
    }
}

impl Engine {
    fn work_once(&self, role: Role, found: &dyn Fn()) -> JobResult {
        if role == Role::Cleaner {
            return if self.storage.table.deferred_close.work() { JobResult::Again } else { JobResult::Done };
        }
        if self.health.closing.load(Ordering::Acquire) {
            return JobResult::Over;
        }
        if role == Role::Merger {
            self.index_searched();
        }
        if let Some(job) = self.next_job(role, false) {
            found();
            self.run_job(job);
            return JobResult::Again;
        }
        if role == Role::Merger && self.index_at_rest() {
            return JobResult::Again;
        }
        let scrub_ns = if role == Role::Merger { self.scrub_a_piece() } else { None };
        if role == Role::Flusher && (self.freeze_if_asked() || self.freeze_expired()) {
            return JobResult::Again;
        }
        if role == Role::Flusher && self.detect_idle(&mut self.maintenance.work.lock()) {
            self.settle();
            self.signal_work();
            return JobResult::Again;
        }
        if role == Role::Logger {
            log_trim::maintain_log(self);
        }
        let (retry_at_ns, idle) = {
            let work = self.maintenance.work.lock();
            (if role == Role::Merger { work.merge_not_before_ns } else { work.flush_not_before_ns }, work.idle)
        };
        let until_retry = retry_at_ns.saturating_sub(self.now_ns());
        let is_soon = !idle || self.cell.is_to_freeze.load(Ordering::Relaxed);
        let idle_pause = match role {
            Role::Flusher if is_soon => IDLE_LOOK_NS,
            // New merge work wakes the thread; only expiry needs polling.
            Role::Merger if idle => LONG_PAUSE_NS,
            _ => PAUSE_NS,
        };
        let rest = if until_retry > 0 { until_retry.min(PAUSE_NS) } else { idle_pause };
        JobResult::Rest(scrub_ns.map_or(rest, |scrub| rest.min(scrub)))
    }
}
