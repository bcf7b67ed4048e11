//! `open_after_kill`: checks the acknowledged commits of a killed process.

use super::{Context, Measure, context::Batch, measure::Phase};
use crate::{
    data::{Checksum, KeyOrder, Values, is_of_row},
    engines::{Access, EngineKind},
    meter::MemorySampler,
};
use anyhow::{Context as _, Result, ensure};
use rustix::process::{Signal, getpid, kill_process};
use std::{
    cell::Cell,
    fs,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

const fn rows(n: u64) -> u64 {
    n / 4
}

pub fn open_after_kill(context: &Context<'_>) -> Result<Vec<Measure>> {
    let status = Command::new(std::env::current_exe()?)
        .args(["write-and-die", context.kind.name, &context.n.to_string()])
        .arg(context.folder)
        .stdin(Stdio::null())
        .status()?;
    ensure!(status.signal() == Some(Signal::KILL.as_raw()), "the writer ended by itself: {status}");
    let rows = rows(context.n);
    let order = KeyOrder::Random;
    let phase = Phase::begin(context.limit);
    let engine = context.open(context.need(Access::Write))?;
    let mut reader = engine.reader()?;
    reader.get(&order.key(0), &mut |_| ())?;
    let seconds = phase.elapsed().as_secs_f64();
    let measure = phase.end("open_after_kill", 1);
    context.note_memory();
    let (mut found, mut wrong) = (0, 0);
    for row in 0..rows {
        let there = reader.get(&order.key(row), &mut |value| wrong += u64::from(!is_of_row(value, row)))?;
        found += u64::from(there);
    }
    let mut measure = measure.with("open_ms", seconds * 1e3).with("lost", (rows - found) as f64);
    if let Some(replayed) = engine.replayed().filter(|replayed| *replayed > 0) {
        measure = measure.with("replayed", replayed as f64).with("ns_per_record", seconds * 1e9 / replayed as f64);
    }
    let mut measure = measure.checked(Checksum::default(), Checksum::default());
    measure.correct = wrong == 0;
    Ok(vec![measure])
}

pub fn write_and_die(kind: &EngineKind, n: u64, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let context = Context {
        kind,
        folder,
        loads: None,
        n,
        limit: Duration::MAX,
        sampler: MemorySampler::start(),
        budget: Cell::default(),
        anonymous_peak: Cell::default(),
        resident_peak: Cell::default(),
    };
    let engine = context.open(context.need(Access::Write))?;
    let (mut batch, values) = (Batch::new(1), Values::small());
    for row in 0..rows(n) {
        batch.fill(KeyOrder::Random, &values, std::iter::once((row, Some(0))));
        batch.commit(&*engine)?;
    }
    kill_process(getpid(), Signal::KILL).context("kill")
}
