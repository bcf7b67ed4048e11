//! More data than the memory budget, and nearly as much as the page cache: random puts, or a load of
//! the same keys in order, a rest, then gets and seeks.

use super::{
    Context, Measure,
    context::{Batch, Need, scan_checksum},
    measure::Phase,
};
use crate::{
    data::{Checksum, Key, KeyOrder, Values, is_of_row, mix},
    engines::{Access, Engine, Rows},
    meter,
};
use anyhow::Result;
use std::{thread, time::Duration};

const ORDER: KeyOrder = KeyOrder::Random;
const BATCH_LEN: usize = 10;
/// 1 GiB at 200 M keys.
const BUDGET_PER_KEY: f64 = 5.37;
const BUDGET_MIN: u64 = 16 << 20;
const READ_FOR: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 20 });
const REST_MAX_S: u64 = 60;

/// The row of a put, of `n`.
fn row_of(put: u64, n: u64) -> u64 {
    ((u128::from(mix(put ^ 0x5ca1e)) * u128::from(n)) >> 64) as u64
}

/// 0.54 of the keys exist in the end.
fn put_count(n: u64) -> u64 {
    n * 31 / 40
}

fn open(context: &Context<'_>) -> Result<Box<dyn Engine>> {
    let budget = ((context.n as f64 * BUDGET_PER_KEY) as u64).max(BUDGET_MIN);
    context.open(Need { budget: Some(budget), ..context.need(Access::Half) })
}

fn rest(n: u64) {
    thread::sleep(Duration::from_secs((n / 1_000_000).min(REST_MAX_S)));
}

/// Returns puts and a rest, gets, seeks.
pub fn at_scale(context: &Context<'_>) -> Result<Vec<Measure>> {
    let (values, n) = (Values::small(), context.n);
    let engine = open(context)?;
    let written_before = meter::bytes_written();
    let (puts, done) = put_all(context, &*engine, &values, put_count(n))?;
    rest(n);
    let written = (meter::bytes_written() - written_before) as f64;
    let (space, unindexed) = (meter::folder_bytes(context.folder) as f64, engine.unindexed_runs_max());

    let gets = get(&*engine, "at_scale_gets", done, n)?;
    let seeks = seek(&*engine, "at_scale_seeks", done, n)?;
    context.note_memory();

    let mut versions = vec![0u32; n as usize];
    (0..done).for_each(|put| versions[row_of(put, n) as usize] = put as u32 + 1);
    let mut expected = Checksum::default();
    for (row, version) in versions.iter().enumerate().filter(|(_, version)| **version > 0) {
        expected.expect(ORDER, &values, row as u64, *version);
    }
    drop(versions);
    let live = values.user_bytes(expected.count) as f64;
    let puts = puts
        .with("write_amp", written / values.user_bytes(done) as f64)
        .with("space_amp", space / live)
        .with("live_rows", expected.count as f64)
        .checked(scan_checksum(&mut *engine.reader()?)?, expected);
    let puts = unindexed.into_iter().fold(puts, |puts, runs| puts.with("unindexed_runs", runs as f64));
    Ok(vec![puts, gets, seeks])
}

/// For engines too slow for these random puts: reads of the same rows after a sorted load, and again
/// after a scan, which fills the page cache.
pub fn at_scale_sorted(context: &Context<'_>) -> Result<Vec<Measure>> {
    let (values, n) = (Values::small(), context.n);
    let engine = open(context)?;
    let mut exists = vec![false; n as usize];
    (0..put_count(n)).for_each(|put| exists[row_of(put, n) as usize] = true);
    let mut rows = Vec::from_iter((0..n).filter(|row| exists[*row as usize]).map(|row| row as u32));
    drop(exists);
    rows.sort_unstable_by_key(|row| ORDER.key(u64::from(*row)));
    let mut sorted = Sorted { values: &values, rows: &rows, key: Key::default(), value: Vec::new() };
    let phase = Phase::begin(context.limit);
    engine.load_sorted(&mut sorted)?;
    engine.flush()?;
    let load = phase.end("at_scale_sorted_load", rows.len() as u64);
    let mut expected = Checksum::default();
    rows.iter().for_each(|row| expected.expect(ORDER, &values, u64::from(*row), 0));
    drop(rows);
    rest(n);
    let mut measures = vec![load];
    measures.push(get(&*engine, "at_scale_sorted_gets", put_count(n), n)?);
    measures.push(seek(&*engine, "at_scale_sorted_seeks", put_count(n), n)?);
    let phase = Phase::begin(context.limit);
    let seen = scan_checksum(&mut *engine.reader()?)?;
    measures.push(phase.end("at_scale_sorted_scan", seen.count).checked(seen, expected));
    measures.push(get(&*engine, "at_scale_scanned_gets", put_count(n), n)?);
    measures.push(seek(&*engine, "at_scale_scanned_seeks", put_count(n), n)?);
    Ok(measures)
}

struct Sorted<'a> {
    values: &'a Values,
    rows: &'a [u32],
    key: Key,
    value: Vec<u8>,
}

impl Rows for Sorted<'_> {
    fn next(&mut self) -> Option<(&[u8], &[u8])> {
        let row;
        (row, self.rows) = self.rows.split_first().map(|(row, rest)| (u64::from(*row), rest))?;
        self.key = ORDER.key(row);
        self.values.fill(row, 0, &mut self.value);
        Some((&self.key, &self.value))
    }
}

fn put_all(context: &Context<'_>, engine: &dyn Engine, values: &Values, count: u64) -> Result<(Measure, u64)> {
    let (mut batch, mut done, mut commits) = (Batch::new(BATCH_LEN), 0, 0);
    let mut phase = Phase::begin(context.limit);
    while done < count && !phase.is_over(commits) {
        let end = (done + BATCH_LEN as u64).min(count);
        batch.fill(ORDER, values, (done..end).map(|put| (row_of(put, context.n), Some(put as u32 + 1))));
        batch.commit(engine)?;
        phase.lap();
        (done, commits) = (end, commits + 1);
    }
    Ok((phase.end("at_scale_puts", done), done))
}

/// Each read finds its row. All are timed: the slowest counts.
fn get(engine: &dyn Engine, name: &str, puts: u64, n: u64) -> Result<Measure> {
    let (mut reader, mut phase) = (engine.reader()?, Phase::begin(READ_FOR));
    let (mut done, mut found) = (0, 0);
    while !phase.is_over(done) {
        let row = row_of(mix(!done) % puts, n);
        reader.get(&ORDER.key(row), &mut |value| found += u64::from(is_of_row(value, row)))?;
        phase.lap();
        done += 1;
    }
    let mut measure = phase.end(name, done);
    (measure.count, measure.correct) = (found, found == done);
    Ok(measure)
}

fn seek(engine: &dyn Engine, name: &str, puts: u64, n: u64) -> Result<Measure> {
    let (mut reader, mut phase) = (engine.reader()?, Phase::begin(READ_FOR));
    let (mut done, mut found) = (0, 0);
    while !phase.is_over(done) {
        let row = row_of(mix(!done ^ 0x5eec) % puts, n);
        let key = ORDER.key(row);
        reader.scan(&key, &mut |at, value| {
            found += u64::from(at == key && is_of_row(value, row));
            false
        })?;
        phase.lap();
        done += 1;
    }
    let mut measure = phase.end(name, done);
    (measure.count, measure.correct) = (found, found == done);
    Ok(measure)
}
