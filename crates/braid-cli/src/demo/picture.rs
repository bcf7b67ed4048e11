//! Draws partitions with their runs and views.

use std::fmt::Write as _;

use braiddb::stats::{PartitionStats, RunStats};

use crate::{
    notation::{show_bytes, show_count},
    text_form::to_text,
};

const WORST_COUNT: usize = 3;

const RUNS_MAX: usize = 10;

const LABEL_COLUMNS: usize = 16;
const NUMBER_COLUMNS: usize = 34;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// A summary, and the partitions that most need a merge.
    Worst,
    All,
}

/// Draws a box per partition: a bar per run proportional to its size, and the view.
pub fn draw_partitions(partitions: &[PartitionStats], drawn: Drawn, columns: usize) -> String {
    let inner = columns.max(70) - 2;
    let bar_columns = inner - LABEL_COLUMNS - NUMBER_COLUMNS;
    let sizes = partitions.iter().flat_map(|partition| partition.runs.iter().chain(&partition.loose));
    let scale = Scale { largest: sizes.map(|run| run.bytes).max().unwrap_or(1).max(1), columns: bar_columns };
    let mut out = String::new();
    let chosen = match drawn {
        Drawn::All => (0..partitions.len()).collect(),
        Drawn::Worst => worst(partitions),
    };
    if chosen.len() < partitions.len() {
        summarize(partitions, &mut out);
        let (count, all) = (chosen.len(), show_count(partitions.len() as u64));
        let _ = writeln!(out, "the {count} of {all} that most need a merge; `braid stats --partitions` draws all");
    }
    for index in chosen {
        draw_partition(&partitions[index], index, inner, &scale, &mut out);
    }
    if partitions.is_empty() {
        out.push_str("no partitions yet: all data is in the log and in memory\n");
    }
    out
}

/// Returns the partitions that most need a merge.
fn worst(partitions: &[PartitionStats]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..partitions.len()).collect();
    let need = |place: &usize| {
        let PartitionStats { runs, loose, view_stale, .. } = &partitions[*place];
        std::cmp::Reverse((loose.len(), runs.len(), *view_stale))
    };
    places.sort_by_key(need);
    places.truncate(WORST_COUNT);
    places.sort_unstable();
    places
}

fn summarize(partitions: &[PartitionStats], out: &mut String) {
    let most = |count: &dyn Fn(&PartitionStats) -> u64| {
        let (sum, max) = partitions.iter().map(count).fold((0, 0), |(sum, max), one| (sum + one, u64::max(max, one)));
        (show_count(sum), show_count(max), sum as f64 / partitions.len().max(1) as f64)
    };
    for (name, (sum, max, mean)) in [
        ("runs", most(&|partition| partition.runs.len() as u64)),
        ("unindexed runs", most(&|partition| partition.loose.len() as u64)),
        ("stale keys", most(&|partition| partition.view_stale)),
    ] {
        let _ = writeln!(out, "{name:<16} {sum}: {mean:.1} per partition, at most {max}");
    }
}

fn draw_partition(partition: &PartitionStats, index: usize, inner: usize, scale: &Scale, out: &mut String) {
    let title = format!(" partition {} from {} ", index + 1, first_key(&partition.first_key));
    let title: String = title.chars().take(inner - 2).collect();
    let _ = writeln!(out, "┌─{title}{}┐", "─".repeat(inner.saturating_sub(1 + title.chars().count())));
    for (name, runs) in [("run", &partition.runs), ("unindexed", &partition.loose)] {
        for run in runs.iter().take(RUNS_MAX) {
            draw_run(name, run, inner, scale, out);
        }
        if runs.len() > RUNS_MAX {
            line(&format!(" ⋮ {} more", runs.len() - RUNS_MAX), inner, out);
        }
    }
    match partition.view_entries {
        0 if partition.runs.len() < 2 => {}
        0 => line(" view: to be built", inner, out),
        entries => {
            let label = match partition.view_stale {
                0 => "view".to_owned(),
                stale => format!("view, {}% stale", (stale * 100).div_ceil(entries)),
            };
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

fn first_key(key: &[u8]) -> String {
    match key.split_first_chunk::<4>() {
        None => "the beginning".to_owned(),
        Some((tree, rest)) => {
            let shown = &rest[..rest.len().min(24)];
            format!("tree {}, key \"{}\"", u32::from_be_bytes(*tree), to_text(shown))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(number: u64, bytes: u64) -> RunStats {
        RunStats { number, bytes, entries: bytes / 100, raw_bytes: bytes, view_bytes: 0 }
    }

    #[test]
    fn partitions_with_runs_and_view_draw_golden_picture() {
        let one = PartitionStats {
            first_key: Vec::new(),
            runs: vec![run(3, 64 << 20), run(7, 16 << 20)],
            loose: vec![run(12, 1 << 20)],
            view_bytes: 300_000,
            view_entries: 800_000,
            view_stale: 8000,
        };
        let two = PartitionStats {
            first_key: b"\0\0\0\x02abba\x01".to_vec(),
            runs: vec![run(1234, 40 << 20)],
            loose: Vec::new(),
            view_bytes: 0,
            view_entries: 0,
            view_stale: 0,
        };
        let expected = "\
┌─ partition 1 from the beginning ───────────────────────────────────────────────────┐
│ run 3          ██████████████████████████████████   64.0 MiB       671,088 entries │
│ run 7          ████████▌                            16.0 MiB       167,772 entries │
│ unindexed 12   ▌                                    1.00 MiB        10,485 entries │
│ view, 1% stale ╲╱╲╱╲╱╲╱╲╱╲╱╲╱                      293.0 KiB       800,000 keys    │
└────────────────────────────────────────────────────────────────────────────────────┘
┌─ partition 2 from tree 2, key \"abba\\x01\" ──────────────────────────────────────────┐
│ run 1234       █████████████████████▎               40.0 MiB       419,430 entries │
└────────────────────────────────────────────────────────────────────────────────────┘
";
        let drawn = draw_partitions(&[one, two], Drawn::Worst, 86);
        assert_eq!(drawn, expected, "\n{drawn}");
    }

    /// A database of 195 partitions filled the screen with boxes.
    #[test]
    fn many_partitions_draw_summary_and_worst() {
        let sound = PartitionStats {
            first_key: Vec::new(),
            runs: vec![run(1, 1)],
            loose: Vec::new(),
            view_bytes: 0,
            view_entries: 0,
            view_stale: 0,
        };
        let mut partitions = vec![sound.clone(); 195];
        partitions[7].loose = vec![run(2, 1), run(3, 1)];
        partitions[100].runs = vec![run(4, 1), run(5, 1)];
        partitions[150].view_stale = 12;
        let drawn = draw_partitions(&partitions, Drawn::Worst, 90);
        for part in ["partition 8 ", "partition 101 ", "partition 151 ", "the 3 of 195 that most need a merge"] {
            assert!(drawn.contains(part), "{part}: {drawn}");
        }
        assert!(drawn.contains("runs             196: 1.0 per partition, at most 2\n"), "{drawn}");
        assert_eq!(drawn.matches('┌').count(), WORST_COUNT);
        assert_eq!(draw_partitions(&partitions, Drawn::All, 90).matches('┌').count(), 195);
        assert!(draw_partitions(&[], Drawn::Worst, 90).contains("no partitions yet"));
    }
}
