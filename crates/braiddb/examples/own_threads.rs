//! A program that starts the engine's threads itself. It logs their names and keeps merge threads
//! off the first processor.
//!
//! ```text
//! cargo run --release -p braiddb --example own_threads
//! ```

use braiddb::{
    Db, Durability, Result,
    platform::{Runtime, SystemRuntime},
};
use std::{
    io,
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

/// Starts threads in its own way; clock and randomness are the system's.
#[derive(Debug)]
struct OwnThreads {
    anywhere: SystemRuntime,
    /// For threads that no caller waits for, if the system can pin threads to other processors.
    aside: Option<SystemRuntime>,
    started: Mutex<Vec<String>>,
}

impl OwnThreads {
    fn new() -> OwnThreads {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let others: Vec<usize> = (1..processors).collect();
        let aside = SystemRuntime::on_processors(&others).ok();
        OwnThreads { anywhere: SystemRuntime::new(), aside, started: Mutex::default() }
    }
}

impl Runtime for OwnThreads {
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        let is_aside = name.starts_with("braiddb-merge");
        self.started.lock().map_err(|_| io::ErrorKind::Other)?.push(name.to_owned());
        self.aside.as_ref().filter(|_| is_aside).unwrap_or(&self.anywhere).spawn(name, body)
    }

    fn give_way(&self) {
        self.anywhere.give_way();
    }

    fn unix_time_us(&self) -> u64 {
        self.anywhere.unix_time_us()
    }

    fn monotonic_ns(&self) -> u64 {
        self.anywhere.monotonic_ns()
    }

    fn monotonic_coarse_ns(&self) -> u64 {
        self.anywhere.monotonic_coarse_ns()
    }

    fn random_u64(&self) -> u64 {
        self.anywhere.random_u64()
    }

    fn sleep_us(&self, micros: u64) {
        self.anywhere.sleep_us(micros);
    }

    fn process_name(&self) -> String {
        self.anywhere.process_name()
    }
}

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("braiddb-own-threads-{}", std::process::id()));
    let threads = Arc::new(OwnThreads::new());
    let db = Db::builder().memory(16 << 20).background_threads(2).runtime(Arc::clone(&threads) as _).open(&dir)?;
    let tree = db.tree("numbers")?;
    for number in 0..200_000_u32 {
        tree.put_with(number.wrapping_mul(2_654_435_761).to_be_bytes(), [7; 100], Durability::Buffered)?;
    }
    let stats = db.stats();
    db.close()?;
    let mut started = threads.started.lock().map(|names| names.clone()).unwrap_or_default();
    started.sort();
    assert!(stats.merges > 0 && started.iter().any(|name| name.starts_with("braiddb-merge")), "{started:?}");
    println!("threads: {}", started.join(", "));
    println!("merge threads kept off the first processor: {}", threads.aside.is_some());
    println!("{} flushes, {} merges, {} folds", stats.flushes, stats.merges, stats.folds);
    std::fs::remove_dir_all(&dir).map_err(|e| braiddb::Error::Io { action: "remove", path: dir, source: e })?;
    Ok(())
}
