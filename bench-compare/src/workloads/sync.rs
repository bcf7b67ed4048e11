//! Durable commits: rate relative to the device, and processor time.

use super::{
    Context, Measure,
    context::{Batch, scan_checksum},
    measure::Phase,
};
use crate::{
    data::{Checksum, KeyOrder, Random, Values},
    engines::Access,
    histogram::Histogram,
};
use anyhow::{Context as _, Result};
use rustix::fs::{fdatasync, fsync};
use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// About a log record of one put.
const BARE_LEN: usize = 192;
/// Commits and bare writes alternate in groups, because the device's speed changes by the second.
const BARE_EVERY: u64 = 200;

pub fn commit_sync_one(context: &Context<'_>) -> Result<Vec<Measure>> {
    let (values, order) = (Values::small(), KeyOrder::Random);
    let mut need = context.need(Access::Write);
    need.durable = true;
    let engine = context.open(need)?;
    let mut bare = Bare::new(context.folder)?;
    let (mut batch, mut latencies) = (Batch::new(1), Histogram::new());
    let mut phase = Phase::begin(context.limit);
    let mut done = 0;
    while done < commits(context) && phase.elapsed() < context.limit {
        batch.fill(order, &values, std::iter::once((done, Some(0))));
        let begun = Instant::now();
        batch.commit(&*engine)?;
        latencies.record(begun.elapsed().as_nanos() as u64);
        done += 1;
        if done.is_multiple_of(BARE_EVERY) {
            phase.pause(|| bare.write(BARE_EVERY))?;
        }
    }
    if bare.writes == 0 {
        phase.pause(|| bare.write(BARE_EVERY))?;
    }
    phase.merge(&latencies);
    let seconds = phase.elapsed().as_secs_f64();
    let measure = phase.end("commit_sync_1", done);
    context.note_memory();
    let mut expected = Checksum::default();
    (0..done).for_each(|row| expected.expect(order, &values, row, 0));
    let measure = measure.checked(scan_checksum(&mut *engine.reader()?)?, expected);
    let bare_us = bare.us();
    let commit_us = seconds * 1e6 / done as f64;
    Ok(vec![measure.with("bare_us", bare_us).with("over_bare", commit_us / bare_us)])
}

fn commits(context: &Context<'_>) -> u64 {
    (context.n / 100).clamp(400, 20_000)
}

pub fn commit_sync_four(context: &Context<'_>) -> Result<Vec<Measure>> {
    Ok(vec![commit_sync(context, "commit_sync_4", 4)?])
}

pub fn commit_sync_sixteen(context: &Context<'_>) -> Result<Vec<Measure>> {
    Ok(vec![commit_sync(context, "commit_sync_16", 16)?])
}

fn commit_sync(context: &Context<'_>, name: &str, threads: u64) -> Result<Measure> {
    let (values, order) = (Values::small(), KeyOrder::Random);
    let mut need = context.need(Access::Write);
    need.durable = true;
    let engine = context.open(need)?;
    let (engine, values) = (&*engine, &values);
    let ops = commits(context);
    let (next, done) = (&AtomicU64::new(0), &AtomicU64::new(0));
    let mut phase = Phase::begin(context.limit);
    let limit = context.limit;
    let commit = move || -> Result<Histogram> {
        let (mut batch, mut latencies) = (Batch::new(1), Histogram::new());
        let start = Instant::now();
        while start.elapsed() < limit {
            let row = next.fetch_add(1, Ordering::Relaxed);
            if row >= ops {
                break;
            }
            batch.fill(order, values, std::iter::once((row, Some(0))));
            let begun = Instant::now();
            batch.commit(engine)?;
            latencies.record(begun.elapsed().as_nanos() as u64);
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(latencies)
    };
    let results = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(commit)).collect();
        threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    for result in results {
        phase.merge(&result.ok().context("a committer panicked")??);
    }
    let done = done.load(Ordering::Relaxed);
    let measure = phase.end(name, done);
    context.note_memory();
    let mut expected = Checksum::default();
    (0..done).for_each(|row| expected.expect(order, values, row, 0));
    Ok(measure.checked(scan_checksum(&mut *engine.reader()?)?, expected))
}

/// A small write into a preallocated file, and `fdatasync`.
struct Bare {
    path: PathBuf,
    file: File,
    writes: u64,
    taken: Duration,
}

impl Bare {
    const FILE_LEN: u64 = 4 << 20;

    fn new(folder: &Path) -> Result<Bare> {
        let path = folder.join("bare");
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
        file.write_all(&vec![0; Bare::FILE_LEN as usize])?;
        fsync(&file)?;
        Ok(Bare { path, file, writes: 0, taken: Duration::ZERO })
    }

    fn write(&mut self, writes: u64) -> Result<()> {
        let record = [1; BARE_LEN];
        let start = Instant::now();
        for number in self.writes..self.writes + writes {
            self.file.write_all_at(&record, number % (Bare::FILE_LEN / BARE_LEN as u64) * BARE_LEN as u64)?;
            fdatasync(&self.file)?;
        }
        self.writes += writes;
        self.taken += start.elapsed();
        Ok(())
    }

    fn us(&self) -> f64 {
        self.taken.as_secs_f64() * 1e6 / self.writes.max(1) as f64
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Single commits of `sync_cpu`; commits of 100 puts are a tenth of it.
const SYNC_CPU_COMMITS: u64 = if cfg!(test) { 100 } else { 1000 };

pub fn sync_cpu(context: &Context<'_>) -> Result<Vec<Measure>> {
    let (values, order, n) = (Values::kilobyte(), KeyOrder::Random, context.n);
    let mut need = context.need(Access::Write);
    need.data_bytes = values.user_bytes(n);
    drop(context.open_loaded(need, order, &values, n)?);
    need.durable = true;
    let engine = context.open(need)?;
    // Written: a first write would make the system clear a page during the measurement.
    let mut versions: Vec<u32> = (0..n).map(|_| std::hint::black_box(0)).collect();
    let mut random = Random::new(101);
    let mut measures = Vec::new();
    for (name, len, commits) in [("sync_cpu_1", 1, SYNC_CPU_COMMITS), ("sync_cpu_100", 100, SYNC_CPU_COMMITS / 10)] {
        let rows: Vec<u64> = (0..commits * len).map(|_| random.below(n)).collect();
        let batches: Vec<Batch> = rows
            .chunks(len as usize)
            .map(|rows| {
                let mut batch = Batch::new(rows.len());
                let versions = &mut versions;
                let next = rows.iter().map(|row| {
                    versions[*row as usize] += 1;
                    (*row, Some(versions[*row as usize]))
                });
                batch.fill(order, &values, next);
                batch
            })
            .collect();
        let mut phase = Phase::begin(context.limit);
        let mut done = 0;
        for batch in &batches {
            if phase.elapsed() >= context.limit {
                break;
            }
            batch.commit(&*engine)?;
            phase.lap();
            done += 1;
        }
        measures.push(phase.end(name, done));
        for row in &rows[(done * len) as usize..] {
            versions[*row as usize] -= 1;
        }
    }
    context.note_memory();
    let mut expected = Checksum::default();
    for (row, version) in versions.iter().enumerate() {
        expected.expect(order, &values, row as u64, *version);
    }
    let seen = scan_checksum(&mut *engine.reader()?)?;
    Ok(measures.into_iter().map(|measure| measure.checked(seen, expected)).collect())
}
