//! Rounds brought together: of each figure the median.

use crate::results::{Results, Row, Status};
use std::collections::{BTreeMap, BTreeSet};

/// An engine's figures of a measure.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    pub figures: BTreeMap<String, f64>,
    /// Rounds that went well.
    pub rounds: usize,
    /// Whether all answers were right.
    pub correct: bool,
    /// What was seen in each round, to compare engines by.
    pub seen: BTreeSet<(u64, String)>,
}

/// The summaries at one N: by measure, then by engine.
#[derive(Debug, Default)]
pub struct Summaries {
    pub by_measure: BTreeMap<String, BTreeMap<String, Summary>>,
    /// By workload, then by engine: the medians of anonymous peak, resident peak and budget, in bytes.
    pub memory: BTreeMap<String, BTreeMap<String, [f64; 3]>>,
    /// Rows that went wrong.
    pub failed: Vec<Row>,
    /// Measures in the order of the workloads.
    pub order: Vec<String>,
}

impl Summaries {
    /// Of all rows of this size.
    pub fn of(results: &Results, n: u64) -> Summaries {
        let mut all = Summaries::default();
        let mut figures: BTreeMap<(String, String, String), Vec<f64>> = BTreeMap::new();
        let mut memory: BTreeMap<(String, String), Vec<[u64; 3]>> = BTreeMap::new();
        let rank = |row: &Row| crate::workloads::all().iter().position(|workload| workload.name == row.key.workload);
        let mut rows: Vec<&Row> = results.rows.values().filter(|row| row.key.n == n).collect();
        rows.sort_by_key(|row| (rank(row), row.key.engine.clone(), row.key.round));
        for row in rows {
            if row.status != Status::Ok {
                all.failed.push(row.clone());
                continue;
            }
            let (engine, outcome) = (&row.key.engine, &row.outcome);
            let bytes = [outcome.anonymous_peak_bytes, outcome.resident_peak_bytes, outcome.budget_bytes];
            memory.entry((row.key.workload.clone(), engine.clone())).or_default().push(bytes);
            for measure in &outcome.measures {
                if !all.order.contains(&measure.name) {
                    all.order.push(measure.name.clone());
                }
                let engines = all.by_measure.entry(measure.name.clone()).or_default();
                let fresh = Summary { correct: true, ..Summary::default() };
                let summary = engines.entry(engine.clone()).or_insert(fresh);
                summary.rounds += 1;
                summary.correct &= measure.correct;
                summary.seen.insert((measure.count, measure.checksum.clone()));
                for (name, value) in &measure.figures {
                    figures.entry((measure.name.clone(), engine.clone(), name.clone())).or_default().push(*value);
                }
            }
        }
        for ((measure, engine, name), values) in figures {
            if let Some(summary) = all.by_measure.get_mut(&measure).and_then(|engines| engines.get_mut(&engine)) {
                summary.figures.insert(name, median(values));
            }
        }
        for ((workload, engine), values) in memory {
            let medians = [0, 1, 2].map(|index| median(values.iter().map(|bytes| bytes[index] as f64).collect()));
            all.memory.entry(workload).or_default().insert(engine, medians);
        }
        all
    }

    /// A figure, if its answers were right.
    pub fn figure(&self, measure: &str, engine: &str, figure: &str) -> Option<f64> {
        let summary = self.by_measure.get(measure)?.get(engine)?;
        summary.figures.get(figure).copied().filter(|_| summary.correct)
    }

    /// Measures whose answers differ between engines, though each went all the way.
    pub fn disagreeing(&self) -> Vec<&str> {
        let differ = |engines: &BTreeMap<String, Summary>| {
            let seen: BTreeSet<_> = engines.values().flat_map(|summary| &summary.seen).collect();
            let counts: BTreeSet<u64> = seen.iter().map(|(count, _)| *count).collect();
            // A phase that its limit cut short has another count.
            seen.len() > counts.len()
        };
        let found = self.by_measure.iter().filter(|(_, engines)| differ(engines));
        found.map(|(name, _)| name.as_str()).collect()
    }
}

/// The middle one, or the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
