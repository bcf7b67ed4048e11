//! Loads, overwrites and deletes, and what each costs: operations a second, processor time of each thread for an
//! operation, bytes written.
//!
//! ```text
//! cargo run --release -p braiddb --example loads -- [--records N] [--memory MIB] [--dir DIR] [LOAD ..]
//! ```
//!
//! Loads: `seq` ascending keys, batches of 100; `random` the same in random order; `single` one put a commit; `overwrite`
//! and `delete` half of what `random` would load, after it; `bulk` ascending keys, batches of 1000; `sync` durable
//! commits of one put by 1, 4 and 16 threads, beside a bare write and sync. Keys have 16 bytes, values 120 to
//! 128.
#![expect(clippy::disallowed_methods, reason = "a measuring program at the edge: it asks the clock and /proc")]

use braiddb::{Compression, Db, Durability, Stats, Tree};
use std::{
    collections::BTreeMap,
    fs,
    io::{Seek, Write},
    path::{Path, PathBuf},
    process, thread,
    time::{Duration, Instant},
};

type Failure = Box<dyn std::error::Error>;

/// Commits of the `sync` load.
const SYNC_COMMITS: u64 = 8000;

struct Options {
    records: u64,
    memory_mib: usize,
    dir: PathBuf,
    loads: Vec<String>,
}

fn options() -> Result<Options, Failure> {
    let dir = std::env::temp_dir().join(format!("braiddb-loads-{}", process::id()));
    let mut options = Options { records: 1_000_000, memory_mib: 128, dir, loads: Vec::new() };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{name} wants a value"));
        match name.as_str() {
            "--records" => options.records = value()?.parse()?,
            "--memory" => options.memory_mib = value()?.parse()?,
            "--dir" => options.dir = value()?.into(),
            load => options.loads.push(load.to_owned()),
        }
    }
    if options.loads.is_empty() {
        options.loads = ["seq", "random", "single", "overwrite", "delete", "bulk", "sync"].map(String::from).into();
    }
    Ok(options)
}

/// A permutation of the numbers below 2^64.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn random_key(row: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(row).to_be_bytes());
    key[8..].copy_from_slice(&mix(!row).to_be_bytes());
    key
}

fn ascending_key(row: u64) -> [u8; 16] {
    let mut key = *b"0000000000000000";
    key[..8].copy_from_slice(&row.to_be_bytes());
    key
}

/// Values are cut from here: 32 random bytes, 32 equal ones, and so on.
fn pool() -> Vec<u8> {
    let random = |at: u64| if (at / 32).is_multiple_of(2) { (mix(at / 8) >> (8 * (at % 8))) as u8 } else { b'x' };
    (0..(1 << 20) + 128).map(random).collect()
}

fn value(pool: &[u8], row: u64) -> &[u8] {
    let at = (mix(row) % (1 << 20)) as usize;
    &pool[at..at + 120 + (mix(!row) % 9) as usize]
}

/// Processor time of each thread so far, in nanoseconds, by name. Threads that have ended are not in it.
fn thread_times() -> BTreeMap<String, u64> {
    let mut times = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let name = read("comm").trim().to_owned();
        let ns = read("schedstat").split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        *times.entry(name).or_default() += ns;
    }
    times
}

/// What a phase took, from its begin to a moment.
struct Phase {
    start: Instant,
    times: BTreeMap<String, u64>,
}

impl Phase {
    fn begin() -> Phase {
        Phase { start: Instant::now(), times: thread_times() }
    }

    fn tell(&self, name: &str, operations: u64) {
        let took = self.start.elapsed();
        let mut total = 0;
        let mut threads = String::new();
        for (thread, ns) in thread_times() {
            let ns = ns - self.times.get(&thread).copied().unwrap_or(0);
            total += ns;
            threads += &format!(" {thread} {}", ns / operations);
        }
        let rate = operations as f64 / took.as_secs_f64() / 1e3;
        println!("{name:<20} {rate:8.0} k/s  cpu ns/op {:5} ={threads}", total / operations);
    }
}

struct Loader {
    db: Db,
    tree: Tree,
    pool: Vec<u8>,
}

impl Loader {
    fn new(options: &Options, durability: Durability) -> Result<Loader, Failure> {
        let _ = fs::remove_dir_all(&options.dir);
        let db = Db::builder()
            .memory(options.memory_mib << 20)
            .durability(durability)
            .compression(Compression::None)
            .open(&options.dir)?;
        let tree = db.tree("rows")?;
        Ok(Loader { db, tree, pool: pool() })
    }

    /// Commits rows in batches; `None` for a value deletes.
    fn write(&self, rows: impl Iterator<Item = ([u8; 16], Option<u64>)>, batch_len: usize) -> Result<(), Failure> {
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            let mut batch = self.db.batch();
            for (key, row) in rows.by_ref().take(batch_len) {
                match row {
                    Some(row) => batch.put(&self.tree, key, value(&self.pool, row)),
                    None => batch.delete(&self.tree, key),
                };
            }
            self.db.write(batch, Durability::Buffered)?;
        }
        Ok(())
    }

    /// Lets background work come to rest.
    fn settle(&self) -> Result<(), Failure> {
        self.db.flush()?;
        let mut before = 0;
        loop {
            thread::sleep(Duration::from_millis(1500));
            let now: u64 = thread_times().values().sum();
            if now - before < 20_000_000 {
                return Ok(());
            }
            before = now;
        }
    }
}

fn run(load: &str, options: &Options) -> Result<(), Failure> {
    if load == "sync" {
        return run_sync(options);
    }
    let n = options.records;
    let loader = Loader::new(options, Durability::Buffered)?;
    if load == "overwrite" || load == "delete" {
        loader.write((0..n).map(|row| (random_key(row), Some(row))), 1000)?;
        loader.settle()?;
    }
    let before = loader.db.stats();
    let phase = Phase::begin();
    let operations = match load {
        "seq" => loader.write((0..n).map(|row| (ascending_key(row), Some(row))), 100).map(|()| n),
        "random" => loader.write((0..n).map(|row| (random_key(row), Some(row))), 100).map(|()| n),
        "single" => {
            for row in 0..n {
                loader.tree.put(random_key(row), value(&loader.pool, row))?;
            }
            Ok(n)
        }
        "overwrite" => loader.write((0..n / 2).map(|row| (random_key(mix(row) % n), Some(!row))), 100).map(|()| n / 2),
        "delete" => loader
            .write((0..n).filter(|row| mix(*row) & 1 == 1).map(|row| (random_key(row), None)), 100)
            .map(|()| n / 2),
        "bulk" => {
            loader.write((0..n).map(|row| (ascending_key(row), Some(row))), 1000)?;
            loader.db.flush()?;
            Ok(n)
        }
        _ => return Err(format!("unknown load {load}").into()),
    }?;
    phase.tell(load, operations);
    loader.settle()?;
    phase.tell(&format!("{load}, at rest"), operations);
    let stats = loader.db.stats();
    let written = |stats: &Stats| (stats.run_bytes_written + stats.view_bytes_written) >> 20;
    println!(
        "    {} MB user, {} MB runs and views, {} flushes, {} merges, {} folds, {} ms slowed, {} stalls\n",
        (stats.user_bytes_written - before.user_bytes_written) >> 20,
        written(&stats) - written(&before),
        stats.flushes - before.flushes,
        stats.merges - before.merges,
        stats.folds - before.folds,
        (stats.slowed_us - before.slowed_us) / 1000,
        stats.stalls - before.stalls,
    );
    Ok(())
}

fn run_sync(options: &Options) -> Result<(), Failure> {
    bare_sync(&options.dir)?;
    for threads in [1, 4, 16] {
        let loader = Loader::new(options, Durability::Sync)?;
        let before = loader.db.stats().syncs;
        let start = Instant::now();
        thread::scope(|scope| {
            for thread in 0..threads {
                let loader = &loader;
                scope.spawn(move || {
                    for row in 0..SYNC_COMMITS / threads {
                        loader.tree.put(random_key(row << 8 | thread), value(&loader.pool, row)).expect("a put");
                    }
                });
            }
        });
        let rate = SYNC_COMMITS as f64 / start.elapsed().as_secs_f64();
        let per_sync = SYNC_COMMITS as f64 / (loader.db.stats().syncs - before) as f64;
        println!("sync, {threads:2} threads {rate:7.0} /s, {per_sync:.2} commits a sync");
    }
    bare_sync(&options.dir)
}

/// What the device gives: records of 160 bytes one after the other in a preallocated file, each synced.
fn bare_sync(dir: &Path) -> Result<(), Failure> {
    let path = dir.with_extension("bare");
    let mut file = fs::File::create(&path)?;
    file.write_all(&vec![0; 16 << 20])?;
    file.sync_all()?;
    file.rewind()?;
    let start = Instant::now();
    for _ in 0..SYNC_COMMITS / 4 {
        file.write_all(&[7; 160])?;
        file.sync_data()?;
    }
    println!("bare write and sync {:6.1} us", start.elapsed().as_secs_f64() * 1e6 / (SYNC_COMMITS / 4) as f64);
    Ok(fs::remove_file(path)?)
}

fn main() -> Result<(), Failure> {
    let options = options()?;
    for load in &options.loads {
        run(load, &options)?;
    }
    Ok(fs::remove_dir_all(&options.dir)?)
}
