//! The figures, as a table and as JSON.

use super::{contest::Contestant, data::Layout, questions::Operation};
use std::fmt::Write as _;

/// How many times cheaper seeks of the view must be than the plain merge's, with so many runs.
const SEEK_BARS: [(usize, f64); 2] = [(8, 5.0), (16, 9.0)];
/// The most bytes of memory that a view of so many runs may take for each key.
const BYTES_BAR: (usize, f64) = (8, 5.2);

/// What an operation costs on average.
#[derive(Clone, Debug)]
pub struct Figure {
    /// How rows are spread over runs.
    pub layout: Layout,
    /// How many runs.
    pub runs: usize,
    /// What was asked.
    pub operation: Operation,
    /// Who was asked.
    pub contestant: Contestant,
    /// The median of the rounds; none if there was no timed round.
    pub nanoseconds: Option<f64>,
    /// Keys compared.
    pub comparisons: f64,
    /// Segment records of views read.
    pub segments: f64,
    /// Blocks of runs read, each counted once, where none is cached when the operation begins.
    pub blocks: f64,
}

/// What an index takes.
#[derive(Clone, Debug)]
pub struct IndexSize {
    /// How rows are spread over runs.
    pub layout: Layout,
    /// How many runs.
    pub runs: usize,
    /// Whose index.
    pub contestant: Contestant,
    /// In memory: of a view its directory, cache slots and pages; of a plain merge first keys and filters.
    pub bytes_per_key: f64,
    /// In its file; 0 for what has none.
    pub file_bytes_per_key: f64,
}

/// Everything measured.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Rows in all runs together.
    pub rows: u64,
    /// Costs of operations.
    pub figures: Vec<Figure>,
    /// Sizes of indexes.
    pub sizes: Vec<IndexSize>,
}

/// A figure that a bar is set for.
#[derive(Clone, Debug)]
pub struct Standing {
    /// What is held against what.
    pub what: String,
    /// The figure.
    pub value: f64,
    /// The bar.
    pub bar: f64,
    /// Whether it is met.
    pub is_met: bool,
}

impl Report {
    /// The figures of both contestants, side by side.
    pub fn pairs(&self) -> impl Iterator<Item = (&Figure, &Figure)> {
        let of = |contestant| self.figures.iter().filter(move |figure| figure.contestant == contestant);
        of(Contestant::View).zip(of(Contestant::Merge))
    }

    /// How the figures stand to what is asked of them.
    pub fn standings(&self) -> Vec<Standing> {
        let mut standings = Vec::new();
        for (view, merge) in self.pairs() {
            let bar = SEEK_BARS.iter().find(|(runs, _)| *runs == view.runs);
            let is_seek = matches!(view.operation, Operation::SeekHit | Operation::SeekMiss);
            let Some((_, bar)) = bar.filter(|_| is_seek) else { continue };
            let name = format!("{}, {} runs, {}: merge / view", view.layout.name(), view.runs, view.operation.name());
            let mut push = |what: &str, value: f64| {
                standings.push(Standing { what: format!("{name}, {what}"), value, bar: *bar, is_met: value >= *bar });
            };
            push("comparisons", merge.comparisons / view.comparisons);
            if let (Some(ours), Some(theirs)) = (view.nanoseconds, merge.nanoseconds) {
                push("time", theirs / ours);
            }
        }
        let (runs, bar) = BYTES_BAR;
        for size in self.sizes.iter().filter(|size| size.runs == runs && size.contestant == Contestant::View) {
            let what = format!("{}, {runs} runs: bytes of view a key", size.layout.name());
            let value = size.bytes_per_key;
            standings.push(Standing { what, value, bar, is_met: value <= bar });
        }
        standings
    }

    /// As Markdown.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("{} rows of 16 + 120 bytes; each cell is view / plain merge\n\n", self.rows);
        text += "| layout | runs | operation | ns | ratio | comparisons | blocks | segments of view |\n";
        text += "|---|--:|---|--:|--:|--:|--:|--:|\n";
        for (view, merge) in self.pairs() {
            let (times, ratio) = match (view.nanoseconds, merge.nanoseconds) {
                (Some(ours), Some(theirs)) => (format!("{ours:.1} / {theirs:.1}"), format!("{:.1}", theirs / ours)),
                _ => ("-".to_owned(), "-".to_owned()),
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {times} | {ratio} | {:.3} / {:.2} | {:.3} / {:.3} | {:.3} |",
                view.layout.name(),
                view.runs,
                view.operation.name(),
                view.comparisons,
                merge.comparisons,
                view.blocks,
                merge.blocks,
                view.segments,
            );
        }
        text += "\n| layout | runs | index | bytes a key in memory | in its file |\n|---|--:|---|--:|--:|\n";
        for size in &self.sizes {
            let (layout, contestant) = (size.layout.name(), size.contestant.name());
            let (memory, file) = (size.bytes_per_key, size.file_bytes_per_key);
            let _ = writeln!(text, "| {layout} | {} | {contestant} | {memory:.2} | {file:.2} |", size.runs);
        }
        text += "\n| held to | figure | bar | met |\n|---|--:|--:|---|\n";
        for Standing { what, value, bar, is_met } in self.standings() {
            let _ = writeln!(text, "| {what} | {value:.2} | {bar} | {} |", if is_met { "yes" } else { "**no**" });
        }
        text
    }

    /// A line of JSON for each figure and each size.
    pub fn to_json(&self) -> String {
        let mut text = String::new();
        for figure in &self.figures {
            let time = figure.nanoseconds.map_or("null".to_owned(), |time| format!("{time:.2}"));
            let _ = writeln!(
                text,
                "{{\"rows\":{},\"layout\":\"{}\",\"runs\":{},\"operation\":\"{}\",\"contestant\":\"{}\",\"ns\":{time},\
                 \"comparisons\":{:.4},\"blocks\":{:.4},\"segments\":{:.4}}}",
                self.rows,
                figure.layout.name(),
                figure.runs,
                figure.operation.name(),
                figure.contestant.name(),
                figure.comparisons,
                figure.blocks,
                figure.segments,
            );
        }
        for size in &self.sizes {
            let _ = writeln!(
                text,
                "{{\"rows\":{},\"layout\":\"{}\",\"runs\":{},\"contestant\":\"{}\",\"index_bytes_per_key\":{:.4},\
                 \"file_bytes_per_key\":{:.4}}}",
                self.rows,
                size.layout.name(),
                size.runs,
                size.contestant.name(),
                size.bytes_per_key,
                size.file_bytes_per_key,
            );
        }
        text
    }
}
