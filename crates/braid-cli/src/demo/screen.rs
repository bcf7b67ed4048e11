//! The final screen of the demonstration.

use std::io::{self, Write};

use braiddb::stats::Stats;

use super::{
    importer::ImportRun,
    lookups::LookupKind,
    picture::{Drawn, draw_partitions},
    verification::Verification,
};
use crate::{
    freedb::generator::DumpReport,
    import::{StageReport, StagesReport, written_bytes},
    notation::{show_bytes, show_count, show_rate},
};

const COLUMNS: usize = 96;

pub struct Closing<'a> {
    pub dump: DumpReport,
    pub imports: [&'a ImportRun; 2],
    pub open_seconds: f64,
    pub verified: &'a Verification,
    pub lookups: &'a [LookupKind],
    pub stats: &'a Stats,
    pub seconds: f64,
}

pub fn write_screen(closing: &Closing<'_>, out: &mut dyn Write) -> io::Result<()> {
    heading("Lookups", out)?;
    for kind in closing.lookups {
        writeln!(
            out,
            "  {:<17} p50 {:>7.1} us   p99 {:>7.1} us   {:>6} queries found {:>7} records",
            kind.name,
            kind.percentile_us(50),
            kind.percentile_us(99),
            show_count(kind.queries),
            show_count(kind.records)
        )?;
        if !kind.example.is_empty() {
            let example: String = kind.example.chars().take(COLUMNS - 8).collect();
            writeln!(out, "      {example}")?;
        }
    }

    heading("Bytes", out)?;
    write_bytes(closing, out)?;

    heading("Rates (each stage by its busy time)", out)?;
    write_rates(closing, out)?;

    heading("Partitions, their runs and views", out)?;
    out.write_all(draw_partitions(&closing.stats.partitions, Drawn::Worst, COLUMNS).as_bytes())?;
    writeln!(out, "\nTotal {:.1} s; the last open took {:.0} ms", closing.seconds, closing.open_seconds * 1000.0)
}

fn heading(text: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n━━ {text} {}", "━".repeat(COLUMNS.saturating_sub(text.chars().count() + 4)))
}

fn write_rates(closing: &Closing<'_>, out: &mut dyn Write) -> io::Result<()> {
    let [first, second] = closing.imports;
    let stages = first.acknowledged.stages.plus(second.acknowledged.stages);
    let StagesReport { read, parse, write } = stages;
    let seconds = |stage: StageReport| stage.busy_ns as f64 / 1e9;
    rate("store", write.records, write.bytes, seconds(write), out)?;
    rate("verify", closing.verified.acknowledged, 0, closing.verified.seconds, out)?;
    rate("parse", parse.records, parse.bytes, seconds(parse), out)?;
    rate("unpack", read.records, read.bytes, seconds(read), out)?;
    rate("import", write.records, write.bytes, first.seconds + second.seconds, out)?;
    writeln!(out, "  import runs all stages in parallel, in both processes; unpack is bzip2")
}

fn rate(name: &str, records: u64, bytes: u64, seconds: f64, out: &mut dyn Write) -> io::Result<()> {
    let seconds = seconds.max(1e-9);
    let bytes = match bytes {
        0 => String::new(),
        bytes => format!("{}/s", show_bytes((bytes as f64 / seconds) as u64)),
    };
    writeln!(out, "  {name:<8} {:>10} discs/s {bytes:>14}   {seconds:>6.1} s", show_rate(records as f64 / seconds))
}

fn write_bytes(closing: &Closing<'_>, out: &mut dyn Write) -> io::Result<()> {
    let [first, second] = closing.imports.map(|run| &run.acknowledged);
    let given = first.given_bytes + second.given_bytes;
    let written = first.written_bytes + second.written_bytes + written_bytes(closing.stats);
    let ratio = |bytes: u64, of: u64| bytes as f64 / of.max(1) as f64;
    writeln!(out, "  given    {:>11}   keys and values, with their index entries", show_bytes(given))?;
    writeln!(out, "  written  {:>11}   {:.2} × given, including the log", show_bytes(written), ratio(written, given))?;
    writeln!(
        out,
        "  on disk  {:>11}   {:.2} × given, {:.2} × the discs' files",
        show_bytes(closing.stats.disk_bytes),
        ratio(closing.stats.disk_bytes, given),
        ratio(closing.stats.disk_bytes, closing.dump.disc_bytes)
    )
}
