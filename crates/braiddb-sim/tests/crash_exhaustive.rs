//! Every workload of up to three steps, crashed at every I/O operation, under a handful of policies.
//!
//! The pass rule: what is recovered is the state after P commits, where P is at least the number that were promised
//! (by an acknowledged durable commit, `sync`, `flush`, `compact` or `close`) and at most the number submitted. Then
//! one more commit works and survives one more crash or reopening. A crash inside recovery changes nothing.
//!
//! A workload's prefix is a workload itself, and a run is the same each time, so that only the operations of the last
//! step are crashed at. All start from one small database, with data in a run and in the log.

mod common;

use braiddb_sim::{
    CrashPolicy, Random, SimDisk,
    model::{Contents, History},
};
use common::{
    Counter, empty_disk, explained, in_parallel, volume,
    workload::{ALPHABET, Run, SEED, Step, base, check_recovery, recover},
};
use std::sync::Arc;

/// A workload that was run, and the moments of its last step.
struct Case {
    steps: Vec<Step>,
    disk: Arc<SimDisk>,
    history: History,
    from: usize,
    to: usize,
}

impl Case {
    /// Runs the steps from a closed database.
    fn run(steps: &[Step], disk: &Arc<SimDisk>, contents: &Contents) -> Case {
        explained(
            || format!("workload {steps:?}"),
            || {
                // Half of the workloads write the log through memory.
                let disk = disk.fork();
                disk.set_mapping(steps.iter().map(|step| *step as usize).sum::<usize>() % 2 == 1);
                let mut run = Run::start(&disk, contents);
                let mut from = 0;
                for (at, step) in steps.iter().enumerate() {
                    // The moments before the last step belong to the shorter workloads.
                    from = if at == 0 { 0 } else { run.disk.operations() };
                    run.step(*step, at as u64);
                }
                let to = run.disk.operations();
                Case { steps: steps.to_vec(), disk: run.disk.clone(), history: run.history.clone(), from, to }
            },
        )
    }

    /// Crashes at a moment, recovers, and judges. `nested` adds crashes inside the recovery, so many deep.
    fn check(&self, moment: usize, policy: CrashPolicy, nested: u32, images: &Counter) {
        let last = || moment.checked_sub(1).map_or_else(String::new, |last| self.disk.operation_text(last));
        let (steps, to) = (&self.steps, self.to);
        let what = || format!("workload {steps:?}, crash after operation {moment} of {to} ({}), {policy:?}", last());
        explained(what, || {
            images.add(1);
            let count = recover(&self.disk.crash_image(moment, policy), |found| self.history.judge(moment, found));
            if nested > 0 {
                let mut random = Random::new(moment as u64);
                let image = self.disk.crash_image(moment, policy);
                images.add(check_recovery(&image, self.history.state(count), &mut random, nested, None));
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
fn every_short_workload_survives_a_crash_anywhere() {
    let seed = common::seed();
    let target = volume(100_000);
    let (disk, contents) = base();
    let workloads = workloads();
    let boundaries = Counter::default();
    in_parallel(workloads.len(), |index| {
        let case = Case::run(&workloads[index], &disk, &contents);
        boundaries.add((case.to - case.from + 1) as u64);
    });
    // So many policies at each boundary, or, where the volume is small, one at each so many boundaries.
    let boundaries = boundaries.get();
    let images = Counter::default();
    in_parallel(workloads.len(), |index| {
        let case = Case::run(&workloads[index], &disk, &contents);
        let mut random = Random::new(seed ^ ((index as u64) << 20));
        for moment in case.from..=case.to {
            // About a fifth of the images come from the nested checks.
            let part = target * 8 / 10;
            let count = part / boundaries + u64::from(random.below(boundaries) < part % boundaries);
            let mut policies = CrashPolicy::some(count, random.next_u64());
            if let Some(len) = moment.checked_sub(1).and_then(|last| case.disk.write_len(last)) {
                policies.push(CrashPolicy::TornLast { bytes: random.below(len + 1) });
            }
            for _ in 0..count {
                let policy = policies.swap_remove(random.index(policies.len()));
                // A nested check makes an image for each operation of the recovery.
                case.check(moment, policy, u32::from(random.chance(1, 100)), &images);
            }
        }
    });
    println!("{} images of {} workloads with {boundaries} boundaries", images.get(), workloads.len());
    assert!(images.get() > 0);
}

#[test]
fn a_torn_write_is_survived_at_each_byte() {
    let (disk, contents) = base();
    let images = Counter::default();
    let every = if cfg!(debug_assertions) { 17 } else { 1 };
    let steps = [Step::PutSync, Step::PutBuffered, Step::Batch, Step::BigValueSync, Step::Flush, Step::Compact];
    in_parallel(steps.len(), |index| {
        let case = Case::run(&[steps[index]], &disk, &contents);
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
fn a_database_being_created_survives_a_crash_anywhere() {
    let seed = common::seed();
    let empty = empty_disk(SEED);
    let images = Counter::default();
    let workloads = [vec![Step::PutSync], vec![Step::Flush], vec![Step::PutBuffered, Step::Reopen], vec![Step::Batch]];
    in_parallel(workloads.len(), |index| {
        let case = Case::run(&workloads[index], &empty, &Contents::new());
        for moment in 0..=case.to {
            for policy in CrashPolicy::some(volume(20), seed + moment as u64) {
                let nested = u32::from(moment % 8 == 0 && policy == CrashPolicy::KeepAll);
                case.check(moment, policy, nested, &images);
            }
        }
    });
    println!("{} images", images.get());
    assert!(empty.files().is_empty(), "the workloads ran on copies");
}
