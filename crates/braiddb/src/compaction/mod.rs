//! Plans, flushes, folds and merges: how data moves from memtables into runs and from runs into fewer runs.
//!
//! `plan.rs` decides from sizes alone; the others act and return what they made. Putting it into force (one edit of
//! the manifest) is the database's business.

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
#[cfg(test)]
mod tests_combine;

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
