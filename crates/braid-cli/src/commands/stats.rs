//! `braid stats`

use std::io::Write;

use anyhow::Result;

use super::open::open_for_reading;
use crate::{arguments::StatsArguments, demo::Drawn, exit::OK, output::Stdout, statistics};

/// Prints what the engine counts. Bytes written, commits and the like are counted from the opening on.
pub fn stats(arguments: &StatsArguments) -> Result<u8> {
    let db = open_for_reading(&arguments.db, &arguments.read)?;
    let stats = db.stats();
    let mut out = Stdout::new();
    if arguments.json {
        writeln!(out, "{:#}", statistics::to_json(&stats))?;
    } else {
        statistics::write_text(&stats, if arguments.partitions { Drawn::All } else { Drawn::Worst }, &mut out)?;
    }
    out.finish()?;
    Ok(OK)
}
