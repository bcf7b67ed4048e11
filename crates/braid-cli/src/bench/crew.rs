//! The threads of a workload, with their tasks.

use anyhow::Result;

use super::{
    arguments::BenchArguments,
    distribution::{Chooser, Distribution, Share},
    rows::{Keys, Values},
    runner::{Thread, harness_ns},
    store::Nothing,
    worker::{Action, Task},
    workload::Plan,
    ycsb::{Inserts, SCAN_ROWS_MAX},
};
use crate::random::Random;

const HARNESS_ROWS_MAX: u64 = 1_000_000;
const HARNESS_BYTES_MAX: u64 = 64 << 20;
const HARNESS_OPERATIONS_MAX: u64 = 20_000;
/// Number of tries; the fastest counts.
const HARNESS_TRIES: usize = 3;

#[derive(Clone, Copy, Debug)]
pub struct ThreadPool<'a> {
    pub arguments: &'a BenchArguments,
    pub plan: &'a Plan,
    pub keys: Keys,
    /// Position in the list of benchmarks; selects the random streams.
    pub index: u64,
    pub rows_end: u64,
}

impl ThreadPool<'_> {
    pub fn task(&self) -> Task {
        self.task_of(self.plan.action)
    }

    pub fn writer_task(&self) -> Task {
        self.task_of(Action::Put)
    }

    fn task_of(&self, action: Action) -> Task {
        Task {
            action,
            batch: self.plan.batch,
            keys: self.keys,
            values: Values::new(self.plan.value_size, self.arguments.compressible),
            inserts: Inserts::new(self.rows_end),
        }
    }

    pub fn distribution(&self) -> Option<Distribution> {
        let usual = match self.plan.action {
            Action::Mixed(mix) => mix.distribution(),
            _ => Distribution::Uniform,
        };
        (!self.plan.in_order).then(|| self.arguments.distribution.unwrap_or(usual))
    }

    pub fn operations(&self) -> Option<u64> {
        let is_timed = self.arguments.duration.is_some() && !self.plan.in_order;
        match self.plan.operations {
            _ if is_timed => None,
            u64::MAX => Some(self.rows_end),
            operations => Some(operations),
        }
    }

    pub fn threads<'t>(&self, task: &'t Task, writer: &'t Task) -> Vec<Thread<'t>> {
        let mut threads: Vec<_> = (0..self.arguments.threads).map(|number| self.thread(task, number)).collect();
        if self.plan.has_writer {
            let rate = self.arguments.write_rate.map(|rate| rate as f64);
            let all = self.arguments.threads;
            let thread = self.thread(writer, all);
            threads.push(Thread { operations: u64::MAX, rate, is_background: true, ..thread });
        }
        threads
    }

    fn thread<'t>(&self, task: &'t Task, number: u64) -> Thread<'t> {
        let share = Share { thread: number % self.arguments.threads, threads: self.arguments.threads };
        let random = |purpose| Random::of(self.arguments.seed, (self.index << 32) | (number << 8) | purpose);
        let is_timed = self.arguments.duration.is_some() && !self.plan.in_order;
        let operations = match self.plan.operations {
            _ if is_timed => u64::MAX,
            u64::MAX => u64::MAX,
            operations => share.of(operations).count() as u64,
        };
        let limited = [Action::is_blind, |action| matches!(action, Action::Update)];
        let is_limited = limited.iter().any(|applies| applies(task.action));
        let rate = self.arguments.write_rate.filter(|_| is_limited);
        Thread {
            task,
            chooser: self.chooser(share, random(0)),
            random: random(1),
            operations,
            rate: rate.map(|rate| rate as f64 / self.arguments.threads as f64),
            is_background: false,
        }
    }

    fn chooser(&self, share: Share, random: Random) -> Chooser {
        let Some(distribution) = self.distribution() else {
            let is_pass = matches!(self.plan.action, Action::Pass { .. });
            let rows = share.of(if is_pass { self.rows_end } else { self.plan.rows });
            // The last thread of a pass also covers unexpected rows at the end.
            let is_last = share.thread + 1 == share.threads;
            return Chooser::once(rows.start..if is_pass && is_last { u64::MAX } else { rows.end });
        };
        let rows = if matches!(self.plan.action, Action::Mixed(_)) { self.rows_end } else { self.plan.rows };
        Chooser::at_random(distribution, rows, random, share)
    }

    /// Measures an operation's cost without the engine, in nanoseconds; `None` if it is too large.
    pub fn harness_ns(&self) -> Result<Option<f64>> {
        let rows = match self.plan.action {
            Action::Seek { nexts } => nexts + 1,
            Action::Mixed(_) => SCAN_ROWS_MAX,
            _ => 1,
        };
        let bytes = rows * (self.keys.size + self.plan.value_size.max) as u64;
        let operations = HARNESS_OPERATIONS_MAX.min(HARNESS_ROWS_MAX / rows).min(HARNESS_BYTES_MAX / bytes);
        if operations == 0 {
            return Ok(None);
        }
        // A separate task: these inserts are no missing rows.
        let task = self.task();
        let (mut key, mut value) = (self.keys.buffer(), Vec::new());
        self.keys.write(0, &mut key);
        task.values.write(0, 0, &mut value);
        let thread = self.thread(&task, 0);
        let mut best = f64::INFINITY;
        for _ in 0..HARNESS_TRIES {
            let store = Nothing::new(key.clone(), value.clone());
            best = best.min(harness_ns(&thread, store, operations, self.arguments.histogram)?);
        }
        Ok(Some(best))
    }
}
