//! Every workload of up to three steps, crashed at every I/O operation, under several policies.
//!
//! Pass rule: the recovered state is that after P commits. P is at least the number of promised
//! commits (by a durable commit, `sync`, `flush`, `compact` or `close`) and at most the number of
//! submitted ones. One more commit then works and survives a crash or reopening. A crash inside
//! recovery changes nothing.
//!
//! Runs are reproducible, so only the last step of each workload is crashed. All workloads start
//! from a small database with data in a run and in the log; those that merge unindexed runs also
//! from one that has some.

use crate::common;

use braiddb_sim::{CrashPolicy, Random, SimDisk, model::History};
use common::{
    Counter, SmallOptions, explained, in_parallel, volume,
    workload::{ALPHABET, Run, Start, Step, check_recovery, recover},
};
use std::sync::Arc;

struct Case {
    steps: Vec<Step>,
    options: SmallOptions,
    disk: Arc<SimDisk>,
    history: History,
    from: usize,
    to: usize,
    loose_merges: u64,
}

impl Case {
    fn run(steps: &[Step], start: &Start) -> Case {
        explained(
            || format!("workload {steps:?}"),
            || {
                // Half of the workloads map the log.
                let start = Start { disk: start.disk.fork(), ..start.clone() };
                start.disk.set_mapping(steps.iter().map(|step| *step as usize).sum::<usize>() % 2 == 1);
                let mut run = Run::start(&start);
                let (mut from, mut loose_merges) = (0, 0);
                for (at, step) in steps.iter().enumerate() {
                    from = if at == 0 { 0 } else { run.disk.operations() };
                    loose_merges = run.loose_merges();
                    run.step(*step, at as u64);
                }
                let to = run.disk.operations();
                let loose_merges = run.loose_merges() - loose_merges;
                let (disk, history) = (run.disk.clone(), run.history.clone());
                Case { steps: steps.to_vec(), options: start.options, disk, history, from, to, loose_merges }
            },
        )
    }

    /// `nested` is the depth of crashes inside recovery.
    fn check(&self, moment: usize, policy: CrashPolicy, nested: u32, images: &Counter) {
        let last = || moment.checked_sub(1).map_or_else(String::new, |last| self.disk.operation_text(last));
        let (steps, to) = (&self.steps, self.to);
        let what = || format!("workload {steps:?}, crash after operation {moment} of {to} ({}), {policy:?}", last());
        explained(what, || {
            images.add(1);
            let image = self.disk.crash_image(moment, policy);
            let count = recover(&self.options, &image, |found| self.history.judge(moment, found));
            if nested > 0 {
                let mut random = Random::new(moment as u64);
                let image = self.disk.crash_image(moment, policy);
                let state = self.history.state(count);
                images.add(check_recovery(&self.options, &image, state, &mut random, nested, None));
            }
        });
    }
}

fn workloads() -> Vec<Vec<Step>> {
    let mut all: Vec<Vec<Step>> = Vec::new();
    let mut last: Vec<Vec<Step>> = vec![Vec::new()];
    for _ in 0..3 {
        last = last.iter().flat_map(|steps| ALPHABET.map(|step| [&steps[..], &[step]].concat())).collect();
        all.extend(last.iter().cloned());
    }
    all
}

#[test]
fn short_workload_after_crash_anywhere_is_prefix_of_commits() {
    crash_anywhere(&Start::small(), volume(100_000), &workloads());
}

#[test]
fn short_merging_workload_after_crash_anywhere_is_prefix_of_commits() {
    let start = Start::loose();
    let mut workloads = workloads();
    workloads.retain(|steps| Case::run(steps, &start).loose_merges > 0);
    assert!(workloads.len() > 100, "{} workloads", workloads.len());
    crash_anywhere(&start, volume(20_000), &workloads);
}

/// Crashes the last step of each workload, about `target` times in total.
fn crash_anywhere(start: &Start, target: u64, workloads: &[Vec<Step>]) {
    let seed = common::seed();
    let boundaries = Counter::default();
    in_parallel(workloads.len(), |index| {
        let case = Case::run(&workloads[index], start);
        boundaries.add((case.to - case.from + 1) as u64);
    });
    let boundaries = boundaries.get();
    let images = Counter::default();
    in_parallel(workloads.len(), |index| {
        let case = Case::run(&workloads[index], start);
        let mut random = Random::new(seed ^ ((index as u64) << 20));
        for moment in case.from..=case.to {
            let part = target * 8 / 10;
            let count = part / boundaries + u64::from(random.below(boundaries) < part % boundaries);
            let mut policies = CrashPolicy::some(count, random.next_u64());
            if let Some(len) = moment.checked_sub(1).and_then(|last| case.disk.write_len(last)) {
                policies.push(CrashPolicy::TornLast { bytes: random.below(len + 1) });
            }
            for _ in 0..count {
                let policy = policies.swap_remove(random.index(policies.len()));
                case.check(moment, policy, u32::from(random.chance(1, 100)), &images);
            }
        }
    });
    println!("{} images of {} workloads with {boundaries} boundaries", images.get(), workloads.len());
    assert!(images.get() > 0);
}

#[test]
fn workload_with_write_torn_at_any_byte_is_prefix_of_commits() {
    let start = Start::small();
    let images = Counter::default();
    let every = if cfg!(debug_assertions) { 17 } else { 1 };
    let steps = [Step::PutSync, Step::PutBuffered, Step::Batch, Step::BigValueSync, Step::Flush, Step::Compact];
    in_parallel(steps.len(), |index| {
        let case = Case::run(&[steps[index]], &start);
        for moment in 1..=case.to {
            if let Some(len) = case.disk.write_len(moment - 1) {
                for bytes in (0..len.min(1000)).step_by(every) {
                    case.check(moment, CrashPolicy::TornLast { bytes }, 0, &images);
                }
            }
        }
    });
    println!("{} images", images.get());
}

#[test]
fn new_database_after_crash_anywhere_is_prefix_of_commits() {
    let seed = common::seed();
    let empty = Start::empty();
    let images = Counter::default();
    let workloads = [vec![Step::PutSync], vec![Step::Flush], vec![Step::PutBuffered, Step::Reopen], vec![Step::Batch]];
    in_parallel(workloads.len(), |index| {
        let case = Case::run(&workloads[index], &empty);
        for moment in 0..=case.to {
            for policy in CrashPolicy::some(volume(20), seed + moment as u64) {
                let nested = u32::from(moment % 8 == 0 && policy == CrashPolicy::KeepAll);
                case.check(moment, policy, nested, &images);
            }
        }
    });
    println!("{} images", images.get());
    assert!(empty.disk.files().is_empty(), "the workloads ran on copies");
}
