//! Throttles writers, and stops them while no memtable may be frozen. The thresholds are in
//! [`Pressure`](crate::db::engine::parts::pressure::Pressure).

use super::full_disk;
use crate::{
    base::{Error, Result},
    db::engine::{
        events::event::Event,
        parts::{
            commits::GroupDelay,
            pressure::{Debt, FROZEN_MAX},
        },
        root::Engine,
        slow_commits::report::{BackgroundWork, RunningWork, SlowCause},
        thread_pool::RETRY_NS_MIN,
    },
    memtable::Memtable,
};
use std::sync::{Arc, atomic::Ordering};

fn is_full(engine: &Engine) -> bool {
    has_no_room(&engine.cell.state.load().frozen, || engine.tenant.common.waiting_bytes_max())
}

/// Returns whether no more memtables may be frozen until one of these is flushed.
pub fn has_no_room(frozen: &[Arc<Memtable>], waiting_bytes_max: impl FnOnce() -> usize) -> bool {
    let waiting = || frozen.iter().map(|memtable| memtable.bytes_used()).sum::<usize>();
    frozen.len() >= FROZEN_MAX || !frozen.is_empty() && waiting() >= waiting_bytes_max()
}

/// Waits until a memtable may be frozen. Fails if the disk is too full for a flush.
pub fn wait(engine: &Engine, delay: &mut GroupDelay) -> Result<()> {
    if !is_full(engine) {
        return Ok(());
    }
    let start = engine.now_ns();
    delay.background = delay.background.or_else(|| running_flush(engine));
    let done = match engine.settings.background_threads {
        0 => flush_inline(engine),
        _ => {
            engine.events.emit(|| Event::StallBegin);
            let done = wait_for_flush(engine, &mut delay.background);
            engine.events.emit(|| Event::StallEnd { took: engine.time_since(start) });
            if done.is_ok() {
                engine.counters.note_stall(engine.now_ns() - start);
            }
            done
        }
    };
    let is_disk_full = done.as_ref().is_err_and(Error::is_disk_full);
    let cause = if is_disk_full { SlowCause::FullDisk } else { SlowCause::MemoryFull };
    delay.add(cause, engine.now_ns().saturating_sub(start));
    done
}

/// Freezes the active memtable. The caller holds `write`.
pub fn freeze(engine: &Engine, delay: &mut GroupDelay) {
    let began_ns = engine.now_ns();
    engine.freeze();
    delay.add(SlowCause::Rotation, engine.now_ns().saturating_sub(began_ns));
}

fn running_flush(engine: &Engine) -> Option<RunningWork> {
    running(engine, |work| *work == BackgroundWork::Flush)
}

fn running(engine: &Engine, is_wanted: impl Fn(&BackgroundWork) -> bool) -> Option<RunningWork> {
    engine.commits.slow.running(engine.now_ns(), None, is_wanted)
}

/// Returns why writers are throttled, and the work that they wait for.
#[cold]
pub fn throttled_by(engine: &Engine) -> (SlowCause, Option<RunningWork>) {
    let is_merge = |work: &BackgroundWork| matches!(work, BackgroundWork::Merge { .. });
    match engine.maintenance.pressure.debt() {
        Debt::Memtables => (SlowCause::MemoryFull, running_flush(engine)),
        Debt::Garbage => (SlowCause::Merge, running(engine, is_merge)),
        Debt::Runs { partition } => {
            let work = engine.commits.slow.running(engine.now_ns(), Some(partition), is_merge);
            let is_view = |work: &RunningWork| work.work.slow_cause() == SlowCause::ViewBuild;
            (if work.as_ref().is_some_and(is_view) { SlowCause::ViewBuild } else { SlowCause::Merge }, work)
        }
    }
}

/// Notes the flush in `background` if it begins during the wait.
fn wait_for_flush(engine: &Engine, background: &mut Option<RunningWork>) -> Result<()> {
    let mut work = engine.maintenance.work.lock();
    while is_full(engine) {
        engine.health.check_writable()?;
        if let Some(refused_at_ns) = work.flush_refused_at_ns {
            // Request an early retry, and fail this write.
            let soon_ns = refused_at_ns + RETRY_NS_MIN;
            work.flush_not_before_ns = work.flush_not_before_ns.min(soon_ns);
            work.merge_not_before_ns = work.merge_not_before_ns.min(soon_ns);
            drop(work);
            engine.signal_work();
            return Err(full_disk::disk_full(engine));
        }
        *background = background.take().or_else(|| running_flush(engine));
        engine.maintenance.work_changed.wait_for(&mut work, std::time::Duration::from_millis(10));
    }
    Ok(())
}

/// Returns whether a commit need not [`wait`] for a flush. Without threads it flushes by itself.
pub fn has_room(engine: &Engine) -> bool {
    engine.settings.background_threads == 0
        || engine.cell.state.load().active.bytes_used() < engine.settings.memtable_bytes()
        || !is_full(engine)
}

/// Waits for [`has_room`], at most until `ends_ns` or the end of the caller. Returns false if there
/// is none by then. Other commits may take the room meanwhile.
pub fn await_room(engine: &Engine, ends_ns: u64, is_ending: impl Fn() -> bool) -> Result<bool> {
    let mut work = engine.maintenance.work.lock();
    while !has_room(engine) {
        engine.health.check_writable()?;
        // The commit reports the full disk.
        if work.flush_refused_at_ns.is_some() {
            return Ok(true);
        }
        let left_ns = ends_ns.saturating_sub(engine.now_ns());
        if left_ns == 0 || is_ending() {
            return Ok(false);
        }
        let wait = std::time::Duration::from_nanos(left_ns.min(10_000_000));
        engine.maintenance.work_changed.wait_for(&mut work, wait);
    }
    Ok(true)
}

fn flush_inline(engine: &Engine) -> Result<()> {
    // There may be space by now.
    {
        let mut work = engine.maintenance.work.lock();
        (work.flush_not_before_ns, work.merge_not_before_ns) = (0, 0);
    }
    loop {
        (engine.maintenance.upcalls.run_inline)(engine, &mut |_, _| ());
        let mut work = engine.maintenance.work.lock();
        while work.flushing && is_full(engine) {
            engine.maintenance.work_changed.wait_for(&mut work, std::time::Duration::from_millis(10));
        }
        let is_disk_full = work.flush_refused_at_ns.is_some();
        drop(work);
        if !is_full(engine) {
            return Ok(());
        }
        engine.health.check_writable()?;
        // Otherwise another thread has filled the room again: repeat.
        if is_disk_full {
            return Err(full_disk::disk_full(engine));
        }
    }
}

/// Requests freezes of the largest active memtables, and does its own. The caller holds
/// `write`.
#[cold]
pub fn freeze_largest(engine: &Engine, delay: &mut GroupDelay) -> Result<()> {
    let sleep_us = engine.tenant.common.make_room();
    if engine.cell.is_to_freeze.swap(false, Ordering::Relaxed) {
        wait(engine, delay)?;
        freeze(engine, delay);
    }
    if sleep_us > 0 && engine.settings.background_threads > 0 {
        let began_ns = engine.now_ns();
        engine.settings.runtime.sleep_us(sleep_us);
        let slept_ns = engine.now_ns().saturating_sub(began_ns);
        engine.counters.slowed_ns.fetch_add(slept_ns, Ordering::Relaxed);
        delay.add(SlowCause::MemoryFull, slept_ns);
    }
    Ok(())
}

/// Without threads, does the requested freezes of other databases.
pub fn work_for_others(engine: &Engine) {
    if !engine.tenant.common.is_shared() {
        return;
    }
    for other in engine.tenant.common.databases() {
        // Never block: two closing threads could wait for each other.
        let Some(_inside) = other.health.gate.try_read().filter(|_| other.health.check_open().is_ok()) else {
            continue;
        };
        if other.freeze_if_asked() {
            (other.maintenance.upcalls.run_inline)(&other, &mut |_, _| ());
        }
    }
}
