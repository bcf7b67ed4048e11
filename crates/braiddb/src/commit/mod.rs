//! Batches, the commit queue with group commit, and the list of snapshots.

mod batch;
mod queue;
mod snapshots;

#[cfg(test)]
mod tests;

pub use batch::{
    MERGED_INTO_EXPIRING, NOTHING, Operation, PreparedBatch, RawBatch, decode_batch, decode_group, split_group,
};
pub use queue::CommitQueue;
#[cfg(test)]
pub use snapshots::AgedReaders;
pub use snapshots::{Held, Seen, SnapshotList};
