//! Counters, sizes and estimates.

pub use crate::{
    base::{FoundEntry, FoundKind, ReadSource, ReadStep, ReaderKind, SkipReason, ViewName},
    db::{
        BackgroundWork, CommitParts, Explain, ExplainedStep, FoundPlace, Outcome, PartitionStats, RangeEstimate,
        ReaderStats, Refreshed, RunStats, RunningWork, ScrubStats, SharedRuntimeStats, SlowCause, SlowCommit,
        SlowCommitTotal, Stats, TreeInfo,
    },
};
