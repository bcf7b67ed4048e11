//! Commits: batches, the commit queue, group commit, snapshots.
