//! Counts of events, to prove that they happened.

use crate::common::Counter;

#[derive(Debug, Default)]
pub struct Seen {
    pub crashes: Counter,
    pub commits_lost: Counter,
    pub commits_shown: Counter,
    pub gaps: Counter,
    pub too_old: Counter,
    pub refused_tokens: Counter,
    pub refreshes: Counter,
    pub refreshes_behind: Counter,
    pub states_kept: Counter,
    pub restored: Counter,
    pub restored_to: Counter,
    pub refused_restores: Counter,
    pub checkpoints: Counter,
    pub dumps: Counter,
    pub tables: Counter,
    pub split_points: Counter,
    pub expired: Counter,
}

impl Seen {
    pub fn check(&self) {
        let Seen {
            crashes,
            commits_lost,
            commits_shown,
            gaps,
            too_old,
            refused_tokens,
            refreshes,
            refreshes_behind,
            states_kept,
            restored,
            restored_to,
            refused_restores,
            checkpoints,
            dumps,
            tables,
            split_points,
            expired,
        } = self;
        let often = [crashes, commits_lost, commits_shown, gaps, too_old, refreshes, refreshes_behind, states_kept];
        let rest = [
            refused_tokens,
            restored,
            restored_to,
            refused_restores,
            checkpoints,
            dumps,
            tables,
            split_points,
            expired,
        ];
        assert!(often.iter().chain(&rest).all(|counter| counter.get() > 0), "an event never happened: {self:?}");
    }
}
