//! Counts of the engine's jobs: a battery that never merges proves little.

use super::Counter;
use braiddb::stats::Stats;

/// Minimum cases to expect even the rare jobs.
const CASES_FOR_ALL: usize = 200;

#[derive(Debug, Default)]
pub struct Coverage {
    pub flushes: Counter,
    pub merges: Counter,
    pub loose_merges: Counter,
    pub folds: Counter,
    pub splits: Counter,
    pub blob_bytes: Counter,
    pub view_bytes: Counter,
    pub expired: Counter,
    pub blocks_in_place: Counter,
    pub hash_indexes: Counter,
}

impl Coverage {
    /// Call it once, before the close.
    pub fn note(&self, stats: &Stats) {
        self.flushes.add(stats.flushes);
        self.merges.add(stats.merges);
        self.loose_merges.add(stats.loose_merges);
        self.folds.add(stats.folds);
        self.splits.add((stats.partitions.len() as u64).saturating_sub(1));
        self.blob_bytes.add(stats.blob_bytes_written);
        self.view_bytes.add(stats.view_bytes_written);
        self.expired.add(stats.expired);
        self.blocks_in_place.add(stats.blocks_in_place);
        self.hash_indexes.add(stats.hash_indexes);
    }

    pub fn add(&self, other: &Coverage) {
        for ((_, mine), (_, others)) in self.counters().into_iter().zip(other.counters()) {
            mine.add(others.get());
        }
    }

    pub fn check(&self, cases: usize) {
        let often = if cases < CASES_FOR_ALL { 4 } else { self.counters().len() - 2 };
        for (what, count) in self.counters().into_iter().take(often) {
            assert!(count.get() > 0, "no {what} in {cases} cases: {self:?}");
        }
    }

    fn counters(&self) -> [(&'static str, &Counter); 10] {
        let Coverage {
            flushes,
            merges,
            loose_merges,
            folds,
            splits,
            blob_bytes,
            view_bytes,
            expired,
            blocks_in_place,
            hash_indexes,
        } = self;
        [
            ("flush", flushes),
            ("merge", merges),
            ("split", splits),
            ("blob", blob_bytes),
            ("merge of unindexed runs", loose_merges),
            ("fold", folds),
            ("view", view_bytes),
            ("expired value", expired),
            ("block read in place", blocks_in_place),
            ("hash index", hash_indexes),
        ]
    }
}
