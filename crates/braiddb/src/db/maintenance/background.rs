//! Background work: chooses the next job and runs it.
//!
//! At most one flush runs at a time, on its own thread, so it never waits for a merge. At most one
//! job works on a partition; different partitions are merged in parallel. While idle, unindexed
//! runs are folded whatever their number, which counts garbage and reclaims its space.

use super::upgrade::is_older;
use crate::{
    base::{Error, FileNumber, Result},
    compaction::{
        MERGED_BLOCKS_MAX, PARTITION_BLOCKS_MAX, PartitionShape, Plan, PlanOptions, RunShape, ViewShape, best_cut,
        deadest, droppable_runs, plan,
    },
    db::{
        engine::{
            parts::maintenance::WorkState,
            root::Engine,
            thread_pool::{JobResult, Role, Worker},
        },
        files::{names::damaged_view, reserve::Stage},
    },
    platform::WHOLE,
    read::ReadState,
    version::{Partition, RunHandle, Version},
};
use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

#[cfg(test)]
mod tests;

/// Time without a commit or flush after which the database counts as idle.
const IDLE_NS: u64 = 300_000_000;

/// Minimum time to keep preallocated memtable memory after the last commit or flush.
const MEMORY_KEPT_NS: u64 = 10_000_000_000;

/// Interval at which the flusher checks for idleness.
const IDLE_LOOK_NS: u64 = 100_000_000;

/// Maximum number of jobs after the merges of a compaction, plus four per partition.
const SETTLE_JOBS_MIN: usize = 64;

/// Sleep between checks when there is no work.
const PAUSE_NS: u64 = 1_000_000_000;

/// Sleep of merge threads between checks while idle.
const LONG_PAUSE_NS: u64 = 10_000_000_000;

/// Delay before jobs are retried after a full disk.
const RETRY_NS: u64 = 1_000_000_000;

/// Time after a full disk in which no partition is merged only to reduce fragmentation.
const NO_SPACE_PAUSE_NS: u64 = 60_000_000_000;

/// Maximum runs of a view under load. More than 8 already lengthen its segment records, but with a
/// maximum of 8 a load writes a third more and overwrites a quarter more.
const VIEW_RUNS_MAX: usize = 24;

/// Maximum runs of a view while idle: the capacity of the shortest segment records.
const VIEW_RUNS_MAX_IDLE: usize = 8;

/// Maximum garbage entries of a partition, in percent.
const DEAD_PERCENT_MAX: u64 = 40;

/// Maximum garbage entries of the database while idle, in percent.
const DEAD_PERCENT_MAX_IDLE: u64 = 10;

/// Time after which a partition with 1 % expired entries is merged. A larger share is merged
/// sooner, a smaller one later.
const EXPIRED_HUNDREDTH_FOR_US_MAX: u64 = 24 * 3600 * 1_000_000;

/// Time after which any expired entry is merged away. A merge of each partition once a month is
/// cheap.
const EXPIRED_FOR_US_MAX: u64 = 30 * 24 * 3600 * 1_000_000;

/// A run is sparse if partitions read less than this share of its entries, in per mille.
const SPARSE_PER_MILLE: u64 = 600;

/// [`SPARSE_PER_MILLE`] while idle.
const SPARSE_PER_MILLE_IDLE: u64 = 800;

/// A run smaller than this fraction of its partition (1/32) is never sparse: it is not worth a
/// merge.
const SPARSE_SHARE: u64 = 32;

/// [`SPARSE_SHARE`] while idle.
const SPARSE_SHARE_IDLE: u64 = 512;

#[derive(Debug)]
pub(super) enum Job {
    Flush,
    Partition(Arc<Partition>, Plan),
}

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

    pub(in crate::db) fn whole_merge(&self, partition: &Partition) -> Plan {
        let metas = || partition.all_runs().map(|handle| handle.run().meta());
        let bytes: u64 = metas().map(|meta| meta.file_bytes).sum();
        let blocks: u64 = metas().map(|meta| u64::from(meta.blocks)).sum();
        if bytes > self.settings.partition_bytes() || blocks > PARTITION_BLOCKS_MAX {
            return Plan::Split;
        }
        Plan::Major { inputs: metas().map(|meta| meta.number).collect() }
    }

    pub fn run_inline(&self) {
        self.keep_time();
        self.check_readers_if_due();
        self.prepare_log();
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

    pub(super) fn next_job(&self, role: Role, settle: bool) -> Option<Job> {
        if matches!(role, Role::Logger | Role::Cleaner) {
            return None;
        }
        if role != Role::Flusher {
            // Compute and cache these counts before taking the lock, so that nothing is read under
            // it.
            let state = self.cell.state.load_full();
            Shares::of(&state.version);
            for partition in &state.version.partitions {
                let _ = partition.counts();
            }
        }
        if role != Role::Flusher && self.maintenance.work.lock().idle {
            self.find_older_blobs();
        }
        let mut work = self.maintenance.work.lock();
        if self.health.closing.load(Ordering::Acquire) || self.health.has_failed() || self.settings.read_only {
            return None;
        }
        let now_ns = self.now_ns();
        let state = self.cell.state.load_full();
        let may_flush = settle || work.flush_not_before_ns <= now_ns;
        if role != Role::Merger && may_flush && !state.frozen.is_empty() && !work.flushing {
            work.flushing = true;
            return Some(Job::Flush);
        }
        if role == Role::Flusher || !settle && work.merge_not_before_ns > now_ns {
            return None;
        }
        let idle = settle || work.idle;
        if !self.may_begin_merge(work.busy.len()) && !idle {
            return None;
        }
        let options = PlanOptions {
            partition_bytes_max: self.settings.partition_bytes(),
            partition_blocks_max: PARTITION_BLOCKS_MAX,
            merged_blocks_max: MERGED_BLOCKS_MAX,
            loose_max: self.settings.loose_runs.max(2),
            fold_bytes_per_entry: self.settings.fold_bytes_per_entry,
            view_runs_max: VIEW_RUNS_MAX,
            view_runs_max_idle: VIEW_RUNS_MAX_IDLE,
            dead_percent_max: DEAD_PERCENT_MAX,
            expired_for_us_max: EXPIRED_FOR_US_MAX,
            expired_hundredth_for_us_max: EXPIRED_HUNDREDTH_FOR_US_MAX,
            idle,
            has_space: work.no_space_until_ns <= now_ns,
        };
        let deadest = if idle { self.choose_deadest(&state, &work) } else { self.choose_by_limit(&state, &work) };
        let chosen = deadest.or_else(|| self.choose(&state, &work, &options));
        let (partition, plan) = chosen.or_else(|| self.choose_older(&state, &work).filter(|_| idle))?;
        work.busy.insert(partition.id);
        Some(Job::Partition(partition, plan))
    }

    /// Chooses the partition with the most unindexed runs among those with a plan.
    fn choose(&self, state: &ReadState, work: &WorkState, options: &PlanOptions) -> Option<(Arc<Partition>, Plan)> {
        let shares = Shares::of(&state.version);
        let mut best: Option<(usize, Arc<Partition>, Plan)> = None;
        for partition in &state.version.partitions {
            if work.busy.contains(&partition.id) || work.failed.contains_key(&partition.id) {
                continue;
            }
            let loose = partition.layout.loose.len();
            if best.as_ref().is_some_and(|(most, ..)| *most >= loose) {
                continue;
            }
            if let Some(plan) = plan(&self.shape(partition, &shares, work, options.idle), options) {
                best = Some((loose, Arc::clone(partition), plan));
            }
        }
        best.map(|(_, partition, plan)| (partition, plan))
    }

    /// While idle, with no better work: chooses a partition with files of an earlier format
    /// version.
    fn choose_older(&self, state: &ReadState, work: &WorkState) -> Option<(Arc<Partition>, Plan)> {
        let is_free = |p: &&Arc<Partition>| !work.busy.contains(&p.id) && !work.failed.contains_key(&p.id);
        let mut partitions = state.version.partitions.iter().filter(is_free);
        let partition = partitions.find(|partition| self.may_upgrade() && is_older(partition, work))?;
        Some((Arc::clone(partition), self.whole_merge(partition)))
    }

    /// While idle: chooses the partition whose merge reclaims most, if there is too much garbage.
    /// Ignores partitions with a running job.
    fn choose_deadest(&self, state: &ReadState, work: &WorkState) -> Option<(Arc<Partition>, Plan)> {
        let shares = Shares::of(&state.version);
        let partitions = &state.version.partitions;
        let shape = |partition: &Arc<Partition>| {
            let mut shape = self.shape(partition, &shares, work, true);
            if work.busy.contains(&partition.id) || work.failed.contains_key(&partition.id) {
                shape.dead_held = u64::MAX;
            }
            shape
        };
        let shapes: Vec<PartitionShape> = partitions.iter().map(shape).collect();
        let partition = &partitions[deadest(shapes.iter(), DEAD_PERCENT_MAX_IDLE)?];
        let inputs = partition.all_runs().map(|h| h.run().meta().number).collect();
        Some((Arc::clone(partition), Plan::Major { inputs }))
    }

    pub(in crate::db) fn shape(
        &self,
        partition: &Partition,
        shares: &Shares,
        work: &WorkState,
        idle: bool,
    ) -> PartitionShape {
        let (sparse_below, sparse_share) = match idle {
            true => (SPARSE_PER_MILLE_IDLE, SPARSE_SHARE_IDLE),
            false => (SPARSE_PER_MILLE, SPARSE_SHARE),
        };
        let run = |handle: &Arc<RunHandle>| {
            let meta = handle.run().meta();
            let share = partition.share_per_mille(handle);
            RunShape {
                number: meta.number,
                bytes: meta.file_bytes * share / 1000,
                entries: meta.entries * share / 1000,
                blocks: u64::from(meta.blocks) * share / 1000,
                is_sparse: meta.file_bytes * sparse_share >= self.settings.partition_bytes()
                    && shares.total(meta.number) < sparse_below,
            }
        };
        let (mut runs, mut loose, mut loose_reads) = (Vec::new(), Vec::new(), 0);
        for (index, handle) in partition.all_runs().enumerate() {
            if index < partition.runs.len() {
                runs.push(run(handle));
            } else {
                loose.push(run(handle));
                loose_reads += handle.reads();
            }
        }
        let expired_by_us = self.expired_by_us();
        let counts = partition.counts().map(|(entries, dead)| {
            let counted = if partition.view.is_some() { &partition.runs[..] } else { oldest_apart(partition) };
            let expired = expired_entries(partition, counted, expired_by_us).min(entries);
            // An expired entry may already count as garbage; avoid counting it twice.
            let dead = dead
                + (u128::from(entries.saturating_sub(dead)) * u128::from(expired) / u128::from(entries.max(1))) as u64;
            ViewShape { entries, dead }
        });
        let earliest = partition.all_runs().filter_map(|handle| handle.run().meta().expiries.earliest()).min();
        let moves_blobs =
            |meta: &crate::table::RunMeta| meta.blob_uses.iter().any(|u| work.sparse_blobs.contains(&u.file));
        let held = work.held.get(&partition.id).filter(|(_, snapshots)| {
            let now = self.readers.snapshots.strata();
            snapshots.iter().rev().skip(1).all(|s| now.binary_search(s).is_ok())
        });
        PartitionShape {
            cut: self.cut_of(partition, runs.iter().chain(&loose)),
            is_in_order: !idle || best_cut(key_ranges(partition, runs.iter().chain(&loose))).is_some(),
            runs,
            loose,
            loose_weight: partition.loose_weight(),
            loose_adding: partition.adding_runs(),
            loose_reads,
            has_view: partition.view.is_some(),
            counts,
            dead_held: held.map_or(0, |(dead, _)| *dead),
            expired_for_us: earliest.map_or(0, |earliest| expired_by_us.saturating_sub(earliest)),
            expired: earliest.map_or(0, |_| {
                expired_entries(partition, &partition.runs, expired_by_us)
                    + expired_entries(partition, &partition.loose_runs(), expired_by_us)
            }),
            unsplit_bytes: work.unsplit.get(&partition.id).copied().unwrap_or(0),
            relocate_blobs: !work.sparse_blobs.is_empty() && partition.all_runs().any(|h| moves_blobs(h.run().meta())),
        }
    }

    fn cut_of<'a>(&self, partition: &Partition, shapes: impl Iterator<Item = &'a RunShape> + Clone) -> Option<Vec<u8>> {
        let too_many = shapes.clone().map(|run| run.blocks).sum::<u64>() > PARTITION_BLOCKS_MAX;
        if !too_many && shapes.clone().map(|run| run.bytes).sum::<u64>() <= self.settings.partition_bytes() {
            return None;
        }
        best_cut(key_ranges(partition, shapes)).map(<[u8]>::to_vec)
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

    /// Frees memory preallocated for memtables if none was needed for [`MEMORY_KEPT_NS`].
    pub(super) fn give_memory_back_if_due(&self) {
        let (idle, quiet_since_ns) = {
            let work = self.maintenance.work.lock();
            (work.idle, work.quiet_since_ns)
        };
        let long_ago_ns = self.now_ns().saturating_sub(MEMORY_KEPT_NS);
        if idle && quiet_since_ns <= long_ago_ns {
            self.tenant.common.trim(long_ago_ns);
        }
    }

    /// Records whether anything was committed or flushed since the last check. Returns whether the
    /// database just became idle.
    fn detect_idle(&self, work: &mut WorkState) -> bool {
        // A frozen memtable waits for space: the database is not idle.
        let counters = &self.counters;
        let seen = counters.commits.load(Ordering::Relaxed) + counters.flushes.load(Ordering::Relaxed);
        if !self.cell.state.load().frozen.is_empty() {
            work.idle = false;
            return false;
        }
        let now = self.now_ns();
        if seen != work.seen {
            work.seen = seen;
            work.quiet_since_ns = now;
            work.idle = false;
            self.set_pace(self.maintenance.pressure.share_of_merges(self.settings.loose_runs));
        } else if !work.idle && now.saturating_sub(work.quiet_since_ns) >= IDLE_NS {
            work.idle = true;
            self.set_pace(WHOLE);
            return true;
        }
        false
    }

    /// Runs when the database becomes idle. Frees spare segments, and marks the log complete, so
    /// that damage to its last record differs from a torn end.
    fn settle(&self) {
        let Some(wal) = &self.log.wal else { return };
        if self.health.check_writable().is_err() {
            return;
        }
        wal.trim_spares();
        let trimmed = self.trim_log_as_flusher().and_then(|()| self.shorten_log(wal));
        let noted = trimmed.and_then(|()| wal.note_durable());
        match noted {
            Ok(()) => {
                wal.trim_spares();
            }
            Err(e) if e.is_disk_full() => {}
            Err(e) => {
                self.leave_marker();
                self.poison(&e);
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

    /// Freezes a memtable with a value expired for a day, which would otherwise stay forever.
    /// Returns whether it did.
    fn freeze_expired(&self) -> bool {
        let earliest = self.cell.state.load().active.earliest_expiry();
        if earliest == u64::MAX || self.health.check_writable().is_err() {
            return false;
        }
        let is_due = self.expired_by_us().saturating_sub(EXPIRED_HUNDREDTH_FOR_US_MAX) >= earliest;
        let Some(_write) = self.commits.write.try_lock().filter(|_| is_due) else { return false };
        if !self.cell.state.load().frozen.is_empty() {
            return false;
        }
        self.freeze();
        true
    }
}

fn key_ranges<'a, 's>(
    partition: &'a Partition,
    shapes: impl Iterator<Item = &'s RunShape>,
) -> Vec<(&'a [u8], &'a [u8], u64)> {
    let range = |(handle, shape): (&'a Arc<RunHandle>, &RunShape)| {
        let meta = handle.run().meta();
        let largest = meta.largest.as_slice();
        let end = partition.layout.end.as_deref().map_or(largest, |end| largest.min(end));
        (meta.smallest.as_slice().max(&partition.layout.start), end, shape.bytes)
    };
    partition.all_runs().zip(shapes).map(range).collect()
}

/// Returns the run that [`Partition::counts`] counts without a view.
fn oldest_apart(partition: &Partition) -> &[Arc<RunHandle>] {
    partition.apart.last().map_or(&[], std::slice::from_ref)
}

fn expired_entries(partition: &Partition, runs: &[Arc<RunHandle>], expired_by_us: u64) -> u64 {
    let expired = |handle: &Arc<RunHandle>| {
        let expired = handle.run().meta().expiries.expired_by(expired_by_us);
        if expired == 0 { 0 } else { expired.saturating_mul(partition.share_per_mille(handle)) / 1000 }
    };
    runs.iter().map(expired).fold(0, u64::saturating_add)
}

/// Share of each run that all partitions together read, in per mille.
pub(in crate::db) struct Shares(HashMap<FileNumber, u64>);

impl Shares {
    pub(in crate::db) fn of(version: &Version) -> Shares {
        let mut shares = HashMap::new();
        for partition in &version.partitions {
            for handle in partition.all_runs() {
                *shares.entry(handle.run().meta().number).or_default() += partition.share_per_mille(handle);
            }
        }
        Shares(shares)
    }

    /// The tolerance of 10 covers rounding, and ranks that are exact only to a segment.
    pub(in crate::db) fn total(&self, run: FileNumber) -> u64 {
        self.0.get(&run).map_or(1000, |share| share + 10)
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
            self.maintain_log();
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
