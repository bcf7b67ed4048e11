//! YCSB's core workloads A to F (Cooper et al., SoCC 2010): one thread, rows of 1 KiB.

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

const THETA: f64 = 0.99;
const SCAN_LEN_MAX: u64 = 100;
const ORDER: KeyOrder = KeyOrder::Random;

/// Percentages; reads fill up to 100.
#[derive(Clone, Copy, Default)]
struct Mix {
    updates: u64,
    inserts: u64,
    scans: u64,
    read_modify_writes: u64,
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

/// As `e`, beside a cache that holds half of the data.
pub fn e_half(context: &Context<'_>) -> Result<Vec<Measure>> {
    let shares = Mix { inserts: 5, scans: 95, ..Mix::default() };
    run_with(context, "ycsb_e_half", shares, context.n / 20, Access::Half)
}

pub fn f(context: &Context<'_>) -> Result<Vec<Measure>> {
    run(context, "ycsb_f", Mix { read_modify_writes: 50, ..Mix::default() }, context.n / 4)
}

#[derive(Clone, Copy)]
enum Operation {
    Read { row: u32, version: u32 },
    Update { row: u32, version: u32 },
    Insert { row: u32 },
    Scan { row: u32, len: u32 },
    ReadModifyWrite { row: u32, version: u32 },
}

/// Chooses before the clock runs.
fn choose(shares: Mix, rows: u64, ops: u64) -> Vec<Operation> {
    let (zipf, mut random) = (Zipf::new(rows, THETA), Random::new(121));
    let mut versions = vec![0u32; rows as usize];
    let mut choose_one = || {
        let rank = zipf.next(&mut random);
        let row = if shares.latest { versions.len() as u64 - 1 - rank } else { mix(rank) % rows } as u32;
        let choice = random.below(100);
        let is_below = |share: u64| choice < share;
        let mut next_version = || {
            versions[row as usize] += 1;
            versions[row as usize]
        };
        if is_below(shares.updates) {
            Operation::Update { row, version: next_version() }
        } else if is_below(shares.inserts) {
            versions.push(0);
            Operation::Insert { row: versions.len() as u32 - 1 }
        } else if is_below(shares.inserts + shares.scans) {
            Operation::Scan { row, len: 1 + random.below(SCAN_LEN_MAX) as u32 }
        } else if is_below(shares.read_modify_writes) {
            Operation::ReadModifyWrite { row, version: next_version() }
        } else {
            Operation::Read { row, version: versions[row as usize] }
        }
    };
    (0..ops).map(|_| choose_one()).collect()
}

struct State<'a> {
    engine: &'a dyn Engine,
    values: Values,
    batch: Batch,
    seen: Checksum,
    wrong: u64,
}

impl State<'_> {
    fn read(&mut self, reader: &mut dyn Reader, row: u32, version: u32) -> Result<()> {
        let (key, wanted) = (ORDER.key(row.into()), stamp(row.into(), version).to_le_bytes());
        let mut is_right = false;
        reader.refresh()?;
        reader.get(&key, &mut |value| {
            is_right = value.starts_with(&wanted);
            self.seen.add(&key, value);
        })?;
        self.wrong += u64::from(!is_right);
        Ok(())
    }

    fn put(&mut self, row: u32, version: u32) -> Result<()> {
        self.batch.fill(ORDER, &self.values, std::iter::once((row.into(), Some(version))));
        self.batch.commit(self.engine)
    }

    fn scan(&mut self, reader: &mut dyn Reader, row: u32, len: u32) -> Result<()> {
        let (key, mut left) = (ORDER.key(row.into()), len);
        reader.refresh()?;
        let seen = &mut self.seen;
        reader.scan(&key, &mut |key, value| {
            seen.add(key, value);
            left -= 1;
            left > 0
        })
    }

    fn run(&mut self, reader: &mut dyn Reader, operation: Operation) -> Result<()> {
        match operation {
            Operation::Read { row, version } => self.read(reader, row, version),
            Operation::Update { row, version } => self.put(row, version),
            Operation::Insert { row } => self.put(row, 0),
            Operation::Scan { row, len } => self.scan(reader, row, len),
            Operation::ReadModifyWrite { row, version } => {
                self.read(reader, row, version - 1)?;
                self.put(row, version)
            }
        }
    }
}

fn run(context: &Context<'_>, name: &str, shares: Mix, ops: u64) -> Result<Vec<Measure>> {
    let is_mostly_read = shares.updates + shares.read_modify_writes < 50;
    run_with(context, name, shares, ops, if is_mostly_read { Access::Read } else { Access::Write })
}

fn run_with(context: &Context<'_>, name: &str, shares: Mix, ops: u64, access: Access) -> Result<Vec<Measure>> {
    let (values, rows) = (Values::kilobyte(), context.n / 4);
    let mut need = context.need(access);
    need.data_bytes = values.user_bytes(rows + ops / 10);
    let engine = context.open_loaded(need, ORDER, &values, rows)?;
    let mut reader = engine.reader()?;
    if access != Access::Write {
        scan_checksum(&mut *reader)?;
        reader.refresh()?;
    }
    let operations = choose(shares, rows, ops);
    let mut state = State { engine: &*engine, values, batch: Batch::new(1), seen: Checksum::default(), wrong: 0 };
    let mut phase = Phase::begin(context.limit);
    let mut done = 0;
    for &operation in &operations {
        if phase.is_over(done) {
            break;
        }
        phase.sampled(done, || state.run(&mut *reader, operation))?;
        done += 1;
    }
    let measure = phase.end(name, done);
    context.note_memory();
    finish(measure, &mut *reader, state, rows, &operations[..done as usize])
}

fn finish(
    measure: Measure,
    reader: &mut dyn Reader,
    state: State<'_>,
    rows: u64,
    done: &[Operation],
) -> Result<Vec<Measure>> {
    let mut versions = vec![0; rows as usize];
    for operation in done {
        match *operation {
            Operation::Update { row, version } | Operation::ReadModifyWrite { row, version } => {
                versions[row as usize] = version;
            }
            Operation::Insert { .. } => versions.push(0),
            Operation::Read { .. } | Operation::Scan { .. } => {}
        }
    }
    let mut expected = Checksum::default();
    for (row, version) in versions.into_iter().enumerate() {
        expected.expect(ORDER, &state.values, row as u64, version);
    }
    reader.refresh()?;
    let left = scan_checksum(reader)?;
    let mut measure = measure.checked(state.seen, state.seen);
    measure.correct = state.wrong == 0 && left == expected;
    Ok(vec![measure])
}
