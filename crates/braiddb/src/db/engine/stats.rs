//! Counters and statistics.

use super::{
    parts::scrubber::ScrubStats,
    slow_commits::report::{RunningWork, SlowCommit, SlowCommitTotal},
};
use crate::{
    base::{ReaderKind, SequenceNumber},
    platform::{BatchReads, RateLimiterStats},
    version::Version,
};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct Counters {
    pub commits: AtomicU64,
    pub user_bytes: AtomicU64,
    pub run_bytes: AtomicU64,
    pub view_bytes: AtomicU64,
    pub manifest_bytes: AtomicU64,
    pub flushes: AtomicU64,
    pub merges: AtomicU64,
    pub loose_merges: AtomicU64,
    pub expired: AtomicU64,
    pub folds: AtomicU64,
    pub views_healed: AtomicU64,
    pub hash_indexes: AtomicU64,
    pub background_errors: AtomicU64,
    pub slowed_ns: AtomicU64,
    pub stalls: AtomicU64,
    pub stall_ns_max: AtomicU64,
    pub conflicts: AtomicU64,
    pub retries: AtomicU64,
    pub readers_expired: AtomicU64,
    pub recovered_records: AtomicU64,
    pub log_tail_note: Mutex<Option<String>>,
}

impl Counters {
    pub fn after_recovery(records: u64, tail_note: Option<String>) -> Counters {
        Counters {
            recovered_records: AtomicU64::new(records),
            log_tail_note: Mutex::new(tail_note),
            ..Counters::default()
        }
    }

    /// The caller holds `write`, so this needs no locked instruction.
    pub fn note_commits(&self, commits: u64, user_bytes: u64) {
        self.commits.store(self.commits.load(Ordering::Relaxed) + commits, Ordering::Relaxed);
        self.user_bytes.store(self.user_bytes.load(Ordering::Relaxed) + user_bytes, Ordering::Relaxed);
    }

    pub fn note_conflict(&self) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
    }

    pub fn note_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub fn note_stall(&self, ns: u64) {
        self.stalls.fetch_add(1, Ordering::Relaxed);
        self.stall_ns_max.fetch_max(ns, Ordering::Relaxed);
    }
}

/// A run, in [`Stats`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunStats {
    /// The number in its file name.
    pub number: u64,
    /// Bytes of its file.
    pub bytes: u64,
    /// Its entries, garbage included.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub raw_bytes: u64,
    /// Bytes of the view in the file.
    pub view_bytes: u64,
}

/// A partition, in [`Stats`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionStats {
    /// Its first internal key.
    pub first_key: Vec<u8>,
    /// The runs in its view.
    pub runs: Vec<RunStats>,
    /// Its unindexed runs, oldest first.
    pub loose: Vec<RunStats>,
    /// Bytes of its view file; 0 if it needs none, or lacks it.
    pub view_bytes: u64,
    /// Entries in the view.
    pub view_entries: u64,
    /// Entries in the view that current readers skip.
    pub view_stale: u64,
}

/// A long-lived reader, in [`Stats`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReaderStats {
    /// Kind of the reader. Readers made from a snapshot or a transaction are part of it.
    pub kind: ReaderKind,
    /// The last commit that it sees.
    pub sequence: SequenceNumber,
    /// Its age, in microseconds.
    pub age_us: u64,
    /// Batches committed since. It pins at most one old version of each key in them.
    pub commits_behind: u64,
    /// Garbage entries that past merges kept for this reader, perhaps also for others.
    pub dead_entries_held: u64,
    /// True above its maximum age. It pins no entries, but a cursor or an iterator pins
    /// its files until its next use, which fails.
    pub is_expired: bool,
}

/// Statistics since the open, and present contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Batches committed.
    pub commits: u64,
    /// Bytes of keys and values committed.
    pub user_bytes_written: u64,
    /// Bytes written to the log.
    pub log_bytes_written: u64,
    /// Open tables and retained log segments, in all databases with the same budget.
    pub open_files: usize,
    /// Maximum of `open_files`; 0 for no limit. See [`crate::Builder::open_files_max`].
    pub open_files_max: usize,
    /// Times that a read had to reopen a file.
    pub file_reopenings: u64,
    /// Bytes of log segments beyond recovery's needs: see [`crate::Builder::log_retention`].
    pub log_kept_bytes: u64,
    /// Bytes written to runs.
    pub run_bytes_written: u64,
    /// Bytes written to views of partitions.
    pub view_bytes_written: u64,
    /// Bytes written to blob files.
    pub blob_bytes_written: u64,
    /// Bytes written to manifests.
    pub manifest_bytes_written: u64,
    /// Bytes of all files of the database.
    pub disk_bytes: u64,
    /// Present bytes of the reserve: see [`crate::Builder::disk_reserve`].
    pub disk_reserve_bytes: u64,
    /// Bytes of the whole reserve. While it has less, only writes that free space are accepted.
    pub disk_reserve_bytes_whole: u64,
    /// Bytes of memtables, cache and indexes.
    pub memory_bytes: u64,
    /// Bytes of memtables, with pooled memory.
    pub memtable_bytes: u64,
    /// Bytes of a full memtable. A larger batch may find no space on a full disk.
    pub memtable_bytes_max: u64,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// Blocks found in the cache, or read in place. Estimates of sizes count neither here nor in
    /// `cache_misses`.
    pub cache_hits: u64,
    /// Blocks read into the cache, or checked to be read in place.
    pub cache_misses: u64,
    /// Blocks checked to be read in place.
    pub blocks_in_place: u64,
    /// True if tables bypass the page cache: see [`crate::Builder::direct_io`].
    pub direct_io: bool,
    /// The first refusal of direct I/O.
    pub direct_io_refused: Option<String>,
    /// Method of concurrent reads, as `multi_get` makes them.
    pub batch_reads: BatchReads,
    /// Why io_uring is not used, on Linux.
    pub io_uring_refused: Option<String>,
    /// The background write limit: see [`crate::Builder::rate_limiter`].
    pub rate_limiter: RateLimiterStats,
    /// Device flushes of the log.
    pub syncs: u64,
    /// Memtables flushed.
    pub flushes: u64,
    /// Merges of runs.
    pub merges: u64,
    /// Merges of unindexed runs into one.
    pub loose_merges: u64,
    /// Expired values that flushes and merges replaced by tombstones. Runs dropped whole do not
    /// count.
    pub expired: u64,
    /// Folds of unindexed runs into views, and views rebuilt.
    pub folds: u64,
    /// Damaged views set aside.
    pub views_healed: u64,
    /// Hash indexes built.
    pub hash_indexes: u64,
    /// Bytes of hash indexes, part of `memory_bytes`.
    pub hash_index_bytes: u64,
    /// Flushes and merges that run at present, the oldest first.
    pub running: Vec<RunningWork>,
    /// Background jobs that failed.
    pub background_errors: u64,
    /// Transactions that failed because of a conflict.
    pub transaction_conflicts: u64,
    /// Retries by [`crate::Db::update`] and similar calls.
    pub transaction_retries: u64,
    /// Time that writers were throttled, in microseconds.
    pub slowed_us: u64,
    /// Times that a writer waited for a flush.
    pub stalls: u64,
    /// The longest of these waits, in microseconds.
    pub stall_us_max: u64,
    /// The last commits that took longer than [`crate::Builder::slow_commit`], oldest first; at
    /// most 64.
    pub slow_commits: Vec<SlowCommit>,
    /// Totals of all slow commits since the open, one for each cause, in the order of
    /// [`SlowCause::ALL`](crate::stats::SlowCause::ALL).
    pub slow_commit_totals: Vec<SlowCommitTotal>,
    /// Backpressure, from 0 to 1000; writers are throttled from 500 on.
    pub pressure_per_mille: u64,
    /// Log records replayed at the open.
    pub recovered_records: u64,
    /// The damaged tail of the log at the open: file, offset, last commit before it. A record torn
    /// by a crash and a durable record damaged later look the same.
    pub log_tail_note: Option<String>,
    /// Statistics of the scrubber: see [`crate::Builder::scrub`].
    pub scrub: ScrubStats,
    /// Unexpired readers. Those made from a snapshot or a transaction are part of it.
    pub snapshots: usize,
    /// The sequence number of the oldest.
    pub oldest_snapshot: Option<u64>,
    /// Its age, in microseconds.
    pub oldest_snapshot_age_us: Option<u64>,
    /// The oldest readers above [`crate::Builder::reader_age_warn`], then expired ones; at most 8
    /// of each.
    pub overstaying: Vec<ReaderStats>,
    /// Garbage entries known to be kept for readers.
    pub dead_entries_held: u64,
    /// Readers that have expired: see [`crate::Builder::reader_age_max`].
    pub readers_expired: u64,
    /// The newest commit.
    pub last_sequence: u64,
    /// Memtables that await their flush.
    pub frozen_memtables: usize,
    /// The reason why the database refuses writes.
    pub failure: Option<String>,
    /// Damaged partitions, which are not merged, and the damage.
    pub damaged_partitions: Vec<String>,
    /// Runs of an earlier format version: see [`crate::Db::upgrade`].
    pub older_runs: u64,
    /// All partitions, in key order.
    pub partitions: Vec<PartitionStats>,
}

pub fn hash_index_bytes(version: &Version) -> u64 {
    let views = version.partitions.iter().flat_map(|partition| partition.open_views());
    views.map(|(view, _)| view.hash_index_bytes() as u64).sum()
}
