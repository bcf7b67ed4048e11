//! Throttles writers, and stops them while no memtable may be frozen. The thresholds are in
//! [`Pressure`](crate::db::engine::parts::pressure::Pressure).

use crate::{
    db::engine::{parts::pressure::FROZEN_MAX, root::Engine, thread_pool::RETRY_NS_MIN},
    platform::WHOLE,
    read::ReadState,
};

impl Engine {
    /// The caller holds `change`, and not `work`.
    pub fn measure_pressure(&self, state: &ReadState) {
        let work = self.maintenance.work.lock();
        let dead = self.dead_to_limit(state, &work);
        self.maintenance
            .pressure
            .measure(state, self.waiting_bytes_max(), dead, |partition| work.failed.contains_key(&partition));
        self.set_pace(if work.idle {
            WHOLE
        } else {
            self.maintenance.pressure.share_of_merges(self.settings.loose_runs)
        });
    }

    /// Databases with shared memory divide their limit.
    fn waiting_bytes_max(&self) -> usize {
        (FROZEN_MAX * self.settings.memtable_bytes()).min(self.tenant.common.waiting_bytes_max())
    }

    fn is_full(&self) -> bool {
        let state = self.cell.state.load();
        let waiting = || state.frozen.iter().map(|memtable| memtable.bytes_used()).sum::<usize>();
        state.frozen.len() >= FROZEN_MAX
            || !state.frozen.is_empty() && waiting() >= self.tenant.common.waiting_bytes_max()
    }

    /// Waits until a memtable may be frozen. Fails if the disk is too full for a flush.
    pub fn wait_for_flush(&self) -> crate::base::Result<()> {
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

    fn flush_inline(&self) -> crate::base::Result<()> {
        // There may be space by now.
        {
            let mut work = self.maintenance.work.lock();
            (work.flush_not_before_ns, work.merge_not_before_ns) = (0, 0);
        }
        loop {
            self.run_inline();
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
}
