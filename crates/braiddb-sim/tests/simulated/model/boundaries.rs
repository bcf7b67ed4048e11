//! The state after each commit. A crash or an open must restore one of these states.

use super::{
    outcome::{Outcome, Said},
    steps::Write,
    world::World,
};
use crate::common::writer::{Way, Writer};
use braiddb::{Db, Durability, Error};
use braiddb_sim::{
    CrashPolicy, Random,
    model::{Bytes, MultiModel, TreeNumber, short},
};
use std::{ops::Bound, sync::Arc};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Made by the open of the database; parts of it are internal.
    Open,
    Log,
    /// A load: the log records only that it happened.
    Load,
    /// Committed without WAL.
    Unlogged,
    /// Logged, but a crash may have removed it; the contents are equal either way.
    Doubtful,
}

/// The state after a commit; the model keeps the contents of plain trees.
#[derive(Clone, Debug)]
pub struct Boundary {
    pub sequence: u64,
    pub source: Source,
    /// The model's numbers of the existing trees.
    pub numbers: [Option<TreeNumber>; 2],
    pub multi: Option<Arc<MultiModel>>,
    pub cursor: Option<u64>,
}

#[derive(PartialEq, Eq)]
pub struct Found {
    trees: [Option<Vec<(Bytes, Bytes)>>; 2],
    pairs: Option<Vec<(Bytes, Bytes)>>,
    cursor: Option<u64>,
}

pub fn read_all(db: &Db) -> Outcome<Found> {
    let cursor = db.application_cursor().said("the application cursor")?;
    let cursor = cursor.map(|cursor| u64::from_le_bytes(cursor.try_into().expect("a cursor of eight bytes")));
    let mut found = Found { trees: [None, None], pairs: None, cursor };
    for (name, rows) in ["left", "right"].iter().zip(&mut found.trees) {
        let tree = match db.open_tree(name) {
            Err(e) if e.is_not_found() => continue,
            tree => tree.said("open_tree")?,
        };
        let read: Result<Vec<_>, Error> = tree.iter().map(|row| row.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect();
        *rows = Some(read.said("reading all")?);
    }
    found.pairs = match db.open_multi_tree("multi") {
        Err(e) if e.is_not_found() => None,
        tree => {
            let pairs = tree.said("open_multi_tree")?;
            let read: Result<Vec<_>, Error> =
                pairs.iter().map(|row| row.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect();
            Some(read.said("reading all pairs")?)
        }
    };
    Ok(found)
}

fn difference(expected: &Found, found: &Found) -> String {
    if expected.cursor != found.cursor {
        return format!("the cursor is {:?} instead of {:?}", found.cursor, expected.cursor);
    }
    let of = |found: &Found| [found.trees[0].clone(), found.trees[1].clone(), found.pairs.clone()];
    for (name, (expected, found)) in ["left", "right", "multi"].iter().zip(of(expected).into_iter().zip(of(found))) {
        let (Some(expected), Some(found)) = (&expected, &found) else {
            if expected.is_some() != found.is_some() {
                return format!("{name} exists: {}", found.is_some());
            }
            continue;
        };
        let mut pairs = expected.iter().zip(found);
        let row = |row: &(Bytes, Bytes)| format!("{}: {}", short(&row.0), short(&row.1));
        if let Some((expected, found)) = pairs.find(|(expected, found)| expected != found) {
            return format!("{name} has {} instead of {}", row(found), row(expected));
        }
        if expected.len() != found.len() {
            return format!("{name} has {} rows instead of {}", found.len(), expected.len());
        }
    }
    "nothing".to_owned()
}

impl World<'_> {
    pub fn last(&self) -> u64 {
        self.boundaries.last().map_or(0, |boundary| boundary.sequence)
    }

    pub fn note(&mut self, source: Source) {
        let there = |at: usize| (self.trees.len() > at || self.multi.is_some()).then_some(self.numbers[at]);
        let before = self.boundaries.last();
        let (numbers, multi) = match before {
            Some(before) if self.multi.is_none() => {
                let known = |at: usize| before.numbers[at].or(there(at));
                ([known(0), known(1)], before.multi.clone())
            }
            _ => ([there(0), there(1)], self.multi.as_ref().map(|_| Arc::clone(&self.multi_model))),
        };
        self.push_boundary(source, numbers, multi);
    }

    pub fn note_without(&mut self, tree: usize) {
        let mut numbers = self.numbers.map(Some);
        numbers[tree] = None;
        self.push_boundary(Source::Log, numbers, Some(Arc::clone(&self.multi_model)));
    }

    fn push_boundary(&mut self, source: Source, numbers: [Option<TreeNumber>; 2], multi: Option<Arc<MultiModel>>) {
        let sequence = self.db().snapshot().sequence();
        if self.boundaries.last().is_none_or(|last| last.sequence < sequence) {
            self.boundaries.push(Boundary { sequence, source, numbers, multi, cursor: self.cursor });
        }
    }

    pub fn expected(&self, boundary: &Boundary) -> Found {
        let everything = (Bound::Unbounded, Bound::Unbounded);
        let rows = |number: TreeNumber| self.model.range(number, &everything, boundary.sequence);
        Found {
            trees: boundary.numbers.map(|number| number.map(rows)),
            pairs: boundary.multi.as_ref().map(|multi| multi.pairs()),
            cursor: boundary.cursor,
        }
    }

    /// The last commit at or before `sequence`.
    pub fn boundary(&self, sequence: u64) -> Option<&Boundary> {
        self.boundaries[..self.boundaries.partition_point(|boundary| boundary.sequence <= sequence)].last()
    }

    pub fn check_at(&self, db: &Db, sequence: u64) -> Outcome {
        let boundary = self.boundary(sequence).ok_or_else(|| format!("there is no commit up to {sequence}"))?;
        let (expected, found) = (self.expected(boundary), read_all(db)?);
        ensure!(found == expected, "after commit {sequence}: {}", difference(&expected, &found));
        Ok(())
    }

    /// Finds the commit at or after `least` whose state a database shows. Returns the number of
    /// later commits.
    pub fn find_boundary(&self, db: &Db, least: u64) -> Outcome<usize> {
        let found = read_all(db)?;
        let is_it = |boundary: &&Boundary| self.expected(boundary) == found;
        let later = self.boundaries.iter().rev();
        let candidates = later.take_while(|boundary| boundary.sequence > least).count() + 1;
        match self.boundaries.iter().rev().take(candidates).position(|boundary| is_it(&boundary)) {
            Some(at) => Ok(at),
            None => {
                let last = self.boundaries.last().expect("the first boundary always exists");
                let difference = difference(&self.expected(last), &found);
                let earlier = self.boundaries.iter().rev().find(is_it).map(|boundary| boundary.sequence);
                Err(format!(
                    "it shows none of the last {candidates} states. Difference to the last, commit {}: {difference}. It matches the state of {earlier:?}",
                    last.sequence
                ))
            }
        }
    }

    pub fn crash(&mut self, policy: u64) -> Outcome {
        self.note_coverage()?;
        let random = &mut Random::new(policy);
        let policies = CrashPolicy::some(6, random.next_u64());
        let policy = policies[random.index(policies.len())];
        let image = self.disk.crash_image(self.disk.operations(), policy);
        self.released();
        (self.db, self.following) = (None, None);
        self.crashes += 1;
        self.seen.crashes.add(1);
        self.disk = image;
        self.open_after(true).map_err(|text| format!("{text}, after a crash, {policy:?}"))?;
        self.open_trees()
    }

    pub fn open_after(&mut self, crash: bool) -> Outcome {
        let unlogged = self.boundaries.iter().rev().take_while(|b| b.source == Source::Unlogged).count();
        if crash || self.boundaries.iter().any(|boundary| boundary.source == Source::Unlogged) {
            self.jumps.push(self.durable.min(self.last()));
        }
        if !crash && (unlogged == 0 || self.durable == self.last()) {
            return self.open();
        }
        let before = self.boundaries.len();
        self.open()?;
        self.boundaries.truncate(before);
        let least = if crash { self.durable } else { self.durable.max(self.last_kept()) };
        let visible = self.db().snapshot().sequence().max(least);
        self.boundaries.truncate(self.boundaries.partition_point(|boundary| boundary.sequence <= visible));
        let lost = self.find_boundary(self.db(), least)?;
        self.boundaries.truncate(self.boundaries.len() - lost);
        let lost = before - self.boundaries.len();
        if crash {
            self.doubt_alike(least)?;
        }
        self.seen.commits_lost.add(lost as u64);
        let there = self.boundaries.last().expect("one was found").clone();
        self.model.take_back_to(there.sequence);
        self.cursor = there.cursor;
        self.multi_model = there.multi.clone().unwrap_or_default();
        for (at, number) in there.numbers.into_iter().enumerate() {
            self.numbers[at] = number.unwrap_or_else(|| {
                self.next_number += 1;
                self.next_number - 1
            });
        }
        self.durable = there.sequence;
        self.watchings.iter_mut().for_each(|watching| watching.note_loss(there.sequence));
        self.exported.retain(|exported| there.numbers.contains(&Some(exported.number)));
        self.note(Source::Open);
        Ok(())
    }

    /// Among equal states the crash may have kept only the first; later logged commits are
    /// doubtful. The last sequence number does not decide: it skips used numbers of lost commits.
    fn doubt_alike(&mut self, least: u64) -> Outcome {
        let last = self.boundaries.last().expect("one was found");
        let found = self.expected(last);
        let candidates = self.boundaries.partition_point(|boundary| boundary.sequence <= least).max(1) - 1;
        let first = self.boundaries[candidates..].iter().position(|boundary| self.expected(boundary) == found);
        let first = candidates + first.ok_or("the last is like itself")?;
        let doubtful = self.boundaries[first + 1..].iter_mut().filter(|boundary| boundary.source == Source::Log);
        doubtful.for_each(|boundary| boundary.source = Source::Doubtful);
        Ok(())
    }

    pub fn last_logged(&self) -> u64 {
        self.last_of(&[Source::Log])
    }

    /// The last commit in files, synced or not.
    pub fn last_kept(&self) -> u64 {
        self.last_of(&[Source::Log, Source::Load])
    }

    fn last_of(&self, sources: &[Source]) -> u64 {
        let last = self.boundaries.iter().rev().find(|boundary| sources.contains(&boundary.source));
        last.map_or(0, |boundary| boundary.sequence)
    }

    pub fn numbered(&mut self, writes: &[Write], durability: u8) -> Outcome {
        let (durability, source) = match durability {
            0 => (Durability::Sync, Source::Log),
            1 => (Durability::Buffered, Source::Log),
            _ => (Durability::None, Source::Unlogged),
        };
        self.cursor = Some(self.tag);
        let mut batch = self.db().batch();
        batch.set_application_cursor(self.tag.to_le_bytes());
        let mut writer = Writer::Batch(self.db().clone(), batch);
        let changes = self.add_all(&mut writer, writes, Way::Batch)?;
        self.commit_by(writer.commit(durability), &changes, source)?;
        if durability == Durability::Sync {
            self.durable = self.last();
        }
        Ok(())
    }

    pub fn flush_to(&mut self, back: usize) -> Outcome {
        let mut cursors: Vec<(u64, u64)> = Vec::new();
        for boundary in self.boundaries.iter().rev() {
            match (boundary.cursor, cursors.last_mut()) {
                (Some(cursor), Some(last)) if last.0 == cursor => last.1 = boundary.sequence,
                (Some(cursor), _) => cursors.push((cursor, boundary.sequence)),
                _ => {}
            }
        }
        let unknown = self.db().flush_to(u64::MAX.to_le_bytes());
        ensure!(unknown.is_err_and(|e| e.is_not_found()), "a cursor that was never set");
        let Some((cursor, sequence)) = cursors.get(back.min(cursors.len().max(1) - 1)) else { return Ok(()) };
        match self.db().flush_to(cursor.to_le_bytes()) {
            Err(e) if e.is_not_found() && (back > 0) => Ok(()),
            done => {
                done.said("flush_to")?;
                self.durable = self.durable.max(*sequence);
                Ok(())
            }
        }
    }
}
