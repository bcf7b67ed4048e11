//! The report in Markdown.

use super::{
    load, plot,
    standing::{OURS, Standing, standings},
    summary::{Summaries, Summary},
};
use crate::{
    bars::{Bound, Versus},
    machine::Machine,
    results::{Results, Row, Status},
};
use anyhow::{Result, ensure};
use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

const COLUMNS: [(&str, &str); 9] = [
    ("rate", "per second"),
    ("p50_us", "p50"),
    ("p99_us", "p99"),
    ("p999_us", "p99.9"),
    ("max_us", "max"),
    ("cpu_us", "CPU per op"),
    ("write_amp", "written / user bytes"),
    ("space_amp", "space / user bytes"),
    ("settle_s", "idle after"),
];

pub fn write(results: &Path, into: &Path) -> Result<()> {
    let results = Results::read(results)?;
    ensure!(!results.rows.is_empty() || !results.parts.is_empty(), "there are no results yet");
    fs::create_dir_all(into)?;
    let sizes: BTreeSet<u64> = results.rows.keys().map(|key| key.n).collect();
    let mut text = String::from("# BraidDB beside its peers\n\n");
    for machine in &results.machines {
        push_machine(&mut text, machine)?;
    }
    for row in results.parts.values() {
        super::parts::push_parts(&mut text, row)?;
    }
    for &n in &sizes {
        let summaries = Summaries::of(&results, n);
        let standings = standings(&summaries);
        writeln!(text, "## N = {n}\n")?;
        text.push_str(&kept_loads(results.rows.values().filter(|row| row.key.n == n)));
        push_bars(&mut text, &standings, &summaries)?;
        let plot = format!("ratios-{n}.svg");
        fs::write(into.join(&plot), plot::ratios(&standings, n))?;
        writeln!(text, "\n![ratios to the peer of each bar]({plot})\n")?;
        if let Some(svg) = plot::iterators(&summaries, n) {
            let plot = format!("iterators-{n}.svg");
            fs::write(into.join(&plot), svg)?;
            writeln!(text, "![closures and iterators beside LMDB]({plot})\n")?;
        }
        if let Some(svg) = load::draw(&summaries, n) {
            let plot = format!("load-{n}.svg");
            fs::write(into.join(&plot), svg)?;
            writeln!(
                text,
                "### Latency against load\n\n![latency against load]({plot})\n\n{}",
                load::table(&summaries)
            )?;
        }
        push_measures(&mut text, &summaries)?;
        push_memory(&mut text, &summaries)?;
        push_troubles(&mut text, &summaries)?;
    }
    if sizes.len() > 1 {
        let all: Vec<(u64, Summaries)> = sizes.iter().map(|&n| (n, Summaries::of(&results, n))).collect();
        fs::write(into.join("sizes.svg"), plot::sizes(&all))?;
        writeln!(text, "## Cost against size\n\n![time per operation against N](sizes.svg)")?;
    }
    fs::write(into.join("report.md"), text)?;
    println!("{}", into.join("report.md").display());
    Ok(())
}

/// Rows with kept loads are not comparable with fresh ones.
fn kept_loads<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let (mut all, mut kept) = (0, 0);
    for row in rows {
        all += 1;
        kept += usize::from(row.kept_loads);
    }
    match kept {
        0 => String::new(),
        _ => format!(
            "{kept} of {all} rows were measured with `--keep-loads`: their databases were reopened after the load.\n\n"
        ),
    }
}

fn push_machine(text: &mut String, machine: &Machine) -> Result<()> {
    let Machine { processor, cores, memory_mib, kernel, filesystem, rustc, c_compiler, commit, versions } = machine;
    writeln!(text, "- {cores} cores of {processor}, {memory_mib} MiB, Linux {kernel}, {filesystem}")?;
    writeln!(text, "- {rustc}; {c_compiler}; BraidDB at {commit}")?;
    let versions: Vec<String> = versions.iter().map(|(engine, version)| format!("{engine} ({version})")).collect();
    writeln!(text, "- {}\n", versions.join(", "))?;
    Ok(())
}

fn push_bars(text: &mut String, standings: &[Standing], summaries: &Summaries) -> Result<()> {
    writeln!(
        text,
        "Medians of the rounds. The ratio is BraidDB's figure to the named peer's. Two kinds of writes are shown \
         below, but never as the best peer: sled's durable commits, because its `flush` does not reach the \
         device, and those of Bf-Tree, which neither logs nor groups them.\n"
    )?;
    writeln!(text, "| workload | figure | BraidDB | peer | RocksDB | ratio | bar | met |")?;
    writeln!(text, "|---|---|--:|--:|--:|--:|--:|---|")?;
    for standing in standings {
        let bar = standing.bar;
        let show = |value: Option<f64>| value.map_or("-".to_owned(), |value| figure(bar.figure, value));
        let peer = standing
            .peer
            .as_ref()
            .map_or("-".to_owned(), |(engine, value)| format!("{engine} {}", figure(bar.figure, *value)));
        let rocks = show(summaries.figure(bar.measure, "rocksdb", bar.figure));
        let (ratio, unit) = match bar.versus {
            Versus::Nobody => ("-".to_owned(), ""),
            _ => (standing.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")), " ×"),
        };
        let sign = if matches!(bar.bound, Bound::AtLeast(_)) { "≥" } else { "≤" };
        let met = standing.is_met().map_or("no figure", |met| if met { "yes" } else { "**no**" });
        writeln!(
            text,
            "| `{}` | {} | {} | {peer} | {rocks} | {ratio} | {sign} {}{unit} | {met} |",
            bar.measure,
            bar.figure,
            show(standing.ours),
            bar.bound.value(),
        )?;
    }
    Ok(())
}

fn push_measures(text: &mut String, summaries: &Summaries) -> Result<()> {
    writeln!(
        text,
        "### Each workload\n\nLatencies and processor time in µs. Wrong answers are marked beside the name.\n"
    )?;
    for name in summaries.order.iter().filter(|name| !load::has(name)) {
        let engines = &summaries.by_measure[name];
        let has = |figure: &str| engines.values().any(|summary| summary.figures.contains_key(figure));
        let columns: Vec<(&str, &str)> = COLUMNS.into_iter().filter(|(figure, _)| has(figure)).collect();
        let headings: Vec<&str> = columns.iter().map(|(_, heading)| *heading).collect();
        writeln!(text, "`{name}`\n\n| engine | {} | more |", headings.join(" | "))?;
        writeln!(text, "|---|{}---|", "--:|".repeat(columns.len()))?;
        let mut sorted: Vec<(&String, &Summary)> = engines.iter().collect();
        let rank = |summary: &Summary| summary.figures.get("rate").copied().unwrap_or(0.0);
        sorted.sort_by(|one, other| rank(other.1).total_cmp(&rank(one.1)));
        for (engine, summary) in sorted {
            let cells = columns
                .iter()
                .map(|(name, _)| summary.figures.get(*name).map_or("-".to_owned(), |value| figure(name, *value)));
            let cells: Vec<String> = cells.collect();
            let wrong = if summary.correct { "" } else { " **wrong answers**" };
            writeln!(text, "| {engine}{wrong} | {} | {} |", cells.join(" | "), others(summary))?;
        }
        text.push('\n');
    }
    Ok(())
}

fn others(summary: &Summary) -> String {
    const HIDDEN: [&str; 4] = ["ops", "seconds", "written_bytes", "space_bytes"];
    let is_other = |name: &str| !HIDDEN.contains(&name) && COLUMNS.iter().all(|(column, _)| *column != name);
    let shown = summary.figures.iter().filter(|(name, _)| is_other(name));
    shown.map(|(name, value)| format!("{name} {}", figure(name, *value))).collect::<Vec<_>>().join(", ")
}

fn push_memory(text: &mut String, summaries: &Summaries) -> Result<()> {
    let engines: BTreeSet<&String> = summaries.memory.values().flat_map(|engines| engines.keys()).collect();
    let names: Vec<&str> = engines.iter().map(|engine| engine.as_str()).collect();
    writeln!(
        text,
        "### Peak memory\n\nAnonymous memory in MiB, in brackets with mapped files. The harness takes about 4 MiB.\n"
    )?;
    writeln!(text, "| workload | budget | {} | {OURS} within |", names.join(" | "))?;
    writeln!(text, "|---|--:|{}---|", "--:|".repeat(names.len()))?;
    for workload in crate::workloads::all() {
        let Some(memory) = summaries.memory.get(workload.name) else { continue };
        let mib = |bytes: f64| format!("{:.0}", bytes / (1 << 20) as f64);
        let budget = memory.values().next().map_or("-".to_owned(), |[_, _, budget]| mib(*budget));
        let cells = engines.iter().map(|engine| {
            memory.get(*engine).map_or("-".to_owned(), |[own, all, _]| format!("{} ({})", mib(*own), mib(*all)))
        });
        let cells: Vec<String> = cells.collect();
        let within = memory.get(OURS).map_or("-", |[own, _, budget]| if own <= budget { "yes" } else { "**no**" });
        writeln!(text, "| `{}` | {budget} | {} | {within} |", workload.name, cells.join(" | "))?;
    }
    text.push('\n');
    Ok(())
}

fn push_troubles(text: &mut String, summaries: &Summaries) -> Result<()> {
    let disagreeing = summaries.disagreeing();
    if !disagreeing.is_empty() {
        writeln!(text, "Answers differ between engines: {}.\n", disagreeing.join(", "))?;
    }
    if !summaries.failed.is_empty() {
        writeln!(text, "### Rows without figures\n\n| workload | engine | round | why |\n|---|---|--:|---|")?;
        for row in &summaries.failed {
            let reason = row.reason.replace('|', "/");
            writeln!(text, "| `{}` | {} | {} | {reason} |", row.key.workload, row.key.engine, row.key.round)?;
        }
        text.push('\n');
    }
    Ok(())
}

/// The progress line of a row.
pub fn one_line(row: &Row) -> String {
    let key = &row.key;
    let mut line = format!("{} round {} {:22} {:8}", key.n, key.round, key.workload, key.engine);
    match row.status {
        Status::Ok => {
            for measure in &row.outcome.measures {
                let rate = measure.figures.get("rate").map_or("-".to_owned(), |rate| figure("rate", *rate));
                let wrong = if measure.correct { "" } else { " WRONG ANSWERS" };
                let _ = write!(line, " {rate}/s{wrong}");
            }
        }
        Status::Failed | Status::Timeout => {
            let _ = write!(line, " {:?}: {}", row.status, row.reason);
        }
    }
    let _ = write!(line, " ({:.1} s)", row.child_seconds);
    line
}

fn figure(name: &str, value: f64) -> String {
    match name {
        "rate" | "bytes_per_second" | "replayed" | "lost" => with_unit(value),
        "seconds" | "settle_s" => format!("{value:.1} s"),
        "bytes_per_get" => format!("{value:.0}"),
        _ if value.abs() >= 100.0 => format!("{value:.0}"),
        _ if value.abs() >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn with_unit(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{:.2} G", v / 1e9),
        v if v >= 1e6 => format!("{:.2} M", v / 1e6),
        v if v >= 1e4 => format!("{:.0} k", v / 1e3),
        v if v >= 1e3 => format!("{:.1} k", v / 1e3),
        v => format!("{v:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Outcome, RowKey};

    #[test]
    fn rows_with_kept_loads_are_reported() {
        let row = |round, kept_loads| {
            let key = RowKey { n: 5, workload: "overwrite".into(), engine: "sled".into(), round };
            let (reason, outcome) = (String::new(), Outcome::default());
            Row { key, status: Status::Ok, reason, child_seconds: 1.5, kept_loads, outcome }
        };
        assert_eq!(kept_loads([row(1, false)].iter()), "");
        assert!(kept_loads([row(1, true), row(2, false), row(3, true)].iter()).starts_with("2 of 3 rows"));
    }
}
