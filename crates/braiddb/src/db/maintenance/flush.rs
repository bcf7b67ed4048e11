//! Flushes: memtables are frozen, and written as runs.

use super::background::Job;
use crate::{
    base::{Error, Result, SequenceNumber},
    db::{engine::root::Engine, files::reserve::Stage},
};
use std::time::Duration;

impl Engine {
    /// Flushes all memtables.
    pub fn flush_all(&self) -> Result<()> {
        self.freeze_now()?;
        self.run_flushes(u64::MAX)
    }

    /// As [`Engine::flush_all`], but does not wait for what is committed meanwhile. Every commit up to the sequence number that this
    /// gives is in runs then.
    pub fn flush_what_is_there(&self) -> Result<SequenceNumber> {
        let last = self.freeze_now()?;
        self.run_flushes(last)?;
        Ok(last)
    }

    /// Freezes the active memtable; gives the last commit before that.
    pub(super) fn freeze_now(&self) -> Result<SequenceNumber> {
        self.health.check_writable()?;
        self.look_at_readers();
        let _write = self.commits.write.lock();
        self.wait_for_flush()?;
        self.freeze();
        Ok(self.readers.snapshots.visible())
    }

    /// Flushes all frozen memtables with commits up to `last` alone, or waits until the workers have; and where there are none, does
    /// what is due after that.
    pub(in crate::db) fn run_flushes(&self, last: SequenceNumber) -> Result<()> {
        self.flush_frozen(last)?;
        if self.settings.background_threads == 0 {
            self.run_inline();
        }
        Ok(())
    }

    /// Flushes all frozen memtables with commits up to `last` alone, or waits until the workers have. The caller may have the right to
    /// write.
    pub fn flush_frozen(&self, last: SequenceNumber) -> Result<()> {
        // The oldest comes last.
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
