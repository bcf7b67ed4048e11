//! The parts of a frame as lines of text, for the screen and for `--once`.

use super::{
    frame::Frame,
    reading::{Inside, OldReader, SlowCommit, SlowTotal, TreeLine},
};
use crate::notation::{show_bytes, show_count, show_counted, show_name, show_rate};

/// Statistics that only the process with the open database has.
pub const NOT_KNOWN: [&str; 7] =
    ["gets and puts", "latencies", "memory", "background work", "throttling", "readers", "slow commits"];

/// Title of the alarms.
pub const ALARMS: &str = "Alarms";

#[derive(Debug)]
pub struct Section {
    pub title: &'static str,
    pub lines: Vec<Line>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    pub text: String,
    pub is_alarm: bool,
}

impl From<String> for Line {
    fn from(text: String) -> Line {
        Line { text, is_alarm: false }
    }
}

fn alarm(text: String) -> Line {
    Line { text, is_alarm: true }
}

/// The most important sections come first.
pub fn sections(frame: &Frame) -> Vec<Section> {
    let mut found = Vec::new();
    let mut add = |title, lines: Vec<Line>| {
        if !lines.is_empty() {
            found.push(Section { title, lines });
        }
    };
    add(ALARMS, frame.now.alarms.iter().map(|text| alarm(text.clone())).collect());
    add("Rates", rates(frame));
    if let Some(inside) = &frame.now.inside {
        add("Background work", background(frame, inside));
        add("Memory", memory(inside));
        add("Readers", readers(inside));
        let commits = inside.slow_commits.iter().flatten().map(show_slow_commit);
        add("Slow commits", slow_totals(inside).into_iter().chain(commits).collect());
    }
    add("Files", files(frame));
    add("Trees, by size", trees(frame));
    if frame.now.inside.is_none() {
        add("Not known here", not_known());
    }
    found
}

/// Title, owner and size in one line.
pub fn headline(frame: &Frame) -> String {
    let (commit, disk) = (show_count(frame.now.sizes.last_commit), show_bytes(frame.now.sizes.disk_bytes));
    format!("{}  commit {commit}  {disk}  {}", frame.title, frame.now.owner)
}

fn row(name: &str, text: String) -> Line {
    format!("{name:<12} {text}").into()
}

fn per_second(rate: f64) -> String {
    format!("{:>9}/s", show_rate(rate))
}

fn rates(frame: &Frame) -> Vec<Line> {
    let mut lines = vec![row("commits", per_second(frame.commits_per_second))];
    for latency in &frame.latencies {
        let mut text = per_second(latency.per_second);
        if let (Some(p50), Some(p99)) = (latency.p50_us, latency.p99_us) {
            text.push_str(&format!("  p50 < {}  p99 < {}", show_age(p50), show_age(p99)));
        }
        let plural = if latency.kind.ends_with("ch") { "es" } else { "s" };
        lines.push(row(&format!("{}{plural}", latency.kind), text));
    }
    let Some(change) = &frame.change else { return lines };
    let bytes = |count| format!("{:>9}/s", show_bytes(frame.per_second(count) as u64));
    lines.push(row("user bytes", bytes(change.user_bytes_written)));
    lines.push(row("log bytes", bytes(change.log_bytes_written)));
    lines.push(row("file bytes", bytes(change.file_bytes_written)));
    lines.push(row("syncs", per_second(frame.per_second(change.syncs))));
    lines.push(row("conflicts", per_second(frame.per_second(change.conflicts))));
    let lookups = change.cache_hits + change.cache_misses;
    if lookups > 0 {
        let percent = change.cache_hits as f64 * 100.0 / lookups as f64;
        lines.push(row("cache hits", format!("{percent:>9.1} %")));
    }
    lines
}

fn background(frame: &Frame, inside: &Inside) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(change) = &frame.change {
        lines.push(row("flushes", per_second(frame.per_second(change.flushes))));
        lines.push(row("merges", per_second(frame.per_second(change.merges))));
        lines.push(row("folds", per_second(frame.per_second(change.folds))));
        let throttled = frame.per_second(change.slowed_us) / 1e4;
        lines.push(Line { is_alarm: throttled > 0.0, ..row("throttled", format!("{throttled:>9.1} % of a second")) });
        lines.push(Line { is_alarm: change.stalls > 0, ..row("stalls", per_second(frame.per_second(change.stalls))) });
    }
    let pressure = inside.pressure_per_mille;
    let state = if pressure >= 500 { ": commits are throttled" } else { "" };
    lines.push(Line {
        is_alarm: pressure >= 500,
        ..row("pressure", format!("{:>9.1} %{state}", pressure as f64 / 10.0))
    });
    if inside.stall_us_max > 0 {
        lines.push(row("longest", format!("{:>9} of waiting for a flush", show_age(inside.stall_us_max))));
    }
    lines.push(row("to flush", format!("{:>9}", show_counted(inside.frozen_memtables, "memtable"))));
    if inside.counters.background_errors > 0 {
        lines.push(alarm(format!("{} in the background", show_counted(inside.counters.background_errors, "error"))));
    }
    lines
}

fn memory(inside: &Inside) -> Vec<Line> {
    let memory = &inside.memory;
    let full =
        format!("{:>9}, {} each at most", show_bytes(memory.memtable_bytes), show_bytes(memory.memtable_bytes_max));
    vec![
        row("all", format!("{:>9}", show_bytes(memory.all_bytes))),
        row("memtables", full),
        row("cache", format!("{:>9}", show_bytes(memory.cache_bytes))),
        row("hash indexes", format!("{:>9}", show_bytes(memory.hash_index_bytes))),
        row("open files", format!("{:>9}", show_count(memory.open_files))),
    ]
}

fn readers(inside: &Inside) -> Vec<Line> {
    let readers = &inside.readers;
    let oldest = readers.oldest_age_us.map_or(String::new(), |age| format!(", the oldest for {}", show_age(age)));
    let mut lines = vec![row("open", format!("{:>9}{oldest}", show_count(readers.count)))];
    if readers.garbage_entries > 0 {
        lines.push(row("pinned", show_counted(readers.garbage_entries, "garbage entry")));
    }
    if readers.expired > 0 {
        lines.push(row("expired", format!("{:>9}", show_count(readers.expired))));
    }
    lines.extend(readers.old.iter().map(show_reader));
    lines
}

fn show_reader(reader: &OldReader) -> Line {
    let pins = match reader.is_expired {
        true => "expired".to_owned(),
        false => format!("pins {}", show_counted(reader.garbage_entries, "garbage entry")),
    };
    let (kind, commit, age) = (&reader.kind, show_count(reader.commit), show_age(reader.age_us));
    alarm(format!("{kind} at commit {commit}, for {age}, {} behind, {pins}", show_count(reader.commits_behind)))
}

/// The number of slow commits by cause, the most frequent first.
fn slow_totals(inside: &Inside) -> Option<Line> {
    let mut totals: Vec<&SlowTotal> = inside.slow_totals.iter().collect();
    totals.sort_by_key(|total| std::cmp::Reverse(total.commits));
    let shown = totals.iter().map(|total| format!("{} {}", total.cause.replace('_', " "), show_count(total.commits)));
    let shown = shown.collect::<Vec<_>>().join(", ");
    (!shown.is_empty()).then(|| format!("by cause: {shown}").into())
}

fn show_slow_commit(commit: &SlowCommit) -> Line {
    let number = commit.commit.map_or("failed".to_owned(), show_count);
    let mut parts: Vec<&(String, u64)> = commit.parts.iter().collect();
    parts.sort_by_key(|(_, us)| std::cmp::Reverse(*us));
    let parts = parts.iter().map(|(name, us)| format!("{name} {}", show_age(*us))).collect::<Vec<_>>().join(", ");
    let parts = if parts.is_empty() { commit.cause.clone() } else { parts };
    let waited = commit.background.as_ref().map_or(String::new(), |work| format!("; waited for {work}"));
    format!("{:>9}  commit {number}: {}{waited}", show_age(commit.took_us), parts.replace('_', " ")).into()
}

fn files(frame: &Frame) -> Vec<Line> {
    let sizes = &frame.now.sizes;
    vec![
        row("on disk", format!("{:>9}", show_bytes(sizes.disk_bytes))),
        row("partitions", format!("{:>9}", show_count(sizes.partitions))),
        row("runs", format!("{:>9}, {} unindexed", show_count(sizes.runs), show_count(sizes.unindexed_runs))),
        row("garbage", format!("{:>9}", show_counted(sizes.garbage_entries, "entry"))),
    ]
}

/// The largest trees first.
fn trees(frame: &Frame) -> Vec<Line> {
    let mut lines: Vec<Line> = frame.now.trees.iter().map(show_tree).collect();
    if frame.now.trees_left_out > 0 {
        lines.push(format!("and {}", show_counted(frame.now.trees_left_out as u64, "more tree")).into());
    }
    lines
}

fn show_tree(tree: &TreeLine) -> Line {
    let what = if tree.is_multi { "pair" } else { "key" };
    let keys = show_counted(tree.keys, what);
    format!("{:>9}  about {keys:<16} {}", show_bytes(tree.bytes), show_name(&tree.name)).into()
}

fn not_known() -> Vec<Line> {
    let known_by = "only the process that has the database open knows them:";
    vec![
        format!("{},", NOT_KNOWN[..4].join(", ")).into(),
        format!("{}:", NOT_KNOWN[4..].join(", ")).into(),
        known_by.to_owned().into(),
        "serve it with `braid serve`, and run `braid top http://HOST:PORT`".to_owned().into(),
    ]
}

/// A duration with two or three digits: `850 us`, `1.5 ms`, `12 s`, `3 h`.
pub fn show_age(us: u64) -> String {
    const UNITS: [(u64, u64, &str); 6] = [
        (1, 1_000, "us"),
        (1_000, 1_000_000, "ms"),
        (1_000_000, 120_000_000, "s"),
        (60_000_000, 7_200_000_000, "min"),
        (3_600_000_000, 172_800_000_000, "h"),
        (86_400_000_000, u64::MAX, "days"),
    ];
    let (unit, _, name) = UNITS.into_iter().find(|(_, end, _)| us < *end).unwrap_or(UNITS[5]);
    let scaled = us as f64 / unit as f64;
    if unit == 1 || scaled >= 10.0 { format!("{scaled:.0} {name}") } else { format!("{scaled:.1} {name}") }
}
