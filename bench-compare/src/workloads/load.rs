//! Latency against load: one thread, half gets, half puts. A first phase gives the maximum rate;
//! then operations are due at fixed times, at shares of it. Latency counts from the due time.

use super::{
    Context, Measure,
    context::{Batch, scan_checksum},
    measure::Phase,
    mixed::time,
};
use crate::{
    data::{Checksum, KeyOrder, Random, Values, stamp},
    engines::{Access, Engine, Reader},
    histogram::Histogram,
};
use anyhow::Result;
use std::{
    hint, thread,
    time::{Duration, Instant},
};

/// Percent of the maximum rate.
pub const SHARES: [u64; 5] = [20, 40, 60, 80, 95];
/// Maximum busy wait for the next operation. A sleep may end this much too late.
const SPIN_MAX: Duration = Duration::from_micros(120);
const ORDER: KeyOrder = KeyOrder::Random;

/// `kind` is `reads` or `writes`.
pub fn measure_name(share: u64, kind: &str) -> String {
    format!("latency_load_{share}_{kind}")
}

pub fn latency_load(context: &Context<'_>) -> Result<Vec<Measure>> {
    let values = Values::small();
    let engine = context.open_loaded(context.need(Access::Write), ORDER, &values, context.n)?;
    let (reader, versions) = (engine.reader()?, vec![0; context.n as usize]);
    let random = Random::new(161);
    let mut mix =
        Mix { engine: &*engine, reader, values: &values, versions, random, batch: Batch::new(1), last: 0, wrong: 0 };
    let time = time(context);
    let mut measures = mix.run("latency_load_closed", None, time)?;
    let rate: f64 = measures.iter().map(|measure| measure.figures["rate"]).sum();
    for share in SHARES {
        let offered = rate * share as f64 / 100.0;
        let [reads, writes] = ["reads", "writes"].map(|kind| measure_name(share, kind));
        let mut of_share = mix.run("", Some(offered), time)?;
        for (measure, name) in of_share.iter_mut().zip([reads, writes]) {
            measure.name = name;
        }
        measures.extend(of_share);
    }
    context.note_memory();
    let mut expected = Checksum::default();
    for (row, version) in mix.versions.iter().enumerate() {
        expected.expect(ORDER, &values, row as u64, *version);
    }
    let is_correct = mix.wrong == 0 && scan_checksum(&mut *engine.reader()?)? == expected;
    measures.iter_mut().for_each(|measure| measure.correct = is_correct);
    Ok(measures)
}

struct Mix<'a> {
    engine: &'a dyn Engine,
    reader: Box<dyn Reader + 'a>,
    values: &'a Values,
    versions: Vec<u32>,
    random: Random,
    batch: Batch,
    last: u32,
    wrong: u64,
}

impl Mix<'_> {
    /// Runs at `offered` operations per second or full speed. Measures `name_reads`, `name_writes`.
    fn run(&mut self, name: &str, offered: Option<f64>, time: Duration) -> Result<Vec<Measure>> {
        let (reads, writes) = (Phase::begin(time), Phase::begin(time));
        let mut latencies = [Histogram::new(), Histogram::new()];
        let (start, mut number) = (Instant::now(), 0);
        loop {
            let mut due = Instant::now();
            if let Some(rate) = offered {
                due = start + Duration::from_secs_f64(number as f64 / rate);
                wait_until(due);
            }
            if due >= start + time || (offered.is_some() && start.elapsed() >= 2 * time) {
                break;
            }
            let is_write = self.random.next() & 1 == 1;
            let row = self.random.below(self.versions.len() as u64);
            if is_write {
                self.put(row)?
            } else {
                self.get(row)?
            }
            latencies[usize::from(is_write)].record(due.elapsed().as_nanos() as u64);
            number += 1;
        }
        let figures = |mut phase: Phase, kind: &str, latencies: &Histogram| {
            phase.merge(latencies);
            let measure = phase.end(&format!("{name}_{kind}"), latencies.total());
            let measure = measure.checked(Checksum::default(), Checksum::default());
            offered.into_iter().fold(measure, |measure, rate| measure.with("offered", rate))
        };
        Ok(vec![figures(reads, "reads", &latencies[0]), figures(writes, "writes", &latencies[1])])
    }

    fn put(&mut self, row: u64) -> Result<()> {
        self.last += 1;
        self.versions[row as usize] = self.last;
        self.batch.fill(ORDER, self.values, std::iter::once((row, Some(self.last))));
        self.batch.commit(self.engine)
    }

    fn get(&mut self, row: u64) -> Result<()> {
        let wanted = stamp(row, self.versions[row as usize]).to_le_bytes();
        let mut is_right = false;
        self.reader.refresh()?;
        self.reader.get(&ORDER.key(row), &mut |value| is_right = value.starts_with(&wanted))?;
        self.wrong += u64::from(!is_right);
        Ok(())
    }
}

fn wait_until(due: Instant) {
    loop {
        let ahead = due.saturating_duration_since(Instant::now());
        if ahead.is_zero() {
            return;
        }
        if ahead > SPIN_MAX { thread::sleep(ahead - SPIN_MAX) } else { hint::spin_loop() }
    }
}
