//! Every workload of up to three steps, crashed at every I/O operation, under a handful of policies.
//!
//! The pass rule: what is recovered is the state after P commits, where P is at least the number that were promised
//! (by an acknowledged durable commit, `sync`, `flush`, `compact` or `close`) and at most the number submitted. Then
//! one more commit works and survives one more crash or reopening. A crash inside recovery changes nothing.
//!
//! A workload's prefix is a workload itself, and a run is the same each time, so that only the operations of the last
//! step are crashed at. All start from one small database, with data in a run and in the log.

#![cfg(feature = "engine")]

mod common;

use braiddb::{Db, Durability, Tree};
use braiddb_sim::{
    CrashPolicy, Random, SimDisk,
    model::{Change, Contents, History},
};
use common::{
    Counter, PATH, SmallOptions, batch_of, empty_disk, explained, full_text, in_parallel, open_trees, read_all, value,
    volume,
};
use std::{ops::Bound, sync::Arc};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    PutSync,
    PutBuffered,
    /// Over both trees, with a range delete and a large value in it.
    Batch,
    Delete,
    DeleteRange,
    BigValueSync,
    BigValueBuffered,
    Flush,
    Compact,
    Sync,
    Reopen,
}

const ALPHABET: [Step; 11] = [
    Step::PutSync,
    Step::PutBuffered,
    Step::Batch,
    Step::Delete,
    Step::DeleteRange,
    Step::BigValueSync,
    Step::BigValueBuffered,
    Step::Flush,
    Step::Compact,
    Step::Sync,
    Step::Reopen,
];

const SEED: u64 = 77;

fn options() -> SmallOptions {
    SmallOptions {
        memtable_bytes: 4 << 10,
        log_segment_bytes: 4 << 10,
        blob_file_bytes: 4 << 10,
        ..SmallOptions::default()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number}").into_bytes()
}

/// The database that workloads start from, closed, and what it holds.
fn base() -> (Arc<SimDisk>, Contents) {
    let disk = empty_disk(SEED);
    let db = options().open(&disk, SEED).expect("open");
    let trees = open_trees(&db).expect("trees");
    let mut changes: Vec<Change> = (0..4).map(|n| Change::Put(0, key(n), value(100, n))).collect();
    changes.push(Change::Put(1, key(0), value(1500, 5)));
    db.write(batch_of(&db, &trees, &changes), Durability::Sync).expect("write");
    db.flush().expect("flush");
    let later = [Change::Put(0, key(1), value(30, 6)), Change::Put(1, key(2), value(30, 7)), Change::Delete(0, key(3))];
    db.write(batch_of(&db, &trees, &later), Durability::Sync).expect("write");
    let mut contents = Contents::new();
    braiddb_sim::model::apply(&mut contents, &changes);
    braiddb_sim::model::apply(&mut contents, &later);
    drop((trees, db));
    (disk.fork(), contents)
}

/// A database that is being worked on, and what was promised of it.
struct Run {
    disk: Arc<SimDisk>,
    db: Option<(Db, Vec<Tree>)>,
    history: History,
}

impl Run {
    fn open(&mut self) {
        let db = options().open(&self.disk, SEED).expect("open");
        let trees = open_trees(&db).expect("trees");
        self.db = Some((db, trees));
    }

    fn promise(&mut self) {
        self.history.promise(self.disk.operations());
    }

    fn commit(&mut self, changes: Vec<Change>, durability: Durability) {
        let (db, trees) = self.db.as_ref().expect("the database is open");
        self.history.submit(self.disk.operations(), changes.clone());
        db.write(batch_of(db, trees, &changes), durability).expect("write");
        if durability == Durability::Sync {
            self.promise();
        }
    }

    /// `at` is the step's place in the workload: it makes values and keys differ.
    fn step(&mut self, step: Step, at: u64) {
        let tag = at * 16 + 100;
        let put = |tree, len| Change::Put(tree, key(at), value(len, tag));
        match step {
            Step::PutSync => self.commit(vec![put(0, 50)], Durability::Sync),
            Step::PutBuffered => self.commit(vec![put(0, 50)], Durability::Buffered),
            Step::Batch => {
                let gone = (Bound::Included(key(1)), Bound::Excluded(key(3)));
                let changes = vec![
                    Change::DeleteRange(0, gone),
                    put(0, 700),
                    put(1, 1200),
                    Change::Put(1, key(at + 1), value(10, tag + 1)),
                    Change::Delete(1, key(0)),
                ];
                self.commit(changes, Durability::Sync);
            }
            Step::Delete => self.commit(vec![Change::Delete(0, key(at))], Durability::Sync),
            Step::DeleteRange => {
                let bounds = (Bound::Included(key(at)), Bound::Included(key(at + 1)));
                self.commit(vec![Change::DeleteRange(0, bounds)], Durability::Buffered);
            }
            Step::BigValueSync => self.commit(vec![put(1, 3000)], Durability::Sync),
            Step::BigValueBuffered => self.commit(vec![put(1, 3000)], Durability::Buffered),
            Step::Flush | Step::Compact | Step::Sync => {
                let (db, _) = self.db.as_ref().expect("the database is open");
                match step {
                    Step::Flush => db.flush().expect("flush"),
                    Step::Compact => db.compact().expect("compact"),
                    _ => db.sync().expect("sync"),
                }
                self.promise();
            }
            Step::Reopen => {
                let (db, trees) = self.db.take().expect("the database is open");
                drop(trees);
                db.close().expect("close");
                self.promise();
                self.open();
            }
        }
    }
}

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
        let mut run = Run { disk: disk.fork(), db: None, history: History::new(contents.clone()) };
        run.open();
        let mut from = 0;
        for (at, step) in steps.iter().enumerate() {
            // The moments before the last step belong to the shorter workloads.
            from = if at == 0 { 0 } else { run.disk.operations() };
            run.step(*step, at as u64);
        }
        let to = run.disk.operations();
        Case { steps: steps.to_vec(), disk: run.disk.clone(), history: run.history.clone(), from, to }
    }

    /// Crashes at a moment, recovers, and judges. `nested` adds crashes inside the recovery.
    fn check(&self, moment: usize, policy: CrashPolicy, nested: bool, images: &Counter) {
        let what = || {
            format!(
                "workload {:?}, crash after operation {moment} of {} ({}), {policy:?}",
                self.steps,
                self.to,
                moment.checked_sub(1).map_or_else(String::new, |last| self.disk.operation_text(last))
            )
        };
        explained(what, || {
            images.add(1);
            let image = self.disk.crash_image(moment, policy);
            let count = recover(&image, |found| self.history.judge(moment, found));
            if nested {
                self.check_nested(moment, policy, count, images);
            }
        });
    }

    /// Crashes at some of the operations of the recovery; each must then recover the same.
    fn check_nested(&self, moment: usize, policy: CrashPolicy, count: usize, images: &Counter) {
        let image = self.disk.crash_image(moment, policy);
        let db = options().open(&image, SEED).expect("open");
        let operations = image.operations();
        drop(db);
        let mut random = Random::new(moment as u64);
        for at in 0..=operations {
            let policies = CrashPolicy::some(3, random.next_u64());
            let inner = policies[random.index(policies.len())];
            explained(
                || format!("then a crash in recovery after operation {at} of {operations}, {inner:?}"),
                || {
                    images.add(1);
                    recover(&image.crash_image(at, inner), |found| {
                        if found == self.history.state(count) {
                            Ok(count)
                        } else {
                            let other = self.history.judge(moment, found);
                            Err(format!("the first recovery found {count} commits, the second: {other:?}"))
                        }
                    });
                },
            );
        }
    }
}

/// Opens what a crash left, has it judged, and goes on: one more commit, and then either a crash that loses whatever
/// was not synced or a clean reopening, after which all must be there.
fn recover(image: &Arc<SimDisk>, judge: impl FnOnce(&Contents) -> Result<usize, String>) -> usize {
    let db = options().open(image, SEED + 1).unwrap_or_else(|e| panic!("open after the crash: {}", full_text(&e)));
    let mut contents = read_all(&db).unwrap_or_else(|e| panic!("reading after the crash: {}", full_text(&e)));
    let count = judge(&contents).unwrap_or_else(|text| panic!("{text}; log tail: {:?}", db.stats().log_tail_note));
    let before = db.snapshot().sequence();
    let trees = open_trees(&db).expect("trees after the crash");
    let one_more =
        vec![Change::Put(0, b"more".to_vec(), value(40, 9)), Change::Put(1, b"more".to_vec(), value(1400, 9))];
    let sequence = db.write(batch_of(&db, &trees, &one_more), Durability::Sync).expect("one more commit");
    assert!(sequence > before, "commit {sequence} after a snapshot at {before}");
    braiddb_sim::model::apply(&mut contents, &one_more);
    drop(trees);
    let next = if image.operations() % 2 == 0 {
        let next = image.crash_image(image.operations(), CrashPolicy::LoseAllUnsynced);
        drop(db);
        next
    } else {
        db.close().expect("close");
        image.clone()
    };
    let db = options().open(&next, SEED + 2).unwrap_or_else(|e| panic!("open once more: {}", full_text(&e)));
    common::check_all_reads(&db, &contents).unwrap_or_else(|e| panic!("reading once more: {}", full_text(&e)));
    count
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
    let policies_max = CrashPolicy::some(6, 0).len() as u64;
    let boundaries = boundaries.get();
    let images = Counter::default();
    in_parallel(workloads.len(), |index| {
        let case = Case::run(&workloads[index], &disk, &contents);
        let mut random = Random::new(seed ^ (index as u64) << 20);
        for moment in case.from..=case.to {
            let mut policies = CrashPolicy::some(6, random.next_u64());
            if let Some(len) = moment.checked_sub(1).and_then(|last| case.disk.write_len(last)) {
                policies.push(CrashPolicy::TornLast { bytes: random.below(len + 1) });
            }
            let part = target * 8 / 10;
            let mut count = (part / boundaries).min(policies_max);
            count += u64::from(random.below(boundaries) < part % boundaries);
            for _ in 0..count {
                let policy = policies.swap_remove(random.index(policies.len()));
                // A nested check makes an image for each operation of the recovery.
                case.check(moment, policy, random.chance(1, 100), &images);
            }
        }
    });
    println!("{} images of {} workloads with {boundaries} boundaries", images.get(), workloads.len());
    assert!(images.get() > 0);
}

#[test]
fn a_torn_log_write_is_survived_at_each_byte() {
    let (disk, contents) = base();
    let images = Counter::default();
    let every = if cfg!(debug_assertions) { 7 } else { 1 };
    for step in [Step::PutSync, Step::PutBuffered, Step::Batch, Step::BigValueSync, Step::Flush, Step::Compact] {
        let case = Case::run(&[step], &disk, &contents);
        for moment in 1..=case.to {
            if let Some(len) = case.disk.write_len(moment - 1) {
                for bytes in (0..len.min(2000)).step_by(every) {
                    case.check(moment, CrashPolicy::TornLast { bytes }, false, &images);
                }
            }
        }
    }
    println!("{} images", images.get());
}

#[test]
fn a_database_being_created_survives_a_crash_anywhere() {
    let seed = common::seed();
    let empty = empty_disk(SEED);
    let images = Counter::default();
    for steps in [vec![Step::PutSync], vec![Step::Flush], vec![Step::PutBuffered, Step::Reopen], vec![Step::Batch]] {
        let mut case = Case::run(&steps, &empty, &Contents::new());
        case.from = 0;
        for moment in 0..=case.to {
            for policy in CrashPolicy::some(volume(20), seed + moment as u64) {
                case.check(moment, policy, moment % 8 == 0 && policy == CrashPolicy::KeepAll, &images);
            }
        }
    }
    println!("{} images", images.get());
    assert!(empty.files().is_empty(), "{PATH} was made on a copy");
}
