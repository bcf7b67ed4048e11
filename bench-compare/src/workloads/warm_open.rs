//! The first two seconds after an open, with all files in the page cache: what a restarted program
//! sees. The first 100 ms are a figure of their own.

use super::{Context, Measure, measure::Phase};
use crate::{
    data::{Checksum, KeyOrder, Random, Values},
    engines::{Access, Reader},
};
use anyhow::Result;
use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_millis(100);
const WHOLE: Duration = Duration::from_secs(2);
const ORDER: KeyOrder = KeyOrder::Random;
const OPS_PER_LOOK: u64 = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gets,
    Seeks,
}

pub fn open_warm(context: &Context<'_>) -> Result<Vec<Measure>> {
    let (values, need) = (Values::small(), context.need(Access::Read));
    drop(context.open_loaded(need, ORDER, &values, context.n)?);
    let mut measures = Vec::new();
    for (kind, name) in [(Kind::Gets, "open_warm_gets"), (Kind::Seeks, "open_warm_seeks")] {
        let begun = Instant::now();
        let engine = context.open(need)?;
        let (opened, open_ms) = (Instant::now(), begun.elapsed().as_secs_f64() * 1e3);
        let mut run = Run { reader: engine.reader()?, random: Random::new(171), n: context.n, kind, ops: 0 };
        let mut seen = Checksum::default();
        run.until(opened + FIRST, &mut seen)?;
        let first = run.ops;
        let phase = Phase::begin(WHOLE);
        run.until(opened + WHOLE, &mut seen)?;
        let measure = phase.end(name, run.ops - first);
        let ops = run.ops;
        drop(run);
        context.note_memory();
        let mut measure = measure.with("open_ms", open_ms).with("first_rate", first as f64 / FIRST.as_secs_f64());
        if kind == Kind::Gets {
            let (mut expected, mut random) = (Checksum::default(), Random::new(171));
            (0..ops).for_each(|_| expected.expect(ORDER, &values, random.below(context.n), 0));
            measure = measure.checked(seen, expected);
        } else {
            measure.correct = seen.count == ops;
        }
        measures.push(measure);
    }
    Ok(measures)
}

struct Run<'a> {
    reader: Box<dyn Reader + 'a>,
    random: Random,
    n: u64,
    kind: Kind,
    ops: u64,
}

impl Run<'_> {
    fn until(&mut self, end: Instant, seen: &mut Checksum) -> Result<()> {
        while !self.ops.is_multiple_of(OPS_PER_LOOK) || Instant::now() < end {
            let key = ORDER.key(self.random.below(self.n));
            match self.kind {
                Kind::Gets => {
                    self.reader.get(&key, &mut |value| seen.add(&key, value))?;
                }
                // Each seek finds the row of its key.
                Kind::Seeks => self.reader.scan(&key, &mut |found, value| {
                    if found == key {
                        seen.add(found, value);
                    }
                    false
                })?,
            }
            self.ops += 1;
        }
        Ok(())
    }
}
