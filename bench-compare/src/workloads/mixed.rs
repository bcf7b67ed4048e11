//! One thread reads random rows, one overwrites random rows.

use super::{
    Context, Measure,
    context::Batch,
    measure::{Phase, READS_PER_SAMPLE},
};
use crate::{
    data::{Checksum, GROUP_LEN, Key, KeyOrder, PREFIX_LEN, Random, Values, is_of_row},
    engines::{Access, Engine, Reader},
    histogram::Histogram,
};
use anyhow::{Context as _, Result};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// 10 s at 2 M rows.
const TIME_PER_ROW: Duration = Duration::from_micros(5);
const TIME_MIN: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 1000 });
const TIME_MAX: Duration = Duration::from_secs(20);
/// One of this many prefix scans checks each of its rows.
const PREFIXES_PER_CHECK: u64 = 8;

pub fn at_rate(context: &Context<'_>) -> Result<Vec<Measure>> {
    run(context, "readwhilewriting_10k", Some(10_000))
}

pub fn unbounded(context: &Context<'_>) -> Result<Vec<Measure>> {
    run(context, "readwhilewriting_free", None)
}

fn run(context: &Context<'_>, name: &str, puts_per_second: Option<u64>) -> Result<Vec<Measure>> {
    let (values, order) = (Values::small(), KeyOrder::Random);
    let engine = context.open_loaded(context.need(Access::Write), order, &values, context.n)?;
    let both = Both { engine: &*engine, order, values: &values, rows: context.n, time: time(context) };
    let measures = both.run(name, Reads::Gets, puts_per_second)?;
    context.note_memory();
    Ok(measures)
}

pub fn time(context: &Context<'_>) -> Duration {
    (TIME_PER_ROW * context.n as u32).clamp(TIME_MIN, TIME_MAX).min(context.limit)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    Gets,
    Prefixes,
}

#[derive(Clone, Copy)]
pub struct Both<'a> {
    pub engine: &'a dyn Engine,
    pub order: KeyOrder,
    pub values: &'a Values,
    pub rows: u64,
    pub time: Duration,
}

#[derive(Default)]
struct Seen {
    reads: u64,
    found: u64,
    wrong: u64,
}

impl Both<'_> {
    /// Measures `name_reads` and `name_writes`.
    pub fn run(self, name: &str, kind: Reads, puts_per_second: Option<u64>) -> Result<Vec<Measure>> {
        let stop = &AtomicBool::new(false);
        let mut reads = Phase::begin(self.time);
        let mut writes = Phase::begin(self.time);
        let (read, written) = thread::scope(|scope| {
            let reader = scope.spawn(move || self.read_until(kind, stop));
            let writer = scope.spawn(move || self.write_until(puts_per_second, stop));
            thread::sleep(self.time);
            stop.store(true, Ordering::Relaxed);
            (reader.join(), writer.join())
        });
        let (seen, read_latencies) = read.ok().context("the reader panicked")??;
        let (puts, write_latencies) = written.ok().context("the writer panicked")??;
        reads.merge(&read_latencies);
        writes.merge(&write_latencies);
        let reads = reads.end(&format!("{name}_reads"), seen.reads);
        let writes = writes.end(&format!("{name}_writes"), puts);
        let checked = |measure: Measure, is_correct: bool| {
            let mut measure = measure.checked(Checksum::default(), Checksum::default());
            measure.correct = is_correct;
            measure
        };
        let is_correct = seen.wrong == 0 && seen.found == seen.reads;
        Ok(vec![checked(reads, is_correct), checked(writes, is_correct)])
    }

    fn read_until(self, kind: Reads, stop: &AtomicBool) -> Result<(Seen, Histogram)> {
        let mut reader = self.engine.reader()?;
        let (mut seen, mut random, mut latencies) = (Seen::default(), Random::new(91), Histogram::new());
        while !stop.load(Ordering::Relaxed) {
            let row = random.below(self.rows);
            let start = seen.reads.is_multiple_of(READS_PER_SAMPLE).then(Instant::now);
            reader.refresh()?;
            match kind {
                Reads::Gets => self.get(&mut *reader, row, &mut seen)?,
                Reads::Prefixes => self.scan_prefix(&mut *reader, row / GROUP_LEN, &mut seen)?,
            }
            if let Some(start) = start {
                latencies.record(start.elapsed().as_nanos() as u64);
            }
            seen.reads += 1;
        }
        Ok((seen, latencies))
    }

    fn get(self, reader: &mut dyn Reader, row: u64, seen: &mut Seen) -> Result<()> {
        let key = &self.order.key(row)[..self.order.key_len()];
        let there = reader.get(key, &mut |value| seen.wrong += u64::from(!is_of_row(value, row)))?;
        seen.found += u64::from(there);
        Ok(())
    }

    fn scan_prefix(self, reader: &mut dyn Reader, group: u64, seen: &mut Seen) -> Result<()> {
        let first = group * GROUP_LEN;
        let len = (self.rows - first).min(GROUP_LEN);
        let is_checked = seen.reads % PREFIXES_PER_CHECK == PREFIXES_PER_CHECK - 1;
        let keys: Vec<Key> =
            if is_checked { (first..first + len).map(|row| self.order.key(row)).collect() } else { Vec::new() };
        let (mut found, mut wrong) = (0, 0);
        reader.scan_prefix(&self.order.key(first)[..PREFIX_LEN], &mut |key, value| {
            found += 1;
            if is_checked {
                let place = keys.iter().position(|other| &other[..self.order.key_len()] == key);
                wrong += u64::from(!place.is_some_and(|place| is_of_row(value, first + place as u64)));
            }
            true
        })?;
        seen.found += u64::from(found == len);
        seen.wrong += wrong;
        Ok(())
    }

    fn write_until(self, puts_per_second: Option<u64>, stop: &AtomicBool) -> Result<(u64, Histogram)> {
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
            let row = random.below(self.rows);
            batch.fill(self.order, self.values, std::iter::once((row, Some(puts as u32))));
            let begun = Instant::now();
            batch.commit(self.engine)?;
            latencies.record(begun.elapsed().as_nanos() as u64);
        }
        Ok((puts, latencies))
    }
}
