//! Backpressure: writers are slowed by microseconds as work piles up, so that they never run into a wall. See [`Pressure`].

use crate::{
    db::engine::{parts::pressure::FROZEN_MAX, root::Engine, thread_pool::RETRY_NS_MIN},
    platform::WHOLE,
    read::ReadState,
};

impl Engine {
    /// Looks at how hard writers must be pressed in a state. The caller holds `change`, and not `work`.
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

    /// The most bytes of memtables that wait for their flush. It is less where other databases that it shares memory with have some, too.
    fn waiting_bytes_max(&self) -> usize {
        (FROZEN_MAX * self.settings.memtable_bytes()).min(self.tenant.common.waiting_bytes_max())
    }

    /// Whether no memtable may be frozen before one is flushed.
    fn is_full(&self) -> bool {
        let state = self.cell.state.load();
        let waiting = || state.frozen.iter().map(|memtable| memtable.bytes_used()).sum::<usize>();
        state.frozen.len() >= FROZEN_MAX
            || !state.frozen.is_empty() && waiting() >= self.tenant.common.waiting_bytes_max()
    }

    /// Waits while as many memtables are frozen as may be. Fails rather than wait for a flush that cannot be done.
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
                // The disk is full: have it tried again soon by this writer's request, and answer it.
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

    /// Does flushes in this thread, or waits for those of other callers' threads, until there is room.
    fn flush_inline(&self) -> crate::base::Result<()> {
        // Whatever the last try found: there may be space by now.
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
            // Only a try that found no space says that the disk is full; otherwise another thread was quicker.
            if is_disk_full {
                return Err(self.disk_full());
            }
        }
    }
}
