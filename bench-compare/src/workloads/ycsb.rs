//! YCSB's six core workloads, one thread, rows of 1 KiB: A to F as its paper has them (Cooper et al., SoCC 2010).

use super::{
    Context, Measure,
    context::{Batch, scan_checksum},
    measure::Phase,
};
use crate::{
    data::{Checksum, KeyOrder, Random, Values, Zipf, mix, stamp},
    engines::{Access, Engine, Reader},
};
use anyhow::Result;

/// YCSB's constant.
const THETA: f64 = 0.99;
/// The longest scan.
const SCAN_LEN_MAX: u64 = 100;
/// The keys.
const ORDER: KeyOrder = KeyOrder::Random;

/// Shares of operations in percent; the rest are reads.
#[derive(Clone, Copy, Default)]
struct Mix {
    updates: u64,
    inserts: u64,
    scans: u64,
    read_modify_writes: u64,
    /// The newest rows are the frequent ones.
    latest: bool,
}

pub fn a(context: &Context<'_>) -> Result<Vec<Measure>> {
    run(context, "ycsb_a", Mix { updates: 50, ..Mix::default() }, context.n / 4)
}

pub fn b(context: &Context<'_>) -> Result<Vec<Measure>> {
    run(context, "ycsb_b", Mix { updates: 5, ..Mix::default() }, context.n / 2)
}

pub fn c(context: &Context<'_>) -> Result<Vec<Measure>> {
    run(context, "ycsb_c", Mix::default(), context.n / 2)
}

pub fn d(context: &Context<'_>) -> Result<Vec<Measure>> {
    run(context, "ycsb_d", Mix { inserts: 5, latest: true, ..Mix::default() }, context.n / 2)
}

pub fn e(context: &Context<'_>) -> Result<Vec<Measure>> {
    run(context, "ycsb_e", Mix { inserts: 5, scans: 95, ..Mix::default() }, context.n / 20)
}

pub fn f(context: &Context<'_>) -> Result<Vec<Measure>> {
    run(context, "ycsb_f", Mix { read_modify_writes: 50, ..Mix::default() }, context.n / 4)
}

/// What there is now, and what was met.
struct State<'a> {
    engine: &'a dyn Engine,
    values: Values,
    /// The version of each row.
    versions: Vec<u32>,
    batch: Batch,
    /// Over what reads and scans showed.
    seen: Checksum,
    /// Reads that did not find the row in its present version.
    wrong: u64,
}

impl State<'_> {
    fn read(&mut self, reader: &mut dyn Reader, row: u64) -> Result<()> {
        let (key, wanted) = (ORDER.key(row), stamp(row, self.versions[row as usize]).to_le_bytes());
        let mut is_right = false;
        reader.refresh()?;
        reader.get(&key, &mut |value| {
            is_right = value.starts_with(&wanted);
            self.seen.add(&key, value);
        })?;
        self.wrong += u64::from(!is_right);
        Ok(())
    }

    fn put(&mut self, row: u64, version: u32) -> Result<()> {
        self.batch.fill(ORDER, &self.values, std::iter::once((row, Some(version))));
        self.batch.commit(self.engine)
    }

    fn update(&mut self, row: u64) -> Result<()> {
        self.versions[row as usize] += 1;
        self.put(row, self.versions[row as usize])
    }

    fn insert(&mut self) -> Result<()> {
        self.versions.push(0);
        self.put(self.versions.len() as u64 - 1, 0)
    }

    fn scan(&mut self, reader: &mut dyn Reader, row: u64, len: u64) -> Result<()> {
        let (key, mut left) = (ORDER.key(row), len);
        reader.refresh()?;
        let seen = &mut self.seen;
        reader.scan(&key, &mut |key, value| {
            seen.add(key, value);
            left -= 1;
            left > 0
        })
    }
}

fn run(context: &Context<'_>, name: &str, shares: Mix, ops: u64) -> Result<Vec<Measure>> {
    let (values, rows) = (Values::kilobyte(), context.n / 4);
    // Half writes is a mixed load with its budget; the others read mostly, and the budget holds the data.
    let writes = shares.updates + shares.read_modify_writes;
    let mut need = context.need(if writes >= 50 { Access::Write } else { Access::Read });
    need.data_bytes = values.user_bytes(rows + ops / 10);
    let engine = context.open(need)?;
    context.load(&*engine, ORDER, &values, rows)?;
    let mut reader = engine.reader()?;
    let versions = vec![0; rows as usize];
    let batch = Batch::new(1);
    let mut state = State { engine: &*engine, values, versions, batch, seen: Checksum::default(), wrong: 0 };
    let (zipf, mut random) = (Zipf::new(rows, THETA), Random::new(121));
    let mut phase = Phase::begin(context.limit);
    let mut done = 0;
    while done < ops && !phase.is_over(done) {
        let rank = zipf.next(&mut random);
        let row = if shares.latest { state.versions.len() as u64 - 1 - rank } else { mix(rank) % rows };
        let choice = random.below(100);
        let is_below = |share: u64| choice < share;
        if is_below(shares.updates) {
            state.update(row)?;
        } else if is_below(shares.inserts) {
            state.insert()?;
        } else if is_below(shares.inserts + shares.scans) {
            let len = 1 + random.below(SCAN_LEN_MAX);
            state.scan(&mut *reader, row, len)?;
        } else {
            state.read(&mut *reader, row)?;
            if is_below(shares.read_modify_writes) {
                state.update(row)?;
            }
        }
        phase.lap();
        done += 1;
    }
    let measure = phase.end(name, done);
    context.note_memory();
    finish(measure, &mut *reader, state)
}

/// Looks at all rows once more.
fn finish(measure: Measure, reader: &mut dyn Reader, state: State<'_>) -> Result<Vec<Measure>> {
    let mut expected = Checksum::default();
    for (row, version) in state.versions.iter().enumerate() {
        expected.expect(ORDER, &state.values, row as u64, *version);
    }
    reader.refresh()?;
    let left = scan_checksum(reader)?;
    // Scans are compared between engines alone.
    let mut measure = measure.checked(state.seen, state.seen);
    measure.correct = state.wrong == 0 && left == expected;
    Ok(vec![measure])
}
