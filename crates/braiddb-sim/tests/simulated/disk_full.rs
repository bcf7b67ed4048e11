//! A disk that fills up: refused writes are not applied, reads work, writes resume with space. A
//! crash meanwhile loses no acknowledged commit.

use crate::common;

use braiddb::{Db, Durability, Tree};
use braiddb_sim::{
    Call, CrashPolicy, Effect, Fault, Random, SimDisk,
    model::{Change, Contents, apply},
    numbered::FOLD_BYTES_PER_ENTRY,
};
use common::{
    Counter, SmallOptions, batch_of, check_all_reads, coverage::Coverage, empty_disk, explained, full_text, in_parallel,
};
use common::{open_trees, value, volume};
use std::{io::ErrorKind, ops::Bound, sync::Arc};

fn key(number: u64) -> Vec<u8> {
    format!("key{number:03}").into_bytes()
}

fn options(seed: u64) -> SmallOptions {
    SmallOptions {
        memtable_bytes: 8 << 10,
        log_segment_bytes: 8 << 10,
        fold_bytes_per_entry: FOLD_BYTES_PER_ENTRY[(seed % 2) as usize],
        ..SmallOptions::default()
    }
}

fn changes(random: &mut Random) -> Vec<Change> {
    (0..=random.below(3))
        .map(|_| {
            let (tree, tag) = (random.below(2) as u32, random.next_u64());
            match random.below(12) {
                0 => Change::Delete(tree, key(random.below(60))),
                1 => {
                    let first = random.below(60);
                    Change::DeleteRange(tree, (Bound::Included(key(first)), Bound::Excluded(key(first + 3))))
                }
                2 => Change::Put(tree, key(random.below(60)), value(1500, tag)),
                _ => Change::Put(tree, key(random.below(60)), value(random.below(400) as usize, tag)),
            }
        })
        .collect()
}

struct World {
    options: SmallOptions,
    disk: Arc<SimDisk>,
    db: Db,
    trees: Vec<Tree>,
    contents: Contents,
    full: u64,
}

impl World {
    fn open(options: SmallOptions, disk: Arc<SimDisk>, contents: Contents) -> World {
        let db = options.open(&disk, 3).unwrap_or_else(|e| panic!("open: {}", full_text(&e)));
        let trees = open_trees(&db).unwrap_or_else(|e| panic!("trees: {}", full_text(&e)));
        World { options, disk, db, trees, contents, full: 0 }
    }

    /// Returns false if there was no space.
    fn commit(&mut self, changes: &[Change], durability: Durability) -> bool {
        match batch_of(&self.db, &self.trees, changes).commit_with(durability) {
            Ok(_) => {
                apply(&mut self.contents, changes);
                true
            }
            Err(e) if e.is_disk_full() => {
                self.full += 1;
                false
            }
            Err(e) => panic!("a write: {}", full_text(&e)),
        }
    }

    fn check(&self, when: &str) {
        explained(
            || when.to_owned(),
            || check_all_reads(&self.db, &self.contents).unwrap_or_else(|e| panic!("reading: {}", full_text(&e))),
        );
    }
}

fn fill_and_free(seed: u64, counter: &Counter, coverage: &Coverage) {
    let mut random = Random::new(seed);
    let mut world = World::open(options(seed), empty_disk(seed), Contents::new());
    for _ in 0..random.below(60) {
        assert!(world.commit(&changes(&mut random), Durability::Buffered));
    }
    for round in 0..3 {
        let space = random.below(12) * 4096;
        world.disk.set_capacity(Some(world.disk.used_bytes() + space));
        let mut refused = 0;
        for _ in 0..200 {
            let durability = if random.chance(1, 3) { Durability::Sync } else { Durability::Buffered };
            if !world.commit(&changes(&mut random), durability) {
                refused += 1;
                if refused % 4 == 1 {
                    world.check("while the disk is full");
                }
                if refused > 10 {
                    break;
                }
            }
            if random.chance(1, 20)
                && let Err(e) = world.db.flush()
            {
                assert!(e.is_disk_full(), "flush: {}", full_text(&e));
            }
        }
        if random.chance(1, 3) {
            let image = world.disk.crash_image(world.disk.operations(), CrashPolicy::KeepAll);
            let after = World::open(world.options.clone(), image, world.contents.clone());
            after.check("after a crash with a full disk");
        }
        world.disk.set_capacity(None);
        assert!(world.commit(&changes(&mut random), Durability::Sync), "a write after space was freed, round {round}");
        for _ in 0..20 {
            assert!(world.commit(&changes(&mut random), Durability::Buffered));
        }
        world.db.flush().unwrap_or_else(|e| panic!("flush with space: {}", full_text(&e)));
        world.check("with space again");
    }
    counter.add(world.full);
    let World { options, disk, db, trees, contents, .. } = world;
    drop(trees);
    coverage.note(&db.stats());
    db.close().unwrap_or_else(|e| panic!("close: {}", full_text(&e)));
    World::open(options, disk, contents).check("after reopening");
}

#[test]
fn writes_on_full_disk_are_refused_and_resume_without_reopening() {
    let seed = common::seed();
    let cases = volume(400) as usize;
    let (refused, coverage) = (Counter::default(), Coverage::default());
    in_parallel(cases, |index| {
        let seed = seed + index as u64;
        explained(|| format!("seed {seed}"), || fill_and_free(seed, &refused, &coverage));
    });
    println!("{cases} cases, {} writes refused, {coverage:?}", refused.get());
    assert!(refused.get() > 0, "no write was refused: the test proves nothing");
    let (merged, folded) = (coverage.loose_merges.get(), coverage.folds.get());
    assert!(merged > 0 && folded > 0, "unindexed runs were not merged, or not folded: {coverage:?}");
}

#[test]
fn write_that_finds_disk_full_is_not_applied() {
    let seed = common::seed();
    let calls = [Call::Write, Call::Reserve, Call::Create];
    for (call, seed) in calls.into_iter().flat_map(|call| [(call, seed), (call, seed + 1)]) {
        let mut skip = 0;
        let mut step = 1;
        loop {
            let fired = explained(
                || format!("seed {seed}, {call:?} call {skip} finds no space"),
                || one_refusal(seed, call, skip),
            );
            if !fired {
                break;
            }
            skip += step;
            step = if cfg!(debug_assertions) { 1 + skip / 20 } else { 1 };
        }
        println!("{call:?} with seed {seed}: {skip} calls");
    }
}

fn one_refusal(seed: u64, call: Call, skip: u64) -> bool {
    let mut random = Random::new(seed);
    let mut world = World::open(options(seed), empty_disk(seed), Contents::new());
    let effect = if skip.is_multiple_of(2) {
        Effect::Fail(ErrorKind::StorageFull)
    } else {
        Effect::Short { bytes: random.index(100), error: ErrorKind::StorageFull }
    };
    world.disk.inject(Fault { effect, ..Fault::nth_of(call, skip, ErrorKind::StorageFull) });
    for step in 0..60 {
        world.commit(&changes(&mut random), if step % 3 == 0 { Durability::Sync } else { Durability::Buffered });
        if step % 25 == 24
            && let Err(e) = world.db.flush()
        {
            assert!(e.is_disk_full(), "flush: {}", full_text(&e));
        }
    }
    let fired = !world.disk.failed_calls().is_empty();
    world.disk.clear_faults();
    assert!(world.full <= 1, "one fault was reported {} times", world.full);
    assert!(world.commit(&changes(&mut random), Durability::Sync), "a later write");
    world.check("after the failure");
    let image = world.disk.crash_image(world.disk.operations(), CrashPolicy::LoseAllUnsynced);
    World::open(options(seed), image, world.contents.clone()).check("after a crash");
    fired
}

#[test]
fn database_on_nearly_full_disk_opens_and_accepts_deletes() {
    let disk = empty_disk(5);
    let large = SmallOptions { log_segment_bytes: 1 << 20, memtable_bytes: 256 << 10, ..SmallOptions::default() };
    let mut contents = Contents::new();
    {
        let db = large.open(&disk, 1).unwrap();
        let trees = open_trees(&db).unwrap();
        let filling: Vec<Change> = (0..60).map(|n| Change::Put(0, key(n), value(900, n))).collect();
        batch_of(&db, &trees, &filling).commit_with(Durability::Sync).unwrap();
        apply(&mut contents, &filling);
        db.close().unwrap();
    }
    // Too little for a usual log segment.
    disk.set_capacity(Some(disk.used_bytes() + (200 << 10)));
    let db = large.open(&disk, 2).unwrap_or_else(|e| panic!("open: {}", full_text(&e)));
    let trees = open_trees(&db).unwrap();
    let deletes: Vec<Change> = (0..50).map(|n| Change::Delete(0, key(n))).collect();
    batch_of(&db, &trees, &deletes).commit_with(Durability::Sync).unwrap_or_else(|e| panic!("{}", full_text(&e)));
    apply(&mut contents, &deletes);
    check_all_reads(&db, &contents).unwrap();
}
