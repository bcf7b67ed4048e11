//! The database with its model.

use super::{
    boundaries::{Boundary, Source},
    copies::Copies,
    followers::Following,
    outcome::{Outcome, Said, drain, unless_expired},
    ranges::Exported,
    seen::Seen,
    settings::Settings,
    steps::{HOUR_US, START_US, Step, key},
    watchers::Watching,
};
use crate::common::{self, coverage::Coverage, view::View};
use braiddb::{Db, Iter, MultiTree, Result, Snapshot, Tree};
use braiddb_sim::{
    SimDisk, SimRuntime, mix,
    model::{At, Bytes, Change, Model, MultiModel, TreeNumber, prefix_bounds, short},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

pub struct Held {
    pub iter: Iter,
    pub expected: VecDeque<(Bytes, Bytes)>,
    pub tree: TreeNumber,
    pub since: u64,
}

pub struct World<'a> {
    pub coverage: &'a Coverage,
    pub seen: &'a Seen,
    pub disk: Arc<SimDisk>,
    pub settings: Settings,
    pub db: Option<Db>,
    pub trees: Vec<Tree>,
    /// A dropped tree's number is never reused.
    pub numbers: [TreeNumber; 2],
    pub next_number: TreeNumber,
    pub multi: Option<MultiTree>,
    pub model: Model,
    pub multi_model: Arc<MultiModel>,
    pub cursor: Option<u64>,
    pub boundaries: Vec<Boundary>,
    /// The last commit that no crash may remove.
    pub durable: u64,
    /// Tree numbers by tree id; `None` is the multi-tree.
    pub ids: BTreeMap<u32, Option<TreeNumber>>,
    pub snapshots: Vec<(Snapshot, At, [TreeNumber; 2], u64)>,
    /// Snapshots with their models and hours.
    pub multi_snapshots: Vec<(Snapshot, Arc<MultiModel>, u64)>,
    pub runtime: Arc<SimRuntime>,
    pub hours: u64,
    pub held: Vec<Held>,
    pub watchings: Vec<Watching>,
    pub following: Option<Following>,
    pub copies: Copies,
    pub exported: Vec<Exported>,
    pub tag: u64,
    /// The last commits before opens that may have skipped numbers.
    pub jumps: Vec<u64>,
    pub crashes: u64,
}

impl<'a> World<'a> {
    pub fn new(settings: Settings, coverage: &'a Coverage, seen: &'a Seen) -> Outcome<World<'a>> {
        let mut world = World {
            coverage,
            seen,
            disk: settings.disk(),
            settings,
            db: None,
            trees: Vec::new(),
            numbers: [0, 1],
            next_number: 2,
            multi: None,
            model: Model::new(),
            multi_model: Arc::default(),
            cursor: None,
            boundaries: Vec::new(),
            durable: 0,
            ids: BTreeMap::new(),
            snapshots: Vec::new(),
            runtime: SimRuntime::new(1),
            hours: 0,
            multi_snapshots: Vec::new(),
            held: Vec::new(),
            watchings: Vec::new(),
            following: None,
            copies: Copies::default(),
            exported: Vec::new(),
            tag: 0,
            jumps: Vec::new(),
            crashes: 0,
        };
        world.open()?;
        world.open_trees()?;
        Ok(world)
    }

    pub fn new_runtime(&self) -> Arc<SimRuntime> {
        let runtime = SimRuntime::new(mix(self.tag, self.disk.next_session()));
        runtime.advance_us(self.hours * HOUR_US);
        runtime
    }

    pub fn open(&mut self) -> Outcome {
        self.runtime = self.new_runtime();
        let builder = self.settings.builder(&self.disk, &self.runtime);
        self.db = Some(builder.open(common::PATH).said("open")?);
        self.model.now_us = self.now_us();
        self.note(Source::Open);
        Ok(())
    }

    pub fn open_trees(&mut self) -> Outcome {
        self.trees = vec![self.db().tree("left").said("tree")?];
        self.note(Source::Open);
        self.trees.push(self.db().tree("right").said("tree")?);
        self.note(Source::Open);
        self.multi = Some(self.db().multi_tree("multi").said("multi_tree")?);
        self.note(Source::Open);
        self.note_ids()
    }

    pub fn note_ids(&mut self) -> Outcome {
        for tree in self.db().trees().said("trees")? {
            let number = ["left", "right"].iter().position(|name| *name == tree.name).map(|at| self.numbers[at]);
            self.ids.insert(tree.id, number);
        }
        Ok(())
    }

    pub fn pairs(&mut self) -> &mut MultiModel {
        Arc::make_mut(&mut self.multi_model)
    }

    /// Returns the time, rounded: operations take less than half an hour.
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
        self.commit_by(sequence, changes, Source::Log)
    }

    pub fn commit_by(&mut self, sequence: Result<u64>, changes: &[Change], source: Source) -> Outcome {
        let sequence = sequence.said("a write")?;
        let no_op = |change: &Change| match change {
            Change::DeleteRange(tree, bounds) => self.model.range(*tree, bounds, u64::MAX).is_empty(),
            _ => false,
        };
        if sequence == self.model.last_sequence() && changes.iter().all(no_op) {
            // A range delete without keys makes no commit.
            return Ok(());
        }
        ensure!(sequence > self.model.last_sequence(), "commit {sequence} after {}", self.model.last_sequence());
        self.model.commit(sequence, changes);
        self.note(source);
        ensure!(self.last() == sequence, "commit {sequence} is not the last one, which is {}", self.last());
        Ok(())
    }

    pub fn step_and_note(&mut self, step: &Step) -> Outcome {
        let before = self.last();
        self.step(step)?;
        self.note(Source::Log);
        let is_buffered = match step {
            Step::Batch { sync, .. } => !sync,
            Step::Fill { .. } | Step::MultiFill { .. } | Step::DropTree { .. } => true,
            Step::Numbered { .. } | Step::FlushTo { .. } | Step::Crash { .. } | Step::Reopen { .. } => true,
            _ => false,
        };
        let is_all = matches!(step, Step::Flush | Step::Compact | Step::Sync);
        if is_all || (self.last() > before && !is_buffered) {
            self.durable = self.last();
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Write(write) => self.write(write)?,
            Step::RemoveAll { key: number } => {
                self.multi().delete(key(*number)).said("delete")?;
                self.pairs().remove_all(&key(*number));
            }
            Step::Batch { writes, sync, way } => self.batch(writes, *sync, *way)?,
            Step::Fill { tree, first, count, size } => self.fill(*tree, *first, *count, *size)?,
            Step::Load { tree, keys, size } => self.load(*tree, keys, *size)?,
            Step::Conditional { tree, key, size, what } => self.conditional(*tree, *key, *size, *what)?,
            Step::Pass { hours } => {
                self.hours += u64::from(*hours);
                self.runtime.advance_us(u64::from(*hours) * HOUR_US);
                self.advance_follower(*hours);
                self.model.now_us = self.now_us();
            }
            Step::Get { tree, keys } => {
                self.check_get(&View::Now(&self.trees[*tree]), self.numbers[*tree], u64::MAX, keys)?;
            }
            Step::Scan { tree, bounds, directions } => {
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

    pub fn step_of_state(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Hold { tree, bounds } => {
                let bounds = bounds.bounds();
                let expected = VecDeque::from(self.model.range(self.numbers[*tree], &bounds, u64::MAX));
                let iter = self.trees[*tree].range(bounds);
                self.held.push(Held { iter, expected, tree: self.numbers[*tree], since: self.hours });
            }
            Step::Advance { which, count, directions } => {
                if !self.held.is_empty() {
                    let which = usize::from(*which) % self.held.len();
                    let mut held = self.held.swap_remove(which);
                    let done = drain(&mut held.iter, &mut held.expected, *directions, usize::from(*count), false)
                        .map_err(|text| format!("{text}, in an iterator that was held"));
                    if unless_expired(done, self.may_expire(held.since))? {
                        self.held.push(held);
                    }
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
                self.snapshots.push((snapshot, at, self.numbers, self.hours));
            }
            Step::ReadSnapshot { which, tree, bounds, directions } => {
                if let Some((snapshot, at, numbers, since)) =
                    self.snapshots.get(usize::from(*which) % self.snapshots.len().max(1))
                    && numbers[*tree] == self.numbers[*tree]
                {
                    let view = View::At(snapshot, &self.trees[*tree]);
                    let done = self
                        .check_range(&view, numbers[*tree], *at, &bounds.bounds(), *directions)
                        .and_then(|()| self.check_get(&view, numbers[*tree], *at, &[0, 5, 10, 20, 26, 31, 40]))
                        .map_err(|text| format!("{text}, in a snapshot at {at:?}"));
                    unless_expired(done, self.may_expire(*since))?;
                }
            }
            Step::DropSnapshot { which } => {
                if !self.snapshots.is_empty() {
                    self.snapshots.remove(usize::from(*which) % self.snapshots.len());
                }
            }
            Step::Multi { bounds, key, directions } => self.check_multi(&bounds.bounds(), *key, *directions)?,
            Step::Flush => {
                self.db().flush().said("flush")?;
                self.check_expired()?;
            }
            Step::Compact => {
                self.db().compact().said("compact")?;
                self.check_expired()?;
                if self.snapshots.is_empty() && self.multi_snapshots.is_empty() && self.held.is_empty() {
                    self.check_estimates()?;
                }
            }
            Step::Sync => self.db().sync().said("sync")?,
            Step::DropTree { tree } => {
                let name = ["left", "right"][*tree];
                let dropped = self.numbers[*tree];
                self.held.retain(|held| held.tree != dropped);
                self.db().drop_tree(name).said("drop_tree")?;
                ensure!(self.db().open_tree(name).is_err_and(|e| e.is_not_found()), "a dropped tree can be opened");
                self.note_without(*tree);
                self.trees[*tree] = self.db().tree(name).said("tree")?;
                self.numbers[*tree] = self.next_number;
                self.next_number += 1;
                self.note_ids()?;
            }
            Step::Crash { policy } => self.crash(*policy)?,
            Step::Numbered { writes, durability } => self.numbered(writes, *durability)?,
            Step::FlushTo { back } => self.flush_to(usize::from(*back))?,
            Step::Watch(step) => self.watch(step)?,
            Step::Copy(step) => self.copy(step)?,
            Step::Range(step) => self.range(step)?,
            Step::Follow { fresh } => self.follow(*fresh)?,
            Step::ReadFollower => self.read_follower()?,
            Step::Reopen { close } => self.reopen(*close)?,
            _ => self.step_of_multi(step)?,
        }
        Ok(())
    }

    pub fn note_coverage(&self) -> Outcome {
        let stats = self.db().stats();
        ensure!(stats.background_errors == 0, "{} background jobs failed", stats.background_errors);
        self.coverage.note(&stats);
        Ok(())
    }

    pub fn released(&mut self) {
        self.held.clear();
        self.snapshots.clear();
        self.multi_snapshots.clear();
        self.watchings.iter_mut().for_each(Watching::kill);
        self.trees.clear();
        self.multi = None;
    }

    pub fn reopen(&mut self, close: bool) -> Outcome {
        self.note_coverage()?;
        self.released();
        if let Some(db) = self.db.take()
            && close
        {
            db.close().said("close")?;
            self.durable = self.last();
        }
        self.open_after(false)?;
        self.open_trees()
    }

    pub fn may_expire(&self, since: u64) -> bool {
        self.settings.reader_hours_max.is_some_and(|most| self.hours - since >= most)
    }

    fn check_expired(&mut self) -> Outcome {
        let Some(most) = self.settings.reader_hours_max else { return Ok(()) };
        let (hours, tree) = (self.hours, &self.trees[0]);
        for (snapshot, _, _, since) in &self.snapshots {
            let is_expired = snapshot.get(tree, b"").is_err_and(|e| e.is_reader_expired());
            ensure!(is_expired == (hours - since > most) || hours - since == most, "a snapshot of {since} at {hours}");
        }
        let before = self.snapshots.len();
        self.snapshots.retain(|(_, _, _, since)| hours - since <= most);
        self.seen.expired.add((before - self.snapshots.len()) as u64);
        Ok(())
    }
}
