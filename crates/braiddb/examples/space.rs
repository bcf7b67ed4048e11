//! What the space of a database consists of once nobody writes, and what was written for it.
//!
//! ```text
//! cargo run --release -p braiddb --example space -- [--records N] [--memory MIB] [--rest S] [--dir DIR] [--key-blocks yes|no] [LOAD ..]
//! ```
//!
//! Loads: `fill` in random order; `overwrite` half as many random rows, after it; `documents` half as many of 1.1 KB. Keys have 16
//! bytes, values 120 to 128, compression is off. The account is taken when nothing has been written for 0.8 s after a flush, and again
//! after so many seconds more.
#![expect(clippy::disallowed_methods, reason = "a measuring program at the edge: it asks the clock and /proc")]

use braiddb::{Compression, Db, Durability, Stats, Tree};
use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
    process, thread,
    time::{Duration, Instant},
};

type Failure = Box<dyn std::error::Error>;

const KEY_LEN: u64 = 16;

/// Nothing was written for so long: then the database counts as being at rest.
const QUIET: Duration = Duration::from_millis(800);

struct Options {
    records: u64,
    memory_mib: usize,
    rest_s: u64,
    dir: PathBuf,
    key_blocks: Option<bool>,
    loads: Vec<String>,
}

fn options() -> Result<Options, Failure> {
    let dir = std::env::temp_dir().join(format!("braiddb-space-{}", process::id()));
    let mut options =
        Options { records: 2_000_000, memory_mib: 122, rest_s: 10, dir, key_blocks: None, loads: Vec::new() };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{name} wants a value"));
        match name.as_str() {
            "--records" => options.records = value()?.parse()?,
            "--memory" => options.memory_mib = value()?.parse()?,
            "--rest" => options.rest_s = value()?.parse()?,
            "--dir" => options.dir = value()?.into(),
            "--key-blocks" => options.key_blocks = Some(value()? != "no"),
            load => options.loads.push(load.to_owned()),
        }
    }
    if options.loads.is_empty() {
        options.loads = ["fill", "overwrite", "documents"].map(String::from).into();
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

fn key(row: u64) -> [u8; KEY_LEN as usize] {
    let mut key = [0; KEY_LEN as usize];
    key[..8].copy_from_slice(&mix(row).to_be_bytes());
    key[8..].copy_from_slice(&mix(!row).to_be_bytes());
    key
}

/// The length of a row's values, whatever their version.
fn value_len(row: u64, len_min: u64, len_spread: u64) -> u64 {
    len_min + mix(!row) % (len_spread + 1)
}

/// Bytes given to storage, by the system's count.
fn written_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn memory_kib() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    of("RssAnon") + of("RssShmem")
}

struct Loader {
    db: Db,
    tree: Tree,
    /// Values are cut from here.
    pool: Vec<u8>,
    len_min: u64,
    len_spread: u64,
    memory_kib_max: u64,
    own_kib: u64,
}

impl Loader {
    fn new(options: &Options, len_min: u64, len_spread: u64) -> Result<Loader, Failure> {
        let _ = fs::remove_dir_all(&options.dir);
        let pool: Vec<u8> =
            (0..(1 << 20) + len_min + len_spread).map(|at| (mix(at / 8) >> (8 * (at % 8))) as u8).collect();
        let own_kib = memory_kib();
        let builder = Db::builder()
            .memory(options.memory_mib << 20)
            .durability(Durability::Buffered)
            .compression(Compression::None);
        let builder = options.key_blocks.map_or(builder.clone(), |wanted| builder.key_blocks(wanted));
        let db = builder.open(&options.dir)?;
        let tree = db.tree("rows")?;
        Ok(Loader { db, tree, pool, len_min, len_spread, memory_kib_max: 0, own_kib })
    }

    fn user_bytes(&self, row: u64) -> u64 {
        KEY_LEN + value_len(row, self.len_min, self.len_spread)
    }

    fn live_bytes(&self, rows: u64) -> u64 {
        (0..rows).map(|row| self.user_bytes(row)).sum()
    }

    /// Puts rows, a hundred a commit; bytes of keys and values.
    fn write(&mut self, rows: impl Iterator<Item = (u64, u64)>) -> Result<u64, Failure> {
        let mut rows = rows.peekable();
        let (mut user, mut commits) = (0, 0);
        while rows.peek().is_some() {
            let mut batch = self.db.batch();
            for (row, version) in rows.by_ref().take(100) {
                let at = (mix(row ^ (version << 40)) % (1 << 20)) as usize;
                let len = value_len(row, self.len_min, self.len_spread);
                batch.put(&self.tree, key(row), &self.pool[at..at + len as usize]);
                user += KEY_LEN + len;
            }
            self.db.write(batch, Durability::Buffered)?;
            commits += 1;
            if commits % 64 == 0 {
                self.memory_kib_max = self.memory_kib_max.max(memory_kib().saturating_sub(self.own_kib));
            }
        }
        Ok(user)
    }

    fn rest(&self) -> Result<(), Failure> {
        self.db.flush()?;
        let (mut since, mut written) = (Instant::now(), written_bytes());
        while since.elapsed() < QUIET {
            thread::sleep(Duration::from_millis(50));
            let now = written_bytes();
            if now - written > 2 << 20 {
                (since, written) = (Instant::now(), now);
            }
        }
        Ok(())
    }
}

/// Bytes of a folder's files on the device, and how many there are, by what follows the point in their names.
fn files(dir: &Path) -> BTreeMap<String, (u64, u64)> {
    #[cfg(unix)]
    let on_device = |metadata: fs::Metadata| std::os::unix::fs::MetadataExt::blocks(&metadata) * 512;
    // What it takes there is not told; the length is near it.
    #[cfg(not(unix))]
    let on_device = |metadata: fs::Metadata| metadata.len();
    let mut kinds: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let kind = path.extension().map_or("others".into(), |extension| extension.to_string_lossy().into_owned());
        let bytes = entry.metadata().map_or(0, on_device);
        let (count, sum) = kinds.entry(kind).or_default();
        *count += 1;
        *sum += bytes;
    }
    kinds
}

fn account(name: &str, stats: &Stats, dir: &Path, live_bytes: u64, live_rows: u64) {
    let files = files(dir);
    let all: u64 = files.values().map(|(_, bytes)| bytes).sum();
    let line = |what: &str, bytes: u64| {
        let per_row = bytes as f64 / live_rows as f64;
        println!(
            "    {what:<34} {:8.1} MB {:7.3} {per_row:7.1} B a row",
            bytes as f64 / 1e6,
            bytes as f64 / live_bytes as f64
        );
    };
    println!("  {name}: {:.3} of what is there", all as f64 / live_bytes as f64);
    let runs: HashMap<u64, _> =
        stats.partitions.iter().flat_map(|p| p.runs.iter().chain(&p.loose)).map(|run| (run.number, run)).collect();
    let sum = |pick: fn(&braiddb::RunStats) -> u64| runs.values().map(|run| pick(run)).sum::<u64>();
    let (entries, raw, own_views) = (sum(|r| r.entries), sum(|r| r.raw_bytes), sum(|r| r.view_bytes));
    // Each key has four bytes more inside.
    let dead = raw - (live_bytes + 4 * live_rows).min(raw);
    line("keys and values", live_bytes);
    line("tree numbers in keys", 4 * live_rows);
    line(&format!("keys and values of {} dead", entries.saturating_sub(live_rows)), dead);
    line("views in runs", own_views);
    line("the rest of runs", sum(|r| r.bytes) - own_views - raw);
    for (kind, &(count, bytes)) in &files {
        line(&format!("{count} files, {kind}"), bytes);
    }
    for p in &stats.partitions {
        let rows = |runs: &[braiddb::RunStats]| runs.iter().map(|run| run.entries / 1000).collect::<Vec<_>>();
        let (runs, loose) = (rows(&p.runs), rows(&p.loose));
        println!("    partition: runs {runs:?} k, loose {loose:?} k, {} k stale in view", p.view_stale / 1000);
    }
}

fn run(load: &str, options: &Options) -> Result<(), Failure> {
    let (len_min, len_spread) = if load == "documents" { (1050, 100) } else { (120, 8) };
    let rows = if load == "documents" { options.records / 2 } else { options.records };
    let mut loader = Loader::new(options, len_min, len_spread)?;
    let (mut before, mut written_before) = (loader.db.stats(), written_bytes());
    let start = Instant::now();
    let mut user = loader.write((0..rows).map(|row| (row, 0)))?;
    if load == "overwrite" {
        loader.rest()?;
        (before, written_before) = (loader.db.stats(), written_bytes());
        user = loader.write((1..=rows / 2).map(|version| (mix(version ^ 0x0f0f) % rows, version)))?;
    }
    println!("{load}: {rows} rows in {:.1} s", start.elapsed().as_secs_f64());
    let live = loader.live_bytes(rows);
    for more_s in [0, options.rest_s] {
        loader.rest()?;
        thread::sleep(Duration::from_secs(more_s));
        let stats = loader.db.stats();
        let name = if more_s == 0 { "at rest".to_owned() } else { format!("{more_s} s later") };
        account(&name, &stats, &options.dir, live, rows);
        let of = |pick: fn(&Stats) -> u64| (pick(&stats) - pick(&before)) as f64 / user as f64;
        println!(
            "    written: {:.2} by the system's count; log {:.2}, runs {:.2}, views {:.2}; {} flushes, {} merges ({} loose), {} folds, {} stalls",
            (written_bytes() - written_before) as f64 / user as f64,
            of(|s| s.log_bytes_written),
            of(|s| s.run_bytes_written),
            of(|s| s.view_bytes_written),
            stats.flushes - before.flushes,
            stats.merges - before.merges,
            stats.loose_merges - before.loose_merges,
            stats.folds - before.folds,
            stats.stalls - before.stalls,
        );
    }
    println!(
        "    memory: {} MiB at most while writing, {} MiB now, {} MiB counted\n",
        loader.memory_kib_max >> 10,
        (memory_kib() - loader.own_kib) >> 10,
        loader.db.stats().memory_bytes >> 20
    );
    loader.db.close()?;
    fs::remove_dir_all(&options.dir)?;
    Ok(())
}

fn main() -> Result<(), Failure> {
    let options = options()?;
    let loads = options.loads.clone();
    loads.iter().try_for_each(|load| run(load, &options))
}
