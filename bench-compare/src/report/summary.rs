//! Medians over the rounds.

use crate::results::{Results, Row, Status};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default)]
pub struct Summary {
    pub figures: BTreeMap<String, f64>,
    pub rounds: usize,
    pub correct: bool,
    pub seen: BTreeSet<(u64, String)>,
}

#[derive(Debug, Default)]
pub struct Summaries {
    pub by_measure: BTreeMap<String, BTreeMap<String, Summary>>,
    /// Median bytes of anonymous peak, resident peak and budget, by workload and engine.
    pub memory: BTreeMap<String, BTreeMap<String, [f64; 3]>>,
    pub failed: Vec<Row>,
    pub order: Vec<String>,
}

impl Summaries {
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

    /// `None` if an answer was wrong.
    pub fn figure(&self, measure: &str, engine: &str, figure: &str) -> Option<f64> {
        let summary = self.by_measure.get(measure)?.get(engine)?;
        summary.figures.get(figure).copied().filter(|_| summary.correct)
    }

    /// Measures with different answers for the same number of rows.
    pub fn disagreeing(&self) -> Vec<&str> {
        let differ = |engines: &BTreeMap<String, Summary>| {
            let seen: BTreeSet<_> = engines.values().flat_map(|summary| &summary.seen).collect();
            let counts: BTreeSet<u64> = seen.iter().map(|(count, _)| *count).collect();
            // A phase cut short has another count.
            seen.len() > counts.len()
        };
        let found = self.by_measure.iter().filter(|(_, engines)| differ(engines));
        found.map(|(name, _)| name.as_str()).collect()
    }
}

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
    fn median_of_even_count_is_mean_of_middle_two() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
