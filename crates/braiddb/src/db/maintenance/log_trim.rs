//! Trims the log: releases unneeded segments and prepares spare ones.

use super::{background, choose, flush, idle, install};
use crate::{
    base::{Error, FileNumber, Result, SequenceNumber},
    db::{
        engine::{parts::storage::DiskState, root::Engine, thread_pool::Role},
        read::reader_registry,
        write::{full_disk, pipeline},
    },
    wal::Wal,
};
use std::{io, sync::atomic::Ordering};

/// Maximum number of log segments kept while nothing is committed.
pub(super) const LOG_SEGMENTS_MAX: usize = 3;

/// Flushes old segments for reuse if there are more than [`LOG_SEGMENTS_MAX`]. Otherwise each
/// open of a rarely written database would add one.
pub fn trim_log(engine: &Engine) -> Result<()> {
    let Some(wal) = engine.log.wal.as_ref().filter(|wal| wal.segments().len() > LOG_SEGMENTS_MAX) else {
        return Ok(());
    };
    flush::all(engine)?;
    install::release_log(engine, wal)
}

/// Like `trim_log`, for the flusher: it must not wait for a flush, or for a writer that waits
/// for one.
pub(super) fn trim_log_as_flusher(engine: &Engine) -> Result<()> {
    let Some(wal) = engine.log.wal.as_ref().filter(|wal| wal.segments().len() > LOG_SEGMENTS_MAX) else {
        return Ok(());
    };
    let Some(write) = engine.commits.write.try_lock() else { return Ok(()) };
    if engine.cell.state.load().frozen.is_empty() {
        engine.freeze();
    }
    drop(write);
    while let Some(job) = choose::next_job(engine, Role::Flusher, false) {
        if !background::run_job(engine, job) {
            return engine.health.check_writable();
        }
    }
    if engine.cell.state.load().frozen.is_empty() { install::release_log(engine, wal) } else { Ok(()) }
}

/// If the whole log is flushed, continues it in a short segment, so that the long ones can be
/// released.
pub(super) fn shorten_log(engine: &Engine, wal: &Wal) -> Result<()> {
    let state = engine.cell.state.load();
    if !state.active.is_empty() || !state.frozen.is_empty() || !wal.begin_short_segment()? {
        return Ok(());
    }
    drop(state);
    install::release_log(engine, wal)
}

pub(super) fn tidy_log(engine: &Engine) {
    let Some(wal) = engine.log.wal.as_ref().filter(|_| engine.health.check_writable().is_ok()) else { return };
    if let Err(e) = wal.tidy() {
        pipeline::leave_marker(engine);
        engine.poison(&e);
    }
}

/// Prepares the log's next segments ahead of commits, if the write rate calls for them.
pub(super) fn prepare_log(engine: &Engine) {
    let Some(wal) = engine.log.wal.as_ref().filter(|_| engine.health.check_writable().is_ok()) else { return };
    let made = loop {
        match wal.prepare_next() {
            Ok(true) => {}
            other => break other,
        }
    };
    if let Err(e) = made {
        tracing::debug!(error = %e, "no log segment could be made ahead of need");
    }
}

pub(super) fn maintain_log(engine: &Engine) {
    // First, because a commit may soon need it.
    prepare_log(engine);
    if let Err(error) = remove_leftovers(engine) {
        tracing::warn!(%error, "a file that is not needed any more could not be removed; the next open will");
    }
    background::keep_time(engine);
    idle::give_memory_back_if_due(engine);
    reader_registry::check_if_due(engine);
    tidy_log(engine);
    full_disk::keep_reserve(engine);
}

/// Syncs the retained or archived log before an edit shortens recovery. Otherwise a crash could
/// keep the runs and lose the log of their commits.
pub(in crate::db) fn sync_retained(engine: &Engine) -> Result<()> {
    match engine.log.wal.as_ref().filter(|wal| wal.retention().is_on() || engine.log.archiver.is_some()) {
        Some(wal) => pipeline::sync_to(engine, wal.end_lsn()),
        None => Ok(()),
    }
}

/// Returns the blob bytes retained for the log alone: see `blob_store.rs`.
pub(in crate::db) fn held_beside_log(engine: &Engine, disk: &DiskState) -> Vec<(SequenceNumber, u64)> {
    let is_on = engine.log.wal.as_ref().is_some_and(|wal| wal.retention().is_on());
    if is_on { engine.storage.blobs.held_bytes(disk.manifest.layout(), &*engine.storage.table.vfs) } else { Vec::new() }
}

/// After the edit, releases segments that neither recovery nor the limits need.
pub(in crate::db) fn release_segments(
    engine: &Engine,
    wal: &Wal,
    oldest_segment: FileNumber,
    beside: &[(SequenceNumber, u64)],
) {
    let bytes_above = |floor| beside.iter().filter(|(sequence, _)| *sequence > floor).map(|(_, bytes)| bytes).sum();
    wal.release_with(oldest_segment, bytes_above);
    if wal.retention().is_on() {
        engine.storage.blobs.hold_above(wal.floor());
    }
}

/// Removes unreferenced files of earlier opens. The next open retries failures, and files not
/// reached before the close.
pub fn remove_leftovers(engine: &Engine) -> Result<()> {
    let leftovers = std::mem::take(&mut *engine.storage.leftovers.lock());
    let mut result = Ok(());
    for path in leftovers {
        if engine.health.closing.load(Ordering::Acquire) {
            break;
        }
        match engine.storage.table.vfs.remove(&path) {
            // A reader of an earlier, closed handle removed the file with its last reference.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            done => result = result.and(done.map_err(|e| Error::io("remove", &path, e))),
        }
    }
    result
}
