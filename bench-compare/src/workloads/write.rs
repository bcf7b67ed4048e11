//! Fills, overwrites, deletes, sorted loads.

use super::{
    Context, Measure,
    context::{Batch, Costs, scan_checksum},
    measure::Phase,
};
use crate::{
    data::{Checksum, Key, KeyOrder, Random, Values, mix},
    engines::{Access, Engine, Rows},
    meter,
};
use anyhow::Result;

const BATCH_LEN: u64 = 100;

pub fn fillseq_b100(context: &Context<'_>) -> Result<Vec<Measure>> {
    fill(context, "fillseq_b100", KeyOrder::Ascending, BATCH_LEN)
}

pub fn fillrandom_b100(context: &Context<'_>) -> Result<Vec<Measure>> {
    fill(context, "fillrandom_b100", KeyOrder::Random, BATCH_LEN)
}

pub fn fillrandom_b1(context: &Context<'_>) -> Result<Vec<Measure>> {
    fill(context, "fillrandom_b1", KeyOrder::Random, 1)
}

fn write_all(
    engine: &dyn Engine,
    (order, values, batch_len): (KeyOrder, &Values, u64),
    rows: &mut dyn Iterator<Item = (u64, Option<u32>)>,
    phase: &mut Phase,
) -> Result<u64> {
    let mut batch = Batch::new(batch_len as usize);
    let (mut done, mut commits) = (0, 0);
    let mut filled = u64::MAX;
    while filled >= batch_len && !phase.is_over(commits) {
        filled = 0;
        batch.fill(order, values, (&mut *rows).take(batch_len as usize).inspect(|_| filled += 1));
        match order {
            _ if filled == 0 => break,
            KeyOrder::Ascending => batch.append(engine)?,
            _ => batch.commit(engine)?,
        }
        phase.lap();
        done += filled;
        commits += 1;
    }
    Ok(done)
}

fn fill(context: &Context<'_>, name: &str, order: KeyOrder, batch_len: u64) -> Result<Vec<Measure>> {
    let values = Values::small();
    let engine = context.open(context.need(Access::Write))?;
    let written_before = meter::bytes_written();
    let mut phase = Phase::begin(context.limit);
    let mut rows = (0..context.n).map(|row| (row, Some(0)));
    let done = write_all(&*engine, (order, &values, batch_len), &mut rows, &mut phase)?;
    let measure = phase.end(name, done);
    let user_bytes = values.user_bytes(done);
    let measure = context.settled(&*engine, measure, Costs { written_before, user_bytes, live_bytes: user_bytes })?;
    let mut expected = Checksum::default();
    (0..done).for_each(|row| expected.expect(order, &values, row, 0));
    Ok(vec![measure.checked(scan_checksum(&mut *engine.reader()?)?, expected)])
}

pub fn overwrite(context: &Context<'_>) -> Result<Vec<Measure>> {
    overwrite_rows(context, "overwrite", context.n)
}

/// Stores have more levels, or partitions, than at N.
pub fn overwrite_sixteen(context: &Context<'_>) -> Result<Vec<Measure>> {
    overwrite_rows(context, "overwrite_16n", 16 * context.n)
}

fn overwrite_rows(context: &Context<'_>, name: &str, n: u64) -> Result<Vec<Measure>> {
    let (values, order) = (Values::small(), KeyOrder::Random);
    let engine = context.open_loaded(context.need_of_rows(Access::Write, n), order, &values, n)?;
    let written_before = meter::bytes_written();
    let choices = || {
        let mut random = Random::new(11);
        (1..=(n / 2) as u32).map(move |version| (random.below(n), Some(version)))
    };
    let mut phase = Phase::begin(context.limit * (n / context.n) as u32);
    let done = write_all(&*engine, (order, &values, BATCH_LEN), &mut choices(), &mut phase)?;
    let measure = phase.end(name, done);
    let costs = Costs { written_before, user_bytes: values.user_bytes(done), live_bytes: values.user_bytes(n) };
    let measure = context.settled(&*engine, measure, costs)?;
    let mut versions = vec![0; n as usize];
    for (row, version) in choices().take(done as usize) {
        versions[row as usize] = version.unwrap_or(0);
    }
    let mut expected = Checksum::default();
    for (row, version) in versions.iter().enumerate() {
        expected.expect(order, &values, row as u64, *version);
    }
    Ok(vec![measure.checked(scan_checksum(&mut *engine.reader()?)?, expected)])
}

pub fn deleterandom(context: &Context<'_>) -> Result<Vec<Measure>> {
    let (values, order, n) = (Values::small(), KeyOrder::Random, context.n);
    let engine = context.open_loaded(context.need(Access::Write), order, &values, n)?;
    let is_deleted = |row: &u64| mix(row ^ 0xde1e7e) & 1 == 1;
    let mut phase = Phase::begin(context.limit);
    let mut deletes = (0..n).filter(is_deleted).map(|row| (row, None));
    let done = write_all(&*engine, (order, &values, BATCH_LEN), &mut deletes, &mut phase)?;
    let deletes = phase.end("deleterandom", done);

    let phase = Phase::begin(context.limit);
    let seen = scan_checksum(&mut *engine.reader()?)?;
    let scan = phase.end("deleterandom_scan", seen.count);
    context.note_memory();
    let mut expected = Checksum::default();
    let mut left = done;
    for row in 0..n {
        if is_deleted(&row) && left > 0 {
            left -= 1;
        } else {
            expected.expect(order, &values, row, 0);
        }
    }
    Ok(vec![deletes.checked(seen, expected), scan.checked(seen, expected)])
}

struct Ascending<'a> {
    values: &'a Values,
    row: u64,
    end: u64,
    key: Key,
    value: Vec<u8>,
}

impl Rows for Ascending<'_> {
    fn next(&mut self) -> Option<(&[u8], &[u8])> {
        if self.row == self.end {
            return None;
        }
        self.key = KeyOrder::Ascending.key(self.row);
        self.values.fill(self.row, 0, &mut self.value);
        self.row += 1;
        Some((&self.key, &self.value))
    }
}

pub fn bulk_sorted(context: &Context<'_>) -> Result<Vec<Measure>> {
    let (values, n) = (Values::small(), context.n);
    let engine = context.open(context.need(Access::Write))?;
    let written_before = meter::bytes_written();
    let phase = Phase::begin(context.limit);
    let mut rows = Ascending { values: &values, row: 0, end: n, key: Key::default(), value: Vec::new() };
    engine.load_sorted(&mut rows)?;
    engine.flush()?;
    let measure = phase.end("bulk_sorted", n);
    let user_bytes = values.user_bytes(n);
    let measure = context.settled(&*engine, measure, Costs { written_before, user_bytes, live_bytes: user_bytes })?;
    let mut expected = Checksum::default();
    (0..n).for_each(|row| expected.expect(KeyOrder::Ascending, &values, row, 0));
    Ok(vec![measure.checked(scan_checksum(&mut *engine.reader()?)?, expected)])
}

/// Disk space of documents when idle.
pub fn kilobyte_documents(context: &Context<'_>) -> Result<Vec<Measure>> {
    let (values, order, rows) = (Values::new(1050, 100), KeyOrder::Random, context.n / 2);
    let mut need = context.need(Access::Write);
    need.data_bytes = values.user_bytes(rows);
    let engine = context.open(need)?;
    let written_before = meter::bytes_written();
    let mut phase = Phase::begin(context.limit);
    let mut puts = (0..rows).map(|row| (row, Some(0)));
    let done = write_all(&*engine, (order, &values, BATCH_LEN), &mut puts, &mut phase)?;
    let measure = phase.end("db1k", done);
    let user_bytes = values.user_bytes(done);
    let measure = context.settled(&*engine, measure, Costs { written_before, user_bytes, live_bytes: user_bytes })?;
    let mut expected = Checksum::default();
    (0..done).for_each(|row| expected.expect(order, &values, row, 0));
    Ok(vec![measure.checked(scan_checksum(&mut *engine.reader()?)?, expected)])
}
