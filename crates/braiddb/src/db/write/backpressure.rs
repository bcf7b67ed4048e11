//! Throttles writers, and stops them while no memtable may be frozen. The thresholds are in
//! [`Pressure`](crate::db::engine::parts::pressure::Pressure).

use crate::{
    base::Result,
    db::engine::{parts::pressure::FROZEN_MAX, root::Engine, thread_pool::RETRY_NS_MIN},
};
use std::sync::atomic::Ordering;

impl Engine {
    fn is_full(&self) -> bool {
        let state = self.cell.state.load();
        let waiting = || state.frozen.iter().map(|memtable| memtable.bytes_used()).sum::<usize>();
        state.frozen.len() >= FROZEN_MAX
            || !state.frozen.is_empty() && waiting() >= self.tenant.common.waiting_bytes_max()
    }

    /// Waits until a memtable may be frozen. Fails if the disk is too full for a flush.
    pub fn wait_for_flush(&self) -> Result<()> {
        if !self.is_full() {
            return Ok(());
        }
        if self.settings.background_threads == 0 {
            return self.flush_inline();
        }
        let start = self.now_ns();
        let mut work = self.maintenance.work.lock();
        while self.is_full() {
            self.health.check_writable()?;
            if let Some(refused_at_ns) = work.flush_refused_at_ns {
                // Request an early retry, and fail this write.
                let soon_ns = refused_at_ns + RETRY_NS_MIN;
                work.flush_not_before_ns = work.flush_not_before_ns.min(soon_ns);
                work.merge_not_before_ns = work.merge_not_before_ns.min(soon_ns);
                drop(work);
                self.signal_work();
                return Err(self.disk_full());
            }
            self.maintenance.work_changed.wait_for(&mut work, std::time::Duration::from_millis(10));
        }
        drop(work);
        self.counters.note_stall(self.now_ns() - start);
        Ok(())
    }

    fn flush_inline(&self) -> Result<()> {
        // There may be space by now.
        {
            let mut work = self.maintenance.work.lock();
            (work.flush_not_before_ns, work.merge_not_before_ns) = (0, 0);
        }
        loop {
            (self.maintenance.upcalls.run_inline)(self);
            let mut work = self.maintenance.work.lock();
            while work.flushing && self.is_full() {
                self.maintenance.work_changed.wait_for(&mut work, std::time::Duration::from_millis(10));
            }
            let is_disk_full = work.flush_refused_at_ns.is_some();
            drop(work);
            if !self.is_full() {
                return Ok(());
            }
            self.health.check_writable()?;
            // Otherwise another thread has filled the room again: repeat.
            if is_disk_full {
                return Err(self.disk_full());
            }
        }
    }

    /// Requests freezes of the largest active memtables, and does its own. The caller holds
    /// `write`.
    #[cold]
    pub fn freeze_largest(&self) -> Result<()> {
        let sleep_us = self.tenant.common.make_room();
        if self.cell.is_to_freeze.swap(false, Ordering::Relaxed) {
            self.wait_for_flush()?;
            self.freeze();
        }
        if sleep_us > 0 && self.settings.background_threads > 0 {
            let began_ns = self.now_ns();
            self.settings.runtime.sleep_us(sleep_us);
            self.counters.slowed_ns.fetch_add(self.now_ns().saturating_sub(began_ns), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Without threads, does the requested freezes of other databases.
    pub fn work_for_others(&self) {
        if !self.tenant.common.is_shared() {
            return;
        }
        for other in self.tenant.common.databases() {
            // Never block: two closing threads could wait for each other.
            let Some(_inside) = other.health.gate.try_read().filter(|_| other.health.check_open().is_ok()) else {
                continue;
            };
            if other.freeze_if_asked() {
                (other.maintenance.upcalls.run_inline)(&other);
            }
        }
    }
}
