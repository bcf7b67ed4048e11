//! Reads beside writes: one thread gets random rows, as new as they come, one overwrites random rows.

use super::{
    Context, Measure,
    context::Batch,
    measure::{Phase, READS_PER_SAMPLE},
};
use crate::{
    data::{Checksum, KeyOrder, Random, Values, is_of_row},
    engines::{Access, Engine},
    histogram::Histogram,
};
use anyhow::{Context as _, Result};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// How long both go on, for each row there is; 10 s at 2 M.
const TIME_PER_ROW: Duration = Duration::from_micros(5);
/// The bounds of that.
const TIME_MIN: Duration = Duration::from_secs(1);
const TIME_MAX: Duration = Duration::from_secs(20);

pub fn at_rate(context: &Context<'_>) -> Result<Vec<Measure>> {
    run(context, "readwhilewriting_10k", Some(10_000))
}

pub fn unbounded(context: &Context<'_>) -> Result<Vec<Measure>> {
    run(context, "readwhilewriting_free", None)
}

/// What the reader saw: gets, rows found, rows that were not what they should be.
#[derive(Default)]
struct Seen {
    gets: u64,
    found: u64,
    wrong: u64,
}

fn run(context: &Context<'_>, name: &str, puts_per_second: Option<u64>) -> Result<Vec<Measure>> {
    let (values, n) = (Values::small(), context.n);
    let time = (TIME_PER_ROW * n as u32).clamp(TIME_MIN, TIME_MAX).min(context.limit);
    let engine = context.open(context.need(Access::Write))?;
    context.load(&*engine, KeyOrder::Random, &values, n)?;
    let (engine, values, stop) = (&*engine, &values, &AtomicBool::new(false));
    let mut reads = Phase::begin(time);
    let mut writes = Phase::begin(time);
    let (read, written) = thread::scope(|scope| {
        let reader = scope.spawn(move || read_until(engine, n, stop));
        let writer = scope.spawn(move || write_until(engine, n, values, puts_per_second, stop));
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        (reader.join(), writer.join())
    });
    let (seen, read_latencies) = read.ok().context("the reader panicked")??;
    let (puts, write_latencies) = written.ok().context("the writer panicked")??;
    reads.merge(&read_latencies);
    writes.merge(&write_latencies);
    let reads = reads.end(&format!("{name}_reads"), seen.gets);
    let writes = writes.end(&format!("{name}_writes"), puts);
    context.note_memory();
    // How much was read differs; that each get found its row, in some version, is what is checked.
    let checked = |measure: Measure, is_correct: bool| {
        let mut measure = measure.checked(Checksum::default(), Checksum::default());
        measure.correct = is_correct;
        measure
    };
    let is_correct = seen.wrong == 0 && seen.found == seen.gets;
    Ok(vec![checked(reads, is_correct), checked(writes, is_correct)])
}

fn read_until(engine: &dyn Engine, n: u64, stop: &AtomicBool) -> Result<(Seen, Histogram)> {
    let mut reader = engine.reader()?;
    let (mut seen, mut random, mut latencies) = (Seen::default(), Random::new(91), Histogram::new());
    while !stop.load(Ordering::Relaxed) {
        let row = random.below(n);
        let key = KeyOrder::Random.key(row);
        let start = seen.gets.is_multiple_of(READS_PER_SAMPLE).then(Instant::now);
        reader.refresh()?;
        let there = reader.get(&key, &mut |value| seen.wrong += u64::from(!is_of_row(value, row)))?;
        if let Some(start) = start {
            latencies.record(start.elapsed().as_nanos() as u64);
        }
        seen.found += u64::from(there);
        seen.gets += 1;
    }
    Ok((seen, latencies))
}

fn write_until(
    engine: &dyn Engine,
    n: u64,
    values: &Values,
    puts_per_second: Option<u64>,
    stop: &AtomicBool,
) -> Result<(u64, Histogram)> {
    let (mut random, mut latencies, mut batch) = (Random::new(92), Histogram::new(), Batch::new(1));
    let (start, mut puts) = (Instant::now(), 0);
    while !stop.load(Ordering::Relaxed) {
        if let Some(rate) = puts_per_second
            && let Some(ahead) = Duration::from_micros(puts * 1_000_000 / rate).checked_sub(start.elapsed())
            && ahead > Duration::from_millis(1)
        {
            thread::sleep(ahead);
        }
        puts += 1;
        batch.fill(KeyOrder::Random, values, std::iter::once((random.below(n), Some(puts as u32))));
        let begun = Instant::now();
        batch.commit(engine)?;
        latencies.record(begun.elapsed().as_nanos() as u64);
    }
    Ok((puts, latencies))
}
