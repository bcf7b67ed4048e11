//! Counters, sizes and estimates.

pub use crate::{
    base::ReaderKind,
    db::{
        BackgroundWork, CommitParts, PartitionStats, RangeEstimate, ReaderStats, Refreshed, RunStats, RunningWork,
        ScrubStats, SharedRuntimeStats, SlowCause, SlowCommit, SlowCommitTotal, Stats, TreeInfo,
    },
};
