//! Edits of the manifest: written, synced, and published as a new read state, one at a time.

use super::{
    parts::{state_cell::Memtables, storage::DiskState},
    root::Engine,
};
use crate::{
    base::{Error, Result},
    db::files::reserve::Stage,
    memtable::Memtable,
    read::ReadState,
    version::{Change, Edit, Layout},
};
use std::sync::{Arc, atomic::Ordering};

/// Minimum change of the clock's lead that is recorded. Gradual clock corrections stay below it.
const TIME_AHEAD_US_MIN: u64 = 1_000_000;

pub(in crate::db) fn apply(engine: &Engine, changes: Vec<Change>) -> Result<()> {
    apply_locked(engine, &mut engine.storage.disk.lock(), changes, None)
}

fn time_change(engine: &Engine) -> Change {
    Change::Time { now_us: engine.now().us, ahead_us: engine.ahead_us() }
}

/// Records in the manifest how far time is ahead of the wall clock, if a change of the clock
/// altered it.
pub fn note_time(engine: &Engine) -> Result<()> {
    let noted_us = engine.clock.noted_ahead_us.load(Ordering::Relaxed);
    if engine.ahead_us().abs_diff(noted_us) < TIME_AHEAD_US_MIN {
        return Ok(());
    }
    apply_locked(engine, &mut engine.storage.disk.lock(), Vec::new(), None)
}

/// Writes an edit and publishes its version. The caller has synced the version's files and the
/// directory.
pub fn apply_locked(
    engine: &Engine,
    disk: &mut DiskState,
    changes: Vec<Change>,
    flushed: Option<&Arc<Memtable>>,
) -> Result<()> {
    let memtables = flushed.map_or(Memtables::Same, Memtables::Flushed);
    let done = engine.catch_panic("an edit", || try_apply(engine, disk, changes, memtables));
    done.unwrap_or_else(|reason| Err(Error::ReadOnly { reason }))
}

/// Like [`apply_locked`], but also switches to a new memtable, which readers of the old state do not
/// have. The caller holds the write lock.
pub(in crate::db) fn apply_with_fresh_memtable(
    engine: &Engine,
    disk: &mut DiskState,
    changes: Vec<Change>,
) -> Result<()> {
    let done = engine.catch_panic("an edit", || try_apply(engine, disk, changes, Memtables::Fresh));
    done.unwrap_or_else(|reason| Err(Error::ReadOnly { reason }))
}

fn try_apply(engine: &Engine, disk: &mut DiskState, mut changes: Vec<Change>, memtables: Memtables<'_>) -> Result<()> {
    check_not_failed(engine)?;
    // After the close, another process may own the files.
    engine.health.check_open()?;
    changes.push(Change::NextFile(engine.storage.next_file.load(Ordering::Relaxed)));
    let time = time_change(engine);
    if let Change::Time { ahead_us, .. } = &time {
        engine.clock.noted_ahead_us.store(*ahead_us, Ordering::Relaxed);
    }
    changes.push(time);
    let edit = Edit::new(changes);
    let mut committed = disk.manifest.commit(&edit);
    // An edit is small, and no space is reclaimed without it.
    if committed.as_ref().is_err_and(Error::is_disk_full) && engine.release_reserve(Stage::Log) {
        committed = disk.manifest.commit(&edit);
    }
    committed.inspect_err(|e| {
        if !e.is_disk_full() {
            engine.poison(e);
        }
    })?;
    engine.counters.manifest_bytes.store(disk.manifest.bytes_written(), Ordering::Relaxed);
    engine.storage.next_file.fetch_max(disk.manifest.layout().next_file, Ordering::Relaxed);
    let before = Arc::clone(&engine.cell.state.load().version);
    let version = disk.files.version(disk.manifest.layout(), Some(&before)).inspect_err(|e| engine.poison(e))?;
    drop(before);
    engine.publish_version(version, memtables, &disk.files);
    let flushed = disk.manifest.layout().flushed;
    if engine.storage.flushed.swap(flushed, Ordering::AcqRel) != flushed {
        engine.log.watches.wake_if_waiting_anywhere();
    }
    disk.files.release_unused(disk.manifest.layout());
    release_blobs(engine, disk.manifest.layout());
    Ok(())
}

fn check_not_failed(engine: &Engine) -> Result<()> {
    if engine.health.has_failed() {
        let failure = engine.health.failure();
        return Err(failure.map_or(Error::Closed, |reason| Error::ReadOnly { reason }));
    }
    Ok(())
}

/// Releases unreferenced blob files, as every edit does.
pub fn reclaim_blobs(engine: &Engine) {
    // The thread that drops a stream may already be inside a call.
    let Ok(_inside) = engine.health.enter_past_closing() else { return };
    if engine.health.check_writable().is_ok() {
        release_blobs(engine, engine.storage.disk.lock().manifest.layout());
    }
}

/// Defers the removal of unused blob files until the readers of all states so far are gone.
fn release_blobs(engine: &Engine, layout: &Layout) {
    let released = engine.storage.blobs.release_unused(layout);
    let sparse = engine.storage.blobs.sparse_files(layout, &*engine.storage.table.vfs);
    let mut work = engine.maintenance.work.lock();
    work.sparse_blobs = sparse.into_iter().filter(|file| !work.unmovable_blobs.contains(file)).collect();
    drop(work);
    if released.is_empty() {
        return;
    }
    let change = engine.cell.change.lock();
    let old = engine.cell.state.load_full();
    let state = ReadState {
        active: Arc::clone(&old.active),
        frozen: old.frozen.clone(),
        version: Arc::clone(&old.version),
        garbage: old.garbage.follow(released),
    };
    engine.publish(&change, state);
}
