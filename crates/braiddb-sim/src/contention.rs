//! Conflicting transactions and records of their reads and writes.
//!
//! Transactions work on a few keys of two trees. List keys are read and appended to, never deleted
//! for good. Register keys are put and deleted. A key starts with an epoch (a counter of the test),
//! so some keys are always absent. Each key has a neighbour that is longer by one zero byte.
//!
//! A third tree takes floods: commits whose keys overflow the engine's window of recent commits.

use crate::{
    cycles::{decode, encode},
    history::{Kind, Outcome, Record, Step, Taken},
    model::{Bounds, Bytes, Change, Contents, TreeNumber, moment, prefix_bounds},
    random::Random,
};
use braiddb::{Batch, Db, Durability, Result, Savepoint, Transaction, Tree, merge::MergeFunctionHandle};
use parking_lot::Mutex;
use std::{
    ops::Bound,
    sync::atomic::{AtomicU64, Ordering},
};

/// Trees by number; the last one takes floods.
pub const TREES: [&str; 3] = ["left", "right", "flooded"];

const FLOODED: TreeNumber = 2;

/// Register keys sort after the list keys (`L`) in one tree, before them in the other.
const REGISTERS: [char; 2] = ['R', 'A'];

/// More bytes of keys than the window of recent commits holds.
const FLOOD_KEYS: u64 = 10;
const FLOOD_KEY_LEN: usize = 30_000;

/// Longer than the keys that the leader of a commit group has budget to check.
const SMALL_FLOOD_KEY_LEN: usize = 3000;

/// A database and the records of its transactions.
#[derive(Debug)]
pub struct World {
    db: Db,
    trees: Vec<Tree>,
    append: MergeFunctionHandle,
    /// Pairs of keys for each sort, tree and epoch.
    pairs: u64,
    padding: usize,
    clock: AtomicU64,
    numbers: AtomicU64,
    records: Mutex<Vec<Record>>,
}

/// An open transaction.
#[derive(Debug)]
pub struct Open {
    transaction: Transaction,
    record: Record,
    savepoints: Vec<(u64, Savepoint)>,
}

/// Returns true if the key holds a list.
pub fn is_list(tree: TreeNumber, key: &[u8]) -> bool {
    tree != FLOODED && key.get(3) == Some(&b'L')
}

fn said<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|e| panic!("{e} ({e:?})"))
}

impl World {
    /// Creates the world of an empty database, with a random number and length of keys.
    pub fn new(db: Db, random: &mut Random) -> World {
        let trees = TREES.iter().map(|name| said(db.tree(name))).collect();
        let append = said(db.merge_function("append"));
        World {
            append,
            db,
            trees,
            pairs: 1 + random.below(4),
            padding: [0, 0, 200][random.index(3)],
            clock: AtomicU64::new(1),
            numbers: AtomicU64::new(1),
            records: Mutex::default(),
        }
    }

    /// Returns the database.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Returns the records of all ended transactions.
    pub fn into_records(self) -> Vec<Record> {
        self.records.into_inner()
    }

    /// Returns all rows of the database.
    pub fn contents(&self) -> Contents {
        let mut contents = Contents::new();
        for (number, tree) in self.trees.iter().enumerate() {
            for row in tree.iter() {
                let (key, value) = said(row);
                contents.insert((number as TreeNumber, key.to_vec()), value.to_vec());
            }
        }
        contents
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn tree(&self, number: TreeNumber) -> &Tree {
        &self.trees[number as usize]
    }

    fn key(&self, sort: char, epoch: u64, random: &mut Random) -> Bytes {
        let end = if random.chance(1, 3) { "\0" } else { "" };
        format!("{epoch:03}{sort}{:02}{:x<2$}{end}", random.below(self.pairs), "", self.padding).into_bytes()
    }

    fn list(&self, epoch: u64, random: &mut Random) -> (TreeNumber, Bytes) {
        (random.below(2) as TreeNumber, self.key('L', about(epoch, random), random))
    }

    fn register(&self, epoch: u64, random: &mut Random) -> (TreeNumber, Bytes) {
        let tree = random.below(2);
        (tree as TreeNumber, self.key(REGISTERS[tree as usize], epoch, random))
    }

    fn any(&self, epoch: u64, random: &mut Random) -> (TreeNumber, Bytes) {
        let is_list = random.chance(1, 2);
        if is_list { self.list(epoch, random) } else { self.register(about(epoch, random), random) }
    }

    /// Unique; one in twenty is large.
    fn value(&self, random: &mut Random) -> Bytes {
        let len = if random.chance(1, 20) { 2500 } else { random.index(9) };
        [&self.number().to_le_bytes()[..], &vec![0; 8 * len]].concat()
    }

    fn change(&self, epoch: u64, random: &mut Random) -> Change {
        // Ranges must not span epochs, or they would delete lists.
        let epoch = about(epoch, random);
        let (tree, key) = self.register(epoch, random);
        match random.below(8) {
            0..=2 => Change::Put(tree, key, self.value(random)),
            3 => Change::Append(tree, key, self.number().to_le_bytes().to_vec()),
            4 | 5 => Change::Delete(tree, key),
            _ => {
                let sort = REGISTERS[tree as usize];
                let bounds = match random.below(4) {
                    0 => prefix_bounds(format!("{epoch:03}{sort}").as_bytes()),
                    _ => {
                        let ends = [key, self.key(sort, epoch, random)];
                        let [from, to] = if random.chance(9, 10) { sorted(ends) } else { ends };
                        (bound(from, random), bound(to, random))
                    }
                };
                Change::DeleteRange(tree, bounds)
            }
        }
    }

    /// Begins a transaction.
    pub fn begin(&self, name: (u64, u64), kind: Kind) -> Open {
        let began = self.tick();
        let transaction = said(if kind == Kind::Exclusive { self.db.begin_exclusive() } else { self.db.begin() });
        let record = Record::new(name, kind, began, transaction.sequence());
        Open { transaction, record, savepoints: Vec::new() }
    }

    /// Executes a random step. Calls `meanwhile` while it reads a range.
    pub fn continue_one(&self, open: &mut Open, epoch: u64, random: &mut Random, meanwhile: &mut dyn FnMut()) {
        match random.below(24) {
            0..=3 => open.get(self, self.any(epoch, random)),
            4 => open.contains(self, self.any(epoch, random)),
            5..=9 => self.read_range(open, epoch, random, meanwhile),
            10..=16 => self.append(open, epoch, random),
            17..=19 => open.write(self, self.change(epoch, random)),
            20 | 21 => open.set_savepoint(self.number()),
            22 if !open.savepoints.is_empty() => open.rollback(random.index(open.savepoints.len())),
            _ => self.delete_and_regret(open, epoch, random, meanwhile),
        }
    }

    fn append(&self, open: &mut Open, epoch: u64, random: &mut Random) {
        let (tree, key) = self.list(epoch, random);
        open.get(self, (tree, key.clone()));
        let Some(Step::Get(_, _, found)) = open.record.steps.last() else { return };
        let mut list = found.as_deref().map(decode).unwrap_or_default();
        list.push(self.number());
        open.write(self, Change::Put(tree, key, encode(&list)));
    }

    fn delete_and_regret(&self, open: &mut Open, epoch: u64, random: &mut Random, meanwhile: &mut dyn FnMut()) {
        let name = self.number();
        open.set_savepoint(name);
        open.write(self, Change::DeleteRange(random.below(2) as TreeNumber, (Bound::Unbounded, Bound::Unbounded)));
        if random.chance(1, 2) {
            self.append(open, epoch, random);
        }
        self.read_range(open, epoch, random, meanwhile);
        let at = open.savepoints.iter().position(|(of, _)| *of == name);
        open.rollback(at.expect("it was set just now"));
    }

    fn read_range(&self, open: &mut Open, epoch: u64, random: &mut Random, meanwhile: &mut dyn FnMut()) {
        let number = random.below(2) as TreeNumber;
        let tree = self.tree(number);
        let transaction = &open.transaction;
        let whole = (Bound::Unbounded, Bound::Unbounded);
        let (mut rows, bounds) = match random.below(5) {
            0 => (transaction.iter(tree), whole),
            1 | 2 => {
                let prefix = format!("{epoch:03}{}", ["", "L"][random.index(2)]).into_bytes();
                (transaction.prefix(tree, &prefix), prefix_bounds(&prefix))
            }
            _ => {
                let ends = [self.any(epoch, random).1, self.any(epoch, random).1];
                let [from, to] = if random.chance(9, 10) { sorted(ends) } else { ends };
                let bounds: Bounds = (bound(from, random), bound(to, random));
                (transaction.range(tree, bounds.clone()), bounds)
            }
        };
        let count = if random.chance(1, 3) { 1 + random.below(3) } else { u64::MAX };
        let direction = random.below(4);
        let mut taken = Vec::new();
        for _ in 0..count {
            let is_back = match direction {
                0 | 1 => false,
                2 => true,
                _ => random.chance(1, 2),
            };
            let row = if is_back { rows.next_back() } else { rows.next() };
            let row = row.map(said).map(|(key, value)| (key.to_vec(), value.to_vec()));
            let is_end = row.is_none();
            taken.push(Taken { is_back, row });
            if is_end {
                break;
            }
            if random.chance(1, 10) {
                meanwhile();
            }
        }
        drop(rows);
        open.record.steps.push(Step::Range(number, bounds, taken));
    }

    /// Commits or drops a transaction.
    pub fn end(&self, open: Open, commits: bool) {
        let Open { transaction, mut record, .. } = open;
        if commits {
            record.outcome = match transaction.commit() {
                Ok(sequence) => Outcome::Committed(sequence),
                Err(e) if e.is_conflict() => Outcome::Refused,
                Err(e) => panic!("a commit: {e} ({e:?})"),
            };
        } else {
            drop(transaction);
        }
        self.note(record);
    }

    fn note(&self, mut record: Record) {
        record.ended = self.tick();
        self.records.lock().push(record);
    }

    /// Commits blind writes outside of transactions.
    pub fn write_blindly(&self, name: (u64, u64), epoch: u64, random: &mut Random) {
        let mut record = Record::new(name, Kind::Blind, self.tick(), 0);
        let count = if random.chance(1, 2) { 1 } else { 1 + random.below(4) };
        let changes: Vec<Change> = (0..count).map(|_| self.change(epoch, random)).collect();
        let is_batch = count > 1 || random.chance(1, 4);
        let sequence = match changes.as_slice() {
            [Change::Put(tree, key, value)] if !is_batch => self.tree(*tree).put(key, value),
            [Change::Delete(tree, key)] if !is_batch => self.tree(*tree).delete(key),
            [Change::DeleteRange(tree, bounds)] if !is_batch => self.tree(*tree).delete_range(bounds.clone()),
            changes => self.batch_of(changes).commit_with(Durability::Buffered),
        };
        record.outcome = Outcome::Committed(said(sequence));
        record.steps = changes.into_iter().map(Step::Write).collect();
        self.note(record);
    }

    fn batch_of(&self, changes: &[Change]) -> Batch {
        let mut batch = self.db.batch();
        for change in changes {
            match change {
                Change::Put(tree, key, value) => batch.put(self.tree(*tree), key, value),
                Change::Delete(tree, key) => batch.delete(self.tree(*tree), key),
                Change::DeleteRange(tree, bounds) => batch.delete_range(self.tree(*tree), bounds.clone()),
                Change::Append(tree, key, more) | Change::Extend(tree, key, more) => {
                    batch.merge(self.tree(*tree), key, &self.append, more)
                }
                Change::PutUntil(tree, key, value, us) => batch.put_until(self.tree(*tree), key, value, moment(*us)),
            };
        }
        batch
    }

    /// Commits keys that conflict with no transaction. A whole flood overflows the window of recent
    /// commits; a small one exceeds the budget of a commit group's leader.
    pub fn flood(&self, name: (u64, u64), is_whole: bool) {
        let mut record = Record::new(name, Kind::Blind, self.tick(), 0);
        let number = self.number();
        let change = Change::Put(FLOODED, b"number".to_vec(), number.to_le_bytes().to_vec());
        let mut batch = self.batch_of(std::slice::from_ref(&change));
        let (count, len) = if is_whole { (FLOOD_KEYS, FLOOD_KEY_LEN) } else { (1, SMALL_FLOOD_KEY_LEN) };
        for key in 0..count {
            batch.delete(self.tree(FLOODED), format!("{key:0len$}"));
        }
        record.outcome = Outcome::Committed(said(batch.commit_with(Durability::Buffered)));
        record.steps.push(Step::Write(change));
        self.note(record);
    }

    /// Runs one random maintenance job.
    pub fn maintain(&self, random: &mut Random) -> Result<()> {
        match random.below(5) {
            0 => self.db.compact(),
            1 => self.db.sync(),
            _ => self.db.flush(),
        }
    }
}

impl Open {
    /// Returns the number of steps so far.
    pub fn steps(&self) -> usize {
        self.record.steps.len()
    }

    /// Returns the sequence number of its snapshot.
    pub fn snapshot(&self) -> u64 {
        self.record.snapshot
    }

    fn get(&mut self, world: &World, (tree, key): (TreeNumber, Bytes)) {
        let found = said(self.transaction.get(world.tree(tree), &key)).map(|value| value.to_vec());
        self.record.steps.push(Step::Get(tree, key, found));
    }

    fn contains(&mut self, world: &World, (tree, key): (TreeNumber, Bytes)) {
        let found = said(self.transaction.contains(world.tree(tree), &key));
        self.record.steps.push(Step::Contains(tree, key, found));
    }

    fn write(&mut self, world: &World, change: Change) {
        let transaction = &self.transaction;
        said(match &change {
            Change::Put(tree, key, value) => transaction.put(world.tree(*tree), key, value),
            Change::Delete(tree, key) => transaction.delete(world.tree(*tree), key),
            Change::DeleteRange(tree, bounds) => transaction.delete_range(world.tree(*tree), bounds.clone()),
            Change::Append(tree, key, more) => transaction.merge(world.tree(*tree), key, &world.append, more),
            Change::Extend(tree, key, more) => transaction.append_stream(world.tree(*tree), key, more.as_slice()),
            Change::PutUntil(tree, key, value, us) => transaction.put_until(world.tree(*tree), key, value, moment(*us)),
        });
        self.record.steps.push(Step::Write(change));
    }

    fn set_savepoint(&mut self, name: u64) {
        self.savepoints.push((name, self.transaction.savepoint()));
        self.record.steps.push(Step::Savepoint(name));
    }

    fn rollback(&mut self, at: usize) {
        let (name, savepoint) = self.savepoints[at];
        said(self.transaction.rollback_to(savepoint));
        self.savepoints.truncate(at + 1);
        self.record.steps.push(Step::RollBack(name));
    }
}

fn about(epoch: u64, random: &mut Random) -> u64 {
    if random.chance(1, 6) { epoch.saturating_sub(1) } else { epoch }
}

fn sorted([a, b]: [Bytes; 2]) -> [Bytes; 2] {
    if a <= b { [a, b] } else { [b, a] }
}

fn bound(key: Bytes, random: &mut Random) -> Bound<Bytes> {
    if random.chance(1, 2) { Bound::Included(key) } else { Bound::Excluded(key) }
}
