//! Commits that took long, and why: [`Stats::slow_commits`](crate::stats::Stats::slow_commits).

use crate::{base::SequenceNumber, db::engine::events::event::MergeKind, platform::SystemTime};
use std::{fmt, time::Duration};

/// The part of a commit that took time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SlowCause {
    /// It waited behind commits of other threads: see [`SlowCommit::behind`].
    Queue,
    /// It waited for the device to sync the log, with the blob files that it refers to.
    Sync,
    /// Memtables were full, or nearly so: commits came faster than flushes.
    MemoryFull,
    /// Merges fell behind: too many unindexed runs, or too much garbage.
    Merge,
    /// Unindexed runs piled up while a view was built.
    ViewBuild,
    /// The log began a new segment that was not made ahead, or a new memtable.
    Rotation,
    /// The disk was full, and the commit took space from the reserve, or failed.
    FullDisk,
    /// It waited for an exclusive transaction to end, or for a load, a flush or a close that
    /// briefly excludes commits.
    Lock,
    /// The reads of a transaction were checked against memtables and runs.
    Conflict,
    /// Everything else: the bytes were prepared and written to blob files, log and memtable. A
    /// busy processor or page cache counts here.
    Write,
}

impl SlowCause {
    /// All causes.
    pub const ALL: [SlowCause; 10] = [
        SlowCause::Queue,
        SlowCause::Sync,
        SlowCause::MemoryFull,
        SlowCause::Merge,
        SlowCause::ViewBuild,
        SlowCause::Rotation,
        SlowCause::FullDisk,
        SlowCause::Lock,
        SlowCause::Conflict,
        SlowCause::Write,
    ];

    /// Returns a short name: `memory_full`.
    pub fn name(self) -> &'static str {
        match self {
            SlowCause::Queue => "queue",
            SlowCause::Sync => "sync",
            SlowCause::MemoryFull => "memory_full",
            SlowCause::Merge => "merge",
            SlowCause::ViewBuild => "view_build",
            SlowCause::Rotation => "rotation",
            SlowCause::FullDisk => "full_disk",
            SlowCause::Lock => "lock",
            SlowCause::Conflict => "conflict",
            SlowCause::Write => "write",
        }
    }
}

impl fmt::Display for SlowCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SlowCause::Queue => "queue",
            SlowCause::Sync => "sync",
            SlowCause::MemoryFull => "memory full",
            SlowCause::Merge => "merge",
            SlowCause::ViewBuild => "view build",
            SlowCause::Rotation => "rotation",
            SlowCause::FullDisk => "full disk",
            SlowCause::Lock => "lock",
            SlowCause::Conflict => "conflict",
            SlowCause::Write => "write",
        })
    }
}

/// The time of a commit, by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitParts {
    ns: [u64; SlowCause::ALL.len()],
}

impl CommitParts {
    /// Returns the time of a part.
    pub fn get(&self, part: SlowCause) -> Duration {
        Duration::from_nanos(self.ns(part))
    }

    /// Returns the parts that took time, the longest first.
    pub fn longest_first(&self) -> Vec<(SlowCause, Duration)> {
        let mut parts: Vec<_> = SlowCause::ALL.into_iter().map(|part| (part, self.get(part))).collect();
        parts.retain(|(_, took)| !took.is_zero());
        parts.sort_by(|(_, a), (_, b)| b.cmp(a));
        parts
    }

    pub(in crate::db) fn ns(&self, part: SlowCause) -> u64 {
        self.ns[part as usize]
    }

    pub(in crate::db) fn add(&mut self, part: SlowCause, ns: u64) {
        self.ns[part as usize] += ns;
    }

    /// Moves time to another part, as much as there is.
    pub(in crate::db) fn shift(&mut self, from: SlowCause, to: SlowCause, ns: u64) {
        let moved = ns.min(self.ns[from as usize]);
        self.ns[from as usize] -= moved;
        self.ns[to as usize] += moved;
    }

    pub(in crate::db) fn total_ns(&self) -> u64 {
        self.ns.iter().sum()
    }

    /// Returns the part that took the most; `None` if none took time.
    pub(in crate::db) fn longest(&self) -> Option<SlowCause> {
        let parts = SlowCause::ALL.into_iter().filter(|part| self.ns(*part) > 0);
        // The first of equals.
        parts.rev().max_by_key(|part| self.ns(*part))
    }
}

impl fmt::Display for CommitParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (part, took)) in self.longest_first().iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{part} {took:.1?}")?;
        }
        Ok(())
    }
}

/// Background work that commits waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackgroundWork {
    /// The flush of a memtable.
    Flush,
    /// A merge, or the build of a view.
    Merge {
        /// Number of the partition.
        partition: u64,
        /// The work.
        kind: MergeKind,
    },
}

impl BackgroundWork {
    /// Returns the part of a commit that does this work itself.
    pub(in crate::db) fn slow_cause(self) -> SlowCause {
        match self {
            BackgroundWork::Flush => SlowCause::MemoryFull,
            BackgroundWork::Merge { kind: MergeKind::Fold | MergeKind::RebuildView, .. } => SlowCause::ViewBuild,
            BackgroundWork::Merge { .. } => SlowCause::Merge,
        }
    }
}

impl fmt::Display for BackgroundWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackgroundWork::Flush => f.write_str("flush"),
            BackgroundWork::Merge { partition, kind } => write!(f, "{kind} of partition {partition}"),
        }
    }
}

/// Background work at the time of a slow commit, or of a reading of the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunningWork {
    /// The work.
    pub work: BackgroundWork,
    /// For how long it had run at the reading, or when the commit began to wait for it.
    pub ran_for: Duration,
}

/// A commit that took longer than [`crate::Builder::slow_commit`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowCommit {
    /// When it ended.
    pub ended: SystemTime,
    /// Its time from the call to its return; of an asynchronous commit, until it was durable.
    pub took: Duration,
    /// The part that took the most of it.
    pub cause: SlowCause,
    /// The time by part.
    pub parts: CommitParts,
    /// The cause of the delay of earlier commits while it was in the queue, if one was noticed.
    pub behind: Option<SlowCause>,
    /// The background work that it waited for; `None` if it waited for none, or none ran.
    pub background: Option<RunningWork>,
    /// Its operations.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Its number; `None` if it failed.
    pub sequence: Option<SequenceNumber>,
}

impl fmt::Display for SlowCommit {
    /// `commit 17 took 1.2s: memory full 1.1s, sync 80.0ms (waited for a flush)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sequence {
            Some(sequence) => write!(f, "commit {sequence}")?,
            None => f.write_str("a failed commit")?,
        }
        write!(f, " took {:.1?}: {}", self.took, self.parts)?;
        if let Some(behind) = self.behind {
            write!(f, "; commits before it: {behind}")?;
        }
        if let Some(RunningWork { work, ran_for }) = self.background {
            write!(f, "; {work} running for {ran_for:.1?}")?;
        }
        Ok(())
    }
}

/// Totals of slow commits by cause, in [`Stats`](crate::stats::Stats).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowCommitTotal {
    /// The cause.
    pub cause: SlowCause,
    /// Slow commits with this cause.
    pub commits: u64,
    /// Time that this part took of all slow commits, in microseconds.
    pub part_us: u64,
}
