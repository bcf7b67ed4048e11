//! Detects that the database is idle, and then settles it: trims the log, marks it complete, frees
//! preallocated memory, and freezes memtables with expired values.

use super::{choose::EXPIRED_HUNDREDTH_FOR_US_MAX, install, log_trim};
use crate::{
    db::{
        engine::{parts::maintenance::WorkState, root::Engine},
        write::pipeline,
    },
    platform::WHOLE,
};
use std::sync::atomic::Ordering;

#[cfg(test)]
mod tests;

/// Time without a commit or flush after which the database counts as idle.
const IDLE_NS: u64 = 300_000_000;

/// Minimum time to keep preallocated memtable memory after the last commit or flush.
const MEMORY_KEPT_NS: u64 = 10_000_000_000;

/// Frees memory preallocated for memtables if none was needed for [`MEMORY_KEPT_NS`].
pub(super) fn give_memory_back_if_due(engine: &Engine) {
    let (idle, quiet_since_ns) = {
        let work = engine.maintenance.work.lock();
        (work.idle, work.quiet_since_ns)
    };
    let long_ago_ns = engine.now_ns().saturating_sub(MEMORY_KEPT_NS);
    if idle && quiet_since_ns <= long_ago_ns {
        engine.tenant.common.trim(long_ago_ns);
    }
}

/// Records whether anything was committed or flushed since the last check. Returns whether the
/// database just became idle.
pub(super) fn detect_idle(engine: &Engine, work: &mut WorkState) -> bool {
    // A frozen memtable waits for space: the database is not idle.
    let counters = &engine.counters;
    let seen = counters.commits.load(Ordering::Relaxed) + counters.flushes.load(Ordering::Relaxed);
    if !engine.cell.state.load().frozen.is_empty() {
        work.idle = false;
        return false;
    }
    let now = engine.now_ns();
    if seen != work.seen {
        work.seen = seen;
        work.quiet_since_ns = now;
        work.idle = false;
        engine.storage.set_pace(engine.maintenance.pressure.share_of_merges(engine.settings.loose_runs));
    } else if !work.idle && now.saturating_sub(work.quiet_since_ns) >= IDLE_NS {
        work.idle = true;
        engine.storage.set_pace(WHOLE);
        return true;
    }
    false
}

/// Runs when the database becomes idle. Frees spare segments, and marks the log complete, so
/// that damage to its last record differs from a torn end.
pub(super) fn settle(engine: &Engine) {
    let Some(wal) = &engine.log.wal else { return };
    if engine.health.check_writable().is_err() {
        return;
    }
    wal.trim_spares();
    let trimmed = log_trim::trim_log_as_flusher(engine).and_then(|()| log_trim::shorten_log(engine, wal));
    let noted = trimmed.and_then(|()| wal.note_durable());
    match noted {
        Ok(()) => {
            wal.trim_spares();
        }
        Err(e) if e.is_disk_full() => {}
        Err(e) => {
            pipeline::leave_marker(engine);
            engine.poison(&e);
        }
    }
}

/// Freezes a memtable with a value expired for a day, which would otherwise stay forever.
/// Returns whether it did.
pub(super) fn freeze_expired(engine: &Engine) -> bool {
    let earliest = engine.cell.state.load().active.earliest_expiry();
    if earliest == u64::MAX || engine.health.check_writable().is_err() {
        return false;
    }
    let is_due = install::expired_by_us(engine).saturating_sub(EXPIRED_HUNDREDTH_FOR_US_MAX) >= earliest;
    let Some(_write) = engine.commits.write.try_lock().filter(|_| is_due) else { return false };
    if !engine.cell.state.load().frozen.is_empty() {
        return false;
    }
    engine.freeze();
    true
}
