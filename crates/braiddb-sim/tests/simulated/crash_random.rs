//! Long random workloads under random options, crashed at random moments; half of the images again
//! inside recovery, up to three levels deep. The pass rule is that of `crash_exhaustive.rs`.

use crate::common;

use braiddb_sim::{CrashPolicy, Random};
use common::{
    Counter, SmallOptions,
    coverage::Coverage,
    explained, in_parallel, volume,
    workload::{ALPHABET, Run, Start, Step, check_recovery, recover},
};

const IMAGES_A_WORKLOAD: u64 = 25;

fn any_step(random: &mut Random) -> Step {
    match random.below(30) {
        0 => Step::Flush,
        1 => Step::Compact,
        2 => Step::Sync,
        3 => Step::Reopen,
        _ => ALPHABET[random.index(17)],
    }
}

#[test]
fn long_workload_after_crash_anywhere_is_prefix_of_commits() {
    let seed = common::seed();
    let small = Start::small();
    let (images, coverage) = (Counter::default(), Coverage::default());
    let workloads = volume(50_000).div_ceil(7 * IMAGES_A_WORKLOAD) as usize;
    in_parallel(workloads, |index| {
        let seed = seed + index as u64;
        let mut random = Random::new(seed);
        let steps: Vec<Step> = (0..10 + random.below(60)).map(|_| any_step(&mut random)).collect();
        let options = SmallOptions::random(&mut random);
        let start = Start { options: options.clone(), ..small.clone() };
        let mut run = explained(
            || format!("seed {seed}, {options:?}, workload {steps:?}"),
            || {
                let mut run = Run::start(&start);
                for (at, step) in steps.iter().enumerate() {
                    run.step(*step, at as u64);
                }
                run
            },
        );
        let operations = run.disk.operations();
        let mut moments: Vec<usize> = (0..IMAGES_A_WORKLOAD).map(|_| random.index(operations + 1)).collect();
        // Rising moments, so that the cached replay advances.
        moments.sort_unstable();
        for moment in moments {
            let mut policies = CrashPolicy::some(12, random.next_u64());
            let policy = policies.swap_remove(random.index(policies.len()));
            let depth = [0, 0, 0, 0, 1, 1, 2, 3][random.index(8)];
            explained(
                || {
                    format!(
                        "seed {seed}, {options:?}, crash after operation {moment} of {operations}, {policy:?}, depth {depth}"
                    )
                },
                || {
                    images.add(1);
                    let image = run.disk.crash_image(moment, policy);
                    let count = recover(&options, &image, |found| run.history.judge(moment, found));
                    if depth > 0 {
                        let image = run.disk.crash_image(moment, policy);
                        let state = run.history.state(count);
                        images.add(check_recovery(&options, &image, state, &mut random, depth, Some(3)));
                    }
                },
            );
        }
        run.close();
        coverage.add(&run.coverage);
    });
    println!("{} images of {workloads} workloads: {coverage:?}", images.get());
    coverage.check(workloads);
}
