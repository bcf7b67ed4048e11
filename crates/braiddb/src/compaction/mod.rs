//! Moves data from memtables into runs, and from many runs into fewer.
//!
//! `plan.rs` decides from sizes alone; the other files do the work and return the result. The
//! database installs it with one edit of the manifest.

mod combine;
mod context;
mod filter;
mod flush;
mod job;
mod merge_scan;
mod output;
mod plan;
mod prefix;

#[cfg(test)]
mod tests;

pub use combine::Sieve;
pub use context::{JobContext, Relocate};
pub use filter::VersionFilter;
pub use flush::{FlushOutput, flush};
pub use job::{MergeOutput, MergePart, Target, cut, droppable_runs, fold, merge, rebuild};
pub use merge_scan::MergeScan;
pub use output::{MERGED_BLOCKS_MAX, PART_BLOCKS_MAX, PARTITION_BLOCKS_MAX};
pub use plan::{
    DeadEstimate, PartitionShape, Plan, PlanOptions, RunShape, ViewShape, best_cut, deadest, estimate_dead, plan,
};
pub use prefix::is_paid;
