//! Counters, sizes and estimates.

pub use crate::{
    base::ReaderKind,
    db::{
        PartitionStats, RangeEstimate, ReaderStats, Refreshed, RunStats, ScrubStats, SharedRuntimeStats, Stats,
        TreeInfo,
    },
};
