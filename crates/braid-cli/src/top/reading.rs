//! One reading of a database.

use std::time::Duration;

/// Age from which the sizes of trees are read again.
pub const TREES_AGE_MAX: Duration = Duration::from_secs(10);

/// Maximum trees of a reading.
pub const TREES_MAX: usize = 100;

/// All numbers count since the process began, except sizes.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Microseconds since 1970.
    pub time_us: u64,
    pub sizes: Sizes,
    /// Known only to the process that has the database open.
    pub inside: Option<Inside>,
    pub trees: Vec<TreeLine>,
    pub trees_left_out: usize,
    /// Problems: writes refused, damaged partitions.
    pub alarms: Vec<String>,
    /// The process that has the database open; a note if it is unknown.
    pub owner: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    pub last_commit: u64,
    pub disk_bytes: u64,
    pub partitions: u64,
    pub runs: u64,
    pub unindexed_runs: u64,
    pub garbage_entries: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Inside {
    pub counters: Counters,
    pub memory: Memory,
    pub pressure_per_mille: u64,
    pub stall_us_max: u64,
    pub frozen_memtables: u64,
    pub readers: Readers,
    /// Requests of the server.
    pub requests: Vec<Requests>,
    /// Upper bounds of the latency buckets.
    pub bounds_us: Vec<u64>,
    /// Newest first; `None` if the server does not report them.
    pub slow_commits: Option<Vec<SlowCommit>>,
    pub slow_totals: Vec<SlowTotal>,
}

/// Counters whose rates are shown, by the names of [`braiddb::stats::Stats`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub commits: u64,
    pub user_bytes_written: u64,
    pub log_bytes_written: u64,
    /// To runs, views, blob files and manifests.
    pub file_bytes_written: u64,
    pub syncs: u64,
    pub flushes: u64,
    pub merges: u64,
    pub folds: u64,
    pub stalls: u64,
    pub slowed_us: u64,
    pub conflicts: u64,
    pub background_errors: u64,
    pub cache_hits: u64,
    pub cache_misses: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub all_bytes: u64,
    pub memtable_bytes: u64,
    pub memtable_bytes_max: u64,
    pub cache_bytes: u64,
    pub hash_index_bytes: u64,
    pub open_files: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readers {
    pub count: u64,
    pub oldest_age_us: Option<u64>,
    pub garbage_entries: u64,
    pub expired: u64,
    /// The oldest ones.
    pub old: Vec<OldReader>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldReader {
    pub kind: String,
    pub commit: u64,
    pub age_us: u64,
    pub commits_behind: u64,
    pub garbage_entries: u64,
    pub is_expired: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requests {
    pub kind: String,
    pub count: u64,
    pub buckets: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowCommit {
    /// When it ended, in microseconds since 1970.
    pub time_us: u64,
    /// `None` if it failed.
    pub commit: Option<u64>,
    pub took_us: u64,
    pub cause: String,
    /// Names and microseconds.
    pub parts: Vec<(String, u64)>,
    /// The background work that it waited for.
    pub background: Option<String>,
}

/// Slow commits since the process began, by cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowTotal {
    pub cause: String,
    pub commits: u64,
    /// Time that this part took of all slow commits.
    pub part_us: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeLine {
    pub name: String,
    pub is_multi: bool,
    pub keys: u64,
    pub bytes: u64,
}

/// Returns the largest trees, the largest first, and the number of the others.
pub fn largest(mut trees: Vec<TreeLine>) -> (Vec<TreeLine>, usize) {
    trees.sort_by_key(|tree| std::cmp::Reverse(tree.bytes));
    let left_out = trees.len().saturating_sub(TREES_MAX);
    trees.truncate(TREES_MAX);
    (trees, left_out)
}
