//! An hour of mixed load at 80 % of the maximum rate: do latencies, memory and space stay within
//! their bars?
//!
//! ```text
//! cargo run --release -p tools --bin soak -- [--minutes M] [--find-minutes M] [--records N] [--memory MIB]
//!     [--threads T] [--background-threads T] [--dead-percent P] [--rate OPS] [--durable] [--dir DIR] [--out DIR]
//! ```
//!
//! 1. Loads the records in random order.
//! 2. Finds the highest sustained rate: threads run at full speed for `--find-minutes`, and the
//!    mean of the second half counts. `--rate` sets it instead.
//! 3. Runs for `--minutes` at 80 % of that rate. Operations are due at fixed times, and latency
//!    counts from the due time.
//! 4. Checks every record, prints verdicts, and writes `soak.csv` (a line per second), `soak.json`
//!    and `soak.svg`.
//!
//! Half of the operations write a random record (90 % puts, 10 % deletes), 45 % get one, and 5 %
//! read twenty rows. Each thread owns its records, so it knows their values. Keys have 16 bytes,
//! values 120, uncompressed.

mod histogram;
mod options;
mod plot;
mod process;
mod report;
mod sample;
mod worker;

use braiddb::{Compression, Db, Durability};
use options::Options;
use report::Outcome;
use sample::{Sample, Sampler};
use std::{error::Error, fs, sync::Arc, time::Duration};
use worker::{Pace, Shared, Worker};

type Failure = Box<dyn Error + Send + Sync>;

/// Share of the highest rate.
const LOAD_SHARE: f64 = 0.8;

fn main() -> Result<(), Failure> {
    let options = Options::parse(std::env::args().skip(1))?;
    fs::create_dir_all(&options.out)?;
    let durability = if options.durable { Durability::Sync } else { Durability::Buffered };
    let shared = Arc::new(Shared::new(options.threads));
    let mut workers: Vec<Worker> =
        (0..options.threads).map(|id| Worker::new(id, options.threads, options.records)).collect();
    let own_kib = process::memory_kib();
    let mut builder = Db::builder()
        .memory(options.memory_mib << 20)
        .durability(durability)
        .background_threads(options.background)
        .compression(Compression::None);
    if let Some(percent) = options.dead_percent {
        builder = builder.garbage_percent(percent);
    }
    let db = builder.open(&options.dir)?;
    let tree = db.tree("soak")?;
    let mut sampler = Sampler::new(&db, options.dir.clone(), &shared, own_kib);

    eprintln!("loading {} records", options.records);
    workers = sampler.run(workers, &tree, Pace::Load, None, |_| ())?;
    let rate = match options.rate {
        Some(rate) => rate,
        None => {
            let found = minutes(options.find_minutes);
            workers = sampler.run(workers, &tree, Pace::Closed, Some(found), |sample| show("finding", sample))?;
            let (closed, _) = sampler.take_samples();
            let late = &closed[closed.len() / 2..];
            late.iter().map(|sample| sample.operations as f64).sum::<f64>()
                / late.iter().map(|s| s.seconds).sum::<f64>()
        }
    };
    eprintln!("the highest sustained rate is {rate:.0} operations/s; now {:.0} %", 100.0 * LOAD_SHARE);
    sampler.take_samples();
    let pace = Pace::open(rate * LOAD_SHARE / options.threads as f64);
    workers = sampler.run(workers, &tree, pace, Some(minutes(options.minutes)), |sample| show("steady", sample))?;
    let (samples, totals) = sampler.take_samples();

    let target_rate = rate * LOAD_SHARE;
    let outcome = Outcome { options: &options, highest_rate: rate, target_rate, samples: &samples, totals: &totals };
    fs::write(options.out.join("soak.csv"), outcome.to_csv())?;
    fs::write(options.out.join("soak.json"), outcome.to_json())?;
    fs::write(options.out.join("soak.svg"), plot::draw(&outcome))?;
    print!("{}", outcome.to_text());
    println!("written to {}", options.out.display());

    let checked = worker::check_all(&tree, &workers)?;
    println!("all {checked} records are correct");
    let has_failed = outcome.verdicts().iter().any(|verdict| !verdict.is_met);
    db.close()?;
    fs::remove_dir_all(&options.dir)?;
    if has_failed {
        return Err("a bar was missed".into());
    }
    Ok(())
}

fn minutes(minutes: f64) -> Duration {
    Duration::from_secs_f64(minutes * 60.0)
}

fn show(phase: &str, sample: &Sample) {
    if sample.second % 10 == 9 {
        eprintln!("{phase} {:5} s: {}", sample.second + 1, sample.one_line());
    }
}
