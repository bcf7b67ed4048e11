//! Reader and writer threads. Each owns every `threads`-th record and knows its version.

use super::{Failure, histogram::Histogram};
use braiddb::{Cursor, Tree};
use std::{
    hint,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

pub const KEY_LEN: usize = 16;
pub const VALUE_LEN: usize = 120;
pub const RECORD_LEN: u64 = (KEY_LEN + VALUE_LEN) as u64;
const SCAN_LEN: usize = 20;
/// Maximum busy wait for the next operation.
const SPIN_MAX: Duration = Duration::from_micros(120);

#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// Puts all records, one after the other.
    Load,
    Closed,
    /// Operations are due at this interval.
    Open {
        interval_ns: f64,
    },
}

impl Pace {
    pub fn open(rate: f64) -> Pace {
        Pace::Open { interval_ns: 1e9 / rate }
    }
}

#[derive(Debug, Default)]
pub struct Tally {
    /// Latency of writes from the due time.
    pub writes: Histogram,
    /// Latency of writes from the call.
    pub writes_called: Histogram,
    pub reads: Histogram,
    pub user_bytes: u64,
}

impl Tally {
    pub fn merge(&mut self, other: &Tally) {
        self.writes.merge(&other.writes);
        self.writes_called.merge(&other.writes_called);
        self.reads.merge(&other.reads);
        self.user_bytes += other.user_bytes;
    }

    pub fn clear(&mut self) {
        self.writes.clear();
        self.writes_called.clear();
        self.reads.clear();
        self.user_bytes = 0;
    }
}

#[derive(Debug)]
pub struct Shared {
    pub stop: AtomicBool,
    pub live: AtomicU64,
    tallies: Vec<Mutex<Tally>>,
}

impl Shared {
    pub fn new(threads: usize) -> Shared {
        let tallies = (0..threads).map(|_| Mutex::default()).collect();
        Shared { stop: AtomicBool::new(false), live: AtomicU64::new(0), tallies }
    }

    pub fn tally(&self, id: usize) -> MutexGuard<'_, Tally> {
        self.tallies[id].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A permutation of the 64-bit numbers, also used as a random generator.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn key(record: u64) -> [u8; KEY_LEN] {
    let mut key = [0; KEY_LEN];
    key[..8].copy_from_slice(&mix(record).to_be_bytes());
    key[8..].copy_from_slice(&record.to_be_bytes());
    key
}

fn value(record: u64, version: u32) -> [u8; VALUE_LEN] {
    let mut value = [b'x'; VALUE_LEN];
    value[..4].copy_from_slice(&version.to_le_bytes());
    let mut state = mix(record ^ u64::from(version) << 40);
    for chunk in value[4..60].chunks_exact_mut(8) {
        chunk.copy_from_slice(&state.to_le_bytes());
        state = mix(state);
    }
    value
}

/// Returns true if a row is some version of the record that its key names.
fn is_sound(row_key: &[u8], row_value: &[u8]) -> bool {
    let record = row_key.last_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    let version = row_value.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    record.zip(version).is_some_and(|(record, version)| row_key == key(record) && row_value == value(record, version))
}

pub struct Worker {
    id: usize,
    threads: usize,
    versions: Vec<u32>,
    last_version: u32,
    random: u64,
}

enum Done {
    Write { user_bytes: u64 },
    Read,
}

impl Worker {
    pub fn new(id: usize, threads: usize, records: u64) -> Worker {
        let own = records as usize / threads + usize::from(id < records as usize % threads);
        let versions = (0..own).map(|_| std::hint::black_box(0)).collect();
        Worker { id, threads, versions, last_version: 0, random: mix(id as u64) }
    }

    fn record(&self, index: usize) -> u64 {
        (index * self.threads + self.id) as u64
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random = mix(self.random);
        ((u128::from(self.random) * u128::from(bound)) >> 64) as u64
    }

    pub fn run(&mut self, tree: &Tree, pace: Pace, shared: &Shared) -> Result<(), Failure> {
        let start = Instant::now();
        // Created by the first scan: an idle cursor pins old versions and memtables.
        let mut cursor = None;
        let mut number = 0;
        while !shared.stop.load(Ordering::Relaxed) {
            let due = match pace {
                Pace::Load if number == self.versions.len() => break,
                Pace::Load | Pace::Closed => Instant::now(),
                Pace::Open { interval_ns } => {
                    let due = start + Duration::from_nanos((number as f64 * interval_ns) as u64);
                    if !wait_until(due, &shared.stop) {
                        break;
                    }
                    due
                }
            };
            let called = Instant::now();
            let done = match pace {
                Pace::Load => self.put(tree, number, shared)?,
                _ => self.operate(tree, &mut cursor, shared)?,
            };
            let end = Instant::now();
            let ns = |from: Instant| (end - from).as_nanos() as u64;
            let mut tally = shared.tally(self.id);
            match done {
                Done::Write { user_bytes } => {
                    tally.writes.record(ns(due));
                    tally.writes_called.record(ns(called));
                    tally.user_bytes += user_bytes;
                }
                Done::Read => tally.reads.record(ns(due)),
            }
            number += 1;
        }
        Ok(())
    }

    fn operate(&mut self, tree: &Tree, cursor: &mut Option<Cursor>, shared: &Shared) -> Result<Done, Failure> {
        let choice = self.below(100);
        let index = self.below(self.versions.len() as u64) as usize;
        match choice {
            0..5 if self.versions[index] != 0 => self.delete(tree, index, shared),
            0..50 => self.put(tree, index, shared),
            50..95 => self.get(tree, index),
            _ => self.scan(cursor.get_or_insert_with(|| tree.cursor())),
        }
    }

    fn put(&mut self, tree: &Tree, index: usize, shared: &Shared) -> Result<Done, Failure> {
        let record = self.record(index);
        self.last_version += 1;
        tree.put(key(record), value(record, self.last_version))?;
        if self.versions[index] == 0 {
            shared.live.fetch_add(1, Ordering::Relaxed);
        }
        self.versions[index] = self.last_version;
        Ok(Done::Write { user_bytes: RECORD_LEN })
    }

    fn delete(&mut self, tree: &Tree, index: usize, shared: &Shared) -> Result<Done, Failure> {
        tree.delete(key(self.record(index)))?;
        shared.live.fetch_sub(1, Ordering::Relaxed);
        self.versions[index] = 0;
        Ok(Done::Write { user_bytes: KEY_LEN as u64 })
    }

    fn get(&self, tree: &Tree, index: usize) -> Result<Done, Failure> {
        self.check(tree, index)?;
        Ok(Done::Read)
    }

    fn scan(&mut self, cursor: &mut Cursor) -> Result<Done, Failure> {
        let from = key(self.below(u64::MAX));
        cursor.refresh();
        let mut there = cursor.seek(from)?;
        let mut last = from.to_vec();
        for _ in 0..SCAN_LEN {
            if !there {
                break;
            }
            let (row_key, row_value) = cursor.row()?;
            if row_key < &last[..] || !is_sound(row_key, row_value) {
                return Err(format!("a scan showed a wrong row: {row_key:?} {row_value:?}").into());
            }
            last.clear();
            last.extend_from_slice(row_key);
            there = cursor.next()?;
        }
        Ok(Done::Read)
    }

    fn check(&self, tree: &Tree, index: usize) -> Result<(), Failure> {
        let (record, version) = (self.record(index), self.versions[index]);
        let expected = (version != 0).then(|| value(record, version));
        let found = tree.get(key(record))?;
        if found.as_deref() != expected.as_ref().map(|value| &value[..]) {
            return Err(format!("record {record} is not in version {version}: {found:?}").into());
        }
        Ok(())
    }
}

fn wait_until(due: Instant, stop: &AtomicBool) -> bool {
    loop {
        let ahead = due.saturating_duration_since(Instant::now());
        if ahead.is_zero() {
            return true;
        }
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        if ahead > SPIN_MAX { thread::sleep(ahead - SPIN_MAX) } else { hint::spin_loop() }
    }
}

/// Checks every record by a get, and the count by a scan; returns the count.
pub fn check_all(tree: &Tree, workers: &[Worker]) -> Result<u64, Failure> {
    let mut live = 0;
    for worker in workers {
        for index in 0..worker.versions.len() {
            worker.check(tree, index)?;
            live += u64::from(worker.versions[index] != 0);
        }
    }
    let rows = tree.iter().try_fold(0, |count, row| row.map(|_| count + 1))?;
    if rows != live {
        return Err(format!("a scan shows {rows} rows, but {live} are there").into());
    }
    Ok(live)
}
