//! If two threads each store and then load the other's store, at least one sees it.

use super::super::barrier::{heavy, is_one_sided, light};
use std::{
    hint,
    sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed},
    thread,
};

const ROUNDS: usize = 40_000;
/// Stores that keep the tested one in the store buffer.
const WRITES_BEFORE: usize = 6;

fn meet(mine: &AtomicUsize, other: &AtomicUsize, round: usize) {
    mine.store(round, Relaxed);
    let mut looks = 0_u32;
    while other.load(Relaxed) < round {
        looks += 1;
        if looks.is_multiple_of(2000) {
            thread::yield_now();
        }
        hint::spin_loop();
    }
}

#[test]
fn light_and_heavy_barrier_one_side_sees_other_store() {
    let is_one_sided = is_one_sided();
    let cells = || -> Vec<AtomicU32> { (0..ROUNDS * 16).map(|_| AtomicU32::new(0)).collect() };
    let (often, seldom, others) = (cells(), cells(), cells());
    let (at_often, at_seldom) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (seen_often, seen_seldom) = thread::scope(|scope| {
        let light_side = scope.spawn(|| {
            let see = |round: usize| {
                meet(&at_often, &at_seldom, round + 1);
                for write in 1..=WRITES_BEFORE {
                    others[(round * 7919 + write * 104_729) % others.len()].store(1, Relaxed);
                }
                often[round * 16].store(1, Relaxed);
                light(is_one_sided);
                seldom[round * 16].load(Relaxed)
            };
            (0..ROUNDS).map(see).collect::<Vec<u32>>()
        });
        let see = |round: usize| {
            meet(&at_seldom, &at_often, round + 1);
            seldom[round * 16].store(1, Relaxed);
            assert!(heavy(), "what the system does once it does again");
            often[round * 16].load(Relaxed)
        };
        let seen_often: Vec<u32> = (0..ROUNDS).map(see).collect();
        (seen_often, light_side.join().unwrap())
    });
    let neither = seen_often.iter().zip(&seen_seldom).filter(|&seen| seen == (&0, &0)).count();
    assert_eq!(neither, 0, "of {ROUNDS} rounds");
}
