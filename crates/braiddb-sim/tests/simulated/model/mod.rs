//! Random operations on a database and on the reference model, under random options: all answers
//! must be equal. A failing case is shrunk; `BRAIDDB_SEED` reproduces the cases.

macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(format!($($text)*));
        }
    };
}

mod boundaries;
mod copies;
mod followers;
mod multi;
mod outcome;
mod ranges;
mod reads;
mod seen;
mod settings;
mod steps;
mod watchers;
mod world;
mod writes;

use crate::common::{self, coverage::Coverage, volume};
use braiddb_sim::Random;
use outcome::Outcome;
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{RngAlgorithm, TestCaseError, TestRng, TestRunner},
};
use seen::Seen;
use settings::Settings;
use steps::{Step, any_step};
use world::World;

/// Minimum cases to expect every event: with fewer, rare ones may be missing by chance.
const CASES_FOR_ALL: u32 = 400;

fn run_case(seed: u64, steps: &[Step], coverage: &Coverage, seen: &Seen) -> Outcome {
    let crashes = steps.iter().any(|step| matches!(step, Step::Crash { .. }));
    let settings = Settings::random(&mut Random::new(seed), crashes);
    let mut world = World::new(settings.clone(), coverage, seen)?;
    let mut run = || {
        for (number, step) in steps.iter().enumerate() {
            world.step_and_note(step).map_err(|text| format!("step {number}, {step:?}: {text}"))?;
        }
        world.check_all().map_err(|text| format!("at the end: {text}"))?;
        world.step_and_note(&Step::Verify)?;
        world.reopen(seed.is_multiple_of(2))?;
        world.check_all().map_err(|text| format!("after reopening: {text}"))?;
        world.show_all().map_err(|text| format!("watchers at the end: {text}"))
    };
    run().map_err(|text| format!("{text}; settings: {settings:?}"))
}

/// A quarter of the cases; the parts run in parallel.
fn run_part(part: u64) {
    let seed = common::seed();
    let mut random = Random::new(seed ^ (part << 32));
    let rng_seed = random.bytes(32);
    let cases = u32::try_from(volume(2000).div_ceil(4)).expect("fewer than four billion cases");
    let config =
        ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 3000, ..ProptestConfig::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &rng_seed);
    let (coverage, seen) = (Coverage::default(), Seen::default());
    let outcome = TestRunner::new_with_rng(config, rng)
        .run(&(any::<u64>(), vec(any_step(), 1..70)), |(seed, steps)| {
            run_case(seed, &steps, &coverage, &seen).map_err(TestCaseError::fail)
        });
    if let Err(failure) = outcome {
        panic!("BRAIDDB_SEED={seed}, part {part}: {failure}");
    }
    println!("{cases} cases: {coverage:?} {seen:?}");
    coverage.check(cases as usize);
    if cases >= CASES_FOR_ALL {
        seen.check();
    }
    assert!(coverage.hash_indexes.get() > 0, "no hash index was built: {coverage:?}");
    assert!(coverage.blocks_in_place.get() > 0, "no block was read in place: {coverage:?}");
}

#[test]
fn random_operations_of_part_0_match_model() {
    run_part(0);
}

#[test]
fn random_operations_of_part_1_match_model() {
    run_part(1);
}

#[test]
fn random_operations_of_part_2_match_model() {
    run_part(2);
}

#[test]
fn random_operations_of_part_3_match_model() {
    run_part(3);
}
