//! The report of a benchmark: a line like db_bench's with an optional table of latencies, or a line
//! of JSON.

use std::io::{self, Write};

use braiddb::stats::Stats;
use serde_json::{Map, Value, json};

use super::{
    arguments::BenchArguments,
    distribution::Distribution,
    expect::Expected,
    latencies::Summary,
    runner::{Outcome, Side},
    workload::Plan,
};
use crate::notation::{show_bytes, show_count};

pub struct Benchmark<'a> {
    pub name: &'a str,
    pub plan: &'a Plan,
    pub distribution: Option<Distribution>,
    pub outcome: &'a Outcome,
    pub expected: Option<Expected>,
    pub harness_ns: Option<f64>,
    pub rows_before: u64,
    pub stats: [&'a Stats; 2],
    pub problems: &'a [String],
}

pub fn write_header(arguments: &BenchArguments, dir: &str, out: &mut dyn Write) -> io::Result<()> {
    if cfg!(debug_assertions) {
        writeln!(out, "This is a debug build: it is slow, and its numbers mean nothing. Build with `--release`.\n")?;
    }
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let values = arguments.value_size.map_or_else(|| "100 (YCSB 1000)".to_owned(), |size| size.to_string());
    let compressible = arguments.compressible * 100.0;
    let commits = if arguments.sync { "durable" } else { "buffered" };
    let compression = format!("{:?}", arguments.compression).to_lowercase();
    writeln!(out, "braid {}, {processors} processors; threads: {}", env!("CARGO_PKG_VERSION"), arguments.threads)?;
    writeln!(
        out,
        "keys of {} bytes, values of {values} bytes, {compressible:.0} % compressible; up to {} rows",
        arguments.key_size,
        show_count(arguments.num)
    )?;
    writeln!(
        out,
        "memory {}, compression {compression}, commits {commits}, seed {}{}",
        show_bytes(arguments.memory),
        arguments.seed,
        if arguments.direct_io { ", direct I/O" } else { "" }
    )?;
    writeln!(out, "in {dir}\n")
}

impl Benchmark<'_> {
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let front = &self.outcome.front;
        writeln!(out, "{}{}", line(self.name, front), self.found_text())?;
        if let Some(writer) = &self.outcome.background {
            writeln!(out, "{}", line("  its writer", writer))?;
        }
        let mut summaries = front.latencies.summaries();
        summaries.extend(self.outcome.background.iter().flat_map(|writer| writer.latencies.summaries()));
        write_latencies(&summaries, out)?;
        if let Some(us) = self.outcome.processor_us().filter(|_| !summaries.is_empty()) {
            writeln!(out, "  CPU time of the process: {us:.3} us per operation")?;
        }
        if let Some(ns) = self.harness_ns.filter(|_| !summaries.is_empty()) {
            writeln!(out, "  of which the benchmark's own: {:.3} us per operation", ns / 1000.0)?;
        }
        if self.needs_rows() && self.rows_before == 0 {
            writeln!(
                out,
                "  note: there were no rows: run a fill first, for example --benchmarks fillrandom,{}",
                self.name
            )?;
        }
        write_problems(self.problems, out)
    }

    fn needs_rows(&self) -> bool {
        !self.plan.action.is_blind()
    }

    fn found_text(&self) -> String {
        let tally = &self.outcome.front.tally;
        if self.plan.action.is_point_read() {
            return format!(" ({} of {} found)", show_count(tally.found), show_count(tally.found + tally.missed));
        }
        if tally.found > 0 { format!(" ({} rows read)", show_count(tally.found)) } else { String::new() }
    }

    pub fn to_json(&self, arguments: &BenchArguments) -> Value {
        let front = &self.outcome.front;
        let tally = &front.tally;
        let mut line = Map::new();
        line.insert("benchmark".into(), self.name.into());
        line.extend(side_json(front));
        line.insert("processor_us_per_operation".into(), self.outcome.processor_us().into());
        line.insert("num".into(), self.plan.rows.into());
        line.insert("key_size".into(), arguments.key_size.into());
        line.insert("value_size".into(), self.plan.value_size.to_string().into());
        line.insert("compressible".into(), arguments.compressible.into());
        line.insert("threads".into(), arguments.threads.into());
        line.insert("distribution".into(), self.distribution.map(|it| it.to_string()).into());
        line.insert("batch_size".into(), self.plan.batch.into());
        line.insert("durable".into(), self.plan.is_durable.into());
        line.insert("memory".into(), arguments.memory.into());
        line.insert("direct_io".into(), arguments.direct_io.into());
        line.insert("compression".into(), format!("{:?}", arguments.compression).to_lowercase().into());
        line.insert("write_rate".into(), arguments.write_rate.into());
        line.insert("seed".into(), arguments.seed.into());
        line.insert("rows_before".into(), self.rows_before.into());
        line.insert("found".into(), tally.found.into());
        line.insert("missed".into(), tally.missed.into());
        let expected = self.expected.map(|expected| json!([expected.least.count, expected.most.count]));
        line.insert("found_expected".into(), expected.into());
        line.insert("harness_ns".into(), self.harness_ns.into());
        line.insert("writer".into(), self.outcome.background.as_ref().map(side_json).into());
        line.insert("engine".into(), engine_json(self.stats));
        line.insert("problems".into(), self.problems.into());
        Value::Object(line)
    }
}

pub fn write_problems(problems: &[String], out: &mut dyn Write) -> io::Result<()> {
    problems.iter().try_for_each(|problem| writeln!(out, "  WRONG: {problem}"))
}

pub fn write_once(name: &str, seconds: f64, what: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{name:<16} : {seconds:>10.3} seconds; {what}")
}

fn line(name: &str, side: &Side) -> String {
    let (operations, bytes) = (side.operations as f64, side.tally.bytes as f64);
    let seconds = side.seconds.max(1e-9);
    let bandwidth = if bytes > 0.0 { format!("; {:.1} MB/s", bytes / 1e6 / seconds) } else { String::new() };
    format!(
        "{name:<16} : {:>10.3} micros/op {:>10} ops/sec {:>8.3} seconds {:>11} operations{bandwidth}",
        side.seconds * 1e6 / operations.max(1.0),
        show_count((operations / seconds) as u64),
        side.seconds,
        show_count(side.operations),
    )
}

fn write_latencies(summaries: &[Summary], out: &mut dyn Write) -> io::Result<()> {
    if summaries.is_empty() {
        return Ok(());
    }
    write!(out, "  {:<10} {:>11}", "latency us", "calls")?;
    for heading in ["mean", "p50", "p95", "p99", "p99.9", "p99.99", "max"] {
        write!(out, " {heading:>10}")?;
    }
    writeln!(out)?;
    for summary in summaries {
        let us = |ns: u64| ns as f64 / 1000.0;
        write!(out, "  {:<10} {:>11} {:>10.2}", summary.name, show_count(summary.count), summary.mean / 1000.0)?;
        for ns in [summary.p50, summary.p95, summary.p99, summary.p999, summary.p9999, summary.max] {
            write!(out, " {:>10.2}", us(ns))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn side_json(side: &Side) -> Map<String, Value> {
    let operations = side.operations as f64;
    let latencies = side.latencies.summaries();
    let latencies: Map<String, Value> =
        latencies.iter().map(|summary| (summary.name.to_owned(), summary_json(summary))).collect();
    let mut out = Map::new();
    out.insert("operations".into(), side.operations.into());
    out.insert("seconds".into(), side.seconds.into());
    out.insert("operations_per_second".into(), (operations / side.seconds.max(1e-9)).into());
    out.insert("us_per_operation".into(), (side.seconds * 1e6 / operations.max(1.0)).into());
    out.insert("bytes".into(), side.tally.bytes.into());
    out.insert("latency_ns".into(), if latencies.is_empty() { Value::Null } else { latencies.into() });
    out
}

fn summary_json(summary: &Summary) -> Value {
    json!({
        "count": summary.count,
        "mean": summary.mean,
        "p50": summary.p50,
        "p95": summary.p95,
        "p99": summary.p99,
        "p99.9": summary.p999,
        "p99.99": summary.p9999,
        "max": summary.max,
    })
}

fn engine_json([before, after]: [&Stats; 2]) -> Value {
    let since = |counter: fn(&Stats) -> u64| counter(after).saturating_sub(counter(before));
    json!({
        "commits": since(|stats| stats.commits),
        "user_bytes_written": since(|stats| stats.user_bytes_written),
        "log_bytes_written": since(|stats| stats.log_bytes_written),
        "run_bytes_written": since(|stats| stats.run_bytes_written),
        "view_bytes_written": since(|stats| stats.view_bytes_written),
        "blob_bytes_written": since(|stats| stats.blob_bytes_written),
        "syncs": since(|stats| stats.syncs),
        "flushes": since(|stats| stats.flushes),
        "merges": since(|stats| stats.merges),
        "folds": since(|stats| stats.folds),
        "cache_hits": since(|stats| stats.cache_hits),
        "cache_misses": since(|stats| stats.cache_misses),
        "slowed_us": since(|stats| stats.slowed_us),
        "stalls": since(|stats| stats.stalls),
        "disk_bytes": after.disk_bytes,
        "memory_bytes": after.memory_bytes,
    })
}
