//! The database and the model of it, and what steps do to the database as a whole.

use super::{
    outcome::{Outcome, Said, drain},
    steps::{HOUR_US, START_US, Step, key},
};
use crate::common::{self, SmallOptions, coverage::Coverage, view::View};
use braiddb::{Db, Iter, MultiTree, Result, Snapshot, Tree};
use braiddb_sim::{
    SimDisk, SimRuntime, mix,
    model::{At, Bytes, Change, Model, MultiModel, TreeNumber, prefix_bounds, short},
};
use std::{collections::VecDeque, sync::Arc};

pub struct Held {
    pub iter: Iter,
    pub expected: VecDeque<(Bytes, Bytes)>,
    pub tree: TreeNumber,
}

/// The database and the model of it.
pub struct World<'a> {
    pub coverage: &'a Coverage,
    pub disk: Arc<SimDisk>,
    pub options: SmallOptions,
    pub db: Option<Db>,
    pub trees: Vec<Tree>,
    /// The model's numbers of the trees: a dropped tree's number is never used again.
    pub numbers: [TreeNumber; 2],
    pub next_number: TreeNumber,
    pub multi: Option<MultiTree>,
    pub model: Model,
    pub multi_model: MultiModel,
    pub snapshots: Vec<(Snapshot, At, [TreeNumber; 2])>,
    pub multi_snapshots: Vec<(Snapshot, MultiModel)>,
    pub runtime: Arc<SimRuntime>,
    /// How much time has passed.
    pub hours: u64,
    pub held: Vec<Held>,
    pub tag: u64,
}

impl<'a> World<'a> {
    pub fn new(options: SmallOptions, coverage: &'a Coverage) -> Outcome<World<'a>> {
        let mut world = World {
            coverage,
            disk: SimDisk::without_journal(1),
            options,
            db: None,
            trees: Vec::new(),
            numbers: [0, 1],
            next_number: 2,
            multi: None,
            model: Model::new(),
            multi_model: MultiModel::default(),
            snapshots: Vec::new(),
            runtime: SimRuntime::new(1),
            hours: 0,
            multi_snapshots: Vec::new(),
            held: Vec::new(),
            tag: 0,
        };
        world.open()?;
        Ok(world)
    }

    pub fn open(&mut self) -> Outcome {
        self.runtime = SimRuntime::new(mix(self.tag, self.disk.next_session()));
        self.runtime.advance_us(self.hours * HOUR_US);
        let builder = self.options.builder_by(&self.disk, Arc::clone(&self.runtime));
        let db = builder.open(common::PATH).said("open")?;
        self.model.now_us = self.now_us();
        self.trees = vec![db.tree("left").said("tree")?, db.tree("right").said("tree")?];
        self.multi = Some(db.multi_tree("multi").said("multi_tree")?);
        self.db = Some(db);
        Ok(())
    }

    /// The time of the runtime's clock, but for less than half an hour that passes while things are done.
    pub fn now_us(&self) -> u64 {
        START_US + self.hours * HOUR_US
    }

    pub fn db(&self) -> &Db {
        self.db.as_ref().expect("the database is open")
    }

    pub fn multi(&self) -> &MultiTree {
        self.multi.as_ref().expect("the database is open")
    }

    pub fn commit(&mut self, sequence: Result<u64>, changes: &[Change]) -> Outcome {
        let sequence = sequence.said("a write")?;
        let no_op = |change: &Change| match change {
            Change::DeleteRange(tree, bounds) => self.model.range(*tree, bounds, u64::MAX).is_empty(),
            _ => false,
        };
        if sequence == self.model.last_sequence() && changes.iter().all(no_op) {
            // Ranges that can hold no key make no commit.
            return Ok(());
        }
        ensure!(sequence > self.model.last_sequence(), "commit {sequence} after {}", self.model.last_sequence());
        self.model.commit(sequence, changes);
        Ok(())
    }

    pub fn step(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Write(write) => self.write(write)?,
            Step::RemoveAll { key: number } => {
                self.multi().remove_all(key(*number)).said("remove_all")?;
                self.multi_model.remove_all(&key(*number));
            }
            Step::Batch { writes, sync, way } => self.batch(writes, *sync, *way)?,
            Step::Fill { tree, first, count, size } => self.fill(*tree, *first, *count, *size)?,
            Step::Load { tree, keys, size } => self.load(*tree, keys, *size)?,
            Step::Conditional { tree, key, size, what } => self.conditional(*tree, *key, *size, *what)?,
            Step::Pass { hours } => {
                self.hours += u64::from(*hours);
                self.runtime.advance_us(u64::from(*hours) * HOUR_US);
                self.model.now_us = self.now_us();
            }
            Step::Get { tree, keys } => {
                self.check_get(&View::Now(&self.trees[*tree]), self.numbers[*tree], u64::MAX, keys)?;
            }
            Step::Range { tree, bounds, directions } => {
                let view = View::Now(&self.trees[*tree]);
                self.check_range(&view, self.numbers[*tree], u64::MAX, &bounds.bounds(), *directions)?;
            }
            Step::Prefix { tree, key: number, len, directions } => {
                let mut prefix = key(*number);
                prefix.truncate(usize::from(*len));
                let bounds = prefix_bounds(&prefix);
                let mut expected = VecDeque::from(self.model.range(self.numbers[*tree], &bounds, u64::MAX));
                let count = expected.len() + 1;
                drain(&mut View::Now(&self.trees[*tree]).prefix(&prefix), &mut expected, *directions, count, true)
                    .map_err(|text| format!("{text}, with the prefix {}", short(&prefix)))?;
            }
            Step::Ends { tree } => self.check_ends(*tree)?,
            Step::Verify => {
                let report = self.db().verify().said("verify")?;
                ensure!(report.problems.is_empty(), "verify found {:?}", report.problems);
            }
            _ => self.step_of_state(step)?,
        }
        Ok(())
    }

    /// The steps that concern snapshots, open iterators, and the database as a whole.
    pub fn step_of_state(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Hold { tree, bounds } => {
                let bounds = bounds.bounds();
                let expected = VecDeque::from(self.model.range(self.numbers[*tree], &bounds, u64::MAX));
                let iter = self.trees[*tree].range(bounds);
                self.held.push(Held { iter, expected, tree: self.numbers[*tree] });
            }
            Step::Advance { which, count, directions } => {
                if !self.held.is_empty() {
                    let which = usize::from(*which) % self.held.len();
                    let held = &mut self.held[which];
                    drain(&mut held.iter, &mut held.expected, *directions, usize::from(*count), false)
                        .map_err(|text| format!("{text}, in an iterator that was held"))?;
                }
            }
            Step::Snapshot => {
                let snapshot = self.db().snapshot();
                ensure!(
                    snapshot.sequence() >= self.model.last_sequence(),
                    "a snapshot at {} after commit {}",
                    snapshot.sequence(),
                    self.model.last_sequence()
                );
                let at = At { sequence: snapshot.sequence(), time_us: Some(self.now_us()) };
                self.snapshots.push((snapshot, at, self.numbers));
            }
            Step::ReadSnapshot { which, tree, bounds, directions } => {
                if let Some((snapshot, at, numbers)) =
                    self.snapshots.get(usize::from(*which) % self.snapshots.len().max(1))
                    && numbers[*tree] == self.numbers[*tree]
                {
                    let view = View::At(snapshot, &self.trees[*tree]);
                    self.check_range(&view, numbers[*tree], *at, &bounds.bounds(), *directions)
                        .and_then(|()| self.check_get(&view, numbers[*tree], *at, &[0, 5, 10, 20, 26, 31, 40]))
                        .map_err(|text| format!("{text}, in a snapshot at {at:?}"))?;
                }
            }
            Step::DropSnapshot { which } => {
                if !self.snapshots.is_empty() {
                    self.snapshots.remove(usize::from(*which) % self.snapshots.len());
                }
            }
            Step::Multi { bounds, key, directions } => self.check_multi(&bounds.bounds(), *key, *directions)?,
            Step::Flush => self.db().flush().said("flush")?,
            Step::Compact => self.db().compact().said("compact")?,
            Step::Sync => self.db().sync().said("sync")?,
            Step::DropTree { tree } => {
                let name = ["left", "right"][*tree];
                let dropped = self.numbers[*tree];
                self.held.retain(|held| held.tree != dropped);
                self.db().drop_tree(name).said("drop_tree")?;
                ensure!(self.db().open_tree(name).is_err_and(|e| e.is_not_found()), "a dropped tree can be opened");
                self.trees[*tree] = self.db().tree(name).said("tree")?;
                self.numbers[*tree] = self.next_number;
                self.next_number += 1;
            }
            Step::Reopen { close } => self.reopen(*close)?,
            _ => self.step_of_multi(step)?,
        }
        Ok(())
    }

    /// Notes what the engine has come to do, and that no job failed.
    pub fn note_coverage(&self) -> Outcome {
        let stats = self.db().stats();
        ensure!(stats.background_errors == 0, "{} background jobs failed", stats.background_errors);
        self.coverage.note(&stats);
        Ok(())
    }

    pub fn reopen(&mut self, close: bool) -> Outcome {
        self.note_coverage()?;
        self.held.clear();
        self.snapshots.clear();
        self.multi_snapshots.clear();
        self.trees.clear();
        self.multi = None;
        if let Some(db) = self.db.take()
            && close
        {
            db.close().said("close")?;
        }
        self.open()
    }
}
