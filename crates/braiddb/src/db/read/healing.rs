//! Reads that repair: a damaged view is set aside, and the read is tried again without it.

use crate::{
    base::{Error, FileNumber, Result},
    db::{
        engine::{
            events::event::Event,
            parts::{state_cell::Memtables, storage::DiskState},
            root::Engine,
        },
        files::names::damaged_view,
    },
};
use std::sync::{Arc, atomic::Ordering};

/// Maximum retries of a read after damaged views were set aside.
pub(in crate::db) const HEAL_TRIES: usize = 64;

pub(in crate::db) fn retry<R>(engine: &Engine, mut read: impl FnMut() -> Result<R>) -> Result<R> {
    for _ in 0..HEAL_TRIES {
        match read() {
            Err(e) => set_aside_or_fail(engine, e)?,
            done => return done,
        }
    }
    read()
}

/// Sets aside the damaged view that `error` names; returns any other error.
pub fn set_aside_or_fail(engine: &Engine, error: Error) -> Result<()> {
    // After a close, a new owner may have removed the file.
    engine.health.check_open()?;
    match damaged_view(&error) {
        Some(number) => set_view_aside(engine, number, &error),
        None => Err(error),
    }
}

/// Marks a view as damaged, so that reads use the runs' own views until it is rebuilt.
pub fn set_view_aside(engine: &Engine, number: FileNumber, reason: &Error) -> Result<()> {
    let mut disk = engine.storage.disk.lock();
    // A superseded follower has released its files: nothing may open them again.
    engine.health.check_open()?;
    if disk.files.damaged_views().contains_key(&number) {
        return Ok(());
    }
    tracing::warn!(number, %reason, "a view is damaged and will be rebuilt");
    engine.events.emit(|| Event::ViewDamaged { file_number: number });
    disk.files.set_view_damaged(number, reason.to_string());
    let before = Arc::clone(&engine.cell.state.load().version);
    let DiskState { manifest, files } = &mut *disk;
    let version = files.version(manifest.layout(), Some(&before))?;
    drop(before);
    engine.publish_version(version, Memtables::Same, files);
    engine.counters.views_healed.fetch_add(1, Ordering::Relaxed);
    Ok(())
}
