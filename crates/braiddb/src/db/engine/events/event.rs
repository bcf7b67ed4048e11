//! What a listener can learn ([`Event`]).

use crate::{
    base::{ReaderKind, SequenceNumber},
    compaction::Plan,
    db::engine::slow_commits::report::SlowCommit,
};
use std::{fmt, path::PathBuf, time::Duration};

/// Something that happened in a database: see [`Builder::on_event`](crate::Builder::on_event).
///
/// A begin is followed by its end, unless events were lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A flush of a memtable began.
    FlushBegin,
    /// The flush ended.
    FlushEnd {
        /// Duration of the flush.
        took: Duration,
        /// True if the memtable is in runs.
        is_done: bool,
    },
    /// A merge of a partition began.
    MergeBegin {
        /// Number of the partition.
        partition: u64,
        /// The work.
        kind: MergeKind,
    },
    /// The merge ended.
    MergeEnd {
        /// Number of the partition.
        partition: u64,
        /// The work.
        kind: MergeKind,
        /// Duration of the merge.
        took: Duration,
        /// True if its result is installed.
        is_done: bool,
    },
    /// Writers are throttled: merges and flushes fall behind.
    ThrottleBegin,
    /// Writers are not throttled any more.
    ThrottleEnd,
    /// A writer waits until a memtable is flushed, and all others behind it.
    StallBegin,
    /// The writer continues or failed.
    StallEnd {
        /// Duration of the wait.
        took: Duration,
    },
    /// A commit took longer than [`Builder::slow_commit`](crate::Builder::slow_commit).
    SlowCommit(SlowCommit),
    /// Background work failed. It is tried again, or the database fails.
    BackgroundError {
        /// The error's message.
        error: String,
    },
    /// The disk is full and the [reserve](crate::Builder::disk_reserve) is in use: only deletes,
    /// flushes and compactions succeed.
    ReserveUsed,
    /// The reserve is whole again, and all writes are accepted.
    ReserveRefilled,
    /// The database takes no more writes: see [`Stats::failure`](crate::stats::Stats::failure).
    Failed {
        /// The reason.
        reason: String,
    },
    /// A view is damaged. Reads go on without it until it is rebuilt.
    ViewDamaged {
        /// Number of the view's file.
        file_number: u64,
    },
    /// The [scrubber](crate::Builder::scrub) found damage.
    DamageFound {
        /// The damaged file.
        path: PathBuf,
        /// Offset of the damage, in bytes.
        offset: u64,
    },
    /// A reader has been in use for longer than
    /// [`reader_age_warn`](crate::Builder::reader_age_warn).
    ReaderOverstays {
        /// Its kind.
        kind: ReaderKind,
        /// The last commit visible to it.
        sequence: SequenceNumber,
        /// Its age.
        age: Duration,
    },
    /// A reader has expired: see [`reader_age_max`](crate::Builder::reader_age_max).
    ReaderExpired {
        /// Its kind.
        kind: ReaderKind,
        /// The last commit visible to it.
        sequence: SequenceNumber,
        /// Its age.
        age: Duration,
    },
    /// The log archive cannot be written; the log is retained until it can.
    ArchiveFailed {
        /// The error's message.
        error: String,
    },
    /// A backup began.
    BackupBegin,
    /// The backup ended.
    BackupEnd {
        /// Its number; `None` if it failed.
        id: Option<u64>,
        /// Duration of the backup.
        took: Duration,
    },
    /// The listener was too slow: this many events were dropped here.
    Lost {
        /// Number of dropped events.
        count: u64,
    },
}

/// The work of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MergeKind {
    /// Folds unindexed runs into the partition's view.
    Fold,
    /// Merges unindexed runs among themselves.
    Unindexed,
    /// Merges runs of the view, and rebuilds it.
    Runs,
    /// Rebuilds the view alone.
    RebuildView,
    /// Splits the partition.
    Split,
}

impl fmt::Display for MergeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MergeKind::Fold => "fold",
            MergeKind::Unindexed => "merge of unindexed runs",
            MergeKind::Runs => "merge",
            MergeKind::RebuildView => "rebuild of the view",
            MergeKind::Split => "split",
        })
    }
}

impl MergeKind {
    pub(in crate::db) fn of(plan: &Plan) -> MergeKind {
        match plan {
            Plan::Fold => MergeKind::Fold,
            Plan::Loose { .. } | Plan::Rewrite { .. } => MergeKind::Unindexed,
            Plan::Major { .. } => MergeKind::Runs,
            Plan::Rebuild => MergeKind::RebuildView,
            Plan::Cut { .. } | Plan::Split | Plan::Prefix => MergeKind::Split,
        }
    }
}
