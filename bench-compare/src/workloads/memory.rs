//! In memory: gets and prefix scans beside a writer at the rates of RocksDB's wiki page "RocksDB In
//! Memory Workload Performance". `memory_large` has keys of 10 and values of 800 bytes.

use super::{
    Context, Measure,
    mixed::{Both, Reads, time},
};
use crate::{
    data::{GROUP_LEN, KeyOrder, PREFIX_LEN, Values},
    engines::Access,
};
use anyhow::Result;

/// Puts per second.
const RATES: [(u64, &str); 2] = [(10_000, "10k"), (80_000, "80k")];
const READS: [(Reads, &str); 2] = [(Reads::Gets, "get"), (Reads::Prefixes, "prefix")];

pub fn small(context: &Context<'_>) -> Result<Vec<Measure>> {
    run(context, "memory_small", (KeyOrder::Grouped, Values::small()), context.n)
}

pub fn large(context: &Context<'_>) -> Result<Vec<Measure>> {
    run(context, "memory_large", (KeyOrder::GroupedShort, Values::new(800, 0)), context.n / 4)
}

fn run(context: &Context<'_>, name: &str, (order, values): (KeyOrder, Values), rows: u64) -> Result<Vec<Measure>> {
    let rows = rows - rows % GROUP_LEN;
    let mut need = context.need_of_rows(Access::Read, rows);
    need.data_bytes = values.user_bytes(rows);
    need.prefix_len = Some(PREFIX_LEN);
    need.in_memory = true;
    let engine = context.open(need)?;
    context.load(&*engine, order, &values, rows)?;
    let both = Both { engine: &*engine, order, values: &values, rows, time: time(context) };
    let mut measures = Vec::new();
    for (reads, read_name) in READS {
        for (rate, rate_name) in RATES {
            measures.extend(both.run(&format!("{name}_{read_name}_{rate_name}"), reads, Some(rate))?);
        }
    }
    context.note_memory();
    Ok(measures)
}
