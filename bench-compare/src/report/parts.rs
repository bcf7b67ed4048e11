//! The table of `parts`.

use super::summary::median;
use crate::parts::{PartFigure, PartsRow};
use anyhow::Result;
use std::fmt::Write as _;

pub fn push_parts(text: &mut String, row: &PartsRow) -> Result<()> {
    let PartsRow { n, operations, view_runs, view_bytes_per_key, figures } = row;
    let rounds = figures.first().map_or(0, |figure| figure.lmdb_ns.len());
    writeln!(
        text,
        "## Parts of reading, N = {n}\n\n\
         Warm, one thread, {view_runs} runs in one view ({view_bytes_per_key:.2} bytes of view file a key); LMDB loaded in key order, \
         one transaction, one cursor. Nanoseconds of processor time, medians of {rounds} interleaved rounds of {operations} operations, in brackets the \
         lowest and the highest.\n"
    )?;
    writeln!(text, "| part | BraidDB | LMDB | ratio | bar | met |\n|---|--:|--:|--:|--:|---|")?;
    for figure in figures {
        let bar = figure.bar.map_or("-".to_owned(), |bar| format!("≤ {bar:.2}"));
        let met = figure.is_met().map_or("-", |met| if met { "yes" } else { "**no**" });
        let PartFigure { part, braiddb_ns, lmdb_ns, ratio, .. } = figure;
        writeln!(text, "| {part} | {} | {} | {ratio:.2} | {bar} | {met} |", show(braiddb_ns), show(lmdb_ns))?;
    }
    text.push('\n');
    Ok(())
}

fn show(ns: &[f64]) -> String {
    let (low, high) = ns.iter().fold((f64::MAX, 0.0f64), |(low, high), ns| (low.min(*ns), high.max(*ns)));
    format!("{:.1} ({low:.1}-{high:.1})", median(ns.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_above_bar_is_marked_not_met() -> Result<()> {
        let figure = |ratio, bar| PartFigure {
            part: "scan".to_owned(),
            braiddb_ns: vec![1.0, 2.0, 9.0],
            lmdb_ns: vec![3.0, 4.0, 5.0],
            ratio,
            bar,
        };
        let figures = vec![figure(0.5, Some(0.4)), figure(0.3, Some(0.4)), figure(0.5, None)];
        let row = PartsRow { n: 7, operations: 5, view_runs: 8, view_bytes_per_key: 4.5, figures };
        let mut text = String::new();
        push_parts(&mut text, &row)?;
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| scan")).collect();
        assert_eq!(rows[0], "| scan | 2.0 (1.0-9.0) | 4.0 (3.0-5.0) | 0.50 | ≤ 0.40 | **no** |");
        assert!(rows[1].ends_with("| yes |") && rows[2].ends_with("| - | - |"));
        Ok(())
    }
}
