//! Detects that the database is idle, and then settles it: trims the log, marks it complete, frees
//! preallocated memory, and freezes memtables with expired values.

use super::{choose::EXPIRED_HUNDREDTH_FOR_US_MAX, log_trim};
use crate::{
    db::engine::{parts::maintenance::WorkState, root::Engine},
    platform::WHOLE,
};
use std::sync::atomic::Ordering;

#[cfg(test)]
mod tests;

/// Time without a commit or flush after which the database counts as idle.
const IDLE_NS: u64 = 300_000_000;

/// Minimum time to keep preallocated memtable memory after the last commit or flush.
const MEMORY_KEPT_NS: u64 = 10_000_000_000;

impl Engine {
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
    pub(super) fn detect_idle(&self, work: &mut WorkState) -> bool {
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
    pub(super) fn settle(&self) {
        let Some(wal) = &self.log.wal else { return };
        if self.health.check_writable().is_err() {
            return;
        }
        wal.trim_spares();
        let trimmed = log_trim::trim_log_as_flusher(self).and_then(|()| log_trim::shorten_log(self, wal));
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

    /// Freezes a memtable with a value expired for a day, which would otherwise stay forever.
    /// Returns whether it did.
    pub(super) fn freeze_expired(&self) -> bool {
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
