//! Runs the threads of a workload and measures them.
//!
//! With latencies, each thread reads the clock once per operation: a latency includes making the
//! row, but not the wait for a rate limit.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use cpu_time::ProcessTime;

use super::{
    distribution::Chooser,
    latencies::Latencies,
    pace::Pace,
    store::Store,
    tally::Tally,
    worker::{Task, Worker},
};
use crate::random::Random;

#[derive(Clone, Debug)]
pub struct Thread<'a> {
    pub task: &'a Task,
    pub chooser: Chooser,
    /// For choices other than rows.
    pub random: Random,
    /// Number of operations; `u64::MAX`: until time or rows run out.
    pub operations: u64,
    pub rate: Option<f64>,
    /// Runs beside the measured threads until they end.
    pub is_background: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub duration: Option<Duration>,
    pub latencies: bool,
    pub progress_every: Duration,
}

#[derive(Clone, Debug)]
pub struct Side {
    pub operations: u64,
    pub seconds: f64,
    pub tally: Tally,
    pub latencies: Latencies,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub front: Side,
    pub background: Option<Side>,
    pub done: Vec<u64>,
    pub processor_seconds: Option<f64>,
}

struct Report {
    operations: u64,
    began: Instant,
    ended: Instant,
    tally: Tally,
    latencies: Latencies,
}

/// A counter on its own cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

struct Control {
    stop: AtomicBool,
    start: Barrier,
}

struct Ending<'a> {
    control: &'a Control,
    sender: Sender<bool>,
    is_background: bool,
    is_ok: bool,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if !self.is_ok {
            self.control.stop.store(true, Ordering::Relaxed);
        }
        let _ = self.sender.send(self.is_background);
    }
}

pub fn run<S: Store + Send>(
    threads: &[Thread<'_>],
    stores: Vec<S>,
    run: Run,
    progress: &mut dyn FnMut(u64, Duration),
) -> Result<Outcome> {
    let control = Control { stop: AtomicBool::new(false), start: Barrier::new(threads.len() + 1) };
    let counters: Vec<Counter> = threads.iter().map(|_| Counter::default()).collect();
    let (sender, receiver) = mpsc::channel();
    let mut processor_began = None;
    let reports = thread::scope(|scope| {
        let mut handles = Vec::new();
        for ((thread, store), counter) in threads.iter().zip(stores).zip(&counters) {
            let (control, sender, is_background) = (&control, sender.clone(), thread.is_background);
            handles.push(scope.spawn(move || {
                let mut ending = Ending { control, sender, is_background, is_ok: false };
                let report = work(thread, store, control, counter, run.latencies);
                ending.is_ok = report.is_ok();
                report
            }));
        }
        drop(sender);
        processor_began = ProcessTime::try_now().ok();
        control.start.wait();
        let fronts = threads.iter().filter(|thread| !thread.is_background).count();
        let done = || threads.iter().zip(&counters).filter(|(thread, _)| !thread.is_background);
        let mut report =
            |elapsed| progress(done().map(|(_, counter)| counter.0.load(Ordering::Relaxed)).sum(), elapsed);
        watch(&control, &receiver, fronts, run, &mut report);
        let join = |handle: thread::ScopedJoinHandle<'_, Result<Report>>| {
            handle.join().unwrap_or_else(|_| Err(anyhow!("a benchmark thread panicked")))
        };
        handles.into_iter().map(join).collect::<Result<Vec<Report>>>()
    })?;
    let processor_time = processor_began.and_then(|began| began.try_elapsed().ok());
    let side = |is_background: bool| {
        let of_side = threads.iter().zip(&reports).filter(|(thread, _)| thread.is_background == is_background);
        Side::of(&of_side.map(|(_, report)| report).collect::<Vec<_>>())
    };
    let has_background = threads.iter().any(|thread| thread.is_background);
    Ok(Outcome {
        front: side(false),
        background: has_background.then(|| side(true)),
        done: reports.iter().map(|report| report.operations).collect(),
        processor_seconds: processor_time.map(|time| time.as_secs_f64()),
    })
}

impl Outcome {
    pub fn processor_us(&self) -> Option<f64> {
        Some(self.processor_seconds? * 1e6 / self.front.operations.max(1) as f64)
    }
}

impl Side {
    fn of(reports: &[&Report]) -> Side {
        let began = reports.iter().map(|report| report.began).min();
        let ended = reports.iter().map(|report| report.ended).max();
        let elapsed = ended.zip(began).map_or(Duration::ZERO, |(ended, began)| ended - began);
        let (mut tally, mut latencies) = (Tally::default(), Latencies::new());
        for report in reports {
            tally.merge(&report.tally);
            latencies.merge(&report.latencies);
        }
        let operations = reports.iter().map(|report| report.operations).sum();
        Side { operations, seconds: elapsed.as_secs_f64(), tally, latencies }
    }
}

fn watch(
    control: &Control,
    endings: &mpsc::Receiver<bool>,
    mut fronts: usize,
    run: Run,
    report: &mut dyn FnMut(Duration),
) {
    let began = Instant::now();
    let mut next_report = run.progress_every;
    while fronts > 0 {
        let until = run
            .duration
            .filter(|_| !control.stop.load(Ordering::Relaxed))
            .map_or(next_report, |end| end.min(next_report));
        match endings.recv_timeout(until.saturating_sub(began.elapsed())) {
            Ok(is_background) => fronts -= usize::from(!is_background),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let elapsed = began.elapsed();
                if run.duration.is_some_and(|end| elapsed >= end) {
                    control.stop.store(true, Ordering::Relaxed);
                }
                if elapsed >= next_report {
                    report(elapsed);
                    next_report = elapsed + run.progress_every;
                }
            }
        }
    }
    control.stop.store(true, Ordering::Relaxed);
}

fn work<S: Store>(
    thread: &Thread<'_>,
    store: S,
    control: &Control,
    counter: &Counter,
    wants_latencies: bool,
) -> Result<Report> {
    let mut worker = Worker::new(thread.task, store, thread.chooser.clone(), thread.random.clone());
    let mut pace = thread.rate.map(Pace::new);
    let mut latencies = Latencies::new();
    let mut operations = 0;
    control.start.wait();
    let began = Instant::now();
    let mut lap = began;
    // At least one operation, so that a background writer writes beside short reads.
    while operations < thread.operations && !(operations > 0 && control.stop.load(Ordering::Relaxed)) {
        if let Some(pace) = &pace {
            if !pace.sleep(began, &control.stop) {
                break;
            }
            lap = Instant::now();
        }
        let Some(step) = worker.step(thread.operations - operations)? else { break };
        operations += step.operations;
        counter.0.store(operations, Ordering::Relaxed);
        if let Some(pace) = &mut pace {
            pace.take(step.operations, (lap - began).as_nanos() as u64);
        }
        if wants_latencies {
            let now = Instant::now();
            latencies.record(step.kind, (now - lap).as_nanos() as u64);
            lap = now;
        }
    }
    Ok(Report { operations, began, ended: Instant::now(), tally: worker.into_tally(), latencies })
}

pub fn harness_ns(thread: &Thread<'_>, store: impl Store, operations: u64, wants_latencies: bool) -> Result<f64> {
    let alone = Thread { operations: operations.min(thread.operations), rate: None, ..thread.clone() };
    let control = Control { stop: AtomicBool::new(false), start: Barrier::new(1) };
    let report = work(&alone, store, &control, &Counter::default(), wants_latencies)?;
    Ok((report.ended - report.began).as_nanos() as f64 / report.operations.max(1) as f64)
}
