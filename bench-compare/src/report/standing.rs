//! BraidDB's results against each bar.

use super::summary::Summaries;
use crate::bars::{BARS, Bar, Versus};

pub const OURS: &str = "braiddb";
/// The same engine through iterators and owned values: no peer.
const OURS_BY_ITERATORS: &str = "braiddb-iter";

#[derive(Debug)]
pub struct Standing {
    pub bar: Bar,
    pub ours: Option<f64>,
    pub peer: Option<(String, f64)>,
    /// Relative to the peer; without a peer the figure itself.
    pub ratio: Option<f64>,
}

impl Standing {
    /// `None` if a figure is missing.
    pub fn is_met(&self) -> Option<bool> {
        self.ratio.map(|ratio| self.bar.bound.is_met(ratio))
    }
}

pub fn standings(summaries: &Summaries) -> Vec<Standing> {
    let has_measure = |bar: &&Bar| summaries.by_measure.contains_key(bar.measure);
    BARS.iter().filter(has_measure).map(|bar| standing(summaries, *bar)).collect()
}

fn standing(summaries: &Summaries, bar: Bar) -> Standing {
    let ours = summaries.figure(bar.measure, OURS, bar.figure);
    let peers = summaries.by_measure[bar.measure].keys();
    let peers = peers.filter(|engine| *engine != OURS && *engine != OURS_BY_ITERATORS && bar.counts(engine));
    let figures = peers.filter_map(|engine| {
        let figure = summaries.figure(bar.measure, engine, bar.figure)?;
        Some((engine.clone(), figure))
    });
    let is_better = |one: &(String, f64), other: &(String, f64)| bar.bound.is_better(one.1, other.1);
    let best = figures.reduce(|best, peer| if is_better(&peer, &best) { peer } else { best });
    let peer = match bar.versus {
        Versus::Best => best,
        Versus::Engine(name) => summaries.figure(bar.measure, name, bar.figure).map(|figure| (name.to_owned(), figure)),
        Versus::Nobody => None,
    };
    let ratio = match (bar.versus, ours, &peer) {
        (Versus::Nobody, Some(ours), _) => Some(ours),
        (_, Some(ours), Some((_, theirs))) if *theirs > 0.0 => Some(ours / theirs),
        _ => None,
    };
    Standing { bar, ours, peer, ratio }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bars::Bound,
        results::{Outcome, Results, Row, RowKey, Status},
        workloads::Measure,
    };

    fn results(rates: &[(&str, f64, bool)]) -> Results {
        results_of("scan_all", rates)
    }

    fn results_of(workload: &str, rates: &[(&str, f64, bool)]) -> Results {
        let mut results = Results::default();
        for (engine, rate, correct) in rates {
            let key = RowKey { n: 1, workload: workload.into(), engine: (*engine).into(), round: 1 };
            let figures = [("rate".to_owned(), *rate)].into();
            let checksum = String::new();
            let measure = Measure { name: workload.into(), figures, count: 1, checksum, correct: *correct };
            let outcome = Outcome { measures: vec![measure], ..Outcome::default() };
            let row = Row {
                key: key.clone(),
                status: Status::Ok,
                reason: String::new(),
                child_seconds: 1.0,
                kept_loads: false,
                outcome,
            };
            results.rows.insert(key, row);
        }
        results
    }

    #[test]
    fn best_peer_with_wrong_answers_is_ignored() {
        let results = results(&[
            ("braiddb", 30.0, true),
            ("braiddb-iter", 20.0, true),
            ("lmdb", 10.0, true),
            ("sled", 100.0, false),
        ]);
        let standings = standings(&Summaries::of(&results, 1));
        assert_eq!(standings.len(), 1);
        assert_eq!(standings[0].bar.bound, Bound::AtLeast(3.0));
        assert_eq!(standings[0].peer, Some(("lmdb".to_owned(), 10.0)));
        assert_eq!((standings[0].ratio, standings[0].is_met()), (Some(3.0), Some(true)));
    }

    #[test]
    fn peer_without_durable_sync_is_ignored_for_durable_commits() {
        let rates = [("braiddb", 30.0, true), ("lmdb", 10.0, true), ("sled", 100.0, true)];
        let peer = |workload| standings(&Summaries::of(&results_of(workload, &rates), 1))[0].peer.clone();
        assert_eq!(peer("commit_sync_4"), Some(("lmdb".to_owned(), 10.0)));
        assert_eq!(peer("scan_all"), Some(("sled".to_owned(), 100.0)));
    }

    #[test]
    fn peer_without_a_log_is_ignored_for_commits() {
        let rates = [("braiddb", 30.0, true), ("lmdb", 10.0, true), ("bf-tree", 100.0, true)];
        let peer = |workload| standings(&Summaries::of(&results_of(workload, &rates), 1))[0].peer.clone();
        assert_eq!(peer("fillrandom_b100"), Some(("lmdb".to_owned(), 10.0)));
        assert_eq!(peer("readrandom"), Some(("bf-tree".to_owned(), 100.0)));
    }

    #[test]
    fn bar_with_own_wrong_answers_is_not_judged() {
        let results = results(&[("braiddb", 30.0, false), ("lmdb", 10.0, true)]);
        assert_eq!(standings(&Summaries::of(&results, 1))[0].is_met(), None);
    }
}
