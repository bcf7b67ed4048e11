//! Shows the log of the engine and of the command on standard error.
//!
//! At level info (`-v`): how each database was opened, flushes, merges and waits, rates, and the time
//! of the command. At level debug (`-vv`): what the engine does, with the begin of each job.

use std::{
    io::{self, Write},
    path::Path,
    time::{Duration, Instant},
};

use braiddb::{Builder, Db, events::Event};
use tracing::{debug, enabled, info};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt,
    layer::{Layer as _, SubscriberExt as _},
    registry,
    util::SubscriberInitExt as _,
};

use crate::{
    notation::{show_bytes, show_count, show_counted},
    output::note,
};

const VARIABLE: &str = "RUST_LOG";

/// Writes to standard error and ignores failures. Each event arrives in one call.
struct Notes;

impl Write for Notes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        note!("{}", String::from_utf8_lossy(bytes).trim_end());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub fn start(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let wanted = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let filter = match wanted.as_deref().map(str::parse::<Targets>) {
        None => Targets::new().with_default(level),
        Some(Ok(filter)) => filter,
        Some(Err(error)) => {
            note!("braid: ignoring {VARIABLE}: {error}");
            Targets::new().with_default(level)
        }
    };
    let lines = fmt::layer()
        .with_writer(|| Notes)
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .log_internal_errors(false)
        .with_filter(filter);
    // Fails if logging has started already, as in tests.
    let _ = registry().with(lines).try_init();
}

/// Logs the events of databases that `builder` opens.
pub fn with_events(builder: Builder) -> Builder {
    if enabled!(tracing::Level::INFO) { builder.on_event(note_event) } else { builder }
}

fn note_event(event: &Event) {
    match event {
        Event::FlushEnd { took, is_done: true } => info!("flushed a memtable in {took:.1?}"),
        Event::MergeEnd { partition, kind, took, is_done: true } => {
            info!("partition {partition}: {kind} in {took:.1?}");
        }
        Event::ThrottleBegin => info!("commits are throttled: merges fall behind"),
        Event::ThrottleEnd => info!("commits are not throttled any more"),
        Event::StallBegin => info!("commits wait for a flush"),
        Event::StallEnd { took } => info!("commits have waited for a flush for {took:.1?}"),
        // The engine logs it.
        Event::SlowCommit(_) => {}
        event => debug!("{event:?}"),
    }
}

/// Logs the time of an open and what it found.
pub fn note_opened(path: &Path, access: &str, db: &Db, begun: Instant) {
    if !enabled!(tracing::Level::INFO) {
        return;
    }
    let (took, stats) = (begun.elapsed(), db.stats());
    let runs = stats.partitions.iter().map(|partition| partition.runs.len() + partition.loose.len()).sum::<usize>();
    info!(
        "opened {} {access} in {took:.1?}: commit {}, {} and {} on disk, {} read from the log",
        path.display(),
        stats.last_sequence,
        show_counted(runs as u64, "run"),
        show_bytes(stats.disk_bytes),
        show_counted(stats.recovered_records, "record")
    );
}

/// Logs an amount and its rate.
pub fn note_rate(verb: &str, records: u64, took: Duration) {
    let per_second = records as f64 / took.as_secs_f64().max(1e-6);
    info!("{verb} {} in {took:.1?}: {} per second", show_counted(records, "record"), show_count(per_second as u64));
}
