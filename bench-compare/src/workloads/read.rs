//! Gets, seeks and scans of data that was loaded in random order and is idle.

use super::{Context, Measure, measure::Phase};
use crate::{
    data::{Checksum, GROUP_LEN, Key, KeyOrder, PREFIX_LEN, Random, Values, mix},
    engines::{Access, Engine, Reader},
    histogram::Histogram,
    meter,
};
use anyhow::{Context as _, Result};
use std::thread;

const MULTI_LEN: u64 = 16;
const SCAN_SECONDS_MIN: f64 = 1.0;

fn loaded(context: &Context<'_>, order: KeyOrder, values: &Values) -> Result<Box<dyn Engine>> {
    let mut need = context.need(Access::Read);
    need.prefix_len = (order == KeyOrder::Grouped).then_some(PREFIX_LEN);
    let engine = context.open_loaded(need, order, values, context.n)?;
    super::context::scan_checksum(&mut *engine.reader()?)?;
    Ok(engine)
}

fn get_random(reader: &mut dyn Reader, seed: u64, n: u64, ops: u64, phase: &mut Phase) -> Result<(Checksum, u64)> {
    let (mut seen, mut random, mut done) = (Checksum::default(), Random::new(seed), 0);
    while done < ops && !phase.is_over(done) {
        let key = KeyOrder::Random.key(random.below(n));
        phase.sampled(done, || reader.get(&key, &mut |value| seen.add(&key, value)))?;
        done += 1;
    }
    Ok((seen, done))
}

fn expect_random(seed: u64, n: u64, ops: u64, values: &Values) -> Checksum {
    let (mut expected, mut random) = (Checksum::default(), Random::new(seed));
    (0..ops).for_each(|_| expected.expect(KeyOrder::Random, values, random.below(n), 0));
    expected
}

pub fn readrandom(context: &Context<'_>) -> Result<Vec<Measure>> {
    let values = Values::small();
    let engine = loaded(context, KeyOrder::Random, &values)?;
    let mut reader = engine.reader()?;
    let mut phase = Phase::begin(context.limit);
    let (seen, done) = get_random(&mut *reader, 21, context.n, context.n, &mut phase)?;
    let measure = phase.end("readrandom", done);
    context.note_memory();
    Ok(vec![measure.checked(seen, expect_random(21, context.n, done, &values))])
}

const SEEDS: [u64; 2] = [31, 32];

pub fn readrandom_two_threads(context: &Context<'_>) -> Result<Vec<Measure>> {
    let (values, n) = (Values::small(), context.n);
    let engine = loaded(context, KeyOrder::Random, &values)?;
    let mut phase = Phase::begin(context.limit);
    let (engine, limit) = (&engine, context.limit);
    let read = move |seed: u64| -> Result<(Checksum, u64, Histogram)> {
        let mut reader = engine.reader()?;
        let mut own = Phase::begin(limit);
        let (seen, done) = get_random(&mut *reader, seed, n, n, &mut own)?;
        Ok((seen, done, own.into_latencies()))
    };
    let (mut seen, mut expected, mut ops) = (Checksum::default(), Checksum::default(), Vec::new());
    let results = thread::scope(|scope| {
        let threads = SEEDS.map(|seed| scope.spawn(move || read(seed)));
        threads.map(|thread| thread.join())
    });
    for result in results {
        let (sum, done, latencies) = result.ok().context("a reader panicked")??;
        phase.merge(&latencies);
        seen.merge(sum);
        ops.push(done);
    }
    let measure = phase.end("readrandom_t2", ops.iter().sum());
    context.note_memory();
    for (seed, done) in SEEDS.into_iter().zip(ops) {
        expected.merge(expect_random(seed, n, done, &values));
    }
    Ok(vec![measure.checked(seen, expected)])
}

pub fn multi_get(context: &Context<'_>) -> Result<Vec<Measure>> {
    let (values, n) = (Values::small(), context.n);
    let engine = loaded(context, KeyOrder::Random, &values)?;
    let mut reader = engine.reader()?;
    let (mut seen, mut random, mut calls) = (Checksum::default(), Random::new(41), 0);
    let mut phase = Phase::begin(context.limit);
    while calls < n / MULTI_LEN && !phase.is_over(calls) {
        let keys: [Key; MULTI_LEN as usize] = std::array::from_fn(|_| KeyOrder::Random.key(random.below(n)));
        let asked = keys.each_ref().map(|key| key.as_slice());
        phase.sampled(calls, || reader.multi_get(&asked, &mut |index, value| seen.add(&keys[index], value)))?;
        calls += 1;
    }
    let measure = phase.end("multi_get16", calls * MULTI_LEN);
    context.note_memory();
    Ok(vec![measure.checked(seen, expect_random(41, n, calls * MULTI_LEN, &values))])
}

pub fn readmissing(context: &Context<'_>) -> Result<Vec<Measure>> {
    let (values, n) = (Values::small(), context.n);
    let engine = loaded(context, KeyOrder::Random, &values)?;
    let mut reader = engine.reader()?;
    let (mut seen, mut random, mut done) = (Checksum::default(), Random::new(51), 0);
    let mut phase = Phase::begin(context.limit);
    while done < n && !phase.is_over(done) {
        let key = KeyOrder::Random.key(n + random.below(n));
        phase.sampled(done, || reader.get(&key, &mut |value| seen.add(&key, value)))?;
        done += 1;
    }
    let measure = phase.end("readmissing", done);
    context.note_memory();
    Ok(vec![measure.checked(seen, Checksum::default())])
}

pub fn seek_one(context: &Context<'_>) -> Result<Vec<Measure>> {
    seek(context, "seek_next1", 1, context.n)
}

pub fn seek_fifty(context: &Context<'_>) -> Result<Vec<Measure>> {
    seek(context, "seek_next50", 50, context.n / 4)
}

fn seek(context: &Context<'_>, name: &str, len: u64, ops: u64) -> Result<Vec<Measure>> {
    let (values, n) = (Values::small(), context.n);
    let engine = loaded(context, KeyOrder::Random, &values)?;
    let mut reader = engine.reader()?;
    let (mut seen, mut random, mut done) = (Checksum::default(), Random::new(61), 0);
    let mut phase = Phase::begin(context.limit);
    while done < ops && !phase.is_over(done) {
        let from = KeyOrder::Random.key(random.next());
        let mut left = len;
        phase.sampled(done, || {
            reader.scan(&from, &mut |key, value| {
                seen.add(key, value);
                left -= 1;
                left > 0
            })
        })?;
        done += 1;
    }
    let measure = phase.end(name, done);
    context.note_memory();

    let mut sorted: Vec<(Key, u64)> = (0..n).map(|row| (KeyOrder::Random.key(row), row)).collect();
    sorted.sort_unstable();
    let (mut expected, mut random) = (Checksum::default(), Random::new(61));
    for _ in 0..done {
        let from = KeyOrder::Random.key(random.next());
        let at = sorted.partition_point(|(key, _)| *key < from);
        for (_, row) in sorted[at..].iter().take(len as usize) {
            expected.expect(KeyOrder::Random, &values, *row, 0);
        }
    }
    Ok(vec![measure.checked(seen, expected)])
}

pub fn prefix_scan(context: &Context<'_>) -> Result<Vec<Measure>> {
    let (values, order) = (Values::small(), KeyOrder::Grouped);
    let engine = loaded(context, order, &values)?;
    let groups = context.n / GROUP_LEN;
    let mut reader = engine.reader()?;
    let (mut seen, mut random, mut done) = (Checksum::default(), Random::new(71), 0);
    let mut phase = Phase::begin(context.limit);
    while done < context.n / 4 && !phase.is_over(done) {
        let first = order.key(random.below(groups) * GROUP_LEN);
        phase.sampled(done, || {
            reader.scan_prefix(&first[..PREFIX_LEN], &mut |key, value| {
                seen.add(key, value);
                true
            })
        })?;
        done += 1;
    }
    let measure = phase.end("prefix_scan", done);
    context.note_memory();
    let (mut expected, mut random) = (Checksum::default(), Random::new(71));
    for _ in 0..done {
        let first = random.below(groups) * GROUP_LEN;
        (first..first + GROUP_LEN).for_each(|row| expected.expect(order, &values, row, 0));
    }
    Ok(vec![measure.checked(seen, expected)])
}

pub fn scan_all(context: &Context<'_>) -> Result<Vec<Measure>> {
    scan(context, "scan_all", |reader, seen| {
        reader.scan(b"", &mut |key, value| {
            seen.add(key, value);
            true
        })
    })
}

pub fn scan_reverse(context: &Context<'_>) -> Result<Vec<Measure>> {
    scan(context, "scan_reverse", |reader, seen| {
        reader.scan_back(&mut |key, value| {
            seen.add(key, value);
            true
        })
    })
}

fn scan(
    context: &Context<'_>,
    name: &str,
    pass: impl Fn(&mut dyn Reader, &mut Checksum) -> Result<()>,
) -> Result<Vec<Measure>> {
    let (values, n) = (Values::small(), context.n);
    let engine = loaded(context, KeyOrder::Random, &values)?;
    let mut reader = engine.reader()?;
    let (mut seen, mut passes) = (Checksum::default(), 0);
    let phase = Phase::begin(context.limit);
    while passes < 3 || phase.elapsed().as_secs_f64() < SCAN_SECONDS_MIN {
        pass(&mut *reader, &mut seen)?;
        passes += 1;
    }
    let measure = phase.end(name, seen.count);
    context.note_memory();
    let mut one = Checksum::default();
    (0..n).for_each(|row| one.expect(KeyOrder::Random, &values, row, 0));
    let mut expected = Checksum::default();
    (0..passes).for_each(|_| expected.merge(one));
    let is_correct = seen == expected;
    let mut measure = measure.checked(if is_correct { one } else { seen }, one);
    measure.correct = is_correct;
    Ok(vec![measure])
}

/// Dropped page cache, small block cache, few gets.
pub fn cold_read(context: &Context<'_>) -> Result<Vec<Measure>> {
    let (values, order, n) = (Values::small(), KeyOrder::Random, context.n);
    drop(context.open_loaded(context.need(Access::Write), order, &values, n)?);
    meter::drop_from_page_cache(context.folder)?;
    let engine = context.open(context.need(Access::Cold))?;
    let mut reader = engine.reader()?;
    // The open may have read everything.
    meter::drop_from_page_cache(context.folder)?;
    let (mut seen, mut random, mut done) = (Checksum::default(), Random::new(mix(81)), 0);
    let ops = (n / 100).clamp(500, 20_000);
    let fetched_before = meter::bytes_fetched();
    let mut phase = Phase::begin(context.limit);
    while done < ops && !phase.is_over(done) {
        let key = order.key(random.below(n));
        reader.get(&key, &mut |value| seen.add(&key, value))?;
        phase.lap();
        done += 1;
    }
    let fetched = meter::bytes_fetched() - fetched_before;
    let measure = phase.end("cold_read", done).with("bytes_per_get", fetched as f64 / done as f64);
    context.note_memory();
    Ok(vec![measure.checked(seen, expect_random(mix(81), n, done, &values))])
}
