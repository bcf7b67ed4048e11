//! Histories of conflicting transactions, judged by replay on a model and by a search for cycles in
//! the values alone (`braiddb_sim::{history, cycles}`).
//!
//! Scheduled histories run logical threads in one thread, in random order. A seed reproduces them;
//! a wrong one is cut to its shortest wrong prefix. Real threads run freely, or queue their commits
//! behind an exclusive transaction as one group.
//!
//! `BRAIDDB_VOLUME=1` is the full number of histories, also in a debug build; 3.4 gives ten
//! thousand scheduled ones.

use crate::common;

use braiddb::platform::MemVfs;
use braiddb_sim::{
    Random, SimRuntime,
    contention::{Open, World, is_list},
    cycles::check_lists,
    history::{Kind, Outcome, Record, check_replay},
    mix, numbered,
};
use common::{
    Counter, SmallOptions, empty_disk, explained, in_parallel,
    threads::{bounded, ok},
    volume,
};
use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

/// Scheduled histories and their transactions.
const SCHEDULED: u64 = 3_000;
const TRANSACTIONS: u64 = 100;

/// Histories with free threads, and transactions of each.
const FREE: u64 = 300;
const TRANSACTIONS_OF_THREAD: u64 = 100;

/// Histories with queued commits, and their rounds.
const QUEUED: u64 = 300;
const ROUNDS: u64 = 40;

/// Transactions after which the keys change.
const EPOCH: u64 = 30;

/// Histories with quiet spells of blind writes, long enough that the engine closes its window of
/// recent commits.
const QUIET: u64 = 40;
const SPELL: u64 = 4200;

/// The name of blind writers.
const NOBODY: u64 = 99;

#[derive(Debug, Default)]
struct Met {
    committed: Counter,
    refused: Counter,
    dropped: Counter,
    exclusive: Counter,
    blind: Counter,
    answers: Counter,
    bound: Counter,
    flushes: Counter,
    merges: Counter,
}

impl Met {
    fn judge(&self, world: World) -> Result<(), String> {
        let finally = world.contents();
        let stats = world.db().stats();
        assert_eq!(stats.snapshots, 0, "a snapshot was leaked");
        assert_eq!(stats.failure, None);
        self.flushes.add(stats.flushes);
        self.merges.add(stats.merges + stats.folds);
        let records = world.into_records();
        let bound =
            check_lists(&records, &finally, is_list).map_err(|wrong| format!("lists: {}", wrong.report(&records)));
        let answers = check_replay(&records, &finally).map_err(|wrong| format!("replay: {}", wrong.report(&records)));
        self.bound.add(bound?);
        self.answers.add(answers?);
        records.iter().for_each(|record| self.count(record));
        Ok(())
    }

    fn count(&self, record: &Record) {
        let counter = match (record.kind, record.outcome) {
            (Kind::Blind, _) => &self.blind,
            (Kind::Exclusive, Outcome::Committed(_)) => &self.exclusive,
            (_, Outcome::Committed(_)) => &self.committed,
            (_, Outcome::Refused) => &self.refused,
            (_, Outcome::Dropped) => &self.dropped,
        };
        counter.add(1);
    }

    /// Histories without conflicts would prove nothing.
    fn print_and_check(&self) {
        println!("{self:?}");
        let (committed, refused) = (self.committed.get(), self.refused.get());
        assert!(refused * 20 > committed && committed * 4 > refused, "{committed} committed, {refused} refused");
        assert!(self.answers.get() > committed + refused && self.bound.get() > committed / 2);
        assert!(self.flushes.get() > 0 && self.merges.get() > 0 && self.dropped.get() > 0 && self.blind.get() > 0);
    }
}

struct Scheduler {
    world: World,
    random: Random,
    threads: Vec<(Option<(Open, usize)>, u64)>,
    begun: u64,
    blind: u64,
}

impl Scheduler {
    fn new(seed: u64) -> Scheduler {
        let mut random = Random::new(seed);
        // Larger than the versions of a long key, so that a partition can be split.
        let partition_bytes = 1 << (20 + random.below(3));
        let options = SmallOptions { blob_threshold: 2000, partition_bytes, ..SmallOptions::random(&mut random) };
        let builder = options.builder(&empty_disk(seed), seed).vfs(Arc::new(MemVfs::new()));
        let world = World::new(ok(builder.open(common::PATH)), &mut random);
        let threads = (0..3 + random.below(6)).map(|_| (None, 0)).collect();
        Scheduler { world, random, threads, begun: 0, blind: 0 }
    }

    /// Returns true if the history ended first.
    fn run(&mut self, operations: u64) -> bool {
        for _ in 0..operations {
            if self.begun >= TRANSACTIONS && self.threads.iter().all(|(open, _)| open.is_none()) {
                return true;
            }
            self.step();
        }
        self.end_all(false);
        false
    }

    fn end_all(&mut self, commits: bool) {
        for (open, _) in &mut self.threads {
            if let Some((open, _)) = open.take() {
                self.world.end(open, commits);
            }
        }
    }

    fn spell(&mut self) {
        for _ in 0..SPELL {
            let epoch = self.begun / EPOCH;
            self.blind(|world, name, random| world.write_blindly(name, epoch, random));
        }
    }

    fn step(&mut self) {
        let epoch = self.begun / EPOCH;
        match self.random.below(100) {
            0 | 1 => ok(self.world.maintain(&mut self.random)),
            2 => self.blind(|world, name, _| world.flood(name, true)),
            3 => self.blind(|world, name, _| world.flood(name, false)),
            4..=9 => self.blind(|world, name, random| world.write_blindly(name, epoch, random)),
            _ => self.continue_one(epoch),
        }
    }

    fn blind(&mut self, write: impl FnOnce(&World, (u64, u64), &mut Random)) {
        self.blind += 1;
        write(&self.world, (NOBODY, self.blind), &mut self.random);
    }

    fn continue_one(&mut self, epoch: u64) {
        let Scheduler { world, random, threads, begun, blind } = self;
        let thread = random.index(threads.len());
        let (slot, number) = &mut threads[thread];
        match slot.take() {
            None if *begun < TRANSACTIONS => {
                (*begun, *number) = (*begun + 1, *number + 1);
                let open = world.begin((thread as u64, *number), Kind::Optimistic);
                assert_eq!(
                    open.snapshot(),
                    world.db().stats().last_sequence,
                    "with one thread the last commit is seen"
                );
                *slot = Some((open, 1 + random.index(10)));
            }
            None => {}
            Some((open, length)) if open.steps() >= length => world.end(open, random.chance(9, 10)),
            Some((mut open, length)) => {
                let mut other = Random::new(random.next_u64());
                let mut meanwhile = || {
                    *blind += 1;
                    match other.below(8) {
                        0 => ok(world.maintain(&mut other)),
                        _ => world.write_blindly((NOBODY, *blind), epoch, &mut other),
                    }
                };
                world.continue_one(&mut open, epoch, random, &mut meanwhile);
                *slot = Some((open, length));
            }
        }
    }

    fn judge(seed: u64, operations: u64, met: &Met) -> Result<(), String> {
        let mut scheduler = Scheduler::new(seed);
        scheduler.run(operations);
        met.judge(scheduler.world)
    }
}

fn shortest(seed: u64, wrong: String) -> String {
    let (mut right, mut fails, mut reported) = (0, 1 << 20, wrong);
    while right + 1 < fails {
        let middle = right + (fails - right) / 2;
        match Scheduler::judge(seed, middle, &Met::default()) {
            Ok(()) => right = middle,
            Err(wrong) => (fails, reported) = (middle, wrong),
        }
    }
    format!("wrong after {fails} operations: {reported}")
}

#[test]
fn scheduled_history_is_serializable() {
    let seed = common::seed();
    let met = Met::default();
    in_parallel(volume(SCHEDULED) as usize, |case| {
        let what = || format!("BRAIDDB_SEED={seed}, history {case}");
        explained(what, || {
            let seed = mix(seed, case as u64);
            if let Err(wrong) = Scheduler::judge(seed, u64::MAX, &met) {
                panic!("{}", shortest(seed, wrong));
            }
        });
    });
    met.print_and_check();
}

#[test]
fn history_with_quiet_spells_is_serializable() {
    let seed = common::seed();
    let met = Met::default();
    in_parallel(volume(QUIET) as usize, |case| {
        let what = || format!("BRAIDDB_SEED={seed}, history {case} with quiet spells");
        explained(what, || {
            let mut scheduler = Scheduler::new(mix(seed, case as u64));
            for _ in 0..2 {
                (0..200).for_each(|_| scheduler.step());
                scheduler.spell();
                (0..100).for_each(|_| scheduler.step());
                scheduler.end_all(true);
                scheduler.spell();
            }
            scheduler.run(u64::MAX);
            if let Err(wrong) = met.judge(scheduler.world) {
                panic!("{wrong}");
            }
        });
    });
    met.print_and_check();
}

#[test]
fn scheduled_history_of_same_seed_is_equal() {
    let records = |seed| {
        let mut scheduler = Scheduler::new(seed);
        assert!(scheduler.run(u64::MAX));
        scheduler.world.into_records().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let seed = common::seed();
    assert!(records(seed) == records(seed));
    assert!(records(seed) != records(seed + 1));
}

/// Bounds the time of each history, not of all: one has thousands of context switches.
fn each_bounded(count: u64, history: fn(u64, &Met)) -> Arc<Met> {
    let seed = common::seed();
    let met = Arc::new(Met::default());
    for case in 0..count {
        let met = Arc::clone(&met);
        bounded(move || history(mix(seed, case), &met));
    }
    met
}

fn threaded(seed: u64, random: &mut Random) -> World {
    let builder = numbered::builder(seed).vfs(Arc::new(MemVfs::new())).runtime(SimRuntime::with_threads(seed));
    World::new(ok(builder.background_threads(2).open(common::PATH)), random)
}

/// Reports a panic to the other threads.
struct Failing<'a>(&'a AtomicBool);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

fn free(seed: u64, met: &Met) {
    let mut random = Random::new(seed);
    let world = threaded(seed, &mut random);
    let threads = 3 + random.below(6);
    let (begun, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let scale = EPOCH * threads / 3;
    thread::scope(|scope| {
        for number in 0..threads {
            let (world, begun, failed) = (&world, &begun, &failed);
            let mut random = Random::new(mix(seed, number));
            scope.spawn(move || {
                let _failing = Failing(failed);
                for count in 0..TRANSACTIONS_OF_THREAD {
                    if failed.load(Ordering::Relaxed) {
                        return;
                    }
                    let epoch = begun.fetch_add(1, Ordering::Relaxed) / scale;
                    run_freely(world, (number, count), epoch, &mut random);
                }
            });
        }
    });
    judge_free(met, seed, world);
}

fn run_freely(world: &World, name: (u64, u64), epoch: u64, random: &mut Random) {
    match random.below(60) {
        0 => ok(world.maintain(random)),
        1 | 2 => world.flood(name, true),
        3..=9 => world.write_blindly(name, epoch, random),
        _ => {}
    }
    let kind = if random.chance(1, 30) { Kind::Exclusive } else { Kind::Optimistic };
    let mut open = world.begin(name, kind);
    for _ in 0..1 + random.below(6) {
        world.continue_one(&mut open, epoch, random, &mut || thread::yield_now());
        if random.chance(1, 4) {
            thread::yield_now();
        }
    }
    world.end(open, random.chance(9, 10));
}

fn judge_free(met: &Met, seed: u64, world: World) {
    if let Err(wrong) = met.judge(world) {
        panic!("with threads, a world of seed {seed}: {wrong}");
    }
}

#[test]
fn history_of_free_threads_is_serializable() {
    let met = each_bounded(volume(FREE), free);
    assert!(met.exclusive.get() > 0);
    met.print_and_check();
}

/// One thread begins an exclusive transaction and commits when all other commits wait behind it,
/// prechecked before it, as one group.
fn queued(seed: u64, met: &Met) {
    let mut random = Random::new(seed);
    let world = threaded(seed, &mut random);
    let threads = 3 + random.below(4);
    let barrier = Barrier::new(threads as usize);
    let arrived = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..threads {
            let (world, barrier, arrived) = (&world, &barrier, &arrived);
            let mut random = Random::new(mix(seed, number));
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let epoch = round / 8;
                    if number > 0 {
                        let mut open = world.begin((number, round), Kind::Optimistic);
                        for _ in 0..1 + random.below(4) {
                            world.continue_one(&mut open, epoch, &mut random, &mut || {});
                        }
                        barrier.wait();
                        barrier.wait();
                        arrived.fetch_add(1, Ordering::SeqCst);
                        if number == 1 && random.chance(1, 2) {
                            world.end(open, false);
                            open = take_over(world, (number, ROUNDS + round), epoch, &mut random);
                        }
                        world.end(open, true);
                    } else {
                        barrier.wait();
                        lead(world, round, epoch, &mut random, || {
                            barrier.wait();
                            while arrived.load(Ordering::SeqCst) < (threads - 1) * (round + 1) {
                                thread::yield_now();
                            }
                        });
                    }
                    barrier.wait();
                }
            });
        }
    });
    judge_free(met, seed, world);
}

fn lead(world: &World, round: u64, epoch: u64, random: &mut Random, wait: impl FnOnce()) {
    // Gives the other threads something to check before they wait.
    let is_whole = random.chance(1, 8);
    world.flood((NOBODY, round), is_whole);
    let mut open = world.begin((0, round), Kind::Exclusive);
    world.continue_one(&mut open, epoch, random, &mut || {});
    wait();
    (0..20).for_each(|_| thread::yield_now());
    world.continue_one(&mut open, epoch, random, &mut || {});
    world.continue_one(&mut open, epoch, random, &mut || {});
    world.end(open, random.chance(7, 8));
}

fn take_over(world: &World, name: (u64, u64), epoch: u64, random: &mut Random) -> Open {
    let mut open = world.begin(name, Kind::Exclusive);
    (0..4).for_each(|_| world.continue_one(&mut open, epoch, random, &mut || {}));
    open
}

#[test]
fn history_of_queued_commits_is_serializable() {
    let met = each_bounded(volume(QUEUED), queued);
    println!("{met:?}");
    assert!(met.exclusive.get() > 0 && met.refused.get() > met.committed.get() / 20);
}
