//! Each file system call of a workload fails in turn.
//!
//! Nothing panics. The readable state is that with or without the failed call's commit. After a
//! failed log sync no commit is accepted. A reopening or crash finds a prefix of the commits with
//! all durable ones.

use crate::common;

use braiddb::{Durability, Error};
use braiddb_sim::{
    Call, CrashPolicy, Effect, Fault,
    model::{Change, Contents, apply, difference},
};
use common::{
    Counter, batch_of, explained, full_text, in_parallel, open_trees, read_all, volume,
    workload::{Run, SEED, Start, Step, maintain, recover},
};
use std::io::ErrorKind;

const WORKLOAD: [Step; 50] = [
    Step::PutSync,
    Step::PutBuffered,
    Step::BigValueSync,
    Step::Batch,
    Step::Flush,
    Step::Delete,
    Step::BigValueBuffered,
    Step::DeleteRange,
    Step::PutUnlogged,
    Step::PutSync,
    Step::BigValueSync,
    Step::Stream,
    Step::Load,
    Step::Conditional,
    Step::Ingest,
    Step::Extend,
    Step::Compact,
    Step::PutBuffered,
    Step::Stream,
    Step::Sync,
    Step::Transaction,
    Step::Append,
    Step::Expiring,
    Step::Batch,
    Step::Append,
    Step::Clip,
    Step::PutUnlogged,
    Step::Ingest,
    Step::Reopen,
    Step::Conditional,
    Step::PutUnlogged,
    Step::Load,
    Step::Transaction,
    Step::Expiring,
    Step::BigValueSync,
    Step::PutBuffered,
    Step::Batch,
    Step::BigValueBuffered,
    Step::Extend,
    Step::BigValueSync,
    Step::Flush,
    Step::Extend,
    Step::PutBuffered,
    Step::Stream,
    Step::PutUnlogged,
    Step::Delete,
    Step::Load,
    Step::Clip,
    Step::Ingest,
    Step::Compact,
];

struct Sweep {
    run: Run,
    /// A commit of unknown outcome that cannot be read.
    unknown: Option<Vec<Change>>,
    errors: u64,
    failures_before: usize,
}

impl Sweep {
    fn log_sync_failed(&self) -> bool {
        let is_log = |path: &std::path::Path| path.extension().is_some_and(|extension| extension == "wal");
        self.run.disk.failed_calls()[self.failures_before..]
            .iter()
            .any(|(call, path)| *call == Call::Sync && is_log(path))
    }

    fn readable(&mut self) -> Option<Contents> {
        let (db, _) = self.run.db.as_ref()?;
        match read_all(db) {
            Ok(contents) => Some(contents),
            Err(first) => {
                self.errors += 1;
                let again = read_all(db);
                Some(again.unwrap_or_else(|e| panic!("reading failed twice: {}, {}", full_text(&first), full_text(&e))))
            }
        }
    }

    fn commit(&mut self, step: Step, at: u64, changes: Vec<Change>, durability: Durability) {
        let Some((db, trees)) = self.run.db.as_ref() else { return };
        let latched = self.log_sync_failed();
        self.run.history.submit(self.run.disk.operations(), changes.clone());
        match step.write((&self.run.disk, db, trees), &changes, durability, at) {
            Ok(_) => {
                assert!(!latched, "a commit was accepted after a log sync that failed");
                assert!(self.unknown.is_none(), "a commit was accepted after one of unknown outcome");
                if durability == Durability::Sync {
                    self.run.promise();
                }
            }
            Err(e) => {
                self.errors += 1;
                let with = self.run.history.latest().clone();
                let found = self.readable().expect("the database is open");
                if found == with && self.run.history.before_latest() != &with {
                    // A published commit stays readable, whatever its outcome.
                    assert!(matches!(e, Error::CommitUnknown { .. }), "applied, yet: {}", full_text(&e));
                    return;
                }
                self.run.history.take_back();
                let without = self.run.history.latest();
                assert!(found == *without, "after {}: {}", full_text(&e), difference(without, &found));
                if matches!(e, Error::CommitUnknown { .. }) && self.unknown.is_none() {
                    self.unknown = Some(changes);
                }
            }
        }
    }

    fn step(&mut self, step: Step, at: u64) {
        if let Some((changes, durability)) = step.commit(at) {
            return self.commit(step, at, changes, durability);
        }
        if step == Step::Reopen {
            return self.reopen();
        }
        if let Some((db, _)) = self.run.db.as_ref() {
            match maintain(db, step) {
                Ok(()) => self.run.promise(),
                Err(_) => self.errors += 1,
            }
        }
    }

    fn open(&mut self) {
        if self.run.open().is_err() {
            self.errors += 1;
            self.run.open().unwrap_or_else(|e| panic!("open failed twice: {}", full_text(&e)));
        }
        self.failures_before = self.run.disk.failed_calls().len();
    }

    fn reopen(&mut self) {
        if let Some((db, trees)) = self.run.db.take() {
            drop(trees);
            match db.close() {
                Ok(()) => self.run.promise(),
                Err(_) => self.errors += 1,
            }
        }
        self.open();
        let found = self.readable().expect("the database is open");
        self.settle(&found);
    }

    fn settle(&mut self, found: &Contents) {
        let moment = self.run.disk.operations();
        if let Some(changes) = self.unknown.take() {
            let mut with = self.run.history.latest().clone();
            apply(&mut with, &changes);
            if with == *found {
                self.run.history.submit(moment, changes);
            }
        }
        let count = self.judge(moment, found).unwrap_or_else(|text| panic!("after reopening: {text}"));
        let contents = self.run.history.state(count).clone();
        self.run.history = braiddb_sim::model::History::new(contents);
    }

    fn judge(&self, moment: usize, found: &Contents) -> Result<usize, String> {
        self.run.history.judge(moment, found).or_else(|text| {
            let mut with = self.run.history.latest().clone();
            apply(&mut with, self.unknown.as_deref().unwrap_or_default());
            if with == *found { Ok(0) } else { Err(text) }
        })
    }
}

fn sweep(start: &Start, fault: Fault) -> bool {
    let run = Run::new(start);
    run.disk.inject(fault);
    let mut sweep = Sweep { run, unknown: None, errors: 0, failures_before: 0 };
    sweep.open();
    for (at, step) in WORKLOAD.iter().enumerate() {
        explained(|| format!("step {at}, {step:?}"), || sweep.step(*step, at as u64));
    }
    let fired = !sweep.run.disk.failed_calls().is_empty();
    let readable = sweep.readable().expect("the database is open");
    let latest = sweep.run.history.latest();
    assert!(readable == *latest, "at the end: {}", difference(latest, &readable));
    let moment = sweep.run.disk.operations();
    for policy in [CrashPolicy::LoseAllUnsynced, CrashPolicy::KeepAll, CrashPolicy::Random(moment as u64)] {
        explained(
            || format!("a crash at the end, {policy:?}"),
            || {
                let image = sweep.run.disk.crash_image(moment, policy);
                recover(&start.options, &image, |found| sweep.judge(moment, found))
            },
        );
    }
    sweep.reopen();
    let (db, _) = sweep.run.db.as_ref().expect("the database is open");
    let trees = open_trees(db).expect("trees");
    let more = [Change::Put(0, b"more".to_vec(), b"more".to_vec())];
    batch_of(db, &trees, &more).commit_with(Durability::Sync).expect("a commit after reopening");
    fired
}

fn run_whole(start: &Start) -> Run {
    let mut run = Run::start(start);
    for (at, step) in WORKLOAD.iter().enumerate() {
        run.step(*step, at as u64);
    }
    run
}

#[test]
fn workload_with_each_call_failing_keeps_its_promises() {
    fail_each_call(&Start::small());
}

#[test]
fn merging_workload_with_each_call_failing_keeps_its_promises() {
    fail_each_call(&Start::loose());
}

fn fail_each_call(start: &Start) {
    let calls = run_whole(start).disk.calls(None);
    let effects = [
        Effect::Fail(ErrorKind::Other),
        Effect::Fail(ErrorKind::StorageFull),
        Effect::Short { bytes: 7, error: ErrorKind::Other },
        Effect::Short { bytes: 600, error: ErrorKind::StorageFull },
    ];
    let cases: Vec<(u64, Effect, bool)> = (0..calls)
        .flat_map(|call| effects.map(|effect| (call, effect, false)))
        .chain((0..calls).map(|call| (call, Effect::Fail(ErrorKind::Other), true)))
        .collect();
    let every = (cases.len() as u64 / volume(cases.len() as u64)).max(1) as usize;
    let fired = Counter::default();
    let sync_faults = Counter::default();
    in_parallel(cases.len() / every, |index| {
        // The varying offset lets a sparse sweep meet every effect.
        let (call, effect, forever) = cases[index * every + index % every.min(5)];
        if forever {
            return sync_faults.add(u64::from(all_syncs_fail(start, call)));
        }
        explained(
            || format!("call {call} of {calls}: {effect:?}"),
            || {
                let fault = Fault { effect, ..Fault::nth(call, ErrorKind::Other) };
                fired.add(u64::from(sweep(start, fault)));
            },
        );
    });
    println!("{} faults of one call, {} of all syncs, in {calls} calls", fired.get(), sync_faults.get());
    assert!(fired.get() > 0);
}

/// All syncs from the `skip`-th on fail.
fn all_syncs_fail(start: &Start, skip: u64) -> bool {
    explained(
        || format!("every sync from the {skip}th on fails"),
        || {
            let mut run = Run::start(start);
            run.disk.inject(Fault { call: Some(Call::Sync), ..Fault::all_from(skip, ErrorKind::Other) });
            for (at, step) in WORKLOAD.iter().enumerate() {
                let (db, trees) = run.db.as_ref().expect("the database is open");
                match step.commit(at as u64) {
                    Some((changes, durability)) => {
                        run.history.submit(run.disk.operations(), changes.clone());
                        match step.write((&run.disk, db, trees), &changes, durability, at as u64) {
                            Ok(_) if durability == Durability::Sync => run.promise(),
                            Ok(_) => {}
                            Err(_) => break,
                        }
                    }
                    None if *step == Step::Reopen => break,
                    None => match maintain(db, *step) {
                        Ok(()) => run.promise(),
                        Err(_) => break,
                    },
                }
            }
            let fired = !run.disk.failed_calls().is_empty();
            let moment = run.disk.operations();
            for policy in [CrashPolicy::LoseAllUnsynced, CrashPolicy::KeepAll, CrashPolicy::Random(skip + SEED)] {
                let image = run.disk.crash_image(moment, policy);
                recover(&start.options, &image, |found| run.history.judge(moment, found));
            }
            fired
        },
    )
}

#[test]
fn workload_without_faults_uses_every_kind_of_file() {
    for (start, merges_loose) in [(Start::small(), false), (Start::loose(), true)] {
        let mut run = run_whole(&start);
        let names: Vec<String> = run.disk.files().iter().map(|(path, _)| path.display().to_string()).collect();
        for kind in ["wal", "run", "blob"] {
            assert!(names.iter().any(|name| name.ends_with(kind)), "{names:?} with {:?}", start.options);
        }
        run.close();
        assert_eq!(run.coverage.loose_merges.get() > 0, merges_loose, "{:?}", run.coverage);
    }
}
