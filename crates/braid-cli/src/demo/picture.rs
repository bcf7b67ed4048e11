//! The partitions, their runs and views, drawn with characters.

use std::fmt::Write as _;

use braiddb::{PartitionStats, RunStats};

use crate::notation::{show_bytes, show_count, to_printable};

/// At most so many partitions are drawn; the middle ones are left out.
const PARTITIONS_MAX: usize = 8;

/// At most so many runs of a partition are drawn.
const RUNS_MAX: usize = 10;

/// Columns for what stands left of the bars, and right of them.
const LABEL_COLUMNS: usize = 16;
const NUMBER_COLUMNS: usize = 34;

/// Draws one box a partition, `columns` wide: a bar for each run, as long as the run is large, and the view over them.
pub fn draw_partitions(partitions: &[PartitionStats], columns: usize) -> String {
    let inner = columns.max(70) - 2;
    let bar_columns = inner - LABEL_COLUMNS - NUMBER_COLUMNS;
    let sizes = partitions.iter().flat_map(|partition| partition.runs.iter().chain(&partition.loose));
    let scale = Scale { largest: sizes.map(|run| run.bytes).max().unwrap_or(1).max(1), columns: bar_columns };
    let mut out = String::new();
    let hidden = partitions.len().saturating_sub(PARTITIONS_MAX);
    for (index, partition) in partitions.iter().enumerate() {
        let shown_first = PARTITIONS_MAX / 2;
        if hidden > 0 && index == shown_first {
            let _ = writeln!(out, "   ⋮ {} more partitions", show_count(hidden as u64));
        }
        if hidden == 0 || index < shown_first || index >= shown_first + hidden {
            draw_partition(partition, index, inner, &scale, &mut out);
        }
    }
    if partitions.is_empty() {
        out.push_str("no partitions yet: everything is in the log and in memory\n");
    }
    out
}

fn draw_partition(partition: &PartitionStats, index: usize, inner: usize, scale: &Scale, out: &mut String) {
    let title = format!(" partition {} from {} ", index + 1, first_key(&partition.first_key));
    let title: String = title.chars().take(inner - 2).collect();
    let _ = writeln!(out, "┌─{title}{}┐", "─".repeat(inner.saturating_sub(1 + title.chars().count())));
    for (name, runs) in [("run", &partition.runs), ("loose run", &partition.loose)] {
        for run in runs.iter().take(RUNS_MAX) {
            draw_run(name, run, inner, scale, out);
        }
        if runs.len() > RUNS_MAX {
            line(&format!(" ⋮ {} more", runs.len() - RUNS_MAX), inner, out);
        }
    }
    match partition.view_entries {
        0 => line(" view: none", inner, out),
        entries => {
            let label = match partition.view_stale {
                0 => "view".to_owned(),
                stale => format!("view, {}% stale", (stale * 100).div_ceil(entries)),
            };
            // A view braids all the runs below it: the more runs, the wider the braid.
            let width = scale.columns.min(partition.runs.len() * 6 + 2);
            let braid: String = "╲╱".chars().cycle().take(width).collect();
            line(&columns_of(&label, &braid, partition.view_bytes, entries, "keys", scale), inner, out);
        }
    }
    let _ = writeln!(out, "└{}┘", "─".repeat(inner));
}

fn draw_run(name: &str, run: &RunStats, inner: usize, scale: &Scale, out: &mut String) {
    let label = format!("{name} {}", run.number);
    line(&columns_of(&label, &scale.bar(run.bytes), run.bytes, run.entries, "entries", scale), inner, out);
}

fn columns_of(label: &str, bar: &str, bytes: u64, count: u64, of: &str, scale: &Scale) -> String {
    let label: String = label.chars().take(LABEL_COLUMNS - 2).collect();
    let (bytes, count) = (show_bytes(bytes), show_count(count));
    format!(
        " {label:<labels$} {bar:<bars$} {bytes:>10} {count:>13} {of}",
        labels = LABEL_COLUMNS - 2,
        bars = scale.columns
    )
}

fn line(text: &str, inner: usize, out: &mut String) {
    let cut: String = text.chars().take(inner).collect();
    let _ = writeln!(out, "│{cut:<inner$}│");
}

/// Bars as long as their runs are large.
struct Scale {
    largest: u64,
    columns: usize,
}

impl Scale {
    fn bar(&self, bytes: u64) -> String {
        let eighths = (bytes as f64 / self.largest as f64 * (self.columns * 8) as f64).round() as usize;
        let eighths = eighths.clamp(1, self.columns * 8);
        let mut bar = "█".repeat(eighths / 8);
        if !eighths.is_multiple_of(8) {
            bar.push(['▏', '▎', '▍', '▌', '▋', '▊', '▉'][eighths % 8 - 1]);
        }
        bar
    }
}

/// An internal key: the number of the tree, and the beginning of the key in it.
fn first_key(key: &[u8]) -> String {
    match key.split_first_chunk::<4>() {
        None => "the beginning".to_owned(),
        Some((tree, rest)) => {
            let shown = &rest[..rest.len().min(24)];
            format!("tree {}, key \"{}\"", u32::from_be_bytes(*tree), to_printable(shown))
        }
    }
}
