//! Values of 1 MiB: put one per commit, then read in random order, touching each cache line.

use super::{Context, Measure, context::Costs, measure::Phase};
use crate::{
    data::{Checksum, KeyOrder, Random, Values},
    engines::{Access, Op},
    meter,
};
use anyhow::Result;

const LEN: usize = 1 << 20;
/// Distinct values, made once: creating one costs more than some engines' write.
const DISTINCT: u64 = 8;
const PASSES: u64 = 4;

pub fn large_values(context: &Context<'_>) -> Result<Vec<Measure>> {
    let (source, order) = (Values::new(LEN, 0), KeyOrder::Random);
    let rows = (context.n / 10_000).clamp(16, 400);
    let values: Vec<Vec<u8>> = (0..DISTINCT)
        .map(|number| {
            let mut value = Vec::new();
            source.fill(number, 0, &mut value);
            value
        })
        .collect();
    let user_bytes = rows * LEN as u64;
    let mut need = context.need(Access::Write);
    need.data_bytes = user_bytes;
    let engine = context.open(need)?;

    let written_before = meter::bytes_written();
    let mut phase = Phase::begin(context.limit);
    for row in 0..rows {
        engine.write(&[Op { key: &order.key(row), value: Some(&values[(row % DISTINCT) as usize]) }])?;
        phase.lap();
    }
    let puts = in_bytes(phase.end("large_put", rows));
    let puts = context.settled(&*engine, puts, Costs { written_before, user_bytes, live_bytes: user_bytes })?;

    let mut reader = engine.reader()?;
    let (mut seen, mut random) = (Checksum::default(), Random::new(111));
    let mut phase = Phase::begin(context.limit);
    for _ in 0..rows * PASSES {
        let key = order.key(random.below(rows));
        reader.get(&key, &mut |value| add(&mut seen, value))?;
        phase.lap();
    }
    let gets = in_bytes(phase.end("large_get", rows * PASSES));
    context.note_memory();
    let (mut expected, mut random) = (Checksum::default(), Random::new(111));
    for _ in 0..rows * PASSES {
        add(&mut expected, &values[(random.below(rows) % DISTINCT) as usize]);
    }
    Ok(vec![puts.checked(seen, expected), gets.checked(seen, expected)])
}

fn in_bytes(measure: Measure) -> Measure {
    let rate = measure.figures["rate"] * LEN as f64;
    measure.with("bytes_per_second", rate)
}

/// Makes zero-copy engines read all memory too.
fn add(seen: &mut Checksum, value: &[u8]) {
    seen.count += 1;
    for line in value.chunks(64) {
        let word = line.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        seen.sum = seen.sum.wrapping_add(word);
    }
}
