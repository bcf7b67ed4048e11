//! Queries both engines in turns. Times are processor time of the reading thread: steadier than
//! wall clock on a shared machine.

use super::part::{Part, PartFigure, PartsRow};
use crate::{
    arguments::PartsOptions,
    data::{Checksum, Key, KeyOrder, Values},
    engines::{Access, Braid, Engine, Lmdb, Reader, Rows, Setup},
    meter, report,
    results::{self, Line},
    runner,
    workloads::Batch,
};
use anyhow::{Result, ensure};
use std::{fs, path::Path};

const RUNS: u64 = 8;
const BATCH_LEN: usize = 1000;

pub fn run(options: &PartsOptions) -> Result<()> {
    fs::create_dir_all(&options.folder)?;
    let folder = fs::canonicalize(&options.folder)?.join("parts");
    let _ = fs::remove_dir_all(&folder);
    runner::note_machine(&options.results, &folder.join(".."))?;
    let row = measure(options, &folder);
    fs::remove_dir_all(&folder)?;
    results::append(&options.results, &Line::Parts(row?))?;
    report::write(&options.results, options.results.parent().unwrap_or(Path::new(".")))
}

fn measure(options: &PartsOptions, folder: &Path) -> Result<PartsRow> {
    let (n, values) = (options.n, Values::small());
    let mut sorted: Vec<(Key, u64)> = (0..n).map(|row| (KeyOrder::Random.key(row), row)).collect();
    sorted.sort_unstable();
    let setup = |folder| Setup {
        folder,
        budget: 2 * values.user_bytes(n) as usize + (32 << 20),
        data_bytes: values.user_bytes(n),
        access: Access::Read,
        durable: false,
        prefix_len: None,
        in_memory: false,
    };
    let (of_braid, of_lmdb) = (folder.join("braiddb"), folder.join("lmdb"));
    fs::create_dir_all(&of_braid)?;
    fs::create_dir_all(&of_lmdb)?;
    eprintln!("loading LMDB in key order");
    let lmdb = Lmdb::open(setup(&of_lmdb))?;
    lmdb.load_sorted(&mut Sorted { rows: sorted.iter(), values: &values, key: Key::default(), value: Vec::new() })?;
    lmdb.flush()?;
    eprintln!("loading BraidDB in {RUNS} runs");
    let braid = Braid::open_unsplit(setup(&of_braid))?;
    load_in_runs(&braid, n, &values)?;
    let view = braid.wait_for_view(RUNS as usize)?;
    ensure!(view.entries >= n, "the view has {} entries, {n} rows were put", view.entries);

    let (mut of_braid, mut of_lmdb) = (braid.reader()?, lmdb.reader()?);
    let mut contest =
        Contest { braid: &braid, readers: [&mut *of_braid, &mut *of_lmdb], options, sorted: &sorted, values: &values };
    let figures = Part::ALL.into_iter().map(|part| contest.part(part)).collect::<Result<_>>()?;
    let after = braid.wait_for_view(RUNS as usize)?;
    ensure!(after == view, "the view changed while it was measured");
    Ok(PartsRow {
        n,
        operations: options.operations,
        view_runs: RUNS,
        view_bytes_per_key: view.bytes as f64 / view.entries as f64,
        figures,
    })
}

fn load_in_runs(braid: &Braid, n: u64, values: &Values) -> Result<()> {
    let mut batch = Batch::new(BATCH_LEN);
    for slice in 0..RUNS {
        let (mut next, end) = (n * slice / RUNS, n * (slice + 1) / RUNS);
        while next < end {
            let batch_end = (next + BATCH_LEN as u64).min(end);
            batch.fill(KeyOrder::Random, values, (next..batch_end).map(|row| (row, Some(0))));
            batch.commit(braid)?;
            next = batch_end;
        }
        braid.flush()?;
    }
    Ok(())
}

struct Contest<'a> {
    braid: &'a Braid,
    readers: [&'a mut dyn Reader; 2],
    options: &'a PartsOptions,
    sorted: &'a [(Key, u64)],
    values: &'a Values,
}

impl Contest<'_> {
    fn part(&mut self, part: Part) -> Result<PartFigure> {
        let (n, operations) = (self.options.n, self.options.operations);
        let keys = part.keys(n, operations);
        let expected = part.expected(self.sorted, self.values, &keys, operations);
        let mut times = [Vec::new(), Vec::new()];
        let mut misses = 0;
        // The first round only warms up.
        for round in 0..=self.options.rounds as usize {
            for turn in 0..2 {
                let subject = (round + turn) % 2;
                let (mut seen, start) = (Checksum::default(), meter::thread_cpu_time());
                let asked = part.ask(self.readers[subject], &keys, (n, operations), &mut seen)?;
                let ns = (meter::thread_cpu_time() - start).as_secs_f64() * 1e9 / asked as f64;
                ensure!(seen == expected, "{}: wrong answers of {}", part.name(), ["BraidDB", "LMDB"][subject]);
                if round > 0 {
                    times[subject].push(ns);
                }
            }
            if round == 0 {
                misses = self.braid.cache_misses();
            }
        }
        ensure!(self.braid.cache_misses() == misses, "{}: BraidDB's cache did not hold all data", part.name());
        let [braiddb_ns, lmdb_ns] = times;
        let ratio = report::median(braiddb_ns.clone()) / report::median(lmdb_ns.clone());
        eprintln!("{:40} {ratio:.2}", part.name());
        Ok(PartFigure { part: part.name().to_owned(), braiddb_ns, lmdb_ns, ratio, bar: part.bar() })
    }
}

struct Sorted<'a> {
    rows: std::slice::Iter<'a, (Key, u64)>,
    values: &'a Values,
    key: Key,
    value: Vec<u8>,
}

impl Rows for Sorted<'_> {
    fn next(&mut self) -> Option<(&[u8], &[u8])> {
        let (key, row) = self.rows.next()?;
        self.key = *key;
        self.values.fill(*row, 0, &mut self.value);
        Some((&self.key, &self.value))
    }
}
