//! A full disk, once `base/no_space.rs` has recognised it: which operations may use the reserve,
//! which are refused, and when it is refilled.
//!
//! Deletes, manifest edits, flushes, and merges that free space or that the user waits for retry
//! with blocks of the [reserve](crate::db::files::reserve). From then on puts, loads and streams
//! fail with [`Error::DiskFull`], until the reserve is whole.

use super::backpressure;
use crate::{
    base::{EntryKind, Error, NoSpace, Result, TreeId, split_internal_key},
    commit::{PreparedBatch, decode_group},
    db::{
        engine::{
            parts::commits::Request,
            root::Engine,
            settings::Settings,
            slow_commits::{report::SlowCause, timer::CommitTimer},
        },
        files::reserve::{Reserve, Stage, Wanted},
    },
    platform::OpenMode,
    wal::{Lsn, Wal},
};
use std::{path::Path, sync::atomic::Ordering};

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

fn reserve_wanted(engine: &Engine) -> Wanted {
    if let Some(bytes) = engine.settings.disk_reserve {
        return Wanted { bytes, is_asked_for: true };
    }
    let none = Wanted { bytes: 0, is_asked_for: false };
    let Some(volume) = engine.settings.volume_bytes.filter(|_| !engine.settings.is_restoring) else { return none };
    let log_segment = engine.settings.log_segment_bytes();
    let most = engine.settings.memtable_bytes() as u64 + log_segment + RESERVE_BYTES_SPARE;
    let most = most.min(volume / RESERVES_OF_VOLUME);
    if volume < SMALL_VOLUME_BYTES {
        return Wanted { bytes: most, is_asked_for: false };
    }
    let log: u64 = engine.log.wal.iter().flat_map(Wal::segments).map(|segment| segment.len).sum();
    let state = engine.cell.state.load();
    let partitions = state.version.partitions.iter();
    let data: u64 = partitions.flat_map(|p| p.all_runs()).map(|handle| handle.run().meta().file_bytes).sum();
    Wanted { bytes: (RESERVE_BYTES_BASE + log + data / RESERVE_PART_OF_DATA).min(most), is_asked_for: false }
}

pub(in crate::db) fn keep_reserve(engine: &Engine) -> bool {
    keep_reserve_after(engine, false)
}

/// Refills the reserve. Returns whether it is whole, or there is none.
pub(in crate::db) fn keep_reserve_after(engine: &Engine, is_space_back: bool) -> bool {
    if engine.health.check_writable().is_err() {
        return true;
    }
    if let Some(wal) = engine.log.wal.as_ref().filter(|_| engine.storage.reserve.is_used()) {
        wal.trim_spares();
    }
    let is_whole = engine.storage.reserve.keep(reserve_wanted(engine), engine.now_ns(), is_space_back);
    engine.set_refusing(!is_whole);
    is_whole
}

pub(in crate::db) fn refuse_on_full_disk(engine: &Engine) -> Result<()> {
    if engine.maintenance.pressure.is_refusing() && !keep_reserve(engine) {
        return Err(Error::DiskFull { path: engine.dir.clone(), reason: NoSpace::Reserved });
    }
    Ok(())
}

/// Throttles a writer. Refuses one that needs space while the reserve is in use.
pub(in crate::db) fn check_pressure(engine: &Engine, timer: &mut CommitTimer, batch: &PreparedBatch) -> Result<()> {
    let pressure = &engine.maintenance.pressure;
    if pressure.is_refusing() && !batch.frees_space() {
        timer.time(engine, SlowCause::FullDisk, || refuse_on_full_disk(engine))?;
    }
    let len = batch.bytes().len() as u64;
    let slept_ns = pressure.slow_down(len, &*engine.settings.runtime, &engine.counters);
    if slept_ns > 0 {
        let (cause, work) = backpressure::throttled_by(engine);
        timer.add(cause, slept_ns);
        timer.note_background(work);
    }
    Ok(())
}

/// Retries a failed append of deletes with blocks of the reserve.
#[cold]
pub(in crate::db) fn log_with_reserve(
    engine: &Engine,
    wal: &Wal,
    group: &[u8],
    mut append: impl FnMut() -> Result<Lsn>,
    full: Error,
) -> Result<Lsn> {
    if !full.is_disk_full() || !frees_space(group) {
        return Err(full);
    }
    let _in_use = engine.storage.reserve.begin();
    let mut done = Err(full);
    while done.as_ref().is_err_and(Error::is_disk_full) && (wal.trim_spares() > 0 || engine.release_reserve(Stage::Log))
    {
        done = append();
    }
    engine.cell.is_to_freeze.store(true, Ordering::Relaxed);
    engine.signal_work();
    done
}

pub(in crate::db) fn disk_full(engine: &Engine) -> Error {
    Error::DiskFull { path: engine.dir.clone(), reason: NoSpace::Disk }
}

/// Returns whether to retry the deletes of a mixed group alone. Then the reserve is in use.
pub(in crate::db) fn is_to_part(engine: &Engine, group: &[Request]) -> bool {
    let frees = group.iter().filter(|request| request.batch.frees_space()).count();
    (1..group.len()).contains(&frees) && (engine.release_reserve(Stage::Log) || engine.storage.reserve.is_used())
}

/// Repeats a job on a full disk after each step that may free space: removing replaced files,
/// removing spare log segments, and releasing the reserve of `stage`.
pub(in crate::db) fn with_space(engine: &Engine, stage: Option<Stage>, job: impl Fn() -> Result<()>) -> Result<()> {
    let is_full = |done: &Result<()>| done.as_ref().is_err_and(Error::is_disk_full);
    let gone = engine.storage.table.deferred_close.gone();
    let mut done = job();
    if !is_full(&done) {
        return done;
    }
    engine.storage.table.deferred_close.work_through();
    if engine.storage.table.deferred_close.gone() != gone {
        done = job();
    }
    if is_full(&done) && engine.log.wal.as_ref().is_some_and(|wal| wal.trim_spares() > 0) {
        done = job();
    }
    let _in_use = engine.storage.reserve.begin();
    if is_full(&done) && stage.is_some_and(|stage| engine.release_reserve(stage)) {
        done = job();
    }
    done
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
