//! Queries both engines in turns. Adds have wall clock time until the last commit, and processor
//! time of all threads until idle; reads have the processor time of their thread.

use crate::{
    arguments::MultiOptions,
    data::{Checksum, Key, KeyOrder, Random, mix},
    engines::{Access, Braid, BraidMulti, Engine, LmdbMulti, MultiEngine, MultiReader, Op, Setup},
    meter, report,
};
use anyhow::{Result, ensure};
use std::{fs, path::Path, time::Instant};

const BATCH_LEN: usize = 1000;
/// Engines in the order of all pairs of figures.
const NAMES: [&str; 2] = ["BraidDB", "LMDB"];

struct Shape {
    keys: u64,
    values: u64,
}

impl Shape {
    fn pair(&self, number: u64) -> (Key, Key) {
        let mut value = KeyOrder::Random.key(mix(number));
        value[0] |= 0x80;
        (KeyOrder::Random.key(number / self.values), value)
    }

    fn pairs(&self) -> u64 {
        self.keys * self.values
    }

    fn shuffled(&self, seed: u64) -> Vec<(Key, Key)> {
        let mut numbers: Vec<u64> = (0..self.pairs()).collect();
        let mut random = Random::new(seed);
        for at in (1..numbers.len()).rev() {
            numbers.swap(at, random.below(at as u64 + 1) as usize);
        }
        numbers.into_iter().map(|number| self.pair(number)).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Question {
    Contains,
    Count,
    CountByCursor,
    IterateAll,
    IterateKey,
    SeekValue,
}

impl Question {
    const ALL: [Question; 6] = [
        Question::Contains,
        Question::Count,
        Question::CountByCursor,
        Question::IterateAll,
        Question::IterateKey,
        Question::SeekValue,
    ];

    fn name(self) -> &'static str {
        match self {
            Question::Contains => "contains, half of them present",
            Question::Count => "count, latest state",
            Question::CountByCursor => "count, by a kept cursor",
            Question::IterateAll => "iterate all, per pair",
            Question::IterateKey => "iterate a key's values, per value",
            Question::SeekValue => "seek a value of a key",
        }
    }

    /// Returns the number of operations.
    fn ask(self, reader: &mut dyn MultiReader, shape: &Shape, operations: u64, seen: &mut Checksum) -> Result<u64> {
        let mut random = Random::new(7 + self as u64);
        let mut asked = 0;
        match self {
            Question::Contains => {
                for _ in 0..operations {
                    let (key, mut value) = shape.pair(random.below(shape.pairs()));
                    value[0] &= if random.below(2) == 0 { 0xff } else { 0x7f };
                    if reader.contains(&key, &value)? {
                        seen.add(&key, &value);
                    }
                }
                asked = operations;
            }
            Question::Count => {
                for _ in 0..operations {
                    let (key, _) = shape.pair(random.below(shape.pairs()));
                    seen.add(&key, &reader.count(&key)?.to_le_bytes());
                }
                asked = operations;
            }
            Question::CountByCursor => {
                for _ in 0..operations {
                    let (key, _) = shape.pair(random.below(shape.pairs()));
                    seen.add(&key, &reader.count_by_cursor(&key)?.to_le_bytes());
                }
                asked = operations;
            }
            Question::IterateAll => reader.all(&mut |key, value| {
                asked += 1;
                seen.add(key, value);
            })?,
            Question::IterateKey => {
                while asked < operations.max(shape.values) {
                    let (key, _) = shape.pair(random.below(shape.pairs()));
                    reader.values(&key, &mut |key, value| {
                        asked += 1;
                        seen.add(key, value);
                    })?;
                }
            }
            Question::SeekValue => {
                for _ in 0..operations {
                    let (key, mut value) = shape.pair(random.below(shape.pairs()));
                    value[15] ^= 1;
                    reader.seek_value(&key, &value, &mut |key, value| seen.add(key, value))?;
                }
                asked = operations;
            }
        }
        Ok(asked)
    }
}

pub fn run(options: &MultiOptions) -> Result<()> {
    fs::create_dir_all(&options.folder)?;
    let folder = fs::canonicalize(&options.folder)?.join("multi");
    println!("{:>9} x {:<9} {:34} {:>10} {:>10} {:>7}", "keys", "values", "", NAMES[0], NAMES[1], "ratio");
    for values in options.values.iter().map(|&values| values.min(options.n)) {
        let shape = Shape { keys: (options.n / values).max(1), values };
        let _ = fs::remove_dir_all(&folder);
        measure(options, &shape, &folder)?;
    }
    fs::remove_dir_all(&folder)?;
    Ok(())
}

fn print(shape: &Shape, what: &str, times: [Vec<f64>; 2]) {
    let [braiddb, lmdb] = times.map(report::median);
    println!("{:>9} x {:<9} {what:34} {braiddb:>10.1} {lmdb:>10.1} {:>7.2}", shape.keys, shape.values, braiddb / lmdb);
}

fn open(subject: usize, folder: &Path, shape: &Shape) -> Result<Box<dyn MultiEngine>> {
    fs::create_dir_all(folder)?;
    let data_bytes = shape.pairs() * 32;
    let setup = Setup {
        folder,
        budget: 256 << 20,
        data_bytes,
        access: Access::Read,
        durable: false,
        prefix_len: None,
        in_memory: false,
    };
    Ok(if subject == 0 { Box::new(BraidMulti::open(setup)?) } else { Box::new(LmdbMulti::open(setup)?) })
}

fn put_plainly(pairs: &[(Key, Key)], folder: &Path) -> Result<[f64; 3]> {
    fs::create_dir_all(folder)?;
    let setup = Setup {
        folder,
        budget: 256 << 20,
        data_bytes: pairs.len() as u64 * 32,
        access: Access::Read,
        durable: false,
        prefix_len: None,
        in_memory: false,
    };
    let braid = Braid::open(setup)?;
    let (start, cpu_start) = (Instant::now(), meter::cpu_time());
    for batch in pairs.chunks(BATCH_LEN) {
        let ops: Vec<_> = batch.iter().map(|(key, value)| Op { key, value: Some(value) }).collect();
        braid.write(&ops)?;
    }
    let wall = start.elapsed();
    braid.flush()?;
    meter::wait_for_rest();
    let figures = [wall.as_secs_f64() * 1e9, (meter::cpu_time() - cpu_start).as_secs_f64() * 1e9];
    let bytes = meter::folder_bytes(folder) as f64;
    drop(braid);
    fs::remove_dir_all(folder)?;
    Ok([figures[0], figures[1], bytes].map(|figure| figure / pairs.len() as f64))
}

fn measure(options: &MultiOptions, shape: &Shape, folder: &Path) -> Result<()> {
    let mut loaded: [Option<Box<dyn MultiEngine>>; 2] = [None, None];
    let mut plain = [vec![], vec![], vec![]];
    let (mut wall, mut cpu, mut single) = ([vec![], vec![]], [vec![], vec![]], [vec![], vec![]]);
    let mut bytes = [vec![], vec![]];
    for round in 0..options.load_rounds as usize {
        let pairs = shape.shuffled(round as u64);
        if shape.values == 1 {
            let figures = put_plainly(&pairs, &folder.join("plain"))?;
            plain.iter_mut().zip(figures).for_each(|(all, figure)| all.push(figure));
        }
        for turn in 0..2 {
            let subject = (round + turn) % 2;
            loaded[subject] = None;
            let folder = folder.join(NAMES[subject]);
            let _ = fs::remove_dir_all(&folder);
            let engine = open(subject, &folder, shape)?;
            let (start, cpu_start) = (Instant::now(), meter::cpu_time());
            for batch in pairs.chunks(BATCH_LEN) {
                engine.add(batch)?;
            }
            wall[subject].push(start.elapsed().as_secs_f64() * 1e9 / pairs.len() as f64);
            engine.settle()?;
            cpu[subject].push((meter::cpu_time() - cpu_start).as_secs_f64() * 1e9 / pairs.len() as f64);
            bytes[subject].push(meter::folder_bytes(&folder) as f64 / pairs.len() as f64);
            // Existing pairs, one per commit: no change.
            let again = &pairs[..pairs.len().min(options.operations as usize / 2)];
            let start = Instant::now();
            for pair in again {
                engine.add(std::slice::from_ref(pair))?;
            }
            single[subject].push(start.elapsed().as_secs_f64() * 1e9 / again.len() as f64);
            engine.settle()?;
            loaded[subject] = Some(engine);
        }
    }
    print(shape, "add, 1000 per commit", wall);
    print(shape, "  processor time until idle", cpu);
    print(shape, "add again, one per commit", single);
    print(shape, "bytes of files per pair", bytes);
    if shape.values == 1 {
        let [wall, cpu, bytes] = plain.map(report::median);
        println!(
            "the same as rows of a plain tree of BraidDB: {wall:.1} ns per row, {cpu:.1} ns until idle, {bytes:.1} bytes of files"
        );
    }
    let [Some(braiddb), Some(lmdb)] = &loaded else { unreachable!("both were loaded") };
    ask_all(options, shape, [&**braiddb, &**lmdb])
}

fn ask_all(options: &MultiOptions, shape: &Shape, [braiddb, lmdb]: [&dyn MultiEngine; 2]) -> Result<()> {
    let mut readers = [braiddb.reader()?, lmdb.reader()?];
    for question in Question::ALL.into_iter().filter(|question| question.name().contains(&options.only)) {
        let mut times = [vec![], vec![]];
        let mut expected = None;
        // The first round only warms up.
        for round in 0..=options.rounds as usize {
            for turn in 0..2 {
                let subject = (round + turn) % 2;
                let (mut seen, start) = (Checksum::default(), meter::thread_cpu_time());
                let asked = question.ask(&mut *readers[subject], shape, options.operations, &mut seen)?;
                let ns = (meter::thread_cpu_time() - start).as_secs_f64() * 1e9 / asked as f64;
                ensure!(*expected.get_or_insert(seen) == seen, "{}: the answers differ", question.name());
                if question == Question::IterateAll {
                    let mut all = Checksum::default();
                    shape.shuffled(0).iter().for_each(|(key, value)| all.add(key, value));
                    ensure!(seen == all, "the pairs of {} differ from those added", NAMES[subject]);
                }
                if question == Question::Count {
                    let (key, _) = shape.pair(0);
                    ensure!(readers[subject].count(&key)? == shape.values, "a count of {}", NAMES[subject]);
                }
                if round > 0 {
                    times[subject].push(ns);
                }
            }
        }
        print(shape, question.name(), times);
    }
    Ok(())
}
