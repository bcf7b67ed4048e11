//! Many databases in one process that share memory budget, cache and threads, and the cost of each
//! when idle.
//!
//! ```text
//! cargo run --release -p tools --bin many_databases         # five hundred
//! cargo run --release -p tools --bin many_databases -- 50
//! ```
//!
//! Opens a database for each user, puts a thousand records into each, and reports memory, threads,
//! descriptors and processor time when idle (Linux). Then one user writes at full speed beside slow
//! durable writers, whose latency is reported.

use braiddb::{Db, Durability, Result, SharedRuntime};
use std::{
    env,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

const MEMORY: usize = 64 << 20;

fn main() -> Result<()> {
    let count: usize = env::args().nth(1).map_or(500, |count| count.parse().expect("a number of databases"));
    let place = env::temp_dir().join(format!("braiddb-many-{}", std::process::id()));
    let before = Taken::now();
    let runtime = SharedRuntime::with_memory(MEMORY)?;
    let open = |user: usize| Db::builder().shared_runtime(&runtime).open(place.join(user.to_string()));
    let began = Instant::now();
    let users: Vec<Db> = (0..count).map(open).collect::<Result<_>>()?;
    println!("{count} databases were opened in {:.2?}", began.elapsed());
    tell_what_idle_ones_cost(count, &before);
    let began = Instant::now();
    for (number, user) in users.iter().enumerate() {
        let mail = user.tree("mail")?;
        let mut batch = user.batch();
        for message in 0..1000_u32 {
            batch.put(&mail, message.to_be_bytes(), format!("message {message} to user {number}"));
        }
        batch.commit_with(Durability::Buffered)?;
    }
    println!("a thousand records were put into each in {:.2?}", began.elapsed());
    tell_what_idle_ones_cost(count, &before);
    println!("{:#?}", runtime.stats());
    tell_how_others_fare(&users)?;
    drop(users);
    std::fs::remove_dir_all(place).expect("the directory is removable");
    Ok(())
}

fn tell_what_idle_ones_cost(count: usize, before: &Option<Taken>) {
    thread::sleep(Duration::from_secs(3));
    let Some((before, idle)) = before.as_ref().zip(Taken::now()) else {
        println!("costs can be measured on Linux only");
        return;
    };
    thread::sleep(Duration::from_secs(5));
    let later = Taken::now().expect("it was measured before");
    let each = |now: u64, before: u64| now.saturating_sub(before) as f64 / count as f64;
    println!(
        "idle, each takes {:.1} KiB of memory, {:.1} KiB of mapped files, {:.3} threads and {:.2} descriptors; all together {:.2} % of a processor",
        each(idle.kib, before.kib),
        each(idle.mapped_kib, before.mapped_kib),
        each(idle.threads, before.threads),
        each(idle.descriptors, before.descriptors),
        (later.cpu_ms - idle.cpu_ms) as f64 / 50.0,
    );
}

fn tell_how_others_fare(users: &[Db]) -> Result<()> {
    let Some((busy, others)) = users.split_first() else { return Ok(()) };
    let quiet = times_of(others)?;
    let is_over = AtomicBool::new(false);
    let (beside, written) = thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<u64> {
            let (mail, mut written) = (busy.tree("mail")?, 0_u64);
            while !is_over.load(Ordering::Relaxed) {
                let mut batch = busy.batch();
                batch.put(&mail, written.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), [7; 100]);
                batch.commit_with(Durability::Buffered)?;
                written += 1;
            }
            Ok(written)
        });
        let beside = times_of(others);
        is_over.store(true, Ordering::Relaxed);
        (beside, writer.join().expect("the writer"))
    });
    let (beside, written) = (beside?, written?);
    println!("durable puts of others: {quiet}; while one database put {written} records: {beside}");
    Ok(())
}

fn times_of(users: &[Db]) -> Result<String> {
    let mut times = Vec::new();
    let began = Instant::now();
    for (number, user) in users.iter().cycle().enumerate() {
        if began.elapsed() > Duration::from_secs(5) {
            break;
        }
        let mail = user.tree("mail")?;
        let begun = Instant::now();
        mail.put(number.to_be_bytes(), b"a message")?;
        times.push(begun.elapsed());
        thread::sleep(Duration::from_millis(2));
    }
    times.sort();
    let at = |per_mille: usize| times[(times.len() - 1) * per_mille / 1000];
    Ok(format!("median {:.2?}, 99 % {:.2?}, longest {:.2?}", at(500), at(990), at(1000)))
}

struct Taken {
    kib: u64,
    mapped_kib: u64,
    threads: u64,
    descriptors: u64,
    cpu_ms: u64,
}

impl Taken {
    /// `None` on other systems than Linux.
    fn now() -> Option<Taken> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let of = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse().ok()
        };
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        let ticks = stat.rsplit(')').next()?.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().ok());
        Some(Taken {
            kib: of("RssAnon:")?,
            mapped_kib: of("RssFile:")?,
            threads: of("Threads:")?,
            descriptors: std::fs::read_dir("/proc/self/fd").ok()?.count() as u64,
            cpu_ms: ticks.sum::<Option<u64>>()? * 10,
        })
    }
}
