//! Records of transactions, and a check of their history.
//!
//! A [`Record`] is a transaction as its caller knows it. [`check_replay`] trusts the engine's
//! sequence numbers: it replays the commits on a model and compares each answer, at the snapshot
//! and just before the commit. [`crate::cycles`] checks without these numbers.
//!
//! Moments are readings of a logical clock.

use crate::model::{Bounds, Bytes, Change, Contents, Model, TreeNumber, apply, difference, is_empty_range, short};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    ops::{Bound, RangeBounds},
};

/// A key and its value.
pub type Row = (Bytes, Bytes);

/// One answer of an iterator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// True if called from the back.
    pub is_back: bool,
    /// `None` at the end.
    pub row: Option<Row>,
}

/// A call with its answer.
#[derive(Clone, Debug)]
pub enum Step {
    /// A lookup.
    Get(TreeNumber, Bytes, Option<Bytes>),
    /// A test for a key.
    Contains(TreeNumber, Bytes, bool),
    /// Rows of a range.
    Range(TreeNumber, Bounds, Vec<Taken>),
    /// A write.
    Write(Change),
    /// A savepoint was set.
    Savepoint(u64),
    /// Its later writes were rolled back.
    RollBack(u64),
}

/// The isolation of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Refused on a conflict.
    Optimistic,
    /// Other commits wait for it.
    Exclusive,
    /// A blind write, committed at once.
    Blind,
}

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// At this sequence number; without writes, that of the snapshot.
    Committed(u64),
    /// Refused because of a conflict.
    Refused,
    /// Dropped.
    Dropped,
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct Record {
    /// Logical thread, and number in it.
    pub name: (u64, u64),
    /// Its isolation.
    pub kind: Kind,
    /// A moment before the begin.
    pub began: u64,
    /// A moment after the end.
    pub ended: u64,
    /// The snapshot's sequence number.
    pub snapshot: u64,
    /// Its calls.
    pub steps: Vec<Step>,
    /// Its outcome.
    pub outcome: Outcome,
}

impl Record {
    /// Creates a record without steps.
    pub fn new(name: (u64, u64), kind: Kind, began: u64, snapshot: u64) -> Record {
        Record { name, kind, began, ended: u64::MAX, snapshot, steps: Vec::new(), outcome: Outcome::Dropped }
    }

    /// Returns the writes not rolled back.
    pub fn changes(&self) -> Vec<Change> {
        let mut writes = Writes::default();
        self.steps.iter().for_each(|step| writes.follow(step));
        writes.changes
    }

    /// Returns the commit's sequence number, if it changed anything.
    pub fn commit(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Committed(sequence) if self.changes().iter().any(is_felt) => Some(sequence),
            _ => None,
        }
    }
}

/// A range delete without keys writes nothing.
fn is_felt(change: &Change) -> bool {
    !matches!(change, Change::DeleteRange(_, bounds) if is_empty_range(bounds) || half_open(bounds).is_none())
}

#[derive(Debug, Default)]
pub(crate) struct Writes {
    pub(crate) changes: Vec<Change>,
    savepoints: Vec<(u64, usize)>,
}

impl Writes {
    pub(crate) fn follow(&mut self, step: &Step) {
        match step {
            Step::Write(change) => self.changes.push(change.clone()),
            Step::Savepoint(name) => self.savepoints.push((*name, self.changes.len())),
            Step::RollBack(name) => {
                let at = self.savepoints.iter().position(|(known, _)| known == name);
                let at = at.expect("only existing savepoints are rolled back to");
                self.savepoints.truncate(at + 1);
                self.changes.truncate(self.savepoints[at].1);
            }
            Step::Get(..) | Step::Contains(..) | Step::Range(..) => {}
        }
    }
}

/// An error in a history.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// The description.
    pub text: String,
    /// Records that show it.
    pub involved: Vec<usize>,
}

impl Wrong {
    /// Creates an error.
    pub fn new(text: impl Into<String>, involved: impl Into<Vec<usize>>) -> Wrong {
        Wrong { text: text.into(), involved: involved.into() }
    }

    /// Returns the description with the involved records.
    pub fn report(&self, records: &[Record]) -> String {
        let mut text = self.text.clone();
        let mut seen = BTreeSet::new();
        for index in self.involved.iter().filter(|index| seen.insert(**index)) {
            text.push_str(&format!("\n  {}", records[*index]));
        }
        text
    }
}

/// Checks a history by sequence numbers; `finally` is the database at the end. Returns the number
/// of compared answers.
pub fn check_replay(records: &[Record], finally: &Contents) -> Result<u64, Wrong> {
    let commits = commits_in_order(records)?;
    let mut model = Model::new();
    for (sequence, index) in &commits {
        model.commit(*sequence, &records[*index].changes());
    }
    check_order(records)?;
    let mut compared = 0;
    for (index, record) in records.iter().enumerate().filter(|(_, record)| record.kind != Kind::Blind) {
        compared += check_answers(&model, &commits, records, index, record.snapshot)?;
        match (record.outcome, record.commit()) {
            (_, Some(sequence)) if sequence <= record.snapshot => {
                return Err(Wrong::new(format!("a commit at {sequence} is not after its snapshot"), [index]));
            }
            (_, Some(sequence)) => compared += check_answers(&model, &commits, records, index, sequence - 1)?,
            (Outcome::Committed(sequence), None) if sequence != record.snapshot => {
                return Err(Wrong::new(
                    format!("it wrote nothing, yet its commit has sequence number {sequence}"),
                    [index],
                ));
            }
            (Outcome::Refused, _) => check_reason(&commits, records, index)?,
            _ => {}
        }
    }
    let expected = model.contents(model.last_sequence());
    if expected != *finally {
        return Err(Wrong::new(format!("in the end: {}", difference(&expected, finally)), []));
    }
    Ok(compared)
}

fn commits_in_order(records: &[Record]) -> Result<Vec<(u64, usize)>, Wrong> {
    let commits = records.iter().enumerate().filter_map(|(index, record)| Some((record.commit()?, index)));
    let mut commits: Vec<_> = commits.collect();
    commits.sort_unstable();
    match commits.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(Wrong::new("two commits have one sequence number", [pair[0].1, pair[1].1])),
        None => Ok(commits),
    }
}

/// A transaction that ended before another began has the smaller number and is seen by it.
fn check_order(records: &[Record]) -> Result<(), Wrong> {
    let mut by_end: Vec<usize> = (0..records.len()).filter(|index| records[*index].commit().is_some()).collect();
    by_end.sort_unstable_by_key(|index| records[*index].ended);
    // By end: the largest number so far.
    let mut last: Option<(u64, usize)> = None;
    let mut largest = BTreeMap::new();
    for index in by_end {
        last = last.max(records[index].commit().map(|sequence| (sequence, index)));
        largest.insert(records[index].ended, last);
    }
    for (index, record) in records.iter().enumerate() {
        let Some((_, Some((sequence, before)))) = largest.range(..record.began).next_back() else { continue };
        if record.kind != Kind::Blind && record.snapshot < *sequence {
            let text = format!("a snapshot at {} misses a commit that was over before", record.snapshot);
            return Err(Wrong::new(text, [*before, index]));
        }
        if record.commit().is_some_and(|own| own <= *sequence) {
            return Err(Wrong::new("a commit has a smaller number than one that was over before", [*before, index]));
        }
    }
    Ok(())
}

/// Each answer must match the state at `at` with the transaction's own writes.
fn check_answers(
    model: &Model,
    commits: &[(u64, usize)],
    records: &[Record],
    index: usize,
    at: u64,
) -> Result<u64, Wrong> {
    let before = model.contents(at);
    let mut contents = before.clone();
    let mut writes = Writes::default();
    let mut compared = 0;
    for step in &records[index].steps {
        writes.follow(step);
        match step {
            Step::Write(change) => apply(&mut contents, std::slice::from_ref(change)),
            Step::RollBack(_) => {
                contents = before.clone();
                apply(&mut contents, &writes.changes);
            }
            Step::Savepoint(_) => {}
            Step::Get(..) | Step::Contains(..) | Step::Range(..) => {
                compared += 1;
                if let Some(expected) = differs(&contents, step) {
                    let involved = writers_of(commits, records, step, records[index].snapshot, at);
                    let text = format!("at {at} this should give {expected}: {step}");
                    return Err(Wrong::new(text, [involved, vec![index]].concat()));
                }
            }
        }
    }
    Ok(compared)
}

fn writers_of(commits: &[(u64, usize)], records: &[Record], step: &Step, snapshot: u64, at: u64) -> Vec<usize> {
    let mut coverage = Coverage::default();
    coverage.read(&Writes::default(), step);
    let between = commits.iter().filter(|(sequence, _)| snapshot.saturating_sub(1) < *sequence && *sequence <= at);
    let writers = between.filter(|(_, index)| records[*index].changes().iter().any(|change| coverage.meets(change)));
    writers.map(|(_, index)| *index).collect()
}

fn differs(contents: &Contents, step: &Step) -> Option<String> {
    match step {
        Step::Get(tree, key, found) => {
            let expected = contents.get(&(*tree, key.clone()));
            (expected != found.as_ref()).then(|| text_of(expected))
        }
        Step::Contains(tree, key, found) => {
            let expected = contents.contains_key(&(*tree, key.clone()));
            (expected != *found).then(|| expected.to_string())
        }
        Step::Range(tree, bounds, taken) => {
            let within = |key: &Bytes| !is_empty_range(bounds) && bounds.contains(key);
            let rows = contents.range((*tree, Vec::new())..).take_while(|((of, _), _)| of == tree);
            let mut rows: VecDeque<(&Bytes, &Bytes)> =
                rows.filter(|((_, key), _)| within(key)).map(|((_, key), value)| (key, value)).collect();
            for taken in taken {
                let expected = if taken.is_back { rows.pop_back() } else { rows.pop_front() };
                if expected != taken.row.as_ref().map(|(key, value)| (key, value)) {
                    let end = if taken.is_back { "back" } else { "front" };
                    let expected = expected.map(|(key, value)| format!("{}={}", short(key), text_of(Some(value))));
                    return Some(format!("{} from the {end}", expected.unwrap_or_else(|| "nothing more".to_owned())));
                }
            }
            None
        }
        Step::Write(_) | Step::Savepoint(_) | Step::RollBack(_) => None,
    }
}

/// A refused transaction must conflict with a commit after its snapshot.
fn check_reason(commits: &[(u64, usize)], records: &[Record], index: usize) -> Result<(), Wrong> {
    let record = &records[index];
    if record.kind != Kind::Optimistic {
        return Err(Wrong::new("a transaction that cannot conflict was refused", [index]));
    }
    let mut writes = Writes::default();
    let mut coverage = Coverage::default();
    for step in &record.steps {
        coverage.read(&writes, step);
        writes.follow(step);
    }
    if !writes.changes.iter().any(is_felt) {
        return Err(Wrong::new("it wrote nothing and was refused", [index]));
    }
    let later = &commits[commits.partition_point(|(sequence, _)| *sequence <= record.snapshot)..];
    let mut later = later.iter().map(|(_, index)| &records[*index]).filter(|other| other.began < record.ended);
    if later.any(|other| other.changes().iter().any(|change| coverage.meets(change))) {
        return Ok(());
    }
    Err(Wrong::new("it was refused although no later commit wrote a key that it read", [index]))
}

/// Read set: keys, and ranges with an inclusive start and an exclusive or open end.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    pub(crate) keys: BTreeSet<(TreeNumber, Bytes)>,
    ranges: Vec<(TreeNumber, Bytes, Option<Bytes>)>,
}

impl Coverage {
    pub(crate) fn read(&mut self, own: &Writes, step: &Step) {
        match step {
            Step::Get(tree, key, _) | Step::Contains(tree, key, _) => {
                let mut itself = Coverage::default();
                itself.keys.insert((*tree, key.clone()));
                // A key that it put or deleted itself was not read from others; one that it
                // appended to was.
                let decides = |change: &&Change| !matches!(change, Change::Append(..) | Change::Extend(..));
                if !own.changes.iter().filter(decides).any(|change| itself.meets(change)) {
                    self.keys.append(&mut itself.keys);
                }
            }
            Step::Range(tree, bounds, taken) => {
                let Some((from, to)) = half_open(bounds) else { return };
                if taken.iter().any(|taken| taken.row.is_none()) {
                    self.ranges.push((*tree, from, to));
                    return;
                }
                let last = |is_back| taken.iter().rfind(|taken| taken.is_back == is_back).and_then(|t| t.row.as_ref());
                if let Some((key, _)) = last(false) {
                    self.ranges.push((*tree, from, Some(after(key))));
                }
                if let Some((key, _)) = last(true) {
                    self.ranges.push((*tree, key.clone(), to));
                }
            }
            Step::Write(_) | Step::Savepoint(_) | Step::RollBack(_) => {}
        }
    }

    pub(crate) fn meets(&self, change: &Change) -> bool {
        match change {
            Change::Put(tree, key, _)
            | Change::PutUntil(tree, key, ..)
            | Change::Delete(tree, key)
            | Change::Append(tree, key, _)
            | Change::Extend(tree, key, _) => {
                self.keys.contains(&(*tree, key.clone())) || self.meets_range(*tree, key, Some(&after(key)))
            }
            Change::DeleteRange(tree, bounds) => half_open(bounds).is_some_and(|(from, to)| {
                let mut keys = self.keys.range((*tree, from.clone())..);
                let is_before = |end: &Option<Bytes>, key: &Bytes| end.as_ref().is_none_or(|end| key < end);
                keys.next().is_some_and(|(of, key)| of == tree && is_before(&to, key))
                    || self.meets_range(*tree, &from, to.as_ref())
            }),
        }
    }

    fn meets_range(&self, tree: TreeNumber, from: &Bytes, to: Option<&Bytes>) -> bool {
        let is_before = |start: &Bytes, end: Option<&Bytes>| end.is_none_or(|end| start < end);
        let ranges = self.ranges.iter().filter(|(of, _, _)| *of == tree);
        ranges.into_iter().any(|(_, start, end)| {
            let later = start.max(from);
            is_before(later, end.as_ref()) && is_before(later, to)
        })
    }
}

fn after(key: &Bytes) -> Bytes {
    [key.as_slice(), &[0]].concat()
}

/// Returns inclusive start and exclusive or open end; `None` if no key lies within.
pub fn half_open((from, to): &Bounds) -> Option<(Bytes, Option<Bytes>)> {
    let from = match from {
        Bound::Included(key) => key.clone(),
        Bound::Excluded(key) => after(key),
        Bound::Unbounded => Vec::new(),
    };
    let to = match to {
        Bound::Included(key) => Some(after(key)),
        Bound::Excluded(key) => Some(key.clone()),
        Bound::Unbounded => None,
    };
    (to.as_ref().is_none_or(|to| from < *to)).then_some((from, to))
}

fn text_of(value: Option<&Bytes>) -> String {
    match value {
        None => "nothing".to_owned(),
        Some(value) if value.len().is_multiple_of(8) => {
            let len = value.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            let numbers = value[..len.next_multiple_of(8)].chunks_exact(8);
            let numbers =
                numbers.map(|chunk| chunk.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)));
            format!("{:?}", numbers.collect::<Vec<u64>>())
        }
        Some(value) => short(value),
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Get(tree, key, found) => write!(f, "get {tree}/{} -> {}", short(key), text_of(found.as_ref())),
            Step::Contains(tree, key, found) => write!(f, "contains {tree}/{} -> {found}", short(key)),
            Step::Range(tree, (from, to), taken) => {
                let (from, to) = (from.as_ref().map(|key| short(key)), to.as_ref().map(|key| short(key)));
                write!(f, "range {tree}/{from:?}..{to:?} ->")?;
                for Taken { is_back, row } in taken {
                    let row = row.as_ref().map(|(key, value)| format!("{}={}", short(key), text_of(Some(value))));
                    let end = if *is_back { " <" } else { " " };
                    write!(f, "{end}{}", row.unwrap_or_else(|| "end".to_owned()))?;
                }
                Ok(())
            }
            Step::Write(Change::Put(tree, key, value)) => {
                write!(f, "put {tree}/{}={}", short(key), text_of(Some(value)))
            }
            Step::Write(change) => write!(f, "{change:?}"),
            Step::Savepoint(name) => write!(f, "savepoint {name}"),
            Step::RollBack(name) => write!(f, "roll back to {name}"),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { name: (thread, number), kind, began, ended, snapshot, outcome, .. } = self;
        write!(f, "T{thread}.{number} ({kind:?}, from {began} to {ended}, snapshot {snapshot}, {outcome:?}):")?;
        for step in &self.steps {
            write!(f, "\n    {step}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
