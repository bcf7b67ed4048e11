//! Shows the engine's log on standard error.

use std::io::{self, Write};

use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt,
    layer::{Layer as _, SubscriberExt as _},
    registry,
    util::SubscriberInitExt as _,
};

use crate::output::note;

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
