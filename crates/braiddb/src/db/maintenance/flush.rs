//! Flushes: writes frozen memtables as runs, and freezes the active one on request. A commit that
//! finds the active memtable full freezes it: `make_room` in `write/pipeline.rs`.

use super::{background, choose::Job, install};
use crate::{
    base::{Error, Result, SequenceNumber},
    db::{
        engine::{parts::commits::GroupDelay, root::Engine},
        files::reserve::Stage,
        read::reader_registry,
        write::{backpressure, full_disk, pipeline, wal_bypass},
    },
};
use std::{sync::atomic::Ordering, time::Duration};

pub fn all(engine: &Engine) -> Result<()> {
    freeze_now(engine)?;
    up_to(engine, u64::MAX)
}

/// Flushes like [`all`], without waiting for concurrent commits. Returns a
/// sequence number up to which all commits are in runs.
pub fn committed(engine: &Engine) -> Result<SequenceNumber> {
    let last = freeze_now(engine)?;
    up_to(engine, last)?;
    Ok(last)
}

/// Freezes the active memtable. Returns the last commit before that.
pub(super) fn freeze_now(engine: &Engine) -> Result<SequenceNumber> {
    engine.health.check_writable()?;
    reader_registry::check(engine);
    let _write = engine.commits.write.lock();
    backpressure::wait(engine, &mut GroupDelay::default())?;
    engine.freeze();
    Ok(engine.readers.snapshots.visible())
}

/// Flushes like [`frozen`]. Without background threads, also runs the work that is then
/// due.
pub(in crate::db) fn up_to(engine: &Engine, last: SequenceNumber) -> Result<()> {
    frozen(engine, last)?;
    if engine.settings.background_threads == 0 {
        background::run_inline(engine, &mut |_, _| ());
    }
    Ok(())
}

/// Flushes all frozen memtables that only have commits up to `last`, or waits for the workers
/// to do so. The caller may hold the write lock.
pub fn frozen(engine: &Engine, last: SequenceNumber) -> Result<()> {
    // The last memtable is the oldest.
    while engine.cell.state.load().frozen.last().is_some_and(|memtable| memtable.max_sequence() <= last) {
        engine.health.check_writable()?;
        let mut work = engine.maintenance.work.lock();
        if work.flushing {
            engine.maintenance.work_changed.wait_for(&mut work, Duration::from_millis(10));
            continue;
        }
        work.flushing = true;
        drop(work);
        if !background::run_job(engine, Job::Flush) {
            engine.health.check_writable()?;
            return Err(full_disk::disk_full(engine));
        }
    }
    Ok(())
}

pub(super) fn run_flush(engine: &Engine) -> Result<()> {
    let done = engine.catch_panic("a flush", || {
        full_disk::with_space(engine, Some(Stage::Flush), || install::flush_oldest(engine).map(|_| ()))
    });
    done.unwrap_or_else(|reason| Err(Error::ReadOnly { reason }))
}

pub(in crate::db) fn make_durable(engine: &Engine, sequence: SequenceNumber) -> Result<()> {
    engine.health.check_writable()?;
    if engine.storage.flushed.load(Ordering::Acquire) >= sequence {
        return Ok(());
    }
    if wal_bypass::has_unlogged(engine) {
        return all(engine);
    }
    engine.log.wal.as_ref().map_or(Ok(()), |wal| pipeline::sync_to(engine, wal.end_lsn()))
}

/// Flushes, to free log segments in blocks of the reserve. Otherwise processes that open,
/// delete and exit would use it up.
pub(in crate::db) fn shorten_log_on_full_disk(engine: &Engine) -> Result<()> {
    if !engine.storage.reserve.is_used() {
        return Ok(());
    }
    match all(engine) {
        Err(error) if error.is_disk_full() => {
            tracing::warn!(%error, "the disk is full: the log could not be shortened");
        }
        done => done?,
    }
    engine.storage.table.deferred_close.work_through();
    full_disk::keep_reserve_after(engine, true);
    Ok(())
}
