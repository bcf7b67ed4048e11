//! A queue: rows are popped from the front in a loop, then by several threads beside a pusher.

use super::{
    Context, Measure,
    context::{Batch, scan_checksum},
    measure::Phase,
};
use crate::{
    data::{Checksum, KeyOrder, Values},
    engines::{Access, Engine},
    histogram::Histogram,
};
use anyhow::{Context as _, Result};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

const ORDER: KeyOrder = KeyOrder::Ascending;
const POPPERS: u64 = 4;
/// Maximum rows a second.
const PUSHES_PER_SECOND: u64 = 50_000;
/// `slowdown` divides the times of the last and the first of these parts of the pops.
const PARTS: u64 = 10;

/// Half of the rows by one thread, then the others by four, with pushes meanwhile.
pub fn queue(context: &Context<'_>) -> Result<Vec<Measure>> {
    let (values, rows) = (Values::small(), context.n / 4);
    let engine = context.open(context.need_of_rows(Access::Write, context.n))?;
    context.load(&*engine, ORDER, &values, rows)?;
    let alone = pop_alone(context, &*engine, &values, rows / 2)?;
    let first = alone.count;
    let beside = pop_beside_pushes(context, &*engine, &values, first, rows)?;
    context.note_memory();
    Ok(vec![alone, beside])
}

/// Pops in order; checks each row.
fn pop_alone(context: &Context<'_>, engine: &dyn Engine, values: &Values, rows: u64) -> Result<Measure> {
    let (mut seen, mut expected) = (Checksum::default(), Checksum::default());
    let (mut phase, mut parts) = (Phase::begin(context.limit), vec![Instant::now()]);
    let (mut popped, mut is_in_order) = (0, true);
    while popped < rows && !phase.is_over(popped) {
        let key = ORDER.key(popped);
        engine.pop_first(&mut |found, value| {
            is_in_order &= found == key;
            seen.add(found, value);
        })?;
        phase.lap();
        popped += 1;
        if popped * PARTS / rows >= parts.len() as u64 {
            parts.push(Instant::now());
        }
    }
    let measure = phase.end("queue_pop_1", popped);
    (0..popped).for_each(|row| expected.expect(ORDER, values, row, 0));
    let mut measure = measure.checked(seen, expected);
    measure.correct &= is_in_order;
    if let [a, b, .., y, z] = parts[..] {
        measure = measure.with("slowdown", (z - y).as_secs_f64() / (b - a).as_secs_f64());
    }
    Ok(measure)
}

/// Four threads pop until the queue is empty or time is up. All rows must be popped once or left.
fn pop_beside_pushes(
    context: &Context<'_>,
    engine: &dyn Engine,
    values: &Values,
    first: u64,
    end: u64,
) -> Result<Measure> {
    let (stop, pops, pushed) = (&AtomicBool::new(false), &AtomicU64::new(0), &AtomicU64::new(end));
    let goal = end - first;
    let mut phase = Phase::begin(context.limit);
    let (started, limit) = (Instant::now(), context.limit);
    let pop = move || -> Result<(Checksum, Histogram)> {
        let _stop = StopAtEnd(stop);
        let (mut seen, mut latencies) = (Checksum::default(), Histogram::new());
        while pops.load(Ordering::Relaxed) < goal && started.elapsed() < limit {
            let begun = Instant::now();
            if engine.pop_first(&mut |key, value| seen.add(key, value))? {
                pops.fetch_add(1, Ordering::Relaxed);
            }
            latencies.record(begun.elapsed().as_nanos() as u64);
        }
        Ok((seen, latencies))
    };
    let push = move || -> Result<()> {
        let mut batch = Batch::new(1);
        while !stop.load(Ordering::Relaxed) {
            let row = pushed.load(Ordering::Relaxed);
            let due = Duration::from_micros((row - end) * 1_000_000 / PUSHES_PER_SECOND);
            if let Some(ahead) = due.checked_sub(started.elapsed())
                && ahead > Duration::from_micros(200)
            {
                thread::sleep(ahead);
            }
            batch.fill(ORDER, values, std::iter::once((row, Some(0))));
            batch.commit(engine)?;
            pushed.store(row + 1, Ordering::Relaxed);
        }
        Ok(())
    };
    let mut seen = Checksum::default();
    thread::scope(|scope| -> Result<()> {
        let poppers: Vec<_> = (0..POPPERS).map(|_| scope.spawn(pop)).collect();
        let pusher = scope.spawn(push);
        for popper in poppers {
            let (part, latencies) = popper.join().ok().context("a popping thread panicked")??;
            seen.merge(part);
            phase.merge(&latencies);
        }
        pusher.join().ok().context("the pushing thread panicked")?
    })?;
    let measure = phase.end("queue_pop_4", pops.load(Ordering::Relaxed));
    seen.merge(scan_checksum(&mut *engine.reader()?)?);
    let mut expected = Checksum::default();
    (first..pushed.load(Ordering::Relaxed)).for_each(|row| expected.expect(ORDER, values, row, 0));
    Ok(measure.checked(seen, expected).with("pushes", (pushed.load(Ordering::Relaxed) - end) as f64))
}

/// Ends the pushes when a popper ends, also by an error.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
