//! Resources that databases share: memory, the block cache and threads. A database that shares
//! nothing has its own.
//!
//! Memtables, open files, loads and jobs of all databases are subtracted from one budget, and the
//! block cache gets the remainder, at least an eighth.
//!
//! A memtable may have an eighth of the budget. With many written databases, none might ever be
//! full. So when all active memtables exceed a quarter, the largest are frozen. With `n` databases
//! that have frozen memtables, each may have an `n`th of half the budget in them; then its writers
//! wait for its own flush. Above three quarters for all memtables, each commit is throttled.
//! Memtables that a full disk keeps from being flushed do not count.

use super::{
    root::Engine,
    settings::{Settings, job_bytes_of},
    shared_runtime::SharedRuntime,
    thread_pool::{JobResult, Role, ThreadPool, Worker},
};
use crate::{
    base::Result,
    cache::BlockCache,
    memtable::ChunkPool,
    platform::{OpenFiles, Runtime},
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

/// The block cache has at least this part of the budget.
const CACHE_SHARE_MIN: usize = 8;

/// Maximum of all active memtables, in full memtables; above it the largest are frozen.
const ACTIVE_MAX: usize = 2;

/// Maximum of all frozen memtables, in full memtables.
const WAITING_MAX: usize = 4;

/// In full memtables; above it all commits are throttled.
const TAKEN_MAX: usize = ACTIVE_MAX + WAITING_MAX;

/// The next check comes after growth by this part of the limit.
const GROWTH_PART: usize = 16;

/// Delay of a commit for each full memtable too many.
const SLEEP_US: usize = 20_000;
const SLEEP_US_MIN: u64 = 1_000;
const SLEEP_US_MAX: u64 = 50_000;

#[derive(Debug)]
pub struct Common {
    pub cache: Arc<BlockCache>,
    pub chunk_pool: Arc<ChunkPool>,
    pub pool: ThreadPool,
    pub open_files: OnceLock<Arc<OpenFiles>>,
    memory: usize,
    mergers: usize,
    memtable_bytes: usize,
    is_shared: bool,
    totals: Totals,
    /// Bytes of memtables at which a check is due.
    alarm_at: AtomicUsize,
    databases: Mutex<BTreeMap<u64, Weak<Engine>>>,
    last_id: AtomicU64,
}

#[derive(Debug, Default)]
struct Totals {
    frozen: AtomicUsize,
    resident: AtomicUsize,
    reserved_jobs: AtomicUsize,
    waiting: AtomicUsize,
}

#[derive(Debug)]
pub struct TenantQuota {
    pub common: Arc<Common>,
    pub id: u64,
    frozen: AtomicUsize,
    resident: AtomicUsize,
    reserved_jobs: AtomicUsize,
}

impl Common {
    /// Adds the resources: the shared ones that the settings name, or its own.
    pub fn of(settings: Settings) -> Settings {
        if let Some(SharedRuntime(common)) = settings.shared.clone().filter(|shared| shared.0.is_shared) {
            let (memory, background_threads) = (common.memory, common.mergers);
            let settings = Settings { memory, background_threads, ..settings };
            return settings.with_open_files(common.open_files.get());
        }
        let (threads, memtable_bytes) = (settings.background_threads, settings.memtable_bytes());
        let own = Common::new(settings.memory, threads, &settings.runtime, memtable_bytes, false);
        Settings { shared: Some(SharedRuntime(Arc::new(own))), ..settings }.with_open_files(None)
    }

    pub fn new(
        memory: usize,
        mergers: usize,
        runtime: &Arc<dyn Runtime>,
        memtable_bytes: usize,
        is_shared: bool,
    ) -> Common {
        let alarm_at = if is_shared { ACTIVE_MAX * memtable_bytes } else { usize::MAX };
        Common {
            cache: BlockCache::new(memory / 2),
            chunk_pool: Arc::new(ChunkPool::for_memtables(ACTIVE_MAX, memtable_bytes)),
            pool: ThreadPool::new(Arc::clone(runtime)),
            open_files: OnceLock::new(),
            memory,
            mergers,
            memtable_bytes,
            is_shared,
            totals: Totals::default(),
            alarm_at: AtomicUsize::new(alarm_at),
            databases: Mutex::default(),
            last_id: AtomicU64::new(0),
        }
    }

    pub fn start(&self) -> io::Result<()> {
        if self.mergers > 0 { self.pool.start(self.flushers(), self.mergers) } else { Ok(()) }
    }

    /// A second flush thread keeps a database from waiting for two others' flushes.
    fn flushers(&self) -> usize {
        if self.is_shared { 2 } else { 1 }
    }

    pub fn databases(&self) -> Vec<Arc<Engine>> {
        self.databases.lock().values().filter_map(Weak::upgrade).collect()
    }

    fn reserved_bytes(&self) -> usize {
        let frozen = self.totals.frozen.load(Relaxed);
        let active = self.active_bytes();
        let memtable = self.memtable_bytes;
        let memtables = frozen + memtable.max(active + self.chunk_pool.bytes());
        let reserved = memtables.max(2 * memtable) + self.totals.resident.load(Relaxed);
        let threads = if self.mergers > 0 { self.mergers + self.flushers() } else { 0 };
        reserved + job_bytes_of(self.memory, threads) + self.totals.reserved_jobs.load(Relaxed)
    }

    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Returns the bytes available before the cache has only its minimum.
    pub fn spare_bytes(&self) -> usize {
        (self.memory - self.memory / CACHE_SHARE_MIN).saturating_sub(self.reserved_bytes())
    }

    fn share_memory(&self) {
        let reserved = self.reserved_bytes();
        self.cache.set_capacity(self.memory.saturating_sub(reserved).max(self.memory / CACHE_SHARE_MIN));
        if self.is_shared {
            let (frozen, active, memtable) =
                (self.totals.frozen.load(Relaxed), self.active_bytes(), self.memtable_bytes);
            let alarm_at = frozen + active.max(ACTIVE_MAX * memtable);
            self.alarm_at.store(alarm_at.min(TAKEN_MAX * memtable), Relaxed);
        }
    }

    /// Estimates the next memtable: with many databases, few become full.
    pub fn likely_memtable_bytes(&self, settings: &Settings, before_bytes: usize) -> usize {
        if !self.is_shared {
            return settings.memtable_bytes();
        }
        let share = ACTIVE_MAX * self.memtable_bytes / self.databases.lock().len().max(1);
        share.max(2 * before_bytes).min(settings.memtable_bytes())
    }

    fn active_bytes(&self) -> usize {
        self.chunk_pool.taken_bytes().saturating_sub(self.totals.frozen.load(Relaxed))
    }

    /// Returns whether all memtables together are above the high-water mark.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.chunk_pool.taken_bytes() > self.alarm_at.load(Relaxed)
    }

    /// Requests freezes of the largest active memtables. Returns a pause for the caller, in
    /// microseconds.
    pub fn make_room(&self) -> u64 {
        let most = ACTIVE_MAX * self.memtable_bytes;
        let (mut candidates, mut active, mut stuck) = (Vec::new(), 0, 0);
        for engine in self.databases() {
            let state = engine.cell.state.load();
            let is_stuck =
                engine.health.check_writable().is_err() || engine.maintenance.work.lock().flush_refused_at_ns.is_some();
            if is_stuck {
                stuck += state.memtables().map(|memtable| memtable.bytes()).sum::<usize>();
            } else if !engine.cell.is_to_freeze.load(Relaxed) {
                active += state.active.bytes();
                drop(state);
                candidates.push(engine);
            }
        }
        let bytes = |engine: &Arc<Engine>| engine.cell.state.load().active.bytes();
        candidates.sort_by_cached_key(|engine| std::cmp::Reverse(bytes(engine)));
        for engine in candidates {
            if active <= most {
                break;
            }
            active = active.saturating_sub(bytes(&engine));
            engine.cell.is_to_freeze.store(true, Relaxed);
            engine.signal_work();
        }
        let (taken, taken_max) = (self.chunk_pool.taken_bytes(), TAKEN_MAX * self.memtable_bytes + stuck);
        // No check at each commit until the requests are done.
        self.alarm_at.store((taken + most / GROWTH_PART).min(taken_max), Relaxed);
        match taken.checked_sub(taken_max) {
            None | Some(0) => 0,
            Some(excess) => ((excess * SLEEP_US / self.memtable_bytes) as u64).clamp(SLEEP_US_MIN, SLEEP_US_MAX),
        }
    }

    /// Returns the maximum bytes of one database's frozen memtables. Without sharing, the unused
    /// budget, but at least one and a half memtables.
    pub fn waiting_bytes_max(&self) -> usize {
        if self.is_shared {
            return WAITING_MAX * self.memtable_bytes / self.totals.waiting.load(Relaxed).max(1);
        }
        let all = self.memory - self.memory / CACHE_SHARE_MIN + self.totals.frozen.load(Relaxed);
        all.saturating_sub(self.reserved_bytes()).max(self.memtable_bytes + self.memtable_bytes / 2)
    }

    /// Returns pooled chunks to the system if all databases are quiet since `quiet_since_ns`.
    pub fn trim(&self, quiet_since_ns: u64) {
        let is_quiet = |engine: &Arc<Engine>| {
            engine.maintenance.work.try_lock().is_some_and(|work| work.idle && work.quiet_since_ns <= quiet_since_ns)
        };
        if self.chunk_pool.bytes() > 0 && (!self.is_shared || self.databases().iter().all(is_quiet)) {
            self.chunk_pool.trim();
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        let memtables = self.memtable_bytes_taken();
        memtables + (self.cache.usage_bytes() + self.totals.resident.load(Relaxed)) as u64
    }

    pub fn memtable_bytes_taken(&self) -> u64 {
        (self.chunk_pool.taken_bytes() + self.chunk_pool.bytes()) as u64
    }

    pub fn memory(&self) -> usize {
        self.memory
    }
}

impl TenantQuota {
    pub fn new(common: Arc<Common>) -> TenantQuota {
        let id = common.last_id.fetch_add(1, Relaxed);
        TenantQuota { common, id, frozen: 0.into(), resident: 0.into(), reserved_jobs: 0.into() }
    }

    fn set_resident(&self, bytes: usize) {
        let before = self.resident.swap(bytes, Relaxed);
        change(&self.common.totals.resident, before, bytes);
    }

    fn set_frozen(&self, bytes: usize) {
        let before = self.frozen.swap(bytes, Relaxed);
        change(&self.common.totals.frozen, before, bytes);
        change(&self.common.totals.waiting, usize::from(before > 0), usize::from(bytes > 0));
    }
}

impl Drop for TenantQuota {
    fn drop(&mut self) {
        self.common.databases.lock().remove(&self.id);
        self.set_frozen(0);
        self.set_resident(0);
        change(&self.common.totals.reserved_jobs, self.reserved_jobs.load(Relaxed), 0);
    }
}

fn change(total: &AtomicUsize, before: usize, now: usize) {
    total.fetch_add(now.wrapping_sub(before), Relaxed);
}

impl Worker for Engine {
    fn run_job(&self, role: Role, found: &dyn Fn()) -> JobResult {
        (self.maintenance.upcalls.run_job)(self, role, found)
    }
}

impl Engine {
    pub fn enter_common(self: &Arc<Engine>) {
        self.tenant.common.databases.lock().insert(self.tenant.id, Arc::downgrade(self));
    }

    pub fn start_workers(self: &Arc<Engine>) -> Result<()> {
        let TenantQuota { common, id, .. } = &self.tenant;
        let engine = Arc::downgrade(self);
        self.storage.table.trigger.on_raise(move || {
            if let Some(engine) = engine.upgrade() {
                engine.signal_work();
            }
        });
        if !common.is_shared {
            common.start().map_err(|e| crate::base::Error::io("start a thread for", &self.dir, e))?;
        }
        if common.mergers > 0 {
            let worker: Weak<Engine> = Arc::downgrade(self);
            common.pool.join(*id, worker as Weak<dyn Worker>);
            let (common, id) = (Arc::downgrade(common), *id);
            self.storage.table.deferred_close.defer(Arc::new(move || {
                if let Some(common) = common.upgrade() {
                    common.pool.call_cleaner(id);
                }
            }));
        }
        Ok(())
    }

    /// Called once, after calls are refused. Releases the directory's lock.
    pub fn stop(&self) {
        let TenantQuota { common, id, .. } = &self.tenant;
        common.pool.leave(*id, self.log.sync_waits.is_in_turn());
        self.storage.table.deferred_close.finish();
        if !common.is_shared {
            common.pool.end();
        }
        common.databases.lock().remove(id);
        *self.health.lock.lock() = None;
        self.events.end();
    }

    pub fn share_memory(&self, files: &crate::version::FileSet) {
        self.tenant.set_resident(files.resident_bytes());
        self.share_memory_again();
    }

    pub fn share_memory_again(&self) {
        self.tenant.set_frozen(self.cell.state.load().frozen.iter().map(|memtable| memtable.bytes()).sum());
        self.tenant.common.share_memory();
    }

    /// A successor has taken over its memory.
    pub fn leave_memory_to_others(&self) {
        self.tenant.set_frozen(0);
        self.tenant.set_resident(0);
    }

    /// Withdraws `more` bytes from the cache, and returns `less`.
    pub fn reserve(&self, more: usize, less: usize) {
        self.tenant.reserved_jobs.fetch_add(more.wrapping_sub(less), Relaxed);
        self.tenant.common.totals.reserved_jobs.fetch_add(more.wrapping_sub(less), Relaxed);
        self.share_memory_again();
    }

    /// Freezes the active memtable on request, unless a writer is active.
    pub fn freeze_if_asked(&self) -> bool {
        if !self.cell.is_to_freeze.load(Relaxed) || self.health.check_writable().is_err() {
            return false;
        }
        let Some(_write) = self.commits.write.try_lock() else { return false };
        self.cell.is_to_freeze.store(false, Relaxed);
        if !self.cell.state.load().frozen.is_empty() {
            return false;
        }
        self.freeze();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Common, TenantQuota};
    use crate::platform::{Runtime, SystemRuntime};
    use std::sync::Arc;

    const MIB: usize = 1 << 20;

    #[test]
    fn memtables_wait_in_what_all_else_leaves_of_the_budget() {
        let runtime: Arc<dyn Runtime> = Arc::new(SystemRuntime::new());
        let common = Arc::new(Common::new(256 * MIB, 2, &runtime, 16 * MIB, false));
        let member = TenantQuota::new(Arc::clone(&common));
        assert_eq!(common.waiting_bytes_max(), (256 - 32 - 32 - 48) * MIB);
        member.set_resident(118 * MIB);
        assert_eq!(common.waiting_bytes_max(), 26 * MIB);
        member.set_frozen(26 * MIB);
        assert_eq!(
            common.waiting_bytes_max(),
            42 * MIB,
            "beside one memtable, since the second is among those that wait"
        );
        member.set_resident(200 * MIB);
        assert_eq!(common.waiting_bytes_max(), 24 * MIB, "a memtable and a half");
    }

    #[test]
    fn what_threads_work_with_is_a_part_of_a_small_budget() {
        let runtime: Arc<dyn Runtime> = Arc::new(SystemRuntime::new());
        let common = Arc::new(Common::new(100 * MIB, 2, &runtime, 8 * MIB, false));
        let cache_least = 100 * MIB / 8;
        assert_eq!(common.waiting_bytes_max(), 100 * MIB - cache_least - 2 * 8 * MIB - 37 * MIB);
        let none = Arc::new(Common::new(100 * MIB, 0, &runtime, 8 * MIB, false));
        assert_eq!(none.waiting_bytes_max(), 100 * MIB - cache_least - 2 * 8 * MIB);
    }
}
