//! Loads records in random order, overwrites all of them, lets the database come to rest, checks every record, and
//! tells what it cost: memory, stalls, bytes written, space, idle CPU.
//!
//! ```text
//! cargo run --release -p braiddb --example endurance -- [--records N] [--memory MIB] [--rounds R] [--dir DIR] [--idle S]
//! ```
//!
//! Keys have 16 bytes, values 100 bytes of which half can be compressed. `bytes written` is what the process gave to the
//! system (Linux: `write_bytes` of /proc/self/io, which counts page cache write-back caused by it), next to what the
//! engine counts. Memory is the anonymous and shared part of the resident set, at its highest.
#![expect(clippy::disallowed_methods, reason = "a measuring program at the edge: it asks the clock and /proc")]

use braiddb::{Db, Durability, Stats, Tree};
use std::{
    fs, process,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

type Failure = Box<dyn std::error::Error>;

struct Options {
    records: u64,
    memory_mib: usize,
    rounds: u32,
    idle_s: u64,
    dir: String,
}

fn options() -> Result<Options, Failure> {
    let mut options = Options {
        records: 1_000_000,
        memory_mib: 256,
        rounds: 3,
        idle_s: 60,
        dir: std::env::temp_dir().join(format!("braiddb-endurance-{}", process::id())).display().to_string(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} wants a value"))?;
        match name.as_str() {
            "--records" => options.records = value.parse()?,
            "--memory" => options.memory_mib = value.parse()?,
            "--rounds" => options.rounds = value.parse()?,
            "--idle" => options.idle_s = value.parse()?,
            "--dir" => options.dir = value,
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    Ok(options)
}

/// A permutation of the numbers below 2^64, so that keys come in random order and never twice.
fn scramble(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn key(i: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&scramble(i).to_be_bytes());
    key[8..].copy_from_slice(&i.to_be_bytes());
    key
}

/// 50 random bytes and 50 equal ones.
fn value(i: u64, round: u32) -> [u8; 100] {
    let mut value = [b'a' + (round % 26) as u8; 100];
    let mut state = i ^ (u64::from(round) << 56);
    for chunk in value[..50].chunks_mut(8) {
        state = scramble(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
    value
}

fn field(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(name));
    line.and_then(|l| l.trim_start_matches(':').split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn memory_kib() -> u64 {
    field("/proc/self/status", "RssAnon") + field("/proc/self/status", "RssShmem")
}

fn written_bytes() -> u64 {
    field("/proc/self/io", "write_bytes")
}

fn cpu_ticks() -> u64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = text.rsplit(')').next().unwrap_or_default();
    after.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum()
}

/// How long each put of a round took. Taken once for all rounds, and touched: this program's own memory, not the engine's.
struct Latencies {
    ns: Vec<u32>,
}

impl Latencies {
    fn report(&mut self, name: &str) {
        self.ns.sort_unstable();
        let at = |share: f64| self.ns[((self.ns.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
        println!(
            "{name}: put latency p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us, p99.99 {:.1} us, max {:.1} ms",
            at(0.5),
            at(0.99),
            at(0.999),
            at(0.9999),
            at(1.0) / 1000.0
        );
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

fn fill(tree: &Tree, records: u64, round: u32, latencies: &mut Latencies) -> Result<(), Failure> {
    latencies.ns.clear();
    // Overwrites come in another order than the load.
    let mut step = u64::from(round) * 7_368_787;
    while greatest_common_divisor(step, records) != 1 {
        step += 1;
    }
    for n in 0..records {
        let i = if round == 0 { n } else { (n * step) % records };
        let before = Instant::now();
        tree.put(key(i), value(i, round))?;
        latencies.ns.push(before.elapsed().as_nanos().min(u128::from(u32::MAX)) as u32);
        if n % 1_000_000 == 999_999 {
            eprintln!("  round {round}: {} M", (n + 1) / 1_000_000);
        }
    }
    Ok(())
}

fn report(name: &str, stats: &Stats, before: &Stats, written: u64, user: u64, elapsed: Duration, records: u64) {
    let engine = |s: &Stats| {
        s.log_bytes_written
            + s.run_bytes_written
            + s.view_bytes_written
            + s.blob_bytes_written
            + s.manifest_bytes_written
    };
    let per_user = |bytes: u64| bytes as f64 / user as f64;
    println!(
        "{name}: {:.0} k puts/s; bytes written / user bytes: {:.2} by the system's count, {:.2} by the engine's \
         (log {:.2}, runs {:.2}, views {:.2}); stalls {}, longest {} us; slowed {} ms in all; {} flushes, {} merges, {} folds",
        records as f64 / elapsed.as_secs_f64() / 1000.0,
        per_user(written),
        per_user(engine(stats) - engine(before)),
        per_user(stats.log_bytes_written - before.log_bytes_written),
        per_user(stats.run_bytes_written - before.run_bytes_written),
        per_user(stats.view_bytes_written - before.view_bytes_written),
        stats.stalls - before.stalls,
        stats.stall_us_max,
        (stats.slowed_us - before.slowed_us) / 1000,
        stats.flushes - before.flushes,
        stats.merges - before.merges,
        stats.folds - before.folds,
    );
}

/// Waits until nothing is flushed, merged or folded any more.
fn rest(db: &Db) {
    let mut last = db.stats();
    let mut quiet = 0;
    while quiet < 4 {
        thread::sleep(Duration::from_secs(1));
        let now = db.stats();
        let same = (now.flushes, now.merges, now.folds, now.run_bytes_written)
            == (last.flushes, last.merges, last.folds, last.run_bytes_written);
        quiet = if same { quiet + 1 } else { 0 };
        last = now;
    }
}

fn main() -> Result<(), Failure> {
    let options = options()?;
    let peak = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicBool::new(false));
    let db = Db::builder().memory(options.memory_mib << 20).durability(Durability::Buffered).open(&options.dir)?;
    let tree = db.tree("t")?;
    let user = options.records * 116;
    let mut latencies = Latencies { ns: vec![1; options.records as usize] };
    let base = memory_kib();
    let sampler = {
        let (peak, done) = (Arc::clone(&peak), Arc::clone(&done));
        thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                peak.fetch_max(memory_kib(), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(20));
            }
        })
    };
    let mut before = db.stats();
    for (name, rounds) in [("load", 0..1), ("overwrites", 1..options.rounds + 1)] {
        let count = u64::from(rounds.end - rounds.start);
        if count == 0 {
            continue;
        }
        let (start, written) = (Instant::now(), written_bytes());
        for round in rounds {
            fill(&tree, options.records, round, &mut latencies)?;
            latencies.report(&format!("{name}, round {round}"));
        }
        let elapsed = start.elapsed();
        rest(&db);
        db.sync()?;
        let stats = db.stats();
        report(name, &stats, &before, written_bytes() - written, user * count, elapsed, options.records * count);
        let space = stats.disk_bytes as f64 / user as f64;
        println!("{name}: space at rest {space:.3} x the user's bytes; {} partitions", stats.partitions.len());
        println!("{name}: memory {} MiB", memory_kib().saturating_sub(base) / 1024);
        before = stats;
    }
    println!(
        "memory: peak {} MiB anonymous and shared, this program's own {} MiB not counted; budget {} MiB",
        peak.load(Ordering::Relaxed).saturating_sub(base) / 1024,
        base / 1024,
        options.memory_mib,
    );
    check(&tree, &options)?;
    done.store(true, Ordering::Relaxed);
    sampler.join().map_err(|_| "the sampler panicked")?;
    idle(&db, &options);
    db.close()?;
    fs::remove_dir_all(&options.dir)?;
    Ok(())
}

fn check(tree: &Tree, options: &Options) -> Result<(), Failure> {
    let start = Instant::now();
    for i in 0..options.records {
        let found = tree.get(key(i))?;
        if found.as_deref() != Some(&value(i, options.rounds)[..]) {
            return Err(format!("record {i} is wrong: {found:?}").into());
        }
    }
    println!(
        "all {} records are right ({:.0} k gets/s)",
        options.records,
        options.records as f64 / start.elapsed().as_secs_f64() / 1000.0
    );
    let start = Instant::now();
    let rows = tree.iter().try_fold(0u64, |n, pair| pair.map(|_| n + 1))?;
    println!("a scan finds {rows} ({:.1} M rows/s)", rows as f64 / start.elapsed().as_secs_f64() / 1e6);
    Ok(())
}

fn idle(db: &Db, options: &Options) {
    rest(db);
    let (start, ticks) = (Instant::now(), cpu_ticks());
    thread::sleep(Duration::from_secs(options.idle_s));
    let used = (cpu_ticks() - ticks) as f64 / 100.0;
    println!(
        "idle: {:.2} % of a core over {} s",
        100.0 * used / start.elapsed().as_secs_f64().max(0.001),
        options.idle_s
    );
}
