//! A full disk, once `base/no_space.rs` has recognised it: which operations may use the reserve,
//! which are refused, and when it is refilled.
//!
//! Deletes, manifest edits, flushes, and merges that free space or that the user waits for retry
//! with blocks of the [reserve](crate::db::files::reserve). From then on puts, loads and streams
//! fail with [`Error::DiskFull`], until the reserve is whole.

use crate::{
    base::{EntryKind, Error, NoSpace, Result, TreeId, split_internal_key},
    commit::{PreparedBatch, decode_group},
    compaction::Plan,
    db::{
        engine::{parts::commits::Request, root::Engine, settings::Settings},
        files::reserve::{Reserve, Stage, Wanted},
    },
    platform::OpenMode,
    version::Partition,
    wal::{Lsn, Wal},
};
use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// Maximum repetitions of a compaction while background jobs occupy the space.
const COMPACT_TRIES: u32 = 4;

/// Smaller volumes limit the sizes of memtables, log segments and partitions.
const SMALL_VOLUME_BYTES: u64 = 2 << 30;

/// Divisors of a volume's size, for the maximum sizes of partitions, memtables and log segments on
/// a small volume, and of the reserve on any volume.
const PARTITIONS_OF_VOLUME: u64 = 16;
const MEMTABLES_OF_VOLUME: u64 = 32;
const SEGMENTS_OF_VOLUME: u64 = 64;
const RESERVES_OF_VOLUME: u64 = 8;

const PARTITION_BYTES_LEAST: u64 = 512 << 10;
const MEMTABLE_BYTES_LEAST: u64 = 128 << 10;
const SEGMENT_BYTES_LEAST: u64 = 64 << 10;

/// Maximum trees to separate in a partition. More would make more small files than the merges free.
const TREES_PARTED_MAX: usize = 16;

/// Bytes of the maximum reserve beyond a memtable and a log segment.
const RESERVE_BYTES_SPARE: u64 = 1 << 20;

/// The reserve has this many bytes, the length of the log, and this part of the data.
const RESERVE_BYTES_BASE: u64 = 512 << 10;
const RESERVE_PART_OF_DATA: u64 = 64;

impl Settings {
    /// On a small volume, a reserve suffices only for small memtables and partitions.
    pub(in crate::db) fn for_volume(self, dir: &Path) -> Settings {
        let volume_bytes = self.vfs.total_space(dir).ok().flatten();
        let Some(volume) = volume_bytes.filter(|bytes| *bytes < SMALL_VOLUME_BYTES) else {
            return Settings { volume_bytes, ..self };
        };
        let memtable = (volume / MEMTABLES_OF_VOLUME).max(MEMTABLE_BYTES_LEAST);
        let memtable = usize::try_from(memtable).unwrap_or(usize::MAX).min(self.memtable_bytes());
        let partition = (volume / PARTITIONS_OF_VOLUME).max(PARTITION_BYTES_LEAST).min(self.partition_bytes());
        let segment = (volume / SEGMENTS_OF_VOLUME).max(SEGMENT_BYTES_LEAST).min(self.log_segment_bytes);
        Settings {
            volume_bytes,
            memtable_bytes: self.memtable_bytes.or(Some(memtable)),
            partition_bytes: self.partition_bytes.or(Some(partition)),
            log_segment_bytes: segment,
            ..self
        }
    }
}

/// Returns whether a group only deletes. Catalog entries do not count, except new trees.
fn frees_space(group: &[u8]) -> bool {
    let mut frees = true;
    let decoded = decode_group(group, |_, op| {
        let is_harmless = match (op.kind, split_internal_key(op.key)) {
            (EntryKind::Tombstone | EntryKind::RangeDelete, _) => true,
            (_, Some((TreeId::CATALOG, [tag, ..]))) => *tag != b'i',
            _ => false,
        };
        frees &= is_harmless;
    });
    frees && decoded.is_some()
}

impl PreparedBatch {
    pub(in crate::db) fn frees_space(&self) -> bool {
        frees_space(self.bytes())
    }
}

impl Engine {
    fn reserve_wanted(&self) -> Wanted {
        if let Some(bytes) = self.settings.disk_reserve {
            return Wanted { bytes, is_asked_for: true };
        }
        let none = Wanted { bytes: 0, is_asked_for: false };
        let Some(volume) = self.settings.volume_bytes.filter(|_| !self.settings.is_restoring) else { return none };
        let log_segment = self.settings.log_segment_bytes();
        let most = self.settings.memtable_bytes() as u64 + log_segment + RESERVE_BYTES_SPARE;
        let most = most.min(volume / RESERVES_OF_VOLUME);
        if volume < SMALL_VOLUME_BYTES {
            return Wanted { bytes: most, is_asked_for: false };
        }
        let log: u64 = self.log.wal.iter().flat_map(Wal::segments).map(|segment| segment.len).sum();
        let state = self.cell.state.load();
        let partitions = state.version.partitions.iter();
        let data: u64 = partitions.flat_map(|p| p.all_runs()).map(|handle| handle.run().meta().file_bytes).sum();
        Wanted { bytes: (RESERVE_BYTES_BASE + log + data / RESERVE_PART_OF_DATA).min(most), is_asked_for: false }
    }

    pub(in crate::db) fn keep_reserve(&self) -> bool {
        self.keep_reserve_after(false)
    }

    /// Refills the reserve. Returns whether it is whole, or there is none.
    pub(in crate::db) fn keep_reserve_after(&self, is_space_back: bool) -> bool {
        if self.health.check_writable().is_err() {
            return true;
        }
        if let Some(wal) = self.log.wal.as_ref().filter(|_| self.storage.reserve.is_used()) {
            wal.trim_spares();
        }
        let is_whole = self.storage.reserve.keep(self.reserve_wanted(), self.now_ns(), is_space_back);
        self.maintenance.pressure.set_refusing(!is_whole);
        is_whole
    }

    pub(in crate::db) fn refuse_on_full_disk(&self) -> Result<()> {
        if self.maintenance.pressure.is_refusing() && !self.keep_reserve() {
            return Err(Error::DiskFull { path: self.dir.clone(), reason: NoSpace::Reserved });
        }
        Ok(())
    }

    /// Throttles a writer. Refuses one that needs space while the reserve is in use.
    pub(in crate::db) fn check_pressure(&self, batch: &PreparedBatch) -> Result<()> {
        if self.maintenance.pressure.is_refusing() && !batch.frees_space() {
            self.refuse_on_full_disk()?;
        }
        let len = batch.bytes().len() as u64;
        self.maintenance.pressure.slow_down(len, &*self.settings.runtime, &self.counters);
        Ok(())
    }

    /// Retries a failed append of deletes with blocks of the reserve.
    #[cold]
    pub(in crate::db) fn log_with_reserve(
        &self,
        wal: &Wal,
        group: &[u8],
        mut append: impl FnMut() -> Result<Lsn>,
        full: Error,
    ) -> Result<Lsn> {
        if !full.is_disk_full() || !frees_space(group) {
            return Err(full);
        }
        let _in_use = self.storage.reserve.begin();
        let mut done = Err(full);
        while done.as_ref().is_err_and(Error::is_disk_full) && (wal.trim_spares() > 0 || self.release(Stage::Log)) {
            done = append();
        }
        self.cell.is_to_freeze.store(true, Ordering::Relaxed);
        self.signal_work();
        done
    }

    /// Flushes, to free log segments in blocks of the reserve. Otherwise processes that open,
    /// delete and exit would use it up.
    pub(in crate::db) fn shorten_log_on_full_disk(&self) -> Result<()> {
        if !self.storage.reserve.is_used() {
            return Ok(());
        }
        match self.flush_all() {
            Err(error) if error.is_disk_full() => {
                tracing::warn!(%error, "the disk is full: the log could not be shortened");
            }
            done => done?,
        }
        self.storage.table.deferred_close.work_through();
        self.keep_reserve_after(true);
        Ok(())
    }

    pub(in crate::db) fn disk_full(&self) -> Error {
        Error::DiskFull { path: self.dir.clone(), reason: NoSpace::Disk }
    }

    /// Returns whether to retry the deletes of a mixed group alone. Then the reserve is in use.
    pub(in crate::db) fn is_to_part(&self, group: &[Request]) -> bool {
        let frees = group.iter().filter(|request| request.batch.frees_space()).count();
        (1..group.len()).contains(&frees) && (self.release(Stage::Log) || self.storage.reserve.is_used())
    }

    pub(in crate::db) fn release(&self, stage: Stage) -> bool {
        let is_released = self.storage.reserve.release(stage);
        if is_released {
            self.maintenance.pressure.set_refusing(true);
        }
        is_released
    }

    /// Repeats a job on a full disk after each step that may free space: removing replaced files,
    /// removing spare log segments, and releasing the reserve of `stage`.
    pub(in crate::db) fn with_space(&self, stage: Option<Stage>, job: impl Fn() -> Result<()>) -> Result<()> {
        let is_full = |done: &Result<()>| done.as_ref().is_err_and(Error::is_disk_full);
        let gone = self.storage.table.deferred_close.gone();
        let mut done = job();
        if !is_full(&done) {
            return done;
        }
        self.storage.table.deferred_close.work_through();
        if self.storage.table.deferred_close.gone() != gone {
            done = job();
        }
        if is_full(&done) && self.log.wal.as_ref().is_some_and(|wal| wal.trim_spares() > 0) {
            done = job();
        }
        let _in_use = self.storage.reserve.begin();
        if is_full(&done) && stage.is_some_and(|stage| self.release(stage)) {
            done = job();
        }
        done
    }

    /// Merges these partitions wholly, or on a full disk in parts. Partitions without space wait
    /// for the space that the other merges free.
    pub(in crate::db) fn compact_each(&self, mut ids: Vec<u64>) -> Result<()> {
        let _in_use = self.storage.reserve.begin();
        let mut tries_left = COMPACT_TRIES;
        loop {
            let mut refused = Vec::new();
            let mut full = None;
            let mut is_any_merged = false;
            for id in ids {
                let whole = self.find_partition(id);
                let merged = self.compact_partition(id);
                self.storage.table.deferred_close.work_through();
                match (merged, whole) {
                    (Err(error), Some(whole)) if error.is_disk_full() => {
                        let (left, is_part_merged) = self.compact_in_parts(&whole)?;
                        is_any_merged |= is_part_merged;
                        refused.extend(left);
                        full = Some(error);
                    }
                    (merged, _) => {
                        merged?;
                        is_any_merged = true;
                    }
                }
            }
            match full.filter(|_| !refused.is_empty()) {
                None => return Ok(()),
                Some(error) if !is_any_merged && tries_left == 0 => return Err(error),
                Some(_) => {
                    tries_left = if is_any_merged { COMPACT_TRIES } else { tries_left - 1 };
                    self.wait_for_jobs();
                    ids = refused;
                }
            }
        }
    }

    fn wait_for_jobs(&self) {
        let mut work = self.maintenance.work.lock();
        for _ in 0..500 {
            if !work.flushing && work.busy.is_empty() {
                break;
            }
            self.maintenance.work_changed.wait_for(&mut work, Duration::from_millis(10));
        }
    }

    /// All partitions are merged by then, so a full disk only delays views.
    pub(in crate::db) fn settle_after_compaction(&self, jobs_max: usize) -> Result<()> {
        match self.run_until_settled(jobs_max) {
            Err(error) if error.is_disk_full() => {
                tracing::warn!(%error, "everything is compacted; what is left to tidy up waits for space");
                Ok(())
            }
            done => done,
        }
    }

    pub fn compact_partition(&self, id: u64) -> Result<()> {
        self.compact_by(id, |partition| self.whole_merge(partition))
    }

    fn find_partition(&self, id: u64) -> Option<Arc<Partition>> {
        self.cell.state.load().version.partitions.iter().find(|p| p.id == id).map(Arc::clone)
    }

    /// Merges a partition in parts, each installed before the next, so that it frees space. Trees
    /// are first cut apart: runs of a tree written in key order would all reach into the next tree
    /// if it received writes meanwhile. Returns the partitions without space, and whether any part
    /// was merged.
    fn compact_in_parts(&self, whole: &Partition) -> Result<(BTreeSet<u64>, bool)> {
        let (start, end) = (&whole.layout.start, &whole.layout.end);
        let (mut merged, mut stuck) = (BTreeSet::new(), BTreeSet::new());
        loop {
            let state = self.cell.state.load_full();
            let is_inside =
                |p: &Partition| p.layout.start >= *start && end.as_ref().is_none_or(|end| p.layout.start < *end);
            // From the end: the newest tree is often small.
            let is_next = |p: &&Arc<Partition>| is_inside(p) && !merged.contains(&p.id) && !stuck.contains(&p.id);
            let Some(next) = state.version.partitions.iter().rev().find(is_next).map(Arc::clone) else { break };
            drop(state);
            let cut = self.last_tree_of(&next);
            let is_cut = cut.is_some();
            let plan = cut.map_or(Plan::Prefix, |at| Plan::Cut { at });
            let done = self.compact_by(next.id, |_| plan.clone());
            self.storage.table.deferred_close.work_through();
            match done {
                Err(error) if error.is_disk_full() => {
                    stuck.insert(next.id);
                    continue;
                }
                done => done?,
            }
            if is_cut {
                continue;
            }
            stuck.clear();
            let state = self.cell.state.load();
            merged.extend(state.version.partitions.iter().find(|p| p.layout.start == next.layout.start).map(|p| p.id));
        }
        Ok((stuck, !merged.is_empty()))
    }

    fn last_tree_of(&self, partition: &Partition) -> Option<Vec<u8>> {
        let (start, end) = (&partition.layout.start, &partition.layout.end);
        let is_inside = |at: &Vec<u8>| at > start && end.as_ref().is_none_or(|end| at < end);
        let trees = self.catalog.by_name.read();
        let begins: Vec<Vec<u8>> = trees.values().map(|tree| tree.id.first_key().to_vec()).filter(is_inside).collect();
        drop(trees);
        if begins.len() > TREES_PARTED_MAX {
            return None;
        }
        let reaches = |at: &&Vec<u8>| {
            let mut metas = partition.all_runs().map(|handle| handle.run().meta());
            let mut others = partition.all_runs().map(|handle| handle.run().meta());
            metas.any(|meta| meta.largest >= **at) && others.any(|meta| meta.smallest < **at)
        };
        begins.iter().filter(reaches).max().cloned()
    }

    /// Carries out a plan. A whole merge without space is replaced by one that separates the trees or
    /// merges only the first keys.
    pub(in crate::db) fn run_partition_or_prefix(&self, partition: &Arc<Partition>, plan: &Plan) -> Result<()> {
        let stage = self.stage_of(partition);
        let done = self.run_partition(partition, plan, stage);
        let is_of_all = match plan {
            Plan::Split => true,
            Plan::Major { inputs } => inputs.len() == partition.all_runs().count(),
            _ => false,
        };
        match done {
            Err(error) if is_of_all && stage.is_some() && error.is_disk_full() => {
                let less = self.last_tree_of(partition).map_or(Plan::Prefix, |at| Plan::Cut { at });
                self.run_partition(partition, &less, stage)
            }
            done => done,
        }
    }

    /// Returns the part of the reserve for a background merge. Usually there is none, unless it
    /// drops range tombstones or more than a tenth of the entries, or there are too many unindexed
    /// runs. Each takes whole disk blocks.
    pub(in crate::db) fn stage_of(&self, partition: &Arc<Partition>) -> Option<Stage> {
        let is_worth_it = || partition.counts().is_some_and(|(entries, dead)| dead.saturating_mul(10) > entries);
        let is_crowded = partition.layout.loose.len() > self.settings.loose_runs;
        (is_crowded || partition.tombstones.is_some() || is_worth_it()).then_some(Stage::Merge)
    }
}

/// Runs `open`, on a full disk with blocks of the reserve in `dir`.
pub(in crate::db) fn open_with_reserve<T>(settings: &Settings, dir: &Path, open: impl Fn() -> Result<T>) -> Result<T> {
    let mut done = open();
    while let Err(error) = &done {
        if !error.is_disk_full() || !release_to_open(settings, dir) {
            break;
        }
        done = open();
    }
    done
}

fn release_to_open(settings: &Settings, dir: &Path) -> bool {
    let lock = settings.vfs.lock(&dir.join(crate::db::files::names::LOCK_NAME), &settings.runtime.process_name());
    let Ok(Ok(_lock)) = lock else { return false };
    Reserve::open(&settings.vfs, &settings.runtime, dir, OpenMode::ReadWrite).release(Stage::Log)
}
