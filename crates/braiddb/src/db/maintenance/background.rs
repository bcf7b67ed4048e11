//! Runs background jobs: flushes and merges. `choose.rs` chooses them.
//!
//! At most one flush runs at a time, on its own thread, so it never waits for a merge. At most one
//! job works on a partition; different partitions are merged in parallel. While idle, unindexed
//! runs are folded whatever their number, which counts garbage and reclaims its space.

use super::{
    choose::{self, Job},
    compact, flush, garbage_limit, hash_indexes, idle, install, log_trim, scrub,
};
use crate::{
    base::{Error, Result},
    compaction::Plan,
    db::{
        engine::{
            edits,
            events::event::{Event, MergeKind},
            parts::{maintenance::WorkState, upcalls::Upcalls},
            root::Engine,
            slow_commits::report::SlowCause,
            thread_pool::{JobResult, Role},
        },
        files::{names::damaged_view, reserve::Stage},
        read::{healing, reader_registry},
        write::{async_commit, conflict_window, full_disk},
    },
    version::Partition,
};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// Interval at which the flusher checks for idleness.
const IDLE_LOOK_NS: u64 = 100_000_000;

/// Sleep between checks when there is no work.
const PAUSE_NS: u64 = 1_000_000_000;

/// Sleep of merge threads between checks while idle.
const LONG_PAUSE_NS: u64 = 10_000_000_000;

/// Delay before jobs are retried after a full disk.
pub(super) const RETRY_NS: u64 = 1_000_000_000;

/// Time after a full disk in which no partition is merged only to reduce fragmentation.
const NO_SPACE_PAUSE_NS: u64 = 60_000_000_000;

/// Refuses further calls, interrupts those that change files, and waits until they return.
pub fn refuse_calls(engine: &Engine) {
    engine.health.closing.store(true, Ordering::Release);
    // Fast-path gets do not check for a close: without a state they take the general path,
    // which does.
    engine.cell.fast_state.retire();
    engine.signal_work();
    conflict_window::wake_leaders(engine);
    engine.log.watches.wake();
    drop(engine.health.gate.write());
}

/// Runs the jobs that are due. Reports the time of each as part of a commit.
pub fn run_inline(engine: &Engine, ran: &mut dyn FnMut(SlowCause, u64)) {
    keep_time(engine);
    reader_registry::check_if_due(engine);
    let began_ns = engine.now_ns();
    log_trim::prepare_log(engine);
    ran(SlowCause::Rotation, engine.now_ns().saturating_sub(began_ns));
    while let Some(job) = choose::next_job(engine, Role::All, false) {
        let (work, began_ns) = (job.work(), engine.now_ns());
        let is_done = run_job(engine, job);
        let ended_ns = engine.now_ns();
        let is_disk_full = !is_done && engine.maintenance.work.lock().no_space_until_ns > ended_ns;
        let part = if is_disk_full { SlowCause::FullDisk } else { work.slow_cause() };
        ran(part, ended_ns.saturating_sub(began_ns));
        if !is_done {
            break;
        }
    }
    hash_indexes::build_searched(engine);
}

/// Runs at most `jobs_max` jobs, until none is left. Folds unindexed runs whatever their
/// number.
pub(in crate::db) fn run_until_settled(engine: &Engine, jobs_max: usize) -> Result<()> {
    let mut jobs = 0;
    while jobs < jobs_max {
        jobs += 1;
        let Some(job) = choose::next_job(engine, Role::All, true) else {
            let work = engine.maintenance.work.lock();
            if !work.flushing && work.busy.is_empty() {
                break;
            }
            jobs -= 1;
            let mut work = work;
            engine.maintenance.work_changed.wait_for(&mut work, Duration::from_millis(10));
            continue;
        };
        if !run_job(engine, job) {
            engine.health.check_writable()?;
            return Err(full_disk::disk_full(engine));
        }
    }
    engine.health.check_writable()
}

/// Runs a job. Returns false if it could not be done now.
pub(super) fn run_job(engine: &Engine, job: Job) -> bool {
    let indexed = hash_indexes::partitions_in_use(engine);
    let running = engine.commits.slow.run(job.work(), engine.now_ns());
    let result = match &job {
        Job::Flush => {
            engine.events.emit(|| Event::FlushBegin);
            let began_ns = engine.now_ns();
            let done = flush::run_flush(engine);
            engine.events.emit(|| Event::FlushEnd { took: engine.time_since(began_ns), is_done: done.is_ok() });
            done
        }
        Job::Partition(partition, plan) => compact::run_partition_or_prefix(engine, partition, plan),
    };
    drop(running);
    let mut work = engine.maintenance.work.lock();
    match &job {
        Job::Flush => {
            work.flushing = false;
            let is_refused = matches!(result, Err(Error::DiskFull { .. }));
            work.flush_refused_at_ns = is_refused.then(|| engine.now_ns());
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
        Err(e) => note_failure(engine, &mut work, &job, e),
    };
    drop(work);
    if result.is_err() {
        let _change = engine.cell.change.lock();
        engine.measure_pressure(&engine.cell.state.load());
    }
    if let (Ok(()), Job::Partition(partition, plan @ (Plan::Fold | Plan::Major { .. }))) = (&result, &job) {
        garbage_limit::learn_superseding(engine, partition, plan);
    }
    engine.signal_work();
    if done && (engine.storage.reserve.is_used() || matches!(job, Job::Flush)) {
        full_disk::keep_reserve_after(engine, true);
    }
    if done {
        hash_indexes::build_for_new_runs(engine, &indexed, matches!(job, Job::Flush));
    }
    done
}

/// Executes a plan. Sets a damaged view aside, so that the partition is planned again.
pub(in crate::db) fn run_partition(
    engine: &Engine,
    partition: &Arc<Partition>,
    plan: &Plan,
    stage: Option<Stage>,
) -> Result<()> {
    let kind = MergeKind::of(plan);
    engine.events.emit(|| Event::MergeBegin { partition: partition.id, kind });
    let began_ns = engine.now_ns();
    let done = engine.catch_panic("a merge", || {
        match full_disk::with_space(engine, stage, || install::run_plan(engine, partition, plan)) {
            Err(e) => match damaged_view(&e) {
                Some(number) => healing::set_view_aside(engine, number, &e),
                None => Err(e),
            },
            done => done,
        }
    });
    let done = done.unwrap_or_else(|reason| Err(Error::ReadOnly { reason }));
    let (partition, is_done) = (partition.id, done.is_ok());
    engine.events.emit(|| Event::MergeEnd { partition, kind, took: engine.time_since(began_ns), is_done });
    done
}

/// Handles a failed job. Returns whether other jobs may continue.
fn note_failure(engine: &Engine, work: &mut WorkState, job: &Job, error: &Error) -> bool {
    engine.counters.background_errors.fetch_add(1, Ordering::Relaxed);
    if !matches!(error, Error::Closed) {
        engine.events.emit(|| Event::BackgroundError { error: error.to_string() });
    }
    match (error, job) {
        (Error::Closed, _) => false,
        (Error::DiskFull { .. }, _) => {
            tracing::warn!(%error, "background work waits for space");
            // A flush may succeed with less space than a merge needs.
            work.merge_not_before_ns = engine.now_ns() + RETRY_NS;
            if matches!(job, Job::Flush) {
                work.flush_not_before_ns = work.merge_not_before_ns;
            }
            work.no_space_until_ns = engine.now_ns() + NO_SPACE_PAUSE_NS;
            false
        }
        // A retry would fail in the same way, and the job changed nothing.
        (Error::Corruption(_) | Error::InvalidArgument(_), Job::Partition(partition, _)) => {
            tracing::error!(%error, partition = partition.id, "a partition will not be merged");
            work.failed.insert(partition.id, error.to_string());
            true
        }
        _ => {
            engine.poison(error);
            false
        }
    }
}

/// Records a change of the clock in the manifest; retries later if the disk is full.
pub(super) fn keep_time(engine: &Engine) {
    if engine.health.check_writable().is_ok()
        && let Err(error) = edits::note_time(engine)
    {
        tracing::debug!(%error, "that a clock was set could not be noted");
    }
}

/// Background work, for the rooms below.
pub const UPCALLS: Upcalls =
    Upcalls { run_inline, run_job: run_role, flush: flush::up_to, garbage_to_limit: garbage_limit::to_limit };

/// Does at most one job of a role. Calls `found` first, so that other threads look for more.
fn run_role(engine: &Engine, role: Role, found: &dyn Fn()) -> JobResult {
    if role == Role::Syncer {
        // Also while the database closes, and after a panic: futures wait for it.
        return async_commit::run_turn(engine);
    }
    // After a panic the database is read-only and has no more work.
    engine.catch_panic("a background thread", || work_once(engine, role, found)).unwrap_or(JobResult::Over)
}

fn work_once(engine: &Engine, role: Role, found: &dyn Fn()) -> JobResult {
    if role == Role::Cleaner {
        return if engine.storage.table.deferred_close.work() { JobResult::Again } else { JobResult::Done };
    }
    if engine.health.closing.load(Ordering::Acquire) {
        return JobResult::Over;
    }
    if role == Role::Merger {
        hash_indexes::build_searched(engine);
    }
    if let Some(job) = choose::next_job(engine, role, false) {
        found();
        run_job(engine, job);
        return JobResult::Again;
    }
    if role == Role::Merger && hash_indexes::build_at_rest(engine) {
        return JobResult::Again;
    }
    let scrub_ns = if role == Role::Merger { scrub::next_piece(engine) } else { None };
    if role == Role::Flusher && (engine.freeze_if_asked() || idle::freeze_expired(engine)) {
        return JobResult::Again;
    }
    if role == Role::Flusher && idle::detect_idle(engine, &mut engine.maintenance.work.lock()) {
        idle::settle(engine);
        engine.signal_work();
        return JobResult::Again;
    }
    if role == Role::Logger {
        log_trim::maintain_log(engine);
    }
    let (retry_at_ns, idle) = {
        let work = engine.maintenance.work.lock();
        (if role == Role::Merger { work.merge_not_before_ns } else { work.flush_not_before_ns }, work.idle)
    };
    let until_retry = retry_at_ns.saturating_sub(engine.now_ns());
    let is_soon = !idle || engine.cell.is_to_freeze.load(Ordering::Relaxed);
    let idle_pause = match role {
        Role::Flusher if is_soon => IDLE_LOOK_NS,
        // New merge work wakes the thread; only expiry needs polling.
        Role::Merger if idle => LONG_PAUSE_NS,
        _ => PAUSE_NS,
    };
    let rest = if until_retry > 0 { until_retry.min(PAUSE_NS) } else { idle_pause };
    JobResult::Rest(scrub_ns.map_or(rest, |scrub| rest.min(scrub)))
}
