//! Trims the log: releases unneeded segments and prepares spare ones.

use crate::{
    base::Result,
    db::engine::{root::Engine, thread_pool::Role},
    wal::Wal,
};

/// Maximum number of log segments kept while nothing is committed.
pub(super) const LOG_SEGMENTS_MAX: usize = 3;

impl Engine {
    /// Flushes old segments for reuse if there are more than [`LOG_SEGMENTS_MAX`]. Otherwise each
    /// open of a rarely written database would add one.
    pub fn trim_log(&self) -> Result<()> {
        let Some(wal) = self.log.wal.as_ref().filter(|wal| wal.segments().len() > LOG_SEGMENTS_MAX) else {
            return Ok(());
        };
        self.flush_all()?;
        self.release_log(wal)
    }

    /// Like `trim_log`, for the flusher: it must not wait for a flush, or for a writer that waits
    /// for one.
    pub(super) fn trim_log_as_flusher(&self) -> Result<()> {
        let Some(wal) = self.log.wal.as_ref().filter(|wal| wal.segments().len() > LOG_SEGMENTS_MAX) else {
            return Ok(());
        };
        let Some(write) = self.commits.write.try_lock() else { return Ok(()) };
        if self.cell.state.load().frozen.is_empty() {
            self.freeze();
        }
        drop(write);
        while let Some(job) = self.next_job(Role::Flusher, false) {
            if !self.run_job(job) {
                return self.health.check_writable();
            }
        }
        if self.cell.state.load().frozen.is_empty() { self.release_log(wal) } else { Ok(()) }
    }

    /// If the whole log is flushed, continues it in a short segment, so that the long ones can be
    /// released.
    pub(super) fn shorten_log(&self, wal: &Wal) -> Result<()> {
        let state = self.cell.state.load();
        if !state.active.is_empty() || !state.frozen.is_empty() || !wal.begin_short_segment()? {
            return Ok(());
        }
        drop(state);
        self.release_log(wal)
    }

    pub(super) fn tidy_log(&self) {
        let Some(wal) = self.log.wal.as_ref().filter(|_| self.health.check_writable().is_ok()) else { return };
        if let Err(e) = wal.tidy() {
            self.leave_marker();
            self.poison(&e);
        }
    }

    /// Prepares the log's next segments ahead of commits, if the write rate calls for them.
    pub(super) fn prepare_log(&self) {
        let Some(wal) = self.log.wal.as_ref().filter(|_| self.health.check_writable().is_ok()) else { return };
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

    pub(super) fn maintain_log(&self) {
        // First, because a commit may soon need it.
        self.prepare_log();
        if let Err(error) = self.remove_leftovers() {
            tracing::warn!(%error, "a file that is not needed any more could not be removed; the next open will");
        }
        self.keep_time();
        self.give_memory_back_if_due();
        self.check_readers_if_due();
        self.tidy_log();
        self.keep_reserve();
    }
}
