//! Flushes: freezes memtables and writes them as runs.

use super::choose::Job;
use crate::{
    base::{Error, Result, SequenceNumber},
    db::{engine::root::Engine, files::reserve::Stage},
};
use std::time::Duration;

impl Engine {
    pub fn flush_all(&self) -> Result<()> {
        self.freeze_now()?;
        self.run_flushes(u64::MAX)
    }

    /// Flushes like [`Engine::flush_all`], without waiting for concurrent commits. Returns a
    /// sequence number up to which all commits are in runs.
    pub fn flush_committed(&self) -> Result<SequenceNumber> {
        let last = self.freeze_now()?;
        self.run_flushes(last)?;
        Ok(last)
    }

    /// Freezes the active memtable. Returns the last commit before that.
    pub(super) fn freeze_now(&self) -> Result<SequenceNumber> {
        self.health.check_writable()?;
        self.check_readers();
        let _write = self.commits.write.lock();
        self.wait_for_flush()?;
        self.freeze();
        Ok(self.readers.snapshots.visible())
    }

    /// Flushes like `flush_frozen`. Without background threads, also runs the work that is then
    /// due.
    pub(in crate::db) fn run_flushes(&self, last: SequenceNumber) -> Result<()> {
        self.flush_frozen(last)?;
        if self.settings.background_threads == 0 {
            self.run_inline();
        }
        Ok(())
    }

    /// Flushes all frozen memtables that only have commits up to `last`, or waits for the workers
    /// to do so. The caller may hold the write lock.
    pub fn flush_frozen(&self, last: SequenceNumber) -> Result<()> {
        // The last memtable is the oldest.
        while self.cell.state.load().frozen.last().is_some_and(|memtable| memtable.max_sequence() <= last) {
            self.health.check_writable()?;
            let mut work = self.maintenance.work.lock();
            if work.flushing {
                self.maintenance.work_changed.wait_for(&mut work, Duration::from_millis(10));
                continue;
            }
            work.flushing = true;
            drop(work);
            if !self.run_job(Job::Flush) {
                self.health.check_writable()?;
                return Err(self.disk_full());
            }
        }
        Ok(())
    }

    pub(super) fn run_flush(&self) -> Result<()> {
        let done =
            self.catch_panic("a flush", || self.with_space(Some(Stage::Flush), || self.flush_oldest().map(|_| ())));
        done.unwrap_or_else(|reason| Err(Error::ReadOnly { reason }))
    }
}
