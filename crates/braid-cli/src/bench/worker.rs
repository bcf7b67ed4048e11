//! One thread of a workload: runs its operations on a store.

use anyhow::Result;

use super::{
    distribution::Chooser,
    latencies::Kind,
    rows::{HEAD_BYTES, Keys, Values},
    store::{Bounds, Store},
    tally::Tally,
    ycsb::{Inserts, Mix, SCAN_ROWS_MAX},
};
use crate::random::Random;

#[derive(Clone, Copy, Debug)]
pub enum Action {
    Put,
    Delete,
    Get,
    /// Gets a missing key, one byte longer than the row's.
    GetMissing,
    MultiGet,
    Update,
    Seek {
        nexts: u64,
    },
    Prefix {
        bytes: usize,
    },
    Pass {
        reverse: bool,
    },
    Mixed(Mix),
}

impl Action {
    pub fn writes(self) -> bool {
        matches!(self, Action::Put | Action::Delete | Action::Update | Action::Mixed(_))
    }

    pub fn is_blind(self) -> bool {
        matches!(self, Action::Put | Action::Delete)
    }

    pub fn is_point_read(self) -> bool {
        matches!(self, Action::Get | Action::GetMissing | Action::MultiGet | Action::Update)
    }
}

#[derive(Debug)]
pub struct Task {
    pub action: Action,
    pub batch: u64,
    pub keys: Keys,
    pub values: Values,
    pub inserts: Inserts,
}

#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub kind: Kind,
    pub operations: u64,
}

pub struct Worker<'a, S> {
    task: &'a Task,
    store: S,
    chooser: Chooser,
    random: Random,
    turn: u64,
    key: Vec<u8>,
    value: Vec<u8>,
    many: (Vec<Vec<u8>>, Vec<u64>),
    is_scanning: bool,
    tally: Tally,
}

impl<'a, S: Store> Worker<'a, S> {
    pub fn new(task: &'a Task, store: S, chooser: Chooser, mut random: Random) -> Worker<'a, S> {
        let mut key = task.keys.buffer();
        if matches!(task.action, Action::GetMissing) {
            key.push(b'0');
        }
        let turn = random.next();
        let (value, many) = (Vec::new(), (Vec::new(), Vec::new()));
        Worker { task, store, chooser, random, turn, key, value, many, is_scanning: false, tally: Tally::default() }
    }

    pub fn into_tally(self) -> Tally {
        self.tally
    }

    #[inline]
    pub fn step(&mut self, most: u64) -> Result<Option<Step>> {
        let batch = self.task.batch.min(most);
        match self.task.action {
            Action::Put => self.write_batch(batch, Kind::Write),
            Action::Delete => self.write_batch(batch, Kind::Delete),
            Action::MultiGet => self.get_batch(batch),
            Action::Pass { reverse } => self.pass(reverse),
            Action::Mixed(mix) => self.mixed(&mix).map(Some),
            Action::Get | Action::GetMissing => self.with_row(Kind::Read, Self::get),
            Action::Update => self.with_row(Kind::ReadModifyWrite, Self::update),
            Action::Seek { nexts } => self.with_row(Kind::Scan, |worker, row| worker.scan(row, nexts + 1).map(|_| ())),
            Action::Prefix { bytes } => self.with_row(Kind::Scan, |worker, row| worker.scan_prefix(row, bytes)),
        }
    }

    #[inline]
    fn with_row(&mut self, kind: Kind, act: impl FnOnce(&mut Self, u64) -> Result<()>) -> Result<Option<Step>> {
        let Some(row) = self.chooser.next() else { return Ok(None) };
        act(self, row)?;
        Ok(Some(Step { kind, operations: 1 }))
    }

    fn write_batch(&mut self, batch: u64, kind: Kind) -> Result<Option<Step>> {
        let mut operations = 0;
        while operations < batch {
            let Some(row) = self.chooser.next() else { break };
            if kind == Kind::Delete {
                self.task.keys.write(row, &mut self.key);
                self.store.delete(&self.key);
                self.tally.bytes += self.key.len() as u64;
            } else {
                self.put(row);
            }
            operations += 1;
        }
        if operations == 0 {
            return Ok(None);
        }
        self.store.commit()?;
        Ok(Some(Step { kind, operations }))
    }

    #[inline]
    fn put(&mut self, row: u64) {
        self.turn = self.turn.wrapping_add(1);
        self.task.keys.write(row, &mut self.key);
        self.task.values.write(row, self.turn, &mut self.value);
        self.store.put(&self.key, &self.value);
        self.tally.bytes += (self.key.len() + self.value.len()) as u64;
    }

    fn put_alone(&mut self, row: u64) -> Result<()> {
        self.put(row);
        self.store.commit()
    }

    #[inline]
    fn get(&mut self, row: u64) -> Result<()> {
        self.task.keys.write(row, &mut self.key);
        let before = self.tally.found;
        let (tally, key) = (&mut self.tally, &self.key);
        self.store.get(key, |value| tally.saw_value(row, key.len(), value))?;
        self.tally.missed += u64::from(self.tally.found == before);
        Ok(())
    }

    fn update(&mut self, row: u64) -> Result<()> {
        self.get(row)?;
        self.put_alone(row)
    }

    fn get_batch(&mut self, batch: u64) -> Result<Option<Step>> {
        let (keys, rows) = &mut self.many;
        rows.clear();
        rows.extend(std::iter::from_fn(|| self.chooser.next()).take(batch as usize));
        keys.resize_with(rows.len(), || self.task.keys.buffer());
        for (key, row) in keys.iter_mut().zip(rows.iter()) {
            self.task.keys.write(*row, key);
        }
        let before = self.tally.found;
        let tally = &mut self.tally;
        self.store.multi_get(keys, |place, value| tally.saw_value(rows[place], keys[place].len(), value))?;
        let operations = rows.len() as u64;
        self.tally.missed += operations - (self.tally.found - before);
        Ok((operations > 0).then_some(Step { kind: Kind::Read, operations }))
    }

    fn scan(&mut self, row: u64, rows: u64) -> Result<u64> {
        self.task.keys.write(row, &mut self.key);
        let keys = self.task.keys;
        self.tally.begin_scan(keys.head(row));
        self.store.seek(&self.key)?;
        for read in 0..rows {
            let tally = &mut self.tally;
            if !self.store.next(|key, value| tally.saw_row(keys, false, key, value))? {
                return Ok(read);
            }
        }
        Ok(rows)
    }

    fn scan_prefix(&mut self, row: u64, bytes: usize) -> Result<()> {
        self.task.keys.write(row, &mut self.key);
        let (keys, tally) = (self.task.keys, &mut self.tally);
        tally.begin_scan(*prefix_range(keys.head(row), bytes).start());
        self.store.seek_prefix(&self.key[..bytes])?;
        while self.store.next(|key, value| tally.saw_row(keys, false, key, value))? {}
        Ok(())
    }

    fn pass(&mut self, reverse: bool) -> Result<Option<Step>> {
        if !self.is_scanning {
            self.is_scanning = true;
            let part = self.part();
            self.store.seek_part(&part, reverse)?;
        }
        let (keys, tally) = (self.task.keys, &mut self.tally);
        let there = self.store.next(|key, value| tally.saw_row(keys, reverse, key, value))?;
        Ok(there.then_some(Step { kind: Kind::Scan, operations: 1 }))
    }

    /// The chooser's range as keys; the last thread's is open.
    fn part(&mut self) -> Bounds {
        let range = self.chooser.range();
        let mut key_of = |row| {
            self.task.keys.write(row, &mut self.key);
            Some(self.key.clone())
        };
        Bounds {
            from: if range.start == 0 { None } else { key_of(range.start) },
            to: if range.end == u64::MAX { None } else { key_of(range.end) },
        }
    }

    fn mixed(&mut self, mix: &Mix) -> Result<Step> {
        let kind = mix.pick(self.random.below(100));
        if kind == Kind::Insert {
            let row = self.task.inserts.begin();
            self.put_alone(row)?;
            self.task.inserts.finish(row);
            return Ok(Step { kind, operations: 1 });
        }
        self.chooser.grow(self.task.inserts.done());
        let row = self.chooser.next().unwrap_or_default();
        match kind {
            Kind::Update => self.put_alone(row)?,
            Kind::ReadModifyWrite => self.update(row)?,
            Kind::Scan => {
                let wanted = 1 + self.random.below(SCAN_ROWS_MAX);
                self.tally.missed += u64::from(self.scan(row, wanted)? == 0);
            }
            _ => self.get(row)?,
        }
        Ok(Step { kind, operations: 1 })
    }
}

pub fn prefix_range(head: u64, bytes: usize) -> std::ops::RangeInclusive<u64> {
    let bits = 8 * (HEAD_BYTES - bytes) as u32;
    let rest = 1_u64.checked_shl(bits).map_or(u64::MAX, |end| end - 1);
    (head & !rest)..=(head | rest)
}
