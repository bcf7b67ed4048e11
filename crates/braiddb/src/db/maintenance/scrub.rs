//! The scrubber: rereads files in the background to detect damage early.
//!
//! An otherwise idle merge thread reads one piece of a run or view past the cache, then sleeps as
//! the rate demands. A close waits for at most one piece, and scrubbing never counts as activity. A
//! file is pinned for one piece only. Blob files and the log are not scrubbed.

use crate::{
    base::{FileNumber, Result},
    db::engine::{events::event::Event, parts::scrubber::Place, root::Engine},
    table::{DamagedUnit, Run},
    view::{View, damaged_view, damaged_view_file},
};
use std::sync::{Arc, atomic::Ordering};

/// Maximum bytes of a piece; a close may wait for one. A view is always one piece.
const PIECE_BYTES: u64 = 256 << 10;

/// Minimum pause between passes.
const BETWEEN_PASSES_NS: u64 = 10_000_000_000;

const SECOND_NS: u64 = 1_000_000_000;

enum Scrubbed {
    Run(Arc<Run>),
    View(Arc<View>),
}

/// Reads the next piece if it is due. Returns how long to sleep, in nanoseconds; `None` if
/// scrubbing is off.
pub(in crate::db) fn next_piece(engine: &Engine) -> Option<u64> {
    let rate = engine.settings.scrub_bytes_per_second;
    if rate == 0 || engine.settings.read_only {
        return None;
    }
    let Some(mut at) = engine.maintenance.scrubber.at.try_lock() else { return Some(SECOND_NS) };
    let now_ns = engine.now_ns();
    if now_ns < at.not_before_ns {
        return Some(at.not_before_ns - now_ns);
    }
    let Some((number, file)) = next_to_scrub(engine, at.number) else {
        *at = Place { not_before_ns: now_ns.saturating_add(BETWEEN_PASSES_NS), ..Place::default() };
        engine.maintenance.scrubber.passes.fetch_add(1, Ordering::Relaxed);
        engine.maintenance.scrubber.last_pass_us.store(engine.settings.runtime.unix_time_us(), Ordering::Relaxed);
        return Some(BETWEEN_PASSES_NS);
    };
    if number != at.number {
        (at.number, at.unit) = (number, 0);
    }
    let bytes = match scrub_file(engine, &file, &mut at) {
        Ok(bytes) => bytes,
        Err(error) => {
            tracing::warn!(%error, "a file could not be scrubbed");
            (at.number, at.unit) = (number + 1, 0);
            0
        }
    };
    engine.maintenance.scrubber.bytes.fetch_add(bytes, Ordering::Relaxed);
    let rest_ns = u128::from(bytes) * u128::from(SECOND_NS) / u128::from(rate);
    let rest_ns = u64::try_from(rest_ns).unwrap_or(u64::MAX);
    at.not_before_ns = now_ns.saturating_add(rest_ns);
    Some(rest_ns)
}

#[cfg(test)]
pub fn whole_pass_for_tests(engine: &Engine) {
    let passes = engine.maintenance.scrubber.stats().passes;
    *engine.maintenance.scrubber.at.lock() = Place::default();
    while engine.maintenance.scrubber.stats().passes == passes {
        engine.maintenance.scrubber.at.lock().not_before_ns = 0;
        next_piece(engine);
    }
}

fn next_to_scrub(engine: &Engine, number: FileNumber) -> Option<(FileNumber, Scrubbed)> {
    let state = engine.cell.state.load_full();
    let partitions = &state.version.partitions;
    let runs = partitions.iter().flat_map(|partition| partition.all_runs().map(|handle| handle.run()));
    let run = runs.filter(|run| run.meta().number >= number).min_by_key(|run| run.meta().number);
    let views = partitions.iter().filter_map(|partition| partition.view.as_ref());
    let view = views.filter(|view| view.meta().number >= number).min_by_key(|view| view.meta().number);
    let run = run.map(|run| (run.meta().number, Scrubbed::Run(Arc::clone(run))));
    let view = view.map(|view| (view.meta().number, Scrubbed::View(Arc::clone(view))));
    [run, view].into_iter().flatten().min_by_key(|(number, _)| *number)
}

/// Reads a piece of a file and advances `at`. Returns the bytes read.
fn scrub_file(engine: &Engine, file: &Scrubbed, at: &mut Place) -> Result<u64> {
    let (path, damaged, bytes, next) = match file {
        Scrubbed::Run(run) => {
            let (mut damaged, mut bytes, next) = run.damaged_units_from(at.unit, PIECE_BYTES)?;
            if next.is_none() && run.meta().view_bytes > 0 {
                let range = run.meta().view_offset..run.meta().view_offset + run.meta().view_bytes;
                damaged.extend(damaged_view(&**run.file(), run.path(), run.meta().file_id, range)?);
                bytes += run.meta().view_bytes;
            }
            (run.path(), damaged, bytes, next)
        }
        Scrubbed::View(view) => {
            let damaged = damaged_view_file(&*view.file, view.path(), Some(view.meta()))?;
            (view.path(), damaged, view.meta().file_bytes, None)
        }
    };
    for DamagedUnit { offset, len, detail, .. } in &damaged {
        tracing::error!(path = %path.display(), offset, len, detail, "the scrubber has found damage: run `braid verify`");
        engine.events.emit(|| Event::DamageFound { path: path.to_owned(), offset: *offset });
    }
    engine.maintenance.scrubber.damaged.fetch_add(damaged.len() as u64, Ordering::Relaxed);
    match next {
        Some(unit) => at.unit = unit,
        None => (at.number, at.unit) = (at.number + 1, 0),
    }
    Ok(bytes)
}
