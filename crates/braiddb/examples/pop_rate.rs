//! Measures `Tree::pop_first` behind rows that were popped before.
//!
//! Each line: pops per second of 1 or 4 threads, without and with a thread that pushes, behind so
//! many removed rows. A measurement ends after one second.
//!
//! ```text
//! cargo run --release -p braiddb --example pop_rate [directory] [rows]
//! ```

#![expect(clippy::disallowed_methods, reason = "a program that measures time, in threads of its own")]

use braiddb::{Db, Durability, Result, Tree};
use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

const ROWS: u64 = 500_000;
const MEASURED_FOR: Duration = Duration::from_secs(1);
const JOB: &str = "a job of about forty bytes, as an example";

fn push(jobs: &Tree, from: u64, to: u64) -> Result<()> {
    jobs.extend((from..to).map(|number| (number.to_be_bytes(), JOB)))
}

/// Pops for [`MEASURED_FOR`] in `threads` threads, and returns the pops and pushes per second.
fn measure(jobs: &Tree, threads: usize, next: Option<&AtomicU64>) -> Result<(f64, f64)> {
    let (started, is_over, pushed) = (Instant::now(), AtomicBool::new(false), AtomicU64::new(0));
    let pop = || -> Result<u64> {
        let mut popped = 0;
        while started.elapsed() < MEASURED_FOR && jobs.pop_first()?.is_some() {
            popped += 1;
        }
        Ok(popped)
    };
    let push_on = |next: &AtomicU64| -> Result<()> {
        while !is_over.load(Relaxed) {
            jobs.put(next.fetch_add(1, Relaxed).to_be_bytes(), JOB)?;
            pushed.fetch_add(1, Relaxed);
        }
        Ok(())
    };
    let (popped, elapsed) = thread::scope(|scope| -> Result<(u64, f64)> {
        let pusher = next.map(|next| scope.spawn(move || push_on(next)));
        let poppers: Vec<_> = (0..threads).map(|_| scope.spawn(pop)).collect();
        let popped = poppers.into_iter().map(|popper| popper.join().expect("it does not panic")).sum::<Result<u64>>();
        let elapsed = started.elapsed().as_secs_f64();
        is_over.store(true, Relaxed);
        pusher.map_or(Ok(()), |pusher| pusher.join().expect("it does not panic"))?;
        Ok((popped?, elapsed))
    })?;
    Ok((popped as f64 / elapsed, pushed.into_inner() as f64 / elapsed))
}

fn run(dir: &Path, rows: u64) -> Result<()> {
    for removed in [0, rows * 2 / 5] {
        for threads in [1, 4] {
            for pushes in [false, true] {
                std::fs::remove_dir_all(dir).ok();
                let db = Db::builder().durability(Durability::Buffered).open(dir)?;
                let jobs = db.tree("jobs")?;
                push(&jobs, 0, rows)?;
                let mut batch = db.batch();
                (0..removed).for_each(|number| _ = batch.delete(&jobs, number.to_be_bytes()));
                batch.commit()?;
                // Not measured: the first pop finds the first row.
                jobs.pop_first()?;
                let next = AtomicU64::new(rows);
                let (pops, puts) = measure(&jobs, threads, pushes.then_some(&next))?;
                println!(
                    "behind {removed:>7} removed rows, {threads} threads: {pops:>9.0} pops/s beside {puts:>9.0} puts/s"
                );
            }
        }
    }
    std::fs::remove_dir_all(dir).ok();
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().map_or_else(|| std::env::temp_dir().join("braiddb-pop-rate"), Into::into);
    let rows = arguments.next().and_then(|rows| rows.parse().ok()).unwrap_or(ROWS);
    run(&dir, rows)
}
